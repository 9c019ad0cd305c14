package heed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// learned returns the policies of an origin that were inferred from refusals.
func learned(state heed.OriginState) (all []heed.PolicyState) {
	for _, p := range state.Partitions[0].Policies {
		if p.Source == heed.SourceLearned {
			all = append(all, p)
		}
	}
	return all
}

// Limits as servers have them that say nothing but no, near by.
func TestHiddenRatesAreFoundByFewRefusals(t *testing.T) {
	manyRequests(t)
	for name, c := range map[string]struct {
		origin heedtest.Config
		most   int64 // refused
		least  int64 // accepted within a minute
	}{
		"10/s, burst 50":    {heedtest.Config{Algorithm: heedtest.LeakyBucket, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second, Burst: 50}}}, 14, 570},
		"20/s, burst 100":   {heedtest.Config{Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 20, Window: time.Second, Burst: 100}}}, 20, 1170},
		"50 per 5 s":        {heedtest.Config{Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}}, 24, 440},
		"50 in any 5 s":     {heedtest.Config{Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}}, 24, 400},
		"10/s, burst 1000":  {heedtest.Config{Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second, Burst: 1000}}}, 30, 1400},
		"100/s, burst 1000": {heedtest.Config{Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 100, Window: time.Second, Burst: 1000}}}, 45, 6000},
	} {
		c.origin.Dialect, c.origin.Latency = heedtest.Silent, heedtest.RoundTrip(time.Millisecond)
		windows := int(time.Minute / c.origin.Policies[0].Window)
		tally, state := load{c.origin, 16, windows, nil}.play(t)
		t.Logf("%s: %d accepted, %d refused", name, tally.Accepted, tally.Refused)
		if tally.Refused > c.most || tally.Accepted < c.least {
			t.Errorf("%s: %d accepted, want at least %d; %d refused, want at most %d", name, tally.Accepted, c.least, tally.Refused, c.most)
		}
		if len(learned(state)) != 1 {
			t.Errorf("%s: learned %+v", name, learned(state))
		}
	}
}

// Neither does the time that opening up took, where that is a good part of the
// window.
func TestLongOpeningIsNotCountedWithTheWindow(t *testing.T) {
	manyRequests(t)
	for _, mode := range []heedtest.RetryAfterMode{heedtest.RetryAfterWindow, heedtest.RetryAfterExact} {
		for _, quota := range []int64{50, 100} {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: quota, Window: time.Duration(quota) * 100 * time.Millisecond}}, Dialect: heedtest.RetryAfterOnly,
				RetryAfter: heedtest.RetryAfter{Mode: mode}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
			}, 16, 20, nil}.play(t)
			t.Logf("%s: %d accepted, %d refused", mode, tally.Accepted, tally.Refused)
			if tally.Refused > 20 || tally.Accepted < 20*quota*88/100 {
				t.Errorf("%s: %d accepted of %d, %d refused", mode, tally.Accepted, 20*quota, tally.Refused)
			}
		}
	}
}

// What two windows by the clock let through is not taken for one of them for
// long, nor the wait that is always named for a part of it.
func TestWindowThatTurnsDuringTheOpeningIsFound(t *testing.T) {
	for _, turns := range []time.Duration{200, 250, 300} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.RoundTrip(50 * time.Millisecond), Phase: turns * time.Millisecond,
		}, 16, 20, nil}.play(t)
		t.Logf("%v: %d accepted, %d refused", turns*time.Millisecond, tally.Accepted, tally.Refused)
		if tally.Refused > 40 || tally.Accepted < 850 {
			t.Errorf("turns after %d ms: %d accepted of 1000, %d refused", turns, tally.Accepted, tally.Refused)
		}
	}
}

// A pace that was too fast tells the rate exactly, where the origin opens again one
// window after as many as that lets through.
func TestReopeningTellsTheWindow(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow} {
		var rates []float64 // for the most part, for now and then a little more is tried
		tally, _ := load{heedtest.Config{
			Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 16, 12, func(_ *heedtest.Origin, r *heed.Registry) {
			time.Sleep(25 * time.Second)
			for range 7 {
				time.Sleep(4 * time.Second)
				rates = append(rates, 1/learned(r.Snapshot()[0])[0].Window.Seconds())
			}
		}}.play(t)
		slices.Sort(rates)
		t.Logf("%s: %d accepted, %d refused, kept to %.2f", algorithm, tally.Accepted, tally.Refused, rates)
		if rate := rates[len(rates)/2]; rate < 9.6 || rate > 10.4 || tally.Refused > 23 {
			t.Errorf("%s: kept to %.2f/s, %d refused", algorithm, rate, tally.Refused)
		}
	}
}

// Who knows the window and counts what is in it needs no room for requests that meet.
func TestKnownHiddenWindowIsUsedUp(t *testing.T) {
	manyRequests(t)
	const windows, quota = 60, 50
	var later, refused int64
	for _, trip := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		begun := heedtest.Tally{}
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(trip),
		}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(50 * time.Second)
			begun = o.Tally()
		}}.play(t)
		later, refused = later+tally.Accepted-begun.Accepted, refused+tally.Refused-begun.Refused
	}
	t.Logf("%d accepted and %d refused after the first 50 s", later, refused)
	if most := int64(3 * (windows - 10) * quota); later < most*985/1000 || refused > 34 { // ten attempts of each, with what is on its way
		t.Errorf("%d accepted of %d and %d refused after the first 50 s", later, most, refused)
	}
}

// What a full bucket let through at first is no rate, which the second refusal
// shows.
func TestBurstIsNotTakenForTheRateForLong(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second, Burst: 50}}, Dialect: heedtest.RetryAfterOnly,
		Latency: heedtest.RoundTrip(5 * time.Millisecond),
	}, 16, 20, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Refused > 19 || tally.Accepted < 205 { // 13 of them in flight at first; one more refusal costs a second
		t.Errorf("%d accepted of 250, %d refused", tally.Accepted, tally.Refused)
	}
}

