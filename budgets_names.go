package heed

import (
	"slices"
	"strings"
	"time"
)

// Policies have names, and an answer may list all that hold its request
// (RateLimit-Policy; draft-11, section 3, and all drafts before). As long as every list has them all,
// they hold everything. Once an answer to another route does without one that
// was listed before, each name is a budget: it holds the requests to whose
// routes answers have stated it. An answer that states what is left without such
// a list may state the tightest alone, and shows nothing.
//
// Where a dialect says that its names are budgets, they are from the start.

// hearNames notes which policies the answer to pm's request states by name, and
// whether that makes them budgets.
func (p *partition) hearNames(now time.Time, pm *Permit, a *Announcement) {
	o := p.origin
	if o.named || a.Bucket != "" || !a.named && (!a.lists() || len(a.Policies) == 0) {
		return
	}
	if o.stated == nil {
		o.stated = newRoutes()
	}
	key := o.stated.known[pm.route()]
	for name := range a.names {
		if name != "" && !keyHas(key, name) && strings.Count(key, budgetSep) < mostSlots-1 {
			key = joinBudgets(append(strings.FieldsFunc(key, isBudgetSep), name))
			o.stated.learn(pm.method, pm.path, key)
		}
	}
	if a.named || slices.ContainsFunc(p.slots, func(s *slot) bool {
		return s.source == SourceAnnounced && s.policy.Name != "" && !keyHas(key, s.policy.Name) && o.stated.mention(s.policy.Name)
	}) {
		o.nameBudgets(now, p)
	}
}

// names calls yield with the names of all policies that an announcement is
// about.
func (a *Announcement) names(yield func(string) bool) {
	for i := range a.Policies {
		if !yield(a.Policies[i].Name) {
			return
		}
	}
	for i := range a.Limits {
		if !yield(a.Limits[i].Policy) {
			return
		}
	}
}

func isBudgetSep(r rune) bool { return string(r) == budgetSep }

// keyHas reports whether a budget is among those of a lane's key.
func keyHas(key, budget string) bool {
	for b := range strings.SplitSeq(key, budgetSep) {
		if b == budget {
			return true
		}
	}
	return false
}

// mention reports whether a budget is among those of any route.
func (t *routes) mention(budget string) bool {
	for _, key := range t.known {
		if keyHas(key, budget) {
			return true
		}
	}
	return false
}

// nameBudgets makes the policies that answers have stated by name the budgets
// of the routes that they were stated for. heard is the partition that heard of them.
func (o *origin) nameBudgets(now time.Time, heard *partition) {
	if o.announcers.shown {
		o.countTogether(now, otherRoutes, "")
	}
	o.named = true
	call := func(budget *string, pol *Policy) {
		if *budget == "" && pol.Name != "" && o.stated.mention(pol.Name) {
			*budget = pol.Name
		}
	}
	for _, p := range o.partitions {
		for _, s := range p.slots {
			if s.source == SourceAnnounced {
				call(&s.budget, &s.policy)
			}
		}
		p.news = true
	}
	for i := range o.known {
		call(&o.known[i].budget, &o.known[i].Policy)
	}
	t := o.table(now, heard)
	for route, key := range o.stated.known {
		if t.known[route] == "" {
			t.known[route] = key
		}
	}
	o.stated = nil
	o.sort(now)
}

// namesBudgets reports whether the names of an announcement's policies are
// budgets.
func (o *origin) namesBudgets(a *Announcement) bool {
	return o.named && a.Bucket == "" && (a.named || a.lists())
}

// lists reports whether an announcement's policies are a list of all that hold its request,
// as all drafts have it. The older ones' fields name a quota without one, too: that has no
// window, for it is in no list.
func (a *Announcement) lists() bool {
	switch a.Dialect {
	case dialectIETF11:
		return true
	case dialectIETF07, dialectIETF06:
		return !slices.ContainsFunc(a.Policies, func(p Policy) bool { return p.Window == 0 })
	}
	return false
}

// stillCounted returns those budgets of pm's route that its answer does not
// name, and that are not forgotten.
func (p *partition) stillCounted(pm *Permit) []string {
	var still []string
	for b := range strings.SplitSeq(p.origin.routes.known[pm.route()], budgetSep) {
		if b != "" && slices.ContainsFunc(p.slots, func(s *slot) bool { return s.budget == b }) {
			still = append(still, b)
		}
	}
	return still
}
