package heed_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// scattered are latencies that are drawn anew for each request, half up and half down.
func scattered(seed uint64, draw func(*rand.Rand) float64) heedtest.Latency {
	return func(n int64) (up, down time.Duration) {
		d := time.Duration(min(draw(rand.New(rand.NewPCG(seed, uint64(n)))), 5) * float64(time.Second))
		return d / 2, d - d/2
	}
}

// exponential are round trips of 10 ms at least and 50 ms in the mean.
func exponential(r *rand.Rand) float64 { return 0.01 + 0.04*r.ExpFloat64() }

// lognormal are round trips of 30 ms in the median.
func lognormal(sigma float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return 0.03 * math.Exp(sigma*r.NormFloat64()) }
}

// strictly is a limit that lets one request through each so often, and says nothing of it.
func strictly(each time.Duration, latency heedtest.Latency) heedtest.Config {
	return heedtest.Config{
		Algorithm: heedtest.LeakyBucket, Dialect: heedtest.Silent, Latency: latency,
		Policies: []heedtest.Policy{{Quota: 10, Window: 10 * each}},
	}
}

// Requests that went evenly meet where latencies scatter, and a strict limit refuses some of them at any pace that
// is near it. Who sends the next one by the answer to the last gets far more, with no more refusals.
func TestStrictLimitIsUsedWhereLatenciesScatter(t *testing.T) {
	manyRequests(t)
	for name, c := range map[string]struct {
		draw   func(*rand.Rand) float64
		each   time.Duration
		n      int
		least  float64 // of the limit
		atPace float64 // that would be let through, as far as was seen
	}{
		"exponential, 10/s":          {exponential, 100 * time.Millisecond, 16, 0.66, 0.52},
		"exponential, 2/s":           {exponential, 500 * time.Millisecond, 16, 0.87, 0.80},
		"lognormal, 10/s":            {lognormal(1), 100 * time.Millisecond, 16, 0.65, 0.43},
		"lognormal, one by one":      {lognormal(1), 100 * time.Millisecond, 1, 0.61, 0.53},
		"heavy tail, 10/s":           {lognormal(1.7), 100 * time.Millisecond, 16, 0.44, 0.25},
		"heavy tail, 100 goroutines": {lognormal(1.7), 100 * time.Millisecond, 100, 0.44, 0.25},
	} {
		accepted, refused := int64(0), int64(0)
		const seeds, windows = 4, 200
		for seed := range uint64(seeds) {
			tally, _ := load{strictly(c.each, scattered(seed, c.draw)), c.n, windows, nil}.play(t)
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		}
		share, each := float64(accepted)/(seeds*windows*10), 1000*float64(refused)/float64(accepted)
		t.Logf("%s: %.2f of the limit, %.1f refused per 1000", name, share, each)
		if share < c.least || each > 26 {
			t.Errorf("%s: %.2f of the limit, want at least %.2f, for %.2f at a pace; %.1f refused per 1000, want at most 26", name, share, c.least, c.atPace, each)
		}
	}
}

// Where latencies are the same again, requests go at the pace of the limit.
func TestStrictLimitIsUsedUpWhereLatenciesCalmDown(t *testing.T) {
	sideBySide(t)
	const calmFrom = 1500
	rough, calm := scattered(1, lognormal(1)), heedtest.RoundTrip(300*time.Millisecond)
	begun := heedtest.Tally{}
	tally, _ := load{strictly(100*time.Millisecond, func(n int64) (up, down time.Duration) {
		if n < calmFrom {
			return rough(n)
		}
		return calm(n)
	}), 16, 600, func(o *heedtest.Origin, _ *heed.Registry) {
		time.Sleep(5 * time.Minute)
		begun = o.Tally()
	}}.play(t)
	accepted, refused := tally.Accepted-begun.Accepted, tally.Refused-begun.Refused
	t.Logf("%d of 3000 accepted, %d refused", accepted, refused)
	if accepted < 2850 || refused > 25 {
		t.Errorf("%d of 3000 accepted, %d refused", accepted, refused)
	}
}

