package heed

import (
	"math"
	"time"
)

// A strict limit lets through a request only when a spacing has passed since the one before it arrived.
// Where latencies scatter by more than that, requests that went evenly arrive in bunches, and some are refused
// at any pace: the one that is left is far below the limit. What helps is to know when a request arrived: it
// had, once its answer is there. So the next goes a spacing after the answer to the last one, less the time
// that an answer and a request take at least; or, where that answer does not come, after a wait. Both are
// found by what they cost: each becomes shorter bit by bit with what is accepted, and longer by a refusal
// that it is to blame for. Where all latencies are the same that would be the same as to go at a pace.
//
// It is tried where refusals go on and latencies scatter. Any other limit lets through more closely at times
// than it refuses at others: what was accepted and what was refused contradict each other then.
type strict struct {
	trips trips
	sent  [4]journey    // accepted lately …
	next  int           // … the oldest of them
	apart time.Duration // no further apart did two of them arrive; 0: none are known
	due   int           // blocks before it is tried
	tries int           // times that it was given up

	on       bool
	spacing  float64   // seconds between arrivals …
	less     float64   // … by what each that is accepted makes that shorter, as a logarithm
	wait     float64   // seconds that an answer is waited for …
	lessWait float64   // … in the same way
	last     time.Time // the latest request went …
	done     time.Time // … and was answered; zero: it is not yet
	alone    int       // refused in a row though no other was on its way

	before float64   // requests per second that went through at a pace
	since  time.Time // from then on …
	count  int64     // … so many were accepted
}

// A journey is from when a request went to its answer.
type journey struct{ from, to time.Time }

const (
	scattered    = 1. / 16         // of the spacing: where latencies differ by more, some of what is refused had met on the way
	spacingBy    = 1. / 16         // by what a refusal makes the spacing longer, as a logarithm …
	waitBy       = 1. / 4          // … and the wait
	eachCost     = 2 * attemptCost // accepted requests to spread a refusal for either of them over
	givenUpFor   = 64              // blocks, and twice as long each time
	givenUpTwice = 8               // times at most
)

// accepted takes in that a request was accepted; pressed: others were waiting; quickest is how long an answer took at least, ever.
func (s *strict) accepted(now, start time.Time, quickest time.Duration, pressed bool) {
	s.trips.measureTrip(now, start)
	for _, j := range s.sent {
		if d := max(now.Sub(j.from), j.to.Sub(start)) - quickest; !j.from.IsZero() && (s.apart == 0 || d < s.apart) {
			s.apart = max(d, 1)
		}
	}
	s.sent[s.next] = journey{start, now}
	s.next = (s.next + 1) % len(s.sent)
	switch {
	case !s.on || start.Before(s.since):
		return
	case !pressed:
		s.since, s.count = now, 0
		return
	}
	s.count++
	s.alone = 0
	s.spacing *= math.Exp(-s.less)
	s.wait = max(s.wait*math.Exp(-s.lessWait), s.spacing)
}

// scatter is how many seconds latencies mostly are longer than the shortest.
func (s *strict) scatter() float64 { return (s.trips.usual - s.trips.least).Seconds() }

// fits reports whether it may be such a limit that keeps the rate low.
func (s *strict) fits(low float64) bool {
	return s.scatter() > scattered/low && s.apart.Seconds() > 1/(farFewer*low)
}

// begin has requests go by answers, where they went at a pace so far, and so many per second were let through.
func (s *strict) begin(now time.Time, pace, before float64) {
	s.on, s.alone, s.last, s.done = true, 0, now, now
	s.spacing, s.less = min(1/pace, s.apart.Seconds()), spacingBy/2
	s.wait, s.lessWait = 2/pace, 8*waitBy/eachCost
	s.before, s.since, s.count = before, now, 0
}

// through is how many requests per second are let through.
func (s *strict) through(now time.Time) float64 {
	if s.count < few {
		return s.before
	}
	return rateOf(s.count, now.Sub(s.since))
}

