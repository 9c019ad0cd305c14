package heed_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A load is goroutines that ask an origin for all they can get.
type load struct {
	origin     heedtest.Config
	goroutines int
	windows    int
	during     func(*heedtest.Origin, *heed.Registry) // nil: nothing
}

// play returns what the origin counted, and what the registry knew at the end.
func (l load) play(t *testing.T) (tally heedtest.Tally, state heed.OriginState) {
	t.Helper()
	return l.playBehind(t, func(o *heedtest.Origin) http.RoundTripper { return o })
}

// playBehind is play where something stands before the origin.
func (l load) playBehind(t *testing.T, before func(*heedtest.Origin) http.RoundTripper) (tally heedtest.Tally, state heed.OriginState) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(l.origin)
		tr := quiet(t, before(o), heed.Limits{})
		c := tr.Client()
		length := time.Duration(l.windows) * l.origin.Policies[0].Window
		end := time.Now().Add(length)
		busy := asking(l.goroutines, end, func(int) (*http.Response, error) { return c.Get("https://origin.test/") })
		if l.during != nil {
			l.during(o, tr.Registry)
		}
		time.Sleep(time.Until(end))
		tally, state = o.Tally(), tr.Registry.Snapshot()[0]
		tr.Registry.Close()
		busy.Wait()
	})
	return tally, state
}

// What an origin announces is kept to and used up, however it counts.
func TestAnnouncedQuotasAreUsedUpWithoutARefusal(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{
		heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket, heedtest.GCRA,
	} {
		for _, trip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
			for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.IETF06, heedtest.XRateLimit, heedtest.XRateLimitEpoch, heedtest.XRateLimitEpochMillis} {
				t.Run(fmt.Sprint(algorithm, "/", trip, "/", dialect), func(t *testing.T) {
					const windows, quota = 12, 50
					tally, _ := load{heedtest.Config{
						Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
						Dialect: dialect, Latency: heedtest.RoundTrip(trip), ClockSkew: 7300 * time.Millisecond,
					}, 16, windows, nil}.play(t)
					if tally.Refused != 0 || tally.EarlyStanding != 0 {
						t.Errorf("%d refused, %d early", tally.Refused, tally.EarlyStanding)
					}
					if least := int64(windows * quota * 95 / 100); tally.Accepted < least {
						t.Errorf("%d accepted, want at least %d", tally.Accepted, least)
					}
				})
			}
		}
	}
}

func TestResetsRoundedDownCostAtMostTwoRefusals(t *testing.T) {
	sideBySide(t)
	for _, rounding := range []heedtest.Rounding{heedtest.RoundDown, heedtest.RoundNearest, heedtest.RoundZero} {
		tally, _ := load{heedtest.Config{
			Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Rounding: rounding,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterNone}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 16, 20, nil}.play(t)
		t.Logf("%s: %d accepted, %d refused", rounding, tally.Accepted, tally.Refused)
		if tally.Refused > 2 {
			t.Errorf("%s: %d refused", rounding, tally.Refused)
		}
		if tally.Accepted < 700 {
			t.Errorf("%s: %d accepted of 1000", rounding, tally.Accepted)
		}
	}
}

// An origin that goes on rounding down is asked more and more rarely whether it does.
func TestResetsRoundedDownCostEverFewerRefusals(t *testing.T) {
	manyRequests(t)
	tally, _ := load{heedtest.Config{
		Policies: []heedtest.Policy{{Quota: 10, Window: 5 * time.Second}}, Rounding: heedtest.RoundDown, Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}, 4, 1000, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Refused > 12 || tally.Accepted < 9700 {
		t.Errorf("%d of 10000 accepted, %d refused", tally.Accepted, tally.Refused)
	}
}

// Windows that begin with their first requests begin later and later: as soon as that is
// more than rounding and an answer's way back explain, no stop at the end costs a round trip more.
func TestWindowsBegunFromFarAwayAreSoonSeenToBeginWithUse(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Rounding: heedtest.RoundDown, Latency: heedtest.RoundTrip(500 * time.Millisecond),
	}, 16, 20, nil}.play(t)
	if tally.Refused != 0 || tally.Accepted < 972 {
		t.Errorf("%d accepted of 1000, %d refused, want at least 972 and none", tally.Accepted, tally.Refused)
	}
}

