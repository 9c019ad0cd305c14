package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A limit in flight lets in as many each time. Where of a crowd all are refused but for a handful, though half as many had all gone well, it
// is none, even if the next one alone is accepted: a bucket has a unit again by then.
func TestBucketThatRefusesMostOfACrowdIsNotTakenForALimitInFlight(t *testing.T) {
	manyRequests(t)
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterShort},
		Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
	}, 1000, 20, func(_ *heedtest.Origin, r *heed.Registry) {
		for range 80 {
			time.Sleep(250 * time.Millisecond)
			for _, p := range learned(r.Snapshot()[0]) {
				if p.Unit == heed.UnitConcurrentRequests {
					t.Errorf("a limit of %d in flight is learned", p.Quota)
					return
				}
			}
		}
	}}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < 990 || tally.Refused > 70 {
		t.Errorf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	}
}
