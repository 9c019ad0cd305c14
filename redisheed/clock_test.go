package redisheed

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// A Redis whose clock is set, or that is on another machine after a failover, is as good as before
// once what was in use has come back: sooner by as much as its clock is ahead, or later.
func TestAClockOfRedisThatIsSetIsFollowedAtOnce(t *testing.T) {
	const (
		quota  = 20
		window = time.Second
	)
	for name, c := range map[string]struct{ by, over time.Duration }{
		"forward":     {3 * time.Second, window},
		"far forward": {time.Minute, window},
		"back":        {-3 * time.Second, 3*time.Second + window},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				var trips atomic.Int64
				far := &farRedis{trip: func() time.Duration { // never as short again as at first
					if n := trips.Add(1); n > 20 {
						return time.Duration(3+n%4) * time.Millisecond
					}
					return 2 * time.Millisecond
				}}
				ctx, cancel := context.WithCancel(t.Context())
				var mu sync.Mutex
				var starts []time.Time
				var clients sync.WaitGroup
				for range 4 {
					r, end := far.registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: quota, Window: window}}})
					defer end()
					for range 4 {
						clients.Go(func() {
							for {
								pm, err := r.Acquire(ctx, request())
								if err != nil {
									return
								}
								mu.Lock()
								starts = append(starts, time.Now())
								mu.Unlock()
								time.Sleep(20 * time.Millisecond)
								answer(pm, 200)
								pm.Release()
							}
						})
					}
				}
				time.Sleep(5 * time.Second)
				set := time.Now()
				for range 15000 {
					m.SetTime(time.Now().Add(c.by))
					time.Sleep(time.Millisecond)
				}
				cancel()
				clients.Wait()
				after := 0
				for i, at := range starts {
					if at.Before(set.Add(c.over)) {
						continue
					}
					after++
					if i >= quota && at.Sub(starts[i-quota]) < window && !starts[i-quota].Before(set.Add(c.over)) {
						t.Fatalf("more than %d in a window, %v after the clock was set", quota, at.Sub(set))
					}
				}
				if least := int((15*time.Second-c.over)/window-1) * quota * 8 / 10; after < least {
					t.Errorf("%d requests after what was in use came back, want %d at least", after, least)
				}
			})
		})
	}
}

// Where Redis has forgotten all, and is on a machine whose clock is another, what is in use is told
// by the clock it has now.
func TestWhatWasUsedIsToldByTheClockThatRedisHasNow(t *testing.T) {
	const (
		quota  = 5
		window = time.Minute
	)
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "a little ahead": window / 2, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				far := &farRedis{trip: func() time.Duration { return 2 * time.Millisecond }}
				limits := heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: quota, Window: window}}}
				r, end := far.registry(t, m, Options{}, limits)
				defer end()
				other, end := far.registry(t, m, Options{}, limits)
				defer end()
				clock := func(d, by time.Duration) { // virtual time passes
					for range int(d / (10 * time.Millisecond)) {
						m.SetTime(time.Now().Add(by))
						time.Sleep(10 * time.Millisecond)
					}
					m.SetTime(time.Now().Add(by))
				}
				clock(time.Second, 0)
				open := acquire(t, r) // answered after that
				for range quota - 1 {
					pm := acquire(t, r)
					answer(pm, 200)
					pm.Release()
				}
				clock(time.Second, 0)
				m.FlushAll()
				clock(window/2, by)
				answer(open, 200)
				open.Release()
				granted := func() (n int) {
					for {
						pm, err := other.Acquire(heed.NoWait(t.Context()), request())
						if err != nil {
							return n
						}
						answer(pm, 200)
						pm.Release()
						n++
					}
				}
				if n := granted(); n > 0 {
					t.Errorf("%d granted of what was in use", n)
				}
				clock(window/2-5*time.Second, by)
				if n := granted(); n > 0 {
					t.Errorf("%d granted of what was in use, later", n)
				}
				clock(6*time.Second, by)
				if n := granted(); n != quota-1 {
					t.Errorf("%d granted once the window was over, want %d", n, quota-1)
				}
			})
		})
	}
}

// Who does not want to wait for what a clock that was set back holds up resets the origin.
func TestAResetEndsWhatAClockThatWasSetBackHolds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		far := &farRedis{}
		r, end := far.registry(t, m, Options{}, heed.Limits{MaxConcurrent: 3, Policies: []heed.Policy{{Name: "p", Quota: 2, Window: time.Second}}})
		defer end()
		m.SetTime(time.Now())
		for range 2 {
			pm := acquire(t, r)
			answer(pm, 200)
			pm.Release()
		}
		time.Sleep(5 * time.Second)
		m.SetTime(time.Now().Add(-time.Hour))
		if _, err := r.Acquire(heed.NoWait(t.Context()), request()); err == nil {
			t.Fatal("granted: the clock was not set back")
		}
		if err := r.Reset(testOrigin); err != nil {
			t.Fatal(err)
		}
		acquire(t, r).Release()
	})
}
