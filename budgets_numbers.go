package heed

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Routes may have limits of their own that nothing tells apart but their numbers: one route's
// answers say 15 and another's 900, or both say 15, of which each has left what its own
// requests have left. Taken for one quota, every answer would replace what is known of the
// others.
//
// So of each route three words are compared: one that was said to another route, then one to the
// route itself, and one to a request of it that went after both. Where the last can follow the
// second, as what is said of one quota does, but not the first, that speaks for a quota of the
// route's own; where it cannot follow the second, against it. Where routes have nothing to do
// with it (a quota that changes, servers that do not agree, counts that are not exact) the one is
// no likelier than the other, for the second word is the newer one. So only many in a row show that
// a route is apart. By their sizes limits are told apart first, and called by them, for several
// routes can have one together. A route that is told apart from all others whose limit is
// as large has a budget of its own. What has not been told apart stays together, and the
// contrary of what was thought joins it again.

// A watched route is one whose numbers are compared with those of others.
type watched struct {
	route        uint64 // a hash of it
	heard        int    // answers
	last         time.Time
	slot         *slot  // that they were counted in last
	another, own word   // said since the last comparison, in this order
	size, count  int    // comparisons in a row that speak for a limit of another size, and for a count of its own …
	from         uint32 // … apart from these routes
	trust        int    // in what it is taken for
}

// A word is what one answer said of its quota.
type word struct {
	by               int       // the route that it was said to
	sent, heard      time.Time // zero: there is none
	quota, left      int64
	earliest, latest time.Time // its reset, as far as it was named; zero: it was not
	window           time.Duration
	until            time.Time // nothing comes back unit by unit before this; zero: it may
}

const (
	mostWatched  = 32 // routes of a partition: those that were answered last
	apartAfter   = 12 // by chance they are so many in a row once in 4096 times
	mostRejoined = 16 // times that it takes twice as many
	otherRoutes  = "other routes"
)

var numberSeed = maphash.MakeSeed()

// A quotaTold is an answer that speaks of one quota: see oneQuota.
type quotaTold struct {
	at     time.Time
	pm     *Permit // to whose request it is
	policy Policy
	limit  ServiceLimit
	date   time.Time
}

// size is what the budget of all routes is called whose limits are as large.
func (t *quotaTold) size() string { return strconv.FormatInt(t.policy.Quota, 10) }

// byNumbers returns an announcement with the budget that its answer was counted in, where
// routes have budgets that only numbers tell apart. first: it is the answer to pm's request.
func (p *partition) byNumbers(now time.Time, pm *Permit, a *Announcement, first bool) *Announcement {
	o := p.origin
	if a.Bucket != "" || o.named || p.shared != nil || !a.oneQuota() { // processes that share a ledger have it in common
		return a
	}
	var buf [longestPath]byte
	route := appendRoute(buf[:0], pm.method, pm.path)
	t := &quotaTold{now, pm, a.Policies[0], a.Limits[0], a.Date}
	switch {
	case first && !a.Refused:
		p.compareNumbers(t, route)
	case o.apart && a.Refused:
		p.doubtNumbers(t, route)
	}
	if !o.apart {
		return a
	}
	// It may be one of those whose limits are as large.
	if o.numbered(route) == otherRoutes && p.slotIn(t.size(), t.policy.Name, "") != nil {
		p.recount(t, route, t.size())
	}
	b := *a
	b.Bucket = o.numbered(route)
	return &b
}

// oneQuota reports whether an announcement is of one quota of requests, and says what is left of it.
func (a *Announcement) oneQuota() bool {
	if len(a.Policies) != 1 || len(a.Limits) != 1 || len(a.PerRoute) > 0 {
		return false
	}
	p, l := &a.Policies[0], &a.Limits[0]
	return p.Quota > 0 && sameUnit(p.Unit, UnitRequests) && p.PartitionKey == "" && l.PartitionKey == "" && l.Policy == p.Name && l.Remaining >= 0
}

// numbered is the budget of a route, as far as numbers tell; "": they tell none apart. That of one
// that was also refused by itself its next answer tells anew.
func (o *origin) numbered(route []byte) string {
	if !o.apart {
		return ""
	}
	if key := o.routes.known[string(route)]; key != "" && !strings.Contains(key, budgetSep) {
		return key
	}
	return otherRoutes
}

