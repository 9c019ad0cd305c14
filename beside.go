package heed

import (
	"math"
	"time"
)

// There may be a limit as well as chance: a flaky backend behind a limiter. Then no refusal tells anything by itself.
// But what a limit refuses comes on top of what chance does, in runs, and only at a pace beyond what it lets through.
// So the rate is kept to, those refused wait by themselves, and nothing is learned of them, until more are refused
// than twice the share that is usual explains, by a few. That is one event, however many they are: the limit is
// exceeded, and closed until a request is accepted again.
//
// Nothing is made of windows and bursts then, for when exactly a limit was met is not known. Whatever its algorithm, a
// limit lets through its rate from one such event to the next, and refuses nothing of what goes evenly below that.

// heldFor is how many requests are accepted, for each that an attempt at more costs, from one attempt to the next: 20 in
// 1000 are to be refused at most.
const heldFor = 50

// cleanFor is how many of them go at a pace at which a limit that holds still refuses nothing: they tell the share
// that chance does.
const cleanFor = 100

// besideChance reports whether a rate is known where some are refused by chance as well.
func (l *learner) besideChance() bool { return l.rate.low > 0 && l.chance.share > 0 }

// exceeded takes in that more are refused than comes by chance: what was since it began is the limit's, save
// well below the known rate, where it is likelier that more come by chance than was thought.
func (c *chance) exceeded(r *throughput) {
	share, seen := c.calm, c.seen
	if r.low > 0 && c.tells(r) {
		share, seen = c.share, min(seen, 2*few) // it may have been the limit's all the same: what follows tells
	}
	next := chance{share: share, seen: seen, inARow: c.inARow, hint: c.hint, others: c.others, calm: share, then: c.then, failed: c.failed, kept: c.kept}
	if c.others && c.slower.accepted >= few { // what is too many does not tell them apart then: while each asks to wait, nothing goes
		next.slower = c.slower
	}
	if !c.tells(r) {
		next.quiet, next.passed, next.struck = c.quiet, c.passed, c.struck
	}
	if r.low == 0 { // there is a limit where there seemed to be none
		next.failed++
	}
	*c = next
}

// exceeded takes in that a limit refuses a request sent at start, beside the share that chance does, and that it
// began to at a pace. Where that was the known rate, or less, this is too high, and what came from one such
// event to another is let through. An attempt at more tells what was kept up until a little before; where it was
// begun far too low another one follows at once, at which the pace rises less. Where what it tells is refuted at once, the
// rate is what it was before: what went faster had been gathered. In the next attempt the pace rises by a seventh in as
// many requests.
func (t *throughput) exceeded(start time.Time, pace, share float64) {
	least, tooFast := 0., t.pace()
	if len(t.zeros) > 0 {
		if n := t.total - t.zeros[0].n; n >= few {
			least = rateOf(n, start.Sub(t.zeros[0].at)) / (1 - share)
		}
	}
	t.zero(start)
	climb, stood, known := t.climb, 0, t.known
	t.climb, t.pressed, t.tooFast, t.known = 0, 0, tooFast, 0
	n, before := t.latestTwo()
	switch {
	case tooFast > t.low:
		kept := pace * math.Exp2(-2*max(climb, slowly))
		if climb == 0 && 0 < least && least <= t.low/cautious && t.stood < mostStood { // it had been gathered by a bucket
			kept, stood = 0, t.stood+1
		}
		low := min(max(t.low, least, kept), tooFast)
		if t.low < backOff*low {
			t.known = t.low
		}
		t.low = low
		if tooFast > 2*t.low && climb > slowly { // else it rises as slowly as wherever the rate is known
			t.climb = max(climb/4, slowly)
		}
	case climb == 0 && known > 0 && few*n < before: // else known is far too low
		t.low = min(max(known, least), 0.95*t.low)
		t.cycle = max(t.cycle, min(before, int64(60*t.low)))
	default:
		if tooFast <= farBelow*t.low || least < t.low/2 { // it may have been chance, or an outage, that is over
			t.climb, t.cycle = gently, min(t.cycle, shortestCycle)
		}
		if least == 0 {
			least = backOff * t.low
		}
		t.low = max(min(0.95*t.low, least), t.low/8)
	}
	t.stood = stood
}

// reopenedBeside takes in that the limit lets through again a request sent at start, since reopened and after shut. One
// that let nothing through for several units is a window, and what it let through is its worth, if it was closed for
// half as long as that takes.
func (l *learner) reopenedBeside(now, start, reopened, shut time.Time) {
	r, was := &l.rate, l.rate.low
	if l.lower(shut); r.low < was {
		r.cycle = max(r.cycle, min(l.accepted, int64(2*r.low*reopened.Sub(l.hit).Seconds())))
	}
	r.opened, l.seen = mark{start, r.total}, now
	l.begin(reopened)
	r.hold(l.crowd.trip())
}

// besideFirst has the pace rise from the first measure on: it says little where some of what was refused came by chance.
func (l *learner) besideFirst() {
	r := &l.rate
	*r = throughput{low: r.low, cycle: shortestCycle, climb: steeply, cost: heldFor * tooMany,
		history: history{total: r.total, burst: r.burst, zeros: r.zeros, opened: r.opened}}
}

// hold keeps to the rate for long before more is tried, and at first to less, which tells the share that comes by chance.
// More costs as many refusals as are too many, and what is on its way then: usual is how many seconds a request takes.
func (t *throughput) hold(usual float64) {
	t.pressed, t.cost, t.clean = 0, int64(heldFor*(tooMany+t.low*usual)), cleanFor
}

// goOn goes back to what was known, where nothing has come of it that less was tried: the pace rises on where it
// rose steeply, and a rate is kept to as after a refusal.
func (p *partition) goOn(now time.Time, known throughput) {
	l := &p.learner
	l.begin(now)
	if l.rate.takeUp(known); l.rate.climb == 0 {
		l.rate.hold(l.crowd.trip())
	}
	p.setLearnedRate(now)
}
