package heed

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// hear takes in what the answer to pm's request says, and what its coming
// means. status 0: no answer, but news from elsewhere.
func (p *partition) hear(now time.Time, pm *Permit, status int, a *Announcement) {
	o := p.origin
	p.touch(now)
	first := status != 0 && !pm.answered
	if first {
		p.answered(now, pm)
	}
	told, l := false, (*lane)(nil)
	if !o.limits.IgnoreHeaders {
		told, l = p.hearPolicies(now, pm, a, first)
	}
	if first {
		for i := range pm.charges {
			c := &pm.charges[i]
			switch {
			case c.settled:
			case a.Cached:
				c.slot.refund(now, c)
				c.n = 0
				pm.counts = false // nor do its bytes
			default:
				c.slot.settle(now, pm.start, c)
				if c.due && c.slot.habit.last.Before(now) {
					c.slot.habit.missed()
				}
			}
		}
		p.fade(now)
	}
	if a.Reduced {
		p.cap.reduce(p.unanswered + 1)
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
		p.emit(Event{Kind: kind, Time: now, Status: status, Latency: now.Sub(pm.start), Attempt: pm.attempt, Remaining: p.remaining(now, p.laneNow(pm, l))})
	}
}

// answered notes that pm's request is no longer unanswered.
func (p *partition) answered(now time.Time, pm *Permit) {
	pm.answered = true
	p.unanswered--
	pm.gone()
	p.slowest = max(now.Sub(pm.start), p.slowest-p.slowest/8)
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
			o.well(now, serial, told || o.contact && !cached && p.bounded(l))
		}
	}
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

// hearPolicies takes in the policies and service limits of an announcement;
// it reports whether a remaining count was among them, and the lane of the
// budgets it names. first: it is the answer to pm's request.
func (p *partition) hearPolicies(now time.Time, pm *Permit, a *Announcement, first bool) (told bool, l *lane) {
	var buckets []string
	if !a.Date.IsZero() {
		p.origin.clock.hear(now, pm.start, a.Date)
	}
	if p.origin.majors == nil {
		p.origin.majors = a.majors
	}
	if first {
		p.hearNames(now, pm, a)
	}
	for _, pol := range a.Policies {
		if pol.Unit == "" {
			pol.Unit = UnitRequests
		}
		pol.Burst = 0
		name := p.bucketNamed(pm, a, pol.Name, pol.PartitionKey)
		if name != "" {
			buckets = append(buckets, name)
		}
		p.announced(now, pol, p.origin.ownBuckets(name, pm.path))
	}
	for _, lim := range a.Limits {
		name := p.bucketNamed(pm, a, lim.Policy, lim.PartitionKey)
		if name != "" {
			buckets = append(buckets, name)
		}
		bucket := p.origin.ownBuckets(name, pm.path)
		s := p.limited(bucket, &lim)
		made := s == nil || s.habit.last.Equal(now) && s.ledger.said.IsZero()
		if s == nil {
			s = p.announced(now, Policy{Name: lim.Policy, Unit: cmp.Or(lim.Unit, UnitRequests), PartitionKey: lim.PartitionKey}, bucket)
		}
		if s == nil {
			continue
		}
		s.heard()
		s.habit.said(now)
		s.habit.left(lim.Remaining, a.Refused, made)
		told = told || lim.Remaining >= 0
		if a.Refused && a.RetryAfter > 0 && lim.Remaining == 0 && lim.Reset > a.RetryAfter {
			lim.Reset = a.RetryAfter // which takes precedence (draft-11, section 7)
		}
		p.hearLimit(now, pm, s, lim, a, a.Dialect != "" && !strings.HasPrefix(a.Dialect, "ietf-"))
	}
	return told, p.belongs(now, pm, a, buckets, first)
}

// limited returns the slot that a service limit of a budget is about, nil where
// there is none.
func (p *partition) limited(bucket string, lim *ServiceLimit) *slot {
	s := p.slotIn(bucket, lim.Policy, lim.PartitionKey)
	if s == nil && lim.PartitionKey != "" {
		s = p.slotIn("", lim.Policy, "") // the policy names no partition key
	}
	return s
}