func TestSlowAnswersOutOfOrderCostNoRefusal(t *testing.T) {
	manyRequests(t)
	for seed := range uint64(5) {
		for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket} {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}},
				Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
			}, 64, 10, nil}.play(t)
			if tally.Refused != 0 {
				t.Errorf("%s, seed %d: %d refused", algorithm, seed, tally.Refused)
			}
			if tally.Accepted < 880 {
				t.Errorf("%s, seed %d: %d accepted of 1000", algorithm, seed, tally.Accepted)
			}
		}
	}
}

func TestTwoPoliciesAtOnceAreBothUsedUp(t *testing.T) {
	tally, state := load{heedtest.Config{
		Policies: []heedtest.Policy{{Name: "minute", Quota: 100, Window: time.Minute}, {Name: "second", Quota: 10, Window: time.Second}},
		Latency:  heedtest.RoundTrip(20 * time.Millisecond),
	}, 16, 5, nil}.play(t)
	if tally.Refused != 0 || tally.Accepted < 490 {
		t.Errorf("%d accepted of 500, %d refused", tally.Accepted, tally.Refused)
	}
	if n := len(state.Partitions[0].Policies); n != 2 {
		t.Errorf("%d policies known", n)
	}
}

// Where resets are rounded to as much as a window is long, and answers overtake each other, a
// window that turned unseen looks like units that come back, but all of them are back then.
func TestShortWindowsBesideALongOneAreNotTakenForBuckets(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		for seed := range uint64(3) {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm,
				Policies:  []heedtest.Policy{{Name: "minute", Quota: 100, Window: time.Minute}, {Name: "second", Quota: 10, Window: time.Second}},
				Latency:   heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
			}, 16, 20, nil}.play(t)
			if tally.Refused != 0 || tally.Accepted < 1950 {
				t.Errorf("%s, seed %d: %d accepted of 2000, %d refused", algorithm, seed, tally.Accepted, tally.Refused)
			}
		}
	}
}

func TestPolicyAnnouncedByRefusalsAloneIsKeptTo(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, OnRefusalsOnly: true, Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}, 16, 20, nil}.play(t)
	if tally.Refused > 16 { // what was in flight, once
		t.Errorf("%d refused", tally.Refused)
	}
	if tally.Accepted < 900 {
		t.Errorf("%d accepted of 1000", tally.Accepted)
	}
}

// A limit that nobody announces is found, kept to, and shown as learned.
func TestHiddenLimitIsLearned(t *testing.T) {
	sideBySide(t)
	for _, c := range []struct {
		name   string
		origin heedtest.Config
		least  int64 // accepted, of 1000
	}{
		{"fixed window, silent", heedtest.Config{Algorithm: heedtest.FixedWindow, Dialect: heedtest.Silent}, 850},
		{"bucket, silent", heedtest.Config{Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent}, 900},
		{"fixed window, Retry-After", heedtest.Config{Algorithm: heedtest.FixedWindow, Dialect: heedtest.RetryAfterOnly}, 850},
		{"503 without a word", heedtest.Config{Algorithm: heedtest.FixedWindow, Dialect: heedtest.Silent, Status: 503}, 800},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.origin.Policies = []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}
			c.origin.Latency = heedtest.RoundTrip(5 * time.Millisecond)
			tally, state := load{c.origin, 16, 20, nil}.play(t)
			if tally.Refused > 40 { // the first bunch, and what finding the rate costs
				t.Errorf("%d refused", tally.Refused)
			}
			if tally.Accepted < c.least {
				t.Errorf("%d accepted of 1000, want at least %d", tally.Accepted, c.least)
			}
			learned := false
			for _, p := range state.Partitions[0].Policies {
				learned = learned || p.Source == heed.SourceLearned
			}
			if !learned {
				t.Errorf("nothing learned: %+v", state.Partitions[0].Policies)
			}
		})
	}
}

