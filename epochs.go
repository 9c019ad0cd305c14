package heed

import "time"

// resets are when there is more, as far as is known.
type resets struct {
	earliest time.Time     // the reset is not before this …
	opens    time.Time     // … and taken to be at this instant; zero: not said
	named    time.Time     // the reset named last, for what it is worth
	closed   time.Time     // nothing may start before: an answer named this instant with nothing left
	stopped  time.Time     // until when that was so last, in whatever epoch
	last     time.Time     // when the reset before this epoch was taken to be
	previous time.Time     // the reset before this epoch as it was named …
	anchor   time.Time     // … and that of an epoch some …
	turns    time.Duration // … resets before
	byUse    bool          // a window begins with the first request in it
	inferred time.Duration // by how much the window may be too long, where it is one inferred from resets; 0: it was stated …
	shortest time.Duration // … and it is no shorter than that, as an instant named early on shows since …
	bounded  bool          // … and two of its ends, as instants, were so far apart
	dried    time.Time     // when the latest request went whose answer said that nothing is left …
	since    time.Time     // … before this epoch; zero: none did in the one before
	opened   time.Time     // when the first answer of this epoch came, whatever it said …
	begun    time.Time     // … and the first that said what remains
	renewed  bool          // this epoch began because more was left than had been said …
	lapsed   bool          // … or because the one before was over, though nobody said when
	zeros    int           // resets of 0 in a row …
	above    time.Time     // … and when one above 0 was named last
	unnamed  int           // answers in a row that named no reset, or one of 0 though some are left …
	timeless int           // … and accepted ones, whatever refusals name
}

// until returns the instant at which what is known of this epoch runs out;
// zero where nothing says when. The reset was named by an answer that was on its
// way back, and the request that goes next will be on its way there: both
// together take no less than the quickest round trip. An instant on the origin's clock
// is read by answers that were on their way, too. Where an answer said that nothing is
// left, its own word counts.
func (l *ledger) until() time.Time {
	if l.opens.IsZero() {
		return l.closed
	}
	return latest(l.opens.Add(-l.ahead), l.closed)
}

// lapses returns when what was said of a window is over whose reset nobody named: one
// window after the first answer in it, be it a silent one, where all of it comes back at once.
func (l *ledger) lapses(p *Policy) time.Time {
	if l.shape == shapeReset && !l.elastic && !l.opened.IsZero() {
		return l.opened.Add(p.Window - l.ahead)
	}
	return l.said.Add(p.Window)
}

// ends is until, where nobody names a reset the instant at which what was said of a window of which all comes back at once is over; zero:
// that is not known.
func (l *ledger) ends(p *Policy) time.Time {
	until := l.until()
	if until.IsZero() && l.shape == shapeReset && l.stated && !l.elastic && p.Window > 0 {
		return l.lapses(p)
	}
	return until
}

// turn begins a new epoch where the present one is over. It reports whether
// requests that go now need to be confirmed by answers first: after a stop,
// at the first resets, or where the quota is unknown. n is what the first of them takes.
func (l *ledger) turn(now time.Time, n int64, p *Policy) (probe bool) {
	until := l.until()
	if l.isFar(p) { // no answer tells of it in time, save that nothing was left
		stopped := !l.closed.IsZero()
		if stopped {
			until = l.closed // answers of before name later ends
		}
		if until.IsZero() || now.Before(until) {
			return false
		}
		l.begin(false, 0)
		return stopped
	}
	if l.renewed {
		l.renewed = false
		return true
	}
	if until.IsZero() && l.stated && !l.flows() && p.Window > 0 && !now.Before(l.lapses(p)) {
		l.begin(false, 0) // no reset was named, but what was said is over
		l.lapsed = true
		return false
	}
	if until.IsZero() || now.Before(until) {
		return false
	}
	l.trustAgain()
	if l.flows() { // nothing turns
		probe = l.shape == shapeRefill && !l.closed.IsZero()
		l.earliest, l.opens, l.closed = time.Time{}, time.Time{}, time.Time{}
		return probe
	}
	kept := l.stated && l.left == n && l.untried(p)
	stopped := kept || l.stated && (l.left < n || l.left == n && l.inferred > 0) || !l.closed.IsZero()
	l.compare(p)
	l.last = until
	l.begin(stopped, 0)
	l.kept = kept
	return stopped || p.Quota == 0 || l.guessed || l.epoch < 3 // the first resets may have been rounded down
}

// begin begins an epoch of which nothing has been said, and to which so many of
// the units sent may belong; fresh: its quota is presumed whole.
func (l *ledger) begin(fresh bool, sent int64) {
	l.epoch++
	l.spent, l.carried = l.inEpoch, 0
	if l.stated && !l.othersSeen {
		l.carried = l.left
	}
	if !l.stated { // none of it was refused
		l.hinting.less = 0
	}
	l.fresh, l.stated, l.exact, l.kept, l.partial, l.lapsed, l.left, l.part, l.inEpoch = fresh, false, false, false, false, false, 0, 0, sent
	l.since, l.dried = l.dried, time.Time{}
	l.earliest, l.opens, l.closed, l.opened, l.begun = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	l.solitude, l.drought.used, l.hinting.went = solitude{}, 0, 0
}