// A bucket that gathered a little while heed kept below its rate lets through more than that for long.
// Each attempt at more costs one refusal then, not another one for the pace that was kept up meanwhile.
func TestWhatABucketGatheredIsNotTakenForItsRateAgain(t *testing.T) {
	manyRequests(t)
	var refused, accepted, later int64
	for _, trip := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		for _, burst := range []int64{20, 50} {
			begun := int64(0)
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second, Burst: burst}}, Dialect: heedtest.Silent,
				Latency: heedtest.RoundTrip(trip),
			}, 16, 400, func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(100 * time.Second) // until it has been seen once
				begun = o.Tally().Refused
			}}.play(t)
			refused, accepted, later = refused+tally.Refused, accepted+tally.Accepted, later+tally.Refused-begun
		}
	}
	t.Logf("%d accepted, %d refused, %d of them after the first 100 s", accepted, refused, later)
	if later > 105 || accepted < 6*4000*95/100 { // an attempt after each 250 or 300: some 75; two for each are 150
		t.Errorf("%d accepted of %d, %d refused after the first 100 s", accepted, 6*4000, later)
	}
}

// Requests that overlap at the server for half the time they take can be twice
// as many as it allows at once, if they are evenly on their way.
func TestHiddenCapOnConcurrencyIsUsedUp(t *testing.T) {
	manyRequests(t)
	for _, trip := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 4, Window: 200 * trip}}, Latency: heedtest.RoundTrip(trip),
		}, 64, 20, nil}.play(t)
		t.Logf("%v: %d accepted, %d refused", trip, tally.Accepted, tally.Refused)
		if most := int64(20 * 200 * 8); tally.Accepted < most*90/100 || tally.Refused > tally.Accepted/100 {
			t.Errorf("%v: %d accepted of %d, %d refused", trip, tally.Accepted, most, tally.Refused)
		}
	}
}

// Where many were in flight at the first refusal, and latencies scatter, half of those may still be far too many and yet do for a while.
// The refusal that shows it tells of no rate, and what was on its way by then is no other.
func TestHiddenCapIsFoundWhereFarMoreWereInFlight(t *testing.T) {
	manyRequests(t)
	const quota, runs = 10, 4
	var accepted, refused int64
	for seed := range uint64(runs) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
			Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
		}, 64, 20, nil}.play(t)
		accepted, refused = accepted+tally.Accepted/runs, refused+tally.Refused/runs
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 9000 || refused > 120 {
		t.Errorf("%d accepted, want at least 9000, %d refused", accepted, refused)
	}
}

// From half of what was in flight at the first refusal it is far to a cap twice as large as that seemed. Where answers take long, one
// more at a time would take most of the time there is.
func TestHiddenCapThatIsLargeIsSoonUsedUpWhereAnswersTakeLong(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		quota    int64
		accepted int64
	}{{20, 6400}, {30, 9000}} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: c.quota, Window: 5 * time.Second}},
			Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 64, 20, nil}.play(t)
		t.Logf("cap of %d: %d accepted, %d refused", c.quota, tally.Accepted, tally.Refused)
		if tally.Accepted < c.accepted || tally.Refused > 130 { // most of them were in flight at the first one
			t.Errorf("cap of %d: %d accepted, want at least %d, %d refused", c.quota, tally.Accepted, c.accepted, tally.Refused)
		}
	}
}

// A path that is always refused is no sign of the limit in flight that was learned of others, and its requests wait longer
// each time as they would without one.
func TestPathThatIsAlwaysRefusedWaitsBesideALearnedCap(t *testing.T) {
	manyRequests(t)
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 4, Window: time.Second}}, Latency: heedtest.RoundTrip(100 * time.Millisecond),
		})
		var sick atomic.Int64
		tr := quiet(t, baseFunc(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/sick" {
				return o.RoundTrip(r)
			}
			sick.Add(1)
			time.Sleep(10 * time.Millisecond)
			return answer(503), nil
		}), heed.Limits{})
		client := tr.Client()
		end := time.Now().Add(2 * time.Minute)
		var wg sync.WaitGroup
		ask := func(path string) {
			for time.Now().Before(end) {
				resp, err := client.Get("https://origin.test" + path)
				if err != nil {
					return // the registry was closed
				}
				resp.Body.Close()
			}
		}
		for range 32 {
			wg.Go(func() { ask("/") })
		}
		time.Sleep(time.Minute) // the cap is known by then
		wg.Go(func() { ask("/sick") })
		time.Sleep(time.Until(end))
		if n := sick.Load(); n > 30 {
			t.Errorf("%d requests in a minute", n)
		}
		tr.Registry.Close()
		wg.Wait()
	})
}

// However often one more was too many, a cap that was raised is used up soon.
func TestHiddenCapThatIsRaisedIsFollowed(t *testing.T) {
	manyRequests(t)
	const trip, before, after = 500 * time.Millisecond, 10 * time.Minute, 10 * time.Minute
	policy := heedtest.Policy{Quota: 10, Window: before + after}
	var accepted int64
	load{heedtest.Config{Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(trip)}, 200, 1,
		func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(before)
			policy.Quota = 40
			o.SetPolicies(policy)
			then := o.Tally()
			time.Sleep(after - time.Second)
			accepted = o.Tally().Accepted - then.Accepted
		}}.play(t)
	t.Logf("%d accepted", accepted)
	if all := int64(2 * 40 * after / trip); accepted < all*3/4 {
		t.Errorf("%d accepted of %d", accepted, all)
	}
}

// The first refusal may seem to have come by chance, where few of those on their way by then are refused. Once it is a cap that
// refuses, no rate is made of what came by chance: beside a cap it would soon be gone, and the cap with it.
func TestHiddenCapThatLooksLikeChanceAtFirstIsKeptTo(t *testing.T) {
	manyRequests(t)
	for range 4 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 30, Window: time.Second}},
			Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 1000, 20, nil}.play(t)
		t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
		if tally.Accepted < 14000 || tally.Refused > 200 {
			t.Errorf("%d accepted, want at least 14000, %d refused", tally.Accepted, tally.Refused)
		}
	}
}

