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
	saidOf   int64     // … of which request: sent, when it was …
	saidLeft int64     // … and how much
	fresh    bool      // the epoch began after a stop: the quota is presumed whole
	carried  int64     // units that were left when the epoch began
	inEpoch  int64     // units sent in this epoch …
	spent    int64     // … and in the one before
	sent     int64     // units ever sent …
	answered int64     // … and ever answered, or never to be answered …
	heard    int64     // … of those the units whose answers said what is left …
	unheard  int64     // … and the others, when the first answer of this epoch said so
	ever     int64     // the most that was ever seen to be left at once; 0: not known
	brim     int64     // with how many it may be full
	guessed  bool      // nobody says how large the quota is, and it may be larger than it is taken to be

	resets    // when there is more
	rounding  // which way that is rounded
	trips     // how long answers take
	comeback  // how the quota comes back …
	refilling // … where it does so steadily
	ordering  // whether answers come in order
	company   // what others use
	drought   drought
	hinting   hinting
	newest    newest
	apart     resetsApart
	counter   counter
	edges     *edges    // when windows of two counts end, where nobody says so; nil: that is no question …
	edgesFrom time.Time // … before this instant, for it was found to be none
	lumps     lumps
	away      farAway
	contest   contest
}

// unlimited is the room where nothing is known that would bound it.
const unlimited = math.MaxInt64 / 4

// A charge is what one request took from one slot.
type charge struct {
	slot     *slot
	n        int64
	sent     int64 // of the ledger when this one was sent, itself included …
	answered int64 // … likewise
	used     int64 // … and in use
	gone     int64 // … or had gone lately, where answers come too late to tell of the window
	said     int64 // what the origin had said of this epoch to be left; else unlimited
	told     int64 // what its answer said is left
	epoch    uint32
	settled  bool // no longer in flight
	unsure   bool // the origin may never have counted it: it was given up, or its answer came from nearer by
	due      bool // its answer can be expected to announce the policy
}

// A statement is what one answer says about one policy.
type statement struct {
	remaining  int64         // negative: not said
	reset      time.Duration // negative: not said
	resolution time.Duration // by how much the reset may be off …
	grain      time.Duration // … and what it is rounded to
	after      time.Duration // what Retry-After says; 0: nothing
	clock      bool          // the reset was named as an instant …
	instant    time.Time     // … of the origin's clock
	soon       bool          // it was named as 0 while some are left, as a near one is where they are rounded down
	refused    bool
	free       bool // the answer's own request used nothing
}

// room returns how many units may be sent now.
func (l *ledger) room(now time.Time, p *Policy) int64 {
	switch {
	case now.Before(l.closed):
		return 0
	case l.hinting.only:
		return unlimited
	case l.isFar(p):
		return l.farRoom(now, p)
	case l.edged():
		return int64(l.unused(now, p)) - l.reserve(now, p)
	case l.shape == shapeSliding:
		taken := l.own.used(now, p.Window) + l.reserve(now, p)
		room := p.Quota - taken - l.foreignNow(now, p)
		if l.presumed() && l.told() {
			room = min(room, l.left+1, max(l.left, room-toBeSure(p))) // one goes to see whether any come back
		}
		return room
	case l.stated && l.shape == shapeRefill:
		return min(int64(l.refilled(now.Add(l.onTheWay()), p)), l.holds(p))
	case l.stated && l.othersSeen && l.leavesOne(p):
		return l.shared(now, p)
	case l.stated:
		return l.left
	case l.untold(p):
		return unlimited
	case p.Window == 0:
		return l.drought.returns(p) - l.inEpoch
	}
	room := max(p.Quota-l.own.used(now, p.Window), l.carried-l.inEpoch)
	if l.fresh && !l.piecemeal {
		room = max(room, p.Quota-l.inEpoch)
	}
	if l.piecemeal && l.inferred > 0 && l.began > 0 { // what was used longer ago than that window need not be back
		room = min(room, max(l.began, l.carried)-l.inEpoch)
	}
	if most := l.holds(p); l.piecemeal && most < p.Quota {
		room = min(room, most-l.own.inFlight)
	}
	return room
}

