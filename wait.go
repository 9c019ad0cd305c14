package heed

import (
	"context"
	"slices"
	"time"
)

// ask grants a permit, refuses, or puts the request in line. o.mu is held.
func (p *partition) ask(ctx context.Context, a *ask) (*waiter, *Permit, error) {
	o, now := p.origin, a.arrived
	l := o.limits
	switch {
	case o.reg.closed.Load():
		return nil, nil, ErrClosed
	case l.Unlimited:
		return nil, &Permit{}, nil
	}
	if a.number == 0 { // with the lock held, so that who comes later stands behind
		a.number = o.reg.number.Add(1)
	}
	p.touch(now)
	a.lane = p.laneOf(now, a)
	if s := p.impossible(a); s != nil {
		return nil, nil, o.refusal(0, s.obstacle(), ReasonCost)
	}
	p.wants(now, a)
	a.limit(ctx, l.MaxWait)
	if o.spaced > 0 && a.opts.noWait { // who may go by now goes first
		o.serve(now)
	}
	pl := p.placeOf(a)
	v := p.judge(now, a, &pl)
	first := pl.n == 0 || a.opts.noWait && p.spreads()
	if first && v.goes(now) {
		v = p.behindKin(now, a, v)
	}
	if first && v.goes(now) && (o.waiting == 0 || a.opts.noWait || !o.hasCommonLimits() && !p.crowded(a)) {
		if a.wentElsewhere() {
			p.wantsNot(now, a)
			return nil, nil, errWentElsewhere
		}
		return nil, p.admit(now, a), nil
	}
	if !a.deadline.IsZero() {
		v = p.behindOthers(now, a, &pl, v)
	}
	mayGo := v.goes(now) // if nobody else does
	if mayGo {
		v.await(now, CauseQueue)
	}
	if err := p.deny(now, a, &v, mayGo); err != nil {
		return nil, nil, err
	}
	if v.events && !v.asks && !o.nested && o.heldBy(ctx) {
		o.nested = true
		p.emit(Event{Kind: eventNested, Time: now, Cause: v.cause})
	}
	w := &waiter{ask: *a, ctx: ctx, origin: o, home: p, ready: make(chan struct{}), held: v.obstacle}
	w.share = 0 // who is late in one line may yet go from another
	p.join(now, w)
	if a.peers != nil {
		a.peers.all = append(a.peers.all, w)
	}
	if p.shared != nil && a.opts.noWait {
		p.shared.hasty = true
		if v.asks && pl.n == 0 && o.shared.asks() { // it does not wait for its turn, either
			p.askLedger(w)
		}
	}
	if !mayGo && !v.asks && o.isOvertakenBy(w) { // else it may yet be taken out of line
		o.wakeAll(now)
	} else {
		p.wake(now)
	}
	if w.over { // those that wait were held by something else
		return w, nil, nil
	}
	if err := p.denyInLine(now, a, w, &v, mayGo); err != nil {
		return nil, nil, err
	}
	w.setExpiry()
	if !v.asks { // else perhaps it need not wait
		p.emit(Event{Kind: EventWaiting, Time: now, Cause: v.cause, Policy: v.policy, Wait: v.at.Sub(now), Total: o.waited, Attempt: a.attempt})
	}
	return w, nil, nil
}

// spreads reports whether nothing but a pace holds the first in each of the partition's lines: then there is room for all
// that wait, as far as that is more than an estimate.
func (p *partition) spreads() bool {
	held := p.origin.limits.Smoothing.always() || slices.ContainsFunc(p.slots, func(s *slot) bool {
		return s.enforced() && s.policy.Unit == UnitContentBytes
	})
	p.queues(func(_ *lane, q *queue) {
		head := q.head()
		held = held || head != nil && head.held.cause != CauseSmoother
	})
	return !held
}

// deny is the error for a request that cannot or may not wait for what holds it,
// before it is put in line. mayGo: nothing does, if none of those before it goes.
func (p *partition) deny(now time.Time, a *ask, v *verdict, mayGo bool) error {
	switch {
	case a.opts.noWait && !v.asks:
		return p.turnedAway(now, a, v.at, v.obstacle, ReasonNoWait)
	case !mayGo && !v.asks && p.isFull(p.origin.waiting):
		return p.turnedAway(now, a, v.at, v.obstacle, ReasonQueueFull)
	case a.misses(v.at):
		return p.turnedAway(now, a, v.at, v.last, a.tooLate())
	}
	return nil
}

