package heed

import (
	"testing"
	"time"
)

// While others wait, the last unit of a window goes a whole number of seconds
// before the reset, so that its answer names the reset without loss; a timer
// that is a little late must not cost the unit.
func TestLastUnitGoesWhereRoundingCostsNothing(t *testing.T) {
	start := time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)
	p := &Policy{Name: "p", Quota: 50, Window: 5 * time.Second}
	trip := 10 * time.Millisecond
	l := ledger{
		stated: true, left: 1, most: 1,
		resets:   resets{opens: start.Add(5 * time.Second)},
		rounding: rounding{grain: time.Second, onTime: seenOnTime},
		trips:    trips{quickest: trip, least: trip, usual: trip},
	}
	for _, c := range []struct{ at, goes time.Duration }{
		{3300 * time.Millisecond, 3990 * time.Millisecond}, // held for the instant
		{3990 * time.Millisecond, 3990 * time.Millisecond}, // the instant
		{3991 * time.Millisecond, 3991 * time.Millisecond}, // the timer was late
		{4500 * time.Millisecond, 5000 * time.Millisecond}, // too late: not in this window
		{2995 * time.Millisecond, 2995 * time.Millisecond}, // late for an earlier one
	} {
		now := start.Add(c.at)
		if at, known := l.free(now, 1, p, true); !known || at.Sub(start) != c.goes {
			t.Errorf("at %v: goes at %v (%v), want %v", c.at, at.Sub(start), known, c.goes)
		}
		if at, _ := l.free(now, 1, p, false); !at.Equal(now) {
			t.Errorf("at %v: held until %v though nobody waits behind", c.at, at.Sub(start))
		}
	}
}
