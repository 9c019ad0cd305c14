package heed

import (
	"math"
	"time"
)

// A verdict says when a request may go, as far as is known now, and what
// holds it until then.
type verdict struct {
	at       time.Time // not before this; the instant it was judged at: it may go
	events   bool      // at alone does not free it: something has to happen first
	asks     bool      // a shared ledger has to be asked, and nothing else holds it
	again    time.Time // judge it again by then, whatever has happened; zero: no need
	obstacle           // what holds it: the first of those events, else what puts it off to at
	last     obstacle  // what puts it off to at
}

// An obstacle is what holds a request.
type obstacle struct {
	cause  Cause
	policy string // of CausePolicy and CauseSmoother
	source Source // of the policy, where this process knows it
}

// hold moves the verdict back to at, for what is no policy.
func (v *verdict) hold(at time.Time, cause Cause) { v.holdBy(at, obstacle{cause: cause}) }

// pace has the verdict keep to a smoother's.
func (v *verdict) pace(now time.Time, m *smoother, units int64) {
	if at := m.free(now, units); at.After(now) {
		v.holdBy(at, m.whose)
		v.again = soonest(v.again, m.faster)
	}
}

func (v *verdict) holdBy(at time.Time, by obstacle) {
	if at.After(v.at) {
		v.at, v.last = at, by
		if !v.events {
			v.obstacle = by
		}
	}
}

// await makes the verdict depend on something that has yet to happen, and
// will not before at.
func (v *verdict) await(at time.Time, cause Cause) {
	v.awaitBy(at, obstacle{cause: cause})
}

func (v *verdict) awaitBy(at time.Time, by obstacle) {
	v.holdBy(at, by)
	if !v.events {
		v.events, v.obstacle = true, by
	}
}

// obstacle is the slot as what holds a request.
func (s *slot) obstacle() obstacle { return obstacle{CausePolicy, s.policy.Name, s.source} }

// goes reports whether the request may go at now.
func (v *verdict) goes(now time.Time) bool { return !v.events && !v.at.After(now) }

// spacedAlone reports whether nothing but an interval holds the request, until an instant: a pace then does not begin
// when that is over, and a deadline that it passes is out of reach already.
func (v *verdict) spacedAlone() bool {
	return !v.events && v.cause == CauseInterval
}

// judge says when a may go from a place in line. Every limit is judged at one
// instant, and nothing is taken.
func (p *partition) judge(now time.Time, a *ask, pl *place) verdict {
	o := p.origin
	p.unpause(now)
	v := verdict{at: now}
	v.hold(o.pause.until, CausePause)
	if !p.passesDoubt(a) {
		v.hold(p.pause.until, CausePause)
	}
	if a.lane != nil {
		v.hold(a.lane.pause.until, CausePause)
	}
	first := v.at // nobody goes before
	if p.listens() || o.listening > 0 {
		v.await(now, CausePause)
	}
	o.space(now, &v, a.opts.minInterval, pl.n+pl.elsewhere)
	v.hold(o.kept(a), CauseInterval)
	v.hold(a.notBefore, a.ownCause())
	if gap := p.spacing(); gap > 0 {
		v.hold(p.lastStart.Add(gap), CauseConcurrency)
	}
	if !p.cap.free(p.unanswered) {
		if at := p.lastStart.Add(max(p.patience(), windowless)); now.Before(at) { // one that hangs stops nobody
			v.await(now, CauseConcurrency)
			v.again = at
		}
	}
	for i, s := range p.slots {
		if s.holds(a.lane) {
			p.judgeSlot(now, a, pl, i, first, &v)
		}
	}
	if at, ok := p.opening.free(now, p.patience()); !ok {
		v.await(now, CauseScout)
		v.again = at
	}
	v.scout(now, &o.opening, p.patience())
	if l := a.lane; l != nil {
		v.scout(now, &l.opening, p.patience())
	}
	if pl.n == 0 && (v.goes(now) || v.spacedAlone()) && (!a.opts.noWait || o.limits.Smoothing.always()) {
		v = p.keepPace(now, a, v)
	}
	p.judgeShared(now, a, &v)
	return v
}

// keepPace returns the verdict on a, the first in line, that nothing but a pace may hold, with that.
func (p *partition) keepPace(now time.Time, a *ask, v verdict) verdict {
	p.smooth(now, a.lane)
	paced := v
	paced.pace(now, p.pacer(), a.units())
	if l := a.lane; l != nil {
		paced.pace(now, &l.smoother, a.units())
	}
	if !paced.goes(now) && p.hurries(a, paced.at) {
		return v
	}
	return paced
}

