package heed_test

import (
	"context"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// In a counter of two windows what is left over at the end of one is not
// there in the next: nobody gets it.
func TestCounterOfTwoWindowsIsUsedUpOverLongRoundTrips(t *testing.T) {
	const windows = 20
	policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
	tally, _ := load{heedtest.Config{Algorithm: heedtest.SlidingCounter, Policies: []heedtest.Policy{policy}, Phase: 2 * time.Second, Latency: heedtest.RoundTrip(500 * time.Millisecond)}, 64, windows, nil}.play(t)
	if want := policy.Quota * windows * 94 / 100; tally.Accepted < want || tally.Refused > 0 {
		t.Errorf("%d accepted, %d refused, want at least %d and none", tally.Accepted, tally.Refused, want)
	}
}

// After a window of little use little comes back in the next.
func TestOneGoesFirstAfterABucketWasEmpty(t *testing.T) {
	policy := heedtest.Policy{Quota: 1000, Window: time.Minute}
	cut := policy
	cut.Quota /= 5
	tally, _ := load{heedtest.Config{Algorithm: heedtest.SlidingCounter, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(5 * time.Millisecond)}, 16, 24,
		func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(8*policy.Window + 20*time.Second)
			o.SetPolicies(cut)
			time.Sleep(8 * policy.Window)
			o.SetPolicies(policy)
		}}.play(t)
	if tally.Refused > 5 {
		t.Errorf("%d refused, want the few that met the cut at most", tally.Refused)
	}
}

func TestWholeBucketIsTakenThoughOthersWait(t *testing.T) {
	policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
	load{heedtest.Config{Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(5 * time.Millisecond)}, 16, 20,
		func(_ *heedtest.Origin, r *heed.Registry) {
			time.Sleep(10 * policy.Window)
			ctx, cancel := context.WithTimeout(heed.WithCost(context.Background(), heed.UnitRequests, policy.Quota), 3*policy.Window)
			defer cancel()
			pm, err := r.Acquire(ctx, request("https://origin.test/").WithContext(ctx))
			if err != nil {
				t.Error(err)
				return
			}
			pm.Release()
		}}.play(t)
}

// Some origins name as the reset of a sliding window the instant at which all
// of it is back.
func TestSlidingWindowIsUsedUpWhereItsResetIsThatOfTheNewestRequest(t *testing.T) {
	const windows = 20
	for _, policy := range []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}, {Quota: 1000, Window: time.Minute}} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Reset: heedtest.ResetFull,
			Policies: []heedtest.Policy{policy}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, 16, windows, nil}.play(t)
		if want := policy.Quota * windows * 97 / 100; tally.Accepted < want || tally.Refused > 0 {
			t.Errorf("%d in %v: %d accepted, %d refused, want at least %d and none", policy.Quota, policy.Window, tally.Accepted, tally.Refused, want)
		}
	}
}
