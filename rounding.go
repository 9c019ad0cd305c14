package heed

import "time"

// Resets are mostly named in whole seconds, and which way they are rounded nobody
// says. Where it is up, the window has turned at the instant named; where it is down, it
// may turn up to a second later, and who asks at once is refused. An origin is
// taken to round up until it is caught rounding down. As long as neither was seen, the
// last unit of a window is kept to find out: where the window has not turned, the origin
// accepts it all the same.

// rounding is how resets are rounded, as far as is known.
type rounding struct {
	grain   time.Duration // what resets are rounded to …
	rounded time.Duration // … and instants
	down    int           // resets for which the origin is still taken to round down: it was caught at it …
	caught  int           // … so many times
	onTime  int           // resets that were seen to be no later than named
	kept    bool          // the last unit before this epoch was kept to see whether the next is
	longer  bool          // what was used was not back a window after its first answer
}

// seenOnTime is how many resets have to be no later than named until an origin is
// trusted to round up.
const seenOnTime = 2

// untried reports whether it is yet to be seen which way an origin rounds resets, and
// that matters more than a unit.
func (l *ledger) untried(p *Policy) bool {
	by := max(l.grain, l.rounded)
	return l.onTime < seenOnTime && l.down == 0 && by > 2*l.quickest && !l.flows() && !l.othersSeen &&
		p.Quota >= shareable && times(p.Quota, by) >= p.Window
}

// learnRounding finds out whether the window had turned at the instant named. It reports
// whether the present epoch was begun too soon.
func (l *ledger) learnRounding(now, start time.Time, c *charge, p *Policy, s *statement) (tooSoon bool) {
	first := !l.stated && c.epoch == l.epoch && s.resolution > 0 && !l.last.IsZero()
	lastUnit := first && l.kept && s.remaining == 0
	// No reset that is rounded up is over while nothing is left.
	past := s.reset == 0 && s.remaining == 0 && s.resolution > 0 && !s.refused && l.shape != shapeRefill
	early := (s.refused || lastUnit || past) && l.turnedTooSoon(now, c, p, s)
	switch {
	case early && l.down == 0:
		l.roundsDown()
		l.fits, l.last = 0, time.Time{} // what spoke for a sliding window was that this one had not turned
	case early && !l.longer:
		l.longer = true
	case past && l.down == 0:
		l.roundsDown()
		return false
	case first && !s.refused && s.reset >= 0 && start.Sub(l.last) < s.resolution/8:
		l.onTime++
		return false
	default:
		return false
	}
	if !l.opens.IsZero() {
		l.opens = l.opens.Add(l.later(now, p, s))
	}
	return true
}

// turnedTooSoon reports whether an answer shows that the epoch was begun
// before the origin's window had turned: it still names the old reset. Where something was accepted
// since, though nothing had been left, the window had turned; and so it had where others use it and another
// reset is named: they were first.
func (l *ledger) turnedTooSoon(now time.Time, c *charge, p *Policy, s *statement) bool {
	if l.fresh && !l.kept && !l.opened.IsZero() {
		return false
	}
	if by := max(l.grain, l.rounded); s.reset < 0 && s.refused && s.remaining == 0 && by > 0 { // it names none, and came to who went at the one named before
		return !l.othersSeen && l.awaits(c) && now.Sub(l.last) < 2*by+p.Window/10
	}
	later, most := now.Add(s.reset).Sub(l.last), max(2*s.resolution, p.Window/2)
	switch {
	case !l.othersSeen:
	case s.clock:
		most = s.grain / 2
	default:
		later, most = s.reset, s.grain
	}
	return s.resolution > 0 && s.reset >= 0 && c.epoch == l.epoch && now.Sub(l.last) < 2*s.resolution+p.Window/10 && later < most
}

// notYet takes in that it was not, at the reset that was named: that was rounded down. Where
// none was named, it was too soon. It reports false where there was none to wait for.
func (l *ledger) notYet(now time.Time, p *Policy) bool {
	switch {
	case p.Window > 0:
		l.roundsDown()
	case l.drought.blind > 0 && l.drought.lasts():
		l.closeUntil(now.Add(l.drought.blindWait(now, true, true, !l.inCompany())))
	default:
		return false
	}
	return true
}

// roundsDown takes in that the origin was caught rounding a reset down. It is taken to
// do so for a number of resets, twice as many each time it is caught, up to a thousand: it may
// have been chance, or may change.
func (r *rounding) roundsDown() {
	r.down = downFor << r.caught
	r.caught = min(r.caught+1, 5)
}

const downFor = 32

// trustAgain counts a reset towards those for which the origin is taken to round down.
func (r *rounding) trustAgain() {
	if r.down == 0 {
		return
	}
	if r.down--; r.down == 0 {
		r.onTime = 0
	}
}

// later returns by how much later than the instant an answer names the reset may be, where
// the origin rounds down: by what it rounds to, save that a window ends no later than its
// length after its first answer, and of two counts a unit is back a quota's share of one after that.
func (l *ledger) later(now time.Time, p *Policy, s *statement) time.Duration {
	switch {
	case l.down == 0:
		return 0
	case l.flows() || l.elastic || p.Window <= 0 || l.longer && l.inferred > 0:
		return s.resolution
	}
	begun := now
	if l.stated {
		begun = l.begun
	}
	lasts := p.Window
	if l.longer { // of two counts the first unit is back so much later
		lasts += p.Window / time.Duration(max(p.Quota, 1))
	}
	return min(s.resolution, max(begun.Add(lasts).Sub(now.Add(s.reset)), 0))
}
