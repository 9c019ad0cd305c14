package heed

import (
	"math"
	"time"
)

// trust is the share of a steady refill that is counted on between answers.
const trust = 0.9

// refilling is what speaks for a quota that comes back steadily, and how fast it does.
type refilling struct {
	gains      int       // answers that speak for it …
	doubted    bool      // … and yet all was back at once once they had
	streak     int       // statements in a row that fit a bucket that refills …
	fitsFrom   time.Time // … when the first of them came …
	fitsUp     bool      // … if resets are rounded up …
	fitsDown   bool      // … or down …
	lowest     int64     // … and the least and …
	highest    int64     // … the most they said is left …
	fillsFrom  time.Time // … and when the first instant is at the latest …
	fillsTo    time.Time // … and the last one at the earliest that they named
	fullBy     time.Time // if resets are when it is full, it has been since then, save for what went since
	ifUp       bounds    // how many seconds a window can last that was only inferred, if resets are rounded up …
	ifDown     bounds    // … or down
	fillsUp    bool      // resets are when a bucket is full
	part       float64   // of a unit that is left beside those in left
	regained   float64   // units a second that came back lately; 0: not measured
	markedAt   time.Time // when that was last reckoned …
	markedLeft int64     // … what was left then …
	markedUse  int64     // … and answered …
	markedOpen int64     // … and sent, but not answered
	seenFrom   time.Time // since when it is seen how much comes back at least …
	seenLeft   int64     // … what was left then …
	seenSent   int64     // … and sent
}

// ordering is whether answers come in the order of their requests.
type ordering struct {
	ordered   int       // answers in a row that did …
	heardFrom time.Time // … when the request of the latest of them went …
	heardLeft int64     // … what it said is left …
	heardAt   time.Time // … and when it came
	overtook  bool      // its request may have overtaken that of the answer before
	went      time.Time // when the latest request went …
	bunched   int64     // … and of the latest that went right behind another: sent, when it was
	exact     bool      // left is no estimate
}

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
// window's resets fit that only where they cross it, and not all rounded alike; nor do they name two
// ends of it that are farther apart than rounding can have them. Where others keep
// a bucket near empty they hardly move, but those of a window would not fit for as long as one.
func (l *ledger) learnFill(now, start time.Time, c *charge, p *Policy, s *statement) {
	if s.remaining <= 0 || s.reset < 0 { // says nothing of it
		return
	}
	up, down := l.full(start, c, p, s)
	l.fullBy = latest(l.fullBy, now.Add(s.reset))
	if l.streak > 0 {
		up, down = up && l.fitsUp, down && l.fitsDown
	}
	switch {
	case !up && !down:
		if l.streak >= convinced && l.fillsUp && l.gains < convinced && !l.twoCounts() { // that they fitted was chance
			l.shape, l.fillsUp = shapeUnknown, false
		}
		l.streak = 0
		return
	case l.streak == 0:
		l.fitsFrom, l.lowest, l.highest, l.fillsFrom, l.fillsTo = now, s.remaining, s.remaining, now.Add(s.reset), start.Add(s.reset)
	}
	l.streak, l.fitsUp, l.fitsDown = l.streak+1, up, down
	l.lowest, l.highest = min(l.lowest, s.remaining), max(l.highest, s.remaining)
	l.fillsFrom, l.fillsTo = soonest(l.fillsFrom, now.Add(s.reset)), latest(l.fillsTo, start.Add(s.reset))
	least, most, enough := p.Window, p.Window, convinced
	if l.inferred > 0 { // of a length that is not known more of them fit by chance
		least, most = l.lasts()
		enough *= 2
	}
	moved := time.Duration(float64(least) * float64(l.highest-l.lowest) / float64(p.Quota))
	hidden := 2*s.resolution + s.resolution/4 // by rounding, at most
	ends := l.fillsTo.Sub(l.fillsFrom) > s.resolution && least > hidden
	far := moved >= least/4 && (moved > hidden || ends)
	long := l.shape == shapeRefill && now.Sub(l.fitsFrom) > most && (l.inferred == 0 || least > hidden)
	if l.streak >= enough && (far || long) && most >= p.Window-l.inferred { // a bucket that is full sooner names no longer reset
		l.shape, l.fillsUp = shapeRefill, true
		if l.inferred > 0 {
			p.Window = roundest(least, most)
			l.inferred = max(p.Window-least, 1)
		}
	}
}

