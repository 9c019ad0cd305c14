package heed_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// No announcement, however absurd, stops an origin for good or has a request
// wait for longer than the cap.
func TestNoAnnouncementHoldsBeyondTheCap(t *testing.T) {
	for _, fields := range []string{
		`RateLimit-Policy: "c";q=0;qu="concurrent-requests"`,
		`RateLimit-Policy: "c";q=0;qu="concurrent-requests"|RateLimit: "c";r=0`,
		`RateLimit: "c";r=0|RateLimit-Policy: "c";q=5;qu="concurrent-requests"`,
		`RateLimit-Policy: "c";q=0;w=60`,
		`RateLimit-Policy: "c";q=0;w=60;qu="content-bytes"`,
		`RateLimit-Policy: "c";q=1;w=999999999999999`,
		`RateLimit-Policy: "c";q=1;w=999999999999999|RateLimit: "c";r=0`,
		`RateLimit-Policy: "c";q=1;w=999999999999999|RateLimit: "c";r=0;t=999999999999999`,
		`RateLimit-Policy: "c";q=10;w=999999999|RateLimit: "c";r=0`,
		`RateLimit-Policy: "c";q=10;w=999999999|RateLimit: "c";r=5`,
		`RateLimit-Policy: "c";q=10;w=999999999|RateLimit: "c";r=5;t=999999999`,
		`RateLimit-Policy: "c";q=1;w=999999999;qu="content-bytes"|RateLimit: "c";r=1`,
		`RateLimit: "c";r=0`,
		`RateLimit: "c";r=0;t=999999999`,
		`X-RateLimit-Remaining: 0|X-RateLimit-Reset: 253402300799`,
	} {
		for _, silent := range []bool{false, true} { // from the second answer on
			t.Run(strings.ReplaceAll(fields, "/", "-"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRegistry(t, heed.Config{})
					for i := range 20 {
						began := time.Now()
						ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
						pm, err := r.Acquire(ctx, request(example))
						cancel()
						if d := time.Since(began); err != nil || d > time.Hour {
							t.Fatalf("request %d waited %v: %v", i, d, err)
						}
						var h []string
						if i == 0 || !silent {
							for f := range strings.SplitSeq(fields, "|") {
								name, value, _ := strings.Cut(f, ": ")
								h = append(h, name, value)
							}
						}
						time.Sleep(10 * time.Millisecond)
						pm.Observe(answer(200, h...))
						pm.Release()
					}
				})
			})
		}
	}
}

// A request that is accepted out of a quota of 0, of which nothing is said to be
// left, contradicts that: express-slow-down's fields say so with every answer.
func TestAcceptedRequestsContradictAQuotaOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		began := time.Now()
		for range 100 {
			pm := acquire(t, r, request(example))
			time.Sleep(time.Millisecond)
			pm.Observe(answer(200, "RateLimit-Policy", "0;w=5", "RateLimit", "limit=0, remaining=0, reset=5", "Retry-After", "5"))
			pm.Release()
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("100 requests took %v", d)
		}
		pm := acquire(t, r, request(example))
		pm.Observe(answer(429, "RateLimit-Policy", "0;w=5", "RateLimit", "limit=0, remaining=0, reset=5"))
		pm.Release()
		began = time.Now()
		acquire(t, r, request(example)).Release()
		if d := time.Since(began); d < 5*time.Second {
			t.Errorf("%v after a refusal the next request went", d)
		}
	})
}

// An origin that refuses by chance has no limit to be learned, however slow requests
// become.
func TestRefusalsByChanceHoldNobodyBeyondTheCap(t *testing.T) {
	const most = 30 * time.Second
	for _, random := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: heed.Limits{MaxRetryAfter: most, MaxBackoff: most}})
			meet(t, r, example)
			rnd := rand.New(rand.NewPCG(1, 2))
			for i := range 600 {
				asked := time.Now()
				pm := acquire(t, r, request(example))
				if wait := time.Since(asked); wait > most+most/10 {
					t.Fatalf("request %d waited %v", i, wait)
				}
				time.Sleep(50 * time.Millisecond)
				refused := i%3 == 2
				if random {
					refused = rnd.IntN(3) == 0
				}
				if refused {
					pm.Observe(answer(429))
				} else {
					pm.Observe(answer(200))
				}
				pm.Release()
			}
		})
	}
}

// A request that is never answered holds what it took for as long as it may count, and not
// until it ends, which may be never.
func TestRequestThatHangsStopsNobodyForGood(t *testing.T) {
	for name, c := range map[string]struct {
		fields   []string
		cost     int64
		policies []heed.Policy
	}{
		"one in a second":     {[]string{"RateLimit-Policy", `"c";q=1;w=1`}, 1, nil},
		"all of a quota":      {[]string{"RateLimit-Policy", `"c";q=10;w=1`}, 10, nil},
		"one left, no window": {[]string{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1"}, 1, nil},
		"one left, no quota":  {[]string{"X-RateLimit-Remaining", "1"}, 1, nil},
		"one left until then": {[]string{"RateLimit-Policy", `"c";q=1;w=10`, "RateLimit", `"c";r=1;t=5`}, 1, nil},
		"bytes":               {[]string{"RateLimit-Policy", `"c";q=1;w=1;qu="content-bytes"`}, 1, nil},
		"the user's own":      {nil, 1, []heed.Policy{{Quota: 1, Window: time.Second}}},
		"all of the user's":   {nil, 5, []heed.Policy{{Quota: 5, Window: time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: c.policies, MaxRetryAfter: time.Minute}})
				ask := func() *heed.Permit {
					asked := time.Now()
					ctx, cancel := context.WithTimeout(heed.WithCost(t.Context(), heed.UnitRequests, c.cost), time.Hour)
					defer cancel()
					pm, err := r.Acquire(ctx, request(example))
					if wait := time.Since(asked); err != nil || wait > 2*time.Minute {
						t.Fatalf("waited %v: %v", wait, err)
					}
					return pm
				}
				for i := range 20 {
					pm := ask()
					if i == 5 {
						defer pm.Release()
						continue // it hangs
					}
					time.Sleep(50 * time.Millisecond)
					pm.Observe(answer(200, c.fields...))
					pm.Release()
				}
			})
		})
	}
}

