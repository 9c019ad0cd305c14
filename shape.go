package heed

import (
	"math"
	"time"
)

// A shape is how a quota comes back.
type shape int

const (
	shapeUnknown shape = iota
	shapeReset         // all at once
	shapeSliding       // every unit one window after it was taken
	shapeRefill        // steadily
)

// flows reports whether units come back one by one, so that no reset has to be
// planned for.
func (l *ledger) flows() bool { return l.shape == shapeSliding || l.shape == shapeRefill }

// convinced is how many answers have to speak for a shape other than shapeReset.
const convinced = 3

// longKnown is how many windows a quota must have slid for that not to have been chance.
const longKnown = 4

// trust is the share of a steady refill that is counted on between answers.
const trust = 0.9

// fills reports whether the reset named can be when a bucket that refills steadily
// would be full, rounded up or down: it says nothing then of when a window ends.
func (s *statement) fills(p *Policy) (up, down bool) {
	if s.remaining <= 0 || s.reset < 0 || p.Quota <= 0 {
		return false, false
	}
	unit := p.Window / time.Duration(p.Quota)
	full := time.Duration(float64(p.Window) * float64(p.Quota-s.remaining) / float64(p.Quota)) // or up to a unit sooner
	more := s.reset - full
	return more >= -unit && more <= s.resolution, more >= -s.resolution-unit && more <= 0
}

// learnFill notices that resets move with what is left as they do in a bucket. A
// window's resets fit that only where they cross it, and not all rounded alike.
func (l *ledger) learnFill(p *Policy, s *statement) {
	up, down := s.fills(p)
	if l.streak > 0 {
		up, down = up && l.fitsUp, down && l.fitsDown
	}
	switch {
	case s.remaining <= 0 || s.reset < 0 || l.inferred > 0: // says nothing of it
		return
	case !up && !down:
		l.streak = 0
		return
	case l.streak == 0:
		l.lowest, l.highest = s.remaining, s.remaining
	}
	l.streak, l.fitsUp, l.fitsDown = l.streak+1, up, down
	l.lowest, l.highest = min(l.lowest, s.remaining), max(l.highest, s.remaining)
	moved := time.Duration(float64(p.Window) * float64(l.highest-l.lowest) / float64(p.Quota))
	if l.streak >= convinced && moved >= p.Window/4 && moved > 2*s.resolution+s.resolution/4 { // more than rounding can hide
		l.shape, l.fillsUp = shapeRefill, true
	}
}

// learnNewest notices that the reset named is always a window from now, while
// less and less is left: it is when the newest unit comes back, and each does so by
// itself.
func (l *ledger) learnNewest(now time.Time, p *Policy, s *statement) {
	n := &l.newest
	named, hidden := now.Add(s.reset), s.resolution
	if s.clock { // by the origin's own clock, what it is rounded to is all that can hide
		named, hidden = s.instant, s.grain
	}
	up, down := s.fills(p)
	fills := (up || down) && (n.count < convinced || n.left <= p.Quota/2)
	switch {
	case l.flows() || l.elastic || s.remaining <= 0 || s.reset < 0 || p.Window <= 3*s.resolution || fills: // says nothing of it
		return
	case (s.reset - p.Window).Abs() > s.resolution, p.Window != n.window, s.remaining >= n.left, now.Sub(n.at) > p.Window/4:
		*n = newest{window: p.Window, left: s.remaining, since: now, named: named}
	}
	n.count, n.at = n.count+1, now
	if moved := min(now.Sub(n.since), named.Sub(n.named)); n.count > convinced && moved > hidden+hidden/4 { // more than rounding can hide
		l.shape, l.slides, l.atNewest, l.returns = shapeSliding, now, true, false
	}
}

// presumed reports whether units are taken to come back one by one for no more than
// the resets named, and none was seen to yet.
func (l *ledger) presumed() bool { return l.shape == shapeSliding && l.atNewest && !l.returns }

// told reports whether the latest answer said what is left.
func (l *ledger) told() bool { return l.sent-l.saidOf <= l.own.inFlight }

// doubt is how many units have to come back for that to be sure.
func (l *ledger) doubt(p *Policy) int64 {
	if !l.presumed() {
		return 0
	}
	return max(2, p.Quota/20)
}

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
	case r+c.used+l.sent-c.sent+l.foreign+l.doubt(p) < p.Quota:
		l.shape, l.atNewest, l.elastic = shapeReset, false, true
	}
}

// doubtReset takes in that less than half of a quota was back after a reset, of one that
// was seen to come back all at once: then how it does is found out anew. Where
// others use it, they may have been first.
func (l *ledger) doubtReset() {
	if l.shape == shapeReset && !l.elastic && !l.piecemeal && !l.othersSeen {
		l.shape, l.fits = shapeUnknown, 0
	}
}

