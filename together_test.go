package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Who finds most of a window used up by others is let through several times as many in the next one, in a moment. That
// is no cap in flight, nor a penalty: it goes evenly soon, lest nobody else gets anything.
func TestWindowOfWhichOthersHadAPartIsFound(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow} {
		for name, after := range map[string]heedtest.RetryAfterMode{"exact": heedtest.RetryAfterExact, "whole window": heedtest.RetryAfterWindow} {
			const quota, windows = 50, 20
			var tally heedtest.Tally
			load{heedtest.Config{
				Algorithm: algorithm, Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: after},
				Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(20 * time.Millisecond),
			}, 16, 16 + windows, func(o *heedtest.Origin, _ *heed.Registry) {
				o.Take(33)
				time.Sleep(80 * time.Second)
				o.ResetTally()
				time.Sleep(windows*5*time.Second - time.Second)
				tally = o.Tally()
			}}.play(t)
			t.Logf("%s, %s: %d accepted, %d refused", algorithm, name, tally.Accepted, tally.Refused)
			if tally.Accepted < quota*windows*9/10 || tally.Refused > windows {
				t.Errorf("%s, %s: %d accepted of %d, %d refused", algorithm, name, tally.Accepted, quota*windows, tally.Refused)
			}
		}
	}
}
