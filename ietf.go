package heed

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The fields of draft-ietf-httpapi-ratelimit-headers, in the form in which
// net/http keys them. The unprefixed three of drafts 00 to 06 are also sent by
// many who mean something of their own by them.
const (
	fieldRateLimit  = "Ratelimit"           // 07: a Dictionary; since 08: a List
	fieldPolicy     = "Ratelimit-Policy"    // since 04
	fieldLimit      = "Ratelimit-Limit"     // 00 to 06
	fieldRemaining  = "Ratelimit-Remaining" // 00 to 06
	fieldReset      = "Ratelimit-Reset"     // 00 to 06
	fieldBeta       = "Beta-Ratelimit"      // as without Beta-, at Atlassian
	fieldBetaPolicy = "Beta-Ratelimit-Policy"
)

// What [Announcement.Dialect] calls the wire formats of the draft.
const (
	dialectIETF11 = "ietf-11" // 08 to 11, and what is to come
	dialectIETF07 = "ietf-07"
	dialectIETF06 = "ietf-06" // 00 to 06
)

// What is kept of one response is bounded, whatever a server sends. A parser
// has to take more than is kept (RFC 9651, section 3 and appendix C): what is
// too long to be kept is left out, not misread.
const (
	maxFieldLen = 64 << 10 // a longer field, all its lines together, is ignored
	maxItems    = 64       // policies and service limits kept, of each; the first ones
	maxNameLen  = 1 << 10  // an item with a longer name, unit or partition key is ignored
)

// readIETF adds what the fields of the draft say, all generations of it. Where
// a server states its limits in several of them the newest that says something
// counts.
func (a *Announcement) readIETF(h map[string][]string, ref time.Time) {
	rateLimit, policy := h[fieldRateLimit], h[fieldPolicy]
	if rateLimit == nil && policy == nil {
		rateLimit, policy = h[fieldBeta], h[fieldBetaPolicy]
	}
	if policy != nil {
		if s, ok := joinLines(policy); ok {
			a.readPolicies(s)
		}
	}
	if rateLimit != nil {
		if s, ok := joinLines(rateLimit); ok && !a.readServiceLimits(s) {
			a.readDictionary(s, ref)
		}
	}
	if len(a.Limits) == 0 {
		a.readThreeFields(h, ref)
	}
	if a.Dialect == "" && len(a.Policies) > 0 {
		a.Dialect = dialectIETF07
	}
}

// joinLines joins the lines of a field to its value (RFC 9110, section 5.3).
func joinLines(lines []string) (string, bool) {
	if len(lines) == 1 {
		return lines[0], len(lines[0]) <= maxFieldLen
	}
	n := 0
	for _, l := range lines {
		if n += len(l) + 2; n > maxFieldLen {
			return "", false
		}
	}
	return strings.Join(lines, ", "), true
}

// readPolicies reads
//
//	RateLimit-Policy = sf-list
//	item             = sf-string *( ";" "q=" sf-integer / ";" "w=" sf-integer
//	                              / ";" "qu=" sf-string / ";" "pk=" sf-binary )
//
// (draft-11, section 3) and the Integer items of drafts 04 to 07,
//
//	quota-policy     = sf-integer ";" "w=" sf-integer
//
// A Token does for a name, as in the examples of drafts 08 to 10. An item that
// breaks the draft's rules is ignored and the others are not, which is what the
// draft's successor says; a field that is no list says nothing. Parameters that
// the draft does not name are comments (section 3.1).
func (a *Announcement) readPolicies(s string) {
	kept, named := len(a.Policies), false
	p := sfScanner{s: s}
	for p.more() {
		name := p.member()
		var q, w, qu, pk sfValue
		for key, v, ok := p.param(); ok; key, v, ok = p.param() {
			switch key {
			case "q":
				q = v
			case "w":
				w = v
			case "qu":
				qu = v
			case "pk":
				pk = v
			}
		}
		if p.bad || len(a.Policies) >= maxItems {
			continue
		}
		if name.kind == sfInteger {
			if w.kind == sfInteger && name.n >= 0 && w.n >= 0 {
				a.addPolicy(integerPolicy(name.n, w.n))
			}
			continue
		}
		var policy Policy
		var ok bool
		if policy.Name, ok = keepText(name); !ok || q.kind != sfInteger || q.n < 0 {
			continue
		}
		policy.Quota = q.n
		// A window of 0 was legal in draft 08. It states none: dividing by it
		// would make an endless rate of it.
		if w.kind != sfAbsent {
			if w.kind != sfInteger || w.n < 0 {
				continue
			}
			policy.Window = seconds(w.n)
		}
		if policy.Unit, ok = unitOf(qu); !ok {
			continue
		}
		if policy.PartitionKey, ok = keepBytes(pk); !ok {
			continue
		}
		a.addPolicy(policy)
		named = true
	}
	if p.bad {
		a.Policies = a.Policies[:kept]
	} else if named {
		a.Dialect = dialectIETF11
	}
}

