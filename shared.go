package heed

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"
)

// sharing is a partition's side of a shared ledger. The origin's lock guards
// it, and is free while the ledger is asked. A nil sharing shares nothing.
type sharing struct {
	key    string             // what the ledger calls the partition; "": not asked yet
	cancel context.CancelFunc // ends the question under way; nil: none is
	until  time.Time          // the ledger grants nothing before, as it said last …
	by     obstacle           // … for this
	hand   Grant              // granted, and about to be used …
	paid   Cost               // … by a request of this cost
	left   int64              // as the ledger said last; -1: unknown
	lost   error              // why the ledger's store could not be reached; nil: it could
	hasty  bool               // some wait only for its answer: they asked not to
}

// commonSharing is an origin's side of a shared ledger, over all partitions.
type commonSharing struct {
	asking *sharing  // of the partition whose turn it is: the ledger is asked for it; nil: for none
	until  time.Time // the ledger grants nothing of the origin before, as it said last …
	by     obstacle  // … for this
}

func (s *commonSharing) asks() bool { return s.asking != nil }

// hold holds a request for what holds all of the origin's.
func (s *commonSharing) hold(now time.Time, v *verdict) {
	switch {
	case !s.until.After(now):
	case s.by.cause == CauseConcurrency: // the end of any request may be the end of it
		v.awaitBy(now, s.by)
		v.again = latest(v.again, s.until)
	default:
		v.holdBy(s.until, s.by)
	}
}

// hasSharedLimits reports whether the ledger holds partitions up for each other: it is asked
// for one at a time then, in the order in which they are to go.
func (o *origin) hasSharedLimits() bool {
	l := o.limits
	return l.MinInterval > 0 || l.MinPause > 0 || l.MaxConcurrent > 0
}

func (r *Registry) newSharing() *sharing {
	if r.config.Ledger == nil {
		return nil
	}
	return &sharing{left: -1}
}

// attach begins to listen to the ledger.
func (r *Registry) attach() {
	if r.config.Ledger != nil {
		r.detach = r.config.Ledger.Attach(r.hearNews)
	}
}

// judgeShared holds a request that all limits of this process let go, until
// the ledger does too.
func (p *partition) judgeShared(now time.Time, a *ask, v *verdict) {
	s := p.shared
	if s == nil {
		return
	}
	p.origin.shared.hold(now, v)
	v.holdBy(s.until, s.by)
	if v.goes(now) && (s.hand == nil || s.paid != p.price(a)) {
		v.await(now, CauseLedger)
		v.asks = true
	}
}

// judges reports whether announced policies are the ledger's business: it
// knows what other processes heard and sent, which to this one's books is
// other people's use. Budgets that hold some requests alone, which every
// process has to find out for itself, stay its own.
func (s *sharing) judges(sl *slot) bool {
	return s != nil && s.lost == nil && sl.source == SourceAnnounced && sl.budget == ""
}

// paceOf is a slot's pace. Where the ledger judges it, this process's books
// take what other processes of ours send for other people's use, and have it
// make way for them: the pace is then that of the whole quota, and who gets
// how much of it is the ledger's business.
func (p *partition) paceOf(s *slot, now time.Time, waiting int64, sm *Smoothing) float64 {
	if !p.shared.judges(s) {
		return s.pace(now, waiting, sm)
	}
	t := &s.terms
	if sm.Off || t.Unit == UnitConcurrentRequests || t.Window == 0 || t.Quota == 0 {
		return math.Inf(1)
	}
	left := t.Quota
	if p.shared.left >= 0 {
		left = min(left, p.shared.left)
	}
	if !s.paced(now, t.Window, float64(waiting), float64(left), sm) {
		s.plan = plan{}
		return math.Inf(1)
	}
	s.plan.from = now
	return sm.Velocity * float64(t.Quota) / t.Window.Seconds()
}

// price is what a costs, in the ledger's terms. How many bytes nobody knows is not none.
func (p *partition) price(a *ask) Cost {
	estimate := int64(1)
	for _, s := range p.slots {
		if s.policy.Unit == UnitContentBytes {
			estimate = max(estimate, s.content.estimate)
		}
	}
	return Cost{
		Requests:   a.cost(UnitRequests, 1),
		Bytes:      a.cost(UnitContentBytes, estimate),
		Concurrent: a.cost(UnitConcurrentRequests, 1),
	}
}

// ahead is how many of those behind the head of the queue could go along with
// it, as far as this process can tell.
func (p *partition) ahead(now time.Time) int {
	n := p.queued() - 1
	if o := &p.opening; o.limit > 0 {
		n = min(n, o.limit-o.flying-1)
	}
	if l := p.pacer().limiter; l != nil {
		n = min(n, int(l.TokensAt(now))-1)
	}
	return max(n, 0)
}