// awaits reports whether c went to see whether a quota that was used up is back, and
// no answer has said so.
func (l *ledger) awaits(c *charge) bool {
	return l.fresh && !l.stated && c.epoch == l.epoch && l.inEpoch <= c.n
}

// compare finds out whether a window begins with the first request in it: then
// each begins later than the one before and its length say, by a round trip at
// least. By the clock they only seem to, by less than what resets are rounded to; and never so that
// the earliest that one can end is later than the latest that those before it can have.
func (l *ledger) compare(p *Policy) {
	if l.opens.IsZero() || p.Window <= 0 {
		return
	}
	if gap := l.opens.Sub(l.previous); gap > 3*p.Window/2 || gap < p.Window/2 {
		l.anchor, l.turns = l.opens, 0
	} else {
		l.turns++
	}
	l.previous = l.opens
	l.anchor = soonest(l.anchor, l.opens.Add(-l.turns*p.Window))
	drift := l.turns * p.Window / 1000 // no two clocks go alike
	if l.opens.Sub(l.anchor) > l.turns*p.Window+l.grain+2*l.quickest || l.earliest.Sub(l.anchor) > l.turns*p.Window+drift {
		l.byUse = true
	}
}

// hearWhen takes in when an answer says that there is more. It reports whether that
// shows that the present epoch was begun too soon.
func (l *ledger) hearWhen(now, start time.Time, c *charge, p *Policy, s *statement) (tooSoon bool) {
	if s.reset == 0 && s.resolution > 0 {
		// For as long after one above 0 as they are rounded by, it is one that is rounded down.
		last := now.Sub(l.above) <= s.resolution+l.usual
		if l.zeros++; s.remaining > 0 || l.zeros >= convinced && !last {
			s.reset = -1 // a constant, or cut off: it tells nothing of when a window ends
			s.soon = l.down > 0 && !l.above.IsZero()
			if s.clock && s.grain < p.Window { // save that there is no leap to the next, if that is near
				l.named = latest(l.named, s.instant.Add(s.grain))
			}
		}
	} else if s.reset > 0 {
		l.zeros, l.above = 0, now
	}
	if s.reset > 0 {
		l.unnamed = 0
	} else {
		l.unnamed++
	}
	switch {
	case s.refused:
	case s.reset > 0:
		l.timeless = 0
	default:
		l.timeless++
	}
	if s.reset >= 0 {
		l.grain, l.rounded = s.resolution, 0
		if s.clock { // the instant is rounded, whenever it is named
			l.grain, l.rounded = 0, s.resolution
		}
		l.noticeReset(now, start, c, p, *s)
		l.hearReset(now, start, p, *s)
	} else {
		l.noticeTurn(now, start, c, p, s.remaining)
	}
	return l.learnRounding(now, start, c, p, s)
}

// noticeReset notices that the window has turned before the reset that was
// taken for its end: more is left than can have been, and another reset is named,
// later by more than has passed since the last word. A bucket that refills
// names no such leaps.
func (l *ledger) noticeReset(now, start time.Time, c *charge, p *Policy, s statement) {
	named, earliest, last := l.named, start.Add(s.reset-s.resolution), now.Add(s.reset)
	more := s.remaining
	least := more - (l.sent - c.answered - c.n) // which may not be counted
	if s.clock {                                // by the origin's own clock, nothing is lost in between
		earliest, last, more = s.instant, s.instant, least
	}
	if s.remaining > 0 { // else a bucket names the next unit, not when it is full
		l.named = last
	}
	if !l.stated || l.elastic || more <= l.most || named.IsZero() || l.shape == shapeSliding { // of which learnShape knows better
		return
	}
	sudden := l.most + l.steadily(now, p) + max(p.Quota/4, 2)
	switch leap := earliest.Sub(named); {
	case l.shape == shapeReset && (l.grain >= p.Window || l.unending()): // whatever is named then, be the answer a late one
		if s.remaining < sudden || least <= l.most {
			return
		}
	case leap <= now.Sub(l.said), leap < p.Window/2:
		return
	case l.shape == shapeRefill:
		if least < sudden { // a new count begins of what has come back steadily
			return
		}
		l.shape, l.fillsUp, l.streak, l.counter = shapeReset, false, 0, counter{}
		l.doubted = true
	}
	l.shorten(now, l.begun, p)
	l.turned(start, c)
}