// readServiceLimits reads
//
//	RateLimit = sf-list
//	item      = sf-string *( ";" "r=" sf-integer / ";" "t=" sf-integer / ";" "pk=" sf-binary )
//
// (draft-11, section 4) as readPolicies does. The draft's successor calls r "a"
// and t "w". An item without r says nothing about what remains, and certainly
// not that nothing does. It reports whether the field was such a list.
func (a *Announcement) readServiceLimits(s string) bool {
	kept, found := len(a.Limits), false
	p := sfScanner{s: s}
	for p.more() {
		name := p.member()
		var r, t, avail, w, pk sfValue
		for key, v, ok := p.param(); ok; key, v, ok = p.param() {
			switch key {
			case "r":
				r = v
			case "a":
				avail = v
			case "t":
				t = v
			case "w":
				w = v
			case "pk":
				pk = v
			}
		}
		if p.bad || len(a.Limits) >= maxItems {
			continue
		}
		if r.kind == sfAbsent {
			r = avail
		}
		if t.kind == sfAbsent {
			t = w
		}
		limit := ServiceLimit{Remaining: -1, Reset: -1}
		var ok bool
		if limit.Policy, ok = keepText(name); !ok {
			continue
		}
		found = true
		if r.kind != sfAbsent {
			if r.kind != sfInteger || r.n < 0 {
				continue
			}
			limit.Remaining = r.n
		}
		if t.kind != sfAbsent {
			if t.kind != sfInteger || t.n < 0 {
				continue
			}
			limit.Reset, limit.Resolution = seconds(t.n), time.Second
		}
		if limit.PartitionKey, ok = keepBytes(pk); !ok {
			continue
		}
		a.addLimit(limit)
	}
	if p.bad {
		a.Limits = a.Limits[:kept]
		return false
	}
	if len(a.Limits) > kept {
		a.Dialect = dialectIETF11
	}
	return found
}

// readDictionary reads
//
//	RateLimit = sf-dictionary
//
// with the keys limit, remaining and reset, all Integers (draft-07, section 5).
// It is about the policy with that limit. Close.com has the reset as a Decimal, and
// semicolons for the commas, which makes parameters of the others.
func (a *Announcement) readDictionary(s string, ref time.Time) {
	p := sfScanner{s: s}
	var limit, remaining, reset sfValue
	take := func(key string, v sfValue) (known bool) {
		switch key {
		case "limit":
			limit = v
		case "remaining":
			remaining = v
		case "reset":
			reset = v
		default:
			return false
		}
		return true
	}
	for p.more() {
		known := take(p.dictMember())
		for key, v, ok := p.param(); ok; key, v, ok = p.param() {
			if known {
				take(key, v)
			}
		}
	}
	if p.bad || limit.kind == sfAbsent && remaining.kind == sfAbsent {
		return
	}
	for _, v := range [...]sfValue{limit, remaining} {
		if v.kind != sfAbsent && (v.kind != sfInteger || v.n < 0) {
			return
		}
	}
	if reset.kind != sfAbsent && (reset.kind != sfInteger && reset.kind != sfDecimal || reset.n < 0) {
		return
	}
	l := ServiceLimit{Remaining: -1, Reset: -1}
	if remaining.kind != sfAbsent {
		l.Remaining = remaining.n
	}
	if reset.kind != sfAbsent {
		l.setReset(reset.raw, ref)
	}
	quota := int64(-1)
	if limit.kind != sfAbsent {
		quota = limit.n
	}
	a.addNameless(l, quota)
	a.Dialect = dialectIETF07
}

