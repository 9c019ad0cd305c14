package heed

import (
	"math"
	"time"
)

// A strict limit lets through a request only when a spacing has passed since the one before it arrived.
// Where latencies scatter, requests that went evenly arrive in bunches, and some are refused at any pace: the
// one that is left is far below the limit. What helps is to know when a request arrived: it had, once its
// answer is there. So the next goes a spacing after the answer to the last one, less the time that an answer
// and a request take at least; or, where that answer does not come, after a wait. Both are found by what they
// cost: each becomes shorter bit by bit with what is accepted, and longer by a refusal that it is to blame for.
// Where all latencies are the same that would be the same as to go at a pace.
//
// It is tried where refusals go on and latencies scatter. Any other limit lets through more closely at times
// than it refuses at others: what was accepted and what was refused contradict each other then.
type strict struct {
	trips trips
	off   time.Duration // by how much latencies differ from the mean, mostly
	sent  [4]journey    // accepted lately …
	next  int           // … the oldest of them
	apart time.Duration // no further apart did two of them arrive; 0: none are known
	due   int           // blocks before it is tried
	tries int           // times that it was given up, or did not pay

	on      bool
	spacing float64   // seconds between arrivals …
	spaced  int64     // … so many were accepted since one was refused for that
	wait    float64   // seconds that an answer is waited for …
	waited  int64     // … in the same way
	last    time.Time // the latest request went …
	done    time.Time // … and was answered; zero: it is not yet
	alone   int       // refused in a row though no other was on its way

	paid   bool      // more were let through than at a pace …
	before float64   // … which were so many per second
	since  time.Time // from then on …
	count  int64     // … so many were accepted
}

// A journey is from when a request went to its answer.
type journey struct{ from, to time.Time }

const (
	scattered = 1. / 16         // of the spacing: where latencies differ by more, some of what is refused had met on the way
	spacingBy = 1. / 16         // by what a refusal makes the spacing longer, as a logarithm …
	waitBy    = 1. / 4          // … and the wait
	eachCost  = 2 * attemptCost // accepted requests to spread a refusal for either of them over
	longSince = 2 * eachCost    // accepted requests: the limit may have become higher
	mostTries = 8               // times that it is tried more rarely each
)

// newStrict returns what is known when so many arrived and were accepted within a time.
func newStrict(n int64, within time.Duration) *strict {
	if n < 2 {
		return &strict{}
	}
	return &strict{apart: max(within/time.Duration(n-1), 1)}
}

// accepted takes in that a request was accepted; alone: no other was on its way when it went; pressed: others were
// waiting; quickest is how long an answer took at least, ever.
func (s *strict) accepted(now, start time.Time, quickest time.Duration, alone, pressed bool) {
	s.trips.measureTrip(now, start)
	s.off += ((now.Sub(start) - s.trips.usual).Abs() - s.off) / 32
	for _, j := range s.sent {
		if d := max(now.Sub(j.from), j.to.Sub(start)) - quickest; !j.from.IsZero() && (s.apart == 0 || d < s.apart) {
			s.apart = max(d, 1)
		}
	}
	s.sent[s.next] = journey{start, now}
	s.next = (s.next + 1) % len(s.sent)
	switch {
	case !s.on || start.Before(s.since):
	case !pressed: // the pace was not the limit's
		s.since, s.count = now, 0
	default:
		s.count++
		s.alone = 0
		s.shorten(alone)
	}
}

// shorten makes the spacing and the wait shorter for one that was accepted: soon where nothing was refused for
// that for long, but hardly shorter than what two have proven. One that was not alone says nothing of the spacing.
func (s *strict) shorten(alone bool) {
	spacing, wait := spacingBy/eachCost, waitBy/eachCost
	s.waited++
	if alone {
		s.spaced++
	}
	switch {
	case !alone:
		spacing = 0
	case s.spaced < longSince:
	case s.spacing > s.apart.Seconds():
		spacing = spacingBy / 2
	default:
		spacing = spacingBy / (2 * few)
	}
	if s.waited >= longSince {
		wait *= few
	}
	s.spacing *= math.Exp(-spacing)
	s.wait = max(s.wait*math.Exp(-wait), s.spacing)
}

// scatter is how many seconds latencies mostly are longer than the shortest.
func (s *strict) scatter() float64 { return (s.trips.usual - s.trips.least).Seconds() }

// calm reports whether latencies are as good as the same, be they longer than they were.
func (s *strict) calm(spacing float64) bool { return s.off.Seconds() < scattered/few*spacing }

// fits reports whether it may be such a limit that keeps the rate so low: no two came far closer than that.
func (s *strict) fits(low float64) bool {
	return s.scatter() > scattered/low && !s.calm(1/low) && s.apart.Seconds() > 1/(few*low)
}

