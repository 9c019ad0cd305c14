package heed_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A flaky network refuses a share of all requests by chance, and hands on the others.
type flaky struct {
	base   *heedtest.Origin // nil: there is no limit
	share  float64
	status int
	after  string // what those it refuses name in Retry-After; "": nothing
	trip   time.Duration

	mu       sync.Mutex
	rng      *rand.Rand
	client   *http.Client // that play asks with
	refused  int          // by chance
	accepted int          // without a base
}

// partly has f refuse another share from now on, and returns how many were accepted since it was told last.
func (f *flaky) partly(share float64) (accepted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	accepted, f.accepted, f.share = f.accepted, 0, share
	return accepted
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	refused := f.rng.Float64() < f.share
	if refused {
		f.refused++
	}
	took := time.Duration((0.9 + 0.2*f.rng.Float64()) * float64(f.trip))
	f.mu.Unlock()
	if !refused && f.base != nil {
		return f.base.RoundTrip(req)
	}
	time.Sleep(took)
	switch {
	case !refused:
		f.mu.Lock()
		f.accepted++
		f.mu.Unlock()
		return answer(200), nil
	case f.after != "":
		return answer(f.status, "Retry-After", f.after), nil
	}
	return answer(f.status), nil
}

// play has goroutines send as fast as they get answers, and returns how many were accepted;
// meanwhile, if not nil, runs beside them.
func (f *flaky) play(t *testing.T, goroutines int, length time.Duration, meanwhile func()) (n int64) {
	tr := quiet(t, f, heed.Limits{})
	client := tr.Client()
	f.client = client
	end := time.Now().Add(length)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for time.Now().Before(end) {
				resp, err := client.Get("https://origin.test/")
				if err != nil {
					return // the registry was closed
				}
				resp.Body.Close()
				if resp.StatusCode == 200 && time.Now().Before(end) {
					mu.Lock()
					n++
					mu.Unlock()
				}
			}
		})
	}
	if meanwhile != nil {
		meanwhile()
	}
	time.Sleep(time.Until(end))
	tr.Registry.Close()
	wg.Wait()
	return n
}

// An origin without any limit that refuses a few of all requests by chance is not held to a rate
// for long: those refused wait, and nothing else does.
func TestRefusalsByChanceAreNoLimit(t *testing.T) {
	manyRequests(t)
	const trip, seeds = 50 * time.Millisecond, 4
	for _, c := range []struct {
		goroutines int
		share      float64
		length     time.Duration
	}{{4, .02, 5 * time.Minute}, {16, .01, 2 * time.Minute}, {16, .05, 4 * time.Minute}, {64, .02, 40 * time.Second}} {
		// One that is refused waits for five seconds and up to half of one more.
		all := (1 - c.share) / (trip.Seconds() + c.share*5.25) * float64(c.goroutines) * c.length.Seconds()
		var mean float64
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{share: c.share, status: []int{503, 429}[seed%2], trip: trip, rng: rand.New(rand.NewPCG(seed/2, 7))}
				mean += float64(f.play(t, c.goroutines, c.length, nil)) / all / seeds
			})
		}
		t.Logf("%d goroutines, %.0f in 100 refused: %.2f of what could be accepted", c.goroutines, 100*c.share, mean)
		if mean < 0.6 {
			t.Errorf("%d goroutines, %.0f in 100 refused: %.2f of what could be accepted", c.goroutines, 100*c.share, mean)
		}
	}
}

// Nor are they where they name a time to wait: that is waited each time, and that is all.
func TestRefusalsByChanceThatNameATimeAreNoLimit(t *testing.T) {
	manyRequests(t)
	const trip, length, seeds = 10 * time.Millisecond, 3 * time.Minute, 4
	// Each is waited out, for a tenth longer at most, and then one goes first.
	all := length.Seconds() / (200*trip.Seconds() + 1.05 + 2*trip.Seconds()) * 200
	var mean float64
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{share: .005, status: []int{503, 429}[seed%2], after: "1", trip: trip, rng: rand.New(rand.NewPCG(seed/2, 7))}
			mean += float64(f.play(t, 1, length, nil)) / all / seeds
		})
	}
	t.Logf("%.2f of what could be accepted", mean)
	if mean < 0.6 {
		t.Errorf("%.2f of what could be accepted", mean)
	}
}

