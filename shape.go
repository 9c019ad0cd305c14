package heed

import "time"

// A shape is how a quota comes back.
type shape int

const (
	shapeUnknown shape = iota
	shapeReset         // all at once
	shapeSliding       // every unit one window after it was taken
	shapeRefill        // steadily
)

// A comeback is how a quota was seen to come back.
type comeback struct {
	shape     shape
	fits      int       // answers in a row that speak for a sliding window …
	fitted    time.Time // … the last of which came then …
	slides    time.Time // … and since when it is taken for one
	atNewest  bool      // resets are when the newest unit comes back …
	returns   bool      // … and units were seen to come back before that
	beyond    int       // resets that were named far later than the next unit of a sliding window comes back
	elastic   bool      // every request puts the reset off
	piecemeal bool      // after a stop the quota was not whole again, though the reset had passed
	partial   bool      // nor was most of it back when the first answer of this epoch came
	began     int64     // units that the latest epoch that an answer told of had to begin with; 0: none did
	adopted   time.Time // until then units are in use of which nobody knows when they went, and perhaps not how many
}

// flows reports whether units come back one by one, so that no reset has to be
// planned for.
func (c *comeback) flows() bool { return c.shape == shapeSliding || c.shape == shapeRefill }

// convinced is how many answers have to speak for a shape other than shapeReset.
const convinced = 3

// longKnown is how many windows a quota must have slid for that not to have been chance.
const longKnown = 4

// learnBack finds out from the first answer of an epoch, to c, which says that r are left,
// how much of the quota came back at the reset.
func (l *ledger) learnBack(now time.Time, c *charge, p *Policy, s *statement, r int64) {
	back := r + l.inEpoch - (l.sent - c.sent)
	if l.epoch > 0 { // the first may have begun long before
		l.began = max(back, 1)
	}
	l.partial = l.epoch > 0 && back < p.Quota/2
	if l.fresh && min(l.spent, back) >= p.Quota*9/10 && s.reset > p.Window*3/4 && now.Sub(l.said) < p.Window*3/4 {
		l.piecemeal = false // all that was used is back at once
	}
	if l.partial && l.fresh && !s.refused && !now.Before(l.adopted) && (r < p.Quota*9/10-c.used-(l.sent-c.sent) || r == 0 && s.reset > p.Window/2) {
		l.piecemeal = true // a sliding window would have more of it back, or soon
	}
	if l.partial && (l.awaits(c) && !s.refused || l.lapsed) {
		l.doubtReset()
	}
}

// doubtReset takes in that less than half of a quota was back after a reset, of one that
// was seen to come back all at once: then how it does is found out anew. Where
// others use it, they may have been first.
func (l *ledger) doubtReset() {
	if l.shape == shapeReset && !l.piecemeal && !l.othersSeen {
		l.shape, l.elastic, l.fits = shapeUnknown, false, 0
	}
}