// noticeTurn notices that a window has turned of which no reset is named: far more is left
// all at once than can have come back steadily, or unit by unit, or all of it.
func (l *ledger) noticeTurn(now, start time.Time, c *charge, p *Policy, remaining int64) {
	if !l.stated || l.elastic || (l.othersSeen || l.inferred > 0) && l.timeless < few || l.flows() || p.Window <= 0 || p.Quota <= 0 || remaining < 0 ||
		!l.opens.IsZero() || now.Before(l.adopted) {
		return
	}
	open := l.sent - c.answered // the answer counts them or not
	least := min(remaining, p.Quota) - (open - c.n)
	unused := p.Quota - l.own.between(now.Add(-p.Window), start) - c.n
	far := p.Quota / 4
	if remaining+open >= p.Quota { // nothing that was answered before c went is counted any more
		far = min(far, 2)
	}
	if least-l.most-l.steadily(now, p) < far || least <= unused {
		return
	}
	l.shape = shapeReset
	l.shorten(now, l.begunSoonest(), p)
	l.turned(start, c)
}

// begunSoonest is when the present window began at the earliest, where no reset is named: by the clock that may have been as soon as the one
// before was used up, if what went first in it had waited for it, and nobody else is seen to use it.
func (l *ledger) begunSoonest() time.Time {
	waited := !l.stopped.After(l.begun) && l.begun.Sub(l.stopped) <= 2*l.usual
	if waited && !l.since.IsZero() && !l.byUse && !l.inCompany() {
		return l.since
	}
	return l.begun
}

// steadily is how many units have come back since the last word, where they do so as in a bucket, or of two counts.
func (l *ledger) steadily(now time.Time, p *Policy) int64 {
	if l.twoCounts() {
		return int64(l.comes(l.said.Add(-l.onTheWay()), now, p))
	}
	since := now.Sub(l.said.Add(-l.onTheWay()))
	return int64(since.Seconds() * float64(p.Quota) / p.Window.Seconds())
}

// turned begins the epoch that the answer to c, sent at start, is the first word of. Nothing starts
// before the instant that an answer named where nothing was left, whatever this one says.
func (l *ledger) turned(start time.Time, c *charge) {
	l.gains = 0
	l.last = latest(l.last, start)
	named, closed := !l.opens.IsZero(), l.closed
	l.begin(true, l.sent-c.answered)
	if named {
		l.closed = closed
	}
	c.epoch = l.epoch
}

// hearSilence takes in an accepted answer that says nothing. Where neither a window nor a reset
// is known, and all that was said to be left is used up, more has come back.
func (l *ledger) hearSilence(now, start time.Time, c *charge, p *Policy) {
	l.measureTrip(now, start)
	if l.stated && l.left < 0 && l.own.inFlight == 0 && c.epoch == l.epoch && p.Window == 0 && l.until().IsZero() {
		l.begin(true, 0)
		l.renewed = true
	}
}

// shorten takes a window that was inferred to be no longer than from the first
// word of it to the one that shows that it has turned, where the reset named may have been
// rounded up. One whose ends are known may have begun before that word.
func (l *ledger) shorten(now, since time.Time, p *Policy) {
	most := now.Sub(since) + 2*l.quickest
	least := max(p.Window-l.inferred, 0)
	if l.bounded || most >= p.Window || most <= least {
		return
	}
	most = roundest(max(least, 1), most) // as most are
	p.Window, l.inferred = most, max(most-least, 1)
}

// hearReset narrows down when the reset is. An origin may have rounded it up
// or down by s.resolution and have stamped it at any time since start; of
// several answers about one reset the earliest instant named stands. It is
// taken to round up until it is caught rounding down.
func (l *ledger) hearReset(now, start time.Time, p *Policy, s statement) {
	named := now.Add(s.reset + l.later(now, p, &s))
	earliest := start.Add(s.reset - s.resolution)
	if end, ok := l.endsBy(now, p); ok && !end.Before(earliest) {
		named = soonest(named, end)
	}
	if l.opens.IsZero() || earliest.After(l.opens) || named.Before(l.earliest) { // another reset
		l.opens, l.earliest = named, earliest
		return
	}
	l.opens, l.earliest = soonest(l.opens, named), latest(l.earliest, earliest)
}

// endsBy returns the instant by which a window ends whose first answer was silent: no later than its
// length after that.
func (l *ledger) endsBy(now time.Time, p *Policy) (time.Time, bool) {
	begun := now
	if l.stated {
		begun = l.begun
	}
	silent := !l.opened.IsZero() && l.opened.Before(begun)
	return l.opened.Add(p.Window), silent && l.shape == shapeReset && !l.elastic && l.inferred == 0 && p.Window > 0
}

// stale reports whether an answer belongs to an epoch that is over: it was
// sent in one, and the reset it names is not clearly a later one.
func (l *ledger) stale(start time.Time, c *charge, s statement) bool {
	if c.epoch == l.epoch || l.flows() {
		return false
	}
	return s.reset <= 0 || !start.Add(s.reset-s.resolution).After(l.last)
}
