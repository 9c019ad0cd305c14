package redisheed

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// Who asked, was told to wait for an hour and left for good keeps nobody from what comes back before that.
func TestWhoLeftKeepsNobodyFromWhatComesBackEarly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		const quota = 4
		var all []*heed.Registry
		for range 2 {
			far := &farRedis{trip: func() time.Duration { return 2 * time.Millisecond }}
			r, end := far.registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: quota, Window: time.Hour}}})
			defer end()
			all = append(all, r)
		}
		stays, leaves := all[0], all[1]
		var permits []*heed.Permit
		for range quota {
			permits = append(permits, acquire(t, stays))
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if _, err := leaves.Acquire(ctx, request()); err == nil {
			t.Fatal("more than the quota was granted")
		}
		time.Sleep(10 * time.Second)
		for _, pm := range permits {
			pm.Cancel()
		}
		began := time.Now()
		for range quota {
			acquire(t, stays)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("what came back was had after %v", d)
		}
	})
}

// … nor, for longer than a minute, from what comes back by itself.
func TestWhoLeftKeepsNobodyForHoursFromWhatComesBack(t *testing.T) {
	const quota = 10
	for name, idle := range map[string]time.Duration{"not yet": 0, "already": 15 * time.Second} {
		t.Run("what came back "+name, func(t *testing.T) {
			s := newSim(t)
			lim := perWindow(quota, time.Hour)
			s.ask("stays", question{Limits: lim, Requests: 5})
			s.advance(30 * time.Minute)
			s.ask("stays", question{Limits: lim, Requests: 5})
			s.advance(30*time.Minute - 10*time.Second)
			if r := s.ask("leaves", question{Limits: lim, Requests: quota, Queue: 1}); r.status != refused || r.wait < 30*time.Minute {
				t.Fatalf("%+v", r)
			}
			s.advance(idle)
			var waited time.Duration
			for waited < time.Hour {
				r := s.ask("stays", question{Limits: lim, Queue: 1})
				if r.status == granted {
					break
				}
				waited += r.wait
				s.advance(r.wait)
			}
			if waited > 2*time.Minute {
				t.Errorf("granted after %v", waited)
			}
		})
	}
}
