package heed

import (
	"hash/maphash"
	"math"
	"time"
)

// A suspect is a route of a partition that may have a limit of its own which nobody announces, for
// it alone is refused. A limit on all routes turns away any: of those in flight when it is first
// exceeded, that all that are refused are of one route, and all of others are accepted, is as
// unlikely as there are more ways to pick as many of all than of that route. And the more routes have
// been under suspicion before, for others were refused after all, the more that has to be.
//
// Of requests that go one by one nothing is concluded, save where lots decided which of them goes: those of a program
// that asks for its routes in turn may meet the end of a window with the same one each time. Nor is it where it asks
// for all of one route first: what was sent before all that was refused may be the last that the limit let through,
// and counts only as far as as much was sent after.
type suspect struct {
	route    string          // that was refused last
	sent     time.Time       // when the first of those was sent that were refused at the latest event …
	heard    time.Time       // … and when that began
	refused  int             // of those in flight then …
	accepted int             // … of the route, sent after the first that was refused …
	beside   []time.Duration // … and of others, how long they had been on their way
	events   int             // so many in a row
	between  bool            // others were accepted since the latest
	lots     lots            // which of the route and of others goes next
	halvings float64         // of how likely the events before make a limit on all routes
	cleared  int             // suspects before
	others   pause           // what holds all, for the server asked for it beside refusals of the route
}

const (
	mostOwn    = 64 // routes of an origin with limits of their own
	untilLots  = 2  // events in a row before lots are drawn at the next, though nothing else was accepted meanwhile
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
	case s == nil:
	case pm.start.After(s.heard):
		s.between = s.between || !s.isFor(pm)
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
		s.halvings += s.inFlight() + halvings(pm.chance)
		if s.between || s.events >= untilLots {
			s.lots.renew(now)
		}
	}
	switch {
	case fresh:
		s.sent, s.heard, s.refused, s.accepted, s.beside = pm.start, now, 1, 0, s.beside[:0]
		s.events, s.between = s.events+1, false
	case !pm.start.After(s.heard):
		s.sent = soonest(s.sent, pm.start)
		s.refused++
	}
	return s.halvings+s.inFlight() >= unlikely(p.origin.failed)+math.Log2(float64(1+s.cleared))
}

// holdOthers notes that the server asks for a wait until an instant that holds all.
func (s *suspect) holdOthers(now, until time.Time) {
	if s != nil { // else what the partition waits for holds all
		s.others.obey(now, until)
	}
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