// compareNumbers compares what an accepted answer says with what was said to its route and
// to others before.
func (p *partition) compareNumbers(t *quotaTold, route []byte) {
	i := p.watch(t.at, maphash.Bytes(numberSeed, route))
	w := &p.watched[i]
	w.slot = p.slotIn(p.origin.numbered(route), t.policy.Name, "")
	x := w.word(t)
	x.by = i
	for j := range p.watched {
		if v := &p.watched[j]; j != i && v.slot == w.slot && v.wants(i) {
			v.another, v.own = x, word{}
		}
	}
	switch {
	case w.another.heard.IsZero() && !p.origin.apart: // there is nothing yet to tell, and nothing to doubt
		return
	case w.own.heard.IsZero():
		w.own = x
		return
	case x.sent.Before(w.own.heard):
		return
	}
	another, own := w.another, w.own
	w.another, w.own = word{}, word{}
	if !x.follows(&own) {
		if w.size, w.count, w.from, w.trust = 0, 0, 0, w.trust-apartAfter/4; w.trust <= 0 {
			p.countWithOthers(t, route, w)
		}
		return
	}
	w.trust = min(w.trust+1, apartAfter)
	enough := apartAfter << p.origin.apartFailed
	switch {
	case another.heard.IsZero() || x.follows(&another):
	case x.quota != another.quota:
		if w.size++; w.size >= enough {
			w.size = 0
			p.setApart(t, route, t.size())
		}
	case x.left < own.left:
		w.from |= 1 << another.by
		if w.count++; w.count >= enough && p.toldApart(i) {
			p.setApart(t, route, string(route))
		}
	}
}

// wants reports whether a route is next to be compared with another one: in time with all of them.
func (w *watched) wants(i int) bool {
	if w.another.heard.IsZero() {
		return true
	}
	return w.own.heard.IsZero() && w.from&(1<<w.another.by) != 0 && w.from&(1<<i) == 0
}

// toldApart reports whether a route has been told apart from all that it is counted with and that are
// heard of often.
func (p *partition) toldApart(i int) bool {
	w := &p.watched[i]
	for j := range p.watched {
		if v := &p.watched[j]; j != i && v.slot == w.slot && v.heard >= apartAfter && w.from&(1<<j) == 0 {
			return false
		}
	}
	return true
}

// watch returns the place of what is known of a route's numbers, which is that of what was heard of
// longest ago where there is no more room.
func (p *partition) watch(now time.Time, route uint64) int {
	i, oldest := -1, 0
	for j := range p.watched {
		if p.watched[j].route == route {
			i = j
		}
		if p.watched[j].last.Before(p.watched[oldest].last) {
			oldest = j
		}
	}
	switch {
	case i >= 0:
	case len(p.watched) < mostWatched:
		i = len(p.watched)
		p.watched = append(p.watched, watched{route: route, trust: apartAfter})
	default:
		i = oldest
		p.watched[i] = watched{route: route, trust: apartAfter}
		for j := range p.watched {
			v := &p.watched[j]
			if v.from &^= 1 << i; v.another.by == i {
				v.another, v.own = word{}, word{}
			}
		}
	}
	w := &p.watched[i]
	w.last = now
	w.heard++
	return i
}

// word is what an answer says of its quota.
func (w *watched) word(t *quotaTold) word {
	lim, sent := &t.limit, t.pm.start
	x := word{sent: sent, heard: t.at, quota: t.policy.Quota, left: lim.Remaining}
	if w.slot != nil {
		x.window = w.slot.terms.Window
	}
	if lim.Reset <= 0 {
		return x
	}
	off := lim.Resolution
	x.earliest, x.latest = sent.Add(lim.Reset-off), t.at.Add(lim.Reset)
	if lim.Clock && !t.date.IsZero() { // on the origin's clock, of which Date is cut to seconds
		x.latest = t.date.Add(lim.Reset)
		x.earliest = x.latest.Add(-off)
		off += time.Second
	}
	if lim.Reset < x.window-off { // else it may be the newest unit that is back then
		x.until = sent.Add(lim.Reset - off)
	}
	return x
}

// follows reports whether x may be the next word after w of the same quota, as far as is known: that is as
// large, its reset does not move back, and no more is left before that than can have come back.
func (x *word) follows(w *word) bool {
	switch {
	case w.quota != x.quota:
		return false
	case w.latest.IsZero() || x.latest.IsZero() || w.left == 0 || x.left == 0: // which may name the next unit
		return true
	case x.latest.Before(w.earliest):
		return false
	case x.earliest.After(w.latest) || x.heard.After(w.until):
		return true
	}
	steadily := x.heard.Sub(w.sent).Seconds() * float64(w.quota) / w.window.Seconds()
	return x.left-w.left <= int64(steadily)+1
}

// setApart has requests of a route counted in another budget than those that it has been told apart
// from.
func (p *partition) setApart(t *quotaTold, route []byte, budget string) {
	o, name := p.origin, t.policy.Name
	if !o.apart {
		o.countApart(t.at, p, func(pol *Policy) bool { return pol.Name == name && pol.PartitionKey == "" })
	}
	if o.numbered(route) != budget {
		p.recount(t, route, budget)
	}
}

