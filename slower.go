package heed

import (
	"math"
	"time"
)

// Where many are refused by chance no refusal is ever one too many: what a limit refuses of those that were
// refused before looks just like that. What tells them apart is a lower pace. Of requests that go at less than
// was let through until then a limit refuses none, and chance as many of each hundred. So that is tried time and
// again, at no cost where it is chance, and where it is a limit its rate is known: what was let through.
//
// Several processes that have a limit in common, and do not know of one another, cannot tell: what one of them leaves
// others take, and so as many of each hundred are refused at its lower pace. If all went back to their own, most of what
// they send would be refused, for good. So where much is refused, whoever has found that a lower pace makes no difference
// stays well below what is let through, until that is over or long enough: together they ask for less than the limit then.
// Where it is chance, that costs a part of what could be had meanwhile.
type slower struct {
	refused  int       // since …
	from     time.Time // … this, when it was tried last or is being tried …
	accepted int64     // … and accepted
	often    int       // times that as many were refused all the same …
	modest   bool      // … and the pace was kept low the last time

	through float64     // what was let through, while less is tried; 0: it is not …
	share   float64     // … the share that was refused until then …
	before  *throughput // … and what was known; nil: nothing was
	beyond  float64     // refusals beyond half the share that is usual
}

const (
	tellsApart = 4   // refusals beyond half of those that are usual, or short of that
	tryAfter   = 64  // refusals, and twice as many each time that it was chance …
	doublesFor = 4   // … up to so many times: for most of fewer a window may have been shut, or a bucket full
	modestly   = 0.6 // of what is let through, where much is refused all the same
)

// due reports whether a lower pace is to be tried after a refusal by chance, where it was in vain so often.
func (s *slower) due(often int) bool {
	return s.accepted >= few && s.refused >= tryAfter<<min(often, doublesFor)
}

// begin begins to try a lower pace than at what is known, and returns that.
func (s *slower) begin(now time.Time, known throughput) float64 {
	through := rateOf(s.accepted, now.Sub(s.from))
	*s = slower{often: s.often, modest: s.modest, from: now, through: through, share: float64(s.refused) / float64(int64(s.refused)+s.accepted)}
	if known.low > 0 {
		s.before = &known
	}
	return backOff * through
}

// trying reports whether a lower pace is being tried.
func (s *slower) trying() bool { return s.through > 0 }

// well takes in that one sent at start was accepted, and reports whether it is a limit: hardly any are refused at the lower
// pace, where a larger share was before.
func (s *slower) well(start time.Time) bool {
	if s.from.IsZero() {
		s.from = start
	}
	if start.Before(s.from) { // of the time before
		return false
	}
	s.accepted++
	if s.trying() {
		s.beyond -= s.share / (2 - s.share)
	}
	return s.beyond <= -tellsApart
}

// refuses takes in that one sent at start was refused at the lower pace, and reports whether that makes no difference.
func (s *slower) refuses(start time.Time) bool {
	if start.Before(s.from) {
		return false
	}
	s.beyond++
	return s.beyond >= tellsApart
}

// still is the share that was refused at the lower pace.
func (s *slower) still() float64 {
	refused := s.beyond + float64(s.accepted)*s.share/(2-s.share)
	return refused / (refused + float64(s.accepted))
}

// over begins to count anew, after it was tried in vain.
func (s *slower) over(now time.Time) { *s = slower{often: s.often + 1, from: now} }

// rested takes in that what was let through tells nothing of the time since.
func (s *slower) rested() { s.refused, s.from, s.accepted, s.beyond = 0, time.Time{}, 0, 0 }

// stillByChance takes in that pm's request was refused where refusals come by chance, and reports whether it was one
// too many for that, so that there is a limit.
func (p *partition) stillByChance(now time.Time, pm *Permit) (excess bool) {
	c, s := &p.learner.chance, &p.learner.chance.slower
	r := &p.learner.rate
	if s.trying() {
		if s.refuses(pm.start) {
			known, through := s.before, s.through
			s.over(now)
			switch {
			case c.much() && !p.learner.pages.are(): // those are refused at any pace
				s.modest = true
				p.keepModest(now, through)
			case known != nil:
				p.goOn(now, *known)
			default:
				p.letGo(now, r.low)
			}
		}
		return false
	}
	c.tally(r, 1)
	if c.keeps(r) {
		c.strikes()
	}
	s.refused++
	// So many in a row are as unlikely, whatever the share is.
	most := float64(tooMany)
	if r.low > 0 {
		most = tooManyMore
	}
	if c.excess += min(1, -math.Log2(c.share)/byFar); c.excess >= most || s.refused >= lately && s.accepted < few {
		c.exceeded(r)
		return true
	}
	switch {
	case r.modest > 0:
		if s.due(s.often) { // more may be let through by now, or wanted
			s.rested()
			p.letGo(now, r.low)
		}
	case c.share >= c.worthTrying() && (s.due(s.often) || s.modest && s.due(0)):
		p.learner.begin(now)
		*r = throughput{low: s.begin(now, *r), cycle: shortestCycle, cost: math.MaxInt64, history: history{total: r.total, burst: r.total + 1}}
		p.beginAtRate(now)
	}
	return false
}

// worthTrying is the share of refusals from which on a lower pace is tried. Where each asks to wait nothing goes meanwhile: what
// others use of a limit never has many refused in a row then, which would tell it from chance.
func (c *chance) worthTrying() float64 {
	if c.others {
		return usually
	}
	return byFar * usually
}

// much reports whether so much is refused that it may be a limit's, whatever a lower pace told. Where each asks to wait that
// is likelier: backends that fail hardly ever do.
func (c *chance) much() bool {
	if c.others {
		return c.share >= 1./8
	}
	return c.share >= 1./4
}

// keepModest has requests go at a pace well below what was let through, as long as much is refused.
func (p *partition) keepModest(now time.Time, through float64) {
	l := &p.learner
	l.begin(now)
	l.rate = throughput{low: through, modest: modestly * through, cycle: shortestCycle, history: history{total: l.rate.total, burst: l.rate.total + 1}}
	p.setLearnedRate(now)
}

// noMoreModest has the pace rise again, now that not much is refused any more.
func (t *throughput) noMoreModest() {
	t.low, t.modest, t.climb, t.cost, t.pressed = t.modest, 0, gently, heldFor*tooMany, 0
}

// letGo has the pace rise steeply from a rate on.
func (p *partition) letGo(now time.Time, rate float64) {
	l := &p.learner
	r := &l.rate
	l.begin(now)
	*r = throughput{low: rate, cycle: shortestCycle, climb: steeply, history: history{total: r.total, burst: r.burst}}
	p.setLearnedRate(now)
}
