package heed

import (
	"math"
	"time"
)

// Some origins refuse a few of all requests by chance, as backends and balancers do that fail
// now and then, and have no limit at all. What tells the two apart is that a limit refuses for
// the pace, and chance whatever the pace is:
//
//   - Of those that are in flight when a limit refuses, most of the later ones are refused, too;
//     by chance, few are.
//   - A limit that is cut is soon found further down. Where a part of the origin is out of order as
//     many of each hundred are refused at any pace, and whoever keeps to what is let through ends at
//     next to nothing.
//   - A limit refuses nothing at a pace well below what it let through before, from one refusal to the
//     next; chance refuses as many of each hundred. Only two kinds of limit do: a strict one, where
//     requests met on their way to it, and one that was cut, which then refuses many more. So the refusal
//     of a request that was not alone counts only if sixteen were accepted since the one before it, and if
//     next to none of those in flight when the latest blocks began were refused.
//
// Neither is proof: a limit may let through nearly all that is wanted, or be cut step by step. So
// whoever takes it for chance is put right soon. From then on a refused request waits by itself,
// and all are counted: one up for each refused, and down for each accepted by a few times the share
// that is usually refused. A limit drives that count up within a handful of refusals, at whatever
// share chance hardly ever does, once a share that was high is over: else that would explain all that
// the limit refuses. Where many are refused that count tells little: a bucket whose burst hid how low its
// rate is would be taken for chance for ever, for each that it refuses waits, and so as many of each hundred
// are refused again. So it is tried whether fewer are at a lower pace (slower.go). Where it was a limit, chance
// has to show for several times as long the next time, or at a rate far below what that let through. There may be
// both: see beside.go. A learned rate is not given up at once, for that would let all go that wait: the pace rises
// from what was let through before on, or from several times what it fell to, until it is plain that there is none.
type chance struct {
	share  float64       // of requests refused of late; 0: none is known to be refused by chance
	seen   float64       // requests that tell it, no more than are of late
	inARow int           // so many were accepted since the latest refusal that tells it
	hint   time.Duration // how long those ask to wait; 0: they do not say
	others bool          // they may be a limit's that others use, too: each asks to wait, and none is a 503
	excess float64       // refusals beyond what that explains …
	calm   float64       // … the share when there were none …
	then   float64       // … and the pace
	quiet  float64       // so many more would have been refused of those accepted of late than twice those that were …
	passed int           // … which were so many …
	struck int           // … and so many were refused
	slower slower

	let    int64   // accepted before the latest refusal, since the one before …
	alike  int     // … and as many times in a row before that
	met    int64   // in flight, and accepted, when the latest blocks began that met next to nothing else
	close  int     // blocks in a row before which hardly any were accepted
	odds   int     // refusals at a pace that is well below …
	proven float64 // … what was let through before, between two refusals of late
	failed int     // times that it was a limit …
	kept   float64 // … which let through so much

	blocks  int     // in close succession …
	refused int64   // … requests refused in them …
	since   int64   // … what had been accepted until the first, ever …
	top     float64 // … the pace then, or before: since so many were accepted in a row that hardly any come by chance …
	low     float64 // … the rate as it was lately …
	before  float64 // … and a few of them before: where it stays as it is, it is a limit's
}

const (
	byFar        = 4             // times the share that is usual, and more than chance refuses …
	byMore       = 2             // … and where a limit is known, too: no more of what it refuses is to be explained
	usually      = 1. / 64       // of all requests: a share that harms nobody
	hardlyAny    = 1. / 512      // … one that makes hardly any difference …
	aTrace       = hardlyAny / 4 // … and one that is as good as none
	lately       = 256           // requests
	plainly      = 2048          // accepted in a row: of those a few would have been refused if hardly any were
	tooMany      = 6             // refusals in excess …
	tooManyMore  = 4             // … and where a limit is known, too
	timeAndAgain = 2             // refusals that tell of chance, at first
	farBelow     = 0.9           // of what is let through: a limit that holds still refuses nothing there
	severalTimes = 4             // less than a limit was found to let through: it is none; nor is the rate that a pace fell to
	asBefore     = 0.1           // of a rate: found no further off, it is as it was
	inSuccession = 6             // blocks that follow each other closely: no limit that is cut is found in so many …
	halfway      = 3             // … and the rate falls on from so many of them to the next
	steeply      = 2             // doublings of the pace in a cycle, where there may be no limit at all
)

