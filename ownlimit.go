package heed

import (
	"hash/maphash"
	"math"
	"slices"
	"time"
)

// A suspect is a route of a partition that may have a limit of its own which nobody announces, for
// it alone is refused; or a few such routes. A limit on all routes turns away any: of those in flight when it is first
// exceeded, that all that are refused are of one route, and all of others are accepted, is as
// unlikely as there are more ways to pick as many of all than of that route. And the more routes have
// been under suspicion before, for others were refused after all, the more that has to be.
//
// Of requests that go one by one nothing is concluded, save where lots decided which of them goes: those of a program
// that asks for its routes in turn may meet the end of a window with the same one each time. Nor is it where it asks
// for all of one route first: what was sent before all that was refused may be the last that the limit let through,
// and counts only as far as as much was sent after.
//
// Two routes with limits of their own are refused in turn, and would hide each other. So one stays under suspicion when
// another is refused: for a few events more, and as long as nothing of it is accepted. They are judged as if
// they were one, and it has to be the less likely the more they are. Where a refusal names no time it holds no others for
// long, and its route does not stay.
type suspect struct {
	routes   []accused       // by when they were refused last
	sent     time.Time       // when the first of those was sent that were refused at the latest event …
	heard    time.Time       // … and when that began
	refused  int             // of those in flight then …
	accepted int             // … of the routes, sent after the first that was refused …
	beside   []time.Duration // … and of others, how long they had been on their way
	events   int             // so many in a row
	between  bool            // others were accepted since the latest
	lots     lots            // which of the routes and of others goes next
	halvings float64         // of how likely the events before make a limit on all routes
	cleared  int             // suspects before
	others   pause           // what holds all, for the server asked for it beside refusals of the routes
}

// An accused is a route under suspicion.
type accused struct {
	route string
	timed bool // its latest refusal named a time
	well  bool // something of it was accepted since …
	ago   int  // … and so many events came
}

const (
	mostOwn     = 64 // routes of an origin with limits of their own, save that a few more may be told apart at once
	mostAccused = 16 // routes under suspicion together …
	staysFor    = 3  // … of which each stays for so many events at others …
	oneMore     = 2  // … and has to be told by so many more halvings
	untilLots   = 2  // events in a row before lots are drawn at the next, though nothing else was accepted meanwhile
	mostBeside  = 64 // of others that are remembered: with so many, few refusals are enough
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

// find returns which of the routes under suspicion a request is of; -1: none.
func (s *suspect) find(method, path string) int {
	if s == nil {
		return -1
	}
	var buf [longestPath]byte
	route := appendRoute(buf[:0], method, path)
	return slices.IndexFunc(s.routes, func(a accused) bool { return a.route == string(route) })
}

// accuses reports whether a route is under suspicion.
func (s *suspect) accuses(route string) bool {
	return slices.ContainsFunc(s.routes, func(a accused) bool { return a.route == route })
}

// isFor reports whether pm's request is of a route under suspicion.
func (s *suspect) isFor(pm *Permit) bool { return s.find(pm.method, pm.path) >= 0 }

// isOf reports whether a request is of a route.
func isOf(route, method, path string) bool {
	var buf [longestPath]byte
	return route == string(appendRoute(buf[:0], method, path))
}

// unheard reports whether nothing was accepted of one of the routes since it was told when to come back.
func (s *suspect) unheard() bool {
	return slices.ContainsFunc(s.routes, func(a accused) bool { return a.timed && !a.well })
}

// acquit lets go of those that stay no longer, now that the last of the routes is refused. What held them holds all, as
// far as is known.
func (s *suspect) acquit(now time.Time, held *pause) {
	last := len(s.routes) - 1
	kept := s.routes[:0]
	for i, a := range s.routes[:last] {
		if a.ago++; a.timed && (!a.well || a.ago <= staysFor) && last-i < mostAccused {
			kept = append(kept, a)
		}
	}
	if len(kept) < last {
		s.others.join(now, held)
	}
	s.routes = append(kept, s.routes[last])
}

// hearAccepted takes in that pm's request was accepted. held is what holds all.
func (s *suspect) hearAccepted(now time.Time, pm *Permit, held *pause) {
	if s == nil {
		return
	}
	i := s.find(pm.method, pm.path)
	if i >= 0 {
		s.routes[i].well = true
	}
	switch inFlight := !pm.start.After(s.heard); {
	case !inFlight:
		s.between = s.between || i < 0
		return
	case i == len(s.routes)-1:
		if pm.start.After(s.sent) {
			s.accepted++
		}
		return
	case i >= 0: // it is not refused where the last one is
		s.routes = slices.Delete(s.routes, i, i+1)
		s.others.join(now, held)
	}
	if len(s.beside) < mostBeside {
		s.beside = append(s.beside, s.heard.Sub(pm.start))
	}
}

// suspectRoute takes in a refusal, and reports whether the routes under suspicion have shown to have limits of their own.
func (p *partition) suspectRoute(now time.Time, r *rejection) bool {
	s, pm, fresh, timed := p.suspect, r.pm, r.fresh, r.hint > 0
	switch i := s.find(pm.method, pm.path); {
	case i < 0:
		s, fresh = s.with(now, accused{route: pm.route(), timed: timed}, &p.pause), true
		p.suspect = s
	case fresh:
		s.halvings += s.inFlight() + halvings(pm.chance)
		if s.between || s.events >= untilLots {
			s.lots.renew(now)
		}
		s.again(i, timed)
		s.acquit(now, &p.pause)
	default:
		s.again(i, timed)
	}
	switch {
	case fresh:
		s.sent, s.heard, s.refused, s.accepted, s.beside = pm.start, now, 1, 0, s.beside[:0]
		s.events, s.between = s.events+1, false
	case !pm.start.After(s.heard):
		s.sent = soonest(s.sent, pm.start)
		s.refused++
	}
	return s.halvings+s.inFlight() >= unlikely(p.origin.ownFailed)+math.Log2(float64(1+s.cleared))+oneMore*float64(len(s.routes)-1)
}

// again takes in that the i-th of the routes is refused again.
func (s *suspect) again(i int, timed bool) {
	a := accused{route: s.routes[i].route, timed: timed}
	s.routes = append(slices.Delete(s.routes, i, i+1), a)
}

// with is the suspicion that the refusal of another route begins, beside those that stay under it. What spoke for their
// limits is forgotten.
func (s *suspect) with(now time.Time, a accused, held *pause) *suspect {
	if s == nil {
		s = &suspect{cleared: -1} // it is the first
		s.others.join(now, held)
	}
	next := &suspect{routes: append(s.routes, a), others: s.others, cleared: s.cleared + 1}
	next.acquit(now, held)
	if last := len(next.routes) - 1; slices.ContainsFunc(next.routes[:last], func(a accused) bool { return !a.well }) {
		next.lots = s.lots
		next.lots.renew(now)
	}
	return next
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
