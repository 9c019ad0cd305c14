package heed

import (
	"math"
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
