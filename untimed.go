package heed

import "time"

// An untimed is what tells how long a window is of which accepted answers say how much is left, but not until when. Where several use
// it, who does not know when it ends has nothing to spread the rest over, and all go for the last units at the same moment.
type untimed struct {
	more  time.Time     // when there is to be more, as a refusal said last …
	after time.Duration // … and Retry-After, if that was all it said

	begun time.Time // when the first answer came since more was back …
	whole bool      // … which was all …
	dry   time.Time // … and when the latest request went whose answer said that nothing is left
	found bool      // the window was inferred from these
}

// alsoLate is by how much later than it was named an instant can be met, at most, for what follows to have begun then.
const alsoLate = time.Second

// wholeQuota is how much of a quota is as good as all of it: others may have gone at the same moment.
func (s *slot) wholeQuota() int64 {
	quota := s.policy.Quota
	orDefault(&quota, s.capacity.most)
	return quota * 9 / 10
}

// inferFromRefusal infers the window from a refusal that says when there is more. Where all was back as soon as the one before it had
// said, that was a window's end, and this is the next: as long after the first answer between them as a window lasts. Retry-After
// may be as long every time, and is the window then.
func (s *slot) inferFromRefusal(now time.Time, lim *ServiceLimit, after, grain time.Duration) {
	l, u := &s.ledger, &s.inference.untimed
	wait := max(lim.Reset, after)
	if s.policy.Window > 0 || s.habit.onRefusals || lim.Remaining != 0 || wait <= 0 || l.unnamed < few {
		return
	}
	if lim.Reset <= 0 {
		grain = time.Second
	}
	if late := u.begun.Sub(u.more); u.whole && late <= alsoLate+grain+4*l.usual && late >= -alsoLate-l.usual {
		length := now.Add(wait).Sub(u.begun)
		if lim.Reset <= 0 && after == u.after {
			length = after
		}
		least := length - grain - l.usual
		length = likeliest(least, length, length+max(late, 0)) // by the clock it began when there was to be more
		s.infer(length, length-least)
	}
	u.more, u.after = latest(u.more, now.Add(wait)), after
}

// inferFromTurn infers the window where nobody ever says when there is more, from the answer to c, sent at start. Where all is back the
// window was no longer than from the first answer in it until now, and longer than until one said that nothing was left. Who is alone
// does without, and finds out by how long nothing is left: see drought.
func (s *slot) inferFromTurn(now, start time.Time, c *charge, st *statement) {
	l, u := &s.ledger, &s.inference.untimed
	switch {
	case s.policy.Window > 0, s.habit.onRefusals, st.remaining < 0, l.flows():
	case st.remaining == 0:
		if u.dry = start; u.found && start.Sub(u.begun) > s.terms.Window { // it is longer
			was := *u
			s.forgetWindow()
			was.found = false
			s.inference.untimed = was
		}
	case st.refused, l.stated && st.remaining < c.said: // no more than was left before
	default:
		least, most := u.dry.Sub(u.begun), now.Sub(u.begun)
		if (l.othersSeen || l.othersMet) && u.more.IsZero() && l.unnamed >= few && u.whole && u.dry.After(u.begun) && closeTo(least, most) {
			length := likeliest(least, most, most)
			s.infer(length, length-least)
			u.found = true
		}
		u.begun, u.whole = now, st.remaining+l.sent-c.sent+c.n >= s.wholeQuota()
	}
}

// closeTo reports whether a window that lasts so long at least and at most is known well enough: between the two there are hardly ever
// two times that windows mostly have.
func closeTo(least, most time.Duration) bool { return 5*least >= 2*most }

// likeliest is how long a window is likely to be that is longer than least, no longer than most, and as far as is known about as long as
// length.
func likeliest(least, length, most time.Duration) time.Duration {
	for _, round := range []time.Duration{roundTime(most), most.Truncate(5 * time.Second)} {
		if round > least {
			return round
		}
	}
	return length
}