func TestHiddenCapOnConcurrencyIsToldFromARate(t *testing.T) {
	tally, state := load{heedtest.Config{
		Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 5, Window: time.Second}},
		Latency: heedtest.RoundTrip(100 * time.Millisecond),
	}, 64, 20, nil}.play(t)
	if tally.Refused > 40 || tally.Accepted < 800 { // 5 at a time, 100 ms each, for 20 s
		t.Errorf("%d accepted of 1000, %d refused", tally.Accepted, tally.Refused)
	}
	for _, p := range state.Partitions[0].Policies {
		if p.Source == heed.SourceLearned && p.Unit != heed.UnitConcurrentRequests {
			t.Errorf("learned %+v", p)
		}
	}
}

// A server that is down for a while is not one that is slow from then on.
func TestOutageIsNotTakenForALimit(t *testing.T) {
	manyRequests(t)
	for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.Silent} {
		var before, after heedtest.Tally
		load{heedtest.Config{
			Policies: []heedtest.Policy{{Quota: 1000, Window: 5 * time.Second}}, Dialect: dialect, Latency: heedtest.RoundTrip(100 * time.Millisecond),
		}, 4, 400, func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(30 * time.Second)
			before = o.Tally()
			o.Outage(time.Now().Add(30*time.Minute), http.StatusServiceUnavailable, time.Minute)
			time.Sleep(32 * time.Minute)
			o.ResetTally()
			time.Sleep(30 * time.Second)
			after = o.Tally()
		}}.play(t)
		if after.Accepted < before.Accepted*9/10 {
			t.Errorf("%s: %d accepted in 30s before the outage, %d after", dialect, before.Accepted, after.Accepted)
		}
	}
}

// One that names its end, and keeps to it, teaches no rate.
func TestOutageThatNamesItsEndIsNotTakenForALimit(t *testing.T) {
	var before, after heedtest.Tally
	load{heedtest.Config{
		Policies: []heedtest.Policy{{Quota: 1000, Window: 5 * time.Second}}, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(100 * time.Millisecond),
	}, 4, 30, func(o *heedtest.Origin, _ *heed.Registry) {
		time.Sleep(30 * time.Second)
		before = o.Tally()
		o.Outage(time.Now().Add(50*time.Second), http.StatusServiceUnavailable, time.Minute)
		time.Sleep(62 * time.Second)
		o.ResetTally()
		time.Sleep(30 * time.Second)
		after = o.Tally()
	}}.play(t)
	t.Logf("%d accepted in 30s before, %d after", before.Accepted, after.Accepted)
	if after.Accepted < before.Accepted*9/10 {
		t.Errorf("%d accepted in 30s before the outage, %d after", before.Accepted, after.Accepted)
	}
}

// An answer that was long on its way says nothing of the window it arrives in.
func TestStaleAnswerDoesNotCorruptTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		defer r.Close()
		say := func(pm *heed.Permit, remaining, reset int) {
			pm.Observe(answer(200, "RateLimit-Policy", `"p";q=10;w=10`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, remaining, reset)))
			pm.Release()
		}
		say(acquire(t, r, request(example)), 9, 10)
		slow := acquire(t, r, request(example)) // counted in this window, answered in the next
		time.Sleep(10 * time.Second)
		say(acquire(t, r, request(example)), 9, 10)
		time.Sleep(time.Second)
		say(slow, 0, 1) // stamped just before the reset
		for range 9 {
			if d := r.Check(request(example)); !d.Allowed {
				t.Fatalf("held by %+v", d)
			}
			say(acquire(t, r, request(example)), 5, 9)
		}
	})
}

// Answers may arrive in any order: the lowest count that is not another's
// news stands.
func TestAnswersInReverseOrderLeaveTheSameRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		defer r.Close()
		say := func(pm *heed.Permit, remaining int) {
			pm.Observe(answer(200, "RateLimit-Policy", `"p";q=6;w=60`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=60`, remaining)))
			pm.Release()
		}
		say(acquire(t, r, request(example)), 5)
		var sent []*heed.Permit
		for range 4 {
			sent = append(sent, acquire(t, r, request(example)))
		}
		for i := range sent {
			say(sent[len(sent)-1-i], 1+i)
		}
		if d := r.Check(request(example)); !d.Allowed || d.Remaining != 1 {
			t.Errorf("%+v, want one left", d)
		}
	})
}

// Remaining counts that fall faster than this process sends show that others
// use the quota too; what they took is not sent again.
func TestOthersUseOfTheQuotaIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		defer r.Close()
		for _, remaining := range []int{90, 50, 3} {
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200, "RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=60`, remaining)))
			pm.Release()
		}
		for range 3 {
			defer acquire(t, r, request(example)).Release()
		}
		if d := r.Check(request(example)); d.Allowed || d.Cause != heed.CausePolicy || d.Policy != "p" || d.Wait != time.Minute {
			t.Errorf("%+v, want to wait a minute for p", d)
		}
	})
}