// denyInLine is the error for a request that was put in line to see whether it could go
// at once, cannot, and may not wait. It takes it out of line again. Its demand is undone as
// it was counted: by a, for the lane of the one in line may have changed meanwhile.
func (p *partition) denyInLine(now time.Time, a *ask, w *waiter, v *verdict, mayGo bool) error {
	switch {
	case (mayGo || v.asks) && p.isFull(p.origin.waiting-1):
		p.leave(w)
		return p.turnedAway(now, a, v.at, v.obstacle, ReasonQueueFull)
	case a.opts.noWait && !p.asksLedger(): // the ledger is not asked: who is ahead waits for something else
		p.leave(w)
		return p.turnedAway(now, a, v.at, obstacle{cause: CauseQueue}, ReasonNoWait)
	}
	return nil
}

// isFull reports whether nobody may join so many that wait. While the shared ledger is
// being asked it is not known who of them has to.
func (p *partition) isFull(waiting int) bool {
	most := p.origin.limits.MaxQueue
	return most > 0 && !p.asksLedger() && waiting >= most
}

// turnedAway is the error for a request that is refused as it comes. It is as if it had not
// come: others are not to be slowed down for it, however often it comes again. All that is made of it is that somebody asked.
func (p *partition) turnedAway(now time.Time, a *ask, at time.Time, by obstacle, why Reason) error {
	p.wantsNot(now, a)
	p.learner.turnedAway(now, by)
	return p.origin.refusal(at.Sub(now), by, why)
}

// heldBy reports whether ctx is that of a request in flight at the origin,
// one that holds a slot of it.
func (o *origin) heldBy(ctx context.Context) bool {
	pm, ok := ctx.Value(holderKey{}).(*Permit)
	return ok && pm.origin == o && !pm.over
}

// wait waits for w's turn, for as long as ctx allows.
func (w *waiter) wait(ctx context.Context) (*Permit, error) {
	select {
	case <-w.ready:
		return w.permit, w.err
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	late := ctx.Err() == context.DeadlineExceeded // whatever cause the deadline was given
	w.giveUp(late)
	if !late {
		return nil, err
	}
	if w.err != nil {
		return nil, w.err
	}
	return nil, w.expired(time.Now(), ReasonDeadline)
}

// giveUp takes w out of line, or gives back what it was granted meanwhile,
// and wakes the next. late: its deadline is why, and what holds it will be told.
func (w *waiter) giveUp(late bool) {
	now := w.origin.lock()
	p, pm := w.home, w.permit
	if !w.over {
		w.over = true
		if late { // else many who are cancelled at once would each look for their place in line
			w.look(now)
		}
		p.leave(w)
		if w.expiry != nil {
			w.expiry.Stop()
		}
		p.wake(now)
	}
	w.origin.mu.Unlock()
	if pm != nil {
		pm.Cancel()
	}
}

// look notes what holds w now, where it stands behind others: what held it when it came may be over.
func (w *waiter) look(now time.Time) {
	if w.queue == nil || w.queue.head() == w && w.home.first != w { // that one is judged with all that happens
		return
	}
	pl := w.home.placeOf(&w.ask)
	v := w.home.judge(now, &w.ask, &pl)
	if v.goes(now) {
		v.await(now, CauseQueue)
	}
	w.held = v.obstacle
}

// setExpiry has w's wait end when MaxWait is over.
func (w *waiter) setExpiry() {
	if w.expiry != nil {
		w.expiry.Stop()
		w.expiry = nil
	}
	if w.maxWait {
		w.expiry = time.AfterFunc(time.Until(w.deadline), w.expire)
	}
}

// expire is MaxWait being over.
func (w *waiter) expire() {
	now := w.origin.lock()
	defer w.origin.mu.Unlock() // events are told by the request it woke
	p := w.home
	if w.over || !w.maxWait || now.Before(w.deadline) { // or the limits changed
		return
	}
	p.wake(now) // it may be its turn at this very instant
	if !w.over {
		w.look(now)
		p.refuse(w, w.expired(now, ReasonMaxWait))
		p.wake(now)
	}
}

// expired is the error for a request that has waited too long already.
func (w *waiter) expired(now time.Time, why Reason) *LimitError {
	err := w.origin.refusal(now.Sub(w.arrived), w.held, why)
	err.waited = true
	err.tooNear = why == ReasonDeadline && now.Before(w.until)
	return err
}

// tooLate is why a request is refused that cannot start before its deadline.
func (a *ask) tooLate() Reason {
	if a.maxWait {
		return ReasonMaxWait
	}
	return ReasonDeadline
}

// refusal is the error for a request that something holds for longer than it
// can wait.
func (o *origin) refusal(wait time.Duration, by obstacle, why Reason) *LimitError {
	err := &LimitError{Origin: o.name, Policy: by.policy, Wait: max(wait, 0), Reason: why, Cause: by.cause}
	if by.policy == "" || by.source == SourceLearned {
		err.source = by.source
	}
	return err
}
