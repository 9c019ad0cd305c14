package heed

import (
	"slices"
	"time"
)

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
	if l != nil {
		pm.budgets = l.key
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
	asked, chance, strict := hint, false, false
	limit := (l == nil || p.only(l)) && !p.explains(now, pm, a) && p.suspects(now, pm, status)
	switch {
	case !limit:
	case p.learner.late(pm):
		fresh = false
	default:
		if !a.Global && p.suspectRoute(now, pm, fresh) && p.canSplit() {
			p.split(now)
			limit = false
			break
		}
		if strict = p.keepsStrictly(now, pm, hint); strict {
			limit = false
			break
		}
		var excess bool
		if chance, excess = p.byChance(now, pm, fresh, hint); excess {
			fresh, b.began, b.blind = true, now, 0 // with all that was on its way
		}
		if limit = !chance; limit {
			p.learnRefused(now, pm, fresh, hint, whole)
		}
		hint = p.learner.lengthened(hint, whole)
	}
	if fresh && hint <= 0 {
		b.blind++
	}
	switch {
	case hint > 0:
		p.refusedUntil(now, pm, asked, hint, fresh, whole, b.n, a, l, counted)
	case strict, p.inFlightLearned() != nil:
		// It goes again when another one ends.
	case limit && p.learner.rate.low > 0:
		if wait := p.learner.pauseFor(now, b.blind, o.limits.MaxBackoff); fresh && p.pause.extend(now.Add(wait)) {
			p.opening.restart(now)
			p.paused(now, Event{Cause: CausePolicy, Policy: learnedPolicy, Wait: wait, InARow: b.n})
		}
	default:
		wait := backoffWait(max(b.blind, 1), o.limits.MinBackoff, o.limits.MaxBackoff)
		pm.retryAt = now.Add(wait)
		if own, known := p.untilMore(now, pm, a, b.blind); known && !chance && !p.lastWell.IsZero() {
			pm.retryAt = now.Add(own)
		}
		if fresh && !chance && (limit || !p.succeededSince(before, now)) && !p.heldByLedger(now, pm) && p.pause.extend(now.Add(wait)) {
			p.pause.doubtful, p.pause.path, p.pause.began, p.pause.tried = true, pm.path, now, false
			p.paused(now, Event{Cause: CausePause, Wait: wait, InARow: b.n})
		}
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
		l = p.lane(now, p.origin.ownBuckets(key, pm.path))
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
// that there is nothing to learn. One that says nothing of it turns away who went first
// after all was used up: it is not back yet.
func (p *partition) explains(now time.Time, pm *Permit, a *Announcement) bool {
	if p.origin.limits.IgnoreHeaders {
		return false
	}
	for i := range pm.charges {
		if c := &pm.charges[i]; c.slot.source == SourceAnnounced && c.slot.ledger.awaits(c) && c.slot.ledger.notYet(now, &c.slot.terms) {
			return true
		}
	}
	for _, l := range a.Limits {
		if l.Remaining == 0 {
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

// only reports whether no other budgets are known than those of a lane: what it is
// refused for holds all requests then, as far as is known.
func (p *partition) only(l *lane) bool {
	return !slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.holds(l) })
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
func (p *partition) hintBeside(now time.Time, pm *Permit, a *Announcement) time.Duration {
	var hint time.Duration
	for i := range a.Limits {
		l := &a.Limits[i]
		if s := p.limited(now, p.bucketOf(pm, a, l.Policy, l.PartitionKey), l); l.Remaining == 0 && (s == nil || !s.closes() || pm.free(s.policy.Unit)) {
			hint = max(hint, l.Reset)
		}
	}
	return hint
}

// refusedUntil holds what shares the refused quota for as long as a refusal asks, or for hint
// where that was longer than asked before: the policies a problem document names, else the
// lane l, or where that is nil the partition, for a 503 the origin.
func (p *partition) refusedUntil(now time.Time, pm *Permit, asked, hint time.Duration, fresh, whole bool, inARow int, a *Announcement, l, counted *lane) {
	o := p.origin
	if a.RetryAfter <= 0 && !whole && !a.Global {
		if hint = p.hintBeside(now, pm, a); hint <= 0 {
			return // the ledgers have it from the fields
		}
		asked = hint
	}
	most := o.limits.MaxRetryAfter
	e := Event{Cause: CausePause, Wait: hint, Timed: true, Whole: whole, InARow: inARow}
	if hint > most {
		hint, e.Wait, e.Capped = most, most, true
	}
	if hint > asked {
		e.Asked = asked
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
	if held == &p.pause && (a.Global || !p.suspect.isFor(pm)) {
		p.suspect.holdOthers(now, until)
	}
	if !held.obey(now, until) {
		return
	}
	held.doubtful = false
	if whole {
		for _, q := range o.partitions {
			q.news = true
			q.opening.restart(now)
		}
		o.stirred = true
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
	if len(p.cuts) > 0 {
		p.uncut(now)
	}
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
