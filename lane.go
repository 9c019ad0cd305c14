package heed

import (
	"slices"
	"strings"
	"time"
)

// A lane is the requests of a partition that are counted in the same budgets,
// where the origin has several: an exhausted budget holds its own lane and no
// other. Requests of no known budget are in no lane; what holds them holds all.
//
// A request whose route is not known, at an origin that has budgets, has a
// lane for its route alone until an answer tells: one goes ahead of the others.
type lane struct {
	key      string
	budgets  []string
	queue    queue
	smoother smoother
	opening  opening
	pause    pause
	backoff  backoff
}

// mostLanes bounds the lanes of a partition.
const mostLanes = 256

// has reports whether the lane's requests are counted in a budget.
func (l *lane) has(budget string) bool { return slices.Contains(l.budgets, budget) }

// holds reports whether a slot holds the requests of a lane, nil for those of
// no known budget.
func (s *slot) holds(l *lane) bool { return s.budget == "" || l != nil && l.has(s.budget) }

// idle reports whether nothing is lost with the lane.
func (l *lane) idle(now time.Time) bool {
	return l.queue.len() == 0 && !l.pause.holds(now) && l.opening.flying == 0
}

// held reports whether something beside the limits holds the lane.
func (l *lane) held(now time.Time, patience time.Duration) bool {
	_, open := l.opening.free(now, patience)
	return !open || l.pause.holds(now) || l.smoother.limiter != nil
}

// laneOf returns the lane of a request.
func (p *partition) laneOf(now time.Time, a *ask) *lane {
	t := p.origin.routes
	switch {
	case t == nil:
		return nil
	case a.budgets != "": // what others like it are counted in meanwhile is not what refused it
		return p.lane(now, a.budgets)
	}
	key, known := t.lookUp(a.method(), a.path)
	if rest := p.origin.apart && !p.origin.announcers.shown && key == "" && slices.ContainsFunc(p.slots, func(s *slot) bool { return s.budget == otherRoutes }); rest {
		key, known = otherRoutes, true
	} else if !known {
		key = routeOf(a.method(), a.path)
	}
	key = p.origin.ownBudgets(key, a.path)
	met := p.hasLane(key)
	l := p.lane(now, key)
	if l != nil && !met && (!known || p.origin.majors != nil && !slices.ContainsFunc(p.slots, func(s *slot) bool { return l.has(s.budget) })) {
		l.opening.meet(now)
	}
	return l
}

func (p *partition) hasLane(key string) bool {
	return slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.key == key })
}

// lane returns the lane of that key, made where there is none; nil for "", and
// where there are too many.
func (p *partition) lane(now time.Time, key string) *lane {
	if key == "" {
		return nil
	}
	for _, l := range p.lanes {
		if l.key == key {
			return l
		}
	}
	if len(p.lanes) >= mostLanes {
		p.forgetLanes(now, func(l *lane) bool { return l.idle(now) })
		if len(p.lanes) >= mostLanes {
			return nil
		}
	}
	l := &lane{key: key, budgets: strings.Split(key, budgetSep)}
	p.lanes = append(p.lanes, l)
	return l
}

// forgetLanes drops lanes: whoever was told of a pause of one is told that it is over.
func (p *partition) forgetLanes(now time.Time, drop func(*lane) bool) {
	p.lanes = slices.DeleteFunc(p.lanes, func(l *lane) bool {
		dropped := drop(l)
		if dropped {
			p.resumeLane(now, l)
		}
		return dropped
	})
}

// resumeLane ends a lane's pause, and tells of that.
func (p *partition) resumeLane(now time.Time, l *lane) {
	if l.pause.open {
		p.emit(Event{Kind: EventResumed, Time: now, Bucket: l.shown()})
	}
	l.pause.end()
}

// laneNow is the lane of pm's request: l where its answer told, else the one
// in which it went.
func (p *partition) laneNow(pm *Permit, l *lane) *lane {
	if l != nil {
		return l
	}
	return pm.lane
}

// queueOf returns where the requests of a lane wait.
func (p *partition) queueOf(l *lane) *queue {
	if l == nil {
		return &p.queue
	}
	return &l.queue
}

// queues calls f for every queue of the partition.
func (p *partition) queues(f func(l *lane, q *queue)) {
	f(nil, &p.queue)
	for _, l := range p.lanes {
		f(l, &l.queue)
	}
}

// queued is how many requests are in line.
func (p *partition) queued() int {
	n := p.queue.len()
	for _, l := range p.lanes {
		n += l.queue.len()
	}
	return n
}

// head returns the first of all that are in line.
func (p *partition) head() *waiter {
	first := p.queue.head()
	for _, l := range p.lanes {
		if w := l.queue.head(); w != nil && (first == nil || w.precedes(&first.ask)) {
			first = w
		}
	}
	return first
}

// crowded reports whether requests of other lanes than a's are in line, or of other partitions that have slots in common
// with its own.
func (p *partition) crowded(a *ask) bool {
	others := len(p.lanes) > 0 && p.queued() > p.queueOf(a.lane).len()
	p.eachKin(func(q *partition) { others = others || q != p && q.queued() > 0 })
	return others
}

// sort moves the requests in line that turn out to belong to another lane.
func (o *origin) sort(now time.Time) {
	for _, p := range o.partitions {
		var all []*waiter // first, for a new lane can take the place of idle ones
		p.queues(func(_ *lane, q *queue) {
			q.all(func(w *waiter) { all = append(all, w) })
		})
		moved := false
		for _, w := range all {
			l := p.laneOf(now, &w.ask)
			if l == w.lane {
				continue
			}
			w.queue.remove(w)
			w.lane = l
			p.queueOf(l).push(w)
			p.news, moved = true, true
		}
		if moved && len(o.partitions) > 1 {
			o.stirred = true // also those in other partitions are to be judged
		}
	}
}
