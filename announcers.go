package heed

import (
	"net/http"
	"slices"
	"time"
)

// A limiter that stands before some routes only is heard of from these alone: all of their answers announce it, and
// none of the others do. Taken for a limit on all, it would hold what it does not count, which may be nearly everything
// that is asked for. So where each answer announces a policy or does not by its route, and what is left says, time after
// time, that less was used than by all routes together, the announced policies are a budget of the routes that announce
// them: see otherRoutes. A route that is not known goes one ahead then, and belongs to it if its answer says so.
//
// An origin that announces now and then, or only where little is left, does so whatever the route. It may seem to do so by
// the route for the regularity with which a program asks, but what is left falls by all requests then.
//
// If a route that is not counted is refused because nothing is left of that budget, it is counted after all, as are all routes.
type announcers struct {
	shown  bool            // the announced policies are a budget of the routes that announce them
	failed int             // so often that turned out to be wrong
	routes map[string]bool // routes whose latest answers announced them
	of     *slot           // the policy that is counted here, …
	ends   time.Time       // … when its window ends, as was told last …
	own    usage           // … what these routes used of it …
	others usage           // … and what the others did, if it counts them
	less   int             // answers in a row that say that it does not
}

const (
	mostAnnouncers = 64 // routes
	mostRefuted    = 5  // times that it takes twice as many answers
	saidLess       = 4  // answers that are enough
)

// general reports whether a policy was announced for no budget in particular.
func (s *slot) general() bool {
	return s.source == SourceAnnounced && (s.budget == "" || s.budget == otherRoutes)
}

// hearAnnouncer takes in whether the answer to pm's request, which is none from elsewhere, announces what no budget is named for;
// silent: it does not, though it could be expected to.
func (p *partition) hearAnnouncer(now time.Time, pm *Permit, a *Announcement, silent bool) {
	o := p.origin
	q := &o.announcers
	if q.shown || o.named || o.majors != nil || p.shared != nil || a.Refused || a.Cached || len(a.PerRoute) > 0 {
		return
	}
	s, left := p.toldOf(a)
	if !silent && s == nil {
		return
	}
	var buf [longestPath]byte
	route := appendRoute(buf[:0], pm.method, pm.path)
	switch known := q.routes[string(route)]; {
	case silent && known: // not by its route
		delete(q.routes, string(route))
		q.less = 0
	case silent && len(q.routes) > 0 && pm.pays(q.of):
		q.others.add(now, pm.start, &q.of.terms)
	case silent:
	case known:
		q.hear(now, pm, s, left)
	case len(q.routes) < mostAnnouncers:
		if q.routes == nil {
			q.routes = map[string]bool{}
		}
		q.routes[string(route)] = true
		fallthrough
	default:
		q.less = 0
		q.hear(now, pm, s, left)
	}
	if q.less >= saidLess<<q.failed && !p.hasOtherBudgets() {
		p.tellAnnouncers(now)
	}
}

// add counts a request that was answered.
func (u *usage) add(now, start time.Time, p *Policy) {
	u.take(1)
	u.done(now, start, 0, 1, p.Quota, p.Window)
}

// hear takes in what the answer to pm's request tells to be left of a slot. All that went since the window's beginning is used, save
// what has come back of a bucket; without the other routes it may be less.
func (q *announcers) hear(now time.Time, pm *Permit, s *slot, left int64) {
	if s != q.of {
		q.of, q.ends, q.own, q.others = s, time.Time{}, usage{}, usage{}
	}
	pol, used, ended := &s.terms, s.policy.Quota-left, q.ends
	q.ends = s.ledger.until()
	if pol.Window <= 0 || pol.Quota <= 0 {
		return
	}
	q.own.add(now, pm.start, pol)
	q.others.expire(now, pol.Window)
	if used > q.own.used(now, pol.Window)+int64(pm.p.unanswered) {
		q.less = 0
		return
	}
	from := ended
	if pm.start.Before(ended) {
		from = ended.Add(-pol.Window)
	}
	since := pm.start.Sub(from)
	if ended.IsZero() || since >= pol.Window {
		return
	}
	before, after := from.Add(-1), pm.start.Add(1)
	others := q.others.between(before, after)
	back := since.Seconds() * float64(pol.Quota) / pol.Window.Seconds()
	if others > 0 && float64(used)+back < float64(others+q.own.between(before, after)+1) {
		q.less++
	}
}

// hasOtherBudgets reports whether some announced policies are of budgets that are told by more than numbers.
func (p *partition) hasOtherBudgets() bool {
	return !p.origin.apart && slices.ContainsFunc(p.slots, func(s *slot) bool { return s.source == SourceAnnounced && !s.general() })
}

// toldOf returns the slot of the first policy of requests of which an announcement says what is left, and names no budget of, and how
// much that is; nil: there is none.
func (p *partition) toldOf(a *Announcement) (_ *slot, left int64) {
	if a.Bucket != "" && a.Bucket != otherRoutes {
		return nil, 0
	}
	for i := range a.Limits {
		l := &a.Limits[i]
		s := p.slotIn("", l.Policy, l.PartitionKey)
		if s == nil {
			s = p.slotIn(otherRoutes, l.Policy, l.PartitionKey)
		}
		if s != nil && l.Remaining >= 0 && sameUnit(s.policy.Unit, UnitRequests) {
			return s, l.Remaining
		}
	}
	return nil, 0
}

// tellAnnouncers has the announced policies hold the routes that announce them alone.
func (p *partition) tellAnnouncers(now time.Time) {
	o, routes := p.origin, p.origin.announcers.routes
	o.announcers = announcers{shown: true, failed: o.announcers.failed}
	o.countApart(now, p, func(*Policy) bool { return true })
	for route := range routes {
		if o.routes.known[route] == "" {
			o.routes.known[route] = otherRoutes
		}
	}
	o.sort(now)
}

// byHabit returns an announcement with the budget that its answer was counted in, where that is one of the routes that
// announce it.
func (o *origin) byHabit(a *Announcement) *Announcement {
	if !o.announcers.shown || a.Bucket != "" || len(a.PerRoute) > 0 || len(a.Policies)+len(a.Limits) == 0 {
		return a
	}
	b := *a
	b.Bucket = otherRoutes
	return &b
}

// doubtAnnouncers takes in that pm's request, which is known not to be counted in the budget of the routes that announce it, was
// refused. Where that is for this budget, all routes are counted.
func (p *partition) doubtAnnouncers(now time.Time, pm *Permit, status int, a *Announcement) {
	o := p.origin
	if !o.announcers.shown || o.named || status == http.StatusServiceUnavailable && len(a.Limits) == 0 {
		return
	}
	if key, known := o.routes.lookUp(pm.method, pm.path); !known || key != "" {
		return
	}
	if slices.ContainsFunc(p.slots, func(s *slot) bool { return s.budget == otherRoutes && s.refuses(now, a) }) {
		o.announcers.failed = min(o.announcers.failed+1, mostRefuted)
		o.countTogether(now, otherRoutes, "")
	}
}

// refuses reports whether a refusal is for the slot's policy: it says so, or says nothing of limits, and there is nothing left.
func (s *slot) refuses(now time.Time, a *Announcement) bool {
	if len(a.Limits) == 0 {
		return !s.isOpen(now)
	}
	return a.exhausts(s.policy.Name) && slices.ContainsFunc(a.Policies, func(pol Policy) bool {
		return pol.Name == s.policy.Name && pol.Quota == s.said.Quota
	})
}
