package heed

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestServerClockNarrowsDownToTheRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2026, 6, 2, 10, 0, 0, 123456789, time.UTC)
	for _, skew := range []time.Duration{0, -10 * time.Second, 7*time.Second + 400*time.Millisecond} {
		var c serverClock
		for range 500 {
			start = start.Add(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
			stamped := start.Add(10 * time.Millisecond)
			now := start.Add(20 * time.Millisecond)
			c.hear(now, start, stamped.Add(skew).Truncate(time.Second))
			if skew < c.low || skew > c.high {
				t.Fatalf("skew %v outside of %v … %v", skew, c.low, c.high)
			}
		}
		if by := c.high - c.low; by > 40*time.Millisecond {
			t.Errorf("skew %v known no better than %v … %v", skew, c.low, c.high)
		}
		// What it says of an instant is never early.
		reset := start.Add(5 * time.Second)
		if d, by := c.until(start, reset.Add(skew)); d < 5*time.Second || d > 5*time.Second+by {
			t.Errorf("skew %v: %v and %v to a reset in 5s", skew, d, by)
		}
	}
}

func TestServerClockFollowsAClockThatIsSet(t *testing.T) {
	var c serverClock
	now := time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)
	c.hear(now, now, now)
	c.hear(now, now, now.Add(time.Hour))
	if c.low != time.Hour {
		t.Errorf("%v … %v after the clock was set an hour ahead", c.low, c.high)
	}
}
