package heed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Exactly those that cannot make it are refused, and at once.
func TestDeadlinesAreJudgedFromThePlaceInLine(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		n      int
		within time.Duration
		keys   int
		want   int           // how many go
		pause  time.Duration // before them
	}{
		{"quota", quota(10, time.Second), 25, 2 * time.Second, 1, 20, 0},
		{"quota, a little longer", quota(10, time.Second), 25, 2*time.Second + 100*ms, 1, 25, 0},
		{"quota, shorter than the window", quota(10, time.Second), 25, 900 * ms, 1, 10, 0},
		{"quota, per credential", quota(10, time.Second), 50, 2 * time.Second, 2, 40, 0},
		{"quotas", heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{{Quota: 10, Window: time.Second}, {Quota: 15, Window: time.Minute}}},
			25, 3 * time.Second, 1, 15, 0},
		{"bucket", heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{{Quota: 10, Window: time.Second, Burst: 5}}}, 30, 2 * time.Second, 1, 24, 0},
		{"interval", heed.Limits{MinInterval: 100 * ms}, 30, 2 * time.Second, 1, 20, 0},
		{"interval over credentials", heed.Limits{MinInterval: 100 * ms}, 30, 2 * time.Second, 3, 20, 0},
		{"pause between", heed.Limits{MinPause: 100 * ms}, 30, 2 * time.Second, 1, 20, 0},
		{"quota, after a pause", quota(10, time.Second), 25, 6500 * ms, 1, 20, 5 * time.Second},
		{"bucket, after a pause", heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{{Quota: 10, Window: time.Second, Burst: 5}}}, 30, 7 * time.Second, 1, 24, 5 * time.Second},
		{"interval, after a pause", heed.Limits{MinInterval: 100 * ms}, 30, 7 * time.Second, 1, 20, 5 * time.Second},
		{"pause between, after a pause", heed.Limits{MinPause: 100 * ms}, 30, 7 * time.Second, 3, 20, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: tc.limits})
				// Met beforehand, so that nobody has to scout.
				r.SetLimits("*", heed.Limits{Smoothing: heed.Smoothing{Off: true}})
				for i := range tc.keys {
					for range 12 {
						done(acquire(t, r, request(example, "X-Api-Key", fmt.Sprint(i))))
					}
				}
				r.SetLimits("*", tc.limits)
				time.Sleep(time.Hour / 2)
				r.Pause(example, tc.pause)
				latency := ms / 10
				went, atOnce, later := deadlines(t, r, tc.n, tc.within, latency, tc.keys)
				if len(went) != tc.want || len(later) > 0 {
					t.Errorf("%d went: %v\nrefused at once: %v\nlater: %v\nwant %d to go, the rest refused at once", len(went), went, atOnce, later, tc.want)
				}
				if !slices.Equal(went, upTo(0, len(went))) {
					t.Errorf("those who came first did not go first: %v", went)
				}
			})
		})
	}
}

// A request of higher priority takes the place of one that then is too late.
func TestDeadlinesAreJudgedAgainWhenOthersPushIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MinInterval: time.Second}})
		defer r.Close()
		done(acquire(t, r, request(example)))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		w := start(ctx, r, request(example))
		if w.done() {
			t.Fatal(w.err)
		}
		high := start(heed.WithPriority(t.Context(), heed.PriorityHigh), r, request(example))
		synctest.Wait()
		if le := limitErr(t, w.err); w.at != 0 || le.Wait != 2*time.Second {
			t.Errorf("after %v: %#v", w.at, le)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !high.done() || high.err != nil {
			t.Errorf("%+v", high)
		}
	})
}

// So does one with another credential, where what holds them holds for all.
func TestDeadlinesAreJudgedAgainWhenOthersPushInElsewhere(t *testing.T) {
	for name, limits := range map[string]heed.Limits{"interval": {MinInterval: time.Second}, "pause between": {MinPause: time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				for range 40 { // met beforehand, so that nobody has to scout
					done(acquire(t, r, request(example, "X-Api-Key", "a")))
					done(acquire(t, r, request(example, "X-Api-Key", "b")))
				}
				r.SetLimits("*", limits)
				time.Sleep(time.Minute)
				done(acquire(t, r, request(example, "X-Api-Key", "a")))
				patient, hasty := startWithin(t, r, time.Minute, "X-Api-Key", "b"), startWithin(t, r, 5500*time.Millisecond, "X-Api-Key", "b")
				var high []*waiting
				for range 3 {
					high = append(high, start(heed.WithPriority(t.Context(), heed.PriorityHigh), r, request(example, "X-Api-Key", "a")))
				}
				if hasty.done() {
					t.Fatalf("after 3 of 4: %v", hasty.err)
				}
				high = append(high, start(heed.WithPriority(t.Context(), heed.PriorityHigh), r, request(example, "X-Api-Key", "a")))
				if !hasty.done() || hasty.at != 0 || limitErr(t, hasty.err).Wait != 6*time.Second {
					t.Errorf("after %v: %v", hasty.at, hasty.err)
				}
				for _, w := range append(high, patient) {
					time.Sleep(time.Second)
					synctest.Wait()
					if !w.done() || w.err != nil {
						t.Fatalf("%+v", w)
					}
					done(w.permit)
				}
			})
		})
	}
}

