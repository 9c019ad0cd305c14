package redisheed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/redis/go-redis/v9"
)

const (
	lostQuota  = 40
	lostWindow = 2 * time.Second
)

var lostPolicy = heed.Policy{Name: "p", Quota: lostQuota, Window: lostWindow}

// A crowd is clients, each as in a process of its own, that ask one origin for
// all they can get. The origin counts and announces nothing, and refuses only
// what is far more than lostPolicy allows.
type crowd struct {
	t      testing.TB
	origin *heedtest.Origin
	ctx    context.Context
	cancel func()
	wg     sync.WaitGroup

	mu      sync.Mutex
	errs    []error
	longest time.Duration // of a call
}

func newCrowd(t testing.TB) *crowd {
	c := &crowd{t: t, origin: heedtest.NewOrigin(heedtest.Config{
		Dialect: heedtest.Silent, Record: true, Latency: heedtest.RoundTrip(2 * time.Millisecond),
		Policies: []heedtest.Policy{{Quota: 10 * lostQuota, Window: lostWindow}},
	})}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	t.Cleanup(c.stop)
	return c
}

// join adds a client with n goroutines.
func (c *crowd) join(l *Ledger, n int) {
	r, err := heed.NewRegistry(heed.Config{
		Ledger: l, Logger: l.o.Logger,
		Default: heed.Limits{Policies: []heed.Policy{lostPolicy}, Smoothing: heed.Smoothing{Off: true}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	client := (&heed.Transport{Base: c.origin, Registry: r, Retry: heed.Retry{Max: -1}}).Client()
	for range n {
		c.wg.Go(func() {
			for c.ctx.Err() == nil {
				began := time.Now()
				req, _ := http.NewRequestWithContext(c.ctx, "GET", testOrigin, nil)
				resp, err := client.Do(req)
				if err == nil {
					resp.Body.Close()
				}
				if c.ctx.Err() != nil {
					return
				}
				c.mu.Lock()
				c.longest = max(c.longest, time.Since(began))
				if err != nil {
					c.errs = append(c.errs, err)
				}
				c.mu.Unlock()
				if err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
}

// stop has all finish.
func (c *crowd) stop() {
	c.cancel()
	c.wg.Wait()
}

// between is how many requests arrived from one instant until another.
func (c *crowd) between(from, to time.Time) (n int) {
	began := c.origin.Began()
	for _, e := range c.origin.Events() {
		if at := began.Add(e.Arrival); !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// keptTo fails the test if more than the quota arrived in any window.
func (c *crowd) keptTo() {
	c.t.Helper()
	if n := c.origin.Tally().PeakInWindow; n > lostQuota {
		c.t.Errorf("%d requests in one window, want %d at most", n, lostQuota)
	}
}

// sees fails the test unless so many requests arrive within a span from an
// instant on. What comes back all at once is always a little late, and later
// each time: hence a quarter of a window more, and what the machine stood
// still, for each of those who may have been held up one after the other.
func (c *crowd) sees(want int, from time.Time, span time.Duration, what string) {
	c.t.Helper()
	time.Sleep(time.Until(from.Add(span + lostWindow/4)))
	still := min(stoodStill(from), lostWindow/4)
	for {
		n := c.between(from, time.Now())
		if n >= want {
			return
		}
		if time.Since(from) > span+lostWindow/4+5*still {
			c.t.Errorf("%d units in %v %s, want about %d", n, time.Since(from), what, want)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// fullRate fails the test unless a quota is used in a window that begins 2 s
// after recovery.
func (c *crowd) fullRate(recovered time.Time) {
	c.t.Helper()
	c.sees(lostQuota*9/10, recovered.Add(2*time.Second), lostWindow, "from 2 s after recovery on")
}

// neverHung fails the test if a call took longer than a window, what Redis may
// take, and then some.
func (c *crowd) neverHung(o Options) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := lostWindow + cmp.Or(o.Timeout, patience) + 2*time.Second; c.longest > most {
		c.t.Errorf("a call took %v, want %v at most", c.longest, most)
	}
}

// errors returns the errors so far.
func (c *crowd) errors() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.errs)
}

// quick is a client that does not try again for long.
func (s *server) quick(t testing.TB) redis.UniversalClient {
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() { c.Close() })
	return c
}

// two is a crowd of two that share one Redis.
func two(t *testing.T, s *server, o Options) *crowd {
	c := newCrowd(t)
	o.Seed = []byte("seed")
	for range 2 {
		c.join(newLedger(t, s.quick(t), o), 4)
	}
	return c
}

func TestRedisRestartedEmpty(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := two(t, s, Options{})
	time.Sleep(lostWindow + lostWindow/4)
	s.stop()
	time.Sleep(300 * time.Millisecond)
	for _, err := range c.errors() {
		var op *net.OpError
		if !errors.As(err, &op) && !strings.Contains(err.Error(), "EOF") || !strings.Contains(err.Error(), "heed: shared ledger: ") {
			t.Errorf("%T: %v", err, err)
			break
		}
	}
	s.start()
	c.fullRate(time.Now())
	c.keptTo() // what was used before is not forgotten
	c.neverHung(Options{})
}

func TestRedisPausedForThreeSeconds(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	o := Options{Timeout: 500 * time.Millisecond}
	c := two(t, s, o)
	time.Sleep(lostWindow / 2)
	paused := time.Now()
	s.do("CLIENT", "PAUSE", "3000", "ALL")
	time.Sleep(3 * time.Second)
	recovered := time.Now()
	c.fullRate(recovered)
	c.keptTo()
	c.neverHung(o)
	for _, err := range c.errors() {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
			break
		}
	}
	if n := c.between(paused.Add(time.Second), recovered); n > 0 {
		t.Errorf("%d units while Redis was paused", n)
	}
	c.stop()
	// What Redis granted to questions nobody waited for any more is given back.
	r := newRegistry(t, s.quick(t), Options{Seed: []byte("seed")}, heed.Limits{Policies: []heed.Policy{lostPolicy}})
	eventually(t, lostWindow+2*time.Second, "all that was used is back", func() bool {
		req, _ := http.NewRequest("GET", testOrigin, nil)
		d := r.Check(req)
		return d.Err == nil && d.Remaining == lostQuota
	})
}

func TestScriptFlushedAndStateLost(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := two(t, s, Options{})
	time.Sleep(lostWindow / 2)
	s.do("SCRIPT", "FLUSH")
	time.Sleep(lostWindow)
	s.do("FLUSHALL") // as a restart, with the connections kept
	c.fullRate(time.Now())
	c.stop()
	if errs := c.errors(); len(errs) > 0 {
		t.Errorf("%v", errs[0])
	}
	c.keptTo()
	c.neverHung(Options{})
}

func TestFailoverThatLosesWritesOvershootsByNoMore(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	replica := startServer(t, "--replicaof", "127.0.0.1", master.port())
	eventually(t, 10*time.Second, "the replica follows", func() bool {
		return strings.Contains(fmt.Sprint(replica.do("INFO", "replication")), "master_link_status:up")
	})
	var addr atomic.Pointer[string] // of the master, as a Sentinel would say
	addr.Store(&master.addr)
	client := func() redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: master.addr, MaxRetries: -1, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *addr.Load())
		}})
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := newCrowd(t)
	for range 2 {
		c.join(newLedger(t, client(), Options{Seed: []byte("seed")}), 4)
	}
	// What is granted as the second window begins is lost.
	time.Sleep(lostWindow * 7 / 8)
	replica.do("REPLICAOF", "NO", "ONE")
	promoted := time.Now()
	time.Sleep(lostWindow / 4)
	addr.Store(&replica.addr)
	master.stop()
	failed := time.Now()
	c.fullRate(failed)
	c.stop()
	c.neverHung(Options{})
	lost := c.between(promoted, failed)
	if n := c.origin.Tally().PeakInWindow; lost == 0 || n > int64(lostQuota+lost) {
		t.Errorf("%d units in one window, want at most the quota of %d and the %d that were lost", n, lostQuota, lost)
	}
}

func TestFailingIsAtOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	l := newLedger(t, s.quick(t), Options{})
	r, err := heed.NewRegistry(heed.Config{Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest("GET", "https://api.example/", nil)
	pm, err := r.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	pm.Release()
	s.stop()
	began := time.Now()
	for range 50 {
		_, err := r.Acquire(t.Context(), req)
		var op *net.OpError
		if !errors.As(err, &op) || !strings.HasPrefix(err.Error(), "heed: shared ledger: ") {
			t.Fatalf("%v", err)
		}
	}
	near(t, "50 failures", time.Since(began), 0, atOnce)
	if d := r.Check(req); d.Err == nil {
		t.Errorf("Check: %+v", d)
	}
	if err := r.Pause("https://api.example", time.Second); err == nil {
		t.Error("Pause is no error")
	}
	if err := r.Reset("https://api.example"); err == nil {
		t.Error("Reset is no error")
	}
}

func TestAClientsClockDoesNotMatter(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			c := newCrowd(t)
			o := Options{OnOutage: GoAlone, Seed: []byte("seed"), Processes: 2}
			wrong := newLedger(t, s.quick(t), o)
			wrong.wallClock = func(t time.Time) int64 { return t.Add(off).UnixMicro() }
			s.stop()
			c.join(wrong, 2) // alone, and with no idea of Redis's clock
			time.Sleep(lostWindow / 2)
			s.start()
			back := time.Now()
			c.join(newLedger(t, s.quick(t), o), 2)
			time.Sleep(time.Second) // until it is told, the other cannot know what was used
			if n := c.origin.Tally().PeakInWindow; n > lostQuota+lostQuota/2 {
				t.Errorf("%d requests in one window, want no more than the quota and a share", n)
			}
			c.origin.ResetTally()
			c.fullRate(back)
			c.stop()
			c.keptTo()
			if errs := c.errors(); len(errs) > 0 {
				t.Errorf("%d errors: %v", len(errs), errs[0])
			}
		})
	}
}