// untold reports whether nothing is known of how many may go: not how many there are, or nobody ever said how many are left,
// nor of what window they are.
func (l *ledger) untold(p *Policy) bool { return p.Quota == 0 || p.Window == 0 && l.said.IsZero() }

// free returns the instant from which n units may be sent, as far as is
// known now; false where that depends on answers still to come. pressed says
// that others wait behind.
func (l *ledger) free(now time.Time, n int64, p *Policy, pressed bool) (time.Time, bool) {
	if l.isFar(p) {
		return latest(l.farFree(now, n, p), l.closed), true
	}
	closed := now.Before(l.closed)
	if l.edged() && !closed {
		if pressed { // the last one would have all stop for as long as resets are rounded to
			n = min(n+1+l.reserve(now, p), max(n, p.Quota))
		}
		return latest(now, l.unusedBy(now, n, p)), true
	}
	room := l.room(now, p)
	pressed = pressed || l.spent >= p.Quota-1 && l.sparing(p) // those whose answers are on the way will be back
	refills := l.shape == shapeRefill && l.stated && !closed
	switch {
	case pressed && l.left <= n+1 && l.inLumps() && !closed:
		return latest(now, l.nextLump(p, n)), l.own.inFlight == 0
	case room >= n && !pressed, room > n && !(refills && l.twoCounts()):
		return now, true
	case refills:
		return l.filledWith(now, n, p, pressed), true
	case room >= n && !l.slidesBeside(): // the last unit, for which others wait as well
		return l.lastUnit(now, p), true
	}
	return l.comesBack(now, n, room, p, pressed)
}

// slidesBeside reports whether a window slides that others use, too.
func (l *ledger) slidesBeside() bool { return l.shape == shapeSliding && l.othersSeen }

// comesBack is free where no more than room units are left, and more do not come back steadily.
func (l *ledger) comesBack(now time.Time, n, room int64, p *Policy, pressed bool) (time.Time, bool) {
	alone := l.own.inFlight == 0
	switch until := l.until(); {
	case now.Before(l.closed): // nothing goes before, even where less would do
		return l.windowsOn(l.closed, n, room, p), true
	case l.partial && l.stated && !l.flows() && l.left >= n && (until.IsZero() && p.Window > 0 || until.Sub(l.said) > p.Window*9/10): // more may come back long before a window is over
		return latest(now, l.said.Add(p.Window/10)), alone
	case l.shape != shapeSliding && !l.stated && l.piecemeal && room > 0 && room == l.holds(p): // more than was ever there: see what the origin says
		return now, true
	case l.shape == shapeSliding, until.IsZero() && !l.stated && p.Window > 0: // as this process's own use does
		at, known := l.own.back(now, n-room, p.Window)
		if l.slidesBeside() {
			at, known = l.backToAny(now, n-room, p, pressed)
		}
		if !known && alone {
			return now, true // others hold it all: see what the origin says
		}
		return at, known
	case !until.IsZero(): // at the reset
		at := l.windowsOn(until, n, room, p)
		if !l.stated && p.Window > 0 { // by the policy alone, of which nothing is known but what went
			if back, known := l.own.back(now, n-p.Quota+l.own.used(now, p.Window), p.Window); known {
				at = soonest(at, back)
			}
		}
		return at, true
	case p.Window > 0: // a window after what was said, if nobody says when
		return l.lapses(p), true
	case alone: // nothing in flight, nothing said
		return now, true
	}
	return time.Time{}, false
}

// filledWith returns when n units are back where they come back steadily, and what is left to others or
// for want of certainty beside them.
func (l *ledger) filledWith(now time.Time, n int64, p *Policy, pressed bool) time.Time {
	missing := float64(n) - l.refilled(now.Add(l.onTheWay()), p)
	if pressed {
		missing += l.leaves(now, n, p)
	}
	if missing <= 0 {
		return now
	}
	return now.Add(l.awaited(now, missing, p))
}

// windowsOn returns when n units are back where room of them are left and all is from an instant on: what is
// more than a window lets through takes further ones.
func (l *ledger) windowsOn(at time.Time, n, room int64, p *Policy) time.Time {
	if n -= max(room, 0); p.Quota <= 0 || l.guessed || p.Window <= 0 || n <= p.Quota {
		return at
	}
	return at.Add(times((n-1)/p.Quota, p.Window))
}