// A client that would use up every window shares it once it has seen that it
// is not alone.
func TestOthersAreLeftWhatTheyUse(t *testing.T) {
	sideBySide(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket} {
		wanted, served := 0, 0
		tally, _ := load{heedtest.Config{
			Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(20 * time.Millisecond),
		}, 16, 30, func(o *heedtest.Origin, _ *heed.Registry) {
			for range 590 { // a fifth of the quota
				time.Sleep(500*time.Millisecond + 777*time.Microsecond)
				wanted++
				if o.Take(1) {
					served++
				}
			}
		}}.play(t)
		t.Logf("%s: %d of %d served, %d accepted, %d refused", algorithm, served, wanted, tally.Accepted, tally.Refused)
		if served < wanted*85/100 {
			t.Errorf("%s: the other client got %d of %d", algorithm, served, wanted)
		}
		if tally.Accepted < 2400*85/100 {
			t.Errorf("%s: %d accepted of the 2400 left", algorithm, tally.Accepted)
		}
	}
}

// Over a round trip in which several requests of this process are always on their way, what
// others use is still seen, and left to them at the end of the window too.
func TestOthersAreLeftTheEndOfAWindowOverLongRoundTrips(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		const quota, windows = 50, 20
		wanted, served := 0, 0
		tally, _ := load{heedtest.Config{
			Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
			for range windows * quota / 5 * 95 / 100 {
				time.Sleep(500*time.Millisecond + 777*time.Microsecond)
				wanted++
				if o.Take(1) {
					served++
				}
			}
		}}.play(t)
		t.Logf("%s: %d of %d served, %d accepted, %d refused", algorithm, served, wanted, tally.Accepted, tally.Refused)
		if served < wanted*97/100 || tally.Accepted < windows*quota*4/5*93/100 || tally.Refused > 3 {
			t.Errorf("%s: the other client got %d of %d, %d accepted, %d refused", algorithm, served, wanted, tally.Accepted, tally.Refused)
		}
	}
}

// A window that turns before the reset named for it, because that was rounded up,
// is no bucket that refills.
func TestWindowsThatTurnEarlyAreStillWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		defer r.Close()
		say := func(remaining, reset int) {
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200, "RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, remaining, reset)))
			pm.Release()
		}
		for range 5 {
			say(99, 60)
			time.Sleep(58*time.Second + 500*time.Millisecond)
			say(40, 2)
			time.Sleep(time.Second)
		}
		say(99, 60)
		say(10, 60)
		time.Sleep(30 * time.Second)
		if d := r.Check(request(example)); d.Remaining > 10 {
			t.Errorf("%+v, want no more than the ten that were left", d)
		}
	})
}

// Numbers may move up or down at any time; what is announced now counts.
func TestQuotaThatIsCutAndRaisedIsFollowed(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket} {
		policy := heedtest.Policy{Name: "p", Quota: 50, Window: 5 * time.Second}
		var cut, raised heedtest.Tally
		load{heedtest.Config{Algorithm: algorithm, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(50 * time.Millisecond)}, 16, 40,
			func(o *heedtest.Origin, _ *heed.Registry) {
				set := func(quota int64) (after heedtest.Tally) {
					policy.Quota = quota
					o.SetPolicies(policy)
					time.Sleep(20 * time.Second)
					o.ResetTally()
					time.Sleep(30 * time.Second)
					return o.Tally()
				}
				time.Sleep(27 * time.Second)
				cut = set(10)
				raised = set(50)
			}}.play(t)
		if cut.Accepted < 50 || cut.Refused > 0 {
			t.Errorf("%s: %d accepted of 60 after the cut, %d refused", algorithm, cut.Accepted, cut.Refused)
		}
		if raised.Accepted < 250 || raised.Refused > 0 {
			t.Errorf("%s: %d accepted of 300 after the rise, %d refused", algorithm, raised.Accepted, raised.Refused)
		}
	}
}

