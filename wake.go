package heed

import (
	"math"
	"slices"
	"time"
)

// wakeHead admits the first of those at the heads of the partition's queues that
// may go. Else it has the partition stand aside, and reports false.
func (p *partition) wakeHead(now time.Time) bool {
	o := p.origin
	var buf [8]candidate
	heads := buf[:0]
	p.queues(func(_ *lane, q *queue) {
		c := p.next(now, q)
		if c.waiter == nil {
			return
		}
		heads = append(heads, c)
		if head := q.head(); head != c.waiter && !p.doubts(now) { // what holds that one need not hold the first in line
			heads = append(heads, candidate{waiter: head})
		}
	})
	if len(p.lanes) > 0 { // else no more than the one that goes by lot and the first in line
		slices.SortFunc(heads, func(a, b candidate) int { return byTurn(a.waiter, b.waiter) })
	}
	alarm := p.nextParked()
	for _, c := range heads {
		w := c.waiter
		v := p.judge(now, &w.ask, &place{})
		if v.goes(now) {
			v = p.behindKin(now, &w.ask, v)
		}
		if v.goes(now) {
			p.grant(now, c)
			return true
		}
		if p.refuseLate(now, w, &v) { // by the pace, say, which only shows once nothing else holds it
			return true
		}
		w.held = v.obstacle
		if v.asks {
			p.askLedger(w)
		}
		alarm = soonest(alarm, soonest(v.wakeAt(), o.keep(now, w)))
		if w.queue.head() != w { // where that is for a doubt, the head is held by no more than that
			alarm = soonest(alarm, p.pause.until)
		}
	}
	p.standAside(alarm)
	return false
}

// grant lets w go, whose turn it is, unless it went from another line meanwhile, or makes way for another.
func (p *partition) grant(now time.Time, c candidate) {
	w := c.waiter
	late := w.makesWay(now)
	p.leave(w)
	switch {
	case late:
		w.resolve(nil, w.expired(now, ReasonDeadline))
	case w.wentElsewhere():
		w.resolve(nil, errWentElsewhere)
	default:
		pm := p.admit(now, &w.ask)
		p.suspect.drew(pm, c.chance)
		w.resolve(pm, nil)
	}
}

// wakeAt is when what holds a request may be over, as far as time alone tells; zero: an
// event will wake it.
func (v *verdict) wakeAt() time.Time {
	if v.events {
		return v.again
	}
	return soonest(v.at, v.again)
}

// next returns the waiter whose turn it is: the head of the queue, or, while
// it is in doubt whether more than one path is being refused, the first that
// asks for another path; or, where a route is under suspicion, who goes by lot. Where all were refused
// lately, one that was not tried yet goes before those that were.
func (p *partition) next(now time.Time, q *queue) candidate {
	head := q.head()
	var untried *waiter
	if p.refusedInARow() {
		untried = q.firstUntried()
	}
	if p.doubts(now) {
		if untried != nil && untried.path != p.pause.path {
			return candidate{waiter: untried}
		}
		for i := range q.lines {
			if w := q.lines[i].root.firstElsewhere(p.pause.path); w != nil {
				return candidate{waiter: w}
			}
		}
	} else if c, drawn := p.draw(now, q, head); drawn {
		return c
	}
	if untried != nil {
		return candidate{waiter: untried}
	}
	return candidate{waiter: head}
}

// refusedInARow reports whether nothing was accepted between the latest refusals, so that it is in doubt whether all are refused, or only
// some of those that are tried again and again.
func (p *partition) refusedInARow() bool { return max(p.backoff.n, p.origin.backoff.n) > 1 }

// doubts reports whether one that asks for another path is to go, to see whether that is refused, too.
func (p *partition) doubts(now time.Time) bool {
	return p.pause.doubtful && !p.pause.tried && !p.learner.crowd.testing && p.pause.holds(now)
}

// join puts w in line, or aside until its own next try.
func (p *partition) join(now time.Time, w *waiter) {
	p.origin.waiting++
	if w.notBefore.After(now) {
		p.parked.put(w)
	} else if p.queueOf(w.lane).push(w) {
		p.news = true
	}
}

