package heed

import "time"

// A reserve is how much time an answer is likely to take, where requests have been let go with less until
// their deadlines. Where more is asked for than a limit lets through, every request waits for as long as
// its deadline allows: let go at the very end, each would be given up by its caller before it is answered, and
// nothing of what the limit gives would be of use to anyone. So one whose turn comes with less makes way
// for those behind it who have more.
type reserve struct {
	trip   time.Duration // fifteen of sixteen answers are whole by then, of those that have a deadline; zero: there was none
	lapses int           // for so many answers more …
	until  time.Time     // … and until then an answer that came too late counts
	ended  time.Time     // the latest request, answered or not
}

const (
	// What is kept after an answer that came too late is all that answers take for half so many, and then less and
	// less, until one comes too late again.
	lapseCounts = 128
	lapseLasts  = time.Minute // or, where they go further apart, as long as a few of them take …
	lapseMost   = time.Hour   // … at most
)

// answered takes in that an answer was whole after so long.
func (r *reserve) answered(now time.Time, took time.Duration) {
	r.follow(took)
	r.lapses, r.ended = max(r.lapses-1, 0), now
}

// lapsed takes in that a request's deadline came, so long after it went, before its answer was whole. One that had far
// more time than answers take was slow for reasons of its own.
func (r *reserve) lapsed(now time.Time, after time.Duration) {
	if r.trip > 0 && after > 4*r.trip {
		return
	}
	if after >= r.trip { // else it tells nothing of what they take
		r.follow(after + 1)
	}
	lasts := lapseLasts
	if !r.ended.IsZero() {
		lasts = min(max(lasts, few*now.Sub(r.ended)), lapseMost)
	}
	r.lapses, r.until, r.ended = lapseCounts, now.Add(lasts), now
}

// follow moves trip up by fifteen steps, or down by one.
func (r *reserve) follow(took time.Duration) {
	step := r.trip / 128
	switch {
	case r.trip == 0:
		r.trip = took
	case took > r.trip:
		r.trip += max(15*step, time.Millisecond)
	default:
		r.trip -= step
	}
}

// of is how much is kept of so much time: three quarters at most, for what answers slowly may be something else.
func (r *reserve) of(now time.Time, d time.Duration) time.Duration {
	if now.After(r.until) {
		return 0
	}
	const whole = lapseCounts / 2
	kept := r.trip / whole * time.Duration(min(r.lapses, whole))
	return max(min(kept, 3*d/4), 0)
}

// leaves reports whether a, if it goes now, has the time that is kept.
func (r *reserve) leaves(now time.Time, a *ask) bool {
	return a.until.IsZero() || a.until.Sub(now) >= r.of(now, a.until.Sub(a.arrived))
}

// makesWay reports whether w, whose turn it is, has too little time left, and who came last of those behind it
// has not.
func (w *waiter) makesWay(now time.Time) bool {
	r := &w.origin.reserve
	return !r.leaves(now, &w.ask) && r.leaves(now, &w.queue.line(w.opts.priority).last().ask)
}

// lapse notes that the deadline of the permit's request came before all of its answer, if it had waited
// for more than the quarter of its time that nothing is kept of: else that it waited is not why. Only a
// Transport does so, for the context of an Acquire may be for the wait alone.
func (pm *Permit) lapse() {
	if pm.origin == nil || pm.left == 0 || pm.left > 3*pm.waited || time.Since(pm.start) < pm.left {
		return
	}
	now := pm.origin.lock()
	if !pm.over {
		pm.origin.reserve.lapsed(now, pm.left)
	}
	pm.origin.mu.Unlock()
}