// hurries reports whether a is not to wait for its pace until an instant: it, or one behind it in line, would come too late
// then, or its answer would, though there is room for it. Where requests keep coming that would gain nothing: as many go in a
// window at their pace, and others get theirs. Nor where others were seen in a window of which less than half is left; and a
// pace that the user asked for is kept to.
func (p *partition) hurries(a *ask, until time.Time) bool {
	if p.origin.limits.Smoothing.always() || p.pacer().kept || a.lane != nil && a.lane.smoother.kept {
		return false
	}
	t := p.queueOf(a.lane).tally()
	first := soonest(a.deadline, t.deadline)
	return !first.IsZero() && !until.Add(p.patience()).Before(first)
}

// judgeSlot holds a as the policy of the partition's i-th slot asks. Nobody goes before first.
func (p *partition) judgeSlot(now time.Time, a *ask, pl *place, i int, first time.Time, v *verdict) {
	s := p.slots[i]
	if !s.enforced() {
		if at, closed := s.shut(now); closed {
			v.holdBy(at, s.obstacle())
		} else if !at.IsZero() {
			p.openKin(now, s.budget)
		}
		return
	}
	n := p.cost(s, a)
	next := max(n, 1)
	if s.policy.Unit == UnitContentBytes { // an estimate
		next = 1
	}
	if s.turn(now, next) {
		p.openKin(now, s.budget)
	}
	if p.shared.judges(s) {
		return
	}
	if s.policy.Unit == UnitContentBytes {
		n = max(n, min(a.cost(UnitContentBytes, 1), 1)) // how many nobody knows is not none
		if a.cost(UnitContentBytes, -1) < 0 && s.overdraws() {
			n = 1
		}
	}
	if pl.units != nil {
		n = pl.before(i, a, n)
		if first.After(now) {
			v.holdBy(first.Add(s.spread(n)), s.obstacle())
		}
	}
	at, known := p.goesBy(now, s, a, pl, n, v)
	at, known = s.settles(now, n, pl.n == 0, at, known, v)
	if known {
		v.holdBy(at, s.obstacle())
	} else {
		v.awaitBy(at, s.obstacle())
	}
}

// settles returns when n units may go that wait until at, if that is known: as soon as what is on its way is reckoned with as
// it was counted it may turn out that there is room.
func (s *slot) settles(now time.Time, n int64, first bool, at time.Time, known bool, v *verdict) (time.Time, bool) {
	unsettled := s.unsettled()
	if unsettled == 0 || !at.After(now) {
		return at, known
	}
	sooner, _ := s.books.free(now, n-unsettled, &s.terms, first)
	if !first && s.source == SourceAnnounced {
		sooner = latest(sooner, s.ledger.behind(now, n-unsettled, &s.terms))
	}
	if sooner = latest(sooner, now); !sooner.Before(at) {
		return at, known
	}
	if known {
		v.again = soonest(v.again, at)
	}
	return sooner, false
}

// unsettled is how many units may have been reckoned with and need not have been: bytes are estimated until a body is over, and
// what is left of a bucket is taken for the least that an answer can mean, of which nobody knows which of those on their way it counts.
func (s *slot) unsettled() int64 {
	switch {
	case s.policy.Unit == UnitContentBytes:
		return s.inFlight
	case s.follows() && s.ledger.shape == shapeRefill && s.ledger.stated && !s.ledger.isFar(&s.terms):
		return s.ledger.uncounted()
	}
	return 0
}

// goesBy returns when a may go by one slot, of which those ahead of it and it take n units;
// false where that depends on more than the time.
func (p *partition) goesBy(now time.Time, s *slot, a *ask, pl *place, n int64, v *verdict) (time.Time, bool) {
	waiting := p.queueOf(a.lane).len()
	at, known := s.free(now, n, pl.n == 0 && waiting > 1)
	if pl.n > 0 {
		if s.source == SourceAnnounced {
			at = latest(at, s.ledger.behind(now, n, &s.terms))
		}
		return s.probes(at, pl.n, p.origin.limits.MaxRetryAfter), known
	}
	if lasting := s.demand.lasting(); lasting > 0 && waiting <= 1 && !a.opts.noWait {
		if then, sure := s.free(now, n, true); sure && then.Sub(now) <= lasting && !a.misses(then) { // else an answer decides, which may take long
			at, known = then, true
		}
	}
	return p.dare(now, s, at, known, v)
}

