package heed

import (
	"math"
	"time"
)

// A ledger keeps the books of one announced policy: how many units may still
// be sent, and from when on there are more. It believes what answers say only
// as far as requests in flight allow, in whatever order answers arrive.
//
// An epoch is the time from one reset to the next. In an epoch in which the
// origin has said what remains, the books follow that and this process's own
// sends. At the start of an epoch, before its first answer, they follow the
// quota.
type ledger struct {
	own usage

	epoch    uint32
	stated   bool      // an answer of this epoch said what remains
	left     int64     // where stated: what may still be sent at least; may be negative …
	most     int64     // … and at most
	said     time.Time // when the origin last said what remains …
	saidOf   int64     // … and of which request: sent, when it was
	others   float64   // units a second that others were seen to use lately
	appetite float64   // … as a multiple of what would use up in time what is left
	fresh    bool      // the epoch began after a stop: the quota is presumed whole
	inEpoch  int64     // units sent in this epoch
	sent     int64     // units ever sent …
	answered int64     // … and ever answered, or never to be answered

	earliest   time.Time     // the reset is not before this …
	opens      time.Time     // … and taken to be at this instant; zero: not said
	named      time.Time     // the reset named last, for what it is worth
	closed     time.Time     // nothing may start before: an answer named this instant with nothing left
	last       time.Time     // when the reset before this epoch was taken to be
	previous   time.Time     // the reset before this epoch as it was named …
	anchor     time.Time     // … and that of an epoch some …
	turns      time.Duration // … resets before
	byUse      bool          // a window begins with the first request in it
	inferred   time.Duration // by how much the window may be too long, where it is one inferred from resets
	othersSeen bool          // they use a share that matters
	grain      time.Duration // what resets are rounded to
	down       bool          // the origin was caught rounding resets down
	zeros      int           // resets of 0 in a row
	blind      int           // statements in a row with nothing left and no reset
	quickest   time.Duration // of recent answers …
	ahead      time.Duration // … and by how much that lets requests go sooner

	shape     shape
	streak    int   // statements in a row that fit a bucket that refills …
	lowest    int64 // … and the least and …
	highest   int64 // … the most they said is left
	fillsUp   bool  // resets are when a bucket is full
	piecemeal bool  // after a stop the quota was not whole again, though the reset had passed

	base    int64 // of a sliding window: what was left and in use when that was said last
	foreign int64 // of a sliding window: units others use
	fits    int   // answers in a row that speak for a sliding window
	gains   int   // answers that speak for a steady refill

	regained   float64   // units a second that came back lately; 0: not measured
	markedAt   time.Time // when that was last reckoned …
	markedLeft int64     // … what was left then …
	markedUse  int64     // … and answered
}

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

// othersMatter is the share of a quota below which what others use of it is
// not worth making way for.
const othersMatter = 0.02

// trust is the share of a steady refill that is counted on between answers.
const trust = 0.9

// shareable is the quota from which on one unit that is left over matters less
// than that several go for it at once.
const shareable = 20

// unlimited is the room where nothing is known that would bound it.
const unlimited = math.MaxInt64 / 4

// A charge is what one request took from one slot.
type charge struct {
	slot     *slot
	n        int64
	sent     int64 // of the ledger when this one was sent, itself included …
	answered int64 // … likewise
	used     int64 // … and in use
	epoch    uint32
	settled  bool // no longer in flight
	due      bool // its answer can be expected to announce the policy
}

// A statement is what one answer says about one policy.
type statement struct {
	remaining  int64         // negative: not said
	reset      time.Duration // negative: not said
	resolution time.Duration
	clock      bool // the reset was named as an instant
	refused    bool
}

// fills reports whether the reset named is when a bucket that refills steadily
// would be full: it says nothing then of when a window ends.
func (s *statement) fills(p *Policy) bool {
	if s.remaining <= 0 || s.reset < 0 || p.Quota <= 0 {
		return false
	}
	full := time.Duration(float64(p.Window) * float64(p.Quota-s.remaining) / float64(p.Quota))
	return (s.reset - full).Abs() <= s.resolution
}