// behind returns when n units can be back at the earliest, those of the ones ahead in line among
// them; the zero Time where that is not known. What comes back bit by bit does so too after
// nothing was left.
func (l *ledger) behind(now time.Time, n int64, p *Policy) time.Time {
	switch {
	case p.Quota <= 0 || p.Window <= 0 || l.isFar(p):
	case l.edged():
		return l.unusedSoonest(now, n, p)
	case l.shape == shapeSliding && !l.presumed():
		at, _ := l.own.back(now, l.own.used(now, p.Window)+n-p.Quota, p.Window)
		return at
	case l.shape == shapeRefill && l.stated:
		missing := float64(n-1) - l.refilled(now.Add(l.onTheWay()), p) // told in whole units: one more may be on its way
		return now.Add(nanoseconds(missing / p.rate() * 1e9))
	}
	return time.Time{}
}

func (l *ledger) take(now time.Time, n int64, p *Policy) charge {
	l.spill(now, p)
	l.own.take(n)
	l.sent += n
	l.inEpoch += n
	l.left -= n
	l.most -= n
	l.follow(now)
	l.solitude.went(now, l.sent, l.answered, l.quickest)
	said := int64(unlimited)
	if l.stated {
		said = l.saidLeft
	}
	c := charge{n: n, sent: l.sent, answered: l.answered, used: l.own.used(now, p.Window), said: said, epoch: l.epoch}
	switch {
	case l.isDistant(p):
		l.away.goes(now, n, c.used-n, p)
		c.gone = l.away.gone.used(now, l.away.span(p))
	case l.away.began: // from here on it is not known what went
		l.away = farAway{}
	}
	return c
}

// refund gives back what a request took that was never counted.
func (l *ledger) refund(_ time.Time, c *charge) {
	l.sent -= c.n
	l.giveBack(c)
}

// giveBack takes what a request took to be in nobody's use.
func (l *ledger) giveBack(c *charge) {
	l.own.refund(c.n)
	if c.epoch == l.epoch {
		l.inEpoch -= c.n
		l.left += c.n
		l.most += c.n
	}
}

// counting is a window at most, after which it is all as good as new.
func (l *ledger) counting(most time.Duration, p *Policy) (time.Duration, bool) {
	window := p.Window
	orDefault(&window, windowless)
	return min(window, most), true
}

func (l *ledger) remaining(now time.Time, p *Policy) int64 {
	if l.hinting.only || !l.stated && l.untold(p) {
		return -1
	}
	return max(l.room(now, p), 0)
}

func (l *ledger) rest(_ time.Time, p *Policy) time.Time {
	return latest(l.own.rest(p.Window), l.until())
}

// adopt takes what the first word of a policy shows to be in use for this
// process's own as far as it has had so many requests accepted: what went
// before a policy was known is no use by others. It reports whether that is all.
func (l *ledger) adopt(now time.Time, accepted, remaining int64, p *Policy) (all bool) {
	if remaining < 0 || p.Window <= 0 || accepted == 0 {
		return false
	}
	used := p.Quota - remaining - l.own.used(now, p.Window)
	n := min(used, accepted)
	if n <= 0 {
		return false
	}
	l.adopted = now.Add(p.Window)
	l.own.take(n)
	l.own.done(now, now, 0, n, p.Quota, p.Window)
	l.inEpoch += n
	return n == used
}

// hearMore takes in that the answer to c shows, by saying nothing, that so many units were left at least, save for
// those that it may not have counted. If it went before anything was said in this epoch, it was counted before that, too.
func (l *ledger) hearMore(now time.Time, c *charge, least int64, p *Policy) {
	before := c.said > least
	least = min(least, p.Quota) - (l.sent - c.answered - c.n)
	switch {
	case c.epoch != l.epoch || p.Unit == UnitContentBytes:
	case l.shape == shapeSliding: // it is known when units are back
	case !l.stated:
		l.carried = max(l.carried, l.inEpoch+least)
	case before:
		l.left = min(l.left+c.n, l.most)
	case l.shape != shapeRefill:
		l.left, l.most = max(l.left, least), max(l.most, least)
	case l.refilled(now, p) < float64(least):
		l.left, l.part, l.most, l.said = least, 0, max(l.most, least), now
	}
}

