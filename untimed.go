package heed

import "time"

// An untimed is what tells how long a window is of which accepted answers say how much is left, but not until when. Where several use
// it, who does not know when it ends has nothing to spread the rest over, and all go for the last units at the same moment.
type untimed struct {
	begun time.Time     // when the first answer came since more was back …
	spent time.Time     // … no sooner than that, as was said before …
	whole bool          // … which was all …
	dry   time.Time     // … and when the latest request went whose answer said that nothing is left
	last  int64         // left by the latest answer …
	heard time.Time     // … which came then …
	gap   time.Duration // … and for how long, at most, nobody asked since more was back

	more   time.Time     // when there is to be more, as a refusal said last …
	after  time.Duration // … and what Retry-After said in it, …
	took   time.Duration // … so long after the first answer …
	length time.Duration // … of the window that it was the end of, which lasts so long …
	of     time.Time     // … and began then

	found bool // the window is as long as these tell …
	early int  // … and so many turns in a row came before half of that was over
}

// onceMost is how long a window, or a wait for more, is at most that is believed as soon as one refusal shows it: what is longer may be a
// penalty.
const onceMost = 10 * time.Minute

// alsoLate is by how much later than it was named an instant can be met, at most, for what follows to have begun then.
const alsoLate = time.Second

// untimes reports whether accepted answers do not time a policy's window, and resets are not known to be a unit's.
func (s *slot) untimes() bool {
	return s.policy.Window == 0 && !s.habit.onRefusals && s.ledger.timeless >= few && !s.nextUnit.only
}

// wholeQuota is how much of a quota is as good as all of it: others may have gone at the same moment.
func (s *slot) wholeQuota() int64 {
	quota := s.policy.Quota
	orDefault(&quota, s.capacity.most)
	return quota * 9 / 10
}

// inferFromRefusal infers the window from a refusal, of a request sent at start, that says when there is more. Where all was back as
// soon as the one before it had said, that was a window's end, and this is the next: as long after the first answer between them as
// a window lasts. Where it is only Retry-After that says so, or it is long, or another length was found before, two have to show the same,
// for one may name what another limit, or a penalty, takes.
func (s *slot) inferFromRefusal(now, start time.Time, lim *ServiceLimit, after, grain time.Duration) {
	u := &s.inference.untimed
	wait := lim.Reset
	if wait <= 0 {
		wait, grain = after, time.Second
	}
	if lim.Remaining != 0 || wait <= 0 || !s.untimes() || !start.After(u.begun) {
		return
	}
	least, length := s.endsIn(now, start, wait, after, grain)
	if length > 0 {
		same := u.length > 0 && !u.of.Equal(u.begun) && (length-u.length).Abs() <= grain+4*s.ledger.usual
		if same || lim.Reset > 0 && length <= onceMost && !u.found {
			s.findWindow(least, length)
			if !start.Before(s.ledger.stopped) { // the wait before this epoch was guessed: that it was too short is no sign of a quota that comes back piecemeal
				s.ledger.fresh = false
			}
		}
		u.length, u.of = length, u.begun
	}
	u.more, u.after, u.took = now.Add(wait), after, now.Sub(u.begun)
}

// endsIn is how long the window lasts, at least and most likely, that ends after a wait, as far as answers have told when it began; 0: they
// have not. Retry-After may be as long every time, whenever it comes, and is the window then.
func (s *slot) endsIn(now, start time.Time, wait, after, grain time.Duration) (least, length time.Duration) {
	l, u := &s.ledger, &s.inference.untimed
	since, way := u.more, l.usual
	if !l.inCompany() { // it was none of theirs that came first
		since, way = u.spent, max(2*(l.usual-l.quickest), 0)
	}
	late := max(u.begun.Sub(since), 0)
	if since.IsZero() || u.more.IsZero() {
		late = 0
	}
	took, slack := now.Sub(u.begun), grain+4*l.usual
	if length = took + wait; wait == after && after == u.after && took <= after && (took-u.took).Abs() > slack {
		length = after
	}
	least = length - grain - way
	missed := u.begun.Add(alsoLate).Before(u.more) && start.After(u.more) // nothing was seen to be back by then
	vague := late > alsoLate+slack
	if vague && !l.inCompany() && 2*late <= length { // or it began with the first request in it
		late, vague = 0, false
	}
	if !u.whole || least <= 0 || vague || missed || 4*u.gap > length {
		return 0, 0
	}
	return least, likeliest(least, length, length+late) // by the clock it began when there was to be more
}

// findWindow takes the window to be so long, or less but longer than least, be it shorter than what was found before.
func (s *slot) findWindow(least, length time.Duration) {
	if u := &s.inference.untimed; u.found && length < s.terms.Window-s.ledger.inferred {
		s.unfindWindow()
	}
	s.infer(length, length-least)
	s.inference.found = true
}

// unfindWindow forgets the window that was found, and nothing of what tells how long it is.
func (s *slot) unfindWindow() {
	u := s.inference.untimed
	u.found, u.early = false, 0
	s.forgetWindow()
	s.inference.untimed = u
}

// inferFromTurn infers the window where nobody ever says when there is more, from the answer to c, sent at start. Where all is back the
// window was no longer than from the first answer in it until now, and longer than until one said that nothing was left. Who is alone
// does without, and finds out by how long nothing is left: see drought.
func (s *slot) inferFromTurn(now, start time.Time, c *charge, st *statement) {
	l, u := &s.ledger, &s.inference.untimed
	if s.policy.Window > 0 || st.remaining < 0 || l.flows() {
		return
	}
	rose := l.stated && st.remaining >= c.said && !st.free || !l.stated && st.remaining > u.last
	if !u.heard.IsZero() {
		u.gap = max(u.gap, start.Sub(latest(u.heard, l.stopped)))
	}
	u.last, u.heard = st.remaining, now
	switch {
	case st.remaining == 0:
		if u.dry = latest(u.dry, start); u.found && start.Sub(u.begun) > s.terms.Window && 4*u.gap <= s.terms.Window { // it is longer
			s.unfindWindow()
		}
	case st.refused || !rose:
	default:
		whole := st.remaining+l.sent-c.sent+c.n >= s.wholeQuota()
		least, most := u.dry.Sub(u.begun), now.Sub(u.begun)
		if u.early++; !whole || !u.whole || 2*most >= s.terms.Window-l.inferred {
			u.early = 0
		}
		switch {
		case u.found && u.early >= convinced: // it is far shorter
			s.unfindWindow()
		case l.inCompany() && u.more.IsZero() && s.untimes() && u.whole && whole && u.dry.After(u.begun) && 4*u.gap <= most && closeTo(least, most):
			s.findWindow(least, likeliest(least, most, most))
		}
		u.begun, u.spent, u.whole, u.gap = now, latest(u.dry, u.more), whole, 0
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