func (p *partition) question(a *ask) *Question {
	o, l := p.origin, p.origin.limits
	q := &Question{
		Origin: o.name, Partition: p.shared.key, Cost: p.price(a),
		MinInterval: max(l.MinInterval, a.opts.minInterval), MinPause: l.MinPause, MaxConcurrent: l.MaxConcurrent,
		Waiting: max(p.queued()-1, 0), Ahead: p.ahead(p.origin.now), NoWait: a.opts.noWait, Latency: p.slowest, MaxWait: l.MaxRetryAfter,
		IgnoreHeaders: l.IgnoreHeaders,
	}
	if !l.Smoothing.Off {
		q.Velocity = l.Smoothing.Velocity
	}
	for _, s := range p.slots {
		if s.source == SourceAnnounced && s.budget == "" && s.enforced() {
			q.Announced = append(q.Announced, s.policy)
		}
		if s.source == SourceConfigured {
			q.Policies = append(q.Policies, s.policy)
		}
	}
	return q
}

// askLedger has the ledger asked for w, the head of the queue, unless a
// question is under way already. The goroutine it starts ends with the
// answer, with w's context or with the registry.
func (p *partition) askLedger(w *waiter) {
	s := p.shared
	if s.cancel != nil || w.ctx.Err() != nil { // w is about to leave, and the next one asks
		return
	}
	var ctx context.Context
	var cancel context.CancelFunc
	if w.maxWait {
		ctx, cancel = context.WithDeadline(w.ctx, w.deadline)
	} else {
		ctx, cancel = context.WithCancel(w.ctx)
	}
	s.cancel = cancel
	if p.origin.shared.asking == nil {
		p.origin.shared.asking = s
	}
	q, paid, req, under := p.question(&w.ask), p.price(&w.ask), w.req, p.origin.limits
	go func() {
		defer cancel()
		r := p.origin.reg
		var ans Answer
		err := r.nameShared(ctx, q, req)
		if err == nil {
			ans, err = r.config.Ledger.Take(ctx, q)
		}
		p.hearLedger(w, q, paid, under, &ans, err)
	}()
}

// sourceOf returns whose a policy is that the ledger names; 0 where it may be the user's or the origin's.
func (p *partition) sourceOf(name string) (source Source) {
	for _, s := range p.slots {
		switch {
		case s.policy.Name != name || s.source == SourceLearned || s.budget != "":
		case source == 0:
			source = s.source
		case source != s.source:
			return 0
		}
	}
	return source
}

// nameShared fills in what the ledger calls the partition of req.
func (r *Registry) nameShared(ctx context.Context, q *Question, req *http.Request) (err error) {
	if q.Partition == "" {
		q.Partition, err = r.config.Ledger.Partition(ctx, r.credential(req))
	}
	return err
}

// hearLedger takes in the answer to what was asked for w, when these limits were in force.
func (p *partition) hearLedger(w *waiter, q *Question, paid Cost, under *Limits, ans *Answer, err error) {
	o, s := p.origin, p.shared
	now := o.lock()
	defer o.mu.Unlock() // events are told by the requests it wakes
	s.cancel = nil
	if o.shared.asking == s {
		o.shared.asking = nil
	}
	if ans.Err == nil { // else the name may be one of this process alone
		s.key = q.Partition
	}
	stopped := w.ctx.Err() != nil || w.queue == nil || w.maxWait && !now.Before(w.deadline)
	for _, n := range ans.News {
		o.heed(now, &n)
	}
	switch {
	case err != nil && stopped: // its own end may be why
	case err != nil:
		p.degraded(now, err)
		p.leave(w)
		w.resolve(nil, ledgerError(err))
	default:
		p.degraded(now, ans.Err)
		s.left = ans.Remaining
		switch s.hand = ans.Grant; {
		case s.hand != nil:
			s.paid, s.until, o.shared.until = paid, time.Time{}, time.Time{}
			if most := o.limits.MaxQueue; most > 0 && p.queued() > most {
				p.dismiss(now)
			}
		case under == o.limits: // else they may say otherwise now
			p.notGranted(now, w, q, ans, stopped)
		}
	}
	if s.hand != nil && o.hasSharedLimits() { // whoever else's turn it is now, this was granted to those here
		p.gather(now)
		if p.wakeHead(now) {
			p.takeTurns(now)
		}
	}
	p.wake(now)
	for _, p := range o.partitions {
		if p.shared.hasty && !p.asksLedger() { // what was granted may have been the last
			p.dismiss(now)
		}
	}
	if s.hand != nil { // it was granted, and now something else holds everyone
		s.hand.End(false, -1)
		s.hand = nil
	}
}

