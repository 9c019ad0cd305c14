package heed

import "time"

// A capacity is how much of a quota its origin holds at once, as far as answers show. Many name a limit per minute, hour or
// day and keep a small bucket that gives it out bit by bit: what is left never comes near that limit, and the resets named
// are those of the bucket. Kept to is then what it holds, in the time that takes to come back.
type capacity struct {
	most   int64         // units that were there at once, at least
	ahead  time.Duration // how far away a reset is at the most, for certain, while something is left
	proven bool          // all that the quota gives back came back, and yet no more was there
}

// keepToCapacity has the slot keep to no more at once than its origin was seen to hold, before it takes in what the answer
// to c says. That less is left than the quota can also be because others use it, or used it before this process came. So it
// has to be seen that no more comes back than ever was there; and where more is there later on, what was seen was not all,
// and has to be seen anew. Where no window is stated, only the resets tell how soon units come back, and as many do as were
// there. Where one is, they come back at the rate of the quota, whatever the origin holds.
func (s *slot) keepToCapacity(now time.Time, c *charge, st *statement) {
	k, l, p := &s.capacity, &s.ledger, &s.policy
	if st.remaining < 0 || p.Quota <= 0 || p.Unit != UnitRequests {
		return
	}
	there := st.remaining
	if !st.refused {
		there += c.n
	}
	if there > k.most { // and maybe far more
		k.most, k.proven = there, false
	}
	l.ever = k.most
	if st.remaining > 0 {
		k.ahead = max(k.ahead, st.reset-st.resolution)
	}
	stated := p.Window > 0 && !s.inference.loose
	if !st.refused && l.awaits(c) && l.opened.Equal(now) {
		back := float64(k.most) // as much as there ever was
		if stated {
			back = min(back, 0.75*p.rate()*now.Sub(l.said).Seconds())
		}
		k.proven = there > l.carried && float64(there-l.carried) >= back
	}
	switch part := k.proven && k.most < p.Quota/2; {
	case part && stated:
		bit := time.Duration(float64(p.Window) * float64(k.most) / float64(p.Quota))
		s.terms.Quota, s.terms.Window = k.most, min(max(bit, k.ahead), p.Window)
	case part:
		s.terms.Quota = k.most
	default:
		s.keepToWhole()
	}
}

// holds is how many units there can be at once, as far as answers show. Far less than the quota is no proof that there is
// not more of it, but the first answer says so where there is.
func (l *ledger) holds(p *Policy) int64 {
	if l.ever > 0 && l.ever < p.Quota/2 {
		return l.ever
	}
	return p.Quota
}

// keepToWhole has the slot keep to the policy as it is announced again.
func (s *slot) keepToWhole() {
	p := &s.policy
	if s.terms.Quota >= p.Quota {
		return
	}
	if s.terms.Quota = p.Quota; p.Window > 0 && !s.inference.loose {
		s.terms.Window = p.Window
	}
}
