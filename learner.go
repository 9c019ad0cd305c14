package heed

import "time"

// A learner finds the limit of a partition whose origin announces none and
// only refuses: a rate, or a number of requests in flight.
//
// From the first refusal until the origin accepts again is a block, and from
// then until the next block a cycle.
//
// Whether it is a limit in flight shows right after the first refusal: one
// request alone is sent at once. Where it is accepted, it was for too many in
// flight; where even one alone is refused, it is a rate.
type learner struct {
	rate          throughput
	crowd         crowd
	chance        chance
	interruptions interruptions
	descent       descent
	strict        *strict // from the first refusal on, which most never have

	since    time.Time     // the cycle's beginning: the latest reopening, or the first request
	last     time.Time     // latest accepted answer
	seen     time.Time     // when the answer came that showed it
	accepted int64         // in this cycle
	quickest time.Duration // answer that was accepted
	sought   time.Time     // when a request was turned away last by what is known here, or had waited for the end of a block

	block        // the present one, or the latest
	blocks int   // so far
	outage int64 // accepted before the latest that was taken for an outage
	by429  bool  // the latest block that was a limit's began with another status than 503

	mostInARow int64 // accepted, at most, before nobody asked for long, while nothing was refused …
	unrefused  int64 // … and in all of these …
	outages    int   // … and so many after no more than that

	hint    time.Duration // what the first refusal of the latest block asked to wait …
	open    time.Duration // … so long after the reopening
	shrinks bool          // and less was asked the longer that was
	short   tooShort
	parts   int // blocks in a row at whose end only a part of a cycle's worth was back

	healthy paths
	sick    paths
	out     *outPaths  // from the first 503 on a path that was not accepted lately, which most never have …
	pages   *sickPages // … and from the first request that was refused when it was tried again
}

const (
	learnedPolicy   = "learned"
	enoughToMeasure = 10 // accepted requests that make a measurement, the first time
	idleGap         = 5 * time.Second
)

// learnAccepted takes in that pm's request was accepted.
func (p *partition) learnAccepted(now time.Time, pm *Permit) {
	l := &p.learner
	l.resume(now, pm)
	l.last = now
	if took := now.Sub(pm.start); l.quickest == 0 || took < l.quickest {
		l.quickest = took
	}
	l.healthy.add(pm.path)
	l.sick.remove(pm.path)
	l.out.accepted(pm.path, pm.start)
	l.pages.accepted(pm)
	if l.blocked {
		if pm.doubted || pm.start.After(l.began) {
			p.learnReopened(now, pm.start)
		} else {
			l.block.accepted(pm.start)
		}
	}
	pressed := p.queued() > 0 || pm.waited > 0 || l.usedUp(pm)
	p.count(now, pm, pressed)
	if s := p.inFlightLearned(); s != nil && pressed && int64(pm.level) > s.policy.Quota/2 {
		p.moreInFlight(s)
	}
	if l.rate.low > 0 {
		l.rate.trip = l.crowd.trip()
		p.followRate(now, pm.start)
	}
}

// resume begins a cycle where pm's request is the first one accepted, or nobody had asked for long before it.
func (l *learner) resume(now time.Time, pm *Permit) {
	switch {
	case l.since.IsZero():
		l.begin(pm.start)
	case l.rate.low == 0 && l.idled(now, pm):
		l.mostInARow, l.unrefused = max(l.mostInARow, l.accepted), l.unrefused+l.accepted
		l.begin(pm.start)
	case l.idled(now, pm):
		l.beginAnew(pm.start)
	case l.blocked && pm.start.Sub(latest(latest(l.refused, l.began), pm.sought)) > idleGap: // when it reopened nobody knows
		l.blocked, l.crowd.testing = false, false
		l.mostInARow, l.unrefused = 0, 0
		l.beginAnew(pm.start)
	}
}

// turnedAway takes in that a request is turned away by what holds it, for which it cannot or may not wait. That it asked
// says as much as if it waited.
func (l *learner) turnedAway(now time.Time, by obstacle) {
	if l.blocked || by.source == SourceLearned {
		l.sought = now
	}
}

// goes notes who had asked when pm's request goes. One that ends a block may never be answered, and then the next one shows that.
func (l *learner) goes(now time.Time, pm *Permit) {
	pm.well = l.crowd.most
	if pm.sought = l.sought; pm.waited > 0 {
		pm.sought = now
	}
	if l.blocked {
		l.sought = pm.sought
	}
}

