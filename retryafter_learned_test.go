package heed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A Retry-After that is too short tells that little is left, and by how much it is too short.
func TestRetryAfterThatIsTooShortCostsFewRefusals(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow} {
		for _, trip := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond} {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
				RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterShort}, Latency: heedtest.RoundTrip(trip),
			}, 16, 20, nil}.play(t)
			t.Logf("%s, %v: %d accepted, %d refused", algorithm, trip, tally.Accepted, tally.Refused)
			if tally.Refused > 24 || tally.Accepted < 885 {
				t.Errorf("%s, %v: %d accepted of 1000, %d refused", algorithm, trip, tally.Accepted, tally.Refused)
			}
		}
	}
}

// How long an outage took in the end says nothing of a limit.
func TestRetryAfterOfAnOutageLengthensNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		send := func(status int, header ...string) time.Duration {
			began := time.Now()
			pm := acquire(t, r, request(example))
			waited := time.Since(began)
			time.Sleep(10 * time.Millisecond)
			pm.Observe(answer(status, header...))
			pm.Release()
			return waited
		}
		for range 30 {
			send(200)
			time.Sleep(100 * time.Millisecond)
		}
		for _, after := range []string{"10", "9", "8"} {
			send(503, "Retry-After", after)
		}
		for range 300 {
			send(200)
			time.Sleep(100 * time.Millisecond)
		}
		send(429, "Retry-After", "10")
		if waited := send(200); waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}

// A Retry-After that is always a whole window costs one of them at the start.
func TestPessimisticRetryAfterCostsLittle(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket} {
		tally, _ := load{heedtest.Config{
			Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, 16, 20, nil}.play(t)
		t.Logf("%s: %d accepted, %d refused", algorithm, tally.Accepted, tally.Refused)
		if tally.Refused > 20 || tally.Accepted < 900 {
			t.Errorf("%s: %d accepted of 1000, %d refused", algorithm, tally.Accepted, tally.Refused)
		}
	}
}

// Nor does a small quota, used up at once, whose refusals always ask for the same wait, far
// longer than its window: the second time as many were accepted tells that it is a rate, but
// not which.
func TestRateBehindALongConstantRetryAfterIsFound(t *testing.T) {
	const quota, minutes = 10, 3
	var accepted, refused, runs int64
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for _, trip := range []time.Duration{5 * time.Millisecond, 12 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}}, Latency: heedtest.RoundTrip(trip),
				Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: 5 * time.Second},
			}, 16, 60 * minutes, nil}.play(t)
			accepted, refused, runs = accepted+tally.Accepted, refused+tally.Refused, runs+1
		}
	}
	share := float64(accepted) / float64(runs*quota*60*minutes)
	t.Logf("%.3f of what was to be had, %d refused in %d runs", share, refused, runs)
	if share < 0.6 || refused > 28*runs {
		t.Errorf("%.3f of what was to be had, want 0.6; %d refused in %d runs, want at most %d", share, refused, runs, 28*runs)
	}
}
