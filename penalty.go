package heed

import "time"

// Some origins punish: who exceeds their limit is shut out for a fixed time, from the first
// refusal or from the latest, far longer than it takes until more could be let through. Others
// name such a time to wait, always the same. At first that looks like a window as long. What
// tells them apart is how much is accepted in less time than it was shut: of a window that is no
// more than one was seen to let through. From then on, what was accepted over a time in which it was
// shut says nothing of the rate, which is the pace that was kept up, and nothing is asked again
// before the penalty is over, for that may begin it anew.

// outgrown reports whether more was accepted in less time than the limit was shut than a window
// can let through, until an instant: n since the latest reopening, and so many later on. Who goes evenly
// at a pace well above what a window lets through is refused in the second one at the latest.
func (t *throughput) outgrown(pace float64, until time.Time, n, later int64) bool {
	most := 2*t.quota() + few/2
	if n < most || backOff*pace*t.shut.Seconds() <= float64(t.quota()) {
		return false
	}
	first, known := t.ago(most + later)
	return known && until.Sub(first) < 2*t.shut
}

// noPenalty reports whether what was taken for a penalty is none, now that it is over, at reopened: as much was let through as the
// time before, though no more was tried than what is known, and far more than was taken for a window's. That is a window, and what
// came before was the rest of one that others had used. It was used up in less time than it was shut, or it is chance that as much
// was let through.
func (t *throughput) noPenalty(reopened time.Time) bool {
	n, before := t.latestTwo()
	if before == 0 || !t.noMore || reopened.Sub(t.zeros[0].at) < t.zeros[0].at.Sub(t.opened.at) {
		return false
	}
	return n >= 2*t.quota() && max(n-before, before-n) <= n/64 // or what was on its way
}

// quota is how many requests a window lets through, if it is one.
func (t *throughput) quota() int64 {
	if t.window > 0 {
		return t.cycle
	}
	return t.burst
}

// outgrow takes in, while all goes well, that it is no window. What is known then is far too low. That
// it seemed to be one is no reason against it where just that is being tried.
func (t *throughput) outgrow(now time.Time, n int64) {
	if t.penalty == 0 && (t.trial || !t.sure) && t.outgrown(t.pace(), now, n, 0) {
		t.low, t.climb = max(t.low, t.pace()), 1
		t.pressed = 0
		t.punish(t.closed)
	}
}

// punish takes in that it was shut for so long, all in all, as a penalty: the shortest time counts,
// for an outage may come on top.
func (t *throughput) punish(closed time.Duration) {
	if t.penalty == 0 && t.low < t.tooFast/2 { // that was reckoned with the time in which it was shut
		t.climb = max(t.climb, gently)
	}
	if t.penalty == 0 || closed < t.penalty {
		t.penalty = closed
	}
	t.window, t.sure, t.trial, t.tried, t.shorter, t.doubt = 0, false, false, 0, false, 0
}

// punished takes in a refusal that is punished. usual is how many seconds a request takes.
func (t *throughput) punished(usual float64) {
	kept := t.before(t.cycle, usual)
	if t.climb > gently { // it rose by so much meanwhile that a window may have ended on the way
		kept -= t.cycle
	}
	little := 0.95 * t.tooFast
	switch {
	case t.tooFast > t.low:
		t.kept = keptUp{proven: t.low}
		t.low = max(t.low, t.at(max(kept, 0)))
	case !t.kept.bucket: // for the first time since more was tried
		t.low, t.kept.bucket = little, true
	case t.kept.proven < t.tooFast: // no lower than what was known before that
		t.low = max(backOff*t.tooFast, min(t.kept.proven, little))
	default:
		t.low = backOff * t.tooFast
	}
	if t.climb /= 4; t.climb < slowly {
		t.climb = 0
	}
}
