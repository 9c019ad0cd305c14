package heed

import (
	"math"
	"time"
)

// company is what others were seen to use of a quota.
type company struct {
	others     float64   // units a second that they used lately …
	appetite   float64   // … as a multiple of what would use up in time what is left
	othersSeen bool      // they use a share that matters …
	othersMet  bool      // … or did, and it has not shown since that nobody does
	foreign    int64     // units others use …
	lessened   time.Time // … which were taken to be fewer than before last then …
	theirs     theirUse  // … and of a window that is proven to slide, with when each comes back
	solitude   solitude
}

// theirUse is a usage of which the oldest part is spread over a window only once somebody asks: most
// origins are never found to slide.
type theirUse struct {
	usage
	before int64     // units of which it is not known when they were taken, only that it was in the window …
	until  time.Time // … to this instant; 0: none that are not spread yet
}

// evenly is in how many pieces others are taken to have taken what they had before the first word.
const evenly = 20

// spread is the usage, with all of it spread.
func (t *theirUse) spread(p *Policy) *usage {
	n := t.before
	t.before = 0
	t.take(n)
	for pieces := int64(evenly); n > 0 && pieces > 0; pieces-- {
		at, piece := t.until.Add(-p.Window/evenly*time.Duration(pieces-1)), n/pieces
		t.done(at, at, 0, piece, p.Quota, p.Window)
		n -= piece
	}
	return &t.usage
}

// othersMatter is the share of a quota below which what others use of it is
// not worth making way for.
const othersMatter = 0.02

// shareable is the quota from which on one unit that is left over hardly matters.
const shareable = 20

// noticeOthers notices that less is left than this process can have left: others
// use the quota too. How much is followed over half a window.
func (l *ledger) noticeOthers(now time.Time, p *Policy, c *charge, r int64, refused bool) {
	d := now.Sub(l.said)
	if c.sent < l.saidOf || d <= 0 || now.Before(l.adopted) { // nobody knows what the first word counted
		return
	}
	if l.shape == shapeSliding || l.twoCounts() {
		l.othersSeen = float64(l.foreign) > float64(p.Quota)*othersMatter
		return
	}
	span := p.Window / 2
	if span <= 0 {
		span = defaultMinBackoff
	}
	left := l.left
	if exact, known := l.exactly(c, p, r); known && l.exact {
		r = exact
	}
	if refused && l.shape == shapeRefill { // what came back for it somebody else has
		left = int64(l.refilled(now, p)) + l.sent - c.sent + c.n
	}
	seen := float64(max(left-r-l.noise(c, p), 0)) / d.Seconds()
	weight := -math.Expm1(-d.Seconds() / span.Seconds())
	l.others += (seen - l.others) * weight
	if end := l.ends(p); end.After(now) && l.left > 0 {
		l.appetite += (seen*end.Sub(l.said).Seconds()/float64(l.left) - l.appetite) * weight
	}
	switch matter := float64(p.Quota)*othersMatter <= l.others*2*span.Seconds(); {
	case l.taken(p), matter && seen > 0:
		l.othersSeen = true
	case !matter:
		l.othersSeen = false
	}
}

// remember notices whether others were met: those who only come now and then are not seen between.
func (c *company) remember() {
	switch {
	case c.othersSeen:
		c.othersMet, c.solitude = true, solitude{}
	case c.solitude.alone >= solitary:
		c.othersMet = false
	}
}

// inCompany reports whether others use the quota, or did, and it has not shown since that nobody does.
func (c *company) inCompany() bool { return c.othersSeen || c.othersMet }

// noise is by how much what is said can differ from what was reckoned with though
// nobody else uses the quota: what a body costs is an estimate until it is over.
func (l *ledger) noise(c *charge, p *Policy) int64 {
	if p.Unit == UnitContentBytes {
		return max(c.n, l.own.inFlight)
	}
	return 0
}

// unread is how much of its own request an answer may not have counted: what a
// body holds is known when it ends.
func (l *ledger) unread(c *charge, p *Policy) int64 {
	if p.Unit == UnitContentBytes {
		return c.n
	}
	return 0
}

// leavesOne reports whether a unit of a window that others use, too, is left over, lest several go for it at
// once. Of a smaller quota than shareable it is dear, and left only where others use a third of all that
// there is: who takes that much goes for the last one, too, in one window after the other.
func (l *ledger) leavesOne(p *Policy) bool {
	return p.Quota >= shareable || p.Quota >= few && l.others >= p.rate()/3
}

// shared returns what is left of a window that others use too when the next request
// arrives: less than when the answer was given, a round trip before that at least, for they have
// gone on since, the more the more was left. Where they are after all they can get, the
// last unit is the one that several go for.
func (l *ledger) shared(now time.Time, p *Policy) int64 {
	left := float64(l.left)
	if end := l.ends(p); left > 0 && end.After(now) {
		left *= math.Pow(end.Sub(now).Seconds()/(end.Sub(l.said)+l.ahead).Seconds(), l.appetite)
	}
	if l.appetite < 0.5 { // they take no more than they want
		return int64(left)
	}
	return int64(math.Round(left)) - 1
}