// What the user has set is kept to, however short the waits are that a server can ask for.
func TestRequestThatHangsCountsForAWindowOfTheUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Minute}}, MaxRetryAfter: time.Second}})
		defer acquire(t, r, request(example)).Release() // it hangs
		began := time.Now()
		acquire(t, r, request(example)).Release()
		if wait := time.Since(began); wait <= time.Minute || wait > 2*time.Minute {
			t.Errorf("waited %v", wait)
		}
	})
}

// Nor for good where a limit on requests in flight has only been inferred.
func TestRequestThatHangsUnderALearnedCapIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxRetryAfter: time.Minute}})
		meet(t, r, example)
		end := func(pm *heed.Permit, status int) {
			time.Sleep(50 * time.Millisecond)
			pm.Observe(answer(status))
			pm.Release()
		}
		first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
		end(second, 429)
		end(first, 200)
		end(acquire(t, r, request(example)), 200)
		defer acquire(t, r, request(example)).Release() // it hangs
		if state := r.Snapshot()[0]; len(learned(state)) != 1 || learned(state)[0].Unit != heed.UnitConcurrentRequests || learned(state)[0].Quota != 1 {
			t.Fatalf("learned %+v, want one in flight", learned(state))
		}
		asked := time.Now()
		end(acquire(t, r, request(example)), 200)
		if wait := time.Since(asked); wait < time.Minute || wait > 2*time.Minute {
			t.Errorf("waited %v", wait)
		}
	})
}

// Nor where the server has asked for fewer requests at once.
func TestRequestThatHangsStopsNobodyForGoodWhereLessAtOnceWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		meet(t, r, example)
		defer acquire(t, r, request(example)).Release() // it hangs
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		pm.Learn(heed.Announcement{Reduced: true})
		pm.Release()
		for range 3 {
			asked := time.Now()
			pm := acquire(t, r, request(example))
			if wait := time.Since(asked); wait > 2*time.Minute {
				t.Fatalf("waited %v", wait)
			}
			pm.Observe(answer(200))
			pm.Release()
		}
	})
}

// A dialect of the user's own, or a program that calls Learn, may say what no field can.
func TestAnnouncementsThatNoFieldCanMakeStopNobody(t *testing.T) {
	const most, least = math.MaxInt64, math.MinInt64
	for name, a := range map[string]heed.Announcement{
		"fewer than none at once": {Policies: []heed.Policy{{Name: "c", Quota: -5, Unit: heed.UnitConcurrentRequests}}},
		"fewer than none":         {Policies: []heed.Policy{{Name: "c", Quota: -5, Window: time.Second}}},
		"a window that is over":   {Policies: []heed.Policy{{Name: "c", Quota: 5, Window: -time.Second}}, Limits: []heed.ServiceLimit{{Policy: "c"}}},
		"the least there is":      {Policies: []heed.Policy{{Name: "c", Quota: least, Window: least}}, Limits: []heed.ServiceLimit{{Policy: "c", Remaining: least, Reset: least, Resolution: least}}},
		"the most there is":       {Policies: []heed.Policy{{Name: "c", Quota: most, Window: most}}, Limits: []heed.ServiceLimit{{Policy: "c", Remaining: most, Reset: most, Resolution: most}}, RetryAfter: most},
		"none of the most":        {Policies: []heed.Policy{{Name: "c", Quota: most, Window: most, Unit: heed.UnitContentBytes}}, Limits: []heed.ServiceLimit{{Policy: "c", Reset: most}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{MaxRetryAfter: time.Minute}})
				for i := range 5 {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					pm, err := r.Acquire(ctx, request(example))
					cancel()
					if wait := time.Since(began); err != nil || wait > 2*time.Minute {
						t.Fatalf("request %d waited %v: %v", i, wait, err)
					}
					pm.Learn(a)
					pm.Observe(answer(200))
					pm.Release()
				}
			})
		})
	}
}

// One node of an origin says that nothing is left for ten seconds, another that nearly all of a
// later window is: nothing starts before the instant that the first one named.
func TestNoOtherWindowIsBegunBeforeTheInstantNamedWithNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		says := func(pm *heed.Permit, limit string) {
			pm.Observe(answer(200, "RateLimit-Policy", `"a";q=100;w=60`, "RateLimit", limit))
			pm.Release()
		}
		says(acquire(t, r, request(example)), `"a";r=50;t=10`)
		first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
		says(first, `"a";r=0;t=10`)
		says(second, `"a";r=90;t=58`)
		w := start(t.Context(), r, request(example))
		time.Sleep(time.Hour)
		if !w.done() || w.at < 10*time.Second {
			t.Errorf("it went after %v, done %v; an answer said that nothing is left for 10 s", w.at, w.done())
		}
	})
}
