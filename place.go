package heed

import (
	"math"
	"time"
)

// A place is what goes before a request, as far as is sure.
type place struct {
	n         int     // those of its partition that are before it
	again     int     // of them stand elsewhere, too, and may be counted there
	elsewhere int     // those of the origin's other partitions that are not among the n
	units     []int64 // what those of the n that stand in no other line take of each of the partition's slots; nil: nothing
	astride   []int64 // what the others take, from one line or another; nil: no share of that is counted
	abreast   int     // how many those are, all of them in the very lines of the request; -1: some stand in others
}

// placeOf returns a's place among those that wait in its partition, and in others that have slots in common with it.
func (p *partition) placeOf(a *ask) (pl place) {
	q := p.queueOf(a.lane)
	if t := q.before(a); t.n > 0 {
		pl.units = make([]int64, len(p.slots))
		if a.share > 0 && t.astride.n > 0 {
			pl.astride = make([]int64, len(p.slots))
			if pl.abreast = t.astride.n; t.diverse || t.lines != a.lines {
				pl.abreast = -1
			}
		}
		if p.fits(&t) {
			pl.put(p, &t)
		} else {
			q.all(func(w *waiter) {
				if w.precedes(a) {
					pl.add(p, &w.ask)
				}
			})
		}
	}
	p.addKin(a, &pl)
	return pl
}

// fits reports whether what requests come to is what they take: none of them asks for more of a
// slot than there ever is.
func (p *partition) fits(t *tally) bool {
	for _, s := range p.slots {
		switch m := s.most(); s.policy.Unit {
		case UnitRequests:
			if t.most.requests > m {
				return false
			}
		case UnitContentBytes:
			if t.most.bytes > m {
				return false
			}
		case UnitConcurrentRequests:
			if t.most.concurrent > m {
				return false
			}
		}
	}
	return true
}

// put makes it the place behind requests that come to t.
func (pl *place) put(p *partition, t *tally) {
	pl.n, pl.again = t.n, t.again
	for i, s := range p.slots {
		astride := s.sureOf(&t.astride)
		pl.units[i] = s.sureOf(&t.amount) - astride
		if pl.astride != nil {
			pl.astride[i] = astride
		}
	}
}

// add puts a before the place.
func (pl *place) add(p *partition, a *ask) {
	pl.n++
	if a.again {
		pl.again++
	}
	for i, s := range p.slots {
		n := p.cost(s, a)
		if s.policy.Unit == UnitContentBytes {
			n = min(n, 1)
		}
		switch {
		case s.policy.Unit == UnitConcurrentRequests:
		case a.lines.n <= 1:
			pl.units[i] += n
		case pl.astride != nil:
			pl.astride[i] += n
		}
	}
}

// sureOf is asked as far as that is sure. Of bytes it is next to nothing: what they are said to come to is an estimate.
func (s *slot) sureOf(t *amount) int64 {
	n := s.asked(t)
	if s.policy.Unit == UnitContentBytes {
		return min(n, 1)
	}
	return n
}

// before is how many units of the partition's i-th slot a and those before it need there, of which a itself needs n. It is for
// a place that others are before.
//
// Of those that stand in several lines nobody knows how many go from this one: it may be none. But a, who stands in
// the same lines, goes from none of them until those lines together have let all of them go, and one of the lines
// has then to have let go no less than its share of all that. So a cannot go for as long as in no line there are so many.
func (pl *place) before(i int, a *ask, n int64) int64 {
	if pl.astride != nil && pl.astride[i] > 0 { // nor is it known whether the rest goes before them
		lines := int64(a.share)
		return max(n, (pl.astride[i]+n+lines-1)/lines)
	}
	return n + pl.units[i]
}

// asked is what requests that come to t take of the slot. Those in flight are no business of the ones
// behind them.
func (s *slot) asked(t *amount) int64 {
	switch s.policy.Unit {
	case UnitRequests:
		return t.requests
	case UnitContentBytes:
		return t.bytes + int64(t.unsaid)*min(s.content.estimate, s.most())
	}
	return 0
}

// behindOthers is the verdict v behind those, too, who wait in the origin's other partitions, where limits
// hold all of them. Who may go now need not wait for them: something else holds them, or they had gone.
func (p *partition) behindOthers(now time.Time, a *ask, pl *place, v verdict) verdict {
	if v.goes(now) {
		return v
	}
	pl.elsewhere = max(p.others(now, a)-pl.again, 0)
	if pl.elsewhere == 0 {
		return v
	}
	return p.judge(now, a, pl)
}

// others is how many wait in the origin's other partitions who are sure to go before a. Of those before
// one that has come before, to another line too, all are counted anew.
func (p *partition) others(now time.Time, a *ask) (n int) {
	o := p.origin
	switch i := PriorityHigh - a.opts.priority; {
	case !o.takesTime():
	case a.attempt <= 1 && !a.again:
		n = o.certain[i] - p.certain[i]
	default:
		for _, q := range o.partitions {
			if q != p {
				n += q.sure(now, func(q *queue) tally { return q.before(a) })
			}
		}
	}
	return n
}

// sure counts those of some who wait in the partition that are sure to go: nothing holds them but what holds
// all. Of partitions that have slots in common it counts those of the first alone: rather too few than too many. before says which of a queue's they are, by what they come to.
func (p *partition) sure(now time.Time, before func(*queue) tally) int {
	if p.queued() == 0 || p.kin != nil && p != p.kin.all[0] || p.pause.holds(now) || p.pacer().limiter != nil || !p.cap.free(p.unanswered) {
		return 0
	}
	sure, inTurn := math.MaxInt, p.origin.limits.MinPause > 0
	if !inTurn { // else each is answered before the next one goes
		sure = min(p.opening.sure(now, p.patience()), p.origin.opening.sure(now, p.patience()))
	}
	if sure == 0 || len(p.slots) > 0 && p.origin.limits.Smoothing.always() {
		return 0
	}
	n := 0
	p.queues(func(l *lane, line *queue) {
		if t := line.tally(); t.n == 0 || t.most.interval > 0 || l != nil && l.held(now, p.patience()) {
			return
		}
		t := before(line)
		for _, s := range p.slots {
			need := s.asked(&t.amount)
			if s.policy.Unit == UnitConcurrentRequests {
				need = int64(t.n)
			}
			if s.enforced() && s.holds(l) && need > s.remaining(now) {
				return
			}
		}
		ahead := min(t.n-t.again, sure)
		if l != nil && !inTurn {
			ahead = min(ahead, l.opening.sure(now, p.patience()))
		}
		n += ahead
		sure -= ahead
	})
	return n
}
