package heed

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// readDialects adds to an announcement what a response says in dialects, after
// the IETF fields were read into it: what they said stays, and a quota that
// both state is taken in once. fields are the names limitFields found, ref is
// the instant that instants are compared with.
func readDialects(said reply, fields []string, ref time.Time, a *Announcement) {
	r := dialectReaders.Get().(*dialectReader)
	r.a, r.status, r.h, r.ref = *a, said.status, said.header, ref
	r.fields = append(r.fields, fields...) // a copy, so that the caller's stay off the heap
	r.refused = a.Refused || r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable
	r.policies, r.limits = len(a.Policies), len(a.Limits)
	for i := range said.own {
		r.readOwn(&said.own[i], said.origin, uint16(i)<<6)
	}
	r.own = len(r.spoken)
	r.readKnown(knownDialects, said.origin)
	if len(r.spoken) == 0 && len(r.groups) == 0 && !(r.status == http.StatusForbidden && a.RetryAfter > 0) {
		r.free()
		return
	}
	r.sort()
	for i := range r.groups {
		g := &r.groups[i]
		if g.quota == nil {
			r.shown = true
			continue
		}
		r.draft = g.name[roleLimit] == fieldLimit || g.name[roleRemaining] == fieldRemaining
		r.stacked = r.stack(g)
		for r.line = range max(r.stacked, 1) {
			r.emit(g)
		}
		r.line, r.stacked = 0, 0
	}
	r.conclude(said.body)
	*a = r.a
	r.free()
}

// A dialectReader reads one response.
type dialectReader struct {
	a        Announcement // by value, so that the caller's stays off the heap
	status   int
	h        http.Header
	fields   []string
	ref      time.Time // the instant that instants are compared with
	refused  bool
	policies int    // of a.Policies, those the IETF fields stated
	limits   int    // of a.Limits, likewise
	matched  uint64 // of these policies, those a dialect stated too

	spoken []*Dialect // as recognised, the most particular ones first
	own    int        // of spoken, those of a user
	known  int        // of spoken, those recognised by more than the fields of a family
	shown  bool       // a dialect that anybody may speak shows by more than its quotas
	draft  bool       // the quota at hand is in the fields of the early IETF drafts
	usual  bool       // … and its window in the table alone
	taken  uint64     // of fields, those a dialect has explained

	line    int // of the fields of the quota at hand
	stacked int // how many limiters have each added a line of their own to them; 0: that does not show
	groups  []quotaGroup
}

// dialectReaders spare the allocations of a response: most have the fields of
// the one before.
var dialectReaders = sync.Pool{New: func() any { return new(dialectReader) }}

// free keeps a reader for another response, and nothing of this one.
func (r *dialectReader) free() {
	clear(r.spoken)
	clear(r.groups)
	clear(r.fields)
	r.spoken, r.groups, r.fields = r.spoken[:0], r.groups[:0], r.fields[:0]
	r.a, r.h = Announcement{}, nil
	r.matched, r.taken, r.own, r.known, r.shown = 0, 0, 0, 0, false
	dialectReaders.Put(r)
}

// A quotaGroup is the fields found of one quota.
type quotaGroup struct {
	dialect *Dialect
	quota   *QuotaFields // nil: the dialect shows, and no quota
	dim     string       // what "*" stands for
	order   uint16
	name    [numRoles]string // "": not sent
	alt     [numRoles]uint8
}

// speaks notes that a dialect is spoken, and reports whether that is news.
func (r *dialectReader) speaks(d *Dialect) bool {
	if slices.Contains(r.spoken, d) {
		return false
	}
	r.spoken = append(r.spoken, d)
	return true
}

// readOwn looks for the fields of a user's dialect, whatever their names, if it
// is spoken here.
func (r *dialectReader) readOwn(d *Dialect, origin string, order uint16) {
	here := d.spokenAt(origin) || d.Sign != "" && len(r.h.Values(d.Sign)) > 0
	if (here || d.anywhere()) && r.readQuotas(d, order, true) || here {
		r.speaks(d)
	}
}