// Where a part of an origin is out of order for a while, and refuses a third of all requests
// whatever the pace is, no limit is found that holds on when it is well again.
func TestPartThatIsOutOfOrderIsNoLimit(t *testing.T) {
	manyRequests(t)
	const trip, goroutines, seeds, rest = 100 * time.Millisecond, 8, 6, 2 * time.Minute
	for _, after := range []string{"", "1"} {
		var mean float64
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{status: []int{503, 429}[seed%2], after: after, trip: trip, rng: rand.New(rand.NewPCG(seed/2, 7))}
				f.play(t, goroutines, 30*time.Second+time.Minute+rest, func() {
					time.Sleep(30 * time.Second)
					f.partly(1. / 3)
					time.Sleep(time.Minute)
					f.partly(0)
				})
				mean += float64(f.accepted) * trip.Seconds() / goroutines / rest.Seconds() / seeds
			})
		}
		t.Logf("Retry-After %q: %.2f of what could be accepted since", after, mean)
		if mean < 0.4 {
			t.Errorf("Retry-After %q: %.2f of what could be accepted since", after, mean)
		}
	}
}

// Nor is one found where that lasts for hours: whatever share is refused, most of what could be accepted is, to the
// end, and all is once it is over.
func TestPartThatIsOutOfOrderForHoursIsNoLimit(t *testing.T) {
	manyRequests(t)
	const trip, goroutines, seeds, long, late, rest = 50 * time.Millisecond, 8, 4, 2 * time.Hour, 30 * time.Minute, 10 * time.Minute
	for _, c := range []struct {
		share float64
		least float64
	}{{.1, .6}, {.25, .4}} {
		all := (1 - c.share) / (trip.Seconds() + c.share*5.25) * goroutines * (long - late).Seconds()
		var mean, since float64
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{share: c.share, status: []int{503, 429}[seed%2], trip: trip, rng: rand.New(rand.NewPCG(seed/2, 7))}
				f.play(t, goroutines, long+rest, func() {
					time.Sleep(late)
					f.partly(c.share)
					time.Sleep(long - late)
					mean += float64(f.partly(0)) / all / seeds
				})
				since += float64(f.accepted) * trip.Seconds() / goroutines / rest.Seconds() / seeds
			})
		}
		t.Logf("%.0f in 100 refused: %.2f of what could be accepted, %.2f since", 100*c.share, mean, since)
		if mean < c.least || since < 0.6 {
			t.Errorf("%.0f in 100 refused: %.2f of what could be accepted, %.2f since", 100*c.share, mean, since)
		}
	}
}

// That a third of all was refused while a part of an origin was out of order does not explain what a limit
// refuses once it is well again.
func TestLimitIsKeptToAfterAPartWasOutOfOrder(t *testing.T) {
	manyRequests(t)
	const trip, seeds = 50 * time.Millisecond, 4
	var accepted, refused int64
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{base: heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 20, Window: time.Second, Burst: 20}},
				Latency: heedtest.RoundTrip(trip),
			}), status: []int{503, 429}[seed%2], trip: trip, rng: rand.New(rand.NewPCG(seed/2, 7))}
			var before heedtest.Tally
			f.play(t, 16, 5*time.Minute, func() {
				time.Sleep(30 * time.Second)
				f.partly(1. / 3)
				time.Sleep(time.Minute)
				f.partly(0)
				time.Sleep(time.Minute)
				before = f.base.Tally()
			})
			after := f.base.Tally()
			accepted, refused = accepted+after.Accepted-before.Accepted, refused+after.Refused-before.Refused
		})
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if all := int64(seeds * 150 * 20); accepted < all/2 || refused > 100*seeds {
		t.Errorf("%d accepted of %d, %d refused", accepted, all, refused)
	}
}