// hearLimit takes in what an answer says of one slot. known: it is in the dialect
// of a service.
func (p *partition) hearLimit(now time.Time, pm *Permit, s *slot, lim ServiceLimit, a *Announcement, known bool) {
	if c := &p.origin.clock; lim.Clock && lim.Reset > 0 && !a.Date.IsZero() {
		by := time.Duration(0)
		lim.Reset, by = c.until(now, a.Date.Add(lim.Reset))
		lim.Resolution += by
	}
	if lim.Reset >= 0 {
		if s.policy.Window == 0 && lim.Remaining != 0 { // a window is as long as the longest wait for its end
			s.infer(lim.Reset, lim.Resolution)
		}
		s.resetSaid = now.Add(min(lim.Reset, p.origin.limits.MaxRetryAfter))
	}
	if s.policy.Unit == UnitConcurrentRequests {
		if s.said.Quota == 0 && lim.Remaining >= 0 {
			s.policy.Quota = max(s.inFlight+lim.Remaining, 1)
			s.terms.Quota = s.policy.Quota
		}
		return
	}
	if !s.enforced() {
		s.show(now, pm.start, &lim, known, p.origin.limits.MaxRetryAfter)
		return
	}
	c := pm.charge(s)
	if a.Refused && lim.Remaining == 0 {
		s.settleRefused(now, pm.start, c)
	} else {
		s.settle(now, pm.start, c)
	}
	if s.ledger.said.IsZero() {
		s.ledger.adopt(now, p.learner.accepted, lim.Remaining, &s.terms)
	}
	room := s.ledger.room(now, &s.terms)
	capped := s.ledger.hear(now, pm.start, c, &s.terms, statement{
		remaining: lim.Remaining, reset: lim.Reset, resolution: lim.Resolution, clock: lim.Clock, refused: a.Refused,
	}, p.origin.limits.MaxRetryAfter)
	if after := s.ledger.room(now, &s.terms); after < room || now.Before(s.ledger.closed) {
		p.news = true
	}
	if lim.Remaining == 0 {
		if capped {
			p.cut(now, s)
		}
		s.capped = capped
	}
}

// cut tells, once, that a policy holds for longer than is waited for.
func (p *partition) cut(now time.Time, s *slot) {
	if s.capped {
		return
	}
	s.capped = true
	most := p.origin.limits.MaxRetryAfter
	p.emit(Event{Kind: EventPaused, Time: now, Cause: CausePolicy, Policy: s.policy.Name, Wait: most, Max: most, Timed: true, Capped: true})
}

// charge returns what the permit took of s; where it went before s was known,
// an account that never stood open.
func (pm *Permit) charge(s *slot) *charge {
	for i := range pm.charges {
		if pm.charges[i].slot == s {
			return &pm.charges[i]
		}
	}
	return &charge{slot: s, settled: true, sent: s.ledger.sent, answered: s.ledger.answered, epoch: s.ledger.epoch}
}

// mostSlots bounds the policies for all requests that a server can have heed
// remember per partition, and mostBudgets those together with the budgets of some.
const (
	mostSlots   = 64
	mostBudgets = 256
)

// announced returns the slot of a policy that was announced, made or changed
// to fit; nil where there are too many.
func (p *partition) announced(now time.Time, pol Policy, bucket string) *slot {
	s := p.slotIn(bucket, pol.Name, pol.PartitionKey)
	switch {
	case s == nil && !p.hasRoom(now, bucket):
		return nil
	case s == nil:
		s = newSlot(pol, SourceAnnounced)
		s.bucketName = bucket
		p.slots = append(p.slots, s)
		p.charge(now, s)
	case s.said != pol:
		s.said = pol
		s.resize(pol)
	default:
		s.habit.said(now)
		return s
	}
	s.habit.said(now)
	p.news = true
	p.origin.know(knownPolicy{pol, bucket})
	p.emit(Event{Kind: EventLearned, Time: now, Policy: pol.Name, Quota: pol.Quota, Window: pol.Window, Unit: pol.Unit, Remaining: -1})
	return s
}

