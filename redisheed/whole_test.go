package redisheed

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// A run is requests that have been made of one origin, with nothing but a limit over all of it in their way.
type run struct {
	starts, ends []time.Time
	inFlight     int
	most         int            // in flight at once
	each         map[string]int // by process and credential
	longest      map[string]time.Duration
}

// keepGoing has each of so many processes keep asking with each of so many credentials, for requests that take so long.
func keepGoing(t *testing.T, m *miniredis.Miniredis, l heed.Limits, processes, credentials int, takes, lasts time.Duration) *run {
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	r := &run{each: make(map[string]int), longest: make(map[string]time.Duration)}
	var mu sync.Mutex
	var clients sync.WaitGroup
	for i := range processes {
		far := &farRedis{trip: func() time.Duration { return time.Millisecond }}
		registry, end := far.registry(t, m, Options{}, l)
		defer end()
		for j := range credentials {
			who := fmt.Sprintf("process %d, credential %d", i, j)
			mu.Lock()
			r.each[who] = 0
			mu.Unlock()
			clients.Go(func() {
				for {
					began := time.Now()
					req, _ := http.NewRequest("GET", testOrigin, nil)
					req.Header.Set("Authorization", fmt.Sprint("Bearer ", j))
					pm, err := registry.Acquire(ctx, req)
					mu.Lock()
					r.longest[who] = max(r.longest[who], time.Since(began))
					if err != nil {
						mu.Unlock()
						return
					}
					r.starts = append(r.starts, time.Now())
					r.each[who]++
					r.inFlight++
					r.most = max(r.most, r.inFlight)
					mu.Unlock()
					time.Sleep(takes)
					mu.Lock()
					r.inFlight--
					r.ends = append(r.ends, time.Now())
					mu.Unlock()
					answer(pm, 200)
					pm.Release()
				}
			})
		}
	}
	clients.Wait()
	return r
}

func TestMinPauseHoldsOverProcesses(t *testing.T) {
	for _, processes := range []int{2, 3} {
		for _, credentials := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d processes, %d credentials", processes, credentials), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
					const pause = 500 * time.Millisecond
					r := keepGoing(t, m, heed.Limits{MinPause: pause}, processes, credentials, 20*time.Millisecond, 10*time.Second)
					for i := 1; i < len(r.starts); i++ {
						if d := r.starts[i].Sub(r.ends[i-1]); d < pause {
							t.Errorf("request %d went %v after the end of the one before", i, d)
						}
					}
				})
			})
		}
	}
}

func TestWhatALimitOverTheWholeOriginAllowsIsUsedAndSharedEvenly(t *testing.T) {
	const takes = 20 * time.Millisecond
	for name, c := range map[string]struct {
		limits                 heed.Limits
		processes, credentials int
		least                  float64 // requests per second
	}{
		"one at a time, two credentials":       {heed.Limits{MaxConcurrent: 1}, 2, 2, 35},
		"one at a time, three processes":       {heed.Limits{MaxConcurrent: 1}, 3, 2, 35},
		"a few at a time, many credentials":    {heed.Limits{MaxConcurrent: 8}, 3, 6, 280},
		"a few at a time, one process":         {heed.Limits{MaxConcurrent: 8}, 1, 12, 280},
		"a short pause":                        {heed.Limits{MinPause: 30 * time.Millisecond}, 3, 2, 14},
		"a long pause":                         {heed.Limits{MinPause: 200 * time.Millisecond}, 2, 2, 4},
		"an interval":                          {heed.Limits{MinInterval: 100 * time.Millisecond}, 3, 4, 9},
		"a short interval":                     {heed.Limits{MinInterval: 10 * time.Millisecond}, 3, 4, 70},
		"an interval, and a few at a time":     {heed.Limits{MinInterval: 10 * time.Millisecond, MaxConcurrent: 3}, 3, 4, 65},
		"one at a time and a policy that does": {heed.Limits{MaxConcurrent: 1, Policies: []heed.Policy{{Quota: 100, Window: time.Second}}}, 3, 2, 35},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				lasts := 2 * time.Second
				if testing.Short() {
					lasts /= 2
				}
				r := keepGoing(t, m, c.limits, c.processes, c.credentials, takes, lasts)
				rate := float64(len(r.starts)) / lasts.Seconds()
				if rate < c.least {
					t.Errorf("%.1f a second went, want %v", rate, c.least)
				}
				if most := c.limits.MaxConcurrent; most > 0 && r.most > most {
					t.Errorf("%d were in flight at once, want %d at most", r.most, most)
				}
				share := float64(len(r.starts)) / float64(len(r.each))
				for who, n := range r.each {
					if float64(n) < share/2-1 || float64(n) > 2*share+1 {
						t.Errorf("%s: %d requests, want about %.0f", who, n, share)
					}
				}
				t.Logf("%.1f a second: %v, waits %v", rate, r.each, r.longest)
			})
		})
	}
}