// settle closes a request's account without news: its answer said nothing
// of this policy, or none will come. What it took was counted by the origin before the
// answer was on its way, and comes back so much sooner.
func (l *ledger) settle(now, start time.Time, c *charge, p *Policy) {
	e := l.own.done(now, start, l.surely(), c.n, p.Quota, p.Window)
	if l.edges != nil {
		l.edges.take(middle(start, now), c.n)
		if c.unsure { // nobody knows whether it was counted
			l.edges.answers = 0
		}
	}
	if c.unsure {
		if e != nil {
			e.unsure += c.n
		}
		l.counter.unsure += c.n
	}
	if p.Unit != UnitContentBytes { // which are counted as they come: see correct
		l.answered += c.n
	}
	if c.epoch == l.epoch && l.opened.IsZero() && !c.unsure {
		l.opened = now
	}
}

// settleFree closes the account of a request that was answered and used nothing.
func (l *ledger) settleFree(c *charge) {
	l.answered += c.n
	l.counter.unsure += c.n
	l.giveBack(c)
}

// correct replaces an estimate of bytes by what they were.
func (l *ledger) correct(now, start time.Time, c *charge, n int64, p *Policy) {
	more := n - c.n
	if c.epoch == l.epoch {
		l.left -= more
		l.most -= more
		l.inEpoch += more
	} else {
		l.carried -= max(more, 0) // it may count in either
	}
	l.sent += more
	l.answered += n
	l.own.more(now, start, more, p)
}

// anew forgets what was said of another quota, so that the next word counts
// by itself.
func (l *ledger) anew() {
	l.stated, l.left, l.carried, l.part, l.lumps, l.doubted, l.counter.atOnce = false, 0, 0, 0, lumps{}, false, false
	l.away.foreign, l.hinting, l.drought.outlay, l.contest, l.edges = 0, hinting{}, outlay{}, contest{}, nil
	l.forgetOthers()
}

// hear takes in what the answer to the request c, sent at start, says at now.
// No wait it asks for is longer than atMost; hear reports whether one was. While something is left a reset
// asks for none: it says when the window ends, however far away that is, but for one that is stated to be far shorter: a bucket
// holds more than its quota now and then.
func (l *ledger) hear(now, start time.Time, c *charge, p *Policy, s statement, atMost time.Duration) (capped bool) {
	absurd := p.Window > 0 && l.inferred == 0 && s.reset > 2*p.Window
	if s.reset > atMost && (s.remaining <= 0 || absurd) {
		s.reset, capped = atMost, true
	}
	l.measureTrip(now, start)
	l.lead(c, p, &s)
	if l.isDistant(p) && c.gone > 0 {
		l.away.hear(now, now.Sub(start), l.least, s.remaining, c.gone, p)
	}
	if s.remaining >= 0 {
		l.learnOrder(now, start, c, p, s.remaining)
	}
	if l.stale(start, c, s) {
		if s.reset > 0 { // a bucket's fits whenever it was said
			l.learnFill(now, start, c, p, &s)
		}
		// It may be the last word so far, for its request may have arrived after those that went later.
		if s.remaining == 0 && s.reset >= 0 && (!l.stated || l.room(now, p) <= c.n) {
			l.close(now, s.reset, atMost)
		}
		if s.remaining >= 0 && s.reset >= 0 && p.Window > 2*s.resolution { // it was counted in a window that is over for certain
			l.heard += c.n
			if l.stated {
				l.allHeard(c, p, true)
			}
		}
		return false
	}
	tooSoon := l.hearWhen(now, start, c, p, &s)
	if s.remaining < 0 {
		return capped
	}
	l.learnFill(now, start, c, p, &s)
	l.learnApart(now, start, p, &s)
	l.learnNewest(now, start, p, &s)
	if s.refused && !tooSoon && l.fresh && !l.stated && c.epoch == l.epoch && l.inEpoch < p.Quota*9/10 {
		l.piecemeal = true
	}
	l.heard += c.n
	r, least := l.bounds(c, p, &s)
	l.learnElastic(start, p, c, &s, r, least)
	l.learnShape(now, start, c, p, r, s.refused || s.free)
	l.learnBeyond(now, start, p, &s)
	l.learnCounter(now, start, c, p, &s, r)
	l.learnEdges(now, start, c, p, &s, r)
	l.learnCounted(now, c, p, r, s.refused)
	l.hearLeft(now, start, c, p, r, least, s.refused)
	if !l.stated {
		l.begun, l.unheard = now, l.answered-l.heard
		if l.opened.IsZero() { // it was settled in the epoch before
			l.opened = now
		}
		if !tooSoon {
			l.learnBack(now, c, p, &s, r)
		}
	}
	if !l.stated || !l.flows() || c.sent >= l.saidOf {
		l.said = now
	}
	if !l.stated || c.sent >= l.saidOf {
		l.saidLeft = r
	}
	l.stated, l.saidOf = true, max(l.saidOf, c.sent)
	l.contest.hear(now, start, l, c, p, &s, r)
	if r > 0 {
		l.drought.hearLeft(start, r)
		return capped
	}
	return l.hearNothingLeft(now, start, p, &s, atMost) || capped
}