// The burst that a bucket lets through at first looks like a pace that fell far within a few steps, as where a part of
// the origin is out of order. That the same rate is found whenever more is tried shows that there is a limit.
func TestRateFoundTimeAndAgainIsALimit(t *testing.T) {
	manyRequests(t)
	const quota, windows = 1000, 20
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterShort},
		Policies: []heedtest.Policy{{Quota: quota, Window: time.Minute}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}, 16, windows, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < quota*windows || tally.Refused > 100 {
		t.Errorf("%d accepted, want at least %d, %d refused", tally.Accepted, quota*windows, tally.Refused)
	}
}

// Where attempts at more have found a rate as it was, the next follow more rarely, and the pace keeps closer to it meanwhile.
func TestRateThatIsFoundAsItWasIsTriedMoreRarely(t *testing.T) {
	manyRequests(t)
	const quota, windows = 1000, 20
	for _, burst := range []int64{1, quota} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: time.Minute, Burst: burst}},
			Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, 16, windows, nil}.play(t)
		t.Logf("at most %d at once: %d accepted, %d refused", burst, tally.Accepted, tally.Refused)
		if least := int64(quota * windows * 97 / 100); tally.Accepted < least || tally.Refused > 75 {
			t.Errorf("at most %d at once: %d accepted, want at least %d, %d refused", burst, tally.Accepted, least, tally.Refused)
		}
	}
}

func TestHiddenLimitThatIsCutAndRaisedIsFollowed(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.TokenBucket} {
		policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
		var cut, raised heedtest.Tally
		load{heedtest.Config{Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(5 * time.Millisecond)}, 16, 100,
			func(o *heedtest.Origin, _ *heed.Registry) {
				set := func(quota int64, after time.Duration) heedtest.Tally {
					policy.Quota = quota
					o.SetPolicies(policy)
					o.ResetTally()
					time.Sleep(after)
					before := o.Tally()
					time.Sleep(time.Minute)
					tally := o.Tally()
					tally.Accepted -= before.Accepted
					return tally
				}
				time.Sleep(57 * time.Second)
				cut = set(10, 30*time.Second)
				raised = set(50, 4*time.Minute)
			}}.play(t)
		t.Logf("%s: cut: %d accepted, %d refused; raised: %d accepted, %d refused", algorithm, cut.Accepted, cut.Refused, raised.Accepted, raised.Refused)
		if cut.Accepted < 90 || cut.Refused > 28 {
			t.Errorf("%s: cut: %d accepted of 120 in a minute, %d refused", algorithm, cut.Accepted, cut.Refused)
		}
		if raised.Accepted < 480 || raised.Refused > 40 {
			t.Errorf("%s: raised: %d accepted of 600 in a minute, %d refused", algorithm, raised.Accepted, raised.Refused)
		}
	}
}

// However often a slow limit was found as it was, that it was raised is noticed in a few minutes.
func TestSlowHiddenLimitThatIsRaisedIsFollowed(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.TokenBucket} {
		policy := heedtest.Policy{Quota: 60, Window: time.Minute, Burst: 5}
		if algorithm == heedtest.FixedWindow {
			policy.Burst = 0
		}
		var accepted int64
		load{heedtest.Config{Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(50 * time.Millisecond)}, 16, 81,
			func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(time.Hour)
				policy.Quota *= 10
				o.SetPolicies(policy)
				before := o.Tally()
				time.Sleep(20 * time.Minute)
				accepted = o.Tally().Accepted - before.Accepted
			}}.play(t)
		t.Logf("%s: %d accepted in 20 minutes", algorithm, accepted)
		if least := int64(5200); accepted < least {
			t.Errorf("%s: %d accepted in 20 minutes, want at least %d", algorithm, accepted, least)
		}
	}
}

// Once it is over, a time in which hardly anything was accepted does not count
// for long against a rate that was known.
func TestOutageIsNotTakenForTheRateForLong(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.TokenBucket} {
		usual := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
		var accepted int64
		load{heedtest.Config{Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{usual}, Latency: heedtest.RoundTrip(20 * time.Millisecond)}, 16, 600,
			func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(2 * time.Minute)
				o.SetPolicies(heedtest.Policy{Quota: 1, Window: 10 * time.Minute})
				time.Sleep(10 * time.Minute)
				o.SetPolicies(usual)
				time.Sleep(20 * time.Minute)
				before := o.Tally()
				time.Sleep(10 * time.Minute)
				accepted = o.Tally().Accepted - before.Accepted
			}}.play(t)
		t.Logf("%s: %d accepted", algorithm, accepted)
		if accepted < 5000 {
			t.Errorf("%s: %d accepted of 6000 in ten minutes, long after it", algorithm, accepted)
		}
	}
}

// What was accepted between a refusal and an outage is not all that an origin lets
// through in so long a time, however well its window is known; nor does an outage that
// goes on slow anything down further.
func TestOutageRightAfterARefusalIsNotTakenForAWindow(t *testing.T) {
	manyRequests(t)
	for name, c := range map[string]struct {
		origin heedtest.Config
		status int
		named  time.Duration
	}{
		"20/s, an hour of 503":                            {heedtest.Config{Algorithm: heedtest.FixedWindow, Status: 503, Policies: []heedtest.Policy{{Quota: 20, Window: time.Second}}}, 503, 0},
		"20/s by the clock, an hour of 429":               {heedtest.Config{Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 20, Window: time.Second}}}, 429, 0},
		"1/s in two windows, an hour of 503 that name 60": {heedtest.Config{Algorithm: heedtest.SlidingCounter, Policies: []heedtest.Policy{{Quota: 1, Window: time.Second}}}, 503, time.Minute},
	} {
		c.origin.Dialect, c.origin.Latency = heedtest.RetryAfterOnly, heedtest.RoundTrip(50*time.Millisecond)
		var usual, after heedtest.Tally
		const part = 4 * time.Minute
		load{c.origin, 16, int((time.Hour + 4*part).Seconds()), func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(part)
			usual = o.Tally()
			o.Outage(time.Now().Add(time.Hour), c.status, c.named)
			time.Sleep(time.Hour + 2*part)
			o.ResetTally()
			time.Sleep(part)
			after = o.Tally()
		}}.play(t)
		t.Logf("%s: %d accepted, %d later on", name, usual.Accepted, after.Accepted)
		if after.Accepted < usual.Accepted*9/10 {
			t.Errorf("%s: %d accepted in four minutes, and %d after it", name, usual.Accepted, after.Accepted)
		}
	}
}