// learnFill notices that resets move with what is left as they do in a bucket. A
// window's resets fit that only where they cross it.
func (l *ledger) learnFill(p *Policy, s *statement) {
	switch {
	case s.remaining <= 0 || s.reset < 0 || l.inferred > 0: // says nothing of it
	case !s.fills(p):
		l.streak = 0
	case l.streak == 0:
		l.streak, l.lowest, l.highest = 1, s.remaining, s.remaining
	default:
		l.streak++
		l.lowest, l.highest = min(l.lowest, s.remaining), max(l.highest, s.remaining)
		moved := time.Duration(float64(p.Window) * float64(l.highest-l.lowest) / float64(p.Quota))
		if l.streak >= convinced && moved >= p.Window/4 && moved > 2*s.resolution+s.resolution/4 { // more than rounding can hide
			l.shape, l.fillsUp = shapeRefill, true
		}
	}
}

// blindWait is how long to wait for more where an origin said that nothing
// is left and not until when.
func (l *ledger) blindWait() time.Duration {
	return min(defaultMinBackoff<<min(max(l.blind-1, 0), 10), defaultMaxBackoff)
}

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

// turn begins a new epoch where the present one is over. It reports whether
// requests that go now need to be confirmed by answers first: after a stop,
// or where the quota is unknown.
func (l *ledger) turn(now time.Time, p *Policy) (probe bool) {
	until := l.until()
	if until.IsZero() || now.Before(until) {
		return false
	}
	if l.flows() && (l.stated || l.shape == shapeSliding) { // nothing turns
		l.earliest, l.opens, l.closed = time.Time{}, time.Time{}, time.Time{}
		return false
	}
	stopped := l.stated && l.left <= 0 || !l.closed.IsZero()
	l.compare(p)
	l.epoch++
	l.last = until
	l.fresh, l.stated, l.left, l.inEpoch = stopped, false, 0, 0
	l.earliest, l.opens, l.closed = time.Time{}, time.Time{}, time.Time{}
	return stopped || p.Quota == 0
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
func (l *ledger) sparing(p *Policy) bool {
	return l.byUse && l.ahead > 0
}

// room returns how many units may be sent now.
func (l *ledger) room(now time.Time, p *Policy) int64 {
	switch {
	case now.Before(l.closed):
		return 0
	case l.shape == shapeSliding:
		used := l.own.used(now, p.Window)
		room := p.Quota - used - l.foreignNow(now, p) - l.reserve(now, p)
		if l.othersSeen && now.Sub(l.said) < p.Window {
			room = min(room, l.base-used-l.reserve(now, p))
		}
		return room
	case l.stated && l.shape == shapeRefill:
		return min(l.left+int64(now.Sub(l.said).Seconds()*l.refill(now, p)), p.Quota)
	case l.stated && l.othersSeen && p.Quota >= shareable:
		return l.shared(now)
	case l.stated:
		return l.left
	case p.Quota == 0:
		return unlimited
	case p.Window == 0:
		return p.Quota - l.inEpoch
	}
	room := p.Quota - l.own.used(now, p.Window)
	if l.fresh && !l.piecemeal {
		room = max(room, p.Quota-l.inEpoch)
	}
	return room
}

// shared returns what is left of a window that others use too: less than was
// said, for they have gone on since, the more the more was left. Where they are
// after all they can get, the last unit is the one that several go for.
func (l *ledger) shared(now time.Time) int64 {
	left := float64(l.left)
	if end := l.until(); left > 0 && end.After(now) && now.After(l.said) {
		left *= math.Pow(end.Sub(now).Seconds()/end.Sub(l.said).Seconds(), l.appetite)
	}
	if l.appetite < 0.5 { // they take no more than they want
		return int64(left)
	}
	return int64(left) - 1
}

// seen returns how many units are left as the origin's latest word and this
// process's own use since tell.
func (l *ledger) seen(now time.Time, p *Policy) int64 {
	if l.shape == shapeSliding && now.Sub(l.said) < p.Window {
		return l.base - l.own.used(now, p.Window)
	}
	return l.room(now, p)
}

// free returns the instant from which n units may be sent, as far as is
// known now; false where that depends on answers still to come. pressed says
// that others wait behind.
func (l *ledger) free(now time.Time, n int64, p *Policy, pressed bool) (time.Time, bool) {
	room := l.room(now, p)
	if room >= n && (!pressed || room > n) {
		return now, true
	}
	if l.shape == shapeRefill && l.stated && !now.Before(l.closed) {
		if pressed { // the last unit stays, for its answer would stop all for a while
			n++
		}
		return l.said.Add(time.Duration(float64(n-l.left)/l.refill(now, p)*1e9) + 1), true
	}
	if room >= n {
		return l.lastUnit(now, p), true
	}
	at, known := l.until(), true
	switch {
	case now.Before(l.closed):
		at = l.closed // even where less would do
	case l.shape == shapeSliding, at.IsZero() && !l.stated && p.Window > 0:
		if at, known = l.own.back(now, n-room, p.Window); !known && l.own.inFlight == 0 {
			return now, true // others hold it all: see what the origin says
		}
		return at, known
	case at.IsZero() && l.sent == l.answered:
		// Nothing in flight, nothing said: what was sent first comes back.
		if at, known = l.own.back(now, 1, p.Window); !known || p.Window == 0 {
			return now, true
		}
	case at.IsZero():
		return time.Time{}, false
	}
	if p.Quota > 0 && p.Window > 0 && n > p.Quota+max(room, 0) {
		at = at.Add(time.Duration((n-max(room, 0)-1)/p.Quota) * p.Window)
	}
	return at, known
}

// reserve is how many units of a sliding window are kept for what others take
// between an answer and the next arrival.
func (l *ledger) reserve(now time.Time, p *Policy) int64 {
	foreign := float64(l.foreignNow(now, p))
	if foreign < othersMatter*float64(p.Quota) {
		return 0
	}
	return 1 + int64(foreign/p.Window.Seconds()*2*l.quickest.Seconds())
}

// foreignNow is how much of a sliding window others are taken to use: nothing
// that was seen a window ago is in it still.
func (l *ledger) foreignNow(now time.Time, p *Policy) int64 {
	if now.Sub(l.said) >= p.Window {
		return 0
	}
	return l.foreign
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

// lastUnit returns when the last unit of an epoch is best sent while others
// wait behind it. Its answer will say that nothing is left, and no request
// may start before the reset it names, which is rounded to whole seconds: so
// it is sent when that rounding will cost nothing, a whole number of grains
// before the reset, or where it is too late for that not in this epoch.
func (l *ledger) lastUnit(now time.Time, p *Policy) time.Time {
	reset := l.opens
	if l.shape == shapeSliding {
		if at, ok := l.own.back(now, 1, p.Window); ok {
			reset = at
		}
	}
	switch {
	case l.sparing(p) && !l.flows():
		return latest(l.until(), now)
	case l.shape == shapeSliding && (l.down || l.ahead > 0): // rounding always costs
		return latest(reset, now)
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

func (l *ledger) take(now time.Time, n int64, p *Policy) (c charge) {
	l.own.take(n)
	l.sent += n
	l.inEpoch += n
	l.left -= n
	l.most -= n
	c = charge{n: n, sent: l.sent, answered: l.answered, epoch: l.epoch}
	if l.shape != shapeReset && p.Window > 0 {
		c.used = l.own.used(now, p.Window)
	}
	return c
}

// refund gives back what a request took that was never counted.
func (l *ledger) refund(c *charge) {
	l.own.refund(c.n)
	l.sent -= c.n
	if c.epoch == l.epoch {
		l.inEpoch -= c.n
		l.left += c.n
		l.most += c.n
	}
}

// adopt takes what the first word of a policy shows to be in use for this
// process's own as far as it has had so many requests accepted: what went
// before a policy was known is no use by others.
func (l *ledger) adopt(now time.Time, accepted, remaining int64, p *Policy) {
	if remaining < 0 || p.Window <= 0 {
		return
	}
	n := min(p.Quota-remaining-l.own.used(now, p.Window), accepted)
	if n <= 0 {
		return
	}
	l.own.take(n)
	l.own.done(now, now, n, p.Quota, p.Window)
	l.inEpoch += n
}

// settle closes a request's account without news: its answer said nothing
// of this policy, or none will come. What it took comes back by so much sooner
// as the next request may go.
func (l *ledger) settle(now, start time.Time, c *charge, p *Policy) {
	l.own.done(now.Add(-min(l.ahead, now.Sub(start))), start, c.n, p.Quota, p.Window)
	l.answered += c.n
}

// anew forgets what was said of another quota, so that the next word counts
// by itself.
func (l *ledger) anew() {
	l.stated, l.fresh, l.left, l.inEpoch = false, true, 0, 0
	l.others, l.appetite, l.othersSeen, l.foreign = 0, 0, false, 0
}

// hear takes in what the answer to the request c, sent at start, says at now.
// No wait it asks for is longer than atMost; hear reports whether one was.
func (l *ledger) hear(now, start time.Time, c *charge, p *Policy, s statement, atMost time.Duration) (capped bool) {
	if s.reset > atMost {
		s.reset, capped = atMost, true
	}
	l.quickest = min(now.Sub(start), l.quickest+max(l.quickest/16, time.Millisecond))
	if l.ahead = 0; !s.clock && !l.othersSeen && float64(p.Quota)*l.quickest.Seconds() > p.Window.Seconds() {
		l.ahead = l.quickest // else it is no more than the time of a unit, and not worth it
	}
	if l.stale(start, c, s) {
		if s.remaining == 0 && s.reset >= 0 && !l.stated {
			l.close(now, s.reset, atMost) // late, but the last word so far
		}
		return false
	}
	if s.reset == 0 && s.resolution > 0 {
		if l.zeros++; s.remaining > 0 || l.zeros >= convinced {
			s.reset = -1 // a constant, or cut off: it tells nothing
		}
	} else if s.reset > 0 {
		l.zeros = 0
	}
	if s.reset >= 0 {
		l.grain = s.resolution
		if s.clock { // the instant is rounded, whenever it is named
			l.grain = 0
		}
		l.noticeReset(now, start, c, p, s)
		l.hearReset(now, start, s)
	}
	if s.refused && l.turnedTooSoon(now, c, p, s) {
		l.down = true
		l.opens = l.opens.Add(s.resolution)
	}
	if s.remaining < 0 {
		return capped
	}
	l.learnFill(p, &s)
	if s.refused && l.fresh && !l.stated && c.epoch == l.epoch && l.inEpoch < p.Quota*9/10 {
		l.piecemeal = true
	}
	r := s.remaining
	if p.Quota > 0 {
		r = min(r, p.Quota) // an absurd count must not raise the rate
	}
	l.learnShape(now, start, c, p, r, s.refused)
	// Of the requests sent so far, those not yet answered when this one was
	// sent may or may not be counted in what it says.
	least := r - (l.sent - c.answered - c.n)
	switch {
	case l.stated && l.flows() && c.sent < l.saidOf: // an older word than the last
	case l.stated:
		l.noticeOthers(now, p, c, r)
		l.learnRefill(p, least-l.noise(c, p))
		if l.shape == shapeRefill {
			l.measureRefill(now, p, r)
		}
		l.left, l.most = min(max(l.left, least), r), max(min(l.most, r), least)
	case l.fresh || p.Quota == 0:
		l.left, l.most = min(least, r), r
	default:
		l.left, l.most = min(max(l.room(now, p), least), r), r
	}
	if c.sent >= l.saidOf && p.Window > 0 {
		l.base = (r+least)/2 + l.own.used(now, p.Window)
	}
	l.stated, l.said, l.saidOf = true, now, max(l.saidOf, c.sent)
	if r > 0 {
		l.blind = 0
		return capped
	}
	wait := s.reset
	switch {
	case wait >= 0 && l.down:
		wait += s.resolution
	case wait >= 0:
	case p.Window > 0:
		wait = p.Window
		if at, ok := l.own.back(now, 1, p.Window); ok {
			wait = at.Sub(now)
		}
	default:
		l.blind++
		wait = l.blindWait()
	}
	l.close(now, wait, atMost)
	return capped || wait > atMost
}

// close lets nothing start before an answer's receipt plus the wait it named.
func (l *ledger) close(now time.Time, wait, atMost time.Duration) {
	l.closed = latest(l.closed, now.Add(min(wait, atMost)))
}

// learnShape finds out how the quota comes back, from what the answer to c
// says is left, and how much of a sliding window others use.
func (l *ledger) learnShape(now, start time.Time, c *charge, p *Policy, r int64, refused bool) {
	if l.shape == shapeReset || l.shape == shapeRefill || p.Window <= 0 || p.Quota <= 0 || refused {
		return
	}
	// If the window slides, what was answered before c went, and less than a
	// window ago for certain, is counted in what c's answer says …
	window := p.Window
	window -= l.inferred
	counted := l.own.between(now.Add(-window), start)
	if r > p.Quota-counted-c.n {
		l.shape, l.fits, l.foreign = shapeReset, 0, 0
		return
	}
	// … and no more of this process than was in use, and went since.
	used := c.used + l.sent - c.sent
	if seen := max(p.Quota-used-r, 0); seen >= l.foreign {
		l.foreign = seen
	} else {
		l.foreign -= (l.foreign - seen + 7) / 8 // it is a lower bound: do not forget it at once
	}
	// Only where a reset would show does it speak for sliding that none does.
	if c.epoch == 0 || counted < 2 || counted < p.Quota/10 {
		return
	}
	if l.fits++; l.fits >= convinced {
		l.shape = shapeSliding
	}
}

// noticeReset notices that the window has turned before the reset that was
// taken for its end: more is left than can have been, and another reset is named,
// later by more than has passed since the last word. A bucket that refills
// names no such leaps.
func (l *ledger) noticeReset(now, start time.Time, c *charge, p *Policy, s statement) {
	named := l.named
	if s.remaining > 0 { // else a bucket names the next unit, not when it is full
		l.named = now.Add(s.reset)
	}
	leap := start.Add(s.reset - s.resolution).Sub(named)
	if !l.stated || s.remaining <= l.most || named.IsZero() || leap <= now.Sub(l.said) || leap < p.Window/2 {
		return
	}
	switch l.shape {
	case shapeSliding:
		return // learnShape knows better
	case shapeRefill:
		if s.remaining-l.most < p.Quota/4 { // what has come back steadily, and a new count begins
			return
		}
		l.shape, l.fillsUp = shapeReset, false
	}
	l.gains = 0
	l.epoch++
	c.epoch = l.epoch
	l.last = latest(l.last, start)
	l.fresh, l.stated, l.left, l.inEpoch = true, false, 0, l.sent-c.answered
	l.earliest, l.opens, l.closed = time.Time{}, time.Time{}, time.Time{}
}

// hearReset narrows down when the reset is. An origin may have rounded it up
// or down by s.resolution and have stamped it at any time since start; of
// several answers about one reset the earliest instant named stands. It is
// taken to round up until it is caught rounding down.
func (l *ledger) hearReset(now, start time.Time, s statement) {
	named := now.Add(s.reset)
	if l.down {
		named = named.Add(s.resolution)
	}
	earliest := start.Add(s.reset - s.resolution)
	switch {
	case l.opens.IsZero(), earliest.After(l.opens), named.Before(l.earliest): // another reset
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

// noise is by how much what is said can differ from what was reckoned with though
// nobody else uses the quota: what a body costs is an estimate until it is over.
func (l *ledger) noise(c *charge, p *Policy) int64 {
	if p.Unit == UnitContentBytes {
		return max(c.n, l.own.inFlight)
	}
	return 0
}

// noticeOthers notices that less is left than this process can have left: others
// use the quota too. How much is followed over half a window.
func (l *ledger) noticeOthers(now time.Time, p *Policy, c *charge, r int64) {
	d := now.Sub(l.said)
	if c.sent < l.saidOf || d <= 0 {
		return
	}
	if l.shape == shapeSliding {
		l.othersSeen = float64(l.foreign) > float64(p.Quota)*othersMatter
		return
	}
	span := p.Window / 2
	if span <= 0 {
		span = defaultMinBackoff
	}
	seen := float64(max(l.left-r-l.noise(c, p), 0)) / d.Seconds()
	weight := -math.Expm1(-d.Seconds() / span.Seconds())
	l.others += (seen - l.others) * weight
	if end := l.until(); end.After(now) && l.left > 0 {
		l.appetite += (seen*end.Sub(l.said).Seconds()/float64(l.left) - l.appetite) * weight
	}
	if float64(p.Quota)*othersMatter > l.others*2*span.Seconds() {
		l.othersSeen = false
	} else if seen > 0 {
		l.othersSeen = true
	}
}

// learnRefill notices that more is left than can have been left of what was
// said before, though no reset has passed.
func (l *ledger) learnRefill(p *Policy, least int64) {
	if least <= l.most || l.shape != shapeReset || p.Window <= 0 || p.Quota <= 0 {
		return
	}
	if l.gains++; l.gains >= convinced {
		l.shape = shapeRefill
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
	return !l.down && s.resolution > 0 && s.reset >= 0 && c.epoch == l.epoch && !l.last.IsZero() &&
		now.Sub(l.last) < 2*s.resolution+p.Window/10 && now.Add(s.reset).Sub(l.last) < max(2*s.resolution, p.Window/2)
}