// know remembers a policy for partitions to come.
func (o *origin) know(pol knownPolicy) {
	o.opened = false
	i := slices.IndexFunc(o.known, func(k knownPolicy) bool {
		return k.Name == pol.Name && k.PartitionKey == pol.PartitionKey && k.bucket == pol.bucket
	})
	switch {
	case i >= 0:
		o.known[i] = pol
	case len(o.known) < mostSlots:
		o.known = append(o.known, pol)
	}
}

// fade drops announced policies that are no longer announced.
func (p *partition) fade(now time.Time) {
	o := p.origin
	p.slots = slices.DeleteFunc(p.slots, func(s *slot) bool {
		if !s.faded(now) {
			return false
		}
		o.known = slices.DeleteFunc(o.known, func(k knownPolicy) bool {
			return k.Name == s.policy.Name && k.PartitionKey == s.policy.PartitionKey && k.bucket == s.bucketName
		})
		p.news = true
		p.openBucket(now, s.bucketName) // as if it had never been announced
		return true
	})
}

// refused takes in that pm's request was turned away for a limit. l is the lane
// of the budgets the answer names.
func (p *partition) refused(now time.Time, pm *Permit, status int, a *Announcement, l *lane) {
	o := p.origin
	p.refusals++
	whole := status == 503
	b := &p.backoff
	if whole {
		b = &o.backoff
	}
	counted := p.laneNow(pm, l)
	if whole || !p.scoped(pm, a, l) {
		l = nil
	} else {
		b = &l.backoff
	}
	before := b.began
	fresh := b.event(now, pm.start) && !pm.doubted
	hint := hintOf(a, o.limits.IgnoreHeaders)
	limit := l == nil && !p.explains(a) && p.suspects(now, pm, status)
	if limit {
		p.learnRefused(now, pm, fresh, hint > 0, whole && hint > 0)
	}
	switch {
	case hint > 0:
		p.refusedUntil(now, pm, hint, fresh, whole, b.n, a, l, counted)
	case p.inFlightLearned() != nil:
		// It goes again when another one ends.
	case limit && p.learner.low > 0:
		if wait := p.learner.pauseFor(now, b.n); fresh && p.pause.extend(now.Add(wait)) {
			p.opening.restart(now)
			p.paused(now, Event{Cause: CausePolicy, Policy: learnedPolicy, Wait: wait, InARow: b.n})
		}
	default:
		if fresh || b.blind == 0 {
			b.blind++
		}
		wait := backoffWait(b.blind, o.limits.MinBackoff, o.limits.MaxBackoff)
		pm.retryAt = now.Add(wait)
		if fresh && (limit || !p.succeededSince(before, now)) && p.pause.extend(now.Add(wait)) {
			p.pause.doubtful, p.pause.path, p.pause.began, p.pause.tried = true, pm.path, now, false
			p.paused(now, Event{Cause: CausePause, Wait: wait, InARow: b.n})
		}
	}
}

// asked takes in that what shares pm's quota is to be left alone for a while,
// though nothing was refused.
// Where the budget has no name it is that of requests to the same method of
// the API.
func (p *partition) asked(now time.Time, pm *Permit, a *Announcement, l *lane) {
	if l == nil && !a.Global && !p.origin.limits.IgnoreHeaders {
		key := pm.route()
		if t := p.origin.routes; t != nil && t.known[key] != "" {
			key = t.known[key]
		}
		p.learnRoute(now, pm, key)
		l = p.lane(now, p.origin.ownBuckets(key, pm.path))
	}
	e := Event{Cause: CausePause, Wait: a.RetryAfter, Timed: true}
	if most := p.origin.limits.MaxRetryAfter; e.Wait > most {
		e.Wait, e.Capped = most, true
	}
	held := &p.pause
	if l != nil {
		held, e.Bucket = &l.pause, l.shown()
	}
	longer := held.holds(now)
	if !held.extend(now.Add(e.Wait)) {
		return
	}
	held.doubtful, p.news = false, true
	if !longer {
		p.paused(now, e)
	}
}

// explains reports whether a refusal is what an announced policy foretold, so
// that there is nothing to learn.
func (p *partition) explains(a *Announcement) bool {
	if p.origin.limits.IgnoreHeaders {
		return false
	}
	for _, l := range a.Limits {
		if l.Remaining == 0 {
			return true
		}
	}
	return len(a.Violated) > 0
}

