package heed

import (
	"math"
	"time"
)

// A verdict says when a request may go, as far as is known now, and what
// holds it until then.
type verdict struct {
	at     time.Time // not before this; the instant it was judged at: it may go
	events bool      // at alone does not free it: something has to happen first
	asks   bool      // a shared ledger has to be asked, and nothing else holds it
	cause  Cause
	policy string
}

// hold moves the verdict back to at, or until an event where known is false.
func (v *verdict) hold(at time.Time, known bool, cause Cause, policy string) {
	switch {
	case !known:
		if !v.events {
			v.cause, v.policy = cause, policy
		}
		v.events = true
	case at.After(v.at):
		v.at = at
		if !v.events {
			v.cause, v.policy = cause, policy
		}
	}
}

// goes reports whether the request may go at now.
func (v *verdict) goes(now time.Time) bool { return !v.events && !v.at.After(now) }

// judge says when a may go if n requests that stand for units go before it.
// Every limit is judged at one instant, and nothing is taken.
func (p *partition) judge(now time.Time, a *ask, n int, units int64) verdict {
	o, l := p.origin, p.origin.limits
	v := verdict{at: now}
	p.unpause(now)
	v.hold(a.notBefore, true, CauseBackoff, "")
	v.hold(o.pause.until, true, CausePause, "")
	if !p.passesDoubt(a) {
		v.hold(p.pause.until, true, CausePause, "")
	}
	if d := max(l.MinInterval, a.opts.minInterval); d > 0 && (!o.lastStart.IsZero() || n > 0) {
		from := o.lastStart
		if from.IsZero() {
			from = now.Add(-d)
		}
		v.hold(from.Add(d).Add(time.Duration(n)*l.MinInterval), true, CauseInterval, "")
	}
	if l.MinPause > 0 {
		if o.inFlight > 0 {
			v.hold(now, false, CauseInterval, "")
		} else if !o.lastEnd.IsZero() {
			v.hold(o.lastEnd.Add(l.MinPause), true, CauseInterval, "")
		}
	}
	if l.MaxConcurrent > 0 && o.inFlight >= l.MaxConcurrent || !p.cap.free(p.unanswered) {
		v.hold(now, false, CauseConcurrency, "")
	}
	for _, s := range p.slots {
		if !s.enforced() {
			continue
		}
		if s.turn(now) {
			p.opening.start(now)
			p.news = true
		}
		if s.source == SourceAnnounced && p.shared.judges() {
			continue
		}
		at, known := s.free(now, p.cost(s, a)+p.costAhead(s, n, units), n == 0 && p.queue.len > 1)
		v.hold(at, known, CausePolicy, s.policy.Name)
	}
	if at, ok := p.opening.free(now, p.patience()); !ok {
		v.hold(at, true, CauseScout, "")
	}
	if n == 0 && v.goes(now) {
		p.smooth(now)
		v.hold(p.smoother.free(now, a.units()), true, CauseSmoother, p.smoother.policy)
	}
	p.judgeShared(now, a, &v)
	return v
}

// cost is what a takes of s: as its context says, or one request, or the
// largest recent number of bytes.
func (p *partition) cost(s *slot, a *ask) int64 {
	switch s.policy.Unit {
	case UnitRequests:
		return min(a.cost(UnitRequests, 1), s.most())
	case UnitContentBytes:
		return min(a.cost(UnitContentBytes, s.estimate), s.most())
	default:
		return a.cost(s.policy.Unit, 1) // above the quota it never fits: see impossible
	}
}

// costAhead is what n requests that stand for units take of s.
func (p *partition) costAhead(s *slot, n int, units int64) int64 {
	switch s.policy.Unit {
	case UnitRequests:
		return units
	case UnitContentBytes:
		return int64(n) * s.estimate
	}
	return 0
}

// impossible returns the concurrency limit that a can never fit into.
func (p *partition) impossible(a *ask) *slot {
	for _, s := range p.slots {
		if s.policy.Unit == UnitConcurrentRequests && p.cost(s, a) > s.policy.Quota {
			return s
		}
	}
	return nil
}