// seen returns how many units are left as the origin's latest word and this
// process's own use since tell.
func (l *ledger) seen(now time.Time, p *Policy) float64 {
	if l.edged() {
		return l.unused(now, p)
	}
	if l.shape == shapeSliding && now.Sub(l.said) < p.Window {
		return float64(p.Quota - l.foreignNow(now, p) - l.own.used(now, p.Window))
	}
	if l.othersSeen && l.counted(now, p) { // what else comes back the others use
		k := &l.counter
		return float64(l.left) + l.part + k.own*now.Sub(k.of).Seconds()/p.Window.Seconds()
	}
	return float64(l.room(now, p))
}

// reserve is how many units of a sliding window are kept for what others take
// between an answer and the next arrival, and, one for each quarter of the quota that
// they use, for several of them going at the same moment. Who uses less than a quarter
// keeps so much less: it is for the others to make room.
func (l *ledger) reserve(now time.Time, p *Policy) int64 {
	quota, foreign := float64(p.Quota), float64(l.foreignNow(now, p))
	if foreign < othersMatter*quota {
		return 0
	}
	mine := min(4*float64(l.own.used(now, p.Window))/quota, 1)
	return int64(math.Round(max(1, 4*foreign/quota*mine))) + int64(l.meanwhile(now, p))
}

// meanwhile is how many more units others take in two round trips than come back to them. Mostly
// as many do as they take; by chance it differs, by the root of that.
func (l *ledger) meanwhile(now time.Time, p *Policy) float64 {
	taken := float64(l.foreignNow(now, p)) * 2 * l.quickest.Seconds() / p.Window.Seconds()
	return min(taken, math.Sqrt(taken))
}

// berth is below how many units left one who shares a quota of which two counts are kept
// slows down: three or a fortieth of it, or four for each quarter that others use, and what they
// take in two round trips. What is left in the end is lost, and so it is little; but as many
// processes as there are must find some of it.
func (l *ledger) berth(now time.Time, p *Policy) float64 {
	return max(3, float64(p.Quota)/40, 4*l.quarters(now, p)) + l.meanwhile(now, p)
}

// foreignNow is how much others are taken to use where units come back one by one: nothing
// that was seen a window ago is in use still.
func (l *ledger) foreignNow(now time.Time, p *Policy) int64 {
	if now.Sub(l.said) >= p.Window {
		return 0
	}
	switch {
	case l.shape != shapeSliding, l.edged():
		return l.foreign
	case l.apart.proven():
		return l.theirs.spread(p).used(now, p.Window)
	}
	return min(l.theirs.spread(p).used(now, p.Window), l.foreign) // of two counts it may be this process that seems to be others
}

// hearTheirs takes in that others use so many units of a sliding window, at least and at most.
// What they took comes back a window after it was seen, and so later than it does: what comes
// back to them in a round trip they have taken again by then, as far as is known. What they had before
// the first word for a window they took evenly within it: who takes it for newer waits for all of
// it to come back at once.
func (l *ledger) hearTheirs(now, start time.Time, least, most int64, p *Policy) {
	most = max(most, least, 0)
	theirs := l.theirs.spread(p)
	switch n := theirs.used(now, p.Window); {
	case n > most:
		theirs.drop(n - most)
	case n >= least:
	case now.Sub(l.said) < p.Window:
		theirs.take(least - n)
		theirs.done(now, start, 0, least-n, p.Quota, p.Window)
	default:
		l.theirs.before, l.theirs.until = least-n, now
	}
}

// backToAny returns when n units of a sliding window are back, no matter whose they were: one more where
// others of this process wait behind. Who waited for its own alone would find taken what had
// come back before.
func (l *ledger) backToAny(now time.Time, n int64, p *Policy, pressed bool) (time.Time, bool) {
	if pressed {
		n++
	}
	return l.own.backWith(l.theirs.spread(p), now, n, p.Window)
}

// hearForeign takes in how much of a quota others are seen to use, at least, by the answer to a request sent at start:
// less than was seen before is not believed at once, and no more of it for many answers to what went together, of which
// each may have counted none of the others.
func (c *company) hearForeign(now, start time.Time, seen int64) {
	switch seen = max(seen, 0); {
	case seen >= c.foreign:
		c.foreign = seen
	case !start.Before(c.lessened):
		c.foreign -= (c.foreign - seen + 7) / 8
		c.lessened = now
	}
}

// forgetOthers forgets what was taken for use by others.
func (c *company) forgetOthers() {
	c.others, c.appetite, c.othersSeen, c.othersMet, c.foreign, c.lessened, c.theirs = 0, 0, false, false, 0, time.Time{}, theirUse{}
}

// quarters is how many quarters of a quota that comes back one by one others use.
func (l *ledger) quarters(now time.Time, p *Policy) float64 {
	return 4 * float64(l.foreignNow(now, p)) / float64(p.Quota)
}

// overrun is how many units others may take of a sliding window in two round trips at the policy's
// own rate each, or a little more (surge), before they see that little is left: one for each quarter that they use, save the
// first, which may be one that paces nothing.
func (l *ledger) overrun(quarters float64, p *Policy) float64 {
	return 2 * max(quarters-1, 0) * p.rate() * l.quickest.Seconds()
}

// surge is how many times as fast as the policy's own rate one goes at most where others use a sliding window: as fast,
// and by up to half more where they use more than a quarter of it. What went in a bunch comes back in one. Where it is taken no
// faster than it comes it goes later in each window, by what is left at its beginning, and is spread over more of it. One
// that paces nothing uses less, and would find nothing left. Who is to go at less than the rate does not either.
func surge(quarters, velocity float64) float64 {
	if velocity < 1 {
		return 1
	}
	return 1 + min(max(quarters-1, 0), 1)/2
}
