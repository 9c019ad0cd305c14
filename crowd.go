package heed

import (
	"math"
	"time"
)

// A crowd is how many requests in flight a limit that nobody announces allows.
// Half of what was in flight at the first refusal is tried, and from there an eighth more each time until that has
// been too many, and then one more.
type crowd struct {
	testing bool      // whether it is such a limit: one request is sent alone to see
	tooMany int64     // in flight when the first was refused …
	guess   int64     // … and half of that or, of very many, half of it again, which is tried in place of it
	stood   bool      // the guess did for two rounds
	well    int64     // in flight, at most, with one that had been accepted by the time one of those refused then went
	most    int64     // in flight in this cycle …
	often   int64     // … and how many requests that were the last of so many were accepted
	before  int64     // what was allowed before more was tried last …
	refusal int64     // … and when one was refused last
	pressed int64     // accepted with so many while others were waiting
	patient int64     // accepted requests before more is tried; 0: that has not failed yet
	streak  streak    // since the latest refusal that was put down to it …
	cut     time.Time // … when it came …
	lost    int64     // … and how many were refused then
	usual   float64   // logarithm of the seconds that accepted requests take, for the most part; 0: not known
}

const (
	oneMoreCost = 110  // accepted requests over which a refusal is to be spread
	apartBy     = 1.04 // times as far apart as evenly is: one that comes as another leaves may be too early
	fewAtOnce   = 16   // in flight: with so few, chance decides how many meet at the origin
)

// accepted takes in that a request was accepted that took so long, and was one
// of so many in flight when it went.
func (c *crowd) accepted(took time.Duration, inFlight int64) {
	// The mean of the logarithm is near the median, which few slow answers hardly move.
	x := math.Log(max(took, time.Microsecond).Seconds())
	if c.usual == 0 {
		c.usual = x
	}
	c.usual += (x - c.usual) / 8
	if inFlight > c.most {
		c.most, c.often = inFlight, 0
	}
	if inFlight == c.most {
		c.often++
	}
}

// trip is how many seconds requests take.
func (c *crowd) trip() float64 { return math.Exp(c.usual) }

// refused takes in the first refusal of a block, with so many in flight, and
// reports whether that can have been too many: so few so often went well that it
// cannot.
func (c *crowd) refused(inFlight int64) bool {
	c.tooMany = max(c.most, inFlight)
	often := c.tooMany == c.most && c.most <= 4 && c.often >= 8*c.most
	return c.tooMany > 1 && !often
}

// tooFew reports whether so many were refused of those in flight that far fewer got through than had before: a limit in flight
// lets in as many each time.
func (c *crowd) tooFew(refused int64) bool { return c.tooMany-refused < c.well/2-1 }

// sudden reports whether the refusal came as soon as there were so many in flight,
// and not after so many requests. With many it is the same.
func (c *crowd) sudden(accepted int64) bool {
	return c.tooMany > 1 && c.tooMany <= fewAtOnce && accepted <= 2*c.tooMany
}

// more returns, once, how many more may be tried: so many requests were accepted
// with this many in flight.
func (c *crowd) more(inFlight int64) (more int64) {
	c.pressed++
	c.stood = c.stood || c.pressed >= 2*inFlight
	if inFlight > c.refusal*5/4 { // far more than were too many
		c.patient = 0
	}
	patience, more := c.patient, int64(1)
	if patience == 0 {
		patience, more = 4*inFlight, max(inFlight/8, 1)
	}
	if c.pressed < patience {
		return 0
	}
	c.pressed, c.streak.tried = 0, true
	return more
}

// A streak is what is let through from one refusal to the next. A window lets through as many each time; a limit in
// flight does so only where each refusal is brought about by one more that is tried, after as many.
type streak struct {
	began  time.Time // when the refusal before it came, or the first of several with nothing let through between them
	from   time.Time // when the first of them was sent
	n      int64     // of those that were sent since it came …
	late   int64     // … and before that, which no wait for it is between
	before int64     // in the one before
	tried  bool      // more was, meanwhile
}

// next is the streak after one more refusal, which comes now.
func (k *streak) next(now time.Time) streak {
	if k.n+k.late == 0 && !k.began.IsZero() {
		now = k.began
	}
	return streak{began: now, before: k.n}
}

func (k *streak) accepted(start time.Time) {
	if !start.After(k.began) {
		k.late++
		return
	}
	if k.n++; k.n == 1 {
		k.from = start
	}
}