// hintOf returns how long a refusal asks to wait; 0: it does not say. What
// Retry-After says takes precedence over the fields (draft-11, section 7).
func hintOf(a *Announcement, ignoreFields bool) time.Duration {
	if a.RetryAfter > 0 || ignoreFields {
		return max(a.RetryAfter, 0)
	}
	var hint time.Duration
	for _, l := range a.Limits {
		if l.Remaining == 0 && l.Reset > 0 {
			hint = max(hint, l.Reset)
		}
	}
	return hint
}

// hintBeside is hintOf for those limits that no ledger keeps to: what they
// count, nobody on this side can count, or it has no window, or the request
// refused was said not to cost any.
func (p *partition) hintBeside(pm *Permit, a *Announcement) time.Duration {
	var hint time.Duration
	for i := range a.Limits {
		l := &a.Limits[i]
		if s := p.limited(p.bucketOf(pm, a, l.Policy, l.PartitionKey), l); l.Remaining == 0 && (s == nil || !s.closes() || pm.free(s.policy.Unit)) {
			hint = max(hint, l.Reset)
		}
	}
	return hint
}

// refusedUntil holds what shares the refused quota for as long as a refusal
// asks: the policies a problem document names, else the lane l, or where that
// is nil the partition, for a 503 the origin.
func (p *partition) refusedUntil(now time.Time, pm *Permit, hint time.Duration, fresh, whole bool, inARow int, a *Announcement, l, counted *lane) {
	o := p.origin
	if a.RetryAfter <= 0 && !whole && !a.Global {
		if hint = p.hintBeside(pm, a); hint <= 0 {
			return // the ledgers have it from the fields
		}
	}
	most := o.limits.MaxRetryAfter
	e := Event{Cause: CausePause, Wait: hint, Timed: true, Whole: whole, InARow: inARow}
	if hint > most {
		hint, e.Wait, e.Capped = most, most, true
	}
	until := now.Add(hint)
	if fresh {
		until = until.Add(pauseJitter(hint))
	}
	if !whole && p.closeViolated(until, a, counted) {
		if len(pm.costs) > 0 {
			pm.retryAt = until // whatever it was said to cost
		}
		return
	}
	held := &p.pause
	switch {
	case whole:
		held = &o.pause
	case l != nil:
		held, e.Bucket = &l.pause, l.shown()
	}
	longer := held.holds(now)
	if !held.extend(until) {
		return
	}
	held.doubtful = false
	if whole {
		for _, q := range o.partitions {
			q.news = true
			q.opening.restart(now)
		}
	} else if l != nil {
		l.opening.restart(now)
	} else {
		p.opening.restart(now)
	}
	if fresh || !longer {
		p.paused(now, e)
	}
	p.news = true
}

// closeViolated closes the policies that a problem document names, of those
// that hold a lane, and reports whether there are any such.
func (p *partition) closeViolated(until time.Time, a *Announcement, l *lane) (any bool) {
	for _, s := range p.slots {
		if s.source == SourceAnnounced && slices.Contains(a.Violated, s.policy.Name) && s.closes() && s.holds(l) {
			s.ledger.closed = latest(s.ledger.closed, until)
			p.news, any = true, true
		}
	}
	return any
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
	if manual := o.pause.manual; o.pause.over(now) {
		o.stirred = true
		p.emit(Event{Kind: EventResumed, Time: now, Whole: true, Manual: manual})
	}
}

// passesDoubt reports whether a may go although the partition is paused: it
// is in doubt whether more than one path is being refused, and a asks for
// another one, or whether it was only for too many at once.
func (p *partition) passesDoubt(a *ask) bool {
	return p.pause.doubtful && !p.pause.tried && (p.learner.testing && p.unanswered == 0 || a.path != p.pause.path)
}

// remaining returns the least left over all policies that hold a lane; -1:
// unknown.
func (p *partition) remaining(now time.Time, l *lane) int64 {
	least := int64(-1)
	for _, s := range p.slots {
		if !s.enforced() || !s.holds(l) || s.policy.Unit == UnitContentBytes {
			continue
		}
		if r := s.remaining(now); r >= 0 && r < unlimited/2 && (least < 0 || r < least) {
			least = r
		}
	}
	return p.shared.least(least)
}
