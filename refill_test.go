package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A bucket that is full again within the second that its resets are rounded to always says "in a second",
// however fast it refills: what comes back shows how fast.
func TestSmallBucketIsUsedAsFastAsItRefills(t *testing.T) {
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