// readKnown looks for the fields of a table's dialects: first those spoken at
// the origin or shown by their sign, then of those that anybody may speak.
func (r *dialectReader) readKnown(x *dialectIndex, origin string) {
	const first = 1 << 12 // after a user's dialects, before those anybody may speak
	host := originHost(origin)
	here := x.origins[domain(host)]
	for i := range here {
		if d := here[i].dialect; here[i].covers(host) && r.speaks(d) {
			r.readQuotas(d, first+x.order[d], false)
		}
	}
	for i := range x.signs {
		if sign := &x.signs[i]; r.sent(sign.name, false) && r.speaks(sign.dialect) {
			r.readQuotas(sign.dialect, first+x.order[sign.dialect], false)
		}
	}
	r.known = len(r.spoken)
	for i, name := range r.fields {
		if r.taken&(1<<i) != 0 {
			continue
		}
		if uses, ok := x.fields[name]; ok {
			for _, use := range uses {
				r.found(use, "", name)
			}
			continue
		}
		patterns := x.rest
		if len(name) > patternKey {
			patterns = x.patterns[name[:patternKey]]
		}
		if !r.try(patterns, name) {
			r.try(x.rest, name)
		}
	}
}

func (r *dialectReader) try(patterns []fieldPattern, name string) bool {
	for i := range patterns {
		if dim, ok := patterns[i].match(name); ok {
			r.found(patterns[i].use, dim, name)
			return true
		}
	}
	return false
}

// readQuotas looks for all fields of one dialect, and reports whether there
// are any. A field that it names outright is not one of those for which a
// pattern stands.
func (r *dialectReader) readQuotas(d *Dialect, order uint16, own bool) bool {
	before, taken := len(r.groups), r.taken
	patterns := false
	for name, use := range d.uses(order, own) {
		if strings.IndexByte(name, '*') >= 0 {
			patterns = true
		} else if r.sent(name, own) && r.take(name, taken) {
			r.found(use, "", name)
		}
	}
	if patterns {
		r.readPatterns(d, order, own, before, taken)
	}
	return len(r.groups) > before
}

// readPatterns is readQuotas for the patterns. The groups from first on are those of
// the fields that the dialect names outright; taken are the fields that the dialects
// before it have explained.
func (r *dialectReader) readPatterns(d *Dialect, order uint16, own bool, first int, taken uint64) {
	named := r.groups[first:len(r.groups):len(r.groups)]
	for name, use := range d.uses(order, own) {
		prefix, suffix, star := strings.Cut(name, "*")
		if !star {
			continue
		}
		p := fieldPattern{prefix, suffix, use}
		if !own {
			for _, name := range r.fields {
				r.takePattern(&p, name, named, taken)
			}
			continue
		}
		n := 0
		for name, lines := range r.h {
			if n < maxFields && len(lines) > 0 && r.takePattern(&p, name, named, taken) {
				n++
			}
		}
	}
}

// takePattern takes in a field that fits a pattern, unless the dialect names it
// outright.
func (r *dialectReader) takePattern(p *fieldPattern, name string, named []quotaGroup, taken uint64) bool {
	dim, ok := p.match(name)
	if !ok {
		return false
	}
	for i := range named {
		if slices.Contains(named[i].name[:], name) {
			return false
		}
	}
	if !r.take(name, taken) {
		return false
	}
	r.found(p.use, dim, name)
	return true
}

// sent reports whether a field was sent. Those of users' dialects may have a
// name that does not speak of limits.
func (r *dialectReader) sent(name string, anyName bool) bool {
	if anyName {
		return len(r.h[name]) > 0
	}
	return slices.Contains(r.fields, name)
}

// take marks a field as explained, and reports whether none of the dialects
// that came before, those of the mask, had explained it.
func (r *dialectReader) take(name string, before uint64) bool {
	for i, f := range r.fields {
		if f == name {
			r.taken |= 1 << i
			return before&(1<<i) == 0
		}
	}
	return true
}

// found puts a field into the group of its quota.
func (r *dialectReader) found(use fieldUse, dim, name string) {
	var g *quotaGroup
	for i := range r.groups {
		if r.groups[i].quota == use.quota && r.groups[i].dim == dim && r.groups[i].dialect == use.dialect {
			g = &r.groups[i]
		}
	}
	if g == nil {
		if len(r.groups) == maxItems {
			return
		}
		r.groups = append(r.groups, quotaGroup{dialect: use.dialect, quota: use.quota, dim: dim, order: use.order})
		g = &r.groups[len(r.groups)-1]
	}
	if g.name[use.role] == "" || use.alt < g.alt[use.role] {
		g.name[use.role], g.alt[use.role] = name, use.alt
	}
}

