package redisheed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// hanging is a Redis that answers after a millisecond or, while it hangs, after three seconds.
func hanging(hung *atomic.Bool) *farRedis {
	return &farRedis{trip: func() time.Duration {
		if hung.Load() {
			return 3 * time.Second
		}
		return time.Millisecond
	}}
}

// A Redis that cannot even be connected to keeps nobody for longer than Options.Timeout.
func TestNobodyWaitsForTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(10 * time.Second)
			return nil, errBroken
		}})
		l := New(rc, quiet(Options{Timeout: time.Second}))
		began := time.Now()
		took := func(what string, most time.Duration) {
			t.Helper()
			if d := time.Since(began); d > most {
				t.Errorf("%s took %v, want %v at most", what, d, most)
			}
			began = time.Now()
		}
		r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger, Default: heed.Limits{Policies: []heed.Policy{lostPolicy}}})
		if err != nil {
			t.Fatal(err)
		}
		took("NewRegistry", 0)
		if _, err = r.Acquire(t.Context(), request()); err == nil {
			t.Error("granted without Redis")
		}
		took("Acquire", time.Second)
		r.Close()
		l.Close()
		took("Close", 3*time.Second)
		rc.Close()
		time.Sleep(10 * time.Minute) // the client's goroutines end
	})
}

func TestCloseDoesNotWaitForALostRedisOncePerPartition(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		var hung atomic.Bool
		far := hanging(&hung)
		r, end := far.registry(t, m, Options{Timeout: time.Second}, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 10, Window: 24 * time.Hour}}})
		var all []*heed.Permit
		for i := range 100 {
			req, _ := http.NewRequest("GET", fmt.Sprintf("https://%d.example", i), nil)
			pm, err := r.Acquire(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pm)
		}
		time.Sleep(time.Hour)
		hung.Store(true)
		for _, pm := range all { // of what Redis is to be told in hours
			answer(pm, 200)
			pm.Release()
		}
		began := time.Now()
		end()
		if d := time.Since(began); d > 4*time.Second {
			t.Errorf("closing took %v", d)
		}
	})
}

// That Redis hangs need not be found out by each partition, nor by each question.
func TestAHungRedisKeepsOneRequestWaiting(t *testing.T) {
	for outage, what := range map[Outage]string{Fail: "failing", GoAlone: "going alone"} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				var hung atomic.Bool
				far := hanging(&hung)
				r, end := far.registry(t, m, Options{Timeout: time.Second, OnOutage: outage}, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 10, Window: 24 * time.Hour}}})
				with := func(token int) *http.Request {
					req := request()
					req.Header.Set("Authorization", fmt.Sprint("Bearer ", token))
					return req
				}
				try := func(token int) (err error) {
					pm, err := r.Acquire(t.Context(), with(token))
					if err == nil {
						answer(pm, 200)
						pm.Release()
					}
					return err
				}
				const tokens = 5
				for i := range tokens {
					if err := try(i); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				hung.Store(true)
				began := time.Now()
				for i := range tokens {
					if err := try(i); (err == nil) != (outage == GoAlone) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if d := time.Since(began); d > 1100*time.Millisecond {
					t.Errorf("%s: the requests of %d partitions took %v", what, tokens, d)
				}
				began = time.Now()
				for i := range 10 * tokens {
					if d := r.Check(with(i % tokens)); d.Err == nil || d.Allowed && outage == GoAlone && d.Remaining != 8 {
						t.Errorf("%s: %+v", what, d)
					}
				}
				if d := time.Since(began); d > 100*time.Millisecond {
					t.Errorf("%s: checks took %v", what, d)
				}
				hung.Store(false)
				time.Sleep(5 * time.Second)
				for i := range tokens {
					if err := try(i); err != nil {
						t.Errorf("%s, and Redis is back: %v", what, err)
					}
					if d := r.Check(with(i)); d.Err != nil {
						t.Errorf("%s, and Redis is back: %+v", what, d)
					}
				}
				end()
			})
		})
	}
}

