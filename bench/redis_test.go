// Package bench compares heed with its peers. It is a module of its own, so
// that their requirements are none of heed's.
package bench

import (
	"context"
	"net"
	"net/http"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisheed"
	"github.com/redis/go-redis/v9"
)

// startRedis starts a redis-server of the benchmark's own.
func startRedis(b *testing.B) *redis.Client {
	if _, err := exec.LookPath("redis-server"); err != nil {
		b.Skip(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", b.TempDir())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() {
		c.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	for range 1000 {
		if c.Ping(context.Background()).Err() == nil {
			return c
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.Fatal("redis-server does not answer")
	return nil
}

// trips counts commands. It is a redis.Hook.
type trips struct{ n atomic.Int64 }

func (h *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A quota that is never used up, so that what is measured is the cost of
// asking.
const plenty = 1_000_000_000

// BenchmarkOneKey is the throughput of one key that many goroutines use.
func BenchmarkOneKey(b *testing.B) {
	run := func(name string, acquire func(c *redis.Client) func(context.Context) error) {
		b.Run(name, func(b *testing.B) {
			c := startRedis(b)
			h := &trips{}
			c.AddHook(h)
			f := acquire(c)
			ctx := context.Background()
			if err := f(ctx); err != nil {
				b.Fatal(err)
			}
			h.n.Store(0)
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := f(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64(h.n.Load())/float64(b.N), "trips/op")
		})
	}
	run("redis_rate", func(c *redis.Client) func(context.Context) error {
		l := redis_rate.NewLimiter(c)
		limit := redis_rate.Limit{Rate: plenty, Burst: plenty, Period: time.Minute}
		return func(ctx context.Context) error {
			_, err := l.Allow(ctx, "key", limit)
			return err
		}
	})
	plain := func(o redisheed.Options) func(c *redis.Client) func(context.Context) error {
		return func(c *redis.Client) func(context.Context) error {
			l := redisheed.New(c, o).Limit("key", heed.Policy{Quota: plenty, Window: time.Minute})
			return func(ctx context.Context) error {
				_, err := l.Acquire(ctx)
				return err
			}
		}
	}
	run("heed/leases", plain(redisheed.Options{}))
	run("heed/none", plain(redisheed.Options{Lease: -1}))
	run("heed/registry", func(c *redis.Client) func(context.Context) error {
		r, err := heed.NewRegistry(heed.Config{
			Ledger:  redisheed.New(c, redisheed.Options{}),
			Default: heed.Limits{Policies: []heed.Policy{{Quota: plenty, Window: time.Minute}}, Smoothing: heed.Smoothing{Off: true}},
		})
		if err != nil {
			b.Fatal(err)
		}
		req, _ := http.NewRequest("GET", "https://api.example/", nil)
		resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
		return func(ctx context.Context) error {
			pm, err := r.Acquire(ctx, req)
			if err == nil {
				pm.Observe(resp)
				pm.Release()
			}
			return err
		}
	})
}

// BenchmarkOneAsker is the latency of one decision where nobody else asks.
func BenchmarkOneAsker(b *testing.B) {
	b.Run("redis_rate", func(b *testing.B) {
		l := redis_rate.NewLimiter(startRedis(b))
		for b.Loop() {
			if _, err := l.Allow(context.Background(), "key", redis_rate.Limit{Rate: plenty, Burst: plenty, Period: time.Minute}); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, p := range map[string]heed.Policy{
		"heed/large": {Quota: plenty, Window: time.Minute},
		"heed/exact": {Quota: 100, Window: time.Millisecond},
	} {
		b.Run(name, func(b *testing.B) {
			l := redisheed.New(startRedis(b), redisheed.Options{Lease: -1}).Limit("key", p)
			for b.Loop() {
				if _, err := l.Acquire(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