// notGranted takes in until when, and for what, the ledger grants nothing; left: w, for whom it was asked, does not wait any more.
func (p *partition) notGranted(now time.Time, w *waiter, q *Question, ans *Answer, left bool) {
	o, s := p.origin, p.shared
	until, by := now.Add(ans.Wait), obstacle{cause: ans.Cause, policy: ans.Policy, source: p.sourceOf(ans.Policy)}
	if by.cause == CauseNone {
		by.cause = CauseLedger
	}
	if ans.Whole && q.MinInterval == o.limits.MinInterval {
		o.shared.until, o.shared.by = until, by
	} else { // others may ask for less
		s.until, s.by = until, by
	}
	p.news = true
	if !left {
		w.held = by
		p.emit(Event{Kind: EventWaiting, Time: now, Cause: by.cause, Policy: by.policy, Wait: ans.Wait, Total: o.waited, Attempt: w.attempt})
	}
	p.dismiss(now)
}

// dismiss refuses those who were let into the queue only because the ledger
// could have answered yes, and now have to wait: who asked not to, and who is
// one too many.
func (p *partition) dismiss(now time.Time) {
	most := p.origin.limits.MaxQueue
	held := 0
	p.shared.hasty = false
	p.queues(func(_ *lane, q *queue) {
		p.inLine(q, func(w *waiter, pl *place) (left bool) {
			v := p.judge(now, &w.ask, pl)
			if v.goes(now) || v.asks {
				p.shared.hasty = p.shared.hasty || w.opts.noWait
				return false
			}
			why := ReasonNoWait
			if !w.opts.noWait {
				if held++; most == 0 || held <= most {
					return false
				}
				why = ReasonQueueFull
			}
			p.refuse(w, p.origin.refusal(v.at.Sub(now), v.obstacle, why))
			return true
		})
	})
}

// asksLedger reports whether the ledger is being asked, or is to be: who waits may only be
// waiting for its answer.
func (p *partition) asksLedger() bool {
	s, o := p.shared, p.origin
	return s != nil && (s.cancel != nil || o.shared.asks() && o.hasSharedLimits())
}

// degraded notes that the ledger's store cannot be reached, or can again.
func (p *partition) degraded(now time.Time, err error) {
	s := p.shared
	if (s.lost == nil) != (err == nil) {
		p.emit(Event{Kind: EventDegraded, Time: now, Err: err})
	}
	s.lost = err
}

// forget drops what the ledger said.
func (s *sharing) forget() {
	if s != nil {
		s.until, s.left = time.Time{}, -1
	}
}

// use hands over the grant that a permit is made for.
func (s *sharing) use() Grant {
	if s == nil {
		return nil
	}
	g := s.hand
	s.hand = nil
	return g
}

// least is the smaller of what this process and the ledger know to be left.
func (s *sharing) least(left int64) int64 {
	if s == nil || s.left < 0 || left >= 0 && left < s.left {
		return left
	}
	return s.left
}

func (s *sharing) isDegraded() bool { return s != nil && s.lost != nil }

// endShared ends the ledger's side of the permit.
func (pm *Permit) endShared(unsent bool) {
	if pm.grant != nil {
		bytes, exact := pm.bytes()
		if !exact {
			bytes = -1 // as estimated
		}
		pm.grant.End(!unsent, bytes)
	}
}

// orLedgerError makes a ledger's error the error of a call that has none of its own.
func orLedgerError(err *error, failed error) {
	if *err == nil && failed != nil {
		*err = ledgerError(failed)
	}
}

func ledgerError(err error) error { return fmt.Errorf("heed: shared ledger: %w", err) }

// closeShared stops the question under way in p.
func (p *partition) closeShared() {
	if p.shared != nil && p.shared.cancel != nil {
		p.shared.cancel()
	}
}

// detachShared gives back what the ledger holds for the registry.
func (r *Registry) detachShared() (err error) {
	if r.detach != nil {
		orLedgerError(&err, r.detach())
	}
	return err
}

// checkShared asks the ledger where d is all that this process knows.
func (p *partition) checkShared(req *http.Request, q *Question, d Decision) Decision {
	r, ctx := p.origin.reg, req.Context()
	err := r.nameShared(ctx, q, req)
	var ans Answer
	if err == nil {
		ans, err = r.config.Ledger.Check(ctx, q)
	}
	if err != nil {
		d.Err = ledgerError(err)
		return d
	}
	d.Err = ans.Err
	d.Wait = ans.Wait
	if d.Allowed = ans.Wait == 0; d.Allowed {
		d.Cause, d.Policy = CauseNone, ""
	} else if d.Cause, d.Policy = ans.Cause, ans.Policy; d.Cause == CauseNone {
		d.Cause = CauseLedger
	}
	if ans.Remaining >= 0 && (d.Remaining < 0 || ans.Remaining < d.Remaining) {
		d.Remaining = ans.Remaining
	}
	return d
}