// readThreeFields reads
//
//	RateLimit-Limit     = expiring-limit [ "," 1#quota-policy ]
//	RateLimit-Remaining = sf-integer
//	RateLimit-Reset     = sf-integer
//
// (draft-03, section 3; from 04 on the policies have a field of their own).
// Many send fields of these names without having read the draft: the limit may
// have a window itself and no reset beside it, and the reset may be an instant.
func (a *Announcement) readThreeFields(h map[string][]string, ref time.Time) {
	limitLines, remainingLines, resetLines := h[fieldLimit], h[fieldRemaining], h[fieldReset]
	if limitLines == nil && remainingLines == nil && resetLines == nil {
		return
	}
	n := stackedLines(limitLines, remainingLines, resetLines)
	if n == 0 {
		a.readTrio(limitLines, remainingLines, resetLines, ref, false)
		return
	}
	// Several limiters, one behind the other.
	limitLines, remainingLines, resetLines = apartLines(limitLines, ","), apartLines(remainingLines, ","), apartLines(resetLines, ",")
	for i := range n {
		reset := resetLines[min(i, len(resetLines)):min(i+1, len(resetLines))]
		a.readTrio(limitLines[i:i+1], remainingLines[i:i+1], reset, ref, i > 0)
	}
}

// readTrio reads what one limiter says in the three fields. Where another one says
// something in them, too, its limit is called by its size.
func (a *Announcement) readTrio(limitLines, remainingLines, resetLines []string, ref time.Time, another bool) {
	quota := int64(-1)
	if s, ok := joinLines(limitLines); ok {
		quota = a.readLimits(s)
	}
	l := ServiceLimit{Remaining: -1, Reset: -1}
	if another {
		size, _ := parseCount(limitLines[0]) // also where it is in quotation marks
		l.Policy = strconv.FormatInt(size, 10)
	}
	for _, line := range bounded(remainingLines) {
		if n, ok := parseLeft(line); ok && (l.Remaining < 0 || n < l.Remaining) {
			l.Remaining = n
		}
	}
	for _, line := range bounded(resetLines) {
		l.setReset(line, ref)
	}
	if quota < 0 && l.Remaining < 0 {
		return
	}
	a.addNameless(l, quota)
	if a.Dialect == "" {
		a.Dialect = dialectIETF06
	}
}

// readLimits reads RateLimit-Limit, adds the policies in it, and returns the
// expiring limit, negative where there is none.
func (a *Announcement) readLimits(s string) int64 {
	kept, limit := len(a.Policies), int64(-1)
	p := sfScanner{s: s}
	for first := true; p.more(); first = false {
		v := p.member()
		var w sfValue
		for key, pv, ok := p.param(); ok; key, pv, ok = p.param() {
			if key == "w" || key == "window" { // as the very first drafts wrote it
				w = pv
			}
		}
		switch {
		case v.kind == sfDecimal:
			v.n /= 1000
		case v.kind != sfInteger:
			continue
		}
		if p.bad || v.n < 0 {
			continue
		}
		if first {
			limit = v.n
		}
		if w.kind == sfInteger && w.n > 0 && len(a.Policies) < maxItems {
			a.addPolicy(integerPolicy(v.n, w.n))
		}
	}
	if p.bad {
		a.Policies = a.Policies[:kept]
		return -1
	}
	return limit
}

// addNameless adds a service limit of the generations without names, where the
// quota says which policy it is about: the one with that quota, and of several
// the one whose window the reset fits into best. Without any it is about a
// policy that is named as the limit is, "" mostly, and has no window. A quota below 0
// was not stated.
func (a *Announcement) addNameless(l ServiceLimit, quota int64) {
	best := -1
	for i, p := range a.Policies {
		if p.Quota != quota || p.Unit != "" && p.Unit != UnitRequests {
			continue
		}
		switch {
		case best < 0:
			best = i
		case l.Reset > a.Policies[best].Window:
			if p.Window > a.Policies[best].Window {
				best = i
			}
		case p.Window < a.Policies[best].Window && p.Window >= l.Reset:
			best = i
		}
	}
	if best >= 0 {
		l.Policy = a.Policies[best].Name
		l.PartitionKey = a.Policies[best].PartitionKey
	} else if quota >= 0 {
		a.addPolicy(Policy{Name: l.Policy, Quota: quota})
	}
	if l.Remaining >= 0 || l.Reset >= 0 {
		a.addLimit(l)
	}
}