// Once nothing comes by chance any more, an attempt at more costs no more than at any other limit: it does not take
// several refusals to tell them from chance.
func TestChanceThatIsOverIsForgottenBesideALimit(t *testing.T) {
	manyRequests(t)
	const trip, seeds, rest = 50 * time.Millisecond, 4, 20 * time.Minute
	for _, algorithm := range []heedtest.Algorithm{heedtest.TokenBucket, heedtest.FixedWindow} {
		var accepted, refused int64
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{base: heedtest.NewOrigin(heedtest.Config{
					Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(trip),
				}), share: .05, status: 503, trip: trip, rng: rand.New(rand.NewPCG(seed, 7))}
				var before heedtest.Tally
				f.play(t, 16, 7*time.Minute+rest, func() {
					time.Sleep(5 * time.Minute)
					f.partly(0)
					time.Sleep(2 * time.Minute)
					before = f.base.Tally()
				})
				after := f.base.Tally()
				accepted, refused = accepted+after.Accepted-before.Accepted, refused+after.Refused-before.Refused
			})
		}
		t.Logf("%s: %d accepted, %d refused", algorithm, accepted, refused)
		if all := int64(10 * rest.Seconds() * seeds); accepted < all*9/10 || refused > 10*all/1000 {
			t.Errorf("%s: %d accepted of %d, %d refused", algorithm, accepted, all, refused)
		}
	}
}

// A limit that nobody announces is kept to though some are refused by chance as well: the pace is not lowered for
// those, and not many more are refused by the limit. One that names a time is the limit's, where those by chance name none.
func TestHiddenLimitIsKeptToThoughMoreAreRefusedByChance(t *testing.T) {
	manyRequests(t)
	const trip, length, seeds = 50 * time.Millisecond, 5 * time.Minute, 18 // with fewer, chance decides
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		dialect   heedtest.Dialect
		share     float64
		accepted  float64 // of what is let through, at least
		refused   float64 // beside those by chance, at most
	}{
		{heedtest.TokenBucket, heedtest.Silent, .01, .7, 110},
		{heedtest.FixedWindow, heedtest.Silent, .01, .6, 110},
		{heedtest.TokenBucket, heedtest.Silent, .05, .8, 130},
		{heedtest.FixedWindow, heedtest.Silent, .05, .65, 110},
		{heedtest.LeakyBucket, heedtest.Silent, .05, .5, 60},
		{heedtest.TokenBucket, heedtest.RetryAfterOnly, .05, .75, 90},
		{heedtest.TokenBucket, heedtest.Silent, .1, .7, 150},
	} {
		var accepted, refused float64
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{share: c.share, status: 503, trip: trip, rng: rand.New(rand.NewPCG(seed, 7)), base: heedtest.NewOrigin(heedtest.Config{
					Algorithm: c.algorithm, Status: 503, Dialect: c.dialect, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(trip),
				})}
				accepted += float64(f.play(t, 16, length, nil)) / (10 * length.Seconds()) / seeds
				refused += float64(f.base.Tally().Refused) / seeds
			})
		}
		t.Logf("%s, %s, %.0f in 100: %.2f of what is let through, %.0f refused beside those by chance", c.algorithm, c.dialect, 100*c.share, accepted, refused)
		if accepted < c.accepted || refused > c.refused {
			t.Errorf("%s, %s, %.0f in 100: %.2f of what is let through, %.0f refused beside those by chance", c.algorithm, c.dialect, 100*c.share, accepted, refused)
		}
	}
}

// So is one of hundreds a second, though many are on their way then, and none is alone: what meets a refusal there and
// is accepted tells that it came by chance.
func TestHiddenLimitOfHundredsASecondIsKeptToThoughAFewAreRefusedByChance(t *testing.T) {
	manyRequests(t)
	two, four := []uint64{0, 1}, []uint64{0, 1, 2, 3} // with fewer, chance decides
	gathered := []uint64{7, 9, 13, 20, 30, 37}        // attempts at more met what had been
	seldom := []uint64{15, 19, 32, 34}                // for long nothing came by chance, which was not over
	twice := []uint64{100, 103}                       // the first that came by chance did so right after the first measure
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		quota     int64
		window    time.Duration
		share     float64
		seeds     []uint64
		accepted  float64 // of what is let through, at least
		refused   float64 // by the limit, per 1000 accepted, at most
	}{
		{heedtest.FixedWindow, 500, time.Second, .005, four, .6, 20},
		{heedtest.FixedWindow, 5000, 10 * time.Second, .005, two, .8, 12},
		{heedtest.FixedWindow, 5000, 10 * time.Second, .005, seldom, .8, 12},
		{heedtest.TokenBucket, 500, time.Second, .005, two, .7, 24},
		{heedtest.TokenBucket, 100, time.Second, .01, two, .7, 28},
		{heedtest.TokenBucket, 100, time.Second, .005, twice, .55, 28},
		{heedtest.SlidingWindow, 1000, 10 * time.Second, .01, two, .7, 30},
		{heedtest.SlidingWindow, 1000, 10 * time.Second, .01, gathered, .6, 40},
	} {
		part, per1000 := besideChance(t, c.algorithm, heedtest.Policy{Quota: c.quota, Window: c.window}, c.share, 3*time.Minute, c.seeds...)
		t.Logf("%s of %d per %v, %.1f in 100: %.2f of what is let through, %.1f refused per 1000", c.algorithm, c.quota, c.window, 100*c.share, part, per1000)
		if part < c.accepted || per1000 > c.refused {
			t.Errorf("%s of %d per %v, %.1f in 100: %.2f of what is let through, %.1f refused per 1000", c.algorithm, c.quota, c.window, 100*c.share, part, per1000)
		}
	}
}

