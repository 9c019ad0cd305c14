package heed

import (
	"net/http"
	"slices"
	"time"
)

// A rejection is a refusal as it is taken in.
type rejection struct {
	pm      *Permit       // of the request that was refused
	said    *Announcement // what the answer says
	whole   bool          // a 503: it is the origin's
	lane    *lane         // whose it is; nil: the partition's, or the origin's
	counted *lane         // of the budgets that the request was counted in, as far as is known
	backoff *backoff      // that counts it
	fresh   bool          // it is the first answer of its event
	asked   time.Duration // how long the answer asks to wait; 0: it does not say
	hint    time.Duration // the same, longer where that has proved too short
}

// A finding is what a refusal is put down to.
type finding uint8

const (
	foundNothing     finding = iota
	foundLimit               // one that nobody announces, and that is learned
	foundStrictLimit         // one that lets one request at a time through
	foundChance              // it comes by chance
)

// refused takes in that pm's request was turned away for a limit. l is the lane
// of the budgets the answer names.
func (p *partition) refused(now time.Time, pm *Permit, status int, a *Announcement, l *lane) {
	o := p.origin
	p.refusals++
	if l != nil {
		pm.budgets = l.key
	}
	r := rejection{pm: pm, said: a, whole: status == http.StatusServiceUnavailable, counted: p.laneNow(pm, l), backoff: &p.backoff}
	switch {
	case r.whole:
		r.backoff = &o.backoff
	case p.scoped(pm, a, l):
		r.lane, r.backoff = l, &l.backoff
	}
	if p.refusesSick(now, pm, a) {
		return
	}
	before := r.backoff.began
	r.fresh = r.backoff.event(now, pm.start) && !pm.doubted
	if r.asked = hintOf(a, o.limits.IgnoreHeaders); a.byRule {
		r.asked = doubled(r.asked, r.backoff.n, max(r.asked, o.limits.MaxBackoff))
	}
	r.hint = r.asked
	why := p.learnFrom(now, &r, status)
	switch {
	case r.hint > 0:
		p.refusedUntil(now, &r)
	case why == foundStrictLimit:
		// It goes again when another one ends.
	case why == foundLimit && p.inFlightLearned() != nil:
		r.backoff.blind = 1 // as does this one: however many there were, none of them waited
	case why == foundLimit && p.learner.rate.low > 0:
		p.pauseAtRate(now, &r)
	default:
		p.backOff(now, &r, why, before)
	}
}

// learnFrom has the learner look at a refusal that no announced policy explains, and
// returns what it is put down to.
func (p *partition) learnFrom(now time.Time, r *rejection, status int) finding {
	if !(r.lane == nil || p.only(r.lane)) || p.explains(now, r.pm, r.said) {
		return foundNothing
	}
	p.refusesPages(r)
	if !p.suspects(now, r.pm, status) {
		if !r.whole && r.hint > 0 && p.learner.accepted > 0 { // it holds all while it is not told apart
			p.splitsOff(now, r)
		}
		return foundNothing
	}
	if p.learner.late(r.pm) {
		r.fresh = false
		return foundLimit
	}
	if o := p.origin; p.kin != nil && p.route == "" && r.fresh && p.kin.probation.fails(r.pm.start) {
		o.ownFailed++
		o.rejoin(now, p)
	}
	if p.splitsOff(now, r) {
		return foundNothing
	}
	if p.keepsStrictly(now, r) {
		return foundStrictLimit
	}
	chance, excess := p.byChance(now, r)
	if excess {
		r.fresh, r.backoff.began, r.backoff.blind, r.backoff.paced = true, now, 0, 0 // with all that was on its way
	}
	why := foundChance
	if !chance {
		why = foundLimit
		p.learnRefused(now, r)
	}
	r.hint = p.learner.inVain(p.learner.lengthened(r.hint, r.whole), r.whole, p.origin.limits.MaxBackoff)
	return why
}