// setReset sets the reset to what a field says, if that is later: a span, or
// what can only be an instant.
func (l *ServiceLimit) setReset(s string, ref time.Time) {
	if r, ok := parseSpan(s, TimeAuto, ref); ok && r.d > l.Reset {
		l.Reset, l.Resolution, l.Clock = r.d, r.grain, r.clock
	}
}

// integerPolicy is a policy of drafts 00 to 07. It has no name: quota and
// window, which tell it from the server's others, make one, "100;w=60".
func integerPolicy(quota, window int64) Policy {
	b := make([]byte, 0, 32)
	b = strconv.AppendInt(b, quota, 10)
	b = append(b, ";w="...)
	b = strconv.AppendInt(b, window, 10)
	return Policy{Name: string(b), Quota: quota, Window: seconds(window)}
}

// addPolicy adds a policy, unless there are too many. Of two with the same name
// and partition key the stricter one counts.
func (a *Announcement) addPolicy(p Policy) {
	for i := range a.Policies {
		old := &a.Policies[i]
		if old.Name == p.Name && old.PartitionKey == p.PartitionKey {
			if stricter(p, *old) {
				p.Name = old.Name
				*old = p
			}
			return
		}
	}
	if len(a.Policies) < maxItems {
		p.Name = strings.Clone(p.Name)
		a.Policies = append(a.Policies, p)
	}
}

// stricter reports whether p allows less than q: the lower rate, or where one
// has no window the lower quota.
func stricter(p, q Policy) bool {
	if p.Window > 0 && q.Window > 0 {
		x, y := float64(p.Quota)/float64(p.Window), float64(q.Quota)/float64(q.Window)
		if x != y {
			return x < y
		}
	}
	return p.Quota < q.Quota
}

// addLimit adds a service limit, unless there are too many. Of two about the
// same policy and partition key the one with less remaining counts, of two with
// the same the one that lasts longer.
func (a *Announcement) addLimit(l ServiceLimit) {
	for i := range a.Limits {
		old := &a.Limits[i]
		if old.Policy == l.Policy && old.PartitionKey == l.PartitionKey {
			switch {
			case l.Remaining < 0:
			case old.Remaining < 0, l.Remaining < old.Remaining, l.Remaining == old.Remaining && l.Reset > old.Reset:
				l.Policy = old.Policy
				*old = l
			}
			return
		}
	}
	if len(a.Limits) < maxItems {
		l.Policy = a.ownName(l.Policy)
		a.Limits = append(a.Limits, l)
	}
}

// ownName returns a copy of a policy's name. A part of a field would hold on to
// all of it: net/http makes one string of all fields of a response.
func (a *Announcement) ownName(name string) string {
	for i := range a.Policies {
		if a.Policies[i].Name == name {
			return a.Policies[i].Name
		}
	}
	return strings.Clone(name)
}

// keepText returns what a String or Token says.
func keepText(v sfValue) (string, bool) {
	if len(v.raw) > 2*maxNameLen {
		return "", false
	}
	s, ok := v.text()
	return s, ok && len(s) <= maxNameLen
}

// keepBytes returns a Byte Sequence, "" where there is none.
func keepBytes(v sfValue) (string, bool) {
	if v.kind == sfAbsent {
		return "", true
	}
	if len(v.raw) > 2*maxNameLen {
		return "", false
	}
	s, ok := v.bytes()
	return s, ok && len(s) <= maxNameLen
}

// unitOf returns a quota unit, "" where there is none. The draft spells the
// first one "requests" and registers it as "request" (sections 3.1.2 and 10.3).
func unitOf(v sfValue) (Unit, bool) {
	switch v.raw {
	case "":
		return "", v.kind == sfAbsent || v.kind == sfString
	case "request", string(UnitRequests):
		return UnitRequests, v.kind == sfString || v.kind == sfToken
	}
	s, ok := keepText(v)
	return Unit(strings.Clone(s)), ok
}

// seconds is a span of n ≥ 0 seconds, or the longest there is.
func seconds(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// maxLines is how many lines are looked at of a field that should have one.
const maxLines = 16

// bounded returns the lines of a field that are looked at.
func bounded(lines []string) []string { return lines[:min(len(lines), maxLines)] }
