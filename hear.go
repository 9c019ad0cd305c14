package heed

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// hear takes in what the answer to pm's request says, and what its coming
// means. status 0: no answer, but news from elsewhere. It came at an instant, and is taken in now.
func (p *partition) hear(now, came time.Time, pm *Permit, status int, a *Announcement) {
	o := p.origin
	p.touch(now)
	first := status != 0 && !pm.answered
	if first {
		p.answered(came.Sub(pm.start), pm)
	}
	told, l := false, (*lane)(nil)
	if !o.limits.IgnoreHeaders {
		a, told, l = p.hearAnnounced(now, pm, status, a, first)
	}
	if first {
		p.hearAnnouncer(now, pm, a, pm.settle(now, status, a))
		p.fade(now)
	}
	if a.Reduced {
		p.cap.reduce(now, pm.start, max(p.unanswered+1, pm.level))
	}
	if a.Global {
		o.rejoin(now, p) // it holds all routes
	}
	switch {
	case a.Refused:
		p.refused(now, pm, status, a, l)
	case status == 0 && a.RetryAfter > 0:
		p.asked(now, pm, a, l)
	case first && status < 500 && a.Cached:
		p.openOn(now, pm, false, true)
	case first && status < 500:
		p.accepted(now, pm, told)
	}
	if first {
		kind := EventAnswered
		if a.Refused {
			kind = EventRefused
		}
		p.emit(Event{Kind: kind, Time: now, Status: status, Latency: came.Sub(pm.start), Attempt: pm.attempt, Remaining: p.remaining(now, p.laneNow(pm, l))})
	}
}

// settle squares the permit's accounts with its answer: with those that the answer says
// nothing of, for hearLimit has seen to the others. What came from a cache cost nothing. It reports whether the answer could
// be expected to announce a policy, and does not.
func (pm *Permit) settle(now time.Time, status int, a *Announcement) (silent bool) {
	for i := range pm.charges {
		c := &pm.charges[i]
		switch {
		case c.settled:
		case a.Cached:
			c.slot.refund(now, c)
			c.n = 0
			pm.counts = false // nor do its bytes
		default:
			well := status/100 == 2 && !a.Refused // an error, a redirect or a 304 may come from nearer by
			c.unsure = !well
			c.slot.settle(now, pm.start, c)
			if c.slot.source == SourceAnnounced && !a.Refused { // which may come from nearer by
				c.slot.ledger.hearSilence(now, pm.start, c, &c.slot.terms)
				if well && c.slot.habit.onRefusals {
					c.slot.ledger.accepted(c)
					c.slot.ledger.useUp(now, pm.start, c, &c.slot.terms)
				}
				c.slot.capped = c.slot.capped && !c.slot.isOpen(now)
			}
			if c.due && c.slot.habit.last.Before(now) && !c.slot.outdone(now, a) {
				c.slot.missed(now, pm, c, well)
				silent = silent || well && c.slot.general()
			}
		}
	}
	if a.Cached || a.free {
		pm.unspread(now)
	}
	return silent
}

// answered notes that pm's request is no longer unanswered, after so long.
func (p *partition) answered(trip time.Duration, pm *Permit) {
	pm.answered = true
	p.unanswered--
	pm.gone()
	p.slowest = max(trip, p.slowest-p.slowest/8)
}

// accepted says that pm's request was answered well.
func (p *partition) accepted(now time.Time, pm *Permit, told bool) {
	o := p.origin
	p.lastWell = now
	if pm.start.After(p.backoff.began) {
		p.backoff.over()
	}
	if pm.start.After(o.backoff.began) {
		o.backoff.over()
	}
	if p.pause.doubtful && (pm.doubted || pm.path != p.pause.path || pm.start.After(p.pause.began)) {
		p.pause.end() // not an outage: something here succeeds
		p.emit(Event{Kind: EventResumed, Time: now})
	}
	p.cap.well()
	p.suspect.hearAccepted(now, pm, &p.pause)
	if p.kin != nil {
		p.kin.probation.well(now, p)
	}
	p.learnAccepted(now, pm)
	if l := pm.lane; l != nil && pm.start.After(l.backoff.began) {
		l.backoff.over()
	}
	p.openOn(now, pm, told, false)
	if p.opening.proven() && len(o.known) == 0 {
		o.opened = true
	}
}

