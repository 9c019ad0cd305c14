package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// The first measure is often of two windows by the clock, of which the first was used in part. When the
// next refusals tell that the limit lets through again shows how long a window is, and what it lets through.
func TestHiddenWindowIsFoundByWhenItTurns(t *testing.T) {
	manyRequests(t)
	for phase := range 10 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			Latency: heedtest.RoundTrip(500 * time.Millisecond), Phase: time.Duration(phase) * 500 * time.Millisecond,
		}, 16, 20, nil}.play(t)
		t.Logf("turns after %d ms: %d accepted, %d refused", 500*phase, tally.Accepted, tally.Refused)
		if tally.Refused > 40 || tally.Accepted < 850 {
			t.Errorf("turns after %d ms: %d accepted of 1000, %d refused", 500*phase, tally.Accepted, tally.Refused)
		}
	}
}

// Refusals that always ask for a whole window do not tell when it turns, so that it can look half as long again as it is. Where
// far more is kept up for two of it, that is given up.
func TestHiddenWindowThatLooksLongerForTheWaitsAskedForIsGivenUp(t *testing.T) {
	manyRequests(t)
	const windows = 200
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
		RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.RoundTrip(500 * time.Millisecond), Phase: 2 * time.Second,
	}, 16, windows, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < 79*windows || tally.Refused > 120 {
		t.Errorf("%d accepted of %d, %d refused", tally.Accepted, 100*windows, tally.Refused)
	}
}

// A bucket that always asks for a whole window may have let through, in the time that a window was taken to last, what it had gathered. A pace
// that was kept up for two such windows tells more.
func TestHiddenBucketThatAsksForAWholeWindowIsUsedUp(t *testing.T) {
	manyRequests(t)
	const windows, runs = 200, 3
	var accepted, refused int64
	for range runs {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 16, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 48*windows*runs || refused > 50*runs {
		t.Errorf("%d accepted of %d, %d refused", accepted, 50*windows*runs, refused)
	}
}

// What two windows let through one after the other is what one does, though it could have been one more by when they turned.
func TestWindowThatLetAsManyThroughTwiceIsNotTakenToLetThroughMore(t *testing.T) {
	manyRequests(t)
	for range 5 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 64, 20, nil}.play(t)
		t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
		if tally.Accepted < 975 || tally.Refused > 40 {
			t.Errorf("%d accepted of 1000, %d refused", tally.Accepted, tally.Refused)
		}
	}
}

// What a window that is known has held back, because some requests were long on their way, is made up for.
func TestWhatAHiddenWindowHeldBackIsMadeUpFor(t *testing.T) {
	manyRequests(t)
	const runs = 12
	var accepted, refused int64
	for seed := range uint64(runs) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterShort}, Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
		}, 16, 20, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 917*runs || refused > 25*runs {
		t.Errorf("%d accepted of %d, %d refused", accepted, 1000*runs, refused)
	}
}

// An attempt at more that finds a window as it was is made the more rarely.
func TestHiddenWindowThatStaysAsItIsIsTriedMoreRarely(t *testing.T) {
	manyRequests(t)
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.Silent,
		Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}, 16, 240, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Refused > 45 || tally.Accepted < 11600 {
		t.Errorf("%d accepted of 12000, %d refused", tally.Accepted, tally.Refused)
	}
}
