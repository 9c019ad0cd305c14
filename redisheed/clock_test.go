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
