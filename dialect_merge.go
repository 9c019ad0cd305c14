package heed

import "time"

// state takes in one quota as read, Quota below zero where it is not said.
func (r *dialectReader) state(g *quotaGroup, p Policy, l ServiceLimit) {
	q := g.quota
	if q.Aligned && l.Reset < 0 && p.Window > 0 {
		next := r.ref.Truncate(p.Window).Add(p.Window)
		l.Reset, l.Resolution, l.Clock = next.Sub(r.ref), time.Second, true
	}
	if p.Quota == 0 {
		if q.ZeroUnknown || !r.refused { // an accepted request contradicts it
			return
		}
		if r.a.RetryAfter <= 0 {
			r.a.NoRetry = true
		}
	}
	if q.PerRoute {
		r.a.PerRoute = append(r.a.PerRoute, p.Name)
	}
	r.usual = q.Window > 0 && p.Window == q.Window && g.name[roleInterval] == ""
	r.add(g.dialect, p, l)
	r.usual = false
}

// add adds a quota to the announcement, unless it is there already: stated by
// the IETF fields, or by another dialect under the same name.
func (r *dialectReader) add(d *Dialect, p Policy, l ServiceLimit) {
	if p.Quota < 0 && l.Remaining < 0 && l.Reset < 0 && l.Used == 0 || len(p.Name) > maxNameLen {
		return
	}
	if r.addToIETF(&p, &l) || r.draft && r.policies+r.limits > 0 {
		return
	}
	for i := range r.a.Policies {
		if have := &r.a.Policies[i]; have.Name == p.Name {
			if p.Quota >= 0 && (have.Quota != p.Quota || i < r.policies) || have.Unit != p.Unit {
				if d == nil || d.Name == p.Name {
					return
				}
				p.Name = d.Name
				r.add(nil, p, l)
				return
			}
			p.Quota = -1 // known
		}
	}
	if p.Quota >= 0 && len(r.a.Policies) < maxItems {
		r.a.Policies = append(r.a.Policies, p)
		if r.usual {
			r.a.usual = append(r.a.usual, p.Name)
		}
	}
	if l.Remaining >= 0 || l.Reset >= 0 || l.Used != 0 {
		l.Policy, l.Unit = p.Name, p.Unit
		r.addLimit(&l)
	}
}

// addLimit adds what is left of a quota, or gives what was said of it before
// what that lacks.
func (r *dialectReader) addLimit(l *ServiceLimit) {
	for i := range r.a.Limits {
		if have := &r.a.Limits[i]; have.Policy == l.Policy {
			fillIn(have, l)
			return
		}
	}
	if len(r.a.Limits) < maxItems {
		r.a.Limits = append(r.a.Limits, *l)
	}
}

// addToIETF reports whether the IETF fields stated a quota too, and gives theirs
// what it lacks.
func (r *dialectReader) addToIETF(p *Policy, l *ServiceLimit) bool {
	if i := r.ietfPolicy(p, l); i >= 0 {
		r.addToPolicy(i, p, l)
		return true
	}
	return r.addToLoneLimit(p, l)
}

// ietfPolicy returns the index of the policy of the IETF fields that is the
// same quota as p; -1: there is none. It is the same if it has the same size, in
// the same window where both say; where a dialect does not say how large its
// quota is, if as much is left of it.
func (r *dialectReader) ietfPolicy(p *Policy, l *ServiceLimit) int {
	best := -1
	for i := 0; i < r.policies && i < 64; i++ {
		have := &r.a.Policies[i]
		if r.matched&(1<<i) != 0 && !r.draft || p.Quota >= 0 && have.Quota != p.Quota || !sameUnit(have.Unit, p.Unit) ||
			have.Window != p.Window && have.Window > 0 && p.Window > 0 {
			continue
		}
		if left := r.ietfLimit(have.Name); left != nil && left.Remaining == l.Remaining {
			return i
		}
		if p.Quota >= 0 && best < 0 {
			best = i
		}
	}
	return best
}

// addToPolicy gives the i-th policy of the IETF fields, and its limit, what a
// dialect says of them beyond that.
func (r *dialectReader) addToPolicy(i int, p *Policy, l *ServiceLimit) {
	have := &r.a.Policies[i]
	if !r.draft {
		r.matched |= 1 << i
	}
	loose := r.usual && have.Window == 0
	if have.Window == 0 {
		have.Window = p.Window
	}
	left := r.ietfLimit(have.Name)
	r.name(have, left, p.Name)
	if loose {
		r.a.usual = append(r.a.usual, have.Name)
	}
	if left != nil {
		fillIn(left, l)
	} else if (l.Remaining >= 0 || l.Reset >= 0) && len(r.a.Limits) < maxItems {
		l.Policy, l.Unit = have.Name, have.Unit
		r.a.Limits = append(r.a.Limits, *l)
	}
}

// addToLoneLimit does so for a limit of the IETF fields that has no policy, as in
// Heroku's and Yelp's RateLimit-Remaining. It reports whether there is one with
// as much left.
func (r *dialectReader) addToLoneLimit(p *Policy, l *ServiceLimit) bool {
	for i := range r.a.Limits[:r.limits] {
		have := &r.a.Limits[i]
		if have.Remaining < 0 || have.Remaining != l.Remaining || !sameUnit(have.Unit, p.Unit) || r.hasPolicy(have.Policy) {
			continue
		}
		fillIn(have, l)
		if p.Quota >= 0 && len(r.a.Policies) < maxItems {
			p.Name = have.Policy
			r.a.Policies = append(r.a.Policies, *p)
		}
		return true
	}
	return false
}

// name gives a policy of the early IETF drafts, which have no names, and the limit that
// goes with it, left, the name by which a dialect states the same quota. Kong states the
// tightest of several so, now one and now another.
func (r *dialectReader) name(have *Policy, left *ServiceLimit, name string) {
	if have.Name != "" || r.hasPolicy(name) {
		return
	}
	have.Name = name
	if left != nil {
		left.Policy = name
	}
}

func (r *dialectReader) ietfLimit(policy string) *ServiceLimit {
	for i := range r.a.Limits[:r.limits] {
		if r.a.Limits[i].Policy == policy {
			return &r.a.Limits[i]
		}
	}
	return nil
}

func (r *dialectReader) hasPolicy(name string) bool {
	for i := range r.a.Policies {
		if r.a.Policies[i].Name == name {
			return true
		}
	}
	return false
}

func sameUnit(a, b Unit) bool {
	return a == b || a == "" && b == UnitRequests || b == "" && a == UnitRequests
}

// fillIn adds to have what l says and have does not.
func fillIn(have, l *ServiceLimit) {
	if have.Remaining < 0 {
		have.Remaining = l.Remaining
	}
	if have.Reset < 0 {
		have.Reset, have.Resolution, have.Clock = l.Reset, l.Resolution, l.Clock
	}
	if have.Used == 0 {
		have.Used = l.Used
	}
}