// byChance reports whether a refusal came by chance, or was
// one too many for that, so that there is a limit. One that names another time than the one before, or
// than those that came by chance, is a limit's, and so it is where such times were too short: they tell
// of what is left.
func (p *partition) byChance(now time.Time, r *rejection) (yes, excess bool) {
	l, pm := &p.learner, r.pm
	c, t := &l.chance, &l.rate
	usual := l.hint
	if c.share > 0 {
		usual = c.hint
	}
	others := r.hint > 0 && !r.whole
	switch {
	case l.blocked:
	case r.hint > 0 && (l.short.times > 0 || r.hint != usual):
		c.blocks, c.top = 0, 0 // however far the pace fell
	case c.share > 0:
		c.others = c.others && others
		excess = p.stillByChance(now, pm)
		return !excess, excess
	case r.fresh && t.low > 0 && len(t.zeros) > 0:
		if through := c.shows(t, pm.start, &l.block, pm.level == 1 && !p.lastStart.After(pm.start)); through > 0 {
			c.hint, c.others = r.hint, others
			p.letGo(now, through)
			return true, false
		}
	}
	return false, false
}

// take takes refusals from now on to come by chance, as long as no more are refused than such a
// share explains, or a few in a hundred.
func (c *chance) take(share float64) {
	share = max(share, 2*usually)
	*c = chance{share: share, seen: lately / 4, calm: share, failed: c.failed, kept: c.kept}
}

// inFlight takes in that of what was in flight at the first refusal, and had been sent after that
// request, so many more were refused and so many accepted, and one that was sent later. It
// reports whether the first refusal is taken to have come by chance.
func (c *chance) inFlight(refused, accepted int64) bool {
	if c.failed > 0 || accepted < few+4*refused {
		return false
	}
	c.take(0)
	return true
}

// shows takes in that a request sent at start was refused at a learned rate, after a block. Where it has come to tell of
// chance it returns where the pace rises from: what was let through before those lowered it, or several times what it fell
// to; else 0. alone: no other request was on its way meanwhile.
func (c *chance) shows(r *throughput, start time.Time, b *block, alone bool) (through float64) {
	c.meet(b)
	n, probes := r.total-r.zeros[0].n, b.probes
	c.count(n)
	// A window lets through as many each time, and is shut then. Backends that take turns do as well, but are never shut.
	even := n > 1 && c.alike >= timeAndAgain && (probes > 0 || b.timed && b.closed() > time.Second)
	if even || c.found(r, start, n) {
		c.blocks, c.top = 0, 0
	}
	if c.fell(r, start, n, probes) {
		through = max(severalTimes*r.low, c.proven)
		c.take(float64(c.refused) / float64(c.refused+r.total-c.since))
		return through
	}
	if n >= few/2 {
		c.close = 0
	}
	switch {
	case n < few/2 && probes <= 1 && c.close == 0: // chance rarely refuses in close succession …
		c.odds, c.close = max(c.odds-1, 0), 1
		return 0
	case n < few/2, probes > 1: // … and hardly ever so many, but a limit that was cut does
		c.odds, c.proven = 0, 0
		return 0
	case r.pace() <= farBelow*c.proven && (alone && r.penalty == 0 || n >= farFewer && c.met >= 2*few): // else more would have been
		c.odds += 2
	case r.pace() > r.low: // refused as an attempt at more, it may tell of a limit
		c.odds = max(c.odds-1, 0)
	}
	if n >= few {
		// What was on its way at the refusal before and was let through is no pace that was kept up.
		accepted := r.total - max(r.zeros[0].n, r.opened.n)
		c.proven = max(c.proven, rateOf(accepted, start.Sub(r.zeros[0].at)))
	}
	if c.odds < 2*timeAndAgain<<min(2*c.failed, few) {
		return 0
	}
	through = max(r.low, c.proven)
	c.take(0)
	return through
}

// meet takes in what came of what was in flight when a block began.
func (c *chance) meet(b *block) {
	if few*b.also > b.meanwhile {
		c.met = 0
	} else {
		c.met += b.meanwhile
	}
}

// found reports whether a request sent at start was refused after n accepted ones where more was tried than a rate that
// the pace had fallen to, and that is what was let through once more: that is a limit's. By chance it would have been more.
func (c *chance) found(r *throughput, start time.Time, n int64) bool {
	return n >= few && c.fallen(r) && r.pace() > r.low && math.Abs(r.least(start)/r.low-1) <= asBefore
}

// count takes in that n were accepted since the refusal before.
func (c *chance) count(n int64) {
	if n != c.let {
		c.let, c.alike = n, 0
	} else {
		c.alike++
	}
}