// begin has requests go by answers. They went at a pace so far, of which so many per second were let through.
func (s *strict) begin(now time.Time, pace, through float64) {
	s.on, s.alone, s.last, s.done = true, 0, now, now
	s.spacing, s.spaced = min(1/pace, s.apart.Seconds()), longSince
	s.wait, s.waited = 4/pace, longSince
	s.paid, s.before, s.since, s.count = false, through, now, 0
}

// pays reports whether hardly fewer are let through than at a pace.
func (s *strict) pays(now time.Time) bool {
	if s.count < attemptCost {
		return true
	}
	through := rateOf(s.count, now.Sub(s.since))
	s.since, s.count, s.paid = now, 0, through > backOff*s.before
	return s.paid
}

// free is when the last of n units may go.
func (s *strict) free(n int64) time.Time {
	at := s.last.Add(nanoseconds(s.wait * 1e9))
	if !s.done.IsZero() {
		at = soonest(at, s.done.Add(nanoseconds(s.spacing*1e9)-s.trips.least))
	}
	return at.Add(nanoseconds(float64(n-1) * s.spacing * 1e9))
}

// take takes in that a request goes.
func (s *strict) take(now time.Time) { s.last, s.done = now, time.Time{} }

// over takes in that the request that went at start is answered, or never will be.
func (s *strict) over(now, start time.Time) {
	if start.Equal(s.last) {
		s.done = now
	}
}

// refused takes in that a request was refused that went so long after the latest answer to one that was
// accepted; alone: no other was on its way meanwhile.
func (s *strict) refused(start time.Time, since time.Duration, alone bool) {
	switch {
	case start.Before(s.since):
	case !alone, (since + s.trips.least).Seconds() < cautious*s.spacing: // the answer had not been waited for
		s.wait, s.waited = s.wait*math.Exp(waitBy), 0
	default:
		s.spacing, s.spaced = s.spacing*math.Exp(spacingBy), 0
		s.alone++
	}
}

// contradicts reports whether it is no such limit where one was refused that arrived so long after all others,
// at least.
func (s *strict) contradicts(after time.Duration) bool {
	return s.apart > 0 && farBelow*float64(after) > float64(s.apart)
}

// rarely has it tried again when there were so many blocks, and more of them the more often that was in vain.
func (s *strict) rarely(blocks int) {
	s.due = blocks + timeAndAgain<<min(s.tries, mostTries)
	s.tries++
}

// keepsStrictly takes in a refusal, and reports whether requests go by answers all the same.
func (p *partition) keepsStrictly(now time.Time, r *rejection) bool {
	l, pm := &p.learner, r.pm
	s := l.strict
	if s == nil {
		return false
	}
	since, alone := pm.start.Sub(l.last), p.wasAlone(pm) && !p.lastStart.After(pm.start)
	if s.on {
		s.refused(pm.start, since, alone)
	}
	if alone && s.contradicts(since+l.quickest) || s.on && (r.hint > 0 || s.alone > 1) {
		blocks := l.blocks
		if !s.on || !s.paid { // else it is one, and has become lower
			blocks += tryAfter
		}
		if s.on {
			l.goEvenly(now, l.rate.low)
		}
		s.apart, s.sent = 0, [4]journey{}
		s.rarely(blocks)
	}
	return s.on
}

// wasAlone reports whether no other request was on its way when pm's went. One that went long before has arrived, be
// its answer hours away.
func (p *partition) wasAlone(pm *Permit) bool {
	others, before := pm.level-1, pm.start.Add(-p.patience())
	for q := p.inFlight.oldest; others > 0 && q != nil && q.start.Before(before); q = q.younger {
		if !q.answered {
			others--
		}
	}
	return others == 0
}

// goesByAnswers reports whether requests go by answers.
func (l *learner) goesByAnswers() bool { return l.strict != nil && l.strict.on }

// beginByAnswers has requests go by answers where that may pay.
func (l *learner) beginByAnswers(now time.Time) {
	s, r := l.strict, &l.rate
	if l.blocks < max(timeAndAgain, s.due) || l.timed || r.doubt > 0 || r.penalty > 0 || r.trial || !s.fits(r.low) {
		return
	}
	first := r.zeros[len(r.zeros)-1]
	s.begin(now, r.low, rateOf(r.total-first.n, now.Sub(first.at)))
}

// goEvenly has requests go at a pace again.
func (l *learner) goEvenly(now time.Time, rate float64) {
	l.strict.on = false
	r := &l.rate
	r.low, r.climb, r.pressed, r.cost = rate, 0, 0, attemptCost
	r.rested()
	l.begin(now)
}

// keepStrict looks whether requests are to go by answers still.
func (l *learner) keepStrict(now time.Time) {
	s := l.strict
	switch {
	case !s.on:
	case !s.pays(now):
		l.goEvenly(now, l.rate.low)
		s.rarely(l.blocks)
	case s.calm(s.spacing),
		s.wait <= s.spacing && s.waited >= longSince: // no answer was waited for, and nothing was refused for that
		l.goEvenly(now, 1/s.spacing)
	}
}
