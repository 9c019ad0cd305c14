package heed

import "time"

// until returns the instant at which what is known of this epoch runs out;
// zero where nothing says when. The reset was named by an answer that was on its
// way back, and the request that goes next will be on its way there: both
// together take no less than the quickest round trip. Where an answer said that
// nothing is left, its own word counts.
func (l *ledger) until() time.Time {
	if l.opens.IsZero() {
		return l.closed
	}
	return latest(l.opens.Add(-l.ahead), l.closed)
}

// due returns when the window may turn, where that can be much sooner than at the
// instant named, because that was rounded up: a window that began with its first
// request does. Else it is until.
func (l *ledger) due(p *Policy) time.Time {
	until := l.until()
	if p.Window <= 0 || l.begun.IsZero() || l.rounded <= 2*l.quickest || l.rounded < p.Window/10 {
		return until
	}
	due := latest(l.begun.Add(p.Window), l.opens.Add(-l.rounded))
	if !l.said.Before(due) { // it did not
		return until
	}
	return soonest(until, due)
}

// turn begins a new epoch where the present one is over. It reports whether
// requests that go now need to be confirmed by answers first: after a stop,
// at the first resets, or where the quota is unknown.
func (l *ledger) turn(now time.Time, p *Policy) (probe bool) {
	until := l.until()
	if until.IsZero() && l.stated && !l.flows() && p.Window > 0 && now.Sub(l.said) >= p.Window {
		l.begin(false, 0) // no reset was named, but what was said then is over
		return false
	}
	if until.IsZero() || now.Before(until) {
		return false
	}
	trial := l.trustAgain()
	if l.flows() && (l.stated || l.shape == shapeSliding) { // nothing turns
		probe = l.shape == shapeRefill && !l.closed.IsZero()
		l.earliest, l.opens, l.closed = time.Time{}, time.Time{}, time.Time{}
		return probe
	}
	stopped := l.stated && l.left <= 0 || !l.closed.IsZero()
	l.compare(p)
	l.last = until
	l.begin(stopped, 0)
	return stopped || trial || p.Quota == 0 || l.epoch < 3 // the first resets may have been rounded down
}