// fell takes in a refusal after n accepted requests and a block of so many more refusals. It reports
// whether the pace has fallen so far, in so many steps and with as many accepted as refused on the
// way, that no limit is as far down: a part of the origin is out of order. A limit that was found before
// is met again where it was, in a few steps: the pace has to be far below that, or to have fallen in many more.
func (c *chance) fell(r *throughput, start time.Time, n int64, probes int) bool {
	if looked := r.doubt > 0 || r.trial; n >= 2*few || c.blocks == 0 || looked { // while the rate is looked for, no pace is one that was kept up
		if n >= attemptCost || looked { // chance hardly accepts so many in a row that it would matter
			c.top = 0
		}
		pace := r.pace()
		if r.climb > gently { // it may have risen far within a few requests
			pace = min(pace, rateOf(r.total-r.opened.n, start.Sub(r.opened.at)))
		}
		c.blocks, c.refused, c.since, c.top = 1, 1, r.total, max(c.top, pace)
		return false
	}
	if c.blocks++; c.blocks%halfway == 0 {
		c.before, c.low = c.low, r.low
	}
	c.refused += int64(1 + probes)
	return c.blocks >= inSuccession && c.fallen(r) && r.low <= farBelow*c.before && r.total-c.since >= c.refused &&
		(c.kept == 0 || r.low <= c.kept/severalTimes || c.blocks >= 4*inSuccession)
}

// fallen reports whether the rate is far lower than the pace was a few requests before.
func (c *chance) fallen(r *throughput) bool { return c.blocks > 1 && r.low <= c.top/farFewer }

// rested takes in that what was let through before tells nothing of the time since.
func (c *chance) rested() {
	c.proven, c.blocks, c.top, c.met, c.let, c.alike = 0, 0, 0, 0, 0, 0
	c.slower.rested()
}

// well takes in that a request sent at start was accepted at a learned rate, and reports whether there turns out to be
// a limit, where fewer are refused at a pace below what it lets through; then it returns the rate, too. Where a part of
// the origin was out of order it is well again after far more in a row than it would have let through.
func (c *chance) well(start time.Time, r *throughput) (rate float64, limit bool) {
	switch {
	case c.share == 0:
		return 0, false
	case c.slower.well(start):
		return c.isLimit(), true
	case c.slower.trying():
		return 0, false
	}
	by := float64(byFar)
	if r.low > 0 {
		by = byMore
	}
	if c.excess = max(c.excess-by*max(c.share, usually), 0); c.excess == 0 {
		c.calm, c.then = c.share, r.pace()
	}
	c.tally(r, 0)
	if c.keeps(r) {
		c.passed++
		c.quiet += max(c.share, hardlyAny)
	}
	switch {
	case c.quiet > 2*few:
		c.fewer()
	case r.low > 0 && c.share < aTrace && c.inARow >= plainly:
		c.over()
	}
	return 0, false
}

// strikes takes in that a request was refused at a pace that keeps to what is known.
func (c *chance) strikes() {
	c.struck++
	c.quiet -= 2 // one by one, what chance accepts between two refusals does not add up, but far more does
	if c.quiet <= 0 {
		c.quiet, c.passed, c.struck = 0, 0, 0
	}
}

// fewer takes in that far fewer are refused than was thought: where some still are that is their share, and else it is over.
// What was counted by the share that was thought tells nothing any more.
func (c *chance) fewer() {
	share := float64(c.struck) / float64(c.passed)
	if share <= aTrace {
		c.over()
		return
	}
	c.share, c.seen, c.calm = share, float64(min(c.passed, lately)), min(c.calm, share)
	c.excess, c.quiet, c.passed, c.struck = 0, 0, 0, 0
	c.slower.rested()
}

// tells reports whether what is refused at the present pace tells of chance: where a limit is known, only well below that.
func (c *chance) tells(r *throughput) bool { return r.low == 0 || r.pace() <= farBelow*r.low }

// keeps reports whether the present pace is no higher than what is known: beyond, what is refused is likelier the limit's.
func (c *chance) keeps(r *throughput) bool { return r.low == 0 || r.pace() <= r.low }

// tally takes in one more request, of which so many were refused.
func (c *chance) tally(r *throughput, refused float64) {
	if c.tells(r) {
		c.seen = min(c.seen+1, lately)
		c.share += (refused - c.share) / c.seen
		if c.inARow++; refused > 0 {
			c.inARow = 0
		}
	}
}

// over takes it that nothing comes by chance: no more, or it never did, where a limit in flight explains it.
func (c *chance) over() { *c = chance{failed: c.failed, kept: c.kept} }

// isLimit takes what was refused at a higher pace to be a limit's, and returns its rate. What is refused at
// the lower pace as well still comes by chance.
func (c *chance) isLimit() (rate float64) {
	through, still := c.slower.through, c.slower.still()
	hint, others := c.hint, c.others
	*c = chance{failed: c.failed + 1, kept: through}
	if still >= usually {
		c.take(still)
		through /= 1 - still
	}
	c.hint, c.others, c.proven = hint, others, c.kept
	return through
}