// splitsOff gives the route of the request that was refused a partition of its own, and reports true, where that
// has shown to have a limit of its own; and so it does with those under suspicion beside it.
func (p *partition) splitsOff(now time.Time, r *rejection) bool {
	if r.said.Global || !p.suspectRoute(now, r) || !p.canSplit() {
		return false
	}
	p.split(now)
	return true
}

// pauseAtRate holds the partition, after a refusal without a hint, until there is a unit
// more at the rate that was learned.
func (p *partition) pauseAtRate(now time.Time, r *rejection) {
	if r.fresh {
		r.backoff.paced++
	}
	l := p.origin.limits
	wait := p.learner.pauseFor(now, r.backoff.blind+r.backoff.paced, l.MinBackoff, l.MaxBackoff)
	if r.fresh && p.pause.extend(now.Add(wait)) {
		p.opening.restart(now)
		p.paused(now, Event{Cause: CausePolicy, Policy: learnedPolicy, Wait: wait, InARow: r.backoff.n})
	}
}

// backOff has a request that was refused without a hint wait longer with each such event,
// and the partition with it, in doubt, while nothing else there succeeds.
// before is when the event before this one began.
func (p *partition) backOff(now time.Time, r *rejection, why finding, before time.Time) {
	l, pm := p.origin.limits, r.pm
	if r.fresh && why != foundChance { // those tell nothing of how long the others are to wait
		r.backoff.blind++
	}
	wait := backoffWait(max(r.backoff.blind, 1), l.MinBackoff, l.MaxBackoff)
	if why == foundLimit && r.backoff.blind == 1 {
		least := p.learner.withRefused(l.MinBackoff)
		wait = max(wait, least)
		if held := &p.pause; held.doubtful && held.holds(now) && pm.start.Before(held.began) { // one more of the same event
			p.news = held.extend(held.began.Add(least)) || p.news
		}
	}
	pm.retryAt = now.Add(wait)
	if why == foundChance {
		return
	}
	held := p.heldByLedger(now, pm)
	if longer, too := r.guessedTooOften(l); held && too && p.closeGuessed(now, pm, now.Add(longer)) {
		held, wait, pm.retryAt = false, longer, now.Add(longer)
	} else if own, known := p.untilMore(now, pm, r.said, r.backoff.blind); known && !p.lastWell.IsZero() {
		pm.retryAt = now.Add(own)
	}
	if r.fresh && (why == foundLimit || !p.succeededSince(before, now)) && !held && p.pause.extend(now.Add(wait)) {
		p.pause.doubtful, p.pause.path, p.pause.began, p.pause.tried = true, pm.path, now, false
		p.paused(now, Event{Cause: CausePause, Wait: wait, InARow: r.backoff.n})
	}
}

// asked takes in that what shares pm's quota is to be left alone for a while,
// though nothing was refused. Where the budget has no name it is that of requests
// to the same method of the API.
func (p *partition) asked(now time.Time, pm *Permit, a *Announcement, l *lane) {
	if l == nil && !a.Global && !p.origin.limits.IgnoreHeaders {
		key := pm.route()
		if t := p.origin.routes; t != nil && t.known[key] != "" {
			key = t.known[key]
		}
		p.learnRoute(now, pm, key)
		l = p.lane(now, p.origin.ownBudgets(key, pm.path))
	}
	e := Event{Cause: CausePause, Wait: a.RetryAfter, Timed: true}
	if most := p.origin.limits.MaxRetryAfter; e.Wait > most {
		e.Wait, e.Capped = most, true
	}
	held := &p.pause
	if l != nil {
		held, e.Bucket = &l.pause, l.shown()
	} else {
		p.suspect.holdOthers(now, now.Add(e.Wait))
	}
	longer := held.holds(now)
	if !held.obey(now, now.Add(e.Wait)) {
		return
	}
	held.doubtful, p.news = false, true
	if !longer {
		p.paused(now, e)
	}
}