// Where fewer come by chance than it seemed at first, that is not over, or what it still refuses would be taken for the limit's.
func TestChanceThatIsRarerThanItSeemedIsNotOver(t *testing.T) {
	manyRequests(t)
	part, per1000 := besideChance(t, heedtest.FixedWindow, heedtest.Policy{Quota: 5000, Window: 10 * time.Second}, .002, 6*time.Minute, 101, 103, 108)
	t.Logf("%.2f of what is let through, %.1f refused per 1000", part, per1000)
	if part < .75 || per1000 > 10 {
		t.Errorf("%.2f of what is let through, %.1f refused per 1000", part, per1000)
	}
}

// besideChance has 64 goroutines send for a time to an origin that announces nothing and lets through what a policy
// does, of which a share is refused by chance, once with each seed. It returns what part was accepted of what could be, and how
// many the limit refused for 1000 of those.
func besideChance(t *testing.T, algorithm heedtest.Algorithm, policy heedtest.Policy, share float64, length time.Duration, seeds ...uint64) (part, per1000 float64) {
	t.Helper()
	const trip, goroutines = 50 * time.Millisecond, 64
	var accepted, refused int64
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{share: share, status: 503, trip: trip, rng: rand.New(rand.NewPCG(seed, 7)), base: heedtest.NewOrigin(heedtest.Config{
				Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(trip),
			})}
			f.play(t, goroutines, length, nil)
			tally := f.base.Tally()
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		})
	}
	// One that is refused by chance waits for five seconds and up to half of one more.
	most := min(float64(policy.Quota)/policy.Window.Seconds(), (1-share)/(trip.Seconds()+share*5.25)*goroutines)
	return float64(accepted) / (most * length.Seconds() * float64(len(seeds))), 1000 * float64(refused) / float64(accepted)
}

// policyChanges has an origin's policy change, under each of four seeds, after goroutines had sent for a while, and returns what it
// accepted and refused in the five minutes since.
func policyChanges(t *testing.T, goroutines int, after time.Duration, policy heedtest.Policy, made func(seed uint64) *flaky) (accepted, refused int64) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			f := made(seed)
			f.play(t, goroutines, after+5*time.Minute, func() {
				time.Sleep(after)
				f.base.SetPolicies(policy)
				f.base.ResetTally()
			})
			tally := f.base.Tally()
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		})
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	return accepted, refused
}

// A limit of hundreds a second that is cut is met a few times on the way down: that is not by chance, for others in flight
// are refused then, too.
func TestHiddenLimitOfHundredsASecondThatIsCutIsNotTakenForChance(t *testing.T) {
	manyRequests(t)
	accepted, refused := policyChanges(t, 128, time.Minute, heedtest.Policy{Quota: 200, Window: time.Second}, func(seed uint64) *flaky {
		return &flaky{rng: rand.New(rand.NewPCG(seed, 7)), base: heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 300, Window: time.Second}},
			Latency: heedtest.HeavyTail(50*time.Millisecond, .15, 5*time.Second, seed),
		})}
	})
	if all := int64(4 * 300 * 200); accepted < all*9/10 || 1000*refused > 8*accepted {
		t.Errorf("%d accepted of %d, %d refused", accepted, all, refused)
	}
}