// A strict limit that is lifted altogether is forgotten, and requests go as fast as they are answered.
func TestStrictLimitThatIsLiftedIsForgotten(t *testing.T) {
	manyRequests(t)
	for name, c := range map[string]struct {
		draw func(*rand.Rand) float64
		each time.Duration
		n    int
		most float64 // requests per second of so many goroutines, in the mean
	}{
		"exponential, 10/s":               {exponential, 100 * time.Millisecond, 16, 320},
		"exponential, 2/s":                {exponential, 500 * time.Millisecond, 16, 320},
		"exponential, 10/s, 64 at a time": {exponential, 100 * time.Millisecond, 64, 1280},
		"lognormal, 5/s, 64 at a time":    {lognormal(1), 200 * time.Millisecond, 64, 1290},
	} {
		latest, in := int64(0), 2000*c.each
		tally, state := load{strictly(c.each, scattered(1, c.draw)), c.n, 400, func(o *heedtest.Origin, r *heed.Registry) {
			time.Sleep(in)
			if len(r.Snapshot()[0].Partitions[0].Policies) == 0 {
				t.Errorf("%s: nothing was learned", name)
			}
			o.SetPolicies()
			time.Sleep(in - 10*time.Second)
			latest = o.Tally().Accepted
		}}.play(t)
		share := float64(tally.Accepted-latest) / 10 / c.most
		t.Logf("%s: %.2f of what is possible", name, share)
		if left := state.Partitions[0].Policies; share < 0.9 || len(left) > 0 {
			t.Errorf("%s: %.2f of what is possible, kept to %v", name, share, left)
		}
	}
}

// A strict limit that is cut, and raised again, is followed.
func TestStrictLimitIsFollowedWhereLatenciesScatter(t *testing.T) {
	sideBySide(t)
	var at [3]heedtest.Tally
	tally, _ := load{strictly(100*time.Millisecond, scattered(1, exponential)), 16, 900, func(o *heedtest.Origin, _ *heed.Registry) {
		for i, quota := range []int64{5, 10} {
			time.Sleep(5 * time.Minute)
			at[i] = o.Tally()
			o.SetPolicies(heedtest.Policy{Quota: quota, Window: time.Second})
		}
	}}.play(t)
	at[2] = tally
	cut, raised, refused := at[1].Accepted-at[0].Accepted, at[2].Accepted-at[1].Accepted, at[2].Refused-at[0].Refused
	t.Logf("%d of 1500 accepted, then %d of 3000; %d refused", cut, raised, refused)
	if cut < 1000 || raised < 1500 || refused > 75 {
		t.Errorf("%d of 1500 accepted, then %d of 3000; %d refused", cut, raised, refused)
	}
}

// An answer that takes hours hides nothing of what the others tell.
func TestStrictLimitIsFollowedWhileAnAnswerTakesHours(t *testing.T) {
	sideBySide(t)
	var begun heedtest.Tally
	rough := scattered(1, exponential)
	tally, _ := load{strictly(100*time.Millisecond, func(n int64) (up, down time.Duration) {
		if n == 1500 {
			return 5 * time.Millisecond, 2 * time.Hour
		}
		return rough(n)
	}), 16, 600, func(o *heedtest.Origin, _ *heed.Registry) {
		time.Sleep(5 * time.Minute)
		begun = o.Tally()
		o.SetPolicies(heedtest.Policy{Quota: 5, Window: time.Second})
	}}.play(t)
	accepted, refused := tally.Accepted-begun.Accepted, tally.Refused-begun.Refused
	t.Logf("%d of 1500 accepted, %d refused", accepted, refused)
	if accepted < 600 || refused > 60 {
		t.Errorf("%d of 1500 accepted, %d refused", accepted, refused)
	}
}

// Limits that let several through at once are no strict ones, whatever the latencies.
func TestOtherHiddenLimitsAreNotTakenForStrictOnes(t *testing.T) {
	manyRequests(t)
	bucket := func(burst int64) heedtest.Policy {
		return heedtest.Policy{Quota: 10, Window: time.Second, Burst: burst, Algorithm: heedtest.LeakyBucket}
	}
	window := heedtest.Policy{Quota: 50, Window: 5 * time.Second, Algorithm: heedtest.FixedWindow}
	for name, c := range map[string]struct {
		policy heedtest.Policy
		draw   func(*rand.Rand) float64
		least  float64
	}{
		"bucket":                   {bucket(5), exponential, 0.93},
		"bucket, heavy tail":       {bucket(10), lognormal(1.7), 0.93},
		"large bucket":             {bucket(50), exponential, 0.97},
		"large bucket, heavy tail": {bucket(50), lognormal(1.7), 0.97},
		"window":                   {window, exponential, 0.90},
		"window, heavy tail":       {window, lognormal(1.7), 0.90},
	} {
		accepted, refused := int64(0), int64(0)
		const seeds = 4
		for seed := range uint64(seeds) {
			tally, _ := load{heedtest.Config{
				Dialect: heedtest.Silent, Latency: scattered(seed, c.draw), Policies: []heedtest.Policy{c.policy},
			}, 16, int(200 * time.Second / c.policy.Window), nil}.play(t)
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		}
		share, each := float64(accepted)/(seeds*2000), 1000*float64(refused)/float64(accepted)
		t.Logf("%s: %.3f of the limit, %.1f refused per 1000", name, share, each)
		if share < c.least || each > 15 {
			t.Errorf("%s: %.3f of the limit, %.1f refused per 1000", name, share, each)
		}
	}
}