// Whoever was let through for long before there was a limit has no use for what that time seems
// to tell of it: neither how many a burst holds, nor how long a window is.
func TestLimitThatComesAfterALongTimeWithoutOneIsFoundSoon(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.TokenBucket, heedtest.FixedWindow} {
		for _, free := range []time.Duration{10 * time.Second, time.Minute} {
			var soon, later heedtest.Tally
			load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 1e6, Window: time.Second}}, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, 16, 185, func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(free)
				o.SetPolicies(heedtest.Policy{Quota: 20, Window: time.Second})
				time.Sleep(time.Minute)
				soon = o.Tally()
				time.Sleep(time.Minute)
				later = o.Tally()
			}}.play(t)
			accepted, refused := later.Accepted-soon.Accepted, later.Refused
			t.Logf("%s after %v: %d accepted in the second minute, %d refused in both", algorithm, free, accepted, refused)
			if accepted < 600 || refused > 60 {
				t.Errorf("%s after %v: %d accepted of 1200 in the second minute, %d refused in both", algorithm, free, accepted, refused)
			}
		}
	}
}

// A bucket that was taken for a limit in flight, and not even exceeded by it, is
// found to be a rate when it is cut: not one of which hours' worth may come at a time.
func TestRateKeptToByALimitInFlightIsFollowedWhenItIsCut(t *testing.T) {
	manyRequests(t)
	for _, burst := range []int64{10, 50} {
		var cut heedtest.Tally
		load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 100, Window: time.Second, Burst: burst}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 16, 240, func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(2 * time.Minute)
			o.SetPolicies(heedtest.Policy{Quota: 10, Window: time.Second, Burst: burst / 10})
			time.Sleep(time.Minute)
			o.ResetTally()
			time.Sleep(time.Minute)
			cut = o.Tally()
		}}.play(t)
		t.Logf("burst %d: %d accepted, %d refused", burst, cut.Accepted, cut.Refused)
		if cut.Accepted < 450 || cut.Refused > 20 {
			t.Errorf("burst %d: %d accepted of 600, %d refused", burst, cut.Accepted, cut.Refused)
		}
	}
}

// Who works for ten seconds every ten minutes gets all the same what the origin lets
// through in ten seconds.
func TestIdlePausesDoNotCountAgainstALearnedRate(t *testing.T) {
	for name, c := range map[string]struct {
		origin heedtest.Config
		least  int64 // accepted in twelve times ten seconds
	}{
		"50 per 5 s":           {heedtest.Config{Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}}, 1000},
		"50 in any 5 s":        {heedtest.Config{Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}}, 1000},
		"1 per s by the clock": {heedtest.Config{Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 1, Window: time.Second}}}, 100},
	} {
		c.origin.Dialect, c.origin.Latency = heedtest.Silent, heedtest.RoundTrip(50*time.Millisecond)
		synctest.Test(t, func(t *testing.T) {
			o := heedtest.NewOrigin(c.origin)
			tr := quiet(t, o, heed.Limits{})
			for n := range 36 {
				if n == 24 {
					o.ResetTally()
				}
				begun := time.Now()
				for time.Since(begun) < 10*time.Second {
					sendOne(t, tr, get(t.Context(), site))
				}
				time.Sleep(time.Until(begun.Add(10 * time.Minute)))
			}
			tally := o.Tally()
			t.Logf("%s: %d accepted, %d refused", name, tally.Accepted, tally.Refused)
			if tally.Accepted < c.least || tally.Refused > 24 {
				t.Errorf("%s: %d accepted, want at least %d; %d refused", name, tally.Accepted, c.least, tally.Refused)
			}
		})
	}
}

// However high the rate that was learned, an outage that names no time is asked
// ever more rarely whether it is over.
func TestOutageIsAskedEverMoreRarelyAtAHighRate(t *testing.T) {
	manyRequests(t)
	load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 100, Window: time.Second, Burst: 1}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}, 16, 3900, func(o *heedtest.Origin, _ *heed.Registry) {
		time.Sleep(2 * time.Minute)
		o.ResetTally()
		o.Outage(time.Now().Add(time.Hour), 429, 0)
		time.Sleep(time.Hour)
		if n := o.Tally().Refused; n > 60 {
			t.Errorf("refused %d times in an hour", n)
		}
	}}.play(t)
}

func TestHiddenLimitIsForgottenOnceItIsGone(t *testing.T) {
	manyRequests(t)
	policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
	var known, left []heed.PolicyState
	load{heedtest.Config{Algorithm: heedtest.FixedWindow, Dialect: heedtest.Silent, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(50 * time.Millisecond)}, 16, 54,
		func(o *heedtest.Origin, r *heed.Registry) {
			time.Sleep(30 * time.Second)
			known = learned(r.Snapshot()[0])
			policy.Quota = 1_000_000
			o.SetPolicies(policy)
			time.Sleep(4 * time.Minute)
			left = learned(r.Snapshot()[0])
		}}.play(t)
	if len(known) != 1 || len(left) != 0 {
		t.Errorf("learned %+v, and %+v are left once nothing limits any more", known, left)
	}
}

// The rate an event tells of is the one that is kept to, a little below.
func TestEventTellsTheLearnedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told heed.Event
		r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
			if e.Kind == heed.EventLearned && e.Learned {
				told = e
			}
		}})
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		})
		tr := &heed.Transport{Registry: r, Base: o}
		for seen := (heed.Event{}); time.Since(o.Tally().FirstArrival) < time.Minute || o.Tally().Requests < 100; {
			sendOne(t, tr, get(t.Context(), site))
			if told == seen {
				continue
			}
			seen = told
			rate := float64(told.Quota) / told.Window.Seconds()
			p := learned(r.Snapshot()[0])[0]
			if kept := 1 / p.Window.Seconds(); told.Unit != heed.UnitRequests || kept < 0.95*rate || kept > 1.1*rate {
				t.Errorf("told %d per %v, kept to one per %v", told.Quota, told.Window, p.Window)
			}
		}
		if told.Quota == 0 {
			t.Error("no rate learned")
		}
	})
}

