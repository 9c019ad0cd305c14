package heed_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A window that is over before an answer is there is used up all the same, and not overrun: it is known when requests went, and they
// arrive as far apart.
func TestWindowShorterThanTheWayIsUsedUp(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindowByClock, heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket, heedtest.GCRA} {
		for _, trip := range []time.Duration{700 * time.Millisecond, time.Second, 3 * time.Second} {
			for _, c := range []struct {
				quota int64
				least float64
			}{{10, 0.75}, {50, 0.85}} {
				const seconds = 120
				tally, _ := load{heedtest.Config{
					Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: c.quota, Window: time.Second}}, Latency: heedtest.RoundTrip(trip),
				}, 300, seconds, nil}.play(t)
				if share := float64(tally.Accepted) / float64(c.quota*seconds); share < c.least || tally.Refused > 0 {
					t.Errorf("%v, %d per second, answers take %v: share %.2f, want at least %.2f; %d refused", algorithm, c.quota, trip, share, c.least, tally.Refused)
				}
			}
		}
	}
}

// Where answers take now long, now short, some are counted much later than they went: then it is not known when each was.
func TestWindowShorterThanTheWayIsNotOverrunWhereLatenciesScatter(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for seed := range uint64(4) {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 20, Window: time.Second}}, Latency: heedtest.HeavyTail(time.Second, 0.4, 5*time.Second, seed),
			}, 300, 120, nil}.play(t)
			if tally.Accepted < 120*20/4 || tally.Refused > 2 {
				t.Errorf("%v, seed %d: %d accepted of %d, %d refused", algorithm, seed, tally.Accepted, 120*20, tally.Refused)
			}
		}
	}
}
