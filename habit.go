package heed

import (
	"math"
	"time"
)

// A habit is how an origin announces a policy: with every answer, with every
// tenth, only where little is left, or only when it refuses. A policy that is no
// longer announced fades, for it may be gone; one that is silent by habit holds on.
type habit struct {
	last       time.Time // when it was announced last …
	onRefusals bool      // … and only ever by refusals …
	most       int64     // … and the most that was said to be left
	silent     int       // answers since that could be expected to announce it …
	usual      int       // … and the most of them that there were between two that did
	atOnce     bool      // the very first answer announced it
	ours       bool      // all that had been used by the first word of it this process had used
	inRow      int       // answers that announced it with none between that was expected to, and did not …
	route      string    // … the latest to a request of this route
	another    time.Time // when it was announced with another quota than before, and may be another policy
	inTurn     bool      // it has no name, and is announced in turn with others
}

// windowless is how long a policy without a window holds that is no longer
// announced.
const windowless = time.Minute

// said notes that the policy was announced, in whatever way.
func (h *habit) said(now time.Time) {
	h.last = now
	h.usual, h.silent = max(h.usual, h.silent), 0
}

// left notes that an answer said how many units are left; refused: it was a
// refusal; made: it was the first word of the policy.
func (h *habit) left(n int64, refused, made bool) {
	h.onRefusals = refused && (made || h.onRefusals)
	h.most = max(h.most, n)
}

// due reports whether the answer to a request can be expected to announce the
// policy, after this process has used so many units within a window.
func (h *habit) due(used int64, p *Policy) bool {
	return !h.onRefusals && p.Quota-used <= h.most
}

// missed notes that an answer that was due said nothing of the policy.
func (h *habit) missed() { h.silent++ }

// spoke takes in that an accepted answer of a route announced the policy.
func (h *habit) spoke(route string) {
	h.inRow++
	h.route = route
}

// tells reports whether an answer of a route that was expected to announce the policy, and does not, shows that more
// is left than any that did has said. So it is where only answers that say that little is left announce it, and where
// each of them does: what went before the first of them is all that was used by then, and several have come in a
// row. What another route says may be silent whatever is left.
func (h *habit) tells(route string, p *Policy) bool {
	if h.inRow < convinced {
		h.inRow = 0
		return false
	}
	return h.ours && h.late(p) && h.route == route
}

// broken reports whether the policy was not announced for longer than its
// window, by more answers than can be chance. Where it is only announced when
// little is left, nobody knows at which answer that is.
func (h *habit) broken(now time.Time, p *Policy) bool {
	window, most := p.Window, 2*h.usual
	orDefault(&window, windowless)
	if h.late(p) {
		most += int(min(p.Quota, math.MaxInt32))
	}
	return now.Sub(h.last) > window && h.silent > most
}

// late reports whether the policy is only announced when little is left.
func (h *habit) late(p *Policy) bool { return h.most < p.Quota/2 }

// seldom reports whether only refusals announce the policy, or only answers that say that little is left. Where every answer
// did, from the first one on, little is left for another reason.
func (h *habit) seldom(p *Policy) bool {
	return h.onRefusals || h.late(p) && !(h.atOnce && h.usual == 0 && h.silent == 0)
}

// faded reports whether an announced policy no longer holds: nothing is heard
// of it against the origin's habit, and no word of it binds any more. One that
// is only announced when little is left may be kept to so well that it never is:
// before it fades, a little more than the quota is tried, and more than that, up to
// twice as much. As long as it holds, the origin will speak up before it refuses.
func (s *slot) faded(now time.Time) bool {
	p := s.terms
	if p.Quota = max(p.Quota, s.policy.Quota); !s.inference.loose { // a part of it fades no sooner than the whole
		p.Window = max(p.Window, s.policy.Window)
	}
	if s.source != SourceAnnounced || !s.habit.broken(now, &p) || now.Before(s.ledger.until()) {
		return false
	}
	if q := s.policy.Quota; s.habit.late(&s.policy) && s.terms.Quota < 2*q {
		s.terms.Quota += max(q/10, 1)
		s.habit.last, s.habit.silent = now, 0
		return false
	}
	return true
}

// heard ends the trying of more than the quota: the policy holds.
func (s *slot) heard() {
	if q := s.policy.Quota; q > 0 {
		s.terms.Quota = min(s.terms.Quota, q)
	}
}