// newest is what answers in a row said that name a reset a window from now.
type newest struct {
	count  int
	since  time.Time     // when the first of them came …
	left   int64         // … what it said is left …
	named  time.Time     // … and the instant it named
	at     time.Time     // when the last of them came
	window time.Duration // as it was known to all of them
}

// learnShape finds out how the quota comes back, from what the answer to c
// says is left, and how much of a sliding window others use.
func (l *ledger) learnShape(now, start time.Time, c *charge, p *Policy, r int64, refused bool) {
	if l.shape == shapeReset || l.shape == shapeRefill || p.Window <= 0 || p.Quota <= 0 || refused {
		return
	}
	// If the window slides, what was answered before c went, and less than a
	// window ago for certain, is counted in what c's answer says …
	counted := l.own.between(now.Add(l.inferred-p.Window), start)
	if r > p.Quota-counted-c.n {
		if l.shape == shapeSliding && now.Sub(l.slides) > longKnown*p.Window { // it may still, and the origin have begun anew
			l.shape = shapeUnknown
			l.own.forget()
		} else {
			l.shape = shapeReset
		}
		l.fits, l.foreign = 0, 0
		return
	}
	// … and no more of this process than was in use, and went since.
	used := c.used + l.sent - c.sent
	if seen := max(p.Quota-used-r, 0); seen >= l.foreign {
		l.foreign = seen
	} else {
		l.foreign -= (l.foreign - seen + 7) / 8 // it is a lower bound: do not forget it at once
	}
	// Only what went before the last reset speaks for sliding: a reset would have
	// brought it back.
	before := l.own.between(now.Add(l.inferred-p.Window), l.last)
	if c.epoch == 0 || before < 2 || before < p.Quota/10 {
		return
	}
	if l.fits++; l.fits >= convinced {
		l.shape, l.slides = shapeSliding, now
	}
}

// learnRefill notices that more is left than can have been left of what was
// said before, though no reset has passed. So it is in a sliding window too, but
// that has what this process has not used of it within a window.
func (l *ledger) learnRefill(now time.Time, p *Policy, r, least int64) {
	if least <= l.most || p.Window <= 0 || p.Quota <= 0 || l.flows() ||
		l.shape == shapeUnknown && r+l.own.used(now, p.Window) >= p.Quota/2 {
		return
	}
	if l.gains++; l.gains >= convinced {
		l.shape = shapeRefill
	}
}

// refill is how many units a second come back for certain where they come
// back steadily: most of what came back lately, or of the policy's own rate where
// nothing has been heard for a window.
func (l *ledger) refill(now time.Time, p *Policy) float64 {
	r := float64(p.Quota) / p.Window.Seconds()
	if l.regained > 0 && now.Sub(l.said) < p.Window {
		r = min(r, l.regained)
	}
	return trust * r
}

// measureRefill follows how fast units come back: what is left more than it
// was, and what was used meanwhile, over a tenth of a window.
func (l *ledger) measureRefill(now time.Time, p *Policy, r int64) {
	d := now.Sub(l.markedAt)
	if d < p.Window/10 {
		return
	}
	used := l.answered - l.markedUse
	if got := float64(r-l.markedLeft+used) / d.Seconds(); d < p.Window && got > 0 {
		if l.regained == 0 {
			l.regained = got
		}
		l.regained += (got - l.regained) / 4
	}
	l.markedAt, l.markedLeft, l.markedUse = now, r, l.answered
}

// onTheWay is how much later than the origin said what is left the next request
// arrives there, at least, when it goes as soon as that is heard: the answer was
// on its way back, the request will be on its way there.
func (l *ledger) onTheWay() time.Duration {
	if l.othersSeen {
		return 0
	}
	return l.quickest
}

// refilled is what is left at an instant where units come back steadily.
func (l *ledger) refilled(at time.Time, p *Policy) float64 {
	return float64(l.left) + l.part + at.Sub(l.said).Seconds()*l.refill(at, p)
}

// learnOrder notices whether answers come in the order of their requests: then
// the origin has had these in that order as well.
func (l *ledger) learnOrder(c *charge) {
	if l.answered == c.sent {
		l.ordered++
	} else {
		l.ordered = 0
	}
}

// hearRefill moves what is taken to be left, with what has come back since the
// last word, to where it is between the least and the most that the answer to c
// allows.
func (l *ledger) hearRefill(now time.Time, p *Policy, c *charge, r, least int64) {
	l.measureRefill(now, p, r)
	l.most = max(r-(l.sent-c.sent), least)
	left := min(max(l.refilled(now, p), float64(least)), float64(l.most))
	whole := math.Floor(left)
	l.left, l.part = int64(whole), left-whole
}
