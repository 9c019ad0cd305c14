package heed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"golang.org/x/time/rate"
)

// one sends a request and has it answered after a moment.
func one(t *testing.T, r *heed.Registry, status int, fields ...string) {
	t.Helper()
	pm := acquire(t, r, request(example))
	time.Sleep(time.Millisecond)
	pm.Observe(answer(status, fields...))
	pm.Release()
}

// goesWithin fails the test if the next request has to wait longer.
func goesWithin(t *testing.T, r *heed.Registry, most time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	pm, err := r.Acquire(ctx, request(example))
	if err != nil {
		t.Fatalf("not within %v: %v", most, err)
	}
	pm.Observe(answer(200))
	pm.Release()
}

func TestPolicyWhoseUnitChangesHoldsNobodyForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		defer r.Close()
		one(t, r, 200, "RateLimit-Policy", `"p";q=5;w=20`, "RateLimit", `"p";r=4`)
		a, b := acquire(t, r, request(example)), acquire(t, r, request(example))
		a.Observe(answer(200, "RateLimit-Policy", `"p";q=5;qu="concurrent-requests"`))
		b.Observe(answer(200))
		a.Release()
		b.Release()
		one(t, r, 200, "RateLimit-Policy", `"p";q=5;w=20`, "RateLimit", `"p";r=1`)
		one(t, r, 200) // the last
		goesWithin(t, r, time.Minute)
	})
}

func TestProbeThatHangsStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		one(t, r, 200, "RateLimit-Policy", `"p";q=10;w=999999`, "RateLimit", `"p";r=0;t=999999`)
		defer acquire(t, r, request(example)).Release() // an hour later, at the cap on waits, and no answer
		goesWithin(t, r, time.Minute)
	})
}

func TestRequestThatHangsStopsNobodyWhereNoResetIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		defer r.Close()
		one(t, r, 200, "RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=9`)
		defer acquire(t, r, request(example)).Release()
		for range 30 {
			goesWithin(t, r, 2*time.Minute)
		}
	})
}

func TestQuotasThatAlternateAreEachKeptTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		defer r.Close()
		n := 0
		for ; n < 100; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			pm, err := r.Acquire(ctx, request(example))
			cancel()
			if err != nil {
				break
			}
			pm.Observe(answer(200, "RateLimit-Policy", fmt.Sprintf(`"p";q=%d;w=60`, 10+n%2)))
			pm.Release()
		}
		if n > 12 {
			t.Errorf("%d within half a minute of quotas of 10 and 11", n)
		}
	})
}

// When an origin accepts again after a refusal is not known where nobody asks.
func TestTimeInWhichNobodyAsksIsNoMeasureOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		for range 15 {
			one(t, r, 200)
		}
		one(t, r, 429)
		time.Sleep(50 * time.Minute)
		began := time.Now()
		for range 20 {
			one(t, r, 200)
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("twenty requests took %v", d)
		}
	})
}

// A hidden limit that is raised is found, if slowly.
func TestLearnedRateRisesWithTheLimit(t *testing.T) {
	manyRequests(t)
	var before, after int64
	policies := []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}
	load{heedtest.Config{Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: policies, Latency: heedtest.RoundTrip(20 * time.Millisecond)}, 16, 240,
		func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(5 * time.Minute)
			before = o.Tally().Accepted
			o.SetPolicies(heedtest.Policy{Quota: 500, Window: 5 * time.Second})
			time.Sleep(10 * time.Minute)
			after = o.Tally().Accepted
			time.Sleep(5 * time.Minute)
			after = o.Tally().Accepted - after
		}}.play(t)
	if after < 2*before {
		t.Errorf("%d accepted in five minutes, %d ten minutes after the limit was raised tenfold", before, after)
	}
}

