package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// An origin that says when its window ends in whole seconds, and cuts them off,
// names a reset that is less than a window away even with the first request in
// it. That is no shorter window.
func TestWindowsWhoseEndsAreCutOffAreNotTakenForShorterOnes(t *testing.T) {
	for phase := range 10 {
		tally, _ := load{heedtest.Config{
			Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.XRateLimitEpoch, Rounding: heedtest.RoundDown,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterNone}, Latency: heedtest.RoundTrip(time.Millisecond),
			ClockSkew: 30*time.Millisecond + time.Duration(phase)*100*time.Millisecond,
		}, 16, 6, nil}.play(t)
		if tally.Refused > 1 { // which shows that they are cut off
			t.Errorf("phase %d: %d refused", phase, tally.Refused)
		}
		if tally.Accepted < 240 {
			t.Errorf("phase %d: %d accepted of 300", phase, tally.Accepted)
		}
	}
}