// bounds returns how many units are left by what an answer says, and how many for
// certain: of the requests sent so far, those not yet answered when this one was
// sent may or may not be counted in what it says.
func (l *ledger) bounds(c *charge, p *Policy, s *statement) (r, least int64) {
	r = s.remaining
	if p.Quota > 0 {
		r = min(r, p.Quota) // an absurd count must not raise the rate
	}
	least = r - (l.sent - c.answered - c.n) - l.unread(c, p)
	if l.shape == shapeRefill && l.inOrder() {
		least = r - (l.sent - c.sent)
	}
	return r, least
}

// exactly is how many units are left by what the answer to c says, where answers have come
// in the order of their requests: it counts all that went before, and none that went since.
// false: they have not, or may not have, or nobody knows yet what the requests cost.
func (l *ledger) exactly(c *charge, p *Policy, r int64) (left int64, known bool) {
	known = l.orderly(c) && l.shape != shapeRefill && p.Unit != UnitContentBytes
	return r - (l.sent - c.sent), known
}

// hearLeft moves what is taken to be left to between the least and the most, r, that
// the answer to c allows.
func (l *ledger) hearLeft(now, start time.Time, c *charge, p *Policy, r, least int64, refused bool) {
	l.solitude.hear(r, c.sent, l.answered)
	switch {
	case l.stated && l.flows() && c.sent < l.saidOf: // an older word than the last
		return
	case l.stated:
		l.noticeOthers(now, p, c, r, refused)
		l.remember()
		l.learnRefill(now, c, p, r, least-l.noise(c, p))
		if l.shape == shapeRefill {
			l.hearRefill(now, start, p, c, r, least)
			return
		}
		l.left, l.most = min(max(l.left, least), r), max(min(l.most, r), least)
	case l.fresh || p.Quota == 0:
		l.left, l.most = min(least, r), r
	case l.untold(p):
		l.left, l.most = min(max(p.Quota-l.inEpoch, least), r), r
	default:
		l.left, l.most = min(max(l.room(now, p), least), r), r
	}
	left, known := l.exactly(c, p, r)
	if l.exact = known; known {
		l.left = min(left, l.most)
	}
	l.allHeard(c, p, r > 0)
}

// allHeard moves what is taken to be left to the most that it can be once every request has been
// heard of: the last one counted said least, be it the first word of an epoch. more says that
// the latest answer, to c, is not the one that says that nothing is left.
func (l *ledger) allHeard(c *charge, p *Policy, more bool) {
	if l.own.inFlight > 0 || l.answered-l.heard != l.unheard || l.unread(c, p) > 0 {
		return
	}
	if more && l.partial && !l.drought.lasts() { // none says so: what came back meanwhile need not be in most
		l.most = max(l.most, 1)
	}
	l.left = l.most
}