// Where a refusal carries both, Retry-After takes precedence over the reset,
// whichever is longer (draft-11, section 7).
func TestRetryAfterTakesPrecedenceOverTheReset(t *testing.T) {
	for _, c := range []struct{ retryAfter, reset int }{{2, 30}, {30, 2}} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []string{"429", "200"}}
			first := true
			tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(req)
				if first {
					first = false
					resp.Header = http.Header{"Retry-After": {fmt.Sprint(c.retryAfter)}, "Ratelimit-Policy": {`"p";q=10;w=60`}, "Ratelimit": {fmt.Sprintf(`"p";r=0;t=%d`, c.reset)}}
				}
				return resp, err
			}), heed.Limits{})
			sendOne(t, tr, get(t.Context(), site))
			want := time.Duration(c.retryAfter) * time.Second
			if gap := base.gaps()[0]; gap < want || gap > want+time.Second {
				t.Errorf("Retry-After %d, reset %d: tried again after %v", c.retryAfter, c.reset, gap)
			}
		})
	}
}

// A policy that is announced only where little of it is left is kept to as long
// as that is how it is announced, and what came before the first word of it costs
// at most as much as had been accepted, however unevenly answers come.
func TestPolicyAnnouncedOnlyNearItsEndHoldsOn(t *testing.T) {
	manyRequests(t)
	policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for name, latency := range map[string]heedtest.Latency{
			"5ms":  heedtest.RoundTrip(5 * time.Millisecond),
			"tail": heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, 1),
		} {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{policy}, Latency: latency, Below: 0.2,
			}, 500, 20, nil}.play(t)
			t.Logf("%s %s: %d accepted, %d refused", algorithm, name, tally.Accepted, tally.Refused)
			if tally.Refused > 100 {
				t.Errorf("%s %s: %d refused of a quota of 50 met once", algorithm, name, tally.Refused)
			}
		}
	}
}

// When units went that were sent before a policy was known nobody knows, so that it tells
// nothing of how the quota comes back when they do.
func TestSlidingWindowThatIsAnnouncedLateIsNotTakenForABucket(t *testing.T) {
	manyRequests(t)
	const runs, windows, quota = 8, 20, 100
	var refused int64
	for seed := range runs {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Below: 0.2,
			Phase: time.Duration(seed) * time.Second, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 16, windows, nil}.play(t)
		refused += tally.Refused
	}
	t.Logf("%d refused", refused)
	if refused > runs*3 {
		t.Errorf("%d refused of %d, want at most %d", refused, runs*windows*quota, runs*3)
	}
}

// That bodies cost more or less than was reckoned with is no sign of others, nor
// of a quota that comes back by itself. Bodies that nobody reads, as here, were
// sent all the same.
func TestBytesOfUnevenBodiesAreUsedUp(t *testing.T) {
	var n atomic.Uint64
	tally, _ := load{heedtest.Config{
		Policies: []heedtest.Policy{{Unit: heedtest.UnitContentBytes, Quota: 395_000, Window: 5 * time.Second}},
		Latency:  heedtest.RoundTrip(5 * time.Millisecond),
		Respond:  func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 5_000+n.Add(1)*7919%10_000)) },
	}, 16, 20, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < 20*39*90/100 || tally.Refused > 5 {
		t.Errorf("%d accepted of about %d, %d refused", tally.Accepted, 20*39, tally.Refused)
	}
}