// One that is raised is followed though some are refused by chance as well.
func TestHiddenLimitThatIsRaisedBesideChanceIsFollowed(t *testing.T) {
	manyRequests(t)
	const trip = 50 * time.Millisecond
	accepted, refused := policyChanges(t, 64, 5*time.Minute, heedtest.Policy{Quota: 200, Window: 5 * time.Second}, func(seed uint64) *flaky {
		return &flaky{share: .02, status: 503, trip: trip, rng: rand.New(rand.NewPCG(seed, 7)), base: heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.FixedWindow, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(trip),
		})}
	})
	if all := int64(4 * 300 * 40); accepted < all/2 || 1000*refused > 25*accepted {
		t.Errorf("%d accepted of %d, %d refused", accepted, all, refused)
	}
}

// Refusals by chance look like those of a limit in flight, too, where many are sent at the same instant. Once a window is
// used up nothing is accepted, however many are in flight: that is soon noticed, and costs no wait of minutes.
func TestLimitInFlightThatRefusesAllIsNone(t *testing.T) {
	manyRequests(t)
	const trip = 50 * time.Millisecond
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{share: .002, status: 503, trip: trip, rng: rand.New(rand.NewPCG(seed, 7)), base: heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.FixedWindow, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 3000, Window: time.Minute}}, Latency: heedtest.RoundTrip(trip),
			})}
			f.play(t, 64, 5*time.Minute, nil)
			tally := f.base.Tally()
			t.Logf("seed %d: %d accepted, %d refused", seed, tally.Accepted, tally.Refused)
			if tally.Accepted < 9000 || tally.Refused > 400 {
				t.Errorf("seed %d: %d accepted of 15000, %d refused", seed, tally.Accepted, tally.Refused)
			}
		})
	}
}

// A request that is refused by chance waits no longer for others that were refused before it.
func TestRefusalsByChanceInARowDoNotLengthenTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{share: .05, status: 503, trip: 50 * time.Millisecond, rng: rand.New(rand.NewPCG(1, 7))}
		client := quiet(t, f, heed.Limits{}).Client()
		ask := func() {
			if _, err := client.Get("https://origin.test/"); err != nil {
				t.Error(err)
			}
		}
		known := time.Now().Add(time.Minute) // that they come by chance
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for time.Now().Before(known) {
					ask()
				}
			})
		}
		wg.Wait()
		f.partly(1)
		var waits [4]time.Duration
		for i := range waits {
			began := time.Now()
			wg.Go(func() {
				ask()
				waits[i] = time.Since(began)
			})
			time.Sleep(time.Second)
		}
		f.partly(0)
		wg.Wait()
		if longest := slices.Max(waits[:]); longest > 6*time.Second {
			t.Errorf("one waited for %v", longest)
		}
	})
}

// Where some have long been refused by chance, a limit that begins is still found, by few refusals
// more than were in flight; and an outage still stops all requests.
func TestLimitsAndOutagesAreFoundWhereSomeAreRefusedByChance(t *testing.T) {
	manyRequests(t)
	const trip, goroutines, seeds = 50 * time.Millisecond, 16, 6
	for _, c := range []struct {
		what    string
		quota   int64
		refused float64 // in five minutes, at most
	}{{"a limit", 50, 150}, {"an outage", 0, 60}} {
		var accepted, refused float64
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				policy := heedtest.Policy{Quota: 1e6, Window: 5 * time.Second}
				f := &flaky{share: .02, status: 503, trip: trip, rng: rand.New(rand.NewPCG(seed, 7)), base: heedtest.NewOrigin(heedtest.Config{
					Algorithm: heedtest.FixedWindow, Status: 503, Dialect: heedtest.Silent, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(trip),
				})}
				f.play(t, goroutines, 6*time.Minute, func() {
					time.Sleep(time.Minute)
					policy.Quota = c.quota
					f.base.SetPolicies(policy)
					f.base.ResetTally()
				})
				refused += float64(f.base.Tally().Refused) / seeds
				accepted += float64(f.base.Tally().Accepted) / seeds
			})
		}
		t.Logf("%s: %.0f refused, %.0f accepted", c.what, refused, accepted)
		if refused > c.refused || accepted < 6*float64(c.quota) {
			t.Errorf("%s: %.0f refused, %.0f accepted", c.what, refused, accepted)
		}
	}
}

