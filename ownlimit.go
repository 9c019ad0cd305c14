package heed

import (
	"hash/maphash"
	"math"
	"slices"
	"time"
)

// A suspect is a route of a partition that may have a limit of its own which nobody announces, for
// it alone is refused. A limit on all routes turns away any: of those in flight when it is first
// exceeded, that all that are refused are of one route, and all of others are accepted, is as
// unlikely as there are more ways to pick as many of all than of that route. And the more routes have
// been under suspicion before, for others were refused after all, the more that has to be.
//
// Of requests that go one by one nothing is concluded: those of a program that asks for its routes
// in turn may meet the end of a window with the same one each time. Nor is it where it asks for all of one
// route first: what was sent before all that was refused may be the last that the limit let through, and
// counts only as far as as much was sent after.
type suspect struct {
	route    string          // that was refused last
	sent     time.Time       // when the first of those was sent that were refused at the latest event …
	heard    time.Time       // … and when that began
	refused  int             // of those in flight then …
	accepted int             // … of the route, sent after the first that was refused …
	beside   []time.Duration // … and of others, how long they had been on their way
	halvings float64         // of how likely the events before make a limit on all routes
	cleared  int             // suspects before
	others   pause           // what holds all, for the server asked for it beside refusals of the route
}

const (
	unlikely = 10 // halvings: once in 1024 it is by chance
	mostOwn  = 64 // routes of an origin with limits of their own

	mostBeside = 64 // of others that are remembered: with so many, few refusals are enough
)

// inFlight is by how many halvings the latest event makes a limit on all routes less likely.
func (s *suspect) inFlight() float64 {
	own, after := s.refused+s.accepted, 0
	for _, age := range s.beside {
		if age < s.heard.Sub(s.sent) {
			after++
		}
	}
	return ways(own+min(len(s.beside), 2*after), s.refused) - ways(own, s.refused)
}

// ways is the logarithm of in how many ways so many can be picked out of n.
func ways(n, picked int) float64 {
	all, _ := math.Lgamma(float64(n + 1))
	in, _ := math.Lgamma(float64(picked + 1))
	out, _ := math.Lgamma(float64(n - picked + 1))
	return (all - in - out) / math.Ln2
}

// isFor reports whether pm's request is of the route.
func (s *suspect) isFor(pm *Permit) bool { return s != nil && isOf(s.route, pm.method, pm.path) }

// isOf reports whether a request is of a route.
func isOf(route, method, path string) bool {
	var buf [longestPath]byte
	return route == string(appendRoute(buf[:0], method, path))
}

// hearAccepted takes in that pm's request was accepted.
func (s *suspect) hearAccepted(pm *Permit) {
	switch {
	case s == nil || pm.start.After(s.heard):
	case s.isFor(pm):
		if pm.start.After(s.sent) {
			s.accepted++
		}
	case len(s.beside) < mostBeside:
		s.beside = append(s.beside, s.heard.Sub(pm.start))
	}
}

// suspectRoute takes in that pm's request was refused; fresh: and begins an event. It reports whether the route
// has shown to have a limit of its own.
func (p *partition) suspectRoute(now time.Time, pm *Permit, fresh bool) bool {
	s := p.suspect
	switch {
	case !s.isFor(pm):
		next := &suspect{route: pm.route()}
		if s != nil {
			next.cleared = s.cleared + 1
		}
		if p.pause.firm(now) {
			next.others = p.pause
		}
		s, p.suspect = next, next
		fresh = true
	case fresh:
		s.halvings += s.inFlight()
	}
	switch {
	case fresh:
		s.sent, s.heard, s.refused, s.accepted, s.beside = pm.start, now, 1, 0, s.beside[:0]
	case !pm.start.After(s.heard):
		s.sent = soonest(s.sent, pm.start)
		s.refused++
	}
	return s.halvings+s.inFlight() >= unlikely+math.Log2(float64(1+s.cleared))
}

// holdOthers notes that the server asks for a wait until an instant that holds all.
func (s *suspect) holdOthers(now, until time.Time) {
	if s != nil { // else what the partition waits for holds all
		s.others.obey(now, until)
	}
}

// canSplit reports whether a route of the partition may be given one of its own: where only
// refusals tell of limits, and no credential has one on all routes that two partitions would have to share.
func (p *partition) canSplit() bool {
	o := p.origin
	return p.route == "" && p.shared == nil && o.routes == nil && len(o.own) < mostOwn && len(o.known) == 0 &&
		!slices.ContainsFunc(o.partitions, func(q *partition) bool {
			return slices.ContainsFunc(q.slots, func(s *slot) bool { return s.source != SourceLearned })
		})
}

// split gives the route under suspicion a partition of its own: the present one, which holds already
// what its limit is to hold. All others go on in a new one, which keeps to what refusals of them asked
// for. So it is for every credential; what holds another one holds both of its partitions.
// What was learned from all routes together is true of none.
func (p *partition) split(now time.Time) {
	o, route, others := p.origin, p.suspect.route, p.suspect.others
	o.own = append(o.own, route)
	of := func(method, path string) bool { return isOf(route, method, path) }
	for _, q := range slices.Clone(o.partitions) {
		switch key := o.reg.ownKey(q.key, []byte(route)); {
		case q.route != "":
		case q == p:
			rest := p.key
			o.rename(p, key, route)
			q = o.newPartition(rest, "", now)
			q.waitFor(now, &others)
			p.handOver(now, q, func(method, path string) bool { return !of(method, path) })
		case q.pause.firm(now) || q.asks(of):
			own := o.newPartition(key, route, now)
			own.waitFor(now, &q.pause)
			q.handOver(now, own, of)
		}
	}
}