// pays reports whether it is no worse than to go at a pace.
func (s *strict) pays(now time.Time) bool {
	if s.count < attemptCost {
		return true
	}
	rate := s.through(now)
	s.since, s.count = now, 0
	return rate > backOff*s.before
}

// free is when the next request may go.
func (s *strict) free() time.Time {
	at := s.last.Add(nanoseconds(s.wait * 1e9))
	if s.done.IsZero() {
		return at
	}
	return soonest(at, s.done.Add(nanoseconds(s.spacing*1e9)-s.trips.least))
}

func (s *strict) take(now time.Time) { s.last, s.done = now, time.Time{} }

func (s *strict) answered(now, start time.Time) {
	if start.Equal(s.last) {
		s.done = now
	}
}

// refused takes in that a request was refused that went so long after the latest answer to one that was accepted;
// alone: no other was on its way meanwhile.
func (s *strict) refused(start time.Time, since time.Duration, alone bool) {
	switch {
	case start.Before(s.since):
	case !alone, (since + s.trips.least).Seconds() < 0.99*s.spacing: // that answer was not waited for
		s.wait, s.lessWait = s.wait*math.Exp(waitBy), waitBy/eachCost
	default:
		s.spacing, s.less = s.spacing*math.Exp(spacingBy), spacingBy/eachCost
		s.alone++
	}
}

// contradicts reports whether it is no such limit where one was refused that arrived so long after all others, at least.
func (s *strict) contradicts(after time.Duration) bool {
	return s.apart > 0 && farBelow*float64(after) > float64(s.apart)
}

// keepsStrictly takes in that pm's request was refused, and reports whether requests go by answers all the same.
func (p *partition) keepsStrictly(now time.Time, pm *Permit, hint time.Duration) bool {
	l := &p.learner
	s := &l.strict
	since, alone := pm.start.Sub(l.last), pm.level == 1 && !p.lastStart.After(pm.start) && !l.last.IsZero()
	if s.on {
		s.refused(pm.start, since, alone)
	}
	switch {
	case alone && s.contradicts(since+l.quickest), s.on && (hint > 0 || s.alone > 1):
		p.giveUpStrict(now)
		return false
	}
	return s.on
}

// giveUpStrict has requests go at a pace again, and by answers no more for long.
func (p *partition) giveUpStrict(now time.Time) {
	l := &p.learner
	s := &l.strict
	if s.on {
		p.goEvenly(now, s.through(now))
	}
	*s = strict{trips: s.trips, tries: s.tries + 1, due: l.blocks + givenUpFor<<min(s.tries, givenUpTwice)}
}

// goEvenly has requests go at a pace again, as far as is known of such a limit.
func (p *partition) goEvenly(now time.Time, rate float64) {
	l := &p.learner
	l.strict.on = false
	l.rate.low, l.rate.climb, l.rate.pressed, l.rate.cost = rate, 0, 0, attemptCost
	l.rate.rested()
	l.begin(now)
}

// goByAnswers has requests go by answers where that may pay.
func (l *learner) goByAnswers(now time.Time) {
	s, r := &l.strict, &l.rate
	if l.blocks < max(timeAndAgain, s.due) || l.timed || r.doubt > 0 || r.penalty > 0 || r.trial || l.chance.share > 0 || !s.fits(r.low) {
		return
	}
	first := r.zeros[len(r.zeros)-1]
	s.begin(now, r.low, rateOf(r.total-first.n, now.Sub(first.at)))
}

// keepStrict looks whether it still pays that requests go by answers.
func (p *partition) keepStrict(now time.Time) {
	s := &p.learner.strict
	switch {
	case !s.on:
	case !s.pays(now):
		p.giveUpStrict(now)
	case s.scatter() < scattered*s.spacing/2: // all arrive as they went again
		p.goEvenly(now, 1/s.spacing)
	}
}
