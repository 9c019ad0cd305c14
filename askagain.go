package heed

import (
	"math"
	"time"
)

// pauseFor is how long to wait after a refusal at a learned rate that names no time, which is one of so many in a
// row: until the next unit, or where a burst of them may come at a time, a small part of it, but no longer than it was closed the last
// time where that is far less, nor the first time than least; twice as long for every further one in a row, but not past the end of a window.
func (l *learner) pauseFor(now time.Time, inARow int, least, most time.Duration) time.Duration {
	r := &l.rate
	unit, before := perUnit(r.pace()), r.closed
	orDefault(&before, least)
	wait := max(unit, perUnit(16*r.low/float64(r.cycle)))
	if wait > longerByFar*before { // what had been accepted before the first refusal was no burst
		wait = max(unit, before)
	}
	if l.blocks > 1 { // once it may have been an outage
		wait = max(wait, r.penalty)
	}
	wait = min(nanoseconds(math.Ldexp(float64(wait), max(inARow-1, 0))), most)
	left := l.windowEnds().Sub(now)
	switch {
	case left <= 0: // if there is one
		return wait
	case r.doubt > 0 && r.cycle >= few && l.asMany(): // whether it is a window is in doubt, and how long
		return min(l.roundTimeEnds(inARow).Sub(now), left)
	}
	return min(wait, left)
}

// windowEnds is when the window is over that began with the first of as many requests as fill one; zero:
// none is known.
func (l *learner) windowEnds() time.Time {
	r := &l.rate
	if r.window == 0 {
		return time.Time{}
	}
	first, known := r.ago(r.cycle)
	if !known {
		first = r.opened.at
	}
	return first.Add(r.window + l.trip())
}

// roundTimeEnds is when the next round time is over that the window may be as long as, after so many refusals
// in a row: a longer one than had passed since the reopening when the latest refused request went.
func (l *learner) roundTimeEnds(inARow int) time.Time {
	r := &l.rate
	window := nextRoundTime(l.refused.Sub(r.opened.at)) // until it went, not until it was answered, none was over
	window += window / time.Duration(r.cycle)           // what counts the window before, too, lets the first go a unit later
	from := r.opened.at
	if at, known := r.ago(l.accepted - min(int64(inARow), r.cycle/2)); known { // those refused may have been counted, too
		from = at
	}
	return from.Add(window + l.trip())
}

// withRefused is how long to wait before it is asked again for the first time, where that is to be at least so long. If the
// limit counts what it refuses, too, and lasts as long as that, more of it has to be over; but where that would take more than a
// tenth longer, it does not help.
func (l *learner) withRefused(least time.Duration) time.Duration {
	refused := float64(l.also + int64(l.probes) + 1)
	longer := (refused + 1) / (float64(l.accepted) + refused)
	if longer > 0.1 {
		return least
	}
	return least + nanoseconds(float64(least)*longer)
}