// openOn lets more requests go unanswered, pm's having been answered well:
// told, with what remains. What comes from a cache confirms no room, so that
// it only counts on first contact. There the policies announced are enough to
// go by: nobody was refused for them.
func (p *partition) openOn(now time.Time, pm *Permit, told, cached bool) {
	open := func(o *opening, l *lane, serial uint32) {
		if o.contact || !cached {
			o.well(now, pm.start, serial, told || o.contact && !cached && p.bounded(l))
		}
	}
	open(&p.origin.opening, nil, pm.first)
	open(&p.opening, pm.lane, pm.serial)
	if l := pm.lane; l != nil {
		open(&l.opening, l, pm.ahead)
	}
}

// bounded reports whether announced policies bound what requests of a lane take.
func (p *partition) bounded(l *lane) bool {
	return slices.ContainsFunc(p.slots, func(s *slot) bool {
		return s.source == SourceAnnounced && s.enforced() && s.holds(l) && s.terms.Quota > 0 && (s.terms.Window > 0 || !s.closes())
	})
}

// hearAnnounced takes in what an announcement says of limits. It returns the
// announcement as it is understood, whether a remaining count was in it, and the lane
// of the budgets it names. first: it is the answer to pm's request.
func (p *partition) hearAnnounced(now time.Time, pm *Permit, status int, a *Announcement, first bool) (_ *Announcement, told bool, l *lane) {
	if a.Refused {
		p.doubtAnnouncers(now, pm, status, a)
	}
	a = p.tellApart(now, pm, p.byNumbers(now, pm, a, first))
	if !a.Date.IsZero() {
		p.origin.clock.hear(now, pm.start, a.Date)
	}
	if p.origin.majors == nil {
		p.origin.majors = a.majors
	}
	if first {
		p.hearNames(now, pm, a)
	}
	a = p.origin.byHabit(a)
	budgets := p.hearPolicies(now, pm, a)
	if a.Refused {
		a = p.asHint(now, pm, p.asNothing(now, pm, status, a))
	}
	told, more := p.hearLimits(now, pm, a, first)
	return a, told, p.belongs(now, pm, a, append(budgets, more...), first)
}

// hearPolicies takes in the policies of an announcement, and returns the budgets they
// are of.
func (p *partition) hearPolicies(now time.Time, pm *Permit, a *Announcement) (budgets []string) {
	for _, pol := range a.Policies {
		if pol.Unit == "" {
			pol.Unit = UnitRequests
		}
		pol.Burst = 0
		name := p.budgetNamed(pm, a, pol.Name, pol.PartitionKey)
		if name != "" {
			budgets = append(budgets, name)
		}
		if s := p.announced(now, pol, p.origin.ownBudgets(name, pm.path)); s != nil {
			s.inference.loose = slices.Contains(a.usual, pol.Name)
		}
	}
	return budgets
}

// hearLimits takes in the service limits of an announcement. It reports whether a
// remaining count was among them, and returns the budgets they are of.
func (p *partition) hearLimits(now time.Time, pm *Permit, a *Announcement, first bool) (told bool, budgets []string) {
	for _, lim := range a.Limits {
		if first && a.contradicts(&lim) {
			continue
		}
		name := p.budgetNamed(pm, a, lim.Policy, lim.PartitionKey)
		if name != "" {
			budgets = append(budgets, name)
		}
		budget := p.origin.ownBudgets(name, pm.path)
		s := p.limited(now, budget, &lim)
		made := s == nil || s.habit.another.Equal(now) || s.enforced() && s.ledger.said.IsZero()
		if s == nil {
			s = p.announced(now, Policy{Name: lim.Policy, Unit: cmp.Or(lim.Unit, UnitRequests), PartitionKey: lim.PartitionKey}, budget)
		}
		if s == nil {
			continue
		}
		s.heard()
		s.habit.said(now)
		s.habit.left(lim.Remaining, a.Refused, made)
		told = told || lim.Remaining >= 0
		p.hearLimit(now, pm, s, lim, a)
	}
	return told, budgets
}

