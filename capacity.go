package heed

import "time"

// A capacity is how much of a quota its origin holds at once, as far as answers show. Many name a limit per minute, hour or
// day and keep a small bucket that gives it out bit by bit: what is left never comes near that limit, and the resets named
// are those of the bucket. Kept to is then what it holds, in the time that takes to come back.
type capacity struct {
	most   int64         // units that were there at once, at least
	ahead  time.Duration // how far away a reset is at the most, for certain, while something is left
	proven bool          // all that the quota gives back came back, and yet no more was there
	fills  fillings
}

// fillings are answers in a row that named when a bucket would be full that holds no more than ever was there, and gains
// as fast as the quota says.
type fillings struct {
	up, down    int   // of them, if resets are rounded up, or down
	least, most int64 // this process's use of a window when they came
}

// hear takes in what an answer says, when this process uses so many units of a window, and reports whether they prove that
// there is no more than hold. The end of a window, or a unit's return, can be as near for a while. But what this process
// comes to use leaves less of a window, and moves no end of it; so it has come to use more by more than ever was there. Others would
// have had to make way for each unit of that.
func (f *fillings) hear(p *Policy, st *statement, hold, used int64) bool {
	unit := p.Window / time.Duration(p.Quota)
	if st.refused || st.remaining <= 0 || st.reset < 0 || p.Window < 8*(unit+st.resolution) { // else that tells nothing
		return false
	}
	more := st.reset - time.Duration(hold-st.remaining)*unit // or up to a unit more
	if f.up++; more < -unit || more > st.resolution {
		f.up = 0
	}
	if f.down++; more < -unit-st.resolution || more > 0 {
		f.down = 0
	}
	if max(f.up, f.down) <= 1 {
		f.least, f.most = used, used
	}
	f.least, f.most = min(f.least, used), max(f.most, used)
	return max(f.up, f.down) >= 2*convinced && f.most-f.least > hold
}

// keepToCapacity has the slot keep to no more at once than its origin was seen to hold, before it takes in what the answer
// to c says. That less is left than the quota can also be because others use it, or used it before this process came. So it
// has to be seen that no more comes back than ever was there; and where more is there later on, what was seen was not all,
// and has to be seen anew. Where no window is stated, only the resets tell how soon units come back, and as many do as were
// there. Where one is, they come back at the rate of the quota, whatever the origin holds.
func (s *slot) keepToCapacity(now time.Time, c *charge, st *statement) {
	k, l, p := &s.capacity, &s.ledger, &s.policy
	if st.remaining < 0 || p.Unit != UnitRequests {
		return
	}
	there := st.remaining
	if !st.refused {
		there += c.n
	}
	if p.Quota <= 0 {
		s.inferQuota(there)
		return
	}
	l.guessed = false
	if there > k.most { // and maybe far more
		k.most, k.proven, k.fills = there, false, fillings{}
	}
	l.ever = k.most
	if l.brim = p.Quota; !s.habit.seldom(p) {
		l.brim = l.holds(p)
	}
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
	if stated && !k.proven && k.most < p.Quota/2 && k.fills.hear(p, st, k.most, l.own.used(now, p.Window)) {
		k.proven = true
		l.forgetOthers() // who seemed to have the rest
		l.shape, l.fillsUp = shapeRefill, true
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

// inferQuota takes a quota that no answer names to be as large as the most that was there at once, where resets tell how long its window is.
// That is no ceiling, for who came late has seen but a part of it. Nobody need name one: draft-11's RateLimit says what is left and until
// when, and RateLimit-Policy is optional (section 3).
func (s *slot) inferQuota(there int64) {
	s.capacity.most = max(s.capacity.most, there)
	if s.terms.Window > 0 || s.ledger.guessed {
		s.guess(max(s.terms.Quota, there))
	}
}

// guess takes a quota that no answer names to be so large.
func (s *slot) guess(quota int64) {
	l := &s.ledger
	s.terms.Quota, l.guessed, l.ever, l.brim = quota, true, quota, quota
}

// counts reports whether the answer to c is about to tell how large a quota is that no answer names: a window has turned, and all of it is there.
func (s *slot) counts(c *charge, st *statement) bool {
	l := &s.ledger
	return l.guessed && !st.refused && st.remaining >= 0 && l.shape == shapeReset && !l.othersSeen && !l.kept && l.awaits(c)
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