// dare returns when the first in line goes to see, where s.free holds it until at: though an
// announcement says to wait for longer than is waited for, or, where that is not known, what it
// takes depends on answers that may never come. One that goes is waited for, but one that
// hangs stops nobody.
func (p *partition) dare(now time.Time, s *slot, at time.Time, known bool, v *verdict) (time.Time, bool) {
	most, next := p.origin.limits.MaxRetryAfter, s.taken.Add(p.patience())
	if end, alone := s.probe(at, most); end.Before(at) {
		if at.After(now) {
			p.cut(now, s)
		}
		at, known = end, alone
	} else if counted, ends := s.books.counting(most, &s.terms); !known && ends {
		if next = latest(next, s.taken.Add(counted)); at.After(next) {
			at = next
		}
	} else {
		return at, known
	}
	if known || !now.Before(next) {
		return at, true
	}
	v.again = latest(v.again, latest(at, next))
	return at, false
}

// space holds a request as the limits on all of the origin's requests ask:
// one that asks for an interval of its own, behind n others.
func (o *origin) space(now time.Time, v *verdict, interval time.Duration, n int) {
	l, base := o.limits, v.at
	if l.MinInterval > 0 || interval > 0 {
		first := base
		if last := o.lastGone(); !last.IsZero() {
			v.hold(last.Add(interval), CauseInterval)
			first = latest(base, last.Add(l.MinInterval))
		}
		v.hold(first.Add(times(int64(n), l.MinInterval)), CauseInterval)
	}
	if l.MinPause > 0 {
		first := base
		switch {
		case o.inFlight > 0:
			first = latest(base, now.Add(l.MinPause))
			v.await(first, CauseInterval)
		case !o.lastEnd.IsZero():
			first = latest(base, o.lastEnd.Add(l.MinPause))
		}
		v.hold(first.Add(times(int64(n), l.MinPause)), CauseInterval)
	}
	if l.MaxConcurrent > 0 && o.inFlight >= l.MaxConcurrent {
		v.await(now, CauseConcurrency)
	}
}

// scout holds a request while those that an opening let go first are not answered.
func (v *verdict) scout(now time.Time, o *opening, patience time.Duration) {
	if at, ok := o.free(now, patience); !ok {
		v.await(now, CauseScout)
		v.again = latest(v.again, at)
	}
}

// takesTime reports whether each request puts off all others of the origin.
func (o *origin) takesTime() bool { return o.limits.MinInterval > 0 || o.limits.MinPause > 0 }

// keep has the origin kept free for w, which has just been judged, where nothing but a longer
// interval of its own holds it: once it has been put off for as long as that, it would be for
// ever by others that ask for none. It is one request at a time, the first of them. It
// returns when to judge w again for that; zero: no need.
func (o *origin) keep(now time.Time, w *waiter) (again time.Time) {
	if w.opts.minInterval == 0 || w.held.cause != CauseInterval {
		o.letGo(w)
		return time.Time{}
	}
	if again = w.arrived.Add(w.opts.minInterval); again.After(now) {
		o.letGo(w)
		return again
	}
	if o.due == nil || w.precedes(&o.due.ask) {
		o.due = w
	}
	return time.Time{}
}

// letGo has the origin no longer kept free for w.
func (o *origin) letGo(w *waiter) {
	if o.due == w {
		o.due, o.stirred = nil, true
	}
}

// kept is the instant until which the origin is kept free for a request before a.
func (o *origin) kept(a *ask) (until time.Time) {
	if w := o.due; w != nil && w.precedes(a) && w.queue.head() == w {
		until = o.lastGone().Add(w.opts.minInterval)
	}
	return until
}

// spread returns how long n units take at least, from the first to the last,
// whatever is left now.
func (s *slot) spread(n int64) time.Duration {
	p := &s.policy
	switch {
	case s.source != SourceConfigured || p.Unit == UnitConcurrentRequests || n <= p.Quota && !p.isBucket():
		return 0
	case p.isBucket():
		return nanoseconds(float64(max(n-p.Burst, 0)) / p.rate() * 1e9)
	}
	return times((n-1)/p.Quota, p.Window)
}

// cost is what a takes of s: as its context says, or one request, or the
// largest recent number of bytes.
func (p *partition) cost(s *slot, a *ask) int64 {
	switch s.policy.Unit {
	case UnitRequests:
		return min(a.cost(UnitRequests, 1), s.most())
	case UnitContentBytes:
		return min(a.cost(UnitContentBytes, s.content.estimate), s.most())
	default:
		return a.cost(s.policy.Unit, 1) // above the quota it never fits: see impossible
	}
}

// impossible returns the concurrency limit that a can never fit into.
func (p *partition) impossible(a *ask) *slot {
	if !a.charged { // one at a time always fits
		return nil
	}
	for _, s := range p.slots {
		if s.policy.Unit == UnitConcurrentRequests && s.holds(a.lane) && s.policy.Quota > 0 && p.cost(s, a) > s.policy.Quota {
			return s
		}
	}
	return nil
}