// What a client that asks now and then got by the time of a chance refusal is its
// own pace. It is no limit to it later.
func TestOwnPaceIsNoLimitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		tr := quiet(t, respond(func(*http.Request) *http.Response {
			time.Sleep(10 * time.Millisecond)
			if sent++; sent == 60 || sent == 61 {
				return reply(429, "", "Retry-After: 1")
			}
			return reply(200, "")
		}), heed.Limits{})
		for range 60 { // one a second
			sendOne(t, tr, get(t.Context(), site))
			time.Sleep(time.Second)
		}
		began := time.Now()
		for range 600 { // and then as many as go
			sendOne(t, tr, get(t.Context(), site))
		}
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("600 requests took %v", took)
		}
	})
}

// Where a bucket has the next unit by the time one request goes alone to see, its
// rate looks like a cap in flight.
func TestRateThatLooksLikeACapInFlightIsFound(t *testing.T) {
	manyRequests(t)
	for _, trip := range []time.Duration{60 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond} {
		for _, burst := range []int64{5, 20, 50} {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second, Burst: burst}}, Dialect: heedtest.Silent,
				Latency: heedtest.RoundTrip(trip),
			}, 16, 100, nil}.play(t)
			t.Logf("%v, burst %d: %d accepted, %d refused", trip, burst, tally.Accepted, tally.Refused)
			if most := 1000 + burst; tally.Refused > 60 || tally.Accepted < most*85/100 {
				t.Errorf("%v, burst %d: %d accepted of %d, %d refused", trip, burst, tally.Accepted, most, tally.Refused)
			}
		}
	}
}

// While an answer is on its way some of a bucket comes back, so that one request alone
// is accepted after many were refused, as where too many are in flight. To
// find out that it is a rate must not cost as many refusals again.
func TestRateBehindLongRoundTripsIsNotTakenForACapInFlight(t *testing.T) {
	manyRequests(t)
	const windows, quota = 20, 50
	c := heedtest.Config{
		Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterShort},
	}
	var refused []int64 // now and then chance adds a block
	for range 3 {
		tally, state := load{c, 1000, windows, nil}.play(t)
		t.Logf("%d accepted, %d refused, learned %+v", tally.Accepted, tally.Refused, learned(state))
		if tally.Accepted < windows*quota*9/10 {
			t.Errorf("%d accepted of %d", tally.Accepted, windows*quota)
		}
		refused = append(refused, tally.Refused)
	}
	slices.Sort(refused)
	if first := int64(55); refused[1] > first+25 {
		t.Errorf("%d refused, want at most %d at the first refusal and 25 later in most runs", refused, first)
	}
}

// A wait that is named does not make a rate of it.
func TestCapInFlightIsFoundThoughItsRefusalsNameAWait(t *testing.T) {
	manyRequests(t)
	const trip = 50 * time.Millisecond
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.Concurrency, Policies: []heedtest.Policy{{Quota: 4, Window: 20 * time.Second}},
		Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: time.Second},
		Latency: heedtest.RoundTrip(trip),
	}, 16, 3, nil}.play(t)
	possible := int64(4 * time.Minute / (trip / 2)) // the way back is no concern of the origin's
	if tally.Accepted < possible*6/10 || tally.Refused > 40 {
		t.Errorf("%d accepted of %d, %d refused", tally.Accepted, possible, tally.Refused)
	}
}

// One more in flight is tried the more rarely the more could have been sent while a refusal has all wait.
func TestCapInFlightIsTriedRarelyWhereItsRefusalsHaveAllWait(t *testing.T) {
	manyRequests(t)
	const quota, trip, minutes = 8, 150 * time.Millisecond, 4
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.Concurrency, Policies: []heedtest.Policy{{Quota: quota, Window: time.Minute}},
		Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: time.Second},
		Latency: heedtest.RoundTrip(trip),
	}, 16, minutes, nil}.play(t)
	possible := int64(quota * minutes * time.Minute / (trip / 2)) // the way back is no concern of the origin's
	if tally.Accepted < possible*87/100 || tally.Refused > 20 {
		t.Errorf("%d accepted of %d, %d refused", tally.Accepted, possible, tally.Refused)
	}
}

// Nor does a small quota, used up at once, cost more than one refusal that names a wait to be told
// from such a limit: the second time as many are accepted, and the wait tells how many in which time.
func TestSmallQuotaWhoseRefusalsNameAWaitIsSoonNoCapInFlight(t *testing.T) {
	const quota, seconds = 10, 20
	var accepted, refused, runs int64
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			for _, trip := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
				tally, _ := load{heedtest.Config{
					Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}}, Latency: heedtest.RoundTrip(trip),
					Dialect: heedtest.RetryAfterOnly, Status: status, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow},
				}, 16, seconds, nil}.play(t)
				t.Logf("%s, %d, %v: %d accepted, %d refused", algorithm, status, trip, tally.Accepted, tally.Refused)
				accepted, refused, runs = accepted+tally.Accepted, refused+tally.Refused, runs+1
			}
		}
	}
	share := float64(accepted) / float64(runs*quota*seconds)
	t.Logf("%.3f of what was to be had, %.1f refused in a run", share, float64(refused)/float64(runs))
	if share < 0.9 || refused > 15*runs {
		t.Errorf("%.3f of what was to be had, %d refused in %d runs", share, refused, runs)
	}
}