// A bucket that is large and slow looks like a part of an origin that is out of order: the first pace that it is
// met at is many times what it lets through from then on, and whoever is refused waits. It is found all the same.
func TestLargeSlowHiddenBucketIsNotTakenForChanceForLong(t *testing.T) {
	manyRequests(t)
	const goroutines, trip = 4, 100 * time.Millisecond
	for _, policy := range []heedtest.Policy{{Quota: 5000, Window: time.Hour}, {Quota: 300, Window: 15 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{base: heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(trip),
			}), trip: trip, rng: rand.New(rand.NewPCG(1, 7))}
			const found, rest = 2 * time.Hour, 4 * time.Hour
			f.play(t, goroutines, found+rest, func() {
				time.Sleep(found)
				f.base.ResetTally()
			})
			tally, all := f.base.Tally(), float64(policy.Quota)*float64(rest)/float64(policy.Window)
			t.Logf("%d per %v: %d accepted of %.0f, %d refused", policy.Quota, policy.Window, tally.Accepted, all, tally.Refused)
			if float64(tally.Accepted) < 0.9*all || float64(tally.Refused) > 0.1*all {
				t.Errorf("%d per %v: %d accepted of %.0f, %d refused", policy.Quota, policy.Window, tally.Accepted, all, tally.Refused)
			}
		})
	}
}

// A hidden bucket that is full again every morning is emptied at many times its rate. That the pace then falls as far
// as where a part of an origin is out of order costs no more refusals the more often it has turned out to be a limit.
func TestHiddenBucketThatIsFullAgainEveryMorningCostsNoMoreEachDay(t *testing.T) {
	manyRequests(t)
	const days, last, requests, goroutines = 12, 4, 1500, 8
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 600, Window: time.Hour}},
			Latency: heedtest.RoundTrip(100 * time.Millisecond),
		})
		client := (&heed.Transport{Base: o, Registry: newRegistry(t, heed.Config{IdleAfter: 48 * time.Hour})}).Client()
		for day := range days {
			if day == days-last {
				o.ResetTally()
			}
			morning := time.Now()
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range requests / goroutines {
						resp, err := client.Get(example)
						if err != nil {
							t.Error(err)
							return
						}
						resp.Body.Close()
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Until(morning.Add(24 * time.Hour)))
		}
		tally := o.Tally()
		t.Logf("%d accepted, %d refused in the last %d days", tally.Accepted, tally.Refused, last)
		if tally.Refused > 80*last {
			t.Errorf("%d accepted, %d refused in the last %d days", tally.Accepted, tally.Refused, last)
		}
	})
}

// Where each refusal names a second to wait, what others use of a limit looks like chance, for never are several refused in a row.
func TestOthersOnALimitThatNamesATimeAreNotTakenForChance(t *testing.T) {
	manyRequests(t)
	const seeds, joins, settles, ends = 3, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		quota     int64
		window    time.Duration
	}{
		{heedtest.SlidingWindow, 50, 5 * time.Second},
		{heedtest.SlidingWindow, 100, 10 * time.Second},
		{heedtest.TokenBucket, 1000, time.Minute},
	} {
		var asked, served int
		var accepted, refused int64
		for seed := range uint64(seeds) {
			tally, _ := load{heedtest.Config{
				Algorithm: c.algorithm, Dialect: heedtest.RetryAfterOnly, Policies: []heedtest.Policy{{Quota: c.quota, Window: c.window}},
				Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, 16, int(ends / c.window), func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(joins)
				rng, spacing, settled := rand.New(rand.NewPCG(seed, 7)), 5*c.window/time.Duration(c.quota), false // a fifth of it
				for now := joins; now < ends; {
					wait := spacing/2 + time.Duration(rng.Int64N(int64(spacing)))
					time.Sleep(wait)
					if now += wait; now > settles && !settled {
						o.ResetTally()
						settled = true
					}
					resp, err := (&http.Client{Transport: o}).Get(example)
					if settled {
						asked++
					}
					if settled && err == nil && resp.StatusCode == http.StatusOK {
						served++
					}
				}
			}}.play(t)
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		}
		all := seeds * float64(c.quota) * (ends - settles).Seconds() / c.window.Seconds()
		part, per1000 := float64(accepted)/all, 1000*float64(refused)/float64(accepted)
		t.Logf("%s of %d per %v: %.2f of it, %.1f refused per 1000; the others got %d of %d", c.algorithm, c.quota, c.window, part, per1000, served, asked)
		if part < .83 || per1000 > 30 || served < asked*95/100 {
			t.Errorf("%s of %d per %v: %.2f of it, %.1f refused per 1000; the others got %d of %d", c.algorithm, c.quota, c.window, part, per1000, served, asked)
		}
	}
}