// usedUp reports whether pm's request, which did not wait, took what another one had just been turned away for. Where
// that was longer ago than it takes until one more may go, half of what might have gone was wanted by nobody.
func (l *learner) usedUp(pm *Permit) bool {
	long := l.trip()
	if l.rate.low > 0 {
		long = perUnit(l.rate.pace())
	}
	return pm.start.Sub(pm.sought) <= long
}

// count counts pm's request, which was accepted; pressed: others were waiting.
func (p *partition) count(now time.Time, pm *Permit, pressed bool) {
	l := &p.learner
	l.accepted++
	l.crowd.accepted(now.Sub(pm.start), int64(pm.level))
	l.crowd.streak.accepted(pm.start)
	l.interruptions.accepted(pm.start)
	if rate, limit := l.chance.well(pm.start, &l.rate); limit {
		l.rate.low, l.rate.cost = rate, attemptCost
	}
	if l.rate.modest > 0 && (!l.chance.much() || l.pages.are()) {
		l.rate.noMoreModest()
	}
	l.rate.accepted(pm.start, pressed)
	if l.strict != nil {
		l.strict.accepted(now, pm.start, l.quickest, p.wasAlone(pm), pressed)
		l.keepStrict(now)
	}
}

// followRate goes on at the pace of the known rate, now that one more was accepted, sent at start; or forgets it
// where that shows that there is none any more.
func (p *partition) followRate(now, start time.Time) {
	l := &p.learner
	if !l.blocked && !l.goesByAnswers() {
		if l.rate.gone() {
			p.unlearn()
			return
		}
		l.rate.outgrow(start, l.accepted)
		if l.descent.shows(l.rate.low) && l.recovers() {
			l.descent.risesFrom(l.rate)
			p.letGo(now, l.rate.low)
		}
	}
	p.setLearnedRate(now)
}

// begin begins a cycle.
func (l *learner) begin(at time.Time) { l.since, l.accepted, l.crowd.most, l.crowd.often = at, 0, 0, 0 }

// idled reports whether nothing was asked before pm for so long that the time would
// count against the rate.
func (l *learner) idled(now time.Time, pm *Permit) bool {
	gap := now.Sub(l.last)
	switch {
	case l.blocked || gap <= idleGap:
		return false
	case l.rate.low == 0:
		return gap > 4*now.Sub(l.since)/time.Duration(l.accepted+1)
	}
	long := few * perUnit(l.rate.low)
	return gap > long && pm.waited <= long // the answer to one that went a little later may have come first
}

// beginAnew begins a cycle after a time in which nobody asked.
func (l *learner) beginAnew(at time.Time) {
	l.begin(at)
	l.rate.rested()
	l.chance.rested()
}

// suspects reports whether a refusal that no announced policy explains may
// tell of a limit: the same path was accepted lately, or it is a 429 on a
// path that is not known to be refused while others are not, or a 503 as those
// were that other paths got over.
func (p *partition) suspects(now time.Time, pm *Permit, status int) bool {
	l := &p.learner
	switch {
	case l.accepted == 0 && !l.blocked:
		return false // an outage that goes on tells nothing of a rate
	case l.healthy.has(pm.path):
		return true
	case status < 500 && l.pages.are(): // as chance
		return true
	case status >= 500:
		if l.out == nil {
			l.out = &outPaths{well: l.last}
		}
		return l.out.refused(now, pm.start, pm.path)
	case l.sick.has(pm.path):
		return false
	}
	l.sick.add(pm.path)
	return true
}

// late reports whether a refusal only tells of a block that is over: its request went
// before the one that was accepted after it.
func (l *learner) late(pm *Permit) bool {
	return (l.blocks > 0 || l.outage > 0 || l.interruptions.known()) && !l.blocked && pm.start.Before(l.since)
}

