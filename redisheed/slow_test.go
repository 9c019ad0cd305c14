package redisheed

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/redis/go-redis/v9"
)

// A farRedis is a client's view of a Redis in virtual time: every round trip takes a while, and
// may come to nothing.
type farRedis struct {
	trip  func() time.Duration
	fate  func() fate
	trips atomic.Int64
}

// A fate is what becomes of a question.
type fate int

const (
	answered   fate = iota
	unanswered      // Redis takes it in, and the connection breaks
	repeated        // … and the client asks again, on another one
	unsent          // Redis cannot be reached
)

var errBroken = errors.New("the connection broke")

func (f *farRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *farRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n := cmd.Name()
		if n == "hello" || n == "client" {
			return next(ctx, cmd)
		}
		f.trips.Add(1)
		var d time.Duration
		if f.trip != nil {
			d = f.trip()
		}
		fate := answered
		if f.fate != nil && strings.HasPrefix(n, "eval") {
			fate = f.fate()
		}
		if fate == unsent {
			cmd.SetErr(errBroken)
			return errBroken
		}
		time.Sleep(d / 2)
		err := next(ctx, cmd)
		time.Sleep(d / 2)
		switch {
		case err != nil: // the script is not there yet
		case fate == repeated:
			err = next(ctx, cmd)
		case fate == unanswered:
			cmd.SetErr(errBroken)
			return errBroken
		}
		return err
	}
}

func (f *farRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// in is a client of m that far stands before.
func (f *farRedis) in(m *miniredis.Miniredis) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
	c.AddHook(f)
	return c
}

// keepAsking has so many goroutines ask an origin for all they can get, until ctx is done.
func keepAsking(ctx context.Context, t *testing.T, clients *sync.WaitGroup, n int, client *http.Client) {
	for range n {
		clients.Go(func() {
			for ctx.Err() == nil {
				req, _ := http.NewRequestWithContext(ctx, "GET", testOrigin, nil)
				resp, err := client.Do(req)
				switch {
				case err == nil:
					resp.Body.Close()
				case ctx.Err() == nil:
					t.Error(err)
					return
				}
			}
		})
	}
}

// A Redis whose answers take longer than a lease lasts still grants leases that are of use.
func TestASlowRedisDoesNotSlowABusyProcess(t *testing.T) {
	same := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	for _, c := range []struct {
		name      string
		processes int
		policy    heed.Policy
		trip      func() time.Duration
		share     float64 // of the quota, at least
		trips     float64 // per request, at most
	}{
		{"50 ms", 1, heed.Policy{Name: "p", Quota: 100, Window: time.Second}, same(50 * time.Millisecond), 0.8, 0.3},
		{"200 ms", 1, heed.Policy{Name: "p", Quota: 1000, Window: 10 * time.Second}, same(200 * time.Millisecond), 0.95, 0.1},
		{"200 ms, three processes", 3, heed.Policy{Name: "p", Quota: 1000, Window: 10 * time.Second}, same(200 * time.Millisecond), 0.95, 0.2},
		{"now fast, now slow", 3, heed.Policy{Name: "p", Quota: 100, Window: 5 * time.Second}, func() time.Duration { return time.Duration(rand.Int64N(int64(500 * time.Millisecond))) }, 0.8, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: heedtest.SlidingWindow, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(20 * time.Millisecond),
					Policies: []heedtest.Policy{{Quota: c.policy.Quota, Window: c.policy.Window}},
				})
				far := &farRedis{trip: c.trip}
				const windows = 5
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(windows*c.policy.Window, stop)
				var clients sync.WaitGroup
				var ends []func()
				for range c.processes {
					r, end := far.registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{c.policy}})
					ends = append(ends, end)
					keepAsking(ctx, t, &clients, 16, (&heed.Transport{Base: o, Registry: r}).Client())
				}
				clients.Wait()
				trips := far.trips.Load()
				for _, end := range ends {
					end()
				}
				tally := o.Tally()
				share, each := float64(tally.Accepted)/float64(windows*c.policy.Quota), float64(trips)/float64(tally.Accepted)
				t.Logf("%.3f of the quota, %.3f round trips per request", share, each)
				if share < c.share || each > c.trips {
					t.Errorf("%.2f of the quota at %.2f round trips per request, want %.2f and %.2f", share, each, c.share, c.trips)
				}
				if tally.Refused > 0 || tally.PeakInWindow > c.policy.Quota {
					t.Errorf("%d refused, %d in one window, want none and %d", tally.Refused, tally.PeakInWindow, c.policy.Quota)
				}
			})
		})
	}
}