// full is fills, save that a window that was only inferred may be of any length that all answers of the streak fit: what
// is missing of a bucket and when it would be full tell how long it takes to fill.
func (l *ledger) full(start time.Time, c *charge, p *Policy, s *statement) (up, down bool) {
	if l.inferred == 0 {
		return s.fills(p)
	}
	if l.streak == 0 {
		l.ifUp, l.ifDown = bounds{0, math.Inf(1)}, bounds{0, math.Inf(1)}
	}
	missing := max(float64(p.Quota-s.remaining), 1) // or up to a unit less …
	partly := 1.0
	if s.remaining+c.n == p.Quota && c.answered+c.n == c.sent && start.After(l.fullBy) { // … save where it was full before
		partly = 0
	}
	fit := func(b *bounds, latest time.Duration) bool {
		least, most := (latest-s.resolution).Seconds()*float64(p.Quota)/missing, math.Inf(1)
		if missing > partly {
			most = latest.Seconds() * float64(p.Quota) / (missing - partly)
		}
		b.narrow(least, most)
		return b.least <= b.most
	}
	up, down = fit(&l.ifUp, s.reset), fit(&l.ifDown, s.reset+s.grain)
	return up, down
}

// filling is fills, save that where the window was only inferred the answer fits those before it, of which it is the latest.
func (l *ledger) filling(p *Policy, s *statement) (up, down bool) {
	if l.inferred == 0 {
		return s.fills(p)
	}
	return l.streak > 0 && l.fitsUp, l.streak > 0 && l.fitsDown
}

// lasts is between which lengths a window that was only inferred lies if it is a bucket's.
func (l *ledger) lasts() (least, most time.Duration) {
	b := bounds{math.Inf(1), 0}
	if l.fitsUp {
		b = l.ifUp
	}
	if l.fitsDown {
		b = bounds{min(b.least, l.ifDown.least), max(b.most, l.ifDown.most)}
	}
	return nanoseconds(b.least * 1e9), nanoseconds(b.most * 1e9)
}

// learnRefill notices that more is left than can have been left of what was
// said before: of what is known by now, where late answers count as well, and of what
// was when the request went, which no other order of arrivals explains. So it is in a
// sliding window too, but that has what this process has not used of it within a window. In a contest a window that was only inferred
// says nothing of how fast.
func (l *ledger) learnRefill(now time.Time, c *charge, p *Policy, r, least int64) {
	if least <= l.most || r+c.n-l.unread(c, p) <= c.said || p.Window <= 0 || p.Quota <= 0 || l.flows() || now.Before(l.adopted) || l.inferred > 0 && l.contest.is() {
		return
	}
	if l.doubted && (r <= c.said || c.epoch != l.epoch) { // it may have cost nothing
		return
	}
	if r+l.sent-min(l.saidOf, c.answered) >= p.Quota { // all is back but what may have gone since: a window turned unseen
		return
	}
	enough := p.Quota / 2
	if l.piecemeal && !l.othersSeen {
		enough = p.Quota * 9 / 10
	}
	if l.shape == shapeUnknown && r+l.own.used(now, p.Window) >= enough {
		return
	}
	if l.gains++; l.gains >= convinced {
		l.shape = shapeRefill
	}
}

// refill is how many units a second come back for certain where they come
// back steadily: most of what came back lately.
func (l *ledger) refill(p *Policy) float64 {
	r := p.rate()
	switch {
	case l.regained > 0:
		r = min(r, l.regained)
	case l.inferred > 0 && l.ever > 0: // its length says nothing of how many more than these come back in it
		r = min(r, float64(l.ever)/p.Window.Seconds())
	}
	return trust * r
}

// taken reports whether so much less comes back to this process than to all that others must
// use the rest. What they use of a bucket is not missed as long as more comes back. It is one
// for certain where resets are when it is full; what else seems to be one may come back slower.
func (l *ledger) taken(p *Policy) bool {
	return l.shape == shapeRefill && l.fillsUp && l.streak >= convinced && l.regained > 0 && l.regained < 0.75*p.rate()
}

// measureRefill follows how fast units come back: what is left more than it
// was, and what was used meanwhile, over a tenth of a window. Of a bucket that may have been
// full meanwhile that says nothing. Where the window was only inferred, and resets do not tell
// how soon units come back, what is told in whole units has to be some, and one less counts. Of many that went at once one of the
// last to arrive may be answered first: where the units that are sent and not answered became more by more than came back, that says nothing.
func (l *ledger) measureRefill(now time.Time, c *charge, p *Policy, r int64) {
	full := r+c.n >= min(l.brim, p.Quota) // none was missing when the request came, as far as is known
	open := l.sent - l.answered
	if full { // none of those is counted in r
		open = 0
	}
	d, used := now.Sub(l.markedAt), l.answered-l.markedUse
	came, enough := r-l.markedLeft+used, int64(1)
	if l.inferred > 0 && !l.fillsUp {
		came, enough = came-1, fewBack
	}
	switch {
	case full || l.markedAt.IsZero():
	case d < p.Window/10, came < enough && d < p.Window:
		return
	case open-l.markedOpen > max(came, 0):
		return
	case came > 0:
		got := float64(came) / d.Seconds()
		if l.regained == 0 {
			l.regained = got
		}
		l.regained += (got - l.regained) / 4
	}
	l.markedAt, l.markedLeft, l.markedUse, l.markedOpen = now, r, l.answered, open
}

