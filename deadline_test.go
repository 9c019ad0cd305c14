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

func TestRefusedAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		want   heed.LimitError
	}{
		{"deadline", quota(1, time.Minute), timeout(59 * time.Second), heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy}},
		{"deadline at that very instant", quota(1, time.Minute), timeout(time.Minute), heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy}},
		{"no wait", quota(1, time.Minute), noWait, heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonNoWait, Cause: heed.CausePolicy}},
		{"max wait", withMaxWait(quota(1, time.Minute), time.Minute-1), nil, heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonMaxWait, Cause: heed.CausePolicy}},
		{"max wait before the deadline", withMaxWait(quota(1, time.Minute), time.Second), timeout(2 * time.Second),
			heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonMaxWait, Cause: heed.CausePolicy}},
		{"deadline before max wait", withMaxWait(quota(1, time.Minute), 2*time.Second), timeout(time.Second),
			heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy}},
		{"an interval", heed.Limits{MinInterval: time.Minute}, timeout(time.Second), heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
		{"a pause between requests", heed.Limits{MinPause: time.Minute}, timeout(time.Second), heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: tc.limits})
				done(acquire(t, r, request(example)))
				ctx := t.Context()
				if tc.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tc.ctx(ctx)
					defer cancel()
				}
				w := start(ctx, r, request(example))
				if !w.done() || w.at != 0 {
					t.Fatal("not refused at once")
				}
				tc.want.Origin = example
				if le := limitErr(t, w.err); *le != tc.want {
					t.Errorf("refused with %#v, want %#v", *le, tc.want)
				}
				if s := r.Snapshot()[0]; s.Waiting != 0 {
					t.Errorf("%d still wait", s.Waiting)
				}
			})
		})
	}
}

func timeout(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

func noWait(ctx context.Context) (context.Context, context.CancelFunc) {
	return heed.NoWait(ctx), func() {}
}

func withMaxWait(l heed.Limits, d time.Duration) heed.Limits {
	l.MaxWait = d
	return l
}

func TestMaxQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota(1, time.Hour)
		l.MaxQueue = 2
		r := newRegistry(t, heed.Config{Default: l})
		defer r.Close()
		for _, key := range []string{"a", "b"} { // MaxQueue is over all partitions
			done(acquire(t, r, request(example, "X-Api-Key", key)))
			if w := start(t.Context(), r, request(example, "X-Api-Key", key)); w.done() {
				t.Fatalf("refused: %v", w.err)
			}
		}
		w := start(t.Context(), r, request(example, "X-Api-Key", "b"))
		if le := limitErr(t, w.err); le.Reason != heed.ReasonQueueFull || le.Timeout() || le.Wait < time.Hour {
			t.Errorf("refused with %#v", le)
		}
		if pm, err := r.Acquire(t.Context(), request(example, "X-Api-Key", "c")); err != nil {
			t.Errorf("one that need not wait is refused: %v", err)
		} else {
			pm.Release()
		}
	})
}

// MaxWait ends waits whose end nobody could tell, too.
func TestMaxWaitEndsAWaitOfUnknownLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1, MaxWait: time.Minute}})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		w := start(t.Context(), r, request(example))
		time.Sleep(time.Minute)
		synctest.Wait()
		if le := limitErr(t, w.err); le.Reason != heed.ReasonMaxWait || le.Cause != heed.CauseConcurrency || le.Wait != time.Minute || w.at != time.Minute {
			t.Errorf("refused after %v with %#v", w.at, le)
		}
		// At the very instant MaxWait is over it may still go.
		for range 100 {
			w := start(t.Context(), r, request(example))
			release := pm
			time.AfterFunc(time.Minute, release.Release)
			time.Sleep(time.Minute)
			synctest.Wait()
			if !w.done() || (w.permit == nil) == (w.err == nil) {
				t.Fatalf("neither one nor the other: %+v", w)
			}
			if w.permit == nil {
				w.permit = acquire(t, r, request(example))
			}
			pm = w.permit
		}
		pm.Release()
		l := quota(1, time.Minute)
		l.MaxWait = time.Minute
		r.SetLimits(example, l)
		time.Sleep(time.Minute)
		done(acquire(t, r, request(example)))
		for range 100 {
			w := start(t.Context(), r, request(example))
			time.Sleep(time.Minute)
			synctest.Wait()
			if w.err != nil {
				t.Fatalf("refused although a wait may be as long: %v", w.err)
			}
			done(w.permit)
		}
	})
}

// With a deadline of its context a wait of unknown length ends in a
// LimitError as well, that is a DeadlineExceeded.
func TestDeadlineEndsAWaitOfUnknownLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := start(ctx, r, request(example))
		time.Sleep(time.Minute)
		synctest.Wait()
		if le := limitErr(t, w.err); le.Reason != heed.ReasonDeadline || !errors.Is(le, context.DeadlineExceeded) || le.Wait != time.Minute {
			t.Errorf("refused with %#v", le)
		}
		pm.Release()
	})
}

// A scout may be answered any moment: who waits for it is not refused for the
// time after which another one goes.
func TestScoutIsNoReasonToRefuseADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		scout := acquire(t, r, request(example))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		w := start(ctx, r, request(example))
		time.Sleep(100 * time.Millisecond)
		done(scout)
		synctest.Wait()
		if !w.done() || w.err != nil {
			t.Fatalf("refused: %v", w.err)
		}
		done(w.permit)
	})
}

