package heed

import (
	"slices"
	"time"
)

// hintOf returns how long a refusal asks to wait; 0: it does not say. What
// Retry-After says takes precedence over the fields (draft-11, section 7).
func hintOf(a *Announcement, ignoreFields bool) time.Duration {
	if a.RetryAfter > 0 || ignoreFields {
		return max(a.RetryAfter, 0)
	}
	var hint time.Duration
	for _, l := range a.Limits {
		if l.Remaining == 0 && l.Reset > 0 {
			hint = max(hint, l.Reset)
		}
	}
	return hint
}

// hintBeside is hintOf for those limits that no ledger keeps to: what they
// count, nobody on this side can count, or it has no window, or the request
// refused was said not to cost any.
func (p *partition) hintBeside(now time.Time, pm *Permit, a *Announcement) time.Duration {
	var hint time.Duration
	for i := range a.Limits {
		l := &a.Limits[i]
		if s := p.limited(now, p.budgetOf(pm, a, l.Policy, l.PartitionKey), l); l.Remaining == 0 && (s == nil || !s.closes() || pm.free(s.policy.Unit)) {
			hint = max(hint, l.Reset)
		}
	}
	return hint
}

// asHint returns a refusal that names no quota, nor a limit that another answer told of, as one that says no more than when to
// come back, if that: of what it is for nothing is known, and it is learned.
func (p *partition) asHint(now time.Time, pm *Permit, a *Announcement) *Announcement {
	if len(a.Limits) == 0 || len(a.Policies) > 0 || a.Bucket != "" {
		return a
	}
	b := *a
	b.Limits = nil
	for _, l := range a.Limits {
		if l.Remaining > 0 || !sameUnit(l.Unit, UnitRequests) || p.limited(now, p.budgetOf(pm, a, l.Policy, l.PartitionKey), &l) != nil {
			return a
		}
		p.origin.readClock(now, &l, a.Date)
		if a.RetryAfter <= 0 {
			b.RetryAfter = max(b.RetryAfter, l.Reset)
		}
	}
	return &b
}

// asNothing returns a refusal as one that says that nothing is left where it says that
// less is left than pm's request takes: too little is no better than nothing. So it is
// where a problem document names the policy: what is left until its reset was too little.
func (p *partition) asNothing(now time.Time, pm *Permit, a *Announcement) *Announcement {
	b := *a
	b.Limits = slices.Clone(a.Limits)
	for i := range b.Limits {
		l := &b.Limits[i]
		violated := l.Remaining != 0 && l.Reset > 0 && slices.Contains(a.Violated, l.Policy)
		if s := p.limited(now, p.budgetOf(pm, a, l.Policy, l.PartitionKey), l); violated || s != nil && l.Remaining > 0 && l.Remaining < pm.charge(s).n {
			l.Remaining = 0
		}
	}
	return &b
}
