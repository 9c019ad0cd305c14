package heed

import "time"

// A reserve is what is kept for the answer of the time that a request has until its context's deadline, once
// requests have been let go with too little. Where more is asked for than a limit lets through, every request
// waits for as long as its deadline allows: let go at the very end, each would be given up by its caller
// before it is answered, and nothing of what the limit gives would be of use to anyone.
type reserve struct {
	trip   time.Duration // fifteen of sixteen answers take no longer; zero: there was none
	lapses int           // after so many answers more it is kept for no longer
}

// lapseCounts is for how many answers something is kept after one that came too late. For half of them it is
// all that answers take, and then less and less, until one comes too late again.
const lapseCounts = 128

// answered is an answer that took so long.
func (r *reserve) answered(took time.Duration) {
	r.follow(took)
	r.lapses = max(r.lapses-1, 0)
}

// lapsed is an answer that had not come after so long, when its time was over.
func (r *reserve) lapsed(after time.Duration) {
	if after >= r.trip { // else it tells nothing
		r.follow(after + 1)
	}
	r.lapses = lapseCounts
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
func (r *reserve) of(d time.Duration) time.Duration {
	const whole = lapseCounts / 2
	kept := r.trip / whole * time.Duration(min(r.lapses, whole))
	return max(min(kept, 3*d/4), 0)
}

// lapse notes that the deadline of the permit's request came before all of its answer, if it had waited
// for more than the quarter of its time that nothing is kept of: else that it waited is not why.
func (pm *Permit) lapse() {
	if pm.origin == nil || pm.until.IsZero() || time.Now().Before(pm.until) {
		return
	}
	pm.origin.lock()
	defer pm.origin.mu.Unlock()
	if left := pm.until.Sub(pm.start); left <= 3*pm.waited && !pm.over {
		pm.origin.reserve.lapsed(left)
	}
}

// tooLateToBeAnswered reports whether w, whose turn it is, has too little time left. What answers take may be
// more than when it came.
func (w *waiter) tooLateToBeAnswered(now time.Time) bool {
	return !w.until.IsZero() && w.until.Sub(now) < w.origin.reserve.of(w.until.Sub(w.arrived))
}
