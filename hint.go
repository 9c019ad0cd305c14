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

// A hinting is what speaks for it that refusals, which alone tell what is left of a quota, name when the next unit of it is back, as
// a bucket's do, and not when all of it is: few go until the next one is refused.
type hinting struct {
	went int64 // accepted in the epoch
	few  int   // epochs in a row in which few were …
	less int   // … and in which less than all was, in as long as a window that is hardly longer than what resets are rounded to
	only bool  // so it is: they are taken for hints, the ledger holds nobody, and the limit is learned …
	told int   // … of so many
}

// mostLess are so many epochs in a row in which less than all was accepted that others hardly took the rest of each.
const mostLess = 8

// mostHints are so many refusals until it is looked at anew whether they are no more than hints: others may have used the quota.
const mostHints = 64

// hints reports whether a refusal is to be taken for one.
func (h *hinting) hints() bool {
	if !h.only {
		return false
	}
	if h.told++; h.told > mostHints {
		*h = hinting{few: convinced - 1, less: mostLess - 1}
	}
	return h.only
}

// accepted takes in that the request of c was accepted, where only refusals tell of the quota. Where more were than the epoch is
// known to have had to begin with, there was more of it.
func (l *ledger) accepted(c *charge) {
	if c.epoch != l.epoch {
		return
	}
	l.hinting.went += c.n
	if l.began > 0 && l.hinting.went >= l.began {
		l.began += l.began/8 + 1
	}
}

// hearHinting takes in what the answer to c says of what speaks for hints. first: it is the first word of its epoch; again: it
// has been taken in before.
func (s *slot) hearHinting(now time.Time, c *charge, st *statement, first, again bool) {
	switch h := &s.ledger.hinting; {
	case !st.refused && st.remaining >= 0: // it is not by refusals alone
		h.few, h.less, h.only = 0, 0, false
	case !st.refused && s.habit.most == 0 && !again:
		s.ledger.accepted(c)
	case first && st.remaining == 0 && (st.reset >= 0 || s.ledger.inferred > 0):
		s.hearFew(now)
	}
}

// hearFew takes in that the first word of an epoch is that nothing is left until a reset. Where only refusals tell what is left, and
// nobody of what window it is, few may have gone in it.
func (s *slot) hearFew(now time.Time) {
	h := &s.ledger.hinting
	if s.habit.most > 0 || s.said.Window > 0 || s.policy.Unit != UnitRequests {
		return
	}
	near := !s.habit.onRefusals && s.terms.Window <= 2*max(s.ledger.grain, s.ledger.rounded) // a window would hardly be as short
	if h.went > 0 && (2*h.went <= s.said.Quota || near && 4*h.went <= 3*s.said.Quota) {
		h.few++
	} else {
		h.few = 0
	}
	lately := min(h.went, s.ledger.own.between(now.Add(-s.terms.Window), now)) + s.ledger.own.inFlight
	if short := s.terms.Window <= 4*max(s.ledger.grain, s.ledger.rounded); short && h.went > 0 && lately < s.said.Quota {
		h.less++
	} else {
		h.less = 0
	}
	if h.few >= convinced || h.less >= mostLess { // a window would have given all of it back, save for what others took
		h.only = true
		s.forgetWindow() // it was no window's end that was named
	}
}

// asHint returns a refusal that says of no known policy that it is used up, nor of any other that it is for, as one that says no more
// than when to come back, if that: of what it is for nothing is known, and it is learned. So it does where the refusals of a policy were
// found to tell of its next unit, and where accepted answers name its reset alone.
func (p *partition) asHint(now time.Time, pm *Permit, a *Announcement) *Announcement {
	if len(a.Limits) == 0 || a.Bucket != "" || len(a.PerRoute) > 0 {
		return a
	}
	b := *a
	b.Limits, b.Violated = nil, nil
	for _, l := range a.Limits {
		budget := p.budgetOf(pm, a, l.Policy, l.PartitionKey)
		s := p.limited(now, budget, &l)
		if l.Remaining != 0 || budget != "" || !sameUnit(l.Unit, UnitRequests) || s != nil && !s.tellsNothing() && !s.ledger.hinting.hints() {
			return a
		}
		if s != nil && a.inDialect() {
			l = s.resetUnit.read(now, pm.start, l)
		}
		p.origin.readClock(now, &l, a.Date)
		if a.RetryAfter <= 0 {
			b.RetryAfter = max(b.RetryAfter, l.Reset)
		}
	}
	if slices.ContainsFunc(p.slots, func(s *slot) bool { return slices.Contains(a.Violated, s.policy.Name) }) {
		return a
	}
	return &b
}

// tellsNothing reports whether nobody ever said how large the quota is, nor how many are left.
func (s *slot) tellsNothing() bool { return s.said.Quota == 0 && s.ledger.said.IsZero() }

// asNothing returns a refusal as one that says that nothing is left where it says that
// less is left than pm's request takes: too little is no better than nothing. So it is
// where a problem document names the policy: what is left until its reset was too little.
func (p *partition) asNothing(now time.Time, pm *Permit, status int, a *Announcement) *Announcement {
	b := *a
	b.Limits = slices.Clone(a.Limits)
	if s := p.tooSoonFor(pm, status, a); s != nil {
		b.Limits = []ServiceLimit{{Policy: s.policy.Name, PartitionKey: s.policy.PartitionKey, Unit: s.policy.Unit, Remaining: 0, Reset: -1}}
	}
	for i := range b.Limits {
		l := &b.Limits[i]
		violated := l.Remaining != 0 && l.Reset > 0 && slices.Contains(a.Violated, l.Policy)
		if s := p.limited(now, p.budgetOf(pm, a, l.Policy, l.PartitionKey), l); violated || s != nil && l.Remaining > 0 && l.Remaining < pm.charge(s).n {
			l.Remaining = 0
		}
	}
	return &b
}

// tooSoonFor returns the announced policy that was used up, and of whose next window pm's request was the first, where a refusal
// that says no more than Retry-After came to that: the request went too soon for it. nil: there is none, or several; a 503 is an outage.
func (p *partition) tooSoonFor(pm *Permit, status int, a *Announcement) (too *slot) {
	if a.RetryAfter <= 0 || a.Cached || status >= 500 || len(a.Limits) > 0 || len(a.Policies) > 0 || len(a.Violated) > 0 || a.Bucket != "" || len(a.PerRoute) > 0 {
		return nil
	}
	for i := range pm.charges {
		c := &pm.charges[i]
		s, l := c.slot, &c.slot.ledger
		switch {
		case s.source != SourceAnnounced || s.budget != "" || !s.follows() || s.policy.Unit != UnitRequests:
		case !l.awaits(c) || l.drought.dry.IsZero() || pm.start.Sub(l.last) > s.terms.Window/10:
		case too != nil:
			return nil
		default:
			too = s
		}
	}
	return too
}