// leave takes w out of line.
func (p *partition) leave(w *waiter) {
	switch {
	case w.queue != nil:
		w.queue.remove(w)
		p.setCertain([3]int{})
	case w.seat > 0:
		p.parked.drop(w)
	default:
		return
	}
	p.origin.waiting--
}

// waiters calls f for all that wait; f may have them leave.
func (p *partition) waiters(f func(w *waiter)) {
	p.queues(func(_ *lane, q *queue) { q.all(f) })
	for _, w := range slices.Clone(p.parked.items) {
		f(w)
	}
}

// endWaits ends the wait of all.
func (p *partition) endWaits(pm *Permit, err error) {
	p.waiters(func(w *waiter) {
		p.leave(w)
		w.resolve(pm, err)
	})
}

// unpark puts those in line whose own wait is over.
func (p *partition) unpark(now time.Time) {
	for p.parked.len() > 0 && !p.parked.first().notBefore.After(now) {
		w := p.parked.first()
		p.parked.drop(w)
		w.lane = p.laneOf(now, &w.ask)
		if p.queueOf(w.lane).push(w) {
			p.news = true
		}
	}
}

// nextParked is when the next one's wait is over; zero: nobody's.
func (p *partition) nextParked() time.Time {
	if p.parked.len() == 0 {
		return time.Time{}
	}
	return p.parked.first().notBefore
}

// settleDeadlines refuses, where something has changed, those waiting that
// can no longer start in time, or at all.
func (p *partition) settleDeadlines(now time.Time) {
	if !p.news {
		return
	}
	p.news = false
	p.queues(func(l *lane, q *queue) { p.settleQueue(now, l, q) })
	for _, w := range slices.Clone(p.parked.items) {
		p.settle(now, w, &place{})
	}
}

// settle does so for one at a place. It reports whether it refused it.
func (p *partition) settle(now time.Time, w *waiter, pl *place) (left bool) {
	if w.deadline.IsZero() {
		return p.refuseImpossible(w)
	}
	v := p.judge(now, &w.ask, pl)
	return p.refuseLate(now, w, &v)
}

// settleQueue does so for a queue.
func (p *partition) settleQueue(now time.Time, l *lane, q *queue) {
	switch t := q.tally(); {
	case !p.fits(&t):
		p.inLine(q, func(w *waiter, pl *place) bool { return p.settle(now, w, pl) })
	case !t.deadline.IsZero():
		for w := q.head(); w != nil && p.settle(now, w, &place{}); {
			w = q.head()
		}
		if t.n > 1 {
			p.settleLate(now, l, q, t.most.interval)
		}
		if t := q.tally(); t.astride.n > 1 && !t.diverse {
			p.settleAstride(now, l, q, t.most.interval, t.lines.n)
		}
	}
}

// settleLate settles those behind the head of a queue whose deadlines are near, without a look at the
// others: nobody goes later than who stands behind and asks for the longest interval of all would.
func (p *partition) settleLate(now time.Time, l *lane, q *queue, longest time.Duration) {
	last := p.lastIn(l, longest)
	p.eachLate(now, q, &last, place{units: make([]int64, len(p.slots))}, func(w *waiter) bool {
		pl := p.placeOf(&w.ask)
		p.settle(now, w, &pl)
		return true
	})
}

// lastIn asks for what who stands behind all others in a lane, and asks for the longest interval, would.
func (p *partition) lastIn(l *lane, longest time.Duration) ask {
	return ask{opts: &options{priority: PriorityLow, minInterval: longest}, path: p.pause.path, lane: l, number: math.MaxUint64}
}

// eachLate calls f, until that returns false, for those in a queue who would be late if they went no sooner than last would
// from behind those who go before them. pl has room for what these take.
func (p *partition) eachLate(now time.Time, q *queue, last *ask, pl place, f func(w *waiter) bool) {
	start := func(t *tally) time.Time {
		pl.put(p, t)
		return p.judge(now, last, &pl).at
	}
	var before tally
	for i := range q.lines {
		line := &q.lines[i]
		for w := line.root.firstLate(0, before, start); w != nil; w = line.root.firstLate(w.number+1, before, start) {
			if !f(w) {
				return
			}
		}
		t := line.tally()
		before.add(&t)
	}
}