// What an answer's own body holds, the count in its fields may lack. And the next window is
// begun no sooner for a round trip in which some bytes could have gone, but no request.
func TestBodiesOfAllSizesAreNotRefusedForTheirBytes(t *testing.T) {
	manyRequests(t)
	for name, latency := range map[string]heedtest.Latency{
		"even": heedtest.RoundTrip(5 * time.Millisecond),
		"either all up or all down": func(n int64) (up, down time.Duration) {
			if n/2%2 == 0 {
				return 0, 90 * time.Millisecond
			}
			return 90 * time.Millisecond, 0
		},
	} {
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(1, 1))
		window := 5 * time.Second
		tally, _ := load{heedtest.Config{
			Policies: []heedtest.Policy{
				{Name: "requests", Quota: 50, Window: window},
				{Name: "bytes", Unit: heedtest.UnitContentBytes, Quota: 395_000, Window: window},
			},
			Latency: latency,
			Respond: func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				w.Write(make([]byte, 5_000+rng.IntN(10_000)))
			},
		}, 16, 60, nil}.play(t)
		if tally.Refused > 0 || tally.Accepted < 2200 {
			t.Errorf("%s: %d accepted, %d refused, want at least 2200 and none", name, tally.Accepted, tally.Refused)
		}
	}
}

// What was used in the window that goes on comes back at no reset yet,
// whatever the shape: it tells nothing of it.
func TestPauseDoesNotMakeAWindowSlide(t *testing.T) {
	manyRequests(t)
	for seed := range 5 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock,
			Dialect:   heedtest.XRateLimit,
			Rounding:  heedtest.RoundDown,
			Policies:  []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
			Phase:     time.Duration(seed) * 870 * time.Millisecond,
			Latency:   heedtest.RoundTrip(5 * time.Millisecond),
		}, 16, 20, nil}.play(t)
		if tally.Refused > 2 { // one to see that resets are rounded down
			t.Errorf("phase %d: %d refused", seed, tally.Refused)
		}
	}
}

// An origin that says how many are left, and neither of what nor until when.
func TestBareCountOfNothingLeftIsPassedAsOftenAsItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(10, 20)
		accepted, refused := 0, 0
		tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond)
			resp := answer(200, "X-RateLimit-Remaining", "0")
			if limiter.Allow() {
				resp.Header.Set("X-RateLimit-Remaining", fmt.Sprint(int(limiter.Tokens())))
				accepted++
			} else {
				resp.StatusCode = 429
				refused++
			}
			resp.Request = req
			return resp, nil
		}), heed.Limits{})
		c := tr.Client()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			resp, err := c.Get(example)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if accepted < 400 || refused > 12 {
			t.Errorf("%d accepted of 620, %d refused", accepted, refused)
		}
	})
}

// Who is turned away as it comes, time and again, is no demand: others are not slowed down
// for requests that never went.
func TestRequestsTurnedAwaySlowNobodyDown(t *testing.T) {
	for name, turned := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"not to wait": func(ctx context.Context) (context.Context, context.CancelFunc) { return heed.NoWait(ctx), func() {} },
		"by a deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
		"by a long line": context.WithCancel,
	} {
		for _, source := range []string{"announced", "configured"} {
			t.Run(name+", "+source, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, header := heed.Limits{MaxQueue: 1, Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Minute}}}, []string(nil)
					if source == "announced" {
						l.Policies, header = nil, []string{"RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=90;t=60`}
					}
					r := newRegistry(t, heed.Config{Default: l})
					defer r.Close()
					send := func() {
						pm := acquire(t, r, request(example))
						pm.Observe(answer(200, header...))
						pm.Release()
					}
					send()
					time.Sleep(time.Minute)
					r.Pause(example, time.Hour)
					w := start(t.Context(), r, request(example))
					for range 1000 {
						ctx, cancel := turned(t.Context())
						if _, err := r.Acquire(ctx, request(example)); err == nil {
							t.Fatal("it was not turned away")
						}
						cancel()
						time.Sleep(10 * time.Millisecond)
					}
					r.Pause(example, 0)
					synctest.Wait()
					w.permit.Observe(answer(200, header...))
					w.permit.Release()
					began := time.Now()
					for range 7 {
						send()
					}
					if d := time.Since(began); d > 0 {
						t.Errorf("7 of 100 took %v", d)
					}
				})
			})
		}
	}
}
