package heed

import "time"

// A turn is when a limit lets through again: what is sent from then on is accepted. Where refusals ask
// for what is left, rounded up to a second, each tells when that is. Windows by the clock turn at
// multiples of their length, and others soon after. So two turns, and what was accepted between them,
// tell how long a window is and how much it lets through, whatever the first measure was of: of two
// windows that met, or of a part of one.
type turn struct {
	after, by time.Time // what is known of it; by zero: nothing yet
}

// refused takes in a refusal that asks for hint, of a request sent at an instant.
func (t *turn) refused(start time.Time, hint time.Duration) {
	by := start.Add(hint)
	t.after = latest(latest(t.after, start), by.Add(-time.Second))
	if hint > 0 && (t.by.IsZero() || by.Before(t.by)) {
		t.by = by
	}
}

// accepted takes in that a request sent at an instant was accepted, while others were refused.
func (t *turn) accepted(start time.Time) {
	if start.After(t.after) && start.Before(t.by) {
		t.by = start
	}
}

// known reports whether it is known when the limit turned, be it roughly.
func (t *turn) known() bool { return !t.by.IsZero() && !t.by.Before(t.after) }

// turns is what the latest refusals tell of when a limit lets through again.
type turns struct {
	latest, before turn
	asked          time.Duration // to wait by the first refusal of the block before
	varied         bool          // not always as long was asked: what is left, then
	window         time.Duration // that the latest two are in keeping with; 0: none
}

const (
	sureOfTurn = 4 // a window is known where what it let through is known to a part of so many
	mostTurns  = 4 // between two of them, in which a window that is no clock's may have moved
)

// begin takes in the first refusal of a block; asked: what that of the one before asked for.
func (t *turns) begin(start time.Time, asked, hint time.Duration) {
	t.varied = t.varied || asked > 0 && hint > 0 && asked != hint
	t.before, t.latest, t.asked = t.latest, turn{}, asked
	t.latest.refused(start, hint)
}

// measureTurns looks for the shortest round time that is a window in keeping with the latest two turns.
// No window is shorter than what is asked to wait, and none lets through more between two turns than as
// often as much as in its latest one. A bucket never asks for longer than a unit takes.
func (l *learner) measureTurns() {
	r, t := &l.rate, l.turns
	longest := max(l.hint, t.asked) - time.Second
	was := t.window
	t.window = 0
	switch honest := t.varied && l.short.times == 0 && !l.curt && !(l.timed && l.whole); {
	case r.penalty > 0, !honest, !t.before.known(), !t.latest.known():
		return
	case was == 0 && longest <= 3*perUnit(r.low):
		return
	}
	later := r.total - r.zeros[0].n // of what was in flight: that is of the next window
	for _, w := range roundTimes {
		k := t.latest.by.Sub(t.before.after) / w
		if k < 1 {
			return
		}
		if w <= longest || w < was || t.before.by.Add(k*w).Before(t.latest.after) {
			continue
		}
		turned := t.latest
		if k <= mostTurns {
			turned = turn{latest(turned.after, t.before.after.Add(k*w)), soonest(turned.by, t.before.by.Add(k*w))}
		}
		least, most := r.since(turned.by.Add(-w))-later, r.since(turned.after.Add(-w))-later
		if l.accepted-later > int64(k)*(most+1) {
			continue
		}
		if most-least <= most/sureOfTurn && rateOf(most, w) >= r.low/2 { // else it may have been an outage
			t.latest, t.window = turned, w
			l.turnedAt(w, was, least-1, most) // since counts up
		}
		return
	}
}

// turnedAt takes in that a window lets through so many, at least and at most.
func (l *learner) turnedAt(window, was time.Duration, least, most int64) {
	r := &l.rate
	n := (least + most) / 2
	switch {
	case r.window != window:
	case l.asMany(): // that was measured, and the bounds are reckoned
		n = r.cycle
	case was == window:
		n = min(max(r.cycle, least), most)
	}
	if r.window == window && r.tooFast <= rateOf(r.cycle, window) { // so many are too many
		n = max(min(n, r.cycle-1), least)
	}
	r.cycle = max(n, 2)
	r.window, r.low, r.sure = window, rateOf(r.cycle, window), true
	r.climb, r.doubt, r.kept = 0, 0, keptUp{}
}