// countApart makes announced policies that held all requests a budget of routes, from which others can be told apart. heard is
// the partition that heard of them.
func (o *origin) countApart(now time.Time, heard *partition, which func(*Policy) bool) {
	o.apart = true
	o.table(now, heard)
	for _, q := range o.partitions {
		for _, s := range q.slots {
			if s.source == SourceAnnounced && s.budget == "" && which(&s.policy) {
				s.budget = otherRoutes
			}
		}
		q.news = true
	}
	for i := range o.known {
		if k := &o.known[i]; k.budget == "" && which(&k.Policy) {
			k.budget = otherRoutes
		}
	}
	o.sort(now)
}

// recount has requests of a route counted in another budget than before, in all partitions.
func (p *partition) recount(t *quotaTold, route []byte, budget string) {
	o, pol := p.origin, t.policy
	pol.Unit = UnitRequests
	before := o.numbered(route)
	p.learnRoute(t.at, t.pm, budget)
	for _, q := range o.partitions {
		if s := q.slotIn(before, pol.Name, ""); s != nil {
			q.recounted(t.at, s, pol, budget, q == p)
		}
	}
}

// recounted has requests that were counted in a slot counted in another budget. Until when they were
// to wait still holds, and those in flight may be counted in either. told: an answer says what is left
// there; else one request goes ahead to see.
func (p *partition) recounted(now time.Time, before *slot, pol Policy, budget string, told bool) {
	l, s := p.lane(now, budget), p.slotIn(budget, pol.Name, "")
	if s == nil {
		if s = p.announced(now, pol, budget); s == nil {
			return
		}
		if l != nil && !told {
			l.opening.meet(now)
		}
	}
	s.ledger.closeUntil(before.ledger.closed)
	p.charge(now, s)
	for _, former := range p.lanes {
		if l != nil && former.key == before.budget {
			p.waitFor(now, l, &former.pause)
		}
	}
	for i := range p.watched { // with others than before
		if w := &p.watched[i]; w.slot == before {
			w.another, w.own = word{}, word{}
		}
	}
}

// doubtNumbers takes in that a request was refused. Where that is for its budget, though by its
// own count much is left, others are counted in it.
func (p *partition) doubtNumbers(t *quotaTold, route []byte) {
	s := p.slotIn(p.origin.numbered(route), t.policy.Name, "")
	if s == nil || s.budget == otherRoutes || t.limit.Remaining > 0 || s.said.Quota != t.policy.Quota {
		return
	}
	if l := &s.ledger; l.stated && l.left > s.said.Quota/4 {
		i := p.watch(t.at, maphash.Bytes(numberSeed, route))
		p.countWithOthers(t, route, &p.watched[i])
	}
}

// countWithOthers has requests of a route counted with those of other routes again. It takes twice as much
// then to show that any are apart. Where it was the size of its limit that told them, none are.
func (p *partition) countWithOthers(t *quotaTold, route []byte, w *watched) {
	o := p.origin
	key := o.numbered(route)
	w.size, w.count, w.from, w.trust = 0, 0, 0, apartAfter
	if key == "" || key == otherRoutes {
		return
	}
	o.apartFailed = min(o.apartFailed+1, mostRejoined)
	if key == string(route) {
		p.recount(t, route, otherRoutes)
		return
	}
	o.countTogether(t.at, key, t.policy.Name)
}

// countTogether has each announced policy hold all requests again: of those of a name the one of a budget goes on.
func (o *origin) countTogether(now time.Time, budget, name string) {
	o.apart, o.routes, o.announcers.shown = false, nil, false
	before := o.known
	o.known = nil
	for _, goesOn := range []bool{false, true} { // of the same name, the one that goes on is known last
		for _, k := range before {
			if on := k.budget == budget; on == goesOn && (on || k.budget == "" || k.budget == otherRoutes) {
				o.know(knownPolicy{Policy: k.Policy})
			}
		}
	}
	o.sort(now)
	for _, q := range o.partitions {
		q.rejoin(now, budget, name)
	}
}

// rejoin has each announced policy hold all requests again, of whatever budget it was: of those of
// the same name the one called by a key goes on, if it is known.
func (p *partition) rejoin(now time.Time, key, name string) {
	if s := p.slotIn(key, name, ""); s != nil {
		s.budget = ""
	}
	for _, s := range slices.Clone(p.slots) {
		if s.source != SourceAnnounced || s.budget == "" {
			continue
		}
		one := p.slotIn("", s.policy.Name, s.policy.PartitionKey)
		if one == nil {
			s.budget, one = "", s
		} else {
			one.ledger.closeUntil(s.ledger.closed)
			p.dropSlot(s)
		}
		p.charge(now, one) // also what was counted in others
	}
	if one := p.slotIn("", name, ""); one != nil {
		one.ledger.anew()
	}
	for _, l := range p.lanes {
		p.waitFor(now, nil, &l.pause)
	}
	p.forgetLanes(now, func(*lane) bool { return true })
	p.watched, p.news = nil, true
}