// explains reports whether a refusal is what an announced policy foretold, so
// that there is nothing to learn. One that says of none that it is used up turns away who went first
// after all of one was: it is not back yet.
func (p *partition) explains(now time.Time, pm *Permit, a *Announcement) bool {
	if p.origin.limits.IgnoreHeaders {
		return false
	}
	for _, l := range a.Limits {
		if l.Remaining == 0 {
			return true
		}
	}
	for i := range pm.charges {
		if c := &pm.charges[i]; c.slot.source == SourceAnnounced && c.slot.ledger.awaits(c) && c.slot.ledger.notYet(now, &c.slot.terms) {
			return true
		}
	}
	return len(a.Violated) > 0
}

// heldByLedger reports whether an announced policy that has nothing left for pm's request
// holds those after it, until its ledger has one go to see: no outage has to be assumed.
func (p *partition) heldByLedger(now time.Time, pm *Permit) bool {
	return !p.origin.limits.IgnoreHeaders && slices.ContainsFunc(pm.charges, func(c charge) bool {
		return c.slot.source == SourceAnnounced && now.Before(c.slot.ledger.closed)
	})
}

// untilMore is how long a request that was refused without a hint is to wait itself, where an
// announced policy has nothing left for it and it is known all the same when there is more: when
// its ledger has one go to see, which has those behind it wait, too, and for the longer the more
// often that was too soon; and where a reset of 0 is named, which is rounded, when as long as it is
// rounded to is over, once. To wait for longer, alone, would only leave the quota unused by who
// sends one request at a time.
func (p *partition) untilMore(now time.Time, pm *Permit, a *Announcement, inARow int) (wait time.Duration, known bool) {
	if p.heldByLedger(now, pm) {
		return 0, true
	}
	if p.origin.limits.IgnoreHeaders || inARow > 1 {
		return 0, false
	}
	for _, l := range a.Limits {
		if l.Remaining == 0 && l.Reset == 0 {
			wait, known = max(wait, l.Resolution), true
		}
	}
	return wait, known
}

// mostGuesses is how many refusals in a row that name a reset of 0 wait for no longer than a ledger guesses: one that is
// rounded down may do so twice, and of a window that slides the next unit may not be back yet, or gone to others.
const mostGuesses = 3

// guessedTooOften reports whether a refusal begins one more event in a row that names a reset of 0, or an instant that is
// over, and for how long to wait then. An origin whose clock is behind does so for as long as that is, and its window is
// taken to be as much shorter than it is: each instant at which a ledger expects that there is more is too early, and the
// next is hardly later.
func (r *rejection) guessedTooOften(l *Limits) (wait time.Duration, too bool) {
	too = r.fresh && r.backoff.blind > mostGuesses && slices.ContainsFunc(r.said.Limits, func(s ServiceLimit) bool {
		return s.Remaining == 0 && s.Reset == 0
	})
	if too {
		wait = backoffWait(r.backoff.blind-mostGuesses, l.MinBackoff, l.MaxBackoff)
	}
	return wait, too
}

// closeGuessed has the announced policies that hold those after pm's request hold them until an instant at least, and
// reports whether there are any such whose ledgers guess by a window. Where none is known each guess is longer by itself.
func (p *partition) closeGuessed(now time.Time, pm *Permit, until time.Time) (any bool) {
	return p.closePolicies(until, func(s *slot) bool { return pm.pays(s) && s.terms.Window > 0 && now.Before(s.ledger.closed) })
}

// closePolicies has some of the announced policies let nothing start before an instant, and reports whether there are any such.
func (p *partition) closePolicies(until time.Time, which func(*slot) bool) (any bool) {
	for _, s := range p.slots {
		if s.source == SourceAnnounced && which(s) {
			s.ledger.closeUntil(until)
			p.news, any = true, true
		}
	}
	return any
}

// only reports whether no other budgets are known than those of a lane: what it is
// refused for holds all requests then, as far as is known.
func (p *partition) only(l *lane) bool {
	return !slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.holds(l) })
}