// A hidden limit beside an announced one is learned, too, where the origin names the only
// budget it has in every answer, as GitHub does: not every window of it ends with as many
// refusals as are in flight.
func TestHiddenLimitBesideTheOnlyBudgetIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hidden, asked, end := &window{quota: 80, length: 10 * time.Second}, 0, time.Now().Add(time.Hour)
		l := &limiter{status: http.StatusForbidden, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			asked++
			h.Set("X-RateLimit-Limit", "500000")
			h.Set("X-RateLimit-Remaining", strconv.Itoa(500000-asked))
			h.Set("X-RateLimit-Reset", strconv.FormatInt(end.Unix(), 10))
			h.Set("X-RateLimit-Resource", "core")
			ok := hidden.take(now)
			if !ok {
				h.Set("Retry-After", "10")
			}
			return ok
		}}
		l.ask(t, 2*time.Minute, site)
		if l.accepted < 800 || l.refused > 20 {
			t.Errorf("%d accepted of 960, %d refused", l.accepted, l.refused)
		}
	})
}

// So it is where what refuses is a gateway before the origin, with a 503, and the limit that the origin behind it announces is not
// used up: that is no outage.
func TestGatewayThatRefusesWith503BeforeAnAnnouncedLimitIsLearned(t *testing.T) {
	manyRequests(t)
	for _, hint := range []heedtest.RetryAfter{{Mode: heedtest.RetryAfterNone}, {Mode: heedtest.RetryAfterConstant, Value: time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			const length = 5 * time.Minute
			application := heedtest.NewOrigin(heedtest.Config{Dialect: heedtest.XRateLimit, Policies: []heedtest.Policy{{Quota: 50000, Window: time.Hour}}})
			gateway := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second, Burst: 20}}, Dialect: heedtest.RetryAfterOnly,
				Status: 503, RetryAfter: hint, Latency: heedtest.HeavyTail(100*time.Millisecond, 0.2, time.Second, 1), Respond: application.ServeHTTP,
			})
			f := &flaky{base: gateway, rng: rand.New(rand.NewPCG(1, 1))}
			f.play(t, 16, length, nil)
			tally := gateway.Tally()
			t.Logf("%v: %d accepted, %d refused", hint, tally.Accepted, tally.Refused)
			if possible := int64(10*length.Seconds() + 20); tally.Accepted < possible*9/10 || tally.Refused > possible/20 {
				t.Errorf("%v: %d accepted of %d, %d refused", hint, tally.Accepted, possible, tally.Refused)
			}
		})
	}
}

// A limit that refuses with a 503, names too short a wait and counts what it refuses lets just as few through
// each time: that is no outage either.
func TestSmallLimitThatNamesTooShortAWaitIsNoOutage(t *testing.T) {
	const windows = 100
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 10, Window: 10 * time.Second}}, CountRefused: true, Dialect: heedtest.RetryAfterOnly,
		Status: 503, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: 2 * time.Second}, Latency: heedtest.HeavyTail(200*time.Millisecond, 0.3, time.Second, 1),
	}, 8, windows, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < 10*windows/2 || tally.Refused > windows {
		t.Errorf("%d accepted of %d, %d refused", tally.Accepted, 10*windows, tally.Refused)
	}
}

// What was let through by bursts with nothing between them is no rate, whichever answer of a burst comes first.
func TestBurstsAtAHiddenLimitDoNotSlowOneAnother(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			const bursts, size = 20, 50
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second, Burst: 20}}, Dialect: heedtest.RetryAfterOnly,
				Latency: heedtest.HeavyTail(190*time.Millisecond, 0.4, time.Second, seed),
			})
			tr := quiet(t, o, heed.Limits{})
			var slowest time.Duration
			for range bursts {
				began := time.Now()
				var wg sync.WaitGroup
				for range size {
					wg.Go(func() {
						if resp, err := tr.RoundTrip(request(site)); err == nil {
							resp.Body.Close()
						}
					})
				}
				wg.Wait()
				slowest = max(slowest, time.Since(began))
				time.Sleep(time.Minute)
			}
			t.Logf("seed %d: the slowest took %v, %d refused", seed, slowest, o.Tally().Refused)
			if slowest > 10*time.Second { // 3 s are possible
				t.Errorf("seed %d: a burst took %v", seed, slowest)
			}
		})
	}
}

// A pace that was only reached for a moment, as it rose steeply, is none that fell: where a smaller limit lies within a larger
// one, the pace would rise as steeply after each end of the larger one.
func TestSmallerLimitWithinALargerOneIsNotExceededAllTheTime(t *testing.T) {
	manyRequests(t)
	var accepted, refused int64
	for phase := range 10 {
		for _, trip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
			inner := heedtest.NewOrigin(heedtest.Config{Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 20, Window: time.Second}}})
			load{heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Phase: time.Duration(phase) * time.Second, Dialect: heedtest.Silent,
				Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(trip), Respond: inner.ServeHTTP,
			}, 16, 30, func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(time.Minute)
				o.ResetTally()
				inner.ResetTally()
				time.Sleep(4*time.Minute - time.Second)
				accepted += inner.Tally().Accepted
				refused += o.Tally().Refused + inner.Tally().Refused
			}}.play(t)
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if possible := int64(10 * 4800); accepted < possible*85/100 || refused > accepted*30/1000 {
		t.Errorf("%d accepted of %d, %d refused", accepted, possible, refused)
	}
}

// Who does not wait until a limit lets through again asks all the time all the same: as often as those who wait, it finds and keeps to it.
func TestHiddenLimitIsFoundByThoseWhoDoNotWait(t *testing.T) {
	manyRequests(t)
	const quota, windows = 100, 20
	for name, impatient := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"not at all": noWait,
		"for a part of a window": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
				Latency: heedtest.RoundTrip(40 * time.Millisecond),
			})
			c, end := quiet(t, o, heed.Limits{}).Client(), time.Now().Add(windows*10*time.Second)
			var busy sync.WaitGroup
			for range 8 {
				busy.Go(func() {
					for time.Now().Before(end) {
						if !succeeds(t, c, impatient) {
							time.Sleep(50 * time.Millisecond)
						}
					}
				})
			}
			busy.Wait()
			tally := o.Tally()
			t.Logf("%s: %d accepted, %d refused", name, tally.Accepted, tally.Refused)
			if tally.Accepted < windows*quota*95/100 || tally.Refused > 25 {
				t.Errorf("waiting %s: %d accepted of %d, %d refused", name, tally.Accepted, windows*quota, tally.Refused)
			}
		})
	}
}

