package heed

import "time"

// Some origins refuse a few of all requests by chance, as backends and balancers do that fail
// now and then, and have no limit at all. What tells the two apart is that a limit refuses for
// the pace, and chance whatever the pace is:
//
//   - Of those that are in flight when a limit refuses, most of the later ones are refused, too;
//     by chance, few are.
//   - A limit that is cut is soon found further down. Where a part of the origin is out of order as
//     many of each hundred are refused at any pace, and whoever keeps to what is let through ends at
//     next to nothing.
//   - A limit refuses nothing at a pace well below what it let through just before, from one
//     refusal to the next; chance refuses as many of each hundred. Only a strict limit does, where
//     requests met on their way to it, so that no refusal counts of one that was not alone.
//
// Neither is proof: a limit may let through nearly all that is wanted, or be cut step by step. So
// whoever takes it for chance is put right soon. From then on a refused request waits by itself,
// and all are counted: one up for each refused, and down for each accepted by a few times the share
// that is usually refused. A limit drives that count up within a handful of refusals, at whatever
// share chance hardly ever does, once a share that was high is over: else that would explain all that
// the limit refuses. Where many are refused that count tells little: a bucket whose burst hid how low its
// rate is would be taken for chance for ever, for each that it refuses waits, and so as many of each hundred
// are refused again. So it is tried whether fewer are at a lower pace (slower.go). Where it was a limit, chance
// has to show for several times as long the next time, or at a rate far below what that let through; but a
// refusal well below what the limit was seen to let through does not lower the pace any more, unless there are
// too many of them. A learned rate is not given up at once, for that would let all go that wait: the pace rises
// from several times that rate on, until it is plain that there is none.
type chance struct {
	share  float64 // of requests refused of late; 0: none is known to be refused by chance
	excess float64 // refusals beyond what that explains
	quiet  float64 // so many more would have been refused of those accepted of late than twice those that were
	slower slower

	odds   int     // refusals at a pace that is well below …
	proven float64 // … what was let through before, between two refusals of late
	failed int     // times that it was a limit …
	kept   float64 // … which let through so much

	blocks  int     // in close succession …
	refused int64   // … requests refused in them …
	since   int64   // … what had been accepted until the first, ever …
	top     float64 // … and the pace then, or before: since so many were accepted in a row that hardly any come by chance
}

const (
	byFar        = 4       // times the share that is usual, and more than chance refuses
	usually      = 1. / 64 // of all requests: a share that harms nobody
	lately       = 256     // requests
	tooMany      = 6       // refusals in excess
	timeAndAgain = 3       // refusals that tell of chance, at first
	farBelow     = 0.9     // of what is let through: a limit that holds still refuses nothing there
	severalTimes = 4       // the rate that a limit was taken to have
	steeply      = 2       // doublings of the pace in a cycle, where there may be no limit at all
)

// byChance takes in that pm's request was refused, and reports whether that came by chance, or was
// one too many for that, so that there is a limit. One that names another time than the one before is
// a limit's, and so it is where such times were too short: they tell of what is left. Where there was
// a limit though refusals came by chance, there may be both: one that comes well below what the limit
// lets through does not make the pace lower still.
func (p *partition) byChance(now time.Time, pm *Permit, fresh bool, hint time.Duration) (yes, excess bool) {
	l := &p.learner
	c, r := &l.chance, &l.rate
	switch {
	case l.blocked, hint > 0 && (l.short.times > 0 || hint != l.hint):
	case c.share > 0:
		excess = p.stillByChance(now, pm)
		return !excess, excess
	case fresh && r.low > 0 && len(r.zeros) > 0 && c.shows(r, pm.start, l.probes, pm.level == 1 && !p.lastStart.After(pm.start)):
		p.letGo(now, r.low)
		return true, false
	case c.failed > 0 && r.low > 0 && r.pace() <= farBelow*c.proven:
		if c.excess++; c.excess < tooMany {
			return true, false
		}
		c.excess, c.proven = 0, 0
	}
	return false, false
}

