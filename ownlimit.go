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
// unlikely as there are ways to pick as many.
//
// Of requests that go one by one nothing is concluded: those of a program that asks for its routes
// in turn may meet the end of a window with the same one each time.
type suspect struct {
	route    string  // that was refused last; "": none was
	refused  int     // of those in flight at the latest event …
	accepted int     // … of other routes
	halvings float64 // of how likely the events before make a limit on all routes
}

const (
	unlikely = 10 // halvings: once in 1024 it is by chance
	mostOwn  = 64 // routes of an origin with limits of their own
)

// inFlight is by how many halvings the latest event makes a limit on all routes less likely.
func (s *suspect) inFlight() float64 {
	all, _ := math.Lgamma(float64(s.refused + s.accepted + 1))
	refused, _ := math.Lgamma(float64(s.refused + 1))
	accepted, _ := math.Lgamma(float64(s.accepted + 1))
	return (all - refused - accepted) / math.Ln2
}

// isFor reports whether pm's request is of the route.
func (s *suspect) isFor(pm *Permit) bool { return isOf(s.route, pm.method, pm.path) }

// isOf reports whether a request is of a route.
func isOf(route, method, path string) bool {
	var buf [longestPath]byte
	return route == string(appendRoute(buf[:0], method, path))
}

// hearAccepted takes in that pm's request was accepted; began: when the latest event did.
func (s *suspect) hearAccepted(pm *Permit, began time.Time) {
	if s.route != "" && !pm.start.After(began) && !s.isFor(pm) {
		s.accepted++
	}
}

// hearRefused takes in that pm's request was refused; fresh: and begins an event. It reports
// whether the route has shown to have a limit of its own.
func (s *suspect) hearRefused(pm *Permit, fresh bool) bool {
	switch {
	case !s.isFor(pm):
		*s = suspect{route: pm.route()}
	case fresh:
		s.halvings += s.inFlight()
		s.refused, s.accepted = 0, 0
	}
	s.refused++
	return s.halvings+s.inFlight() >= unlikely
}

// canSplit reports whether a route of the partition may be given one of its own: where only
// refusals tell of limits, and there is none on all routes that two partitions would have to share.
func (p *partition) canSplit() bool {
	o := p.origin
	return p.route == "" && p.shared == nil && o.routes == nil && len(o.own) < mostOwn &&
		!slices.ContainsFunc(p.slots, func(s *slot) bool { return s.source != SourceLearned })
}

// split gives a route a partition of its own: the present one, which holds already what its
// limit is to hold. All others go on in a new one.
// What was learned from both together is true of neither. It reports false where that cannot be.
func (p *partition) split(now time.Time, route string) bool {
	o, rest := p.origin, p.key
	own := o.reg.ownKey(rest, []byte(route))
	if o.partition(own) != nil { // requests still wait there from before routes were joined again
		return false
	}
	if !slices.Contains(o.own, route) {
		o.own = append(o.own, route)
	}
	delete(o.byKey, rest)
	p.key, p.route = own, route
	if o.byKey != nil {
		o.byKey[p.key] = p
	}
	o.reg.size.Add(1)
	q := o.newPartition(rest, now)
	for pm := p.inFlight.oldest; pm != nil; pm = pm.younger {
		pm.stray = !p.suspect.isFor(pm)
	}
	p.unlearn()
	p.learner, p.suspect = learner{}, suspect{}
	move := func(w *waiter) {
		if !isOf(route, w.method(), w.path) {
			p.leave(w)
			w.home = q
			q.join(now, w)
		}
	}
	p.queue.all(move)
	for _, w := range slices.Clone(p.parked) {
		move(w)
	}
	p.news, q.news, o.stirred = true, true, true
	return true
}

// rejoin has all routes counted together again.
func (o *origin) rejoin() { o.own = nil }

// ownKey is the key of the partition that requests of a route with a limit of its own have.
func (r *Registry) ownKey(key partitionKey, route []byte) partitionKey {
	return key ^ partitionKey(maphash.Bytes(r.seed, route)|1)
}

// keyOf returns the key of the partition that a belongs to, of those of a credential.
func (o *origin) keyOf(key partitionKey, a *ask) partitionKey {
	if len(o.own) == 0 {
		return key
	}
	var buf [longestPath]byte
	route := appendRoute(buf[:0], a.method(), a.path)
	for _, own := range o.own {
		if own == string(route) {
			return o.reg.ownKey(key, route)
		}
	}
	return key
}
