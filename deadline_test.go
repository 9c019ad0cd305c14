package heed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
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
// LimitError as well, that is a DeadlineExceeded, whatever cause the deadline has.
func TestDeadlineEndsAWaitOfUnknownLength(t *testing.T) {
	for _, cause := range []error{nil, errors.New("a cause of its own")} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200))
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
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

// Those of other credentials take their turns, too, where the origin has an interval for all: news that
// puts a deadline out of reach behind them has it refused then and there, and behind nobody who is refused.
func TestDeadlinesAreJudgedAgainBehindOtherCredentials(t *testing.T) {
	for name, limits := range map[string]heed.Limits{"MinInterval": {MinInterval: 2 * time.Second}, "MinPause": {MinPause: 2 * time.Second}} {
		for _, tc := range []struct {
			name   string
			news   func(r *heed.Registry, pm *heed.Permit)
			within [3]time.Duration // the deadlines of three, the second of another credential
			went   [3]time.Duration // when they start; 0: refused at once
		}{
			{"nothing", func(*heed.Registry, *heed.Permit) {}, [3]time.Duration{7, 7, 7}, [3]time.Duration{2, 4, 6}},
			{"a pause", func(r *heed.Registry, _ *heed.Permit) { r.Pause(example, 3*time.Second) }, [3]time.Duration{7, 7, 7}, [3]time.Duration{4, 6, 0}},
			{"a pause that others miss", func(r *heed.Registry, _ *heed.Permit) { r.Pause(example, 3*time.Second) }, [3]time.Duration{7, 5, 7}, [3]time.Duration{4, 0, 6}},
			{"a longer interval", func(r *heed.Registry, _ *heed.Permit) {
				r.SetLimits(example, heed.Limits{MinInterval: 3 * limits.MinInterval / 2, MinPause: 3 * limits.MinPause / 2})
			}, [3]time.Duration{7, 7, 7}, [3]time.Duration{2, 5, 0}},
		} {
			t.Run(name+", "+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRegistry(t, heed.Config{Default: limits})
					defer r.Close()
					for _, key := range []string{"a", "b"} {
						pm := acquire(t, r, request(example, "X-Api-Key", key))
						pm.Observe(answer(200))
						pm.Release()
					}
					time.Sleep(time.Minute)
					began := time.Now()
					r.Pause(example, 2*time.Second)
					var went [3]time.Duration
					var wg sync.WaitGroup
					for i, key := range []string{"a", "b", "a"} {
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), tc.within[i]*time.Second)
							defer cancel()
							pm, err := r.Acquire(ctx, request(example, "X-Api-Key", key))
							if err == nil {
								went[i] = time.Since(began) / time.Second
								pm.Observe(answer(200))
								pm.Release()
							} else if le := limitErr(t, err); time.Since(began) != time.Second || le.Reason != heed.ReasonDeadline || le.Wait < tc.within[i]*time.Second-time.Second {
								t.Errorf("request %d, after %v: %v", i, time.Since(began), err)
							}
						})
						synctest.Wait()
					}
					time.Sleep(time.Second)
					tc.news(r, nil)
					wg.Wait()
					if went != tc.went {
						t.Errorf("went after %d s, want %d", went, tc.went)
					}
				})
			})
		}
	}
}

// Those of another credential whom a limit of their own holds do not go before, also where they cost nothing else.
func TestDeadlinesAreNotJudgedByOthersWhomALimitOfTheirOwnHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{
			MinInterval: time.Second, Policies: []heed.Policy{{Quota: 1, Unit: heed.UnitConcurrentRequests}},
		}})
		meet(t, r, example)
		free := heed.WithCost(t.Context(), heed.UnitRequests, 0)
		if _, err := r.Acquire(free, request(example, "X-Api-Key", "k")); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			start(free, r, request(example, "X-Api-Key", "k"))
		}
		time.Sleep(time.Second / 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := start(ctx, r, request(example))
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if !w.done() || w.err != nil {
			t.Errorf("over: %v, %v", w.done(), w.err)
		}
		r.Close()
		synctest.Wait()
	})
}

// Who stands behind others when its time is over is told what holds it then, not what did as it came.
func TestDeadlineThatComesBehindOthersNamesNoPauseThatIsOver(t *testing.T) {
	for _, most := range []time.Duration{0, 5800 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			limits := quota(10, 50*time.Second)
			limits.MaxWait, limits.Smoothing = most, heed.Smoothing{Strict: true, Velocity: 1}
			r := newRegistry(t, heed.Config{Default: limits})
			defer r.Close()
			one(t, r, 200)
			time.Sleep(time.Minute)
			r.Pause(example, time.Second)
			urgent := heed.WithPriority(t.Context(), heed.PriorityHigh)
			start(urgent, r, request(example)) // goes after the pause
			w := startWithin(t, r, 5800*time.Millisecond)
			time.Sleep(time.Second / 2)
			next := start(urgent, r, request(example)) // goes five seconds later
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if next.err != nil || next.at.Round(time.Millisecond) != 5500*time.Millisecond {
				t.Errorf("the one before it: after %v %v", next.at, next.err)
			}
			if le := limitErr(t, w.err); le.Cause != heed.CauseQueue || w.at != 5800*time.Millisecond {
				t.Errorf("after %v: %v", w.at, le)
			}
		})
	}
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
