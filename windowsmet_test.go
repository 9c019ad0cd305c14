package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// Two windows by the clock that met let through more than one before the first refusal, and where a server asks for as long
// whenever it refuses, a wait ends anywhere in one. The second refusal tells how much one lets through all the same.
func TestWindowsByTheClockThatMetAreToldApartByTheSecondRefusal(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		quota     int64
		window    time.Duration
		asks      heedtest.RetryAfterMode
		trip      time.Duration
		all, each float64 // of what 20 windows let through, in all runs and in each
	}{
		{50, 5 * time.Second, heedtest.RetryAfterWindow, 500 * time.Millisecond, .9, .85},
		{100, 10 * time.Second, heedtest.RetryAfterConstant, 500 * time.Millisecond, .9, .83},
		{1000, time.Minute, heedtest.RetryAfterWindow, 500 * time.Millisecond, .9, .83},
		{1000, time.Minute, heedtest.RetryAfterShort, 50 * time.Millisecond, .9, .91},
	} {
		const phases = 12
		whole := float64(20 * c.quota)
		var accepted int64
		for i := range time.Duration(phases) {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: c.quota, Window: c.window}}, Dialect: heedtest.RetryAfterOnly,
				RetryAfter: heedtest.RetryAfter{Mode: c.asks, Value: 5 * time.Second}, Latency: heedtest.RoundTrip(c.trip), Phase: c.window * i / phases,
			}, 16, 20, nil}.play(t)
			accepted += tally.Accepted
			if float64(tally.Accepted) < c.each*whole {
				t.Errorf("%d per %v, %s, phase %d: %d accepted of %.0f, %d refused", c.quota, c.window, c.asks, i, tally.Accepted, whole, tally.Refused)
			}
		}
		t.Logf("%d per %v, %s: %d accepted of %.0f", c.quota, c.window, c.asks, accepted, phases*whole)
		if float64(accepted) < c.all*phases*whole {
			t.Errorf("%d per %v, %s: %d accepted of %.0f", c.quota, c.window, c.asks, accepted, phases*whole)
		}
	}
}

// Where a few more than a round number were accepted before the first refusal, the limit is that number: two windows had met.
func TestFewMoreThanARoundNumberAreNoLargerQuota(t *testing.T) {
	manyRequests(t)
	const runs = 12
	var accepted int64
	for seed := range uint64(runs) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
			Phase: time.Duration(40+20*seed) * time.Millisecond,
		}, 64, 20, nil}.play(t)
		accepted += tally.Accepted
	}
	t.Logf("%d accepted of %d", accepted, 1000*runs)
	if accepted < 910*runs {
		t.Errorf("%d accepted of %d", accepted, 1000*runs)
	}
}
