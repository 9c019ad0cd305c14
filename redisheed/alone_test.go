package redisheed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

func TestGoingAloneKeepsToAShareAndComesBack(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := two(t, s, Options{OnOutage: GoAlone})
	time.Sleep(lostWindow + lostWindow/4)
	s.stop()
	lost := time.Now()
	c.sees(2*lostQuota*9/10, lost.Add(lostWindow), 2*lostWindow, "alone")
	s.start()
	c.fullRate(time.Now())
	if errs := c.errors(); len(errs) > 0 {
		t.Errorf("%d errors: %v", len(errs), errs[0])
	}
	c.keptTo()
	c.neverHung(Options{})
}

func TestGoingAloneIsSeen(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var mu sync.Mutex
	var events []heed.Event
	l := newLedger(t, s.quick(t), Options{OnOutage: GoAlone, Seed: []byte("seed")})
	r, err := heed.NewRegistry(heed.Config{Ledger: l, Default: heed.Limits{Policies: []heed.Policy{lostPolicy}}, OnEvent: func(e heed.Event) {
		if e.Kind == heed.EventDegraded {
			mu.Lock()
			events = append(events, e)
			mu.Unlock()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest("GET", "https://api.example/", nil)
	send := func() {
		t.Helper()
		pm, err := r.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pm.Observe(&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody})
		pm.Release()
	}
	send()
	s.stop()
	send()
	if !r.Snapshot()[0].Partitions[0].Degraded {
		t.Error("the snapshot does not say degraded")
	}
	s.start()
	eventually(t, 2*time.Second, "it is back", func() bool { send(); return !r.Snapshot()[0].Partitions[0].Degraded })
	mu.Lock()
	defer mu.Unlock()
	if len(events) != 2 || events[0].Err == nil || events[1].Err != nil {
		t.Errorf("%+v", events)
	}
}

func TestGoingAloneFromTheStart(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.stop()
	req, _ := http.NewRequest("GET", testOrigin, nil)
	req.Header.Set("Authorization", "Bearer token")
	sent := 0
	process := func() (r *heed.Registry, send func() error) {
		r, err := heed.NewRegistry(heed.Config{
			Ledger:  newLedger(t, s.quick(t), Options{OnOutage: GoAlone, Processes: 2}), // which are not told the seed
			Default: heed.Limits{Policies: []heed.Policy{{Quota: 10, Window: time.Minute}}, Smoothing: heed.Smoothing{Off: true}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r, func() error {
			pm, err := r.Acquire(heed.NoWait(t.Context()), req)
			if err == nil {
				sent++
				pm.Observe(&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody})
				pm.Release()
			}
			return err
		}
	}
	here, send := process()
	for range 4 {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	eventually(t, patience, "it finds Redis", func() bool { return here.Check(req).Err == nil })
	keys := func() []string { return s.quick(t).Keys(t.Context(), "{heed:"+testOrigin+"}:*").Val() }
	eventually(t, patience, "it tells Redis what it used", func() bool { return len(keys()) == 1 })
	// As whose it was told, the other process finds it.
	_, send = process()
	eventually(t, patience, "the other has what is left", func() bool { send(); return sent == 10 })
	if err := send(); !errors.Is(err, heed.ErrLimited) {
		t.Errorf("%d of 10 sent, and then %v", sent, err)
	}
	if k := keys(); len(k) != 1 {
		t.Errorf("one partition is kept as %q", k)
	}
}

// The intervals of an origin hold over all credentials, also those of a process
// that goes alone.
func TestGoingAloneSpacesAllCredentials(t *testing.T) {
	const interval, processes, span = 50 * time.Millisecond, 4, 10 * time.Second
	for _, limits := range []heed.Limits{{MinInterval: interval}, {MinPause: interval}} {
		synctest.Test(t, func(t *testing.T) {
			c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("lost")
			}})
			l := New(c, quiet(Options{OnOutage: GoAlone, Processes: processes, Seed: []byte("seed")}))
			r, err := heed.NewRegistry(heed.Config{Ledger: l, Default: limits, Logger: l.o.Logger})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), span)
			defer cancel()
			var sent atomic.Int64
			var clients sync.WaitGroup
			for i := range 4 {
				clients.Go(func() {
					for {
						req, _ := http.NewRequest("GET", testOrigin, nil)
						req.Header.Set("Authorization", fmt.Sprint("Bearer ", i))
						pm, err := r.Acquire(ctx, req)
						if err != nil {
							return
						}
						sent.Add(1)
						time.Sleep(time.Millisecond)
						pm.Observe(&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody})
						pm.Release()
						time.Sleep(rand.N(20 * time.Millisecond))
					}
				})
			}
			clients.Wait()
			r.Close()
			l.Close()
			c.Close()
			time.Sleep(time.Minute) // until the client has noticed
			most, least := int64(span/(processes*interval))+1, int64(span/(processes*interval))*3/4
			if n := sent.Load(); n < least || n > most {
				t.Errorf("%+v: %d requests in %v, want from %d to %d", limits, n, span, least, most)
			}
		})
	}
}