// smooth sets the smoother to the pace of the slot that binds most.
func (p *partition) smooth(now time.Time) {
	sm := &p.origin.limits.Smoothing
	waiting := p.queue.units()
	least, interval, policy := math.Inf(1), sm.Interval, ""
	for _, s := range p.slots {
		if !s.enforced() {
			continue
		}
		pace := s.pace(now, p.costAhead(s, p.queue.len, waiting), sm)
		if s.policy.Unit == UnitContentBytes && s.estimate > 0 {
			pace /= float64(s.estimate)
		}
		if pace < least {
			least, interval, policy = pace, micro(sm, s.policy.Window), s.policy.Name
		}
	}
	p.smoother.set(now, least, interval, policy)
}

// admit takes what a costs of every limit, all at the instant it was judged.
func (p *partition) admit(now time.Time, a *ask) *Permit {
	o := p.origin
	pm := &Permit{p: p, start: now, path: a.path, number: a.number, attempt: a.attempt}
	pm.charges = pm.inline[:0]
	pm.slots = o.limits.MaxConcurrent > 0 || o.limits.MinPause > 0 || p.cap.limit > 0
	for _, s := range p.slots {
		if s.enforced() {
			pm.charges = append(pm.charges, s.take(now, p.cost(s, a)))
			pm.counts = pm.counts || s.policy.Unit == UnitContentBytes
			pm.slots = pm.slots || s.policy.Unit == UnitConcurrentRequests
		}
	}
	p.smoother.take(now, a.units())
	pm.serial = p.opening.take(now)
	pm.grant = p.shared.use()
	if p.pause.doubtful && p.pause.holds(now) {
		p.pause.tried, pm.doubted = true, true
	}
	pm.lastStart, o.lastStart = o.lastStart, now
	o.inFlight++
	p.inFlight.add(pm)
	p.unanswered++
	pm.level = p.unanswered
	pm.waited = now.Sub(a.arrived)
	o.waited += pm.waited
	p.waited += pm.waited
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

// touch notes that the partition is in use.
func (p *partition) touch(now time.Time) { p.lastUsed, p.origin.lastUsed = now, now }

// wants counts demand, for the smoother.
func (p *partition) wants(now time.Time, a *ask) {
	for _, s := range p.slots {
		if n := p.cost(s, a); n > 0 && s.enforced() {
			s.demand.add(now, n, s.span(now))
		}
	}
}

// wake admits every waiting request of the partition that may go now, and
// sets the timer for the next. Where the origin has limits over all its
// partitions, all of them are looked at, first come first served.
func (p *partition) wake(now time.Time) {
	o := p.origin
	if len(o.partitions) == 1 || !o.hasCommonLimits(now) {
		p.settleDeadlines(now)
		for p.wakeHead(now) {
		}
		return
	}
	o.wake(now)
}

// hasCommonLimits reports whether partitions hold each other up.
func (o *origin) hasCommonLimits(now time.Time) bool {
	l := o.limits
	return l.MinInterval > 0 || l.MinPause > 0 || l.MaxConcurrent > 0 || o.pause.open
}

// wake admits every waiting request of the origin that may go now.
func (o *origin) wake(now time.Time) {
	var heads []*partition
	for _, p := range o.partitions {
		p.settleDeadlines(now)
		p.unpark(now)
		if p.queue.len+len(p.parked) > 0 {
			heads = append(heads, p)
		}
	}
	for len(heads) > 0 {
		first := 0
		for i, p := range heads {
			if before(p.queue.head(), heads[first].queue.head()) {
				first = i
			}
		}
		if p := heads[first]; !p.wakeHead(now) {
			heads[first] = heads[len(heads)-1]
			heads = heads[:len(heads)-1]
		}
	}
}

// before reports whether a goes before b; nobody goes last.
func before(a, b *waiter) bool {
	if a == nil || b == nil {
		return a != nil
	}
	if a.opts.priority != b.opts.priority {
		return a.opts.priority > b.opts.priority
	}
	return a.number < b.number
}

// wakeHead admits the head of the queue if it may go. Else it sets the timer
// and reports false.
func (p *partition) wakeHead(now time.Time) bool {
	p.unpark(now)
	w := p.next(now)
	if w == nil {
		p.setAlarm(p.nextParked())
		return false
	}
	v := p.judge(now, &w.ask, 0, 0)
	w.cause, w.policy = v.cause, v.policy
	if !v.goes(now) {
		if v.asks {
			p.askLedger(w)
		}
		at := v.at
		if v.events && !at.After(now) {
			at = time.Time{} // an event will wake it
		}
		p.setAlarm(soonest(at, p.nextParked()))
		return false
	}
	p.leave(w)
	w.resolve(p.admit(now, &w.ask), nil)
	return true
}

// next returns the waiter whose turn it is: the head of the queue, or, while
// it is in doubt whether more than one path is being refused, the first that
// asks for another path.
func (p *partition) next(now time.Time) *waiter {
	head := p.queue.head()
	if head == nil || !p.pause.doubtful || p.pause.tried || !p.pause.holds(now) {
		return head
	}
	found := head
	p.queue.all(func(w *waiter, _ int, _ int64) {
		if found.path == p.pause.path && w.path != p.pause.path {
			found = w
		}
	})
	return found
}

func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// setAlarm has the partition woken at an instant; zero: not by time.
func (p *partition) setAlarm(at time.Time) {
	if p.timer != nil {
		if p.alarm.Equal(at) {
			return
		}
		p.timer.Stop()
		p.timer = nil
	}
	if at.IsZero() {
		return
	}
	p.alarm = at
	// A new timer each time: one made in another synctest bubble must not be
	// touched from this one.
	p.timer = time.AfterFunc(time.Until(at), func() { p.ring(at) })
}

// ring is the alarm going off.
func (p *partition) ring(at time.Time) {
	o := p.origin
	o.mu.Lock()
	if p.alarm.Equal(at) {
		p.timer = nil
	}
	p.wake(time.Now())
	o.mu.Unlock() // events are told by the requests it woke
}

// join puts w in line, or aside until its own next try.
func (p *partition) join(now time.Time, w *waiter) {
	p.origin.waiting++
	if w.notBefore.After(now) {
		p.parked = append(p.parked, w)
		return
	}
	p.queue.push(w)
}

// leave takes w out of line.
func (p *partition) leave(w *waiter) {
	if w.queue != nil {
		w.queue.remove(w)
		p.origin.waiting--
		return
	}
	for i, x := range p.parked {
		if x == w {
			p.parked = append(p.parked[:i], p.parked[i+1:]...)
			p.origin.waiting--
			return
		}
	}
}

// unpark puts those in line whose own wait is over.
func (p *partition) unpark(now time.Time) {
	parked := p.parked[:0]
	for _, w := range p.parked {
		if w.notBefore.After(now) {
			parked = append(parked, w)
		} else {
			p.queue.push(w)
		}
	}
	clear(p.parked[len(parked):])
	p.parked = parked
}

func (p *partition) nextParked() time.Time {
	var at time.Time
	for _, w := range p.parked {
		at = soonest(at, w.notBefore)
	}
	return at
}

// settleDeadlines refuses, where something has changed, those waiting that
// can no longer start in time.
func (p *partition) settleDeadlines(now time.Time) {
	if !p.news {
		return
	}
	p.news = false
	if p.queue.deadlines == 0 && len(p.parked) == 0 {
		return
	}
	late := func(w *waiter, n int, units int64) {
		if w.deadline.IsZero() {
			return
		}
		if v := p.judge(now, &w.ask, n, units); w.late(v.at) {
			p.leave(w)
			w.resolve(nil, p.tooLate(now, &w.ask, v))
		}
	}
	p.queue.all(late)
	for _, w := range append([]*waiter(nil), p.parked...) {
		late(w, 0, 0)
	}
}

// late reports whether an instant is too late to start at: a request can wait
// until MaxWait is over, but must start before its context's deadline.
func (a *ask) late(at time.Time) bool {
	return !a.deadline.IsZero() && (at.After(a.deadline) || at.Equal(a.deadline) && !a.maxWait)
}

// tooLate is the error for a request that cannot start before its deadline.
func (p *partition) tooLate(now time.Time, a *ask, v verdict) *LimitError {
	reason := ReasonDeadline
	if a.maxWait {
		reason = ReasonMaxWait
	}
	return p.refusal(now, v, reason)
}

func (p *partition) refusal(now time.Time, v verdict, reason Reason) *LimitError {
	return &LimitError{Origin: p.origin.name, Policy: v.policyName(), Wait: max(v.at.Sub(now), 0), Reason: reason, Cause: v.cause}
}

func (v *verdict) policyName() string {
	if v.cause == CausePolicy || v.cause == CauseSmoother {
		return v.policy
	}
	return ""
}