// Who cannot wait for as long as Options.Timeout is told that it is Redis that does not answer, or goes alone.
func TestAHungRedisIsNoLimitToWhoCannotWaitForLong(t *testing.T) {
	for outage, what := range map[Outage]string{Fail: "failing", GoAlone: "going alone"} {
		for _, seed := range []string{"seed", ""} {
			t.Run(fmt.Sprintf("%s, seed %q", what, seed), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
					var hung atomic.Bool
					far := hanging(&hung)
					rc := far.in(m)
					l := New(rc, quiet(Options{OnOutage: outage, Lease: -1, Seed: []byte(seed)[:len(seed):len(seed)]}))
					if seed == "" {
						l.seed = nil
					}
					policy := heed.Policy{Name: "p", Quota: 10, Window: time.Minute}
					r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger, Default: heed.Limits{Policies: []heed.Policy{policy}}})
					if err != nil {
						t.Fatal(err)
					}
					limit := l.Limit("key", policy)
					if _, err := limit.Acquire(t.Context()); err != nil {
						t.Fatal(err)
					}
					if seed != "" {
						pm := acquire(t, r)
						answer(pm, 200)
						pm.Release()
					}
					time.Sleep(20 * time.Second)
					hung.Store(true)
					for name, ask := range map[string]func(context.Context) error{
						"Limit.Acquire":    func(ctx context.Context) error { _, err := limit.Acquire(ctx); return err },
						"Registry.Acquire": func(ctx context.Context) error { _, err := r.Acquire(ctx, request()); return err },
					} {
						ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
						if err := ask(ctx); errors.Is(err, heed.ErrLimited) || (err == nil) != (outage == GoAlone) {
							t.Errorf("%s: %v", name, err)
						}
						if ctx.Err() != nil {
							t.Errorf("%s: it took until the deadline", name)
						}
						cancel()
					}
					hung.Store(false)
					time.Sleep(10 * time.Second)
					if _, err := limit.Acquire(t.Context()); err != nil {
						t.Errorf("and Redis is back: %v", err)
					}
					r.Close()
					l.Close()
					rc.Close()
				})
			})
		}
	}
}

// Once it is known that Redis is lost, nobody waits for long to see whether it is back, nor behind one who does.
func TestNobodyWaitsForARedisThatIsKnownToBeLost(t *testing.T) {
	for _, reached := range []bool{true, false} { // before
		for name, lose := range map[string]func(context.Context, string, string) (net.Conn, error){
			"nobody listens": nobodyListens,
			"no answer": func(context.Context, string, string) (net.Conn, error) {
				conn, _ := net.Pipe()
				return conn, nil
			},
		} {
			t.Run(fmt.Sprintf("%s, reached before: %v", name, reached), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
					var lost atomic.Bool
					lost.Store(!reached)
					rc := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
						if lost.Load() {
							return lose(ctx, network, addr)
						}
						return m.Dial()
					}})
					l := New(rc, quiet(Options{Timeout: time.Second}))
					noSubscription(l)
					r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger})
					if err != nil {
						t.Fatal(err)
					}
					var failed atomic.Int64
					send := func(token string) (time.Duration, error) {
						req := request()
						req.Header.Set("Authorization", "Bearer "+token)
						began := time.Now()
						pm, err := r.Acquire(t.Context(), req)
						if err == nil {
							answer(pm, 200)
							pm.Release()
						}
						return time.Since(began), err
					}
					_, err = send("a")
					if (err == nil) != reached {
						t.Error(err)
					}
					if reached {
						lost.Store(true)
						m.Close()
						send("a") // which finds it out
					}
					var clients sync.WaitGroup
					began := time.Now()
					for i := range 10 {
						clients.Go(func() {
							for time.Since(began) < 10*time.Second {
								d, err := send([]string{"a", "b"}[i%2])
								if err != nil {
									failed.Add(1)
								}
								if d > 100*time.Millisecond {
									t.Errorf("%v from the beginning: %v after %v", time.Since(began), err, d)
								}
								time.Sleep(10 * time.Millisecond)
							}
						})
					}
					clients.Wait()
					if failed.Load() == 0 {
						t.Error("nothing failed")
					}
					r.Close()
					l.Close()
					rc.Close()
					time.Sleep(10 * time.Minute)
				})
			})
		}
	}
}
