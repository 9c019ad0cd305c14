package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A bucket that is full again within the second that its resets are rounded to always says "in a second",
// however fast it refills: what comes back shows how fast.
func TestSmallBucketIsUsedAsFastAsItRefills(t *testing.T) {
	sideBySide(t)
	for _, bucket := range []struct{ size, perSecond int64 }{{5, 10}, {5, 20}, {8, 20}, {20, 50}} {
		const length = 30 * time.Second
		window := time.Duration(bucket.size) * time.Second / time.Duration(bucket.perSecond)
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.GCRA, Dialect: heedtest.XRateLimit,
			Policies: []heedtest.Policy{{Quota: bucket.size, Window: window}},
			Latency:  heedtest.RoundTrip(10 * time.Millisecond),
		}, 16, int(length / window), nil}.play(t)
		admissible := bucket.perSecond * int64(length/time.Second)
		t.Logf("%+v: %d of %d accepted, %d refused", bucket, tally.Accepted, admissible, tally.Refused)
		if tally.Accepted < admissible*85/100 || tally.Refused > 0 {
			t.Errorf("%+v: %d of %d accepted, %d refused", bucket, tally.Accepted, admissible, tally.Refused)
		}
	}
}

// What is missing of a bucket and when it would be full tell how long it takes to fill, where no window is named: whichever way
// resets are rounded, several processes that know nothing of each other know it for a bucket, see each other and get the same.
func TestProcessesShareABucketEvenlyThatNamesNoWindow(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		dialect  heedtest.Dialect
		rounding heedtest.Rounding
		quota    int64
	}{
		{heedtest.XRateLimit, heedtest.RoundUp, 100},
		{heedtest.XRateLimit, heedtest.RoundDown, 50},
		{heedtest.XRateLimit, heedtest.Exact, 100},
		{heedtest.XRateLimitEpoch, heedtest.RoundUp, 50},
		{heedtest.XRateLimitEpoch, heedtest.RoundDown, 50},
		{heedtest.XRateLimitEpoch, heedtest.RoundDown, 100},
		{heedtest.XRateLimitEpoch, heedtest.Exact, 100},
	} {
		const runs, windows, perSecond = 8, 20, 10
		var accepted, refused, jain float64
		for i := range runs {
			tally, index := fourProcesses(t, heedtest.Config{
				Algorithm: heedtest.TokenBucket, Dialect: c.dialect, Rounding: c.rounding,
				Policies: []heedtest.Policy{{Quota: c.quota, Window: time.Duration(c.quota) * time.Second / perSecond}},
				Latency:  heedtest.RoundTrip(50 * time.Millisecond), ClockSkew: time.Duration(i) * 130 * time.Millisecond,
			}, windows)
			accepted, refused, jain = accepted+float64(tally.Accepted)/runs, refused+float64(tally.Refused)/runs, jain+index/runs
		}
		t.Logf("%s, %s, %d: %.0f accepted, %.1f refused, Jain's index %.3f", c.dialect, c.rounding, c.quota, accepted, refused, jain)
		if accepted < float64(windows*c.quota)*98/100 || refused > 30 || jain < 0.97 {
			t.Errorf("%s, %s, %d: %.0f accepted, %.1f refused, Jain's index %.3f", c.dialect, c.rounding, c.quota, accepted, refused, jain)
		}
	}
}

// Once its resets tell how long a bucket takes to fill, what comes back is measured as exactly as where the window is named: a
// client that takes a fifth of it is not taken to take so much that more than that has to be left.
func TestABucketThatNamesNoWindowIsUsedUpBesideAnother(t *testing.T) {
	manyRequests(t)
	const runs, windows, quota, window, trip = 8, 20, 50, 5 * time.Second, 50 * time.Millisecond
	for _, dialect := range []heedtest.Dialect{heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
		var accepted, refused float64
		for i := range runs {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Dialect: dialect, Policies: []heedtest.Policy{{Quota: quota, Window: window}},
				Latency: heedtest.RoundTrip(trip), ClockSkew: time.Duration(i) * 130 * time.Millisecond,
			}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
				for range windows * quota / 5 {
					time.Sleep(windows * window / (windows * quota / 5))
					o.Take(1)
				}
			}}.play(t)
			accepted, refused = accepted+float64(tally.Accepted)/runs, refused+float64(tally.Refused)/runs
		}
		t.Logf("%s: %.0f accepted, %.1f refused", dialect, accepted, refused)
		if accepted < (windows*4/5+1)*quota*985/1000 || refused > 0 {
			t.Errorf("%s: %.0f accepted, %.1f refused", dialect, accepted, refused)
		}
	}
}
