package heed

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"
)

// pkSep stands between a policy's name and its partition key, in the name heed
// gives the budget.
const pkSep = "\x01"

// keyedBudget is the name heed gives the budget of a policy and a partition key: any
// bytes, also those that stand between names.
func keyedBudget(policy, key string) string {
	return policy + pkSep + base64.RawStdEncoding.EncodeToString([]byte(key))
}

// budgetOf returns the budget in which an answer to pm's request counts a
// policy; "": one that is not known to be for some requests only.
func (p *partition) budgetOf(pm *Permit, a *Announcement, policy, key string) string {
	return p.origin.ownBudgets(p.budgetNamed(pm, a, policy, key), pm.path)
}

// budgetNamed is budgetOf without what the path adds to the name.
func (p *partition) budgetNamed(pm *Permit, a *Announcement, policy, key string) string {
	switch {
	case slices.Contains(a.PerRoute, policy):
		return pm.route()
	case a.Bucket != "":
		return a.Bucket
	}
	common := "" // of all that are counted in the policy, whatever their partition keys
	if p.origin.namesBudgets(a) {
		common = policy
	}
	if key == "" {
		return common
	}
	// A policy that was seen with two partition keys has a quota for each, and
	// the request decides for which.
	split := false
	for _, s := range p.slots {
		if s.source == SourceAnnounced && s.policy.Name == policy && s.policy.PartitionKey != "" && s.policy.PartitionKey != key {
			s.budget = keyedBudget(policy, s.policy.PartitionKey)
			split = true
		}
	}
	if !split {
		return common
	}
	if s := p.slot(SourceAnnounced, policy, key, ""); s != nil && s.budget == common {
		s.budget = keyedBudget(policy, key)
	}
	return keyedBudget(policy, key)
}

// slotIn returns the slot of a budget's announced policy, nil where there is
// none.
func (p *partition) slotIn(budget, name, key string) *slot {
	for _, s := range p.slots {
		if s.source == SourceAnnounced && s.budget == budget && s.policy.Name == name && s.policy.PartitionKey == key {
			return s
		}
	}
	return nil
}

// belongs takes in which budgets the answer to pm's request was counted in, and
// returns the lane of such requests. first: it is the answer.
func (p *partition) belongs(now time.Time, pm *Permit, a *Announcement, budgets []string, first bool) *lane {
	o := p.origin
	switch {
	case a.Route && a.Refused && !a.Global:
		budgets = append(budgets, pm.route())
	case a.Bucket != "":
		budgets = append(budgets, a.Bucket)
	}
	if len(budgets) == 0 {
		if o.routes == nil {
			return nil
		}
		if _, known := o.routes.lookUp(pm.method, pm.path); !known && first {
			o.routes.learn(pm.method, pm.path, "")
			o.sort(now)
		}
		return nil
	}
	if o.namesBudgets(a) {
		budgets = append(budgets, p.stillCounted(pm)...)
	}
	key := joinBudgets(budgets)
	p.learnRoute(now, pm, key)
	return p.lane(now, o.ownBudgets(key, pm.path))
}

// learnRoute notes that requests such as pm's belong to a lane, and moves those
// that wait.
func (p *partition) learnRoute(now time.Time, pm *Permit, key string) {
	o := p.origin
	first := o.routes == nil
	t := o.table(now, p)
	before, known := t.lookUp(pm.method, pm.path)
	t.learn(pm.method, pm.path, key)
	if (first || !known || before != key) && o.waiting > 0 {
		o.sort(now)
	}
}

// route is what requests such as pm's have in common.
func (pm *Permit) route() string { return routeOf(pm.method, pm.path) }

// scoped reports whether a refusal holds for a lane alone: it names its budget,
// and none that others share is used up.
func (p *partition) scoped(pm *Permit, a *Announcement, l *lane) bool {
	if l == nil || a.Global {
		return false
	}
	for i := range a.Limits {
		lim := &a.Limits[i]
		if lim.Remaining == 0 && p.budgetOf(pm, a, lim.Policy, lim.PartitionKey) == "" {
			return false
		}
	}
	return true
}

// mayCount reports whether a request in flight may be counted in a budget, as
// far as is known.
func (p *partition) mayCount(budget string, pm *Permit) bool {
	if p.origin.routes == nil {
		return true
	}
	key, known := p.origin.routes.lookUp(pm.method, pm.path)
	return !known || keyHas(p.origin.ownBudgets(key, pm.path), budget)
}

// hasRoom reports whether one more policy can be remembered.
func (p *partition) hasRoom(now time.Time, budget string) bool {
	if len(p.slots) < mostSlots {
		return true
	}
	common := 0
	for _, s := range p.slots {
		if s.budget == "" {
			common++
		}
	}
	return (budget != "" || common < mostSlots) && (len(p.slots) < mostBudgets || p.makeRoom(now))
}

// makeRoom forgets the budget that was heard of longest ago, of those that are
// restored and whose requests are none in flight, and reports whether there is
// one.
func (p *partition) makeRoom(now time.Time) bool {
	oldest := -1
	for i, s := range p.slots {
		if s.budget != "" && s.inFlight == 0 && !s.rest(now).After(now) && (oldest < 0 || s.habit.last.Before(p.slots[oldest].habit.last)) {
			oldest = i
		}
	}
	if oldest < 0 {
		return false
	}
	budget := p.slots[oldest].budget
	p.closeAccounts(p.slots[oldest])
	p.slots = slices.Delete(p.slots, oldest, oldest+1)
	p.forgetLanes(now, func(l *lane) bool { return l.has(budget) && l.idle(now) }) // its next request goes ahead again
	p.origin.known = slices.DeleteFunc(p.origin.known, func(k knownPolicy) bool { return k.budget == budget })
	return true
}

// openBudget has the requests of a budget go one ahead of the others.
func (p *partition) openBudget(now time.Time, budget string) {
	if budget == "" {
		p.opening.start(now)
		return
	}
	for _, l := range p.lanes {
		if l.has(budget) {
			l.opening.start(now)
		}
	}
}

// common returns an announcement as other processes are to understand it, without what concerns
// some requests only: each process keeps to that by itself. first: it is the answer to pm's request.
func (p *partition) common(now time.Time, pm *Permit, a *Announcement, first bool) Announcement {
	c := *a
	c.Policies = slices.DeleteFunc(slices.Clone(a.Policies), func(pol Policy) bool {
		return p.budgetOf(pm, a, pol.Name, pol.PartitionKey) != ""
	})
	c.Limits = nil
	for _, l := range a.Limits {
		budget := p.budgetOf(pm, a, l.Policy, l.PartitionKey)
		if budget != "" || first && a.contradicts(&l) {
			continue
		}
		if s := p.limited(now, budget, &l); s != nil && a.inDialect() {
			l = s.resetUnit.convert(l)
		}
		if a.outranks(&l) {
			l.Reset, l.Clock = a.RetryAfter, false
		}
		c.Limits = append(c.Limits, l)
	}
	return c
}

// shownBudget is a budget's name for people.
func shownBudget(budget string) string {
	if strings.Contains(budget, pkSep) {
		return "" // a partition key is nobody's business
	}
	return strings.ReplaceAll(budget, majorSep, " ")
}

// shown is the name of the lane's budgets for people.
func (l *lane) shown() string {
	var names []string
	for _, b := range l.budgets {
		if b = shownBudget(b); b != "" {
			names = append(names, b)
		}
	}
	return strings.Join(names, ", ")
}
