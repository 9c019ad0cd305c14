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

// keepToCapacity has the slot keep to no more at once than its origin was ever seen to hold, before it takes in what the
// answer to c says. Where no window is stated, the resets are all that tells how soon units come back, and it is as many as
// were there that do. Where one is, they do so at the rate of the quota, whatever the origin holds; but that less is left
// can also be because others use it, so it has to be seen that all that comes back comes back to this process.
func (s *slot) keepToCapacity(now time.Time, c *charge, st *statement) {
	k, l, p := &s.capacity, &s.ledger, &s.policy
	if st.remaining < 0 || p.Quota <= 0 || p.Unit != UnitRequests {
		return
	}
	there := st.remaining
	if !st.refused {
		there += c.n
	}
	k.most = max(k.most, there)
	if st.remaining > 0 {
		k.ahead = max(k.ahead, st.reset-st.resolution)
	}
	stated := p.Window > 0 && !s.inference.loose
	if stated && !st.refused && l.awaits(c) && l.opened.Equal(now) {
		full := 0.75 * p.rate() * now.Sub(l.said).Seconds()
		k.proven = float64(there-l.carried) >= min(full, float64(k.most))
	}
	switch {
	case stated && k.proven && k.most < p.Quota/2:
		bit := time.Duration(float64(p.Window) * float64(k.most) / float64(p.Quota))
		s.terms.Quota, s.terms.Window = k.most, min(max(bit, k.ahead), p.Window)
	case stated:
		if s.terms.Quota < p.Quota {
			s.terms.Quota, s.terms.Window = p.Quota, p.Window
		}
	default:
		s.terms.Quota = min(k.most, p.Quota)
	}
}
