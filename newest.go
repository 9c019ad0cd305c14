package heed

import "time"

// newest is what answers in a row said that name a reset a window from now.
type newest struct {
	count  int
	since  time.Time     // when the first of them came …
	left   int64         // … what it said is left …
	named  time.Time     // … and the instant it named
	at     time.Time     // when the last of them came
	window time.Duration // as it was known to all of them
	always bool          // it was said for longer than rounding can hide, and says nothing …
	whole  bool          // … for all of a window came back at once though it had been
}

// learnNewest notices that the reset named is always a window from now, while
// less and less is left: it is when the newest unit comes back, and each does so by
// itself; or where all of them were seen to come back at once, it is named whatever is left of the window.
func (l *ledger) learnNewest(now, start time.Time, p *Policy, s *statement) {
	n := &l.newest
	named, least, hidden := now.Add(s.reset), start.Add(s.reset), s.resolution
	if s.clock { // by the origin's own clock, what it is rounded to is all that can hide
		named, least, hidden = s.instant, s.instant, s.grain
	}
	if n.whole && l.stated && !start.Before(l.begun.Add(p.Window)) { // no more is back by then
		*n = newest{}
	}
	up, down := s.fills(p)
	fills := (up || down) && (n.count < convinced || n.left <= p.Quota/2)
	switch {
	case l.flows() || l.elastic || s.remaining <= 0 || s.reset < 0 || p.Window <= 3*s.resolution || fills: // says nothing of it
		return
	case (s.reset - p.Window).Abs() > s.resolution: // nor does the next that is a window away, beside this one
		*n = newest{}
		return
	case p.Window != n.window, s.remaining >= n.left, now.Sub(n.at) > p.Window/4:
		*n = newest{window: p.Window, left: s.remaining, since: now, named: named, whole: n.whole}
	}
	n.count, n.at = n.count+1, now
	moved := min(now.Sub(n.since), least.Sub(n.named))
	switch far := moved > hidden+hidden/4; { // more than rounding can hide
	case n.count <= convinced || !far:
	case l.shape == shapeReset && n.whole:
		n.always = true
	default:
		l.shape, l.slides, l.atNewest, l.returns = shapeSliding, now, true, false
	}
}

// unending reports whether the reset named of a window is as far away however long ago that began. It says nothing then
// of when that ends: no later than its length after its first answer.
func (l *ledger) unending() bool {
	return l.newest.always && l.shape == shapeReset && !l.elastic && l.inferred == 0
}

// presumed reports whether units are taken to come back one by one for no more than
// the resets named, and none was seen to yet.
func (l *ledger) presumed() bool { return l.shape == shapeSliding && l.atNewest && !l.returns }

// told reports whether the latest answer said what is left.
func (l *ledger) told() bool { return l.sent-l.saidOf <= l.own.inFlight }

// toBeSure is how many units have to come back to be sure that they do, where that is presumed: when each does
// is known to a hundredth of the window.
func toBeSure(p *Policy) int64 { return max(2, p.Quota/20) }

// learnElastic finds out whether units whose newest one's return is named do come
// back one by one: none has while they could have where every request puts off
// the return of them all.
func (l *ledger) learnElastic(start time.Time, p *Policy, c *charge, s *statement, r, least int64) {
	switch {
	case l.elastic && s.remaining > 0 && s.reset >= 0 && s.reset < p.Window-2*s.resolution:
		l.shape, l.elastic = shapeUnknown, false // this one did not put it off
	case !l.presumed() || !l.stated || c.sent < l.saidOf:
	case least > l.most && start.Before(l.own.rest(p.Window)):
		l.returns = true
	case r+c.used+l.sent-c.sent+l.foreign+toBeSure(p) < p.Quota:
		l.shape, l.atNewest, l.elastic = shapeReset, false, true
	}
}
