package heed

import (
	"slices"
	"time"
)

// Windows by the clock turn at multiples of their length, whoever asks. So what was let through before the first refusal may be of two
// of them that met, and up to twice as much as one lets through, and where a server asks for as long whenever it refuses, a wait ends
// anywhere in one. What the latest refusals have in common tells all the same, for each came when the window that it fell into had let
// through as much as it does: there is hardly more than one length for which the windows can turn at instants so that this is as
// much each time, that the origin reopened in another window than it had closed in, and that none in between let through more.

// An alignment is what windows of a length let through, at least and at most, that are in keeping with the latest refusals.
type alignment struct {
	window      time.Duration
	least, most int64
}

const (
	nearlyAsMany = 1. / 24 // of what a window lets through: it may be known no better
	aboutAsMany  = 4       // it is known where it is, to a part of so many
	betweenSteps = 4       // instants from one step to the next at which windows may turn
)

// align takes the limit for windows by the clock where those explain the latest refusals. The latest block is over since reopened.
func (l *learner) align(reopened time.Time) {
	r := &l.rate
	zeros := r.zeros
	if i := slices.IndexFunc(zeros, func(z zero) bool { return z.reopened.IsZero() }); i >= 0 {
		zeros = zeros[:i]
	}
	unlikely := !l.timed || r.penalty > 0 // when windows turn is known badly, or something else is known to explain it
	if len(zeros) < 2 || asManyEachTime(zeros) || unlikely && len(zeros) < mostZeros {
		return
	}
	c, jitter := r.course(), l.trip()-l.quickest
	if r.sure && c.slides(zeros, r.window, jitter) {
		return
	}
	longest := r.window // that may be the one which is known
	if first, known := r.ago(r.cycle); known && !r.sure && len(zeros) == 2 {
		longest = max(longest, reopened.Sub(first)*5/4) // one by the clock may have begun before
	}
	a, ok := l.alignment(&c, zeros, longest, jitter)
	if !ok || a.window == r.window && (r.trial || r.penalty > 0) { // which shows whether others had used a part
		return
	}
	l.alignedTo(a)
}

// alignment is the one that explains the refusals: of the window that is known, if that was found right before, or else the only
// likely one, or, for want of that, of the window that is known, or of one up to longest that lets through as much.
func (l *learner) alignment(c *course, zeros []zero, longest, jitter time.Duration) (one alignment, ok bool) {
	r := &l.rate
	var known alignment
	var all []alignment
	for _, w := range roundTimes {
		a, fits := c.aligned(zeros, w, jitter)
		if !fits {
			continue
		}
		if a.has(r.cycle) && (w == r.window || w <= longest && !r.sure && known.window != r.window) {
			known = a
		}
		if w >= 2*r.penalty && (!l.whole || rateOf(a.most, w) >= r.low/2) { // else it may have been an outage
			all = append(all, a)
		}
	}
	if known.window == 0 || !r.sure {
		if one, ok = onlyLikely(all, l.hint); ok {
			return one, true
		}
	}
	return known, known.window > 0
}

// onlyLikely is the only one of several alignments that is likely, where a server asked to wait for hint: mostly no window is shorter,
// and all lets through is a round number. It reports whether there is one.
func onlyLikely(all []alignment, hint time.Duration) (one alignment, ok bool) {
	for _, unlikely := range []func(alignment) bool{
		func(alignment) bool { return false },
		func(a alignment) bool { return a.window < hint-time.Second },
		func(a alignment) bool { return !isRound(roundestCount(a.least, a.most)) },
	} {
		if all = slices.DeleteFunc(all, unlikely); len(all) == 1 {
			return all[0], true
		}
	}
	return alignment{}, false
}

// has reports whether it may be that windows let through so many, which is known to one or two.
func (a *alignment) has(n int64) bool { return a.least-2 <= n && n <= a.most+2 }

// alignedTo takes in what windows by the clock let through.
func (l *learner) alignedTo(a alignment) {
	r := &l.rate
	n := r.cycle
	if round := roundCount(n); a.least <= round && round <= a.most {
		n = round
	}
	if !r.sure || n < a.least || n > a.most {
		n = roundestCount(a.least, a.most)
	}
	r.cycle, r.window, r.low, r.sure = n, a.window, rateOf(n, a.window), true
	r.climb, r.doubt, r.kept, r.trial, r.either, r.penalty = 0, 0, keptUp{}, false, false, 0
	r.most = max(r.most, a.window)
}

