package heed_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Of a small quota one unit is much, and worth the wait that its answer brings, even where
// answers take now long, now short.
func TestLastUnitOfSmallQuotaIsUsedThoughAnswersTakeNowLongNowShort(t *testing.T) {
	var accepted, refused int64
	for seed := range uint64(6) {
		tally, _ := load{heedtest.Config{
			Policies: []heedtest.Policy{{Quota: 10, Window: 5 * time.Second}},
			Latency:  heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
		}, 16, 40, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 6*375 || refused > 0 {
		t.Errorf("%d of %d accepted, %d refused", accepted, 6*400, refused)
	}
}

// Where resets are instants that are rounded up, an answer that says that nothing is left holds for up to a second
// more than the window lasts. Of a small quota the last unit is worth that, of a large one it is not.
func TestLastUnitOfSmallQuotaIsWorthWhatAnInstantIsRoundedUpBy(t *testing.T) {
	manyRequests(t)
	const windows = 40
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		quota     int64
		least     float64 // of the quota
	}{
		{heedtest.SlidingWindow, 3, 0.89},
		{heedtest.SlidingWindow, 5, 0.89},
		{heedtest.SlidingWindow, 20, 0.94}, // all but one
		{heedtest.FixedWindow, 2, 0.89},    // ten of eleven seconds, for each window begins when the one before may be over
		{heedtest.FixedWindow, 5, 0.89},
		{heedtest.FixedWindow, 20, 0.94}, // all but one
		{heedtest.FixedWindowByClock, 5, 0.99},
		{heedtest.FixedWindowByClock, 10, 0.99},
	} {
		var accepted, refused int64
		for phase := range time.Duration(5) {
			tally, _ := load{heedtest.Config{
				Algorithm: c.algorithm, Policies: []heedtest.Policy{{Quota: c.quota, Window: 10 * time.Second}},
				Dialect: heedtest.XRateLimitEpoch, Phase: phase * 170 * time.Millisecond, ClockSkew: phase * 110 * time.Millisecond,
				Latency: heedtest.RoundTrip(20 * time.Millisecond),
			}, 16, windows, nil}.play(t)
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		}
		all := 5 * windows * c.quota
		t.Logf("%s, %d: %d of %d accepted, %d refused", c.algorithm, c.quota, accepted, all, refused)
		if float64(accepted) < c.least*float64(all) || refused > 0 {
			t.Errorf("%s, %d: %d of %d accepted, want at least %.2f, and %d refused", c.algorithm, c.quota, accepted, all, c.least, refused)
		}
	}
}

// The instant at which the last unit of a window costs nothing passes, whenever the one
// before it went.
func TestLastUnitOfWindowIsNotPacedPastTheInstantThatCostsNothing(t *testing.T) {
	sideBySide(t)
	for phase := time.Duration(0); phase < 5*time.Second; phase += 700 * time.Millisecond {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Phase: phase,
			Policies: []heedtest.Policy{{Quota: 10, Window: 5 * time.Second}},
			Latency:  heedtest.RoundTrip(500 * time.Millisecond),
		}, 16, 40, nil}.play(t)
		t.Logf("phase %v: %d accepted, %d refused", phase, tally.Accepted, tally.Refused)
		if tally.Accepted < 390 || tally.Refused > 0 {
			t.Errorf("phase %v: %d of 400 accepted, %d refused", phase, tally.Accepted, tally.Refused)
		}
	}
}

// Windows that begin with their first requests begin later each time, if the last unit of each
// is taken: that shows once it is more than can be seen of their ends.
func TestWindowsFarAwayAreSoonSeenToBeginWithTheirFirstRequests(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
		Latency:  heedtest.RoundTrip(500 * time.Millisecond),
	}, 64, 10, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < 485 || tally.Refused > 0 {
		t.Errorf("%d of 500 accepted, %d refused", tally.Accepted, tally.Refused)
	}
}