// Of backends that take turns, one of which is out of order, as many are accepted each time: that is no window, which is shut then.
func TestBackendThatIsOutOfOrderAndTakesTurnsIsNoLimit(t *testing.T) {
	const length = 20 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		n := 0
		l := &limiter{way: 25 * time.Millisecond, accepts: func(_ *http.Request, _ time.Time, h http.Header) bool {
			n++
			h.Set("Retry-After", "1")
			return n%6 > 0
		}}
		l.askedBy(t, 1, length)
		most := 5 * int(length/(5*50*time.Millisecond+time.Second)) // a second's wait after each five
		t.Logf("%d accepted of %d", l.accepted, most)
		if l.accepted < most/4 {
			t.Errorf("%d accepted of %d", l.accepted, most)
		}
	})
}

// Processes that have a hidden limit in common, and do not know of one another, find that as many are refused at a lower pace,
// because others take what they leave. They do not go on as if refusals came by chance then.
func TestProcessesOnOneHiddenLimitDoNotTakeItForChanceForGood(t *testing.T) {
	manyRequests(t)
	const minutes, runs = 120, 6
	var refused, accepted int64
	for run := range runs {
		tally, _ := processes(t, heedtest.Config{
			Algorithm: heedtest.TokenBucket, Status: []int{429, 503}[run%2], Dialect: heedtest.RetryAfterOnly,
			Policies: []heedtest.Policy{{Quota: 60, Window: time.Minute}}, Latency: heedtest.RoundTrip(time.Duration(90+10*(run/2)) * time.Millisecond),
		}, minutes, 0, 0, 0, 0, 0, 0)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < runs*minutes*60*95/100 || refused > accepted*4/10 {
		t.Errorf("%d accepted of %d, %d refused", accepted, runs*minutes*60, refused)
	}
}

// Who keeps to a low pace because much is refused finds out that more is let through once more is wanted.
func TestMoreIsTriedAgainWhereMuchIsRefusedByChance(t *testing.T) {
	manyRequests(t)
	const few, many, quiet, busy, rest = 1, 30, 2 * time.Hour, 5 * time.Hour, time.Hour
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{share: .35, status: 429, trip: 50 * time.Millisecond, rng: rand.New(rand.NewPCG(0, 7))}
		var accepted int
		f.play(t, few, quiet+busy+rest, func() {
			time.Sleep(quiet)
			crowd := asking(many, time.Now().Add(busy+rest), func(int) (*http.Response, error) { return f.client.Get("https://origin.test/") })
			time.Sleep(busy)
			f.partly(.35)
			time.Sleep(rest)
			accepted = f.partly(.35)
			crowd.Wait()
		})
		// Each that is refused waits for at least five seconds.
		all := .65 / (f.trip.Seconds() + .35*5.25) * many * rest.Seconds()
		t.Logf("%.2f of what could be accepted", float64(accepted)/all)
		if float64(accepted) < .2*all {
			t.Errorf("%d accepted of %.0f", accepted, all)
		}
	})
}

// A bucket's burst lets through far more than its rate, and the first refusals follow each other closely until that is found. Where
// the rate that they lower stays as it is, they are no chance.
func TestHiddenBucketWhoseBurstHidItsRateIsNotTakenForChance(t *testing.T) {
	sideBySide(t)
	runs, refused := 0, 0
	for _, quota := range []int{90, 100, 110, 150} {
		for _, way := range []time.Duration{time.Millisecond, 2 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				b := bucketOf(quota, time.Minute)
				l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, _ http.Header) bool { return b.take(now) }}
				l.ask(t, 2*time.Minute, example)
				t.Logf("%d per minute, %v away: %d accepted, %d refused", quota, way, l.accepted, l.refused)
				if l.accepted < 5*quota/2 {
					t.Errorf("%d per minute, %v away: %d accepted", quota, way, l.accepted)
				}
				runs, refused = runs+1, refused+l.refused
			})
		}
	}
	if refused > 45*runs {
		t.Errorf("%d refused in %d runs", refused, runs)
	}
}