// settleDeadlines refuses those in line that can no longer start in time because others do before them, in
// other partitions too, where something has changed for several: from the first to the last, so that nobody
// is put off by one that is refused.
func (o *origin) settleDeadlines(now time.Time) {
	if !o.takesTime() {
		return
	}
	var line []*waiter
	for _, p := range o.partitions {
		p.queues(func(_ *lane, q *queue) { q.all(func(w *waiter) { line = append(line, w) }) })
	}
	slices.SortFunc(line, byTurn)
	type front struct { // those of one queue that have been before
		place
		tally
	}
	fronts := make(map[*queue]*front)
	sure, all := make(map[*partition]int), 0 // of those before, how many are sure to go: kept, not counted for each
	before := func(q *queue) tally {
		if f := fronts[q]; f != nil {
			return f.tally
		}
		return tally{}
	}
	for _, w := range line {
		p, q := w.home, w.queue
		f := fronts[q]
		if f == nil {
			f = &front{place: place{units: make([]int64, len(p.slots))}}
			fronts[q] = f
		}
		late := false
		if !w.deadline.IsZero() {
			pl := f.place
			pl.elsewhere = max(all-sure[p]-pl.again, 0)
			v := p.judge(now, &w.ask, &pl)
			late = p.refuseLate(now, w, &v)
		}
		if !late {
			own := tallyOf(&w.ask)
			f.place.add(p, &w.ask)
			f.tally.add(&own)
		}
		n := p.sure(now, before)
		sure[p], all = n, all+n-sure[p]
	}
}

// mostOvertaken bounds those that are judged again because one who came later goes before them.
const mostOvertaken = 256

// isOvertakenBy reports whether there are, in other partitions than w's, requests with deadlines that may be put off by w,
// which has just come. Where so many wait that to look at each would take long, they are told later.
func (o *origin) isOvertakenBy(w *waiter) (any bool) {
	if !o.takesTime() || max(o.waiting, len(o.partitions)) > mostOvertaken {
		return false
	}
	for _, p := range o.partitions {
		if p == w.home {
			continue
		}
		p.queues(func(_ *lane, q *queue) {
			t := q.tally()
			any = any || !t.deadline.IsZero() && w.precedes(&q.last().ask)
		})
	}
	return any
}

// byTurn orders waiters as they go.
func byTurn(a, b *waiter) int {
	if a.precedes(&b.ask) {
		return -1
	}
	return 1
}

// inLine calls f for everyone in a queue of the partition from the first to the last, with their
// places. f reports whether it has ended the wait.
func (p *partition) inLine(q *queue, f func(*waiter, *place) (left bool)) {
	pl := place{units: make([]int64, len(p.slots))}
	q.all(func(w *waiter) {
		if !f(w, &pl) {
			pl.add(p, &w.ask)
		}
	})
}

// refuse ends a wait that is of no use.
func (p *partition) refuse(w *waiter, err *LimitError) {
	p.leave(w)
	w.resolve(nil, err)
}

// refuseLate refuses one in line where it turns out that it cannot start in time, or costs more
// than a cap that was lowered meanwhile will ever give. It reports whether it did.
func (p *partition) refuseLate(now time.Time, w *waiter, v *verdict) bool {
	switch {
	case p.refuseImpossible(w):
		return true
	case !w.misses(v.at):
		return false
	case v.at.After(now):
		p.refuse(w, p.origin.refusal(v.at.Sub(now), v.last, w.tooLate()))
	default: // its deadline is this very instant
		p.refuse(w, w.expired(now, w.tooLate()))
	}
	return true
}

// refuseImpossible refuses one in line that costs more than a cap will ever give. It reports
// whether it did.
func (p *partition) refuseImpossible(w *waiter) bool {
	s := p.impossible(&w.ask)
	if s != nil {
		p.refuse(w, p.origin.refusal(0, s.obstacle(), ReasonCost))
	}
	return s != nil
}

// limitWaits has those waiting keep to a MaxWait that has changed.
func (p *partition) limitWaits() {
	limit := func(w *waiter) {
		w.limitWait(p.origin.limits.MaxWait)
		w.setExpiry()
	}
	p.queues(func(_ *lane, q *queue) {
		q.all(limit)
		for i := range q.lines {
			q.lines[i].root.sumAll()
		}
	})
	for _, w := range p.parked.items {
		limit(w)
	}
}