// sort puts the groups into the order of the table: that of a header's fields
// is random.
func (r *dialectReader) sort() {
	for i := 1; i < len(r.groups); i++ {
		for j := i; j > 0; j-- {
			a, b := &r.groups[j-1], &r.groups[j]
			if a.order < b.order || a.order == b.order && a.dim <= b.dim {
				break
			}
			*a, *b = *b, *a
		}
	}
}

// emit reads one quota.
func (r *dialectReader) emit(g *quotaGroup) {
	p := g.policy()
	l := ServiceLimit{Remaining: -1, Reset: -1}
	r.readTimes(g, &p, &l)
	if g.quota.Form != FormNumber {
		r.emitForm(g, p, l)
		return
	}
	r.emitNumber(g, p, l)
}

// policy is what the table says of a quota, and what its "*" stands for.
func (g *quotaGroup) policy() Policy {
	q := g.quota
	p := Policy{Name: q.Policy, Quota: -1, Window: q.Window, Unit: q.Unit}
	if g.dim == "" {
		return p
	}
	dim := strings.ToLower(g.dim)
	switch {
	case p.Name == "":
		p.Name = strings.TrimPrefix(dim, "x-")
	case strings.Contains(p.Name, "*"):
		p.Name = strings.Replace(p.Name, "*", dim, 1)
	}
	if p.Unit == "" {
		p.Unit = wordUnit(dim)
	}
	if p.Window == 0 {
		p.Window = wordWindow(dim)
	}
	return p
}

// endsSo reports whether the field that says when to come back is the only one to say when the window of a quota ends: some is left,
// and there is no other, as in Symfony. Where the service's documentation says how long the window is, it may be about another quota.
func (r *dialectReader) endsSo(g *quotaGroup) bool {
	return r.status/100 == 2 && g.quota.Window == 0 && g.name[roleReset] == "" && g.name[roleResetAfter] == "" && r.left(g, false, true) > 0
}

// readTimes reads those fields of a quota that state spans and instants.
func (r *dialectReader) readTimes(g *quotaGroup, p *Policy, l *ServiceLimit) {
	q := g.quota
	switch s, ok := r.span(g, roleRetryAfter, q.RetryAfterForm); {
	case !ok || s.d <= 0:
	case r.endsSo(g): // which asks nobody to wait
		l.Reset, l.Resolution, l.Clock = s.d, s.grain, s.clock
	case r.a.RetryAfter <= 0:
		r.a.RetryAfter = s.d
	}
	if s, ok := r.span(g, roleInterval, q.IntervalForm); ok && s.d > 0 && !s.clock {
		p.Window = s.d
	} else if w := wordWindow(strings.ToLower(trimOWS(r.value(g, roleInterval)))); w > 0 { // "minute"
		p.Window = w
	}
	if s, ok := r.span(g, roleReset, q.ResetForm); ok {
		l.Reset, l.Resolution, l.Clock = s.d, s.grain, s.clock
	}
	if s, ok := r.span(g, roleResetAfter, TimeAuto); ok && !s.clock {
		l.Reset, l.Resolution, l.Clock = s.d, s.grain, false
		if s.d > 0 && r.a.RetryAfter/1000 == s.d {
			r.a.RetryAfter = s.d // Discord's older versions state it in milliseconds
		}
	}
}

