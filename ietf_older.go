package heed

import (
	"strconv"
	"time"
)

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