// asManyEachTime reports whether as many were accepted from each refusal to the next, of more than two: then it is no matter how
// the windows lie, and what is measured is right.
func asManyEachTime(zeros []zero) bool {
	if len(zeros) < 3 {
		return false
	}
	least := zeros[0].n - zeros[1].n
	most := least
	for i, z := range zeros[2:] {
		n := zeros[i+1].n - z.n
		least, most = min(least, n), max(most, n)
	}
	return most-least <= 1
}

// slides reports whether about as many were accepted within a window before each refusal: it may be one that slides.
func (c *course) slides(zeros []zero, window, jitter time.Duration) bool {
	if zeros = c.knownOf(zeros, window); window == 0 || len(zeros) < 2 {
		return false
	}
	var least, most, met int64
	for i, z := range zeros {
		n := c.within(z.at.Add(-window), z.at)
		if most = max(most, n); i == 0 || n < least {
			least = n
		}
		met = max(met, c.within(z.at.Add(-jitter), z.at.Add(jitter)))
	}
	return most-least <= 2+most/100+met
}

// aligned returns what windows of a length let through, if any are in keeping with the refusals, be it only the latest of those that
// more than that is known of.
func (c *course) aligned(zeros []zero, window, jitter time.Duration) (a alignment, ok bool) {
	a.window = window
	if zeros = c.knownOf(zeros, window); len(zeros) < 2 {
		return a, false
	}
	for i, z := range zeros {
		if z.shut.Sub(z.at)-2*jitter >= window || // it would have reopened in between
			i > 0 && zeros[i-1].reopened.Sub(z.shut)+2*jitter < window { // it reopened twice within one
			return a, false
		}
	}
	phases := c.phases(zeros, window)
	for i, phase := range phases {
		next := window + phases[0]
		if i+1 < len(phases) {
			next = phases[i+1]
		}
		for part := range time.Duration(betweenSteps) {
			least, most := c.fits(zeros, window, phase+(next-phase)*part/betweenSteps, jitter)
			switch {
			case most == 0:
				continue
			case !ok:
				a.least, a.most, ok = least, most, true
			default:
				a.least, a.most = min(a.least, least), max(a.most, most)
			}
		}
	}
	many := a.most >= tellsRound || a.most >= few && len(zeros) == mostZeros // few are soon as many by chance
	return a, ok && many && a.most-a.least <= a.most/aboutAsMany
}

// knownOf returns those refusals for which it is known what was accepted within a window before.
func (c *course) knownOf(zeros []zero, window time.Duration) []zero {
	if i := slices.IndexFunc(zeros, func(z zero) bool { return z.at.Add(-window).Before(c.from) }); i >= 0 {
		return zeros[:i]
	}
	return zeros
}

// phases are the instants of all that is known, within a window, in order.
func (c *course) phases(zeros []zero, window time.Duration) []time.Duration {
	all := make([]time.Duration, 0, len(c.steps)+2*len(zeros))
	for _, s := range c.steps {
		all = append(all, c.phase(s.at, window))
	}
	for _, z := range zeros {
		all = append(all, c.phase(z.shut.Add(1), window), c.phase(z.reopened, window))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// phase is how long after a window had begun an instant was, if one began with the first step.
func (c *course) phase(at time.Time, window time.Duration) time.Duration {
	return ((at.Sub(c.steps[0].at) % window) + window) % window
}

// fits returns what windows let through, at least and at most, that turn at a phase, if they are in keeping with the refusals; else
// most is 0.
func (c *course) fits(zeros []zero, window, phase, jitter time.Duration) (least, most int64) {
	turned := func(at time.Time) time.Time { return at.Add(-c.phase(at.Add(-phase), window)) }
	for _, z := range zeros {
		if !turned(z.reopened.Add(jitter)).After(z.shut.Add(-jitter)) || // it reopened without
			z.shut.Sub(z.at) > 2*jitter && turned(z.shut.Add(-jitter)).After(z.at.Add(jitter)) { // or did not reopen with it
			return 0, 0
		}
	}
	for i, z := range zeros {
		n := c.within(turned(z.at).Add(-1), z.at)
		if most = max(most, n); i == 0 || n < least {
			least = n
		}
	}
	slack := max(2, int64(nearlyAsMany*float64(most)))
	if least < 1 || most-least > slack {
		return 0, 0
	}
	var seen time.Time
	for _, s := range c.steps {
		if s.at.After(zeros[0].at) {
			break
		}
		t := turned(s.at)
		if t.Equal(seen) {
			continue
		}
		if seen = t; c.within(t.Add(-1), t.Add(window-1)) > most+slack/2 {
			return 0, 0
		}
	}
	return least, most
}