// begin begins an epoch of which nothing has been said, and to which so many of
// the units sent may belong; fresh: its quota is presumed whole.
func (l *ledger) begin(fresh bool, sent int64) {
	l.epoch++
	l.spent = l.inEpoch
	l.fresh, l.stated, l.partial, l.left, l.part, l.inEpoch = fresh, false, false, 0, 0, sent
	l.earliest, l.opens, l.closed, l.begun = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

// awaits reports whether c went to see whether a quota that was used up is back, and
// no answer has said so.
func (l *ledger) awaits(c *charge) bool {
	return l.fresh && !l.stated && c.epoch == l.epoch && l.inEpoch <= c.n
}

// notYet takes in that it was not, at the reset that was named: that was rounded down,
// or more than one reset brings it back.
func (l *ledger) notYet() {
	l.piecemeal = l.piecemeal || l.down > 0
	l.roundsDown()
}

// roundsDown takes in that the origin was caught rounding a reset down. It is taken to
// do so for a number of resets, twice as many each time it is caught, up to a thousand: it may
// have been chance, or may change, and to find that out costs a refusal where it did not.
func (l *ledger) roundsDown() {
	l.down = downFor << l.caught
	l.caught = min(l.caught+1, 5)
}

const downFor = 32

// trustAgain counts a reset towards those for which the origin is taken to round down, and
// reports whether it was the last of them.
func (l *ledger) trustAgain() bool {
	if l.down == 0 {
		return false
	}
	l.down--
	return l.down == 0
}

// compare finds out whether a window begins with the first request in it: then
// each begins later than the one before and its length say, by a round trip at
// least. By the clock they only seem to, by less than what resets are rounded to.
func (l *ledger) compare(p *Policy) {
	if l.opens.IsZero() || l.inferred > 0 || p.Window <= 0 {
		return
	}
	if gap := l.opens.Sub(l.previous); l.anchor.IsZero() || gap > 3*p.Window/2 || gap < p.Window/2 {
		l.anchor, l.turns = l.opens, 0
	} else {
		l.turns++
	}
	l.previous = l.opens
	if l.opens.Sub(l.anchor) > l.turns*p.Window+l.grain+2*l.quickest {
		l.byUse = true
	}
}

// sparing reports whether the last unit of a window is better left: its answer
// would say that nothing is left, and the next request then begins the next window
// a round trip later than one that nothing holds.
func (l *ledger) sparing() bool { return l.byUse && l.ahead > 0 && !l.flows() }

// lastUnit returns when the last unit of an epoch is best sent while others
// wait behind it. Its answer will say that nothing is left, and no request
// may start before the reset it names, which is rounded to whole seconds: so
// it is sent when that rounding will cost nothing, a whole number of grains
// before the reset, or where it is too late for that not in this epoch. Where an
// instant is named, it is when that may have been rounded up from: the answer shows.
func (l *ledger) lastUnit(now time.Time, p *Policy) time.Time {
	reset := l.opens
	switch {
	case l.elastic: // keeping it would keep the others, too
		return now
	case l.partial && !l.flows(): // more may come back before the reset
		return latest(now, soonest(l.said.Add(p.Window/10), reset))
	}
	if l.shape == shapeSliding {
		if at, ok := l.own.back(now, 1+l.doubt(p), p.Window); ok {
			reset = at
		}
	}
	switch {
	case l.sparing():
		return latest(l.until(), now)
	case l.shape == shapeSliding && (l.down > 0 || l.ahead > 0 || l.atNewest || l.rounded > 2*l.quickest): // it always costs
		return latest(reset, now)
	}
	if due := l.due(p); due.Before(l.until()) {
		return latest(due, now)
	}
	ahead := reset.Sub(now) - l.quickest
	if l.grain <= 0 || reset.Sub(now) <= 0 || p.Window > 0 && p.Quota*int64(l.grain) < int64(p.Window) {
		return now
	}
	late := l.grain - ahead%l.grain // since the latest such instant
	switch {
	case late <= l.grain/20 && ahead+late >= l.grain: // timers are never quite on time
		return now
	case ahead < l.grain:
		return reset
	}
	return now.Add(ahead % l.grain)
}

// hearWhen takes in when an answer says that there is more. It reports whether that
// shows that the present epoch was begun too soon.
func (l *ledger) hearWhen(now, start time.Time, c *charge, p *Policy, s *statement) (tooSoon bool) {
	if s.reset == 0 && s.resolution > 0 {
		if l.zeros++; s.remaining > 0 || l.zeros >= convinced {
			s.reset = -1 // a constant, or cut off: it tells nothing
		}
	} else if s.reset > 0 {
		l.zeros = 0
	}
	if s.reset >= 0 {
		l.grain, l.rounded = s.resolution, 0
		if s.clock { // the instant is rounded, whenever it is named
			l.grain, l.rounded = 0, s.resolution
		}
		l.noticeReset(now, start, c, p, *s)
		l.hearReset(now, start, *s)
	}
	if tooSoon = s.refused && l.turnedTooSoon(now, c, p, *s); tooSoon {
		l.roundsDown()
		l.opens = l.opens.Add(s.resolution)
	}
	return tooSoon
}

// noticeReset notices that the window has turned before the reset that was
// taken for its end: more is left than can have been, and another reset is named,
// later by more than has passed since the last word. A bucket that refills
// names no such leaps.
func (l *ledger) noticeReset(now, start time.Time, c *charge, p *Policy, s statement) {
	named, earliest, last := l.named, start.Add(s.reset-s.resolution), now.Add(s.reset)
	more := s.remaining
	if s.clock { // by the origin's own clock, nothing is lost in between
		earliest, last = s.instant, s.instant
		more -= l.sent - c.answered - c.n // which may not be counted
	}
	if s.remaining > 0 { // else a bucket names the next unit, not when it is full
		l.named = last
	}
	leap := earliest.Sub(named)
	if !l.stated || l.elastic || more <= l.most || named.IsZero() || leap <= now.Sub(l.said) || leap < p.Window/2 {
		return
	}
	switch l.shape {
	case shapeSliding:
		return // learnShape knows better
	case shapeRefill:
		steadily := now.Sub(l.said.Add(-l.onTheWay())).Seconds() * float64(p.Quota) / p.Window.Seconds()
		if s.remaining-l.most-int64(steadily) < p.Quota/4 { // a new count begins of what has come back steadily
			return
		}
		l.shape, l.fillsUp, l.streak = shapeReset, false, 0
	}
	l.gains = 0
	l.shorten(now, p, s.grain)
	l.last = latest(l.last, start)
	l.begin(true, l.sent-c.answered)
	c.epoch = l.epoch
}

// shorten takes a window that was inferred to be no longer than from the first
// word of it to the one that shows that it has turned, where the reset named may have been
// rounded up.
func (l *ledger) shorten(now time.Time, p *Policy, grain time.Duration) {
	most := now.Sub(l.begun) + 2*l.quickest
	least := max(p.Window-l.inferred, 0)
	if l.down > 0 || most >= p.Window || most <= least || most < grain {
		return
	}
	if whole := most.Truncate(time.Second); whole > least {
		most = whole
	}
	p.Window, l.inferred = most, most-least
}

// hearReset narrows down when the reset is. An origin may have rounded it up
// or down by s.resolution and have stamped it at any time since start; of
// several answers about one reset the earliest instant named stands. It is
// taken to round up until it is caught rounding down.
func (l *ledger) hearReset(now, start time.Time, s statement) {
	named := now.Add(s.reset)
	if l.down > 0 {
		named = named.Add(s.resolution)
	}
	earliest := start.Add(s.reset - s.resolution)
	switch {
	case l.opens.IsZero(), l.elastic && named.After(l.opens), earliest.After(l.opens), named.Before(l.earliest): // another reset
		l.opens, l.earliest = named, earliest
		return
	}
	if named.Before(l.opens) {
		l.opens = named
	}
	if earliest.After(l.earliest) {
		l.earliest = earliest
	}
}

// stale reports whether an answer belongs to an epoch that is over: it was
// sent in one, and the reset it names is not clearly a later one.
func (l *ledger) stale(start time.Time, c *charge, s statement) bool {
	if c.epoch == l.epoch || l.flows() {
		return false
	}
	if s.reset < 0 || l.last.IsZero() {
		return true
	}
	return !start.Add(s.reset - s.resolution).After(l.last)
}

// turnedTooSoon reports whether a refusal shows that the epoch was begun
// before the origin's window had turned: it still names the old reset.
func (l *ledger) turnedTooSoon(now time.Time, c *charge, p *Policy, s statement) bool {
	return l.down == 0 && s.resolution > 0 && s.reset >= 0 && c.epoch == l.epoch && !l.last.IsZero() &&
		now.Sub(l.last) < 2*s.resolution+p.Window/10 && now.Add(s.reset).Sub(l.last) < max(2*s.resolution, p.Window/2)
}