// Processes that use one quota and know nothing of each other share it: hardly any
// is refused for what the others did, and none goes without. Who gets how much of a
// window that slides is for chance to decide, so that the mean of several runs
// counts.
func TestProcessesThatKnowNothingOfEachOtherShare(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		refused   float64 // in the mean, at most
		jain      float64 // Jain's index, in the mean, at least
		runs      float64
	}{
		{heedtest.FixedWindow, 25, 0.95, 3},
		{heedtest.FixedWindowByClock, 25, 0.95, 3},
		{heedtest.SlidingWindow, 8, 0.97, 12},
		{heedtest.TokenBucket, 40, 0.9, 3},
		{heedtest.GCRA, 40, 0.9, 3},
	} {
		const windows, quota = 20, 100
		var accepted, refused, jain float64
		for range int(c.runs) {
			tally, index := fourProcesses(t, heedtest.Config{
				Algorithm: c.algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, windows)
			accepted, refused, jain = accepted+float64(tally.Accepted)/c.runs, refused+float64(tally.Refused)/c.runs, jain+index/c.runs
		}
		t.Logf("%s: %.0f accepted, %.1f refused, Jain's index %.2f", c.algorithm, accepted, refused, jain)
		if refused > c.refused || accepted < windows*quota*93/100 || jain < c.jain {
			t.Errorf("%s: %.0f accepted of %d, %.1f refused, Jain's index %.2f, want at most %.0f and at least %.2f",
				c.algorithm, accepted, windows*quota, refused, jain, c.refused, c.jain)
		}
	}
}

// Of a small quota, too, no two processes go for the last unit of each window.
func TestProcessesShareASmallQuotaWithoutARefusalInEveryWindow(t *testing.T) {
	sideBySide(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		for quota := int64(10); quota <= 15; quota += 5 {
			const windows = 40
			tally, accepted := processes(t, heedtest.Config{
				Algorithm: algorithm, Dialect: heedtest.IETF07, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
				Latency: heedtest.RoundTrip(25 * time.Millisecond),
			}, windows, 0, 0, 0)
			t.Logf("%s, %d: %v accepted, %d refused", algorithm, quota, accepted, tally.Refused)
			if tally.Refused > 4 || tally.Accepted < windows*quota*77/100 {
				t.Errorf("%s, %d: %v accepted, %d refused", algorithm, quota, accepted, tally.Refused)
			}
		}
	}
}

// Processes that meet a window by the clock shortly before its end do not know of each other
// yet, and all of its quota is left: each spreads what it sees over the time that is left,
// so that they see each other before it is gone.
func TestProcessesThatMeetAWindowNearItsEndAreNotRefused(t *testing.T) {
	manyRequests(t)
	for _, trip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
		const quota, window, runs = 100, 10 * time.Second, 8
		var accepted, refused float64
		for i := range runs {
			tally, _ := fourProcesses(t, heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: window}},
				Phase: time.Duration(i+2) * 100 * time.Millisecond, Latency: heedtest.RoundTrip(trip),
			}, 3)
			accepted, refused = accepted+float64(tally.Accepted)/runs, refused+float64(tally.Refused)/runs
		}
		t.Logf("%v: %.1f accepted, %.2f refused in the mean", trip, accepted, refused)
		if refused > 10 || accepted < 3*quota*98/100 {
			t.Errorf("%v: %.1f accepted, %.2f refused in the mean", trip, accepted, refused)
		}
	}
}

// Of a sliding window that others use too as much comes back as of a bucket, and the
// resets it names can look like those of one, where they are rounded a lot.
func TestSharedSlidingWindowIsNotTakenForABucket(t *testing.T) {
	manyRequests(t)
	const runs, windows, quota = 4, 20, 50
	var refused float64
	for range runs {
		tally, _ := fourProcesses(t, heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, windows)
		refused += float64(tally.Refused) / runs
	}
	t.Logf("%.1f refused", refused)
	if refused > 9 {
		t.Errorf("%.1f refused of %d, want 9 at most", refused, windows*quota)
	}
}

// Who got little of a small sliding window sees that it is one, and when what others took comes back, is
// not kept from more by leaving others more than they leave it, what is left to others is not cut down to a unit less, and nobody takes it for a
// bucket for good because its resets seemed to be when one is full.
func TestProcessesShareASmallSlidingWindowEvenly(t *testing.T) {
	manyRequests(t)
	const runs, windows, quota = 16, 20, 50
	var accepted, refused, jain float64
	for range runs {
		tally, index := fourProcesses(t, heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, windows)
		accepted, refused, jain = accepted+float64(tally.Accepted)/runs, refused+float64(tally.Refused)/runs, jain+index/runs
	}
	t.Logf("%.0f accepted, %.1f refused, Jain's index %.3f", accepted, refused, jain)
	if accepted < windows*quota*94/100 || refused > 4 || jain < 0.99 {
		t.Errorf("%.0f accepted of %d, %.1f refused, Jain's index %.3f", accepted, windows*quota, refused, jain)
	}
}