// Who waits in another partition for more than what all wait for is not sure to go first.
func TestDeadlinesAreNotJudgedByThoseWhoWaitForMore(t *testing.T) {
	for _, tc := range []struct {
		name string
		met  bool
		ctx  func(context.Context) context.Context // of those in the other partition
		at   time.Duration
	}{
		{"for a scout", false, func(ctx context.Context) context.Context { return ctx }, 400 * time.Millisecond},
		{"for a longer interval", true, func(ctx context.Context) context.Context { return heed.WithMinInterval(ctx, time.Minute) }, 200 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				if tc.met {
					meet(t, r, example)
				}
				r.SetLimits("*", heed.Limits{MinInterval: 200 * time.Millisecond})
				done(acquire(t, r, request(example, "X-Api-Key", "other")))
				for range 10 {
					start(tc.ctx(t.Context()), r, request(example))
				}
				w := startWithin(t, r, time.Second, "X-Api-Key", "mine")
				time.Sleep(time.Second)
				synctest.Wait()
				if w.err != nil || !w.done() || w.at != tc.at {
					t.Errorf("after %v: %v; want it to go after %v", w.at, w.err, tc.at)
				}
			})
		})
	}
}

// startWithin starts a request with a deadline.
func startWithin(t *testing.T, r *heed.Registry, d time.Duration, header ...string) *waiting {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return start(ctx, r, request(example, header...))
}

// Who waits behind others as the deadline comes learns what held it.
func TestDeadlineThatComesInLineNamesWhatHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		one(t, r, 200, "RateLimit-Policy", `"p";q=10;w=10`, "RateLimit", `"p";r=0;t=10`)
		var ws []*waiting
		for range 10 {
			ws = append(ws, startWithin(t, r, 15*time.Second))
		}
		time.Sleep(15 * time.Second) // nobody answers the one that goes to see
		synctest.Wait()
		refused := 0
		for _, w := range ws {
			if w.err == nil {
				w.permit.Release()
				continue
			}
			refused++
			if le := limitErr(t, w.err); le.Cause == heed.CauseNone || le.Wait != w.at || w.at != 15*time.Second {
				t.Errorf("after %v: %#v", w.at, le)
			}
		}
		if refused < 2 {
			t.Errorf("%d refused, want several", refused)
		}
	})
}

// What comes back bit by bit does so for those in line one after the other, also where nothing
// is left: who is too far behind is refused at once.
func TestDeadlinesAreJudgedByWhatComesBackBitByBit(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.SlidingWindow, heedtest.TokenBucket, heedtest.GCRA} {
		t.Run(string(algorithm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := heedtest.NewOrigin(heedtest.Config{
					Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 20, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
				})
				client := (&heed.Transport{Base: origin, Registry: newRegistry(t, heed.Config{})}).Client()
				get := func(ctx context.Context) error {
					req, _ := http.NewRequestWithContext(ctx, "GET", example, nil)
					resp, err := client.Do(req)
					if err == nil {
						resp.Body.Close()
					}
					return err
				}
				// It is found out how the quota comes back.
				var all sync.WaitGroup
				began := time.Now()
				for range 8 {
					all.Go(func() {
						for time.Since(began) < 22*time.Second {
							get(t.Context())
						}
					})
				}
				all.Wait()
				var went, late atomic.Int64
				for i := range 40 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
						defer cancel()
						asked := time.Now()
						switch err := get(ctx); {
						case !errors.Is(err, heed.ErrLimited):
							went.Add(1)
						case time.Since(asked) > 0:
							late.Add(1)
						}
					})
				}
				all.Wait()
				if went.Load() < 6 || late.Load() > 4 { // 7 to 12 come back within the deadline, and one or two more might
					t.Errorf("%d went, %d found out in line that they were too late", went.Load(), late.Load())
				}
			})
		})
	}
}
