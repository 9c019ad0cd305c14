package heed

import (
	"hash/maphash"
	"slices"
	"strconv"
	"time"
)

// An inTurn is what tells whether an origin announces several limits without names in turn.
type inTurn struct {
	sure  bool      // it does: one was announced again after another was
	quota int64     // of the one announced last …
	since time.Time // … since this instant …
	empty bool      // … by a refusal …
	turns int       // … and so often one followed another where refusals tell of the one, and other answers of the other
	heard []uint64  // hashes of routes and the quotas that they were told of, the latest new ones
}

const mostHeard = 32

// tellApart tells the limits apart of an origin that has no names for them, and
// announces one at a time: the first of them, and where it refuses the one that is
// used up; or always the tightest. What is said of another quota on the same route is no
// quota that has changed where a refusal says that nothing is left of it, though something is
// left of the first; nor where its reset is sooner, for that of one quota does not move back; nor
// where it was told of before, and all of it is left though its reset is less than half of the first
// one's window away: then its own is shorter. It is called by its size from then on.
func (p *partition) tellApart(now time.Time, pm *Permit, a *Announcement) *Announcement {
	i := slices.IndexFunc(a.Policies, func(pol Policy) bool { return pol.Name == "" && pol.Quota > 0 })
	if i < 0 || slices.Contains(a.PerRoute, "") {
		return a
	}
	pol := a.Policies[i]
	budget := p.budgetOf(pm, a, "", pol.PartitionKey)
	s := p.slotIn(budget, "", pol.PartitionKey)
	if s == nil || s.said.Quota == pol.Quota {
		p.inTurn.hear(now, pm, pol.Quota, a.Refused, s)
		return a
	}
	name := strconv.FormatInt(pol.Quota, 10)
	other := p.slotIn(budget, name, pol.PartitionKey)
	apart := other != nil || p.inTurn.sure || p.inTurn.told(pm, s.said.Quota) && p.another(now, pm, s, a, pol.Quota)
	p.inTurn.hear(now, pm, pol.Quota, a.Refused, other)
	if apart {
		return a.calling(i, name)
	}
	return a
}

// hear takes in which quota the answer to pm's request tells of, and its slot, nil where that is new. Where
// one that is known is told of again by the answer to a request that went after another one was told of, both
// are there, if such requests were told of both: routes may have limits of their own. So they are where refusals have told of the one
// and other answers of the other in turn, more than once: what is known may be either then, whichever came last. An answer to an earlier
// request may only have come late.
func (t *inTurn) hear(now time.Time, pm *Permit, quota int64, refused bool, s *slot) {
	if quota != t.quota && pm.start.After(t.since) {
		if refused != t.empty && t.told(pm, t.quota) && t.told(pm, quota) {
			t.turns++
		}
		t.sure = t.sure || s != nil && t.told(pm, t.quota) || t.turns > 1
		t.quota, t.since, t.empty = quota, now, refused
	}
	t.empty = t.empty && refused
	if s != nil {
		s.habit.inTurn = t.sure
	}
	if h := quotaOf(pm, quota); !slices.Contains(t.heard, h) {
		if len(t.heard) == mostHeard {
			t.heard = slices.Delete(t.heard, 0, 1)
		}
		t.heard = append(t.heard, h)
	}
}

// told reports whether an answer to a request such as pm's has told of a quota.
func (t *inTurn) told(pm *Permit, quota int64) bool {
	return slices.Contains(t.heard, quotaOf(pm, quota))
}

// again reports whether the answer to pm's request tells of a quota that such requests had been told
// of before they were told of another.
func (t *inTurn) again(pm *Permit, quota int64) bool {
	return pm.start.After(t.since) && t.told(pm, quota)
}

// quotaOf is a hash of the route of requests such as pm's, and of a quota.
func quotaOf(pm *Permit, quota int64) uint64 {
	var buf [longestPath]byte
	route := appendRoute(buf[:0], pm.method, pm.path)
	return maphash.Comparable(numberSeed, [2]uint64{maphash.Bytes(numberSeed, route), uint64(quota)})
}

// another reports whether an announcement of another quota without a name than that of s is of
// one that there is beside it.
func (p *partition) another(now time.Time, pm *Permit, s *slot, a *Announcement, quota int64) bool {
	if a.Refused && a.exhausts("") && s.remaining(now) != 0 {
		return true
	}
	if s.ledger.flows() { // resets of what comes back bit by bit move either way
		return false
	}
	again := p.inTurn.again(pm, quota)
	return slices.ContainsFunc(a.Limits, func(l ServiceLimit) bool {
		if l.Policy != "" || l.Reset < 0 {
			return false
		}
		if a.inDialect() {
			l = s.resetUnit.convert(l)
		}
		p.origin.readClock(now, &l, a.Date)
		whole := l.Remaining+int64(p.unanswered)+1 >= quota
		return now.Add(l.Reset).Before(s.ledger.earliest) || again && whole && l.Reset < s.terms.Window/2
	})
}

// outdone reports whether that an answer says nothing of a policy may be because it tells of one that is
// tighter, by what is left of it or by which share that is: so it is where limits are announced in turn. While half
// of it is left, by what this process used, it holds nobody up, and it does not matter whether it is still there.
func (s *slot) outdone(now time.Time, a *Announcement) bool {
	left, quota := float64(s.remaining(now)), float64(s.policy.Quota)
	return s.habit.inTurn && slices.ContainsFunc(a.Limits, func(l ServiceLimit) bool {
		i := slices.IndexFunc(a.Policies, func(pol Policy) bool { return pol.Name == l.Policy && pol.PartitionKey == l.PartitionKey })
		if i < 0 || l.Remaining < 0 {
			return false
		}
		r, q := float64(l.Remaining), float64(a.Policies[i].Quota)
		return left >= quota/2 || r <= left || r/q <= left/quota
	})
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