// again reports whether as many were let through as the time before, though nothing more was tried. Others may have
// used a few of them, so it need not be exactly as many.
func (k *streak) again() bool {
	off := k.before/few + 1
	return !k.tried && k.n >= few && k.before-off <= k.n && k.n <= k.before+off
}

// fewer says that even so many were too many: at once, or once by chance. Where the refusal asked for a
// wait, none of those goes that might have been sent meanwhile; they are part of its cost, as under a rate, and so are
// all that were refused the last time.
func (c *crowd) fewer(inFlight int64, asked time.Duration) {
	wait := int64(waitCost * asked.Seconds() * float64(inFlight) / c.trip())
	cost, most := oneMoreCost*max(c.lost, 1)+wait, 8*(oneMoreCost+wait)
	if c.pressed < 2*inFlight {
		cost = min(2*max(c.patient, cost), max(most, cost))
	}
	c.patient = cost
}

// refusesAll reports whether all that was in flight at the refusal before the latest streak is answered, and nothing
// was accepted since. A limit in flight has let in as many as it allows, and those are accepted in the end.
func (p *partition) refusesAll() bool {
	k := &p.learner.crowd.streak
	if k.n+k.late > 0 || k.began.IsZero() {
		return false
	}
	for pm := p.inFlight.oldest; pm != nil && pm.start.Before(k.began); pm = pm.younger {
		if !pm.answered {
			return false
		}
	}
	return true
}

// inFlightLearned returns the slot of a learned limit in flight, nil where
// there is none.
func (p *partition) inFlightLearned() *slot {
	return p.slot(SourceLearned, learnedPolicy, "", UnitConcurrentRequests)
}

// learnInFlight caps requests in flight.
func (p *partition) learnInFlight(now time.Time) {
	c := &p.learner.crowd
	p.learner.chance.over()
	c.guess, c.pressed, c.stood, c.streak = max(c.tooMany/2, 1), 0, false, streak{}
	s := newSlot(Policy{Name: learnedPolicy, Quota: c.guess, Unit: UnitConcurrentRequests}, SourceLearned)
	p.slots = append(p.slots, s)
	p.charge(now, s)
	p.opening.restartWarily(now) // it may be a rate after all
	p.news = true
	p.emit(Event{Kind: EventLearned, Time: now, Policy: learnedPolicy, Quota: c.guess, Unit: UnitConcurrentRequests, Learned: true, Remaining: -1})
}

// moreInFlight tries more now and then. Where far more than were too many
// are well, nothing limits them.
func (p *partition) moreInFlight(s *slot) {
	c := &p.learner.crowd
	more := c.more(s.policy.Quota)
	if more == 0 {
		return
	}
	c.before = s.policy.Quota
	s.policy.Quota += more
	s.terms.Quota += more
	p.news = true
	if s.policy.Quota > 16*c.tooMany {
		p.unlearn()
	}
}

// fewerInFlight takes in that a request was refused though no more were in flight than the learned limit allows, and
// asked for a wait. As many are allowed as before more was tried, if that failed for the first time; one less; or half as
// many, where the guess has not stood yet or is of many. It reports false where it cannot have been for that, since so many
// had been accepted, or so few were in flight.
func (p *partition) fewerInFlight(now time.Time, s *slot, inFlight int64, asked time.Duration) bool {
	c := &p.learner.crowd
	n, least, halved := s.policy.Quota-1, c.guess/2, false
	switch {
	case s.policy.Quota > c.guess: // which stood
		least = 0
		if c.patient == 0 {
			n = c.before
		}
	case !c.stood && inFlight < s.policy.Quota/2:
		return false
	case !c.stood, c.guess > fewAtOnce: // it can be far fewer
		n, least, halved = s.policy.Quota/2, c.tooMany/8, true
	}
	if n < max(least, 1) {
		return false
	}
	switch {
	case halved && c.tooMany > 2*fewAtOnce: // that is another guess
		c.guess, c.stood, c.patient = n, false, 0
	case c.stood:
		c.fewer(n, asked)
	}
	c.refusal, c.cut, c.lost, c.pressed = s.policy.Quota, now, 1, 0
	s.policy.Quota, s.terms.Quota = n, n
	return true
}

// spacing is how far apart requests go under a limit in flight: so that they are
// evenly on their way. A strict rate may look like such a limit, and refuses
// those that come together.
func (p *partition) spacing() time.Duration {
	s := p.inFlightLearned()
	if s == nil || s.policy.Quota < 2 {
		return 0
	}
	return time.Duration(apartBy * p.learner.crowd.trip() / float64(s.policy.Quota) * float64(time.Second))
}