// contradicts reports whether an answer is accepted though it says that nothing
// is left of a quota of 0, out of which nothing can be. Who counts requests to no
// other end than to slow them down says so.
func (a *Announcement) contradicts(l *ServiceLimit) bool {
	return !a.Refused && l.Remaining == 0 && slices.ContainsFunc(a.Policies, func(p Policy) bool {
		return p.Quota == 0 && sameUnit(p.Unit, UnitRequests) && p.Name == l.Policy && p.PartitionKey == l.PartitionKey
	})
}

// inDialect reports whether an announcement is in the dialect of a service.
func (a *Announcement) inDialect() bool {
	return a.Dialect != "" && !strings.HasPrefix(a.Dialect, "ietf-")
}

// outranks reports whether Retry-After says when there is more of a limit of which nothing is left: it
// takes precedence over the reset (draft-11, section 7). A longer one on a refusal is a pause.
func (a *Announcement) outranks(l *ServiceLimit) bool {
	return a.RetryAfter > 0 && l.Remaining == 0 && (l.Reset < 0 || l.Reset > a.RetryAfter || !a.Refused)
}

// limited returns the slot that a service limit of a budget is about, nil where
// there is none.
func (p *partition) limited(now time.Time, budget string, lim *ServiceLimit) *slot {
	s := p.slotIn(budget, lim.Policy, lim.PartitionKey)
	switch {
	case s != nil:
		return s
	case lim.PartitionKey != "": // the policy names no partition key
		return p.slotIn("", lim.Policy, "")
	}
	for _, s := range p.slots { // the policy beside it names one, as express-rate-limit does
		if s.source == SourceAnnounced && s.policy.Name == lim.Policy && s.budget == budget && s.habit.last.Equal(now) {
			return s
		}
	}
	return nil
}

// hearLimit takes in what an answer says of one slot.
func (p *partition) hearLimit(now time.Time, pm *Permit, s *slot, lim ServiceLimit, a *Announcement) {
	known := a.inDialect()
	if known {
		lim = s.resetUnit.read(now, pm.start, lim)
	}
	if a.outranks(&lim) && (lim.Reset >= 0 || !a.Refused) { // a refusal may ask for as long every time: see hint
		lim.Reset, lim.Clock = a.RetryAfter, false
	}
	grain := lim.Resolution
	instant := p.origin.readClock(now, &lim, a.Date)
	switch {
	case s.nextUnit.hear(now, pm.start, instant, a.Date, pm.charge(s), s, &lim):
		if lim.Remaining > 0 {
			lim.Reset = -1
		}
	case lim.Reset >= 0:
		p.hearReset(now, instant, s, &lim, grain)
	}
	if a.Refused {
		s.inferFromRefusal(now, pm.start, &lim, a.RetryAfter, grain)
	}
	switch {
	case s.policy.Unit == UnitConcurrentRequests:
		if s.said.Quota == 0 && lim.Remaining >= 0 {
			s.policy.Quota = max(s.inFlight+lim.Remaining, 1)
			s.terms.Quota = s.policy.Quota
		}
	case !s.enforced():
		s.show(now, pm.start, &lim, known, p.origin.limits.MaxRetryAfter)
	default:
		p.hearLeft(now, pm, s, statement{
			remaining: lim.Remaining, reset: lim.Reset, resolution: lim.Resolution, grain: grain, clock: lim.Clock, instant: instant,
			after: a.RetryAfter, refused: a.Refused, free: a.free,
		})
	}
}

// readClock returns the instant of a limit's reset. Where the origin names one it is an instant
// of the origin's clock, which showed date: the limit then has how long it is until this clock
// shows it, and by how much that may be off.
func (o *origin) readClock(now time.Time, lim *ServiceLimit, date time.Time) (instant time.Time) {
	if !lim.Clock || lim.Reset < 0 || date.IsZero() {
		return now.Add(lim.Reset)
	}
	if instant = date.Add(lim.Reset); lim.Reset == 0 {
		return instant
	}
	reset, by := o.clock.until(now, instant)
	lim.Reset, lim.Resolution = reset, lim.Resolution+by
	return instant
}

// hearReset takes in what the reset of a limit tells of the slot's window.
func (p *partition) hearReset(now, instant time.Time, s *slot, lim *ServiceLimit, grain time.Duration) {
	if s.ledger.said.IsZero() && s.habit.onRefusals && p.learner.accepted == s.policy.Quota { // they used it up
		s.inference.firstThen, s.inference.usedThen = p.learner.since, s.accepted()-s.policy.Quota
	}
	s.inferFrom(now, instant, lim, grain)
	if lim.Clock {
		s.sharpen(&p.origin.clock, grain)
	}
	s.inference.resetSaid = now.Add(min(lim.Reset, p.origin.limits.MaxRetryAfter))
}