// rejoin has all routes counted together again, each credential's in one partition: in that one,
// where it is one of them.
func (o *origin) rejoin(now time.Time, into *partition) {
	if len(o.own) == 0 {
		return
	}
	o.own = nil
	all := func(string, string) bool { return true }
	for _, p := range slices.Clone(o.partitions) {
		if p.route == "" {
			continue
		}
		key := o.reg.ownKey(p.key, []byte(p.route)) // again, which undoes it
		from, to := p, o.partition(key)
		if to == nil || p == into {
			from, to = to, p
		}
		if from != nil {
			to.waitFor(now, &from.pause)
			from.handOver(now, to, all)
			for _, l := range from.lanes {
				to.lane(now, l.key).waitFor(now, &l.pause)
			}
			if from.backoff.began.After(to.backoff.began) {
				to.backoff = from.backoff
			}
			if from.pause.open {
				from.emit(Event{Kind: EventResumed, Time: now})
			}
			to.refusals += from.refusals
			to.waited += from.waited
			o.remove(from)
		}
		if to == p {
			p.forgetLearned()
			o.rename(p, key, "")
		}
	}
}

// rename gives a partition another key, and the only route it is for.
func (o *origin) rename(p *partition, key partitionKey, route string) {
	if o.byKey != nil {
		delete(o.byKey, p.key)
		o.byKey[key] = p
	}
	p.key, p.route = key, route
}

// asks reports whether requests of some kind are waiting or in flight.
func (p *partition) asks(kind func(method, path string) bool) (any bool) {
	for pm := p.inFlight.oldest; pm != nil && !any; pm = pm.younger {
		any = kind(pm.method, pm.path)
	}
	p.waiters(func(w *waiter) { any = any || kind(w.method(), w.path) })
	return any
}

// handOver has requests of some kind go on in another partition of the origin, and forgets what
// was learned from all of them together. Those that this held go one ahead of the others, lest all go at once.
func (p *partition) handOver(now time.Time, to *partition, kind func(method, path string) bool) {
	p.forgetLearned()
	for pm, next := p.inFlight.oldest, (*Permit)(nil); pm != nil; pm = next {
		next = pm.younger
		if kind(pm.method, pm.path) {
			pm.goOn(to)
		}
	}
	p.waiters(func(w *waiter) {
		if kind(w.method(), w.path) {
			p.leave(w)
			w.home, w.lane = to, to.laneOf(now, &w.ask)
			to.join(now, w)
		}
	})
	to.slowest, to.lastWell = max(to.slowest, p.slowest), latest(to.lastWell, p.lastWell)
	if c := &p.cap; c.limit > 0 && (to.cap.limit == 0 || c.limit < to.cap.limit) {
		to.cap = *c
	}
	p.opening.restart(now)
	to.opening.restart(now)
	p.news, to.news, p.origin.stirred = true, true, true
}

// goOn moves a request in flight to another partition, whose opening it proves nothing for.
func (pm *Permit) goOn(to *partition) {
	from := pm.p
	from.inFlight.remove(pm)
	if !pm.answered {
		pm.gone()
		from.unanswered--
		to.unanswered++
	}
	if pm.listening == &from.listening {
		from.listening--
		to.listening++
		pm.listening = &to.listening
	}
	pm.p, pm.serial, pm.lane = to, to.opening.serial-1, nil
	to.inFlight.add(pm)
}

// waitFor has a partition wait for as long as another one was asked to.
func (p *partition) waitFor(now time.Time, asked *pause) {
	if asked.firm(now) && p.pause.join(asked) {
		p.paused(now, Event{Cause: CausePause, Wait: asked.until.Sub(now), Timed: !asked.asked.IsZero()})
	}
}

// waitFor has a lane do so.
func (l *lane) waitFor(now time.Time, asked *pause) {
	if l != nil && asked.firm(now) && l.pause.join(asked) {
		l.opening.restart(now)
	}
}

// forgetLearned forgets a limit that was learned, and what would have told more of it.
func (p *partition) forgetLearned() {
	p.unlearn()
	p.learner, p.suspect = learner{}, nil
}

// ownKey is the key of the partition that requests of a route with a limit of its own have, and
// of that key the one it was made of.
func (r *Registry) ownKey(key partitionKey, route []byte) partitionKey {
	return key ^ partitionKey(maphash.Bytes(r.seed, route)|1)
}

// keyOf returns the key of the partition that a belongs to, of those of a credential, and
// the only route that it is for; "": it is for more than one.
func (o *origin) keyOf(key partitionKey, a *ask) (_ partitionKey, only string) {
	if len(o.own) == 0 {
		return key, ""
	}
	var buf [longestPath]byte
	route := appendRoute(buf[:0], a.method(), a.path)
	for _, own := range o.own {
		if own == string(route) {
			return o.reg.ownKey(key, route), own
		}
	}
	return key, ""
}
