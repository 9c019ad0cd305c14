package heed

import "time"

// Partitions whose heads nothing holds but what holds all of the origin, as far as is
// known, take turns: first come first served within a priority, over all of
// them. One that something of its own holds stands aside until its alarm goes off, or
// something happens in it. So what a request costs does not grow with how
// many wait elsewhere.

// byHead orders partitions as their heads go.
type byHead struct{}

func (byHead) before(a, b *partition) bool { return a.first.precedes(&b.first.ask) }
func (byHead) seat(p *partition) *int      { return &p.turn }

// byAlarm orders partitions by when they want to be woken.
type byAlarm struct{}

func (byAlarm) before(a, b *partition) bool { return a.alarm.Before(b.alarm) }
func (byAlarm) seat(p *partition) *int      { return &p.bell }

// hasCommonLimits reports whether partitions hold each other up.
func (o *origin) hasCommonLimits() bool {
	l := o.limits
	return l.MinInterval > 0 || l.MinPause > 0 || l.MaxConcurrent > 0 || o.spaced > 0 || o.pause.open || o.opening.limit > 0 || o.stirred
}

// wake admits every waiting request that may go now after something happened in the
// partition, and sets the alarm for the next.
func (p *partition) wake(now time.Time) {
	o := p.origin
	switch {
	case o.waiting == 0:
		p.news = false
		p.standAside(time.Time{})
	case o.stirred || o.limits.Unlimited:
		o.gather(now)
	default:
		if p.gatherKin(now); o.stirred { // those who stood elsewhere, too, have left
			o.gather(now)
		}
	}
	o.serve(now)
}

// wakeAll is wake for all of an origin, after what may put deadlines out of
// reach.
func (o *origin) wakeAll(now time.Time) {
	if o.waiting == 0 {
		return
	}
	for _, p := range o.partitions {
		p.news = true
	}
	o.gather(now)
	o.serve(now)
}

// gather has the partition take turns again, whatever held it before.
func (p *partition) gather(now time.Time) {
	p.settleDeadlines(now)
	p.unpark(now)
	p.takeTurns(now)
}

// gatherKin does so for all partitions that have slots in common with this one.
func (p *partition) gatherKin(now time.Time) {
	p.shareNews()
	p.eachKin(func(q *partition) { q.gather(now) })
}

// gather does so for all partitions.
func (o *origin) gather(now time.Time) {
	o.stirred = false
	moved := 0
	for _, p := range o.partitions {
		p.shareNews()
	}
	for _, p := range o.partitions {
		if o.limits.Unlimited {
			p.endWaits(&Permit{}, nil)
		}
		if p.news && p.queued() > 0 {
			moved++
		}
		p.settleDeadlines(now)
		p.unpark(now)
	}
	if moved > 1 {
		o.settleDeadlines(now)
	}
	for _, p := range o.partitions {
		p.takeTurns(now)
	}
}

// takeTurns has the partition take turns by its present head, where it has one.
func (p *partition) takeTurns(now time.Time) {
	p.setAlarm(p.nextParked())
	switch first := p.head(); {
	case first == nil:
		p.origin.turns.drop(p)
	case first != p.first || p.turn == 0:
		p.first = first
		p.origin.turns.put(p)
	}
	p.setCertain(p.countCertain(now))
}

// standAside has the partition take no turns until an instant, or until something
// happens in it; zero: not by time.
func (p *partition) standAside(until time.Time) {
	p.origin.turns.drop(p)
	p.first = nil
	p.setAlarm(until)
	p.setCertain([3]int{})
}

// setCertain notes, by falling priority, how many wait in the partition who are certain to go before a
// newcomer of another: where each who goes puts off all others, that tells when that one can. None are
// when one has left, until they are counted again.
func (p *partition) setCertain(n [3]int) {
	for i := range n {
		p.origin.certain[i] += n[i] - p.certain[i]
	}
	p.certain = n
}

// countCertain counts them where the partition takes turns.
func (p *partition) countCertain(now time.Time) (n [3]int) {
	if p.turn > 0 && p.origin.takesTime() {
		for i := range n {
			n[i] = p.sure(now, func(q *queue) tally { return q.from(PriorityHigh - Priority(i)) })
		}
	}
	return n
}

// setAlarm has the partition take turns again at an instant; zero: not by time.
func (p *partition) setAlarm(at time.Time) {
	if p.alarm = at; at.IsZero() {
		p.origin.alarms.drop(p)
	} else {
		p.origin.alarms.put(p)
	}
}

// serve admits every request that may go now of those partitions that take
// turns. What holds one of them holds those after it, too: one alarm will do.
func (o *origin) serve(now time.Time) {
	for o.alarms.len() > 0 && !o.alarms.first().alarm.After(now) {
		o.alarms.first().gather(now)
	}
	held, alarm := o.held, time.Time{}
	o.held = obstacle{}
	for o.turns.len() > 0 {
		p := o.turns.first()
		w := p.first
		if w != p.head() { // it has left
			p.takeTurns(now)
			continue
		}
		if held != (obstacle{}) && w.arrived.Before(now) {
			w.held = held
		}
		if len(o.partitions) > 1 { // else all is judged below
			if v := o.judge(now, &w.ask, p.patience()); !v.goes(now) {
				w.held, o.held = v.obstacle, v.obstacle
				alarm = v.wakeAt()
				break
			}
		}
		if o.shared.asks() && o.hasSharedLimits() && p.shared.hand == nil { // it would be asked for one who comes later
			o.held = obstacle{cause: CauseLedger}
			w.held = o.held
			break
		}
		if p.wakeHead(now) {
			p.takeTurns(now)
		}
	}
	if o.alarms.len() > 0 {
		alarm = soonest(alarm, o.alarms.first().alarm)
	}
	o.setAlarm(alarm)
}

// judge says when a request may go as far as what holds all of the origin's says. patience is how long its partition
// waits for an answer.
func (o *origin) judge(now time.Time, a *ask, patience time.Duration) verdict {
	v := verdict{at: now}
	v.hold(o.pause.until, CausePause)
	if o.listening > 0 {
		v.await(now, CausePause)
	}
	o.space(now, &v, 0, 0)
	v.hold(o.kept(a), CauseInterval)
	v.scout(now, &o.opening, patience)
	o.shared.hold(now, &v)
	return v
}

// setAlarm has the origin woken at an instant; zero: not by time.
func (o *origin) setAlarm(at time.Time) {
	if o.timer != nil {
		if o.alarm.Equal(at) {
			return
		}
		o.timer.Stop()
		o.timer = nil
	}
	if at.IsZero() {
		return
	}
	o.alarm = at
	// A new timer each time: one made in another synctest bubble must not be
	// touched from this one.
	o.timer = time.AfterFunc(time.Until(at), func() { o.ring(at) })
}

// ring is the alarm going off.
func (o *origin) ring(at time.Time) {
	now := o.lock()
	if o.alarm.Equal(at) {
		o.timer = nil
	}
	o.serve(now)
	o.mu.Unlock() // events are told by the requests it woke
}