// Those who are turned away by a learned rate show that it is made use of, be it that they come at random and none of them ever waits:
// it rises for them, too, until it is no less than what the origin lets through.
func TestLearnedRateRisesForThoseWhoDoNotWait(t *testing.T) {
	manyRequests(t)
	const wanted, hours = 9.5, 1
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			Latency: heedtest.RoundTrip(40 * time.Millisecond),
		})
		c, rng := quiet(t, o, heed.Limits{}).Client(), rand.New(rand.NewPCG(3, 95))
		var busy sync.WaitGroup
		for end := time.Now().Add(hours * time.Hour); time.Now().Before(end); {
			busy.Go(func() { succeeds(t, c, noWait) })
			time.Sleep(time.Duration(rng.ExpFloat64() / wanted * float64(time.Second)))
		}
		busy.Wait()
		tally := o.Tally()
		share := float64(tally.Accepted) / (wanted * 3600 * hours)
		t.Logf("%.2f accepted, %d refused", share, tally.Refused)
		if share < 0.65 || tally.Refused > 12 {
			t.Errorf("%.2f of what was wanted was accepted, %d refused", share, tally.Refused)
		}
	})
}

// A rate is not made use of by few requests, though they come two at a time, so that one of each two is turned away.
func TestFewRequestsTurnedAwayRaiseNoLearnedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		send := sender(t, r)
		for range 100 {
			send(200)
		}
		send(429, "Retry-After", "10")
		send(200)
		rate := func() float64 { return 1 / learned(r.Snapshot()[0])[0].Window.Seconds() }
		before := rate()
		for range 3000 {
			time.Sleep(time.Second / 2)
			pm, err := r.Acquire(heed.NoWait(t.Context()), request(example))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Acquire(heed.NoWait(t.Context()), request(example)); err == nil {
				t.Fatal("both of two went at once")
			}
			pm.Observe(answer(200))
			pm.Release()
		}
		if after := rate(); after > before*1.05 {
			t.Errorf("%.2f a second, %.2f before", after, before)
		}
	})
}

// succeeds sends a request, and reports whether it was accepted.
func succeeds(t *testing.T, c *http.Client, impatient func(context.Context) (context.Context, context.CancelFunc)) bool {
	ctx, cancel := impatient(t.Context())
	defer cancel()
	resp, err := c.Do(request(example).WithContext(ctx))
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// However long all went well before, the first refusal of a limit that nobody announces stops all for no longer than one that tells
// nothing: what had been accepted until then is no burst.
func TestFirstRefusalAfterLongStopsNoLonger(t *testing.T) {
	manyRequests(t)
	synctest.Test(t, func(t *testing.T) {
		b := tokenBucket{rate: 10, burst: 20}
		tr := quiet(t, &limiter{way: 20 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, _ http.Header) bool {
			return b.take(now)
		}}, heed.Limits{})
		defer tr.Registry.Close()
		c := tr.Client()
		var busy sync.WaitGroup
		longest := time.Duration(0)
		get := func() {
			asked := time.Now()
			resp, err := c.Get(example + "/x")
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			longest = max(longest, time.Since(asked))
		}
		for range 4 * 3600 { // an hour of four a second, and then half an hour with bursts
			busy.Go(get)
			time.Sleep(250 * time.Millisecond)
		}
		for range 3 {
			for range 45 {
				busy.Go(get)
			}
			for range 4 * 600 {
				busy.Go(get)
				time.Sleep(250 * time.Millisecond)
			}
		}
		busy.Wait()
		t.Logf("the longest took %v", longest)
		if longest > 30*time.Second {
			t.Errorf("the longest took %v", longest)
		}
	})
}

// A slow rate that is no longer true is left in hours, though at that rate hardly anything is accepted that could show it.
func TestSlowLearnedRateIsLeftInHours(t *testing.T) {
	manyRequests(t)
	for _, burst := range []float64{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			const limited, plays = 2 * time.Hour, 9 * time.Hour
			b := tokenBucket{rate: 1.0 / 360, burst: burst}
			last, refused := 0, 0
			tr := quiet(t, &limiter{way: 250 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, _ http.Header) bool {
				since := now.Sub(began)
				if since < limited && !b.take(now) {
					refused++
					return false
				}
				if since > plays-time.Hour {
					last++
				}
				return true
			}}, heed.Limits{})
			defer tr.Registry.Close()
			c := tr.Client()
			asking(4, began.Add(plays), func(int) (*http.Response, error) {
				resp, err := c.Get(example + "/x")
				if err != nil {
					t.Error(err)
				}
				return resp, err
			}).Wait()
			t.Logf("%d refused in two hours of one in six minutes; %d accepted in the seventh hour after", refused, last)
			if refused > 24 || last < 20000 {
				t.Errorf("%d refused in two hours of one in six minutes; %d accepted in the seventh hour after", refused, last)
			}
		})
	}
}

// eachOnce has goroutines ask for one path after the other, none twice, as crawlers do, until the registry is closed.
func eachOnce(tr *heed.Transport, goroutines int, end time.Time) *sync.WaitGroup {
	var n atomic.Int64
	return asking(goroutines, end, func(int) (*http.Response, error) {
		return tr.RoundTrip(request(fmt.Sprint(example, "/story-", n.Add(1))))
	})
}

// askedOnce has goroutines ask for each path once, and returns what came of it in a length of time once it has settled, and how much the
// policy lets through then.
func askedOnce(t *testing.T, tr *heed.Transport, o *heedtest.Origin, goroutines int, settles, length time.Duration, p heedtest.Policy) (tally heedtest.Tally, all float64) {
	busy := eachOnce(tr, goroutines, time.Now().Add(settles+length))
	time.Sleep(settles)
	o.ResetTally()
	time.Sleep(length)
	tally = o.Tally()
	tr.Registry.Close()
	busy.Wait()
	all = float64(p.Quota) * length.Seconds() / p.Window.Seconds()
	t.Logf("%.3f used, %.1f refused per 1000", float64(tally.Accepted)/all, 1000*float64(tally.Refused)/float64(tally.Accepted))
	return tally, all
}

