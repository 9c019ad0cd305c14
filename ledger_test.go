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

// Resets that are over with little back are a bucket's next unit, which this process had emptied. They are not where, at another time,
// more came back than one unit in as long as the longest of them: others use a window that slides.
func TestResetsAreNoNextUnitsWhereMoreComesBackInAsLong(t *testing.T) {
	start := time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)
	for _, rises := range []bool{false, true} {
		s := &slot{policy: Policy{Quota: 100, Unit: UnitRequests}, terms: Policy{Quota: 100, Window: 10 * time.Second, Unit: UnitRequests}}
		u := &nextUnit{}
		says := func(at time.Duration, remaining int64, reset time.Duration) (only bool) {
			now := start.Add(at)
			lim := ServiceLimit{Remaining: remaining, Reset: reset, Resolution: time.Second}
			c := &charge{slot: s, n: 1, sent: s.ledger.sent + 1, answered: s.ledger.answered}
			s.ledger.sent, s.ledger.answered = c.sent, c.sent
			return u.hear(now, now.Add(-50*time.Millisecond), now.Add(reset), time.Time{}, c, s, &lim)
		}
		says(0, 96, 10*time.Second)
		for i := range int64(76) {
			says(time.Duration(i)*10*time.Millisecond, 95-i, 10*time.Second)
		}
		only := says(20*time.Second, 19, time.Second)
		if rises {
			only = says(21500*time.Millisecond, 33, time.Second)
		}
		for i := range 4 {
			only = says(time.Duration(25+5*i)*time.Second, 18, time.Second)
		}
		if only == rises {
			t.Errorf("more came back at once: %t; taken for the next unit: %t", rises, only)
		}
	}
}
