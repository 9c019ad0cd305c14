package heed

import (
	"bytes"
	"slices"
	"strconv"
	"time"
)

// A teller is the request whose accepted answer announced a policy without a name
// last.
type teller struct {
	method, path string
}

// tellApart tells the limits apart of an origin that has no names for them, and
// announces one at a time: the first of them, and where it refuses the one that is
// used up. An accepted answer said that something is left of a quota, and a refusal
// on the same route that nothing is left of another quota: that is not a quota that
// has changed. It is called by its size from then on.
func (p *partition) tellApart(now time.Time, pm *Permit, a *Announcement) *Announcement {
	i := slices.IndexFunc(a.Policies, func(pol Policy) bool { return pol.Name == "" && pol.Quota > 0 })
	if i < 0 || slices.Contains(a.PerRoute, "") {
		return a
	}
	pol := a.Policies[i]
	bucket := p.bucketOf(pm, a, "", pol.PartitionKey)
	if s := p.slotIn(bucket, "", pol.PartitionKey); s != nil && s.said.Quota != pol.Quota {
		name := strconv.FormatInt(pol.Quota, 10)
		if p.slotIn(bucket, name, pol.PartitionKey) != nil || a.Refused && a.exhausts("") && s.remaining(now) > 0 && p.teller.sameRoute(pm) {
			return a.calling(i, name)
		}
	}
	if !a.Refused {
		p.teller = teller{pm.method, pm.path}
	}
	return a
}

func (t *teller) sameRoute(pm *Permit) bool {
	var b, c [longestPath]byte
	return bytes.Equal(appendRoute(b[:0], t.method, t.path), appendRoute(c[:0], pm.method, pm.path))
}

// exhausts reports whether an announcement says that nothing is left of a policy.
func (a *Announcement) exhausts(policy string) bool {
	return slices.ContainsFunc(a.Limits, func(l ServiceLimit) bool { return l.Policy == policy && l.Remaining == 0 })
}

// calling is an announcement with a name given to a policy of it that had none, and to
// what is said of it.
func (a *Announcement) calling(i int, name string) *Announcement {
	b := *a
	b.Policies, b.Limits = slices.Clone(a.Policies), slices.Clone(a.Limits)
	b.Policies[i].Name = name
	for j := range b.Limits {
		if b.Limits[j].Policy == "" {
			b.Limits[j].Policy = name
		}
	}
	return &b
}