// A limit that refuses with a 503, as nginx's does, is kept to by who asks for each path but once as well: that none was accepted
// before does not make it an origin whose paths are sick, for they are accepted when they are tried again.
func TestHiddenLimitThatRefusesWith503IsLearnedByWhoAsksForEachPathOnce(t *testing.T) {
	manyRequests(t)
	const settles, length = 20 * time.Minute, time.Hour
	for name, c := range map[string]struct {
		algorithm heedtest.Algorithm
		policy    heedtest.Policy
		after     time.Duration // named by each refusal; 0: none
		least     float64       // the share used of what is let through
	}{
		"a bucket":                     {heedtest.TokenBucket, heedtest.Policy{Quota: 10, Window: 2 * time.Second}, 0, 0.95},
		"a bucket that names 5 s":      {heedtest.TokenBucket, heedtest.Policy{Quota: 10, Window: 2 * time.Second}, 5 * time.Second, 0.75},
		"a bucket that names a minute": {heedtest.TokenBucket, heedtest.Policy{Quota: 10, Window: 2 * time.Second}, time.Minute, 0.75},
		"a window":                     {heedtest.FixedWindowByClock, heedtest.Policy{Quota: 60, Window: time.Minute}, 0, 0.8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{Algorithm: c.algorithm, Policies: []heedtest.Policy{c.policy}, Dialect: heedtest.Silent, Status: 503,
					Latency: heedtest.HeavyTail(200*time.Millisecond, 0.1, time.Second, 1)})
				tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
					resp, err := o.RoundTrip(req)
					if err == nil && resp.StatusCode == 503 && c.after > 0 {
						resp.Header.Set("Retry-After", fmt.Sprint(int(c.after.Seconds())))
					}
					return resp, err
				}), heed.Limits{})
				tally, all := askedOnce(t, tr, o, 8, settles, length, c.policy)
				if float64(tally.Accepted) < c.least*all || tally.Refused > tally.Accepted/25 {
					t.Errorf("%d accepted of %.0f, %d refused", tally.Accepted, all, tally.Refused)
				}
			})
		})
	}
}

// So it is where each refusal names a time after which one goes first: that a path is refused a second time beside others that are
// accepted is no illness of it where it is accepted in the end, and of many that are refused at once the first are tried again first.
func TestHiddenLimitThatNamesAWaitWithA503IsLearnedByWhoAsksForEachPathOnce(t *testing.T) {
	manyRequests(t)
	const settles, length = 10 * time.Minute, 20 * time.Minute
	for name, c := range map[string]struct {
		algorithm  heedtest.Algorithm
		policy     heedtest.Policy
		goroutines int
		trip       time.Duration
	}{
		"one at a time": {heedtest.GCRA, heedtest.Policy{Quota: 3, Window: time.Second, Burst: 1}, 8, time.Millisecond},
		"one a second":  {heedtest.FixedWindow, heedtest.Policy{Quota: 1, Window: time.Second}, 2, time.Millisecond},
		"many":          {heedtest.SlidingWindow, heedtest.Policy{Quota: 300, Window: time.Minute}, 32, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{Algorithm: c.algorithm, Policies: []heedtest.Policy{c.policy}, Dialect: heedtest.RetryAfterOnly, Status: 503,
					Latency: heedtest.HeavyTail(c.trip, 0.1, time.Second, 1)})
				tr := quiet(t, o, heed.Limits{})
				tally, all := askedOnce(t, tr, o, c.goroutines, settles, length, c.policy)
				if float64(tally.Accepted) < 0.9*all || tally.Refused > tally.Accepted/50 {
					t.Errorf("%d accepted of %.0f, %d refused", tally.Accepted, all, tally.Refused)
				}
			})
		})
	}
}

// What paths that got over a 503 show of an origin is outweighed by those that stay refused while others are accepted: those are
// sick, and nothing is learned of the next one.
func TestPathsThatStayRefusedWith503TeachNoLimit(t *testing.T) {
	for again, want := range map[int]bool{0: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			meet(t, r, example)
			ask := func(path string, status int) {
				pm := acquire(t, r, request(example+path))
				pm.Observe(answer(status))
				pm.Release()
				time.Sleep(time.Second)
			}
			for _, path := range []string{"/1", "/2", "/3", "/sick"} {
				ask(path, 503)
				ask("/", 200)
			}
			for _, path := range []string{"/1", "/2", "/3"} {
				ask(path, 200)
			}
			for range again {
				ask("/sick", 503)
				ask("/", 200)
			}
			ask("/new", 503)
			ask("/", 200)
			if got := len(learned(r.Snapshot()[0])) > 0; got != want {
				t.Errorf("a limit is learned after a path was refused %d times more: %v, want %v", again, got, want)
			}
		})
	}
}

// A slow limit is tried again every ten minutes at first, for it may have been found when it was lower. One that stays as it is
// refuses an attempt each time, so those become rarer.
func TestSlowHiddenLimitThatStaysAsItIsIsTriedMoreRarely(t *testing.T) {
	manyRequests(t)
	const first, then, seeds, most = 24 * time.Hour, 48 * time.Hour, 6, 20 // refused in 1000
	for _, quota := range []int64{6, 20} {
		var accepted, refused int64
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: quota, Window: time.Hour}}, Dialect: heedtest.Silent,
					Latency: heedtest.HeavyTail(200*time.Millisecond, 0.1, time.Second, seed),
				})
				f := &flaky{base: o, rng: rand.New(rand.NewPCG(seed, 1))}
				f.play(t, 4, first+then+time.Minute, func() {
					time.Sleep(first)
					o.ResetTally()
					time.Sleep(then)
					accepted, refused = accepted+o.Tally().Accepted, refused+o.Tally().Refused
				})
			})
		}
		all := seeds * quota * int64(then/time.Hour)
		t.Logf("%d an hour: %d accepted of %d, %d refused", quota, accepted, all, refused)
		if 1000*refused > most*accepted || accepted < all*95/100 {
			t.Errorf("%d an hour: %d accepted of %d, %d refused", quota, accepted, all, refused)
		}
	}
}