// hearLeft takes in what the answer to pm's request says of a slot that is kept to.
func (p *partition) hearLeft(now time.Time, pm *Permit, s *slot, st statement) {
	c := pm.charge(s)
	again := c.settled
	c.told = st.remaining
	switch {
	case st.refused && st.remaining == 0:
		s.settleRefused(now, c)
	case st.free:
		s.settleFree(now, c)
	default:
		s.settle(now, pm.start, c)
	}
	if s.ledger.said.IsZero() {
		s.capacity.most = st.remaining + p.learner.accepted + s.ledger.own.inFlight // all that went before may have been of it
		s.habit.atOnce = p.learner.last.IsZero() && !st.refused
		s.habit.ours = s.ledger.adopt(now, p.learner.accepted, st.remaining, &s.terms)
	}
	switch {
	case st.refused:
		s.habit.inRow = 0
	case s.habit.late(&s.policy):
		s.habit.spoke(pm.route())
	}
	s.keepToCapacity(now, c, &st)
	room := s.ledger.room(now, &s.terms)
	first := !s.ledger.stated && c.epoch == s.ledger.epoch
	counts := s.counts(c, &st)
	s.inferFromTurn(now, pm.start, c, &st)
	capped := s.ledger.hear(now, pm.start, c, &s.terms, st, p.origin.limits.MaxRetryAfter)
	if counts { // it may have become less; that it was not all there is known by now
		s.guess(st.remaining + c.n)
	}
	s.hearHinting(now, c, &st, first, again)
	if after := s.ledger.room(now, &s.terms); after < room || now.Before(s.ledger.closed) {
		p.news = true
	}
	switch {
	case st.remaining != 0:
		s.capped = s.capped && !s.isOpen(now)
	case capped:
		p.cut(now, s)
	default:
		s.capped = false
	}
}

// isOpen reports whether an announced policy has any units left for now.
func (s *slot) isOpen(now time.Time) bool { return s.ledger.room(now, &s.terms) > 0 }

// cut tells, once until that is over, that a policy holds for longer than is waited for.
func (p *partition) cut(now time.Time, s *slot) {
	if s.capped {
		return
	}
	p.uncut(now)
	s.capped = true
	p.cuts = append(p.cuts, s)
	most := p.origin.limits.MaxRetryAfter
	p.emit(Event{
		Kind: EventPaused, Time: now, Cause: CausePolicy, Policy: s.policy.Name, Bucket: shownBudget(s.budget),
		Wait: most, Max: most, Timed: true, Capped: true,
	})
}

// uncut tells of policies that hold for longer than is waited for no more.
func (p *partition) uncut(now time.Time) {
	p.cuts = slices.DeleteFunc(p.cuts, func(s *slot) bool {
		still := s.capped && slices.Contains(p.slots, s)
		if !still {
			p.emit(Event{Kind: EventResumed, Time: now, Cause: CausePolicy, Policy: s.policy.Name, Bucket: shownBudget(s.budget)})
		}
		return !still
	})
}

// charge returns what the permit took of s; where it went before s was known,
// an account that never stood open.
func (pm *Permit) charge(s *slot) *charge {
	for i := range pm.charges {
		if pm.charges[i].slot == s {
			return &pm.charges[i]
		}
	}
	return &charge{slot: s, settled: true, sent: s.ledger.sent, answered: s.ledger.answered, said: unlimited, epoch: s.ledger.epoch}
}

// remaining returns the least left over all policies that hold a lane; -1:
// unknown.
func (p *partition) remaining(now time.Time, l *lane) int64 {
	return p.shared.least(p.remainingHere(now, l))
}

// remainingHere is remaining as far as this process knows by itself.
func (p *partition) remainingHere(now time.Time, l *lane) int64 {
	least := int64(-1)
	for _, s := range p.slots {
		if !s.enforced() || !s.holds(l) || s.policy.Unit == UnitContentBytes {
			continue
		}
		if r := s.left(now); r >= 0 && r < unlimited/2 && (least < 0 || r < least) {
			least = r
		}
	}
	return least
}