// smooth sets the smoothers to the pace of the slot that binds most: of those
// that hold all, and of those that hold the lane alone.
func (p *partition) smooth(now time.Time, l *lane) {
	var waiting tally
	p.eachKin(func(p *partition) {
		p.queues(func(_ *lane, q *queue) {
			t := q.tally()
			waiting.add(&t)
		})
	})
	p.smoothTo(now, p.pacer(), nil, &waiting)
	if l != nil {
		waiting = l.queue.tally()
		p.smoothTo(now, &l.smoother, l, &waiting)
	}
}

func (p *partition) smoothTo(now time.Time, m *smoother, l *lane, waiting *tally) {
	sm := &p.origin.limits.Smoothing
	least, kept := tempo{pace: math.Inf(1)}, false
	for _, s := range p.slots {
		if !s.enforced() || (s.budget == "") != (l == nil) || !s.holds(l) {
			continue
		}
		asked := s.asked(&waiting.amount)
		each := 1.0 // units that a request takes
		if s.policy.Unit == UnitContentBytes && s.content.mean > 0 {
			each = s.content.mean
		}
		pace := p.paceOf(s, now, asked, sm) / each
		if s.source == SourceAnnounced { // its window may be absurd
			pace = max(pace, 1/(0.99*p.origin.limits.MaxRetryAfter.Seconds()))
		}
		if !math.IsInf(pace, 1) {
			kept = kept || s.demand.goesOn(s.span(now)) || s.ledger.othersSeen && !s.ledger.flows() && 2*s.remaining(now) < s.terms.Quota
		}
		if pace < least.pace {
			least = tempo{pace: pace, pacing: pacing{whose: obstacle{CauseSmoother, s.policy.Name, s.source}, faster: s.faster(now)}}
			least.interval, least.grown = s.micro(sm)
			least.gone = s.gone(now, float64(asked)) / each
		}
	}
	least.kept = kept
	m.set(now, least, sm.always())
}

// admit takes what a costs of every limit, all at the instant it was judged.
func (p *partition) admit(now time.Time, a *ask) *Permit {
	o := p.origin
	pm := &Permit{origin: o, p: p, start: now, method: a.method(), path: a.path, number: a.number, attempt: a.attempt, spent: a.spent}
	if !a.until.IsZero() {
		pm.left = a.until.Sub(now)
	}
	if pm.charges = pm.inline[:0]; a.charged {
		pm.costs = a.opts.costs
	}
	pm.slots = o.limits.MaxConcurrent > 0 || o.limits.MinPause > 0 || p.cap.limit > 0
	for _, s := range p.slots {
		if s.enforced() && s.holds(a.lane) {
			pm.charges = append(pm.charges, s.take(now, p.cost(s, a)))
			pm.counts = pm.counts || s.policy.Unit == UnitContentBytes
			pm.slots = pm.slots || s.policy.Unit == UnitConcurrentRequests
		}
	}
	pm.paced = p.pacer().take(now, a.units())
	pm.serial, pm.first = p.opening.take(now), o.opening.take(now)
	if l := a.lane; l != nil {
		pm.lanePaced = l.smoother.take(now, a.units())
		pm.lane, pm.ahead = l, l.opening.take(now)
	}
	pm.grant = p.shared.use()
	if p.pause.doubtful && p.pause.holds(now) {
		p.pause.tried, pm.doubted = true, true
	}
	pm.spaced = o.limits.MinInterval > 0 || o.spaced > 0
	o.started(now)
	pm.earlier = o.earlier
	p.lastStart = now
	o.interval = a.opts.minInterval
	o.inFlight++
	p.inFlight.add(pm)
	p.unanswered++
	pm.level = p.unanswered
	pm.waited = now.Sub(a.arrived)
	p.learner.goes(now, pm)
	o.waited, p.waited = inAll(o.waited, pm.waited), inAll(p.waited, pm.waited)
	p.touch(now)
	if a.attempt > 1 {
		p.emit(Event{Kind: EventRetried, Time: now, Attempt: a.attempt, Status: a.status})
	}
	p.emit(Event{Kind: EventAdmitted, Time: now, Wait: pm.waited, Total: o.waited, Attempt: a.attempt})
	if o.waited > muchWaiting && !o.warned {
		o.warned = true
		o.emit(Event{Kind: eventMuchWaited, Time: now, Total: o.waited})
	}
	return pm
}

// muchWaiting is the sum of waits on an origin that is worth a warning.
const muchWaiting = 30 * time.Second