// learnRefused takes in a refusal that may tell of a limit.
func (p *partition) learnRefused(now time.Time, r *rejection) {
	l, pm := &p.learner, r.pm
	l.refused = latest(l.refused, pm.start)
	if r.fresh {
		l.short.asks(!l.blocked && r.hint > 0 && !r.whole)
	}
	if at := now.Add(l.lengthened(r.hint, r.whole)); r.hint > 0 && (r.fresh || at.Before(l.named)) {
		l.named = at
	}
	s := p.inFlightLearned()
	switch {
	case l.blocked:
		l.refusedAgain(r)
		return
	case s != nil && p.tooManyInFlight(now, s, r):
		return
	case s != nil:
		p.dropSlot(s)
	case l.rate.low > 0 && l.idled(now, pm):
		l.beginAnew(pm.start)
	}
	if known := l.descent.begin(l.rate.pace(), l.letThrough(pm.start)); known != nil {
		l.asKnown(known)
	}
	interrupted, known := l.interruptedBy(pm.start, r.whole && l.by429)
	if interrupted = interrupted && s == nil; !interrupted {
		p.exceeded(now, r, s != nil)
		l.by429 = !r.whole || known != nil
	}
	if l.strict == nil {
		l.strict = newStrict(l.accepted, l.last.Sub(l.since)-l.quickest)
	}
	l.hinted(pm.start, r.hint)
	l.block = l.block.next(now, pm.start, r.hint > 0, r.whole)
	l.interrupted, l.known = interrupted, known
	if l.rate.low > 0 {
		p.setLearnedRate(now)
	}
	l.crowd.well = pm.well
	l.crowd.testing = l.crowd.refused(int64(max(pm.level, p.unanswered+1))) && l.rate.low == 0 && !l.timed
}

// letThrough is the rate that was let through until an instant, as far as is known. What went before the first refusal may have been
// a burst.
func (l *learner) letThrough(at time.Time) float64 {
	if l.rate.low > 0 {
		return l.rate.low
	}
	return rateOf(l.accepted, max(at.Sub(l.since), time.Minute))
}

// interruptedBy reports whether the refusal of a request sent at start, at the beginning of a block, is no limit's; unlike: a limit
// is known that refuses with another status. It may turn out to be none later: if that limit is a rate, known is what is to
// hold again then.
func (l *learner) interruptedBy(start time.Time, unlike bool) (yes bool, known *throughput) {
	yes, soon := l.interruptions.refused(&l.rate, start)
	if unlike && !soon && !yes && l.rate.low > 0 {
		before := l.rate
		known = &before
	}
	return yes, known
}

// exceeded takes in that a limit refused a request, at the beginning of a block; inFlight: it had been taken for
// one in flight, which it cannot be.
func (p *partition) exceeded(now time.Time, r *rejection, inFlight bool) {
	l, start := &p.learner, r.pm.start
	if l.besideChance() {
		l.rate.exceeded(start, l.chance.then, l.chance.share)
	} else {
		asked := latest(l.since, l.rate.opened.at) // before the first one went nobody did
		was := l.rate.low
		l.rate.refused(start, l.crowd.trip(), rateOf(l.accepted, start.Sub(asked)))
		l.moreToCome(was)
	}
	if inFlight && !(r.hint > 0 && l.blocks > 0 && l.accepted <= l.rate.burst) { // it is no such limit, but a rate that they exceed
		l.notInFlight(now)
	} // else when it reopens tells the rate, as if it had never been taken for one in flight
}

// refusedAgain is learnRefused within a block.
func (l *learner) refusedAgain(r *rejection) {
	start := r.pm.start
	if r.fresh || r.pm.doubted {
		l.probes++
		l.descent.refused++
		l.crowd.testing = false
		if l.timed && r.hint < l.hint { // it does tell what is left, though not all of it
			l.shrinks, l.curt = true, true
		}
	}
	if !start.After(l.began) {
		l.also++
		l.crowd.well = max(l.crowd.well, r.pm.well)
	}
	if !r.whole {
		l.whole, l.known = false, nil
	}
	l.blind = r.hint == 0
	if r.hint > 0 && r.whole && l.probes >= outageProbes {
		l.outOfOrder()
	}
}

// tooManyInFlight reports whether a refusal is put down to the learned limit in flight, which allows fewer then.
func (p *partition) tooManyInFlight(now time.Time, s *slot, r *rejection) bool {
	l, pm := &p.learner, r.pm
	switch k := &l.crowd.streak; {
	case !r.fresh, int64(pm.level) > s.policy.Quota, pm.start.Before(l.crowd.cut): // sent before it was learned, or lowered
		l.crowd.lost++
		return true
	case l.asOften(int64(p.unanswered)), p.refusesAll(): // whatever was in flight
		return false
	case r.hint > 0 && k.again(): // others had a part of what was let through the first time
		l.since, l.accepted = k.from, k.n
		l.rate.burst = max(l.rate.burst, k.n)
		return false
	default:
		*k = k.next(now)
	}
	return p.fewerInFlight(now, s, int64(max(pm.level, p.unanswered+1)), r.hint)
}