// emitNumber states a quota whose fields are plain numbers: how much it is, how much of it
// is left, and how much used.
func (r *dialectReader) emitNumber(g *quotaGroup, p Policy, l ServiceLimit) {
	q := g.quota
	limit := r.value(g, roleLimit)
	alone := g.name[roleReset] != "" && strings.IndexByte(r.value(g, roleReset), ',') < 0 && inThousands(r.value(g, roleRemaining))
	grouped := groupsThousands(limit, alone)
	if grouped {
		limit = strings.ReplaceAll(limit, ",", "")
	}
	readSize(&p, limit)
	if r.line > 0 { // the first of them may be alone in other answers
		p.Name = strconv.FormatInt(p.Quota, 10)
	}
	l.Remaining = r.left(g, grouped, p.Quota >= 0)
	if q.ResetIfExceeded && !r.refused && (l.Remaining != 0 || l.Reset < time.Second) { // the Date it is read by is cut to seconds
		l.Reset, l.Resolution, l.Clock = -1, 0, false
	}
	if g.name[roleRate] != "" {
		setRate(&p, r.value(g, roleRate), !g.dialect.anywhere())
	}
	if p.Quota < 0 && q.Quota > 0 {
		p.Quota = q.Quota
	}
	r.readUsed(g, grouped, &p, &l)
	if p.Name == "" && g.name[roleLimit] != fieldLimit && len(limit) <= maxValue && strings.IndexByte(limit, '=') >= 0 {
		r.emitList(&p, limit)
	}
	r.state(g, p, l)
}

// readSize reads how large a quota is: a number, one with a window, or a rate below
// one in the window of the table.
func readSize(p *Policy, limit string) {
	if n, ok := parseCount(limit); ok {
		p.Quota = n
	} else if n, w, ok := parseCountPer(limit); ok {
		p.Quota, p.Window = n, w
	} else if n, rest, ok := scanDecimal(trimOWS(limit)); ok && !n.neg && rest == "" && n.nanos > 0 && p.Window > 0 {
		p.Quota = 1 // tollbooth: 0.02 in a second is one in 50
		p.Window = time.Duration(min(float64(p.Window)/float64(n.nanos)*1e9, float64(maxSpan)))
	}
}

// readUsed reads how much of a quota is used, and what follows from that for how
// much is left of it, or how large it is, where the response does not say so.
func (r *dialectReader) readUsed(g *quotaGroup, grouped bool, p *Policy, l *ServiceLimit) {
	if g.name[roleUsed] == "" {
		return
	}
	value := r.value(g, roleUsed)
	if grouped {
		value = strings.ReplaceAll(value, ",", "")
	}
	used, ok := parseCount(value)
	if !ok {
		return
	}
	l.Used = used
	if p.Quota < 0 && l.Remaining >= 0 && g.name[roleLimit] == "" { // else who knows what it is that is used
		p.Quota = used + l.Remaining
	}
	if l.Remaining < 0 && p.Quota >= 0 {
		l.Remaining = max(0, p.Quota-used)
	}
}

// emitList reads the policies that follow the quota in force in the early IETF
// drafts, and in Envoy's fields:
//
//	X-RateLimit-Limit: 10, 10;w=1;name="per-ip", 1000;w=3600
//
// The very first drafts wrote w as "window". The first of them with that quota becomes p.
func (r *dialectReader) emitList(p *Policy, list string) {
	found := false
	items := 0
	for item := range strings.SplitSeq(list, ",") {
		if items++; items > maxItems {
			return
		}
		n, ok := parseCount(item)
		if !ok {
			continue
		}
		listed := Policy{Quota: n, Unit: p.Unit}
		_, params, _ := strings.Cut(item, ";")
		for param := range strings.SplitSeq(params, ";") {
			key, value, _ := strings.Cut(trimOWS(param), "=")
			switch value = trimOWS(value); key {
			case "w", "window":
				if s, ok := parseSpan(value, TimeAuto, r.ref); ok && !s.clock {
					listed.Window = s.d
				}
			case "name":
				listed.Name = strings.Trim(value, `"`)
			}
		}
		if listed.Window == 0 && listed.Name == "" {
			continue // the quota in force
		}
		if listed.Name == "" {
			listed.Name = integerPolicy(n, int64(listed.Window/time.Second)).Name
		}
		if !found && n == p.Quota {
			found = true
			*p = listed
			continue
		}
		r.add(nil, listed, ServiceLimit{Remaining: -1, Reset: -1})
	}
}

// cutWord returns the first word of s, "" where there is none, and what follows
// it.
func cutWord(s string) (word, more string) {
	for len(s) > 0 && s[0] == ' ' {
		s = s[1:]
	}
	if i := strings.IndexByte(s, ' '); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
