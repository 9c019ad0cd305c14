package heed_test

import (
	"testing"
	"time"

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

// The instant at which the last unit of a window costs nothing passes, whenever the one
// before it went.
func TestLastUnitOfWindowIsNotPacedPastTheInstantThatCostsNothing(t *testing.T) {
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
