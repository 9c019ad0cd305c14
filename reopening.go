package heed

import "time"

// learnReopened ends a block: the origin accepts again a request sent at start.
func (p *partition) learnReopened(now, start time.Time) {
	l := &p.learner
	r := &l.rate
	alone := l.crowd.testing && start.Sub(l.began) < p.patience() // later it may be for the time that has passed
	sudden := l.timed && l.blocks == 0 && r.low == 0 && l.crowd.sudden(l.accepted)
	l.blocked, l.crowd.testing = false, false
	l.interrupted = l.interrupted || l.wasOut()
	if r.burst == 0 && !l.interrupted {
		r.burst = r.total + 1
	}
	switch {
	case l.interrupted:
		p.interruptionOver(now, start)
	case (alone || r.low == 0 && l.blocks == 0) && l.chance.inFlight(l.also, l.meanwhile): // be it that the one alone was refused, too
		p.unlearn()
	case alone && !(l.blocks == 0 && r.low == 0 && l.crowd.tooFew(l.also+1)):
		p.learnInFlight(now)
	case sudden: // it may be a rate: what is accepted from here on tells, and for how long it was shut
		l.blocks, r.closed = 1, start.Sub(l.hit)
		l.begin(start)
		p.learnInFlight(now)
	case l.learnRate(now, start):
		l.beginByAnswers(now)
		p.beginAtRate(now)
		told := max(r.low, r.pace()) // while it is searched for, what is tried
		p.emit(Event{Kind: EventLearned, Time: now, Policy: learnedPolicy, Quota: max(int64(told), 1), Window: perUnit(told) * time.Duration(max(int64(told), 1)),
			Unit: UnitRequests, Learned: true, Remaining: -1})
	}
}

// learnRate takes in what the block that is over tells of the rate: the origin accepts again a
// request sent at start. It reports false where no rate is known yet.
func (l *learner) learnRate(now, start time.Time) bool {
	r := &l.rate
	l.blocks++
	l.learnShort(start)
	reopened, shut := start, l.refused // the last that is known of the block
	if l.probes == 0 && l.named.After(shut) && !l.named.After(start) {
		reopened, shut = l.named, l.named // it would have been accepted then
	}
	if len(r.zeros) > 0 {
		r.zeros[0].shut, r.zeros[0].reopened = l.refused, start
	}
	if l.besideChance() {
		l.reopenedBeside(now, start, reopened, shut)
		return true
	}
	punished := r.penalty > 0
	l.learnPenalty(reopened)
	rest := l.wasRest(reopened, punished)
	anew := r.low == 0 || rest
	switch {
	case rest:
		r.penalty, r.burst = 0, max(r.burst, l.accepted)
		l.measure(reopened, shut)
	case r.penalty > 0:
	case r.low > 0:
		l.lower(shut)
	case l.blocks < 2 && l.timed && (l.accepted < enoughToMeasure || l.whole):
		l.begin(reopened)
		return false // once is no evidence
	default:
		l.measure(reopened, shut)
	}
	if len(r.zeros) > 1 && r.penalty == 0 && (!anew || r.climb == 0) { // what may be too low is not confirmed by what it was measured by
		l.remeasure(reopened)
	}
	l.align(reopened)
	l.learnBunches()
	l.riseAgain()
	r.opened, l.seen = mark{start, r.total}, now
	l.begin(reopened)
	r.reopened(reopened.Sub(l.hit), float64(1+l.probes)+r.low*l.crowd.trip())
	if l.besideChance() {
		l.besideFirst()
	}
	return true
}

// wasRest reports whether what is known was measured by the rest of a window that others had used: what was taken for a penalty
// until now is none, or more than that handful was accepted this time of what is no bucket, for it was closed for long.
func (l *learner) wasRest(reopened time.Time, punished bool) bool {
	r := &l.rate
	if r.penalty > 0 {
		return punished && r.noPenalty(reopened)
	}
	return l.blocks == 2 && !l.timed && r.low > 0 && r.cycle < few && l.accepted > r.cycle && l.closed() > 3*perUnit(r.low)
}

// learnPenalty finds out whether the block was a penalty, by how long it was and by what was
// accepted before.
func (l *learner) learnPenalty(reopened time.Time) {
	r := &l.rate
	if r.shut = l.windowClosed(l.wasOpen()); l.blocks > 1 { // once it may have been an outage
		r.shut = min(r.shut, r.closed)
	}
	if l.blocks == 2 && reopened.Sub(l.hit) < r.penalty/2 { // the first one was an outage
		r.penalty, r.kept = 0, keptUp{}
	}
	if r.penalty > 0 || r.outgrown(r.tooFast, l.hit, l.accepted-l.meanwhile, r.total-r.zeros[0].n) {
		r.punish(min(reopened.Sub(l.hit), r.closed))
	}
}

// lower takes the known rate to be no more than what was accepted until shut, where the block was
// longer than a unit takes.
func (l *learner) lower(shut time.Time) {
	r := &l.rate
	low := rateOf(l.accepted, shut.Sub(l.since))
	if l.probes < 2 || low >= r.low {
		return
	}
	if low < r.low/2 { // it may have been an outage, which is over
		r.climb = max(r.climb, steep(l.accepted), 1)
	}
	r.low = max(low, r.low/8)
}

// learnBunches takes in what was accepted in the block of what was on its way when it began: where
// much was it is a bucket, and its rate; where next to nothing was, units come many at a time.
func (l *learner) learnBunches() {
	r := &l.rate
	if l.meanwhile >= few/2 {
		r.low = min(r.low, rateOf(l.meanwhile+1, soonest(l.through, l.refused).Sub(l.hit)))
	}
	if l.shut() > 3*perUnit(r.low) { // one by one, some would have come meanwhile
		r.bunches = true
	}
}

// riseAgain has the pace rise again where it fell far in a few steps: part of the origin may have been
// out of order, which is over. Else what rises steeply is soon refused again, which is one more in close
// succession: that has to end.
func (l *learner) riseAgain() {
	r := &l.rate
	if r.doubt == 0 && r.penalty == 0 && l.chance.blocks <= inSuccession && l.chance.fallen(r) {
		r.climb = max(r.climb, steeply)
		r.cycle, r.window = min(r.cycle, 2*few), 0
	}
}

// wasOpen is for how long the limit was open before the latest block.
func (l *learner) wasOpen() time.Duration { return l.hit.Sub(l.since) }

// steep is how fast the pace rises after a measure of so many requests that may
// be wrong by a lot: the fewer, the faster.
func steep(n int64) float64 { return max(min(20/float64(n), 2), 0.4) }