// learnShape finds out how the quota comes back, from what the answer to c
// says is left, and how much of a sliding window others use.
func (l *ledger) learnShape(now, start time.Time, c *charge, p *Policy, r int64, refused bool) {
	if refused || l.edged() || l.shape == shapeReset || l.shape == shapeRefill || p.Window <= 0 || p.Quota <= 0 || now.Before(l.adopted) {
		return
	}
	// If the window slides, what was answered before c went, and less than a
	// window ago for certain, is counted in what c's answer says …
	counted, unsure := l.own.counts(now.Add(l.inferred-p.Window), start)
	if r > p.Quota-counted-c.n {
		if l.shape == shapeSliding && now.Sub(l.slides) > longKnown*p.Window { // it may still, and the origin have begun anew
			l.shape = shapeUnknown
			l.own.forget()
		} else {
			if l.presumed() && l.inferred == 0 { // it is a window that has turned
				l.begun, l.opened, l.newest.whole = now, now, true
			}
			l.shape = shapeReset
		}
		l.fits, l.beyond, l.apart, l.foreign, l.theirs = 0, 0, resetsApart{}, 0, theirUse{}
		return
	}
	if l.shape == shapeSliding {
		if !l.counter.likely() {
			l.own.deny(now.Add(l.inferred-p.Window), start, unsure-(p.Quota-r-c.n-counted)) // so many of them are in no count
		}
		l.shortenSliding(now, start, p, p.Quota-r-c.n)
	}
	// … and no more of this process than was in use, and what went since and may have
	// been there first.
	used := c.used
	if !l.orderly(c) {
		used += l.sent - c.sent
	}
	least, most := p.Quota-used-r, p.Quota-counted-c.n-r
	l.hearForeign(now, start, least)
	l.hearTheirs(now, start, least, most, p)
	// Only what went before the last reset speaks for sliding: a reset would have
	// brought it back.
	last, next := l.last, l.fitted
	if l.lasting(now, p) {
		last, next = now.Add(-p.Window/2), next.Add(p.Window/2)
	}
	before := l.own.between(now.Add(l.inferred-p.Window), last)
	if c.epoch == 0 || l.piecemeal && !l.othersSeen || before < 2 || before < p.Quota/10 {
		return
	}
	if start.Before(next) { // answers to what went together all tell the same
		return
	}
	l.fitted = now
	if l.fits++; l.fits >= convinced {
		l.shape, l.slides = shapeSliding, now
	}
}

// lasting reports whether nobody names a reset, and no turn was seen for so long, without a pause just now, that there must have been one:
// a window that does not slide would have given back, by the third of answers that are half a window apart, what was used before.
func (l *ledger) lasting(now time.Time, p *Policy) bool {
	alone := !l.inCompany() && l.foreign == 0
	return alone && l.stated && l.until().IsZero() && now.Sub(l.begun) > 2*p.Window && now.Sub(l.said) < p.Window/2
}

// learnBeyond notices that the resets named are far later than the next unit of a sliding window comes back. One that is
// named where nothing is left will be, too, and nothing goes before it, though units are back: it costs more than the
// unit that was left.
func (l *ledger) learnBeyond(now, start time.Time, p *Policy, s *statement) {
	if l.shape != shapeSliding || l.othersSeen || l.foreign > 0 || s.reset < 0 || l.beyond >= convinced {
		return
	}
	l.own.expire(now, p.Window)
	if at, ok := l.own.back(now, 1, p.Window); ok && start.Add(s.reset-s.resolution).After(at.Add(p.Window/10)) {
		l.beyond++
	}
}

// learnCounted takes in how much of what this process has in flight must have arrived for the answer to c to
// leave no more than r of what can be a sliding window: of what had been sent before c and was not in use any
// more, nothing can be counted in it. Answers may be on their way back for long.
func (l *ledger) learnCounted(now time.Time, c *charge, p *Policy, r int64, refused bool) {
	slides := l.shape == shapeSliding || l.shape == shapeUnknown
	coming := l.sent - c.sent - (p.Quota - r - c.used) // those that may still be on their way up
	if slides && !refused && !l.othersSeen && l.foreign == 0 && p.Unit != UnitContentBytes && coming >= 0 {
		l.own.areCounted(now, l.own.inFlight-coming, p.Window)
	}
}

// shortenSliding takes a sliding window that was inferred to be no longer than answers show,
// of which the latest, to a request sent at start, counted so many others: what this process
// used before them is no longer in it.
func (l *ledger) shortenSliding(now, start time.Time, p *Policy, others int64) {
	if l.inferred <= 1 || l.counter.likely() { // two counts look like a shorter window than it is
		return
	}
	if sent, known := l.own.beyond(start, others); known {
		by := max(min(p.Window-now.Sub(sent), l.inferred-1), 0)
		p.Window, l.inferred = p.Window-by, l.inferred-by
	}
}
