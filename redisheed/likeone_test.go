package redisheed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// refusedAtOnce fails the test unless a request is refused within a round trip, for a reason.
func refusedAtOnce(t *testing.T, r *heed.Registry, trip time.Duration, why heed.Reason) {
	t.Helper()
	asked := time.Now()
	pm, err := r.Acquire(heed.NoWait(t.Context()), request())
	if err == nil {
		pm.Cancel()
	}
	var limited *heed.LimitError
	if !errors.As(err, &limited) || limited.Reason != why {
		t.Errorf("%v, want %v", err, why)
	}
	if d := time.Since(asked); d > 2*trip {
		t.Errorf("it waited for %v to be refused", d)
	}
}

// goesAhead has a request of its own wait for its permit; the channel is closed once that is over.
func goesAhead(ctx context.Context, t *testing.T, r *heed.Registry) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pm, err := r.Acquire(ctx, request())
		if err != nil {
			t.Error(err)
			return
		}
		pm.Release()
	}()
	return done
}

func TestNoWaitIsRefusedWhereTheOneAheadTakesTheLastSlot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		const trip = 100 * time.Millisecond
		r, end := (&farRedis{trip: func() time.Duration { return trip }}).registry(t, m, Options{}, heed.Limits{MaxConcurrent: 1})
		defer end()
		pm := acquire(t, r) // the origin is known
		answer(pm, 200)
		pm.Release()
		time.Sleep(time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			pm := acquire(t, r)
			time.Sleep(10 * time.Second)
			answer(pm, 200)
			pm.Release()
		}()
		time.Sleep(trip / 2) // Redis is being asked
		refusedAtOnce(t, r, trip, heed.ReasonNoWait)
		<-done
	})
}

func TestNoWaitIsRefusedWhereTheOneAheadWaitsForItsOwnInterval(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		r, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{MaxConcurrent: 2})
		defer end()
		pm := acquire(t, r)
		answer(pm, 200)
		pm.Release()
		done := goesAhead(heed.WithMinInterval(t.Context(), 10*time.Second), t, r)
		time.Sleep(time.Second)
		refusedAtOnce(t, r, 0, heed.ReasonNoWait)
		<-done
	})
}

// Who may go before all that fill the queue is let into it, for Redis to say whether it goes.
func TestAFullQueueDoesNotStopWhoNeedNotWaitInIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		r, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{
			MaxQueue: 1, Policies: []heed.Policy{{Name: "p", Quota: 5, Window: 10 * time.Second}},
		})
		defer end()
		for range 2 {
			pm := acquire(t, r)
			answer(pm, 200)
			pm.Release()
		}
		done := goesAhead(heed.WithCost(t.Context(), heed.UnitRequests, 4), t, r)
		time.Sleep(time.Second)
		pm, err := r.Acquire(heed.WithPriority(t.Context(), heed.PriorityHigh), request())
		if err != nil {
			t.Fatal(err)
		}
		pm.Release()
		<-done
	})
}

func TestCheckSaysWhatRemainsNow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		r, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{MaxConcurrent: 3, Policies: []heed.Policy{{Name: "p", Quota: 5, Window: time.Second}}})
		defer end()
		for i := range 5 {
			pm := acquire(t, r)
			answer(pm, 200)
			pm.Release()
			if d := r.Check(request()); d.Remaining != int64(4-i) {
				t.Errorf("after %d of 5: %+v", i+1, d)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		if d := r.Check(request()); d.Remaining != 5 {
			t.Errorf("a window later: %+v", d)
		}
	})
}

func TestAPauseThatWasEndedDoesNotComeBack(t *testing.T) {
	ends := map[string]func(*heed.Registry) error{
		"Pause": func(r *heed.Registry) error { return r.Pause(testOrigin, 0) },
		"Reset": func(r *heed.Registry) error { return r.Reset(testOrigin) },
	}
	for name, end := range ends {
		for _, status := range []int{429, 503} {
			for _, later := range []time.Duration{0, time.Millisecond, 7 * time.Millisecond} { // the refusal is about to be told, or under way
				t.Run(fmt.Sprint(name, " ", status, " ", later), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
						far := &farRedis{trip: func() time.Duration { return 10 * time.Millisecond }}
						r, stop := far.registry(t, m, Options{}, heed.Limits{})
						defer stop()
						other, stop := far.registry(t, m, Options{}, heed.Limits{})
						defer stop()
						for _, r := range []*heed.Registry{other, r} {
							pm := acquire(t, r)
							answer(pm, 200)
							pm.Release()
						}
						pm := acquire(t, r)
						answer(pm, status, "Retry-After", "60")
						pm.Release()
						time.Sleep(later)
						if err := end(r); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Second)
						for who, r := range map[string]*heed.Registry{"it": r, "another process": other} {
							if d := r.Check(request()); !d.Allowed {
								t.Errorf("%s: %+v", who, d)
							}
						}
					})
				})
			}
		}
	}
}

func TestAnErrorSaysWhosePolicyOthersUsedUp(t *testing.T) {
	c := anyServer(t)
	l := heed.Limits{Policies: []heed.Policy{{Quota: 2, Window: time.Hour}}}
	sends(t, newRegistry(t, c, Options{}, l))
	_, err := newRegistry(t, c, Options{}, l).Acquire(heed.NoWait(t.Context()), request())
	if err == nil || !strings.Contains(err.Error(), "a configured policy has too little left") {
		t.Errorf("%v", err)
	}
}