// deadlines starts n requests with a deadline each and returns which of them
// went, were refused at once, and failed only later. Answers take latency.
func deadlines(t *testing.T, r *heed.Registry, n int, within, latency time.Duration, keys int) (went, atOnce, later []int) {
	ws := make([]*waiting, n)
	for i := range ws {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		w := &waiting{}
		ws[i] = w
		began := time.Now()
		go func() {
			w.permit, w.err = r.Acquire(ctx, request(example, "X-Api-Key", fmt.Sprint(i%keys)))
			w.at = time.Since(began)
			if w.err == nil {
				time.Sleep(latency)
				done(w.permit)
			}
		}()
		synctest.Wait()
	}
	time.Sleep(within + time.Minute)
	synctest.Wait()
	for i, w := range ws {
		switch {
		case w.err == nil:
			went = append(went, i)
		case w.at == 0:
			atOnce = append(atOnce, i)
		default:
			later = append(later, i)
		}
	}
	return went, atOnce, later
}

func upTo(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

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

// On first contact, too.
func TestDeadlinesAreJudgedWhileScouting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: quota(10, time.Second)})
		went, atOnce, later := deadlines(t, r, 25, 2*time.Second, time.Millisecond, 1)
		if !slices.Equal(went, upTo(0, 20)) || !slices.Equal(atOnce, upTo(20, 25)) {
			t.Errorf("went %v, refused at once %v, later %v", went, atOnce, later)
		}
	})
}

// News that puts deadlines out of reach has them refused then and there.
func TestDeadlinesAreJudgedAgainOnNews(t *testing.T) {
	for _, tc := range []struct {
		name  string
		news  func(r *heed.Registry, pm *heed.Permit)
		cause heed.Cause
		kept  bool
	}{
		{"a pause", func(r *heed.Registry, _ *heed.Permit) { r.Pause(example, time.Hour) }, heed.CausePause, false},
		{"a short pause", func(r *heed.Registry, _ *heed.Permit) { r.Pause(example, time.Second) }, 0, true},
		{"a refusal", func(_ *heed.Registry, pm *heed.Permit) { pm.Observe(answer(429, "Retry-After", "600")) }, heed.CausePause, false},
		{"an outage", func(_ *heed.Registry, pm *heed.Permit) { pm.Observe(answer(503, "Retry-After", "600")) }, heed.CausePause, false},
		{"an announcement", func(_ *heed.Registry, pm *heed.Permit) {
			pm.Observe(answer(200, "RateLimit-Policy", `"q";q=5;w=3600`, "RateLimit", `"q";r=0;t=600`))
		}, heed.CausePolicy, false},
		{"news from elsewhere", func(_ *heed.Registry, pm *heed.Permit) {
			pm.Learn(heed.Announcement{Refused: true, RetryAfter: time.Hour})
		}, heed.CausePause, false},
		{"a limit", func(r *heed.Registry, _ *heed.Permit) {
			r.SetLimits(example, heed.Limits{MinInterval: time.Hour})
		}, heed.CauseInterval, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})
				defer r.Close()
				pm := acquire(t, r, request(example))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				w := start(ctx, r, request(example))
				other := start(t.Context(), r, request(example, "X-Api-Key", "b"))
				time.Sleep(time.Second)
				tc.news(r, pm)
				synctest.Wait()
				if other.done() {
					t.Error("one without a deadline no longer waits")
				}
				if tc.kept {
					if w.done() {
						t.Errorf("refused: %v", w.err)
					}
					return
				}
				if le := limitErr(t, w.err); w.at != time.Second || le.Reason != heed.ReasonDeadline || le.Cause != tc.cause || le.Wait < 59*time.Second {
					t.Errorf("after %v: %#v", w.at, le)
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

// What the pace asks for shows only once nothing else holds a request.
func TestDeadlineOutOfReachAfterAPauseIsToldWhenThePauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{
			Policies: []heed.Policy{{Quota: 10, Window: 100 * time.Second}}, Smoothing: heed.Smoothing{Strict: true, Velocity: 1},
		}})
		acquire(t, r, request(example)).Release()
		if err := r.Pause(example, time.Second); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		began := time.Now()
		_, err := r.Acquire(ctx, request(example))
		if le := limitErr(t, err); le.Reason != heed.ReasonDeadline || le.Cause != heed.CauseSmoother || time.Since(began) != time.Second {
			t.Errorf("after %v: %v (%v)", time.Since(began), err, le.Cause)
		}
	})
}

// One at a time goes to see where a window is longer than anyone is made to wait: those
// behind are not refused for the window, but for the time it takes those before them.
func TestDeadlinesBehindAnAbsurdWindowAreJudgedByThoseWhoGoToSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		one(t, r, 200, "RateLimit-Policy", `"p";q=1;w=999999999`, "RateLimit", `"p";r=0;t=999999999`)
		first := start(t.Context(), r, request(example))
		second := startWithin(t, r, 3*time.Hour)
		if second.done() {
			t.Fatalf("refused, though it may go in two hours at the latest: %v", second.err)
		}
		third := startWithin(t, r, 150*time.Minute)
		if le := limitErr(t, third.err); third.at != 0 || le.Reason != heed.ReasonDeadline || le.Policy != "p" || le.Wait < 2*time.Hour || le.Wait > 4*time.Hour {
			t.Errorf("the third: after %v %#v", third.at, le)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if !first.done() || second.done() {
			t.Fatalf("an hour later: first %v, second %v", first.done(), second.done())
		}
		first.permit.Observe(answer(429, "RateLimit-Policy", `"p";q=1;w=999999999`, "RateLimit", `"p";r=0;t=999999999`))
		first.permit.Release()
		time.Sleep(time.Hour)
		synctest.Wait()
		if !second.done() || second.err != nil {
			t.Fatalf("another hour later, the second: %v", second.err)
		}
		second.permit.Release()
	})
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
