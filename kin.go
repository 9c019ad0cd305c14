package heed

import (
	"slices"
	"time"
)

// A kin is the partitions of one credential: that of most routes, and those of routes with limits of
// their own that only refusals tell of. What is announced or configured holds for all of them together:
// they have those slots in common, and spread their requests by one smoother.
type kin struct {
	all       []*partition
	smoother  smoother
	probation probation // of the route that was told apart last
}

// eachKin calls f for every partition that has its slots in common with this one, which is the first.
func (p *partition) eachKin(f func(q *partition)) {
	f(p)
	if p.kin == nil {
		return
	}
	for _, q := range p.kin.all {
		if q != p {
			f(q)
		}
	}
}

// kinOf returns another partition of the credential whose partition for a route has a key, or is to have it; nil where
// there is no other.
func (o *origin) kinOf(key partitionKey, route string) *partition {
	if len(o.own) == 0 {
		return nil
	}
	rest := key // of the partition for most routes
	if route != "" {
		if rest = o.reg.ownKey(key, []byte(route)); o.partition(rest) != nil {
			return o.partition(rest)
		}
	}
	for _, own := range o.own {
		if p := o.partition(o.reg.ownKey(rest, []byte(own))); p != nil && p.route != route {
			return p
		}
	}
	return nil
}

// joinKin has a new partition keep to the slots that another one of its credential has.
func (p *partition) joinKin(q *partition) {
	if q.kin == nil {
		q.kin = &kin{all: []*partition{q}, smoother: q.smoother}
		q.smoother = smoother{}
	}
	p.kin = q.kin
	p.kin.all = append(p.kin.all, p)
	p.slots = q.commonSlots()
}

// commonSlots are those that all of the partition's kin have: what was learned holds for one alone.
func (p *partition) commonSlots() []*slot {
	return slices.DeleteFunc(slices.Clone(p.slots), func(s *slot) bool { return s.source == SourceLearned })
}

// leaveKin undoes joinKin. What was told to hold for longer than is waited for goes on to do so for the others.
func (p *partition) leaveKin() {
	k := p.kin
	if k == nil {
		return
	}
	p.kin = nil
	k.all = slices.DeleteFunc(k.all, func(q *partition) bool { return q == p })
	k.all[0].cuts = append(k.all[0].cuts, p.cuts...) // they are common: what is learned is never cut
	p.cuts = nil
	if len(k.all) == 1 {
		last := k.all[0]
		last.kin, last.smoother = nil, k.smoother
	}
}

// pacer is the smoother of the partition's requests.
func (p *partition) pacer() *smoother {
	if p.kin != nil {
		return &p.kin.smoother
	}
	return &p.smoother
}

// listens reports whether the body of a refusal is being looked at that may be for what is common.
func (p *partition) listens() (any bool) {
	p.eachKin(func(q *partition) { any = any || q.listening > 0 })
	return any
}

// behindKin is the verdict v on a request that may go now, unless one that came before it waits in another partition for
// what they have in common: then it goes no sooner than that one, or what that asks for would never come together.
func (p *partition) behindKin(now time.Time, a *ask, v verdict) verdict {
	common := func(o obstacle) bool { return o.cause == CausePolicy && o.source != SourceLearned }
	p.eachKin(func(q *partition) {
		head := q.head()
		if q == p || head == nil || !head.precedes(a) {
			return
		}
		first := q.judge(now, &head.ask, &place{})
		if common(first.obstacle) && (first.last == obstacle{} || common(first.last)) && !first.at.Before(v.at) {
			v = first
		}
	})
	return v
}

// addKin puts before a's place those of the partition's kin, too, who came before it and are sure to take what they have in
// common: those of a route with a limit of its own may be held by that for long.
func (p *partition) addKin(a *ask, pl *place) {
	p.eachKin(func(q *partition) {
		if q == p || q.pause.open || slices.ContainsFunc(q.slots, func(s *slot) bool { return s.source == SourceLearned }) {
			return
		}
		t := q.queue.before(a)
		if t.n == 0 {
			return
		}
		if pl.units == nil {
			pl.units = make([]int64, len(p.slots))
		}
		pl.n += t.n
		for i, s := range p.slots {
			if s.source != SourceLearned {
				pl.units[i] += s.sureOf(&t.amount) - s.sureOf(&t.astride)
			}
		}
	})
}

// shareNews has all of the partition's kin judged anew where one is to be.
func (p *partition) shareNews() {
	if p.kin != nil && p.news {
		for _, q := range p.kin.all {
			q.news = true
		}
	}
}

// addCommon has a slot hold all requests of the credential, those in flight among them.
func (p *partition) addCommon(now time.Time, s *slot) {
	p.eachKin(func(q *partition) {
		q.slots = append(q.slots, s)
		q.charge(now, s)
		q.news = true
	})
}

// dropCommon forgets a policy of all requests of the credential.
func (p *partition) dropCommon(s *slot) {
	p.eachKin(func(q *partition) { q.dropSlot(s) })
}

// openKin has the requests of a budget go one ahead of the others, in each partition.
func (p *partition) openKin(now time.Time, budget string) {
	p.eachKin(func(q *partition) {
		q.openBudget(now, budget)
		q.news = true
	})
}