// What others take of a bucket comes back, and is not missed: each sees them by how little
// comes back to itself, so that none goes on as if it were alone.
func TestProcessesThatShareABucketSeeEachOther(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.TokenBucket, heedtest.GCRA} {
		const runs, windows, quota = 6, 20, 50
		var accepted, refused, jain float64
		for range runs {
			tally, index := fourProcesses(t, heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
			}, windows)
			accepted, refused, jain = accepted+float64(tally.Accepted)/runs, refused+float64(tally.Refused)/runs, jain+index/runs
		}
		t.Logf("%s: %.0f accepted, %.1f refused, Jain's index %.3f", algorithm, accepted, refused, jain)
		if accepted < windows*quota*97/100 || refused > 3 || jain < 0.98 {
			t.Errorf("%s: %.0f accepted of %d, %.1f refused, Jain's index %.3f", algorithm, accepted, windows*quota, refused, jain)
		}
	}
}

// Who comes to a quota that others share already gets as much as they do, a few windows later: no less
// where each takes again what comes back to it, and no more where nothing is missed that others take.
func TestNewcomerGetsItsShare(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		algorithm   heedtest.Algorithm
		least, most float64 // of what the others get, in the mean
	}{
		{heedtest.FixedWindow, 0.8, 1.2},
		{heedtest.SlidingCounter, 0.75, 1.3},
		{heedtest.TokenBucket, 0.8, 1.3},
		{heedtest.GCRA, 0.8, 1.3},
	} {
		const windows, quota, runs = 24, 50, 4
		window := 5 * time.Second
		var mine, theirs float64
		for run := range runs {
			_, got := processes(t, heedtest.Config{
				Algorithm: c.algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: window}},
				Phase: time.Duration(run) * window / runs, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, windows, 12, 0, 0, 0, 8)
			mine, theirs = mine+got[3], theirs+(got[0]+got[1]+got[2])/3
		}
		t.Logf("%s: %.2f of what the others get", c.algorithm, mine/theirs)
		if share := mine / theirs; share < c.least || share > c.most {
			t.Errorf("%s: %.2f of what the others get, want %.2f to %.2f", c.algorithm, share, c.least, c.most)
		}
	}
}

// fourProcesses ask an origin for all they can get. It returns what the origin counted, and Jain's index
// of what they got: 1 where all got as much, a quarter where one got it all.
func fourProcesses(t *testing.T, c heedtest.Config, windows int) (tally heedtest.Tally, jain float64) {
	t.Helper()
	tally, got := processes(t, c, windows, 0, 0, 0, 0, 0)
	sum, squares := 0.0, 0.0
	for _, n := range got {
		sum, squares = sum+n, squares+n*n
	}
	return tally, sum * sum / (float64(len(got)) * squares)
}

// processes have 16 goroutines each ask an origin for all they can get, from the windows in starts on. It
// returns what the origin counted, and what each got from another window on.
func processes(t *testing.T, c heedtest.Config, windows, from int, starts ...int) (tally heedtest.Tally, accepted []float64) {
	t.Helper()
	const goroutines = 16
	got := make([]atomic.Int64, len(starts))
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(c)
		at := func(window int) time.Time { return o.Began().Add(time.Duration(window) * c.Policies[0].Window) }
		end := at(windows)
		var wg sync.WaitGroup
		for i, start := range starts {
			tr := quiet(t, o, heed.Limits{})
			defer tr.Registry.Close()
			time.AfterFunc(time.Until(end), func() { tr.Registry.Close() })
			c := tr.Client()
			for range goroutines {
				wg.Go(func() {
					time.Sleep(time.Until(at(start)))
					for time.Now().Before(end) {
						resp, err := c.Get(example)
						if err != nil {
							return
						}
						resp.Body.Close()
						if resp.StatusCode == http.StatusOK && !time.Now().Before(at(from)) {
							got[i].Add(1)
						}
					}
				})
			}
		}
		wg.Wait()
		tally = o.Tally()
	})
	for i := range got {
		accepted = append(accepted, float64(got[i].Load()))
	}
	return tally, accepted
}