// refusedUntil holds what shares the refused quota for as long as a refusal asks: the
// policies a problem document names, else what the refusal is for.
func (p *partition) refusedUntil(now time.Time, r *rejection) {
	if r.said.RetryAfter <= 0 && !r.whole && !r.said.Global {
		if r.hint = p.hintBeside(now, r.pm, r.said); r.hint <= 0 {
			return // the ledgers have it from the fields
		}
		r.asked = r.hint
	}
	e := Event{Cause: CausePause, Wait: r.hint, Timed: true, Whole: r.whole, InARow: r.backoff.n}
	if most := p.origin.limits.MaxRetryAfter; e.Wait > most {
		e.Wait, e.Capped = most, true
	}
	if e.Wait > r.asked {
		e.Asked = r.asked
	}
	until := now.Add(e.Wait)
	if r.fresh {
		until = until.Add(pauseJitter(e.Wait))
	}
	if !r.whole && p.closeViolated(until, r.said, r.counted) {
		if len(r.pm.costs) > 0 {
			r.pm.retryAt = until // whatever it was said to cost
		}
		return
	}
	held := &p.pause
	switch {
	case r.whole:
		held = &p.origin.pause
	case r.lane != nil:
		held, e.Bucket = &r.lane.pause, r.lane.shown()
	}
	longer := held.holds(now)
	if held == &p.pause && (r.said.Global || !p.suspect.isFor(r.pm)) {
		p.suspect.holdOthers(now, until)
	}
	if !held.obey(now, until) {
		return
	}
	held.doubtful = false
	p.reopenAfter(now, r)
	if r.fresh || !longer {
		p.paused(now, e)
	}
	p.news = true
}

// reopenAfter has one request go first, once the pause after a refusal is over, in all
// that it holds.
func (p *partition) reopenAfter(now time.Time, r *rejection) {
	switch {
	case r.whole:
		p.origin.reopenAll(now)
	case r.lane != nil:
		r.lane.opening.restart(now)
	default:
		p.opening.restart(now)
	}
}

// reopenAll has one request of all of the origin's go first, and then one of each partition.
func (o *origin) reopenAll(now time.Time) {
	o.opening.restart(now)
	for _, p := range o.partitions {
		p.news = true
		p.opening.restart(now)
	}
	o.stirred = true
}

// closeViolated closes the policies that a problem document names, of those
// that hold a lane, and reports whether there are any such.
func (p *partition) closeViolated(until time.Time, a *Announcement, l *lane) (any bool) {
	return p.closePolicies(until, func(s *slot) bool { return slices.Contains(a.Violated, s.policy.Name) && s.closes() && s.holds(l) })
}

// succeededSince reports whether a request of the partition was answered well
// after an instant, and not too long ago: a refusal without a hint is no
// outage then.
func (p *partition) succeededSince(at, now time.Time) bool {
	return p.lastWell.After(at) && now.Sub(p.lastWell) < p.origin.limits.MaxBackoff
}

// paused tells of a pause that has begun.
func (p *partition) paused(now time.Time, e Event) {
	e.Kind, e.Time, e.Max = EventPaused, now, p.origin.limits.MaxRetryAfter
	if !e.Timed {
		e.Max = p.origin.limits.MaxBackoff
	}
	p.news = true
	p.emit(e)
}

// unpause tells of pauses that are over.
func (p *partition) unpause(now time.Time) {
	o := p.origin
	p.eachKin(func(q *partition) {
		if len(q.cuts) > 0 {
			q.uncut(now)
		}
	})
	if doubtful := p.pause.doubtful; p.pause.over(now) {
		if doubtful {
			p.opening.restart(now)
		}
		p.emit(Event{Kind: EventResumed, Time: now})
	}
	for _, l := range p.lanes {
		if l.pause.over(now) {
			p.emit(Event{Kind: EventResumed, Time: now, Bucket: l.shown()})
		}
	}
	if manual := o.pause.manual(); o.pause.over(now) {
		p.emit(Event{Kind: EventResumed, Time: now, Whole: true, Manual: manual})
	}
}

// passesDoubt reports whether a may go although the partition is paused: it
// is in doubt whether more than one path is being refused, and a asks for
// another one, or whether it was only for too many at once.
func (p *partition) passesDoubt(a *ask) bool {
	return p.pause.doubtful && !p.pause.tried && (p.learner.crowd.testing && p.unanswered == 0 || a.path != p.pause.path)
}