// take takes refusals from now on to come by chance, as long as no more are refused than such a
// share explains, or a few in a hundred.
func (c *chance) take(share float64) {
	*c = chance{share: max(share, 2*usually), failed: c.failed, kept: c.kept}
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

// shows takes in that a request sent at start was refused at a learned rate, after a block of so
// many refusals, and reports whether it has come to tell of chance. alone: no other request was on
// its way meanwhile.
func (c *chance) shows(r *throughput, start time.Time, probes int, alone bool) bool {
	n := r.total - r.zeros[0].n
	if c.fell(r, n, probes) {
		c.take(float64(c.refused) / float64(c.refused+r.total-c.since))
		return true
	}
	switch {
	case n < few/2 || probes > 1: // chance hardly refuses in close succession, but a limit that was cut does
		c.odds, c.proven = 0, 0
		return false
	case r.pace() > r.low: // refused as an attempt at more, it may tell of a limit
		c.odds = max(c.odds-1, 0)
	case alone && r.pace() <= farBelow*c.proven:
		c.odds += 2
	}
	if n >= few {
		// What was on its way at the refusal before and was let through is no pace that was kept up.
		through := r.total - max(r.zeros[0].n, r.opened.n)
		c.proven = max(c.proven, rateOf(through, start.Sub(r.zeros[0].at)))
	}
	if c.odds < 2*timeAndAgain<<min(2*c.failed, few) {
		return false
	}
	c.take(0)
	return true
}

// fell takes in a refusal after n accepted requests and a block of so many more refusals. It reports
// whether the pace has fallen so far, in so many steps and with as many accepted as refused on the
// way, that no limit is as far down: a part of the origin is out of order. A limit that was found before
// is met again where it was, in a few steps: the pace has to be far below that, or to have fallen in many more.
func (c *chance) fell(r *throughput, n int64, probes int) bool {
	if looked := r.doubt > 0 || r.trial; n >= 2*few || c.blocks == 0 || looked { // while the rate is looked for, no pace is one that was kept up
		if n >= attemptCost || looked { // chance hardly accepts so many in a row that it would matter
			c.top = 0
		}
		c.blocks, c.refused, c.since, c.top = 1, 1, r.total, max(c.top, r.pace())
		return false
	}
	c.blocks++
	c.refused += int64(1 + probes)
	return c.blocks >= 2*timeAndAgain && c.fallen(r) && r.total-c.since >= c.refused &&
		(c.kept == 0 || r.low <= c.kept/severalTimes || c.blocks >= 8*timeAndAgain)
}

// fallen reports whether the rate is far lower than the pace was a few requests before.
func (c *chance) fallen(r *throughput) bool { return c.blocks > 1 && r.low <= c.top/farFewer }

// rested takes in that what was let through before tells nothing of the time since.
func (c *chance) rested() {
	c.proven, c.blocks, c.top = 0, 0, 0
	c.slower.rested()
}

// well takes in that a request sent at start was accepted, and reports whether there turns out to be a limit, where
// hardly any are refused at a pace below what it lets through. Where a part of the origin was out of order it is well
// again after far more in a row than it would have let through.
func (c *chance) well(start time.Time) (limit bool) {
	if c.share == 0 || !c.slower.trying() {
		c.excess = max(c.excess-byFar*max(c.share, usually), 0)
	}
	if c.share == 0 {
		return false
	}
	if limit = c.slower.well(start, c.share); limit {
		*c = chance{failed: c.failed + 1, kept: c.slower.through, proven: c.slower.through}
	}
	if limit || c.slower.trying() {
		return limit
	}
	c.quiet += c.share
	c.share -= c.share / lately
	if c.quiet > 2*few { // half as many come by chance every few minutes, where a quarter is refused
		*c = chance{failed: c.failed, kept: c.kept}
	}
	return false
}