// What is announced now and then is used up as if it were all the time: silent answers show
// how far away an origin is, and when a window began.
func TestWindowsFarAwayThatAreAnnouncedNowAndThenAreUsedUp(t *testing.T) {
	sideBySide(t)
	for _, alg := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		var accepted, refused int64
		for phase := time.Duration(0); phase < 5*time.Second; phase += 1700 * time.Millisecond {
			tally, _ := load{heedtest.Config{
				Algorithm: alg, Phase: phase, Every: 10,
				Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
				Latency:  heedtest.RoundTrip(500 * time.Millisecond),
			}, 16, 20, nil}.play(t)
			t.Logf("%s, phase %v: %d accepted, %d refused", alg, phase, tally.Accepted, tally.Refused)
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		}
		if accepted < 3*980 || refused > 0 {
			t.Errorf("%s: %d of 3000 accepted, %d refused", alg, accepted, refused)
		}
	}
}

// A client that sends one request when the last is answered has never two waiting. It is held
// up all the same by an answer that says that nothing is left, and gets as much as many
// that send at once.
func TestOneRequestAfterTheOtherGetsAsMuchAsManyAtOnce(t *testing.T) {
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		policy    heedtest.Policy
		share     float64
	}{
		{heedtest.FixedWindow, heedtest.Policy{Quota: 50, Window: 5 * time.Second}, 0.99},
		{heedtest.FixedWindow, heedtest.Policy{Quota: 5, Window: time.Second}, 0.79}, // the last unit of each is left
		{heedtest.FixedWindow, heedtest.Policy{Quota: 2, Window: 10 * time.Second}, 0.97},
		{heedtest.SlidingCounter, heedtest.Policy{Quota: 50, Window: 5 * time.Second}, 0.93},
	} {
		const windows = 40
		tally, _ := load{heedtest.Config{
			Algorithm: c.algorithm, Policies: []heedtest.Policy{c.policy}, Latency: heedtest.RoundTrip(time.Millisecond),
		}, 1, windows, nil}.play(t)
		t.Logf("%s, %d: %d accepted, %d refused", c.algorithm, c.policy.Quota, tally.Accepted, tally.Refused)
		if least := int64(c.share * windows * float64(c.policy.Quota)); tally.Accepted < least || tally.Refused > 0 {
			t.Errorf("%s, %d: %d accepted, want at least %d; %d refused", c.algorithm, c.policy.Quota, tally.Accepted, least, tally.Refused)
		}
	}
}

// A request behind which none waits is kept for those to come only if it can be: one that has
// to start before the next reset, or not at all, takes the last unit.
func TestLastUnitIsNotKeptFromARequestThatCannotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(time.Millisecond)})
		tr := quiet(t, o, heed.Limits{})
		c := tr.Client()
		get := func(ctx context.Context) error {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://origin.test/", nil)
			resp, err := c.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		for range 49 {
			if err := get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		if d := tr.Registry.Check(request("https://origin.test/").WithContext(ctx)); !d.Allowed {
			t.Errorf("Check() = %+v", d)
		}
		if err := get(ctx); err != nil {
			t.Errorf("the last unit: %v", err)
		}
	})
}

// A request behind which none waits and that comes long after the one before goes while
// something is left, whenever that one is answered, though units come back many at a time and others
// would be waited for.
func TestLoneRequestWaitsForNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		defer r.Close()
		var mu sync.Mutex
		left, came := 20, time.Now()
		serve := func(pm *heed.Permit) {
			mu.Lock()
			for time.Since(came) >= 5*time.Second {
				left, came = min(left+5, 20), came.Add(5*time.Second)
			}
			status := http.StatusOK
			if left == 0 {
				status = http.StatusTooManyRequests
			} else {
				left--
			}
			said := fmt.Sprintf(`"p";r=%d;t=%d`, left, 20-left)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			pm.Observe(answer(status, "RateLimit-Policy", `"p";q=20;w=20`, "RateLimit", said))
			pm.Release()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				for pm, err := r.Acquire(ctx, request(example)); err == nil; pm, err = r.Acquire(ctx, request(example)) {
					serve(pm)
				}
			})
		}
		clients.Wait()
		time.Sleep(1500 * time.Millisecond)
		for d := r.Check(request(example)); d.Allowed && d.Remaining > 2; d = r.Check(request(example)) {
			serve(acquire(t, r, request(example)))
		}
		unanswered := acquire(t, r, request(example))
		defer unanswered.Release()
		time.Sleep(3 * time.Second)
		d := r.Check(request(example))
		if lone := start(t.Context(), r, request(example)); d.Remaining < 2 || !lone.done() {
			t.Errorf("Check() = %+v, the request went: %v", d, lone.done())
		} else {
			lone.permit.Release()
		}
	})
}
