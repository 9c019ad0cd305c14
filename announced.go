package heed

import (
	"slices"
	"time"
)

// mostSlots bounds the policies for all requests that a server can have heed
// remember per partition, and mostBudgets those together with the budgets of some.
const (
	mostSlots   = 64
	mostBudgets = 256
)

// announced returns the slot of a policy that was announced, made or changed
// to fit; nil where there are too many.
func (p *partition) announced(now time.Time, pol Policy, budget string) *slot {
	s := p.slotIn(budget, pol.Name, pol.PartitionKey)
	if s != nil && s.said.Unit != pol.Unit { // its books are in another unit
		p.dropCommon(s)
		s = nil
	}
	switch {
	case s == nil && !p.hasRoom(now, budget):
		return nil
	case s == nil:
		s = newSlot(pol, SourceAnnounced)
		s.met, s.budget = now, budget
		if budget != "" { // from here on lanes tell routes apart
			p.origin.rejoin(now, p)
		}
		p.addCommon(now, s)
	case s.said != pol:
		if s.said.Quota != pol.Quota {
			s.habit.another = now
		}
		s.said = pol
		s.resize(now, pol)
	default:
		s.heard()
		s.habit.said(now)
		return s
	}
	s.habit.said(now)
	p.news = true
	p.origin.know(knownPolicy{pol, budget})
	p.emit(Event{Kind: EventLearned, Time: now, Policy: pol.Name, Quota: pol.Quota, Window: pol.Window, Unit: pol.Unit, Remaining: -1})
	return s
}

// know remembers a policy for partitions to come.
func (o *origin) know(pol knownPolicy) {
	o.opened = false
	i := slices.IndexFunc(o.known, func(k knownPolicy) bool {
		return k.Name == pol.Name && k.PartitionKey == pol.PartitionKey && k.budget == pol.budget
	})
	switch {
	case i >= 0:
		o.known[i] = pol
	case len(o.known) < mostSlots:
		o.known = append(o.known, pol)
	}
}

// fade drops announced policies that are no longer announced.
func (p *partition) fade(now time.Time) {
	o := p.origin
	for i := 0; i < len(p.slots); {
		s := p.slots[i]
		if !s.faded(now) {
			i++
			continue
		}
		o.known = slices.DeleteFunc(o.known, func(k knownPolicy) bool {
			return k.Name == s.policy.Name && k.PartitionKey == s.policy.PartitionKey && k.budget == s.budget
		})
		p.dropCommon(s)
		p.openKin(now, s.budget) // as if it had never been announced
	}
}