// fewBack are so many units that one more or less hardly matters.
const fewBack = 4

// hasten takes a window that was inferred to be no longer than what comes back shows, counting only what
// is certain. Where it is no longer than what resets are rounded to, nothing else tells how long it is: a small
// bucket may be full again many times in that time.
func (l *ledger) hasten(now, start time.Time, c *charge, p *Policy, r int64) {
	grain := max(l.grain, l.rounded)
	d := now.Sub(l.seenFrom)
	if l.inferred == 0 || p.Window > grain || d < 2*grain {
		return
	}
	came := r - l.seenLeft - 1 + c.answered + c.n - l.seenSent // what is left is told in whole units
	if window := nanoseconds(d.Seconds() / float64(came) * float64(p.Quota) * 1e9); came > 0 && window < p.Window {
		p.Window, l.inferred = window, 1
	}
	l.seenFrom, l.seenLeft, l.seenSent = start, r, l.sent
}

// refilled is what is left at an instant where units come back steadily.
func (l *ledger) refilled(at time.Time, p *Policy) float64 {
	return float64(l.left) + l.part + l.comes(l.said, at, p)
}

// spill has what would have come back beyond what there can be at once be lost, before a request takes its part of the rest.
func (l *ledger) spill(now time.Time, p *Policy) {
	if l.shape == shapeRefill && l.stated {
		l.part -= max(l.refilled(now.Add(l.onTheWay()), p)-float64(l.holds(p)), 0)
	}
}

// follow notices a request that goes so close behind another that the origin may have
// them the other way round.
func (l *ledger) follow(now time.Time) {
	if now.Sub(l.went) <= 2*max(l.usual-l.least, 0) {
		l.bunched = l.sent
	}
	l.went = now
}

// inOrder reports whether answers come in the order of their requests.
func (l *ledger) inOrder() bool { return l.ordered >= convinced && !l.overtook }

// orderly reports whether the answer to c can be taken to count all requests that went before
// it, and none that went since.
func (l *ledger) orderly(c *charge) bool { return l.ordered >= convinced && c.sent > l.bunched }

// learnOrder notices whether answers come in the order of their requests: then
// the origin has had these in that order as well, unless one says that more is left
// than the one before it, and more than can have come back between them: of two that went at
// the same moment, any.
func (l *ledger) learnOrder(now, start time.Time, c *charge, p *Policy, r int64) {
	back := now.Sub(l.heardFrom).Seconds() * float64(p.Quota) / p.Window.Seconds()
	if start.Equal(l.heardFrom) {
		back = 0
	}
	if l.answered == c.sent && float64(r+c.n-l.heardLeft) <= back+1 {
		l.ordered++
	} else {
		l.ordered = 0
	}
	// The answer before came so long after this request went that the one it is to may have arrived after it.
	l.overtook = l.heardAt.Sub(start) > l.least
	l.heardFrom, l.heardLeft, l.heardAt = start, r, now
}

// hearRefill moves what is taken to be left, with what has come back since the
// last word, to where it is between the least and the most that the answer to c
// allows.
func (l *ledger) hearRefill(now, start time.Time, p *Policy, c *charge, r, least int64) {
	l.measureRefill(now, c, p, r)
	l.hasten(now, start, c, p, r)
	if least > l.most {
		l.gain(now, start, c)
	}
	l.most = r - (l.sent - c.sent)
	most := float64(l.most)
	if l.twoCounts() && !l.othersSeen { // what is left is told in whole units
		most += 1 - 1e-9
	}
	left := min(max(l.refilled(now, p), float64(least)), most)
	whole := math.Floor(left)
	l.left, l.part = int64(whole), left-whole
}

// uncounted is how many units of those on their way a bucket may have counted by the latest word though they are reckoned with
// once more: none where answers come in the order of their requests.
func (l *ledger) uncounted() int64 {
	if l.inOrder() {
		return 0
	}
	return l.own.inFlight
}

// neverEnds reports whether nothing is ever said of when there is more of what comes back steadily, so that the answer that
// tells of nothing left stops nothing either.
func (l *ledger) neverEnds() bool {
	return l.shape == shapeRefill && l.unnamed >= fewSilent && !l.othersSeen
}

// fewSilent are so many answers that none of a bucket's fails to name a reset by chance, or because it is rounded.
const fewSilent = 32

// oneByOne reports whether no more than one unit comes back while an answer is on its way: then no two requests go on what
// the same answer said, and the last unit may go. Of more than one that is left against what is not known.
func (l *ledger) oneByOne(p *Policy) bool { return l.refill(p)*l.quickest.Seconds() < 1 }