// moreToCome has the pace rise again soon where the rate fell from what it was for how little was accepted
// since the instant that a server had named: not all of it was back by then, and more may be now. Where it is so time and
// again, that is the instant of a bucket's next unit, and it is all.
func (l *learner) moreToCome(was float64) {
	r := &l.rate
	n := r.total - r.opened.n
	if !l.timed || n >= r.cycle {
		l.parts = 0
		return
	}
	switch l.parts++; {
	case l.parts > timeAndAgain, r.low >= was:
	case n < r.cycle/2:
		r.climb = max(r.climb, steep(n))
	case r.low < was*2/3 && r.waited() > 0.5: // most of the time that it rests on was a wait
		r.climb = max(r.climb, gently)
	}
}

// notInFlight measures a rate that had been taken for a limit in flight. What was accepted
// since the latest reopening tells it, unless that was no more than a burst: then it was
// let through at once, and the rate is anywhere between what was accepted since the first
// refusal and that.
func (l *learner) notInFlight(now time.Time) {
	r, open := &l.rate, now.Sub(l.since)
	if l.accepted > r.burst || len(r.zeros) < 2 {
		r.measured(l.accepted, open, steep(l.accepted))
		r.cycle = max(min(r.cycle, r.burst), 2) // they may have kept to it for hours: that was no window, nor a burst
	} else {
		first := r.zeros[len(r.zeros)-1]
		r.measured(r.total-first.n, now.Sub(first.at), gently)
		r.doubt = doublings(r.low, rateOf(l.accepted, open))
		r.cycle = max(r.burst, 2)
	}
	r.window, r.most, r.pressed = 0, ages, 0
}

// asOften reports whether as many were accepted since the latest reopening as before
// the first refusal: a burst, or a window's. Some of those under way may yet be.
func (l *learner) asOften(underWay int64) bool {
	n := l.accepted - l.rate.burst
	return l.rate.burst >= few && -underWay <= n && n <= 0
}

// hinted takes in for how long the first refusal of a block asks to wait. Of a window less
// is left the longer it was open. Some servers ask for as long whenever they refuse.
func (l *learner) hinted(at time.Time, hint time.Duration) {
	open := at.Sub(l.since)
	if l.hint > 0 && hint > 0 {
		l.shrinks = hint < l.hint && open > l.open || hint > l.hint && open < l.open
	}
	l.hint, l.open = hint, open
}

// unlearn forgets the limit that was learned: it is not true any more.
func (p *partition) unlearn() {
	l := &p.learner
	for _, unit := range []Unit{UnitRequests, UnitConcurrentRequests} {
		if s := p.slot(SourceLearned, learnedPolicy, "", unit); s != nil {
			p.dropSlot(s)
		}
	}
	l.rate, l.crowd, l.blocked, l.blocks, l.since = throughput{}, crowd{}, false, 0, time.Time{}
	l.mostInARow, l.unrefused, l.outages = 0, 0, 0
	l.hint, l.open, l.shrinks, l.short = 0, 0, false, tooShort{}
	l.chance.rested()
	l.strict, l.descent = nil, descent{}
}

// setLearnedRate has the learned slot let requests through at the pace: where refusals have
// made that very low, which may have been by chance, one still goes to see now and then.
func (p *partition) setLearnedRate(now time.Time) *tokenBucket {
	l := &p.learner
	r := l.rate.pace()
	if l.goesByAnswers() {
		r = 1 / l.strict.spacing
	}
	r = max(r, 1/p.origin.limits.MaxRetryAfter.Seconds())
	s := p.slot(SourceLearned, learnedPolicy, "", UnitRequests)
	if s == nil {
		s = &slot{source: SourceLearned, books: newTokenBucket(r, 1)}
		p.slots = append(p.slots, s)
	}
	b := s.books.(*tokenBucket)
	b.strict = l.strict
	b.within.keepTo(l, r)
	burst := b.within.atOnce(&l.rate)
	b.resize(now, r, burst)
	s.policy = Policy{Name: learnedPolicy, Quota: 1, Window: perUnit(r), Burst: burst, Unit: UnitRequests}
	s.terms = s.policy
	p.news = true
	return b
}

// beginAtRate is setLearnedRate where the request whose answer came just now has taken the first unit.
func (p *partition) beginAtRate(now time.Time) { p.setLearnedRate(now).limiter.AllowN(now, 1) }
