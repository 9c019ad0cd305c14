package heed

import (
	"math"
	"time"
)

// A throughput is what a limit that nobody announces lets through: its rate,
// as far as is known, and the pace at which more is looked for.
//
// Whatever its algorithm, such a limit lets through a burst at once, and its
// rate from then on. So its rate is at least
//
//   - what was accepted from one refusal to a later one, over that time: at both
//     nothing was left;
//   - what was accepted in any time before a refusal, less the burst, over that
//     time. The burst is no more than what was accepted before the first refusal.
//
// At the first refusal neither is known, and the rate is taken to be what was
// accepted until then over the time until the next was: right for a window, and too
// much for a bucket, which the second refusal shows.
//
// Requests go evenly, a little below that rate. How long they stay there depends
// on what an attempt at more costs; then the pace rises until the next refusal, and
// the rate is taken to be what the pace was one cycle before, unless the time of the
// reopening tells it exactly, as it does for a window. A first measure that may be far
// too low, because it was heed that chose how long to wait, is left at once: see
// search.go.
type throughput struct {
	history // what was accepted, and when

	// What is known.
	low     float64       // requests per second; 0: none learned
	cycle   int64         // requests accepted in the cycle of the first measure: a burst, or a window
	window  time.Duration // how long it takes to let through a cycle's worth, if it has a window; 0: not known
	most    time.Duration // it is no longer than that; 0: none was measured
	sure    bool          // and the latest reopening was in keeping with it
	bunches bool          // units come many at a time, as in a window
	kept    keptUp        // whether low is only a pace that was kept up
	ours    bool          // it was heed that chose for how long to wait before the first measure
	shut    time.Duration // for how long it was closed at the latest blocks, at least
	penalty time.Duration // for how long it shuts out whoever exceeds it; 0: for no longer than its rate explains
	trip    float64       // seconds that a request takes

	// How the pace goes on from the latest reopening: see at.
	pressed  int64         // accepted since then while others were waiting
	gathered int64         // what a bucket may have held then …
	closed   time.Duration // … when it had been closed for so long
	cost     int64         // accepted requests to spread the cost of an attempt at more over
	clean    int64         // … and of those, so many that tell what is refused by chance, where there is that, too
	climb    float64       // doublings of the pace per cycle where low may be far too low; 0: it is not
	doubt    float64       // doublings from low to what is too fast, while the rate is searched for between them; 0: it is not
	trial    bool          // the pace is twice as high at first, to see whether it was shut for a penalty, or by an outage, or is no bucket
	either   bool          // … this last one: it is a bucket, or two windows that met
	tried    int64         // accepted in the latest trial, if that may have been of one window or of two; 0: it was not
	modest   float64       // a pace far below low that is kept to, as long as much is refused whatever the pace is; 0: it is not
	shorter  bool          // the window may be far shorter: more is to be tried soon, and at a pace that rises fast

	// What became of attempts at more.
	tooFast float64 // the pace that was refused last …
	noMore  bool    // … which was no more than what was known …
	known   float64 // … and the rate that was known until then; 0: none was, or it was no attempt at more
	steady  float64 // … and the pace that had been kept up for two windows then, at least; 0: for less
	stood   int     // times in a row that an attempt at more found the limit as it was …
	hurried bool    // the next one is for the time that is over, before as many requests as it costs were accepted …
	hasty   int     // … as were so many in a row that found no more
}

const (
	cautious      = 0.97 // the share of the rate that is used at first
	backOff       = 0.8  // the share of a rate that is tried where it has proven unsafe
	slowly        = 0.2  // doublings of the pace per cycle, where the rate is known
	gently        = 0.4  // … where the first measure may be too low
	shortestCycle = 30   // requests: a shorter cycle counts as so long there, lest the pace jumps
	few           = 8    // requests: one more or less makes a difference where there are fewer
	attemptCost   = 150  // accepted requests over which a refusal is to be spread …
	waitCost      = 20   // … and over which one that might have been sent meanwhile
	longerByFar   = 4    // times as long as before: it may have been an outage, once
	farFewer      = 16   // times fewer than before: that was no burst, or is not to come again
	asItWas       = 0.02 // of a rate: found no further off, it is as it was …
	mostStood     = 2    // … and tried after twice as many requests each time, up to so many times
	anotherPace   = 1.4  // times as fast as the first trial is the second one
	shorterFor    = 4    // cycles in which a window is kept to that may be far shorter
)

// longOutage is for how long an origin is closed at least if that may have been an outage of the kind that an attempt at more
// does not bring about.
const longOutage = 10 * time.Second

// noRarer is how long more is not tried at most because a limit was found as it was: a slow one may have been raised.
const noRarer = 5 * time.Minute

// untilHasty is for how long more is not tried at most, however few are accepted meanwhile, save where it was closed for long: what is
// slow may be far too slow, and would be for hours. Each such attempt in a row that finds no more has the next one wait for twice as long.
const untilHasty = 10 * time.Minute

// accepted counts a request sent at an instant; pressed: others were waiting.
func (t *throughput) accepted(start time.Time, pressed bool) {
	if pressed {
		t.pressed++
	}
	t.history.accepted(start)
}

// refused takes in the refusal that begins a block, of a request sent at an
// instant. usual is how many seconds a request takes, and through the rate at
// which they were accepted since the first one after the latest reopening.
func (t *throughput) refused(start time.Time, usual, through float64) {
	least, rested, again := t.least(start), len(t.zeros) == 0, false
	t.zero(start)
	if t.low == 0 {
		return
	}
	t.tooFast, t.known = t.pace(), 0
	t.steady = t.steadily(start, usual)
	t.noMore = t.tooFast <= t.low
	if t.climb == 0 && t.tooFast > t.low {
		t.known = t.low
	}
	t.kept.proves(least)
	switch {
	case t.penalty > 0:
		t.punished(usual)
	case t.trial && !t.ours && t.pressed >= t.cycle && t.onceMore(t.total-t.opened.n):
		again = t.tried > 0
	case t.tooFast > t.low && t.doubt > 0:
		again = t.narrow(least, usual)
	case t.tooFast > t.low && (t.pressed >= t.cycle || t.climb == 0 || least >= t.low): // else what was known is refuted
		t.attempted(least, usual)
	default:
		t.lower(least, through, rested)
	}
	if t.tooFast <= t.low {
		t.low, t.climb, t.doubt = t.tooFast, 0, 0
	}
	t.pressed, t.trial, t.either = 0, again, again && t.ours
}

// steadily is the pace that was kept up for two windows, at least, before a request that was sent at an instant was refused: one of
// them was whole then, whenever windows turn. 0: it was not for as long.
func (t *throughput) steadily(start time.Time, usual float64) float64 {
	if t.window == 0 || t.doubt > 0 {
		return 0
	}
	n := t.before(t.since(start.Add(-2*t.window)), usual)
	if n <= 0 {
		return 0
	}
	return t.at(n)
}

// before is how many had been accepted while others were waiting before the latest n, as of a request that was refused: those in flight
// came after it.
func (t *throughput) before(n int64, usual float64) int64 {
	return t.pressed - n - int64(t.tooFast*usual)
}

// attempted takes in that an attempt at more than the known rate was refused, where the limit lets through least
// at least.
func (t *throughput) attempted(least, usual float64) {
	if t.pressed < t.cycle || !t.bunches && t.pressed < 4*t.gathered { // a bucket may have held what was accepted at so high a pace
		if t.either {
			t.refute(least)
		}
		t.low = max(t.low, least)
		t.climb /= 2
		return
	}
	kept := t.at(t.before(t.cycle, usual))
	if t.kept.believe(kept, t.tooFast, max(t.low, least)) {
		least = kept
	}
	t.low = max(t.low, least)
	if t.climb > slowly { // it rose so steeply that this tells little
		t.climb = max(t.climb/4, slowly)
	} else {
		t.climb = 0
	}
}

// lower takes in that the known rate is refused, or less, where the limit lets through least at least, and has let so
// much through since it reopened; rested: nobody had asked for long.
func (t *throughput) lower(least, through float64, rested bool) {
	little := 0.95 * t.tooFast
	switch {
	case t.kept.proven > 0:
		t.low = min(t.low, t.kept.refused())
	case rested: // what was accepted since is too little to tell
		t.low, t.climb = min(t.low, little), t.climb/2
	case t.sure: // by chance, and so is this; an attempt at more may have risen far
		t.low = min(t.low, little)
	case t.pressed >= t.cycle: // a little too fast
		t.low = max(min(t.low, least), min(little, through))
	case least < t.low: // a burst had been taken for the rate
		early := t.total-t.burst < t.cycle // it refutes the first measure
		far := least <= backOff*t.low      // else it was hardly wrong, however little was accepted since it reopened
		t.low = max(least, t.low/8)
		n := t.total - t.opened.n
		if far && n < t.cycle/farFewer { // or all that came before there was a limit
			t.cycle, t.window = max(farFewer*n, 2), 0
		}
		if t.pressed > t.gathered { // else it may have been open for most of the time it was not asked
			t.climb /= 2
		}
		if far && n < t.cycle/4 { // so little says not much
			t.climb = max(t.climb, gently)
		}
		if d := doublings(t.low, t.tooFast); far && early && t.pausedAfterBurst() && d >= settled {
			t.doubt = d
		}
	default: // it has become less
		t.low *= backOff
	}
}

// takeUp goes back to what was known before: what was accepted since counts, but tells nothing of that.
func (t *throughput) takeUp(known throughput) {
	known.history = history{total: t.total, burst: t.burst, opened: known.opened}
	*t = known
}

// waited is the part of the time between the latest two refusals for which it was closed.
func (t *throughput) waited() float64 {
	if len(t.zeros) < 2 {
		return 1
	}
	return t.closed.Seconds() / t.zeros[0].at.Sub(t.zeros[1].at).Seconds()
}

// measured is the first measure: n requests in a time. The pace rises from there
// on, by so many doublings in a cycle, where that may have been too long.
func (t *throughput) measured(n int64, d time.Duration, climb float64) {
	t.low, t.cycle, t.window, t.climb, t.doubt, t.kept, t.tried = rateOf(n, d), max(n, 2), d, climb, 0, keptUp{}, 0
	t.hurried, t.hasty = false, 0
}

// reopened says that the limit lets through again after it was closed for so
// long, and how many refusals the next attempt at more may cost.
func (t *throughput) reopened(closed time.Duration, refusals float64) {
	missed := t.low * closed.Seconds()
	dear := missed
	if t.closed > 0 { // far longer than before, once, may have been an outage
		dear = min(dear, t.low*max(longerByFar*t.closed, longOutage).Seconds())
	}
	t.closed = closed
	t.cost = int64(max(attemptCost*refusals, waitCost*dear))
	if t.known > 0 && math.Abs(t.low/t.known-1) <= asItWas {
		t.stood = min(t.stood+1, mostStood)
	} else {
		t.stood = 0
	}
	t.cost = max(t.cost, min(t.cost<<t.stood, int64(t.low*noRarer.Seconds())))
	if t.shorter = t.shorter && t.stood == 0; t.shorter {
		t.cost = min(t.cost, shorterFor*t.cycle)
	}
	t.hurry()
	t.gathered = min(t.burst, int64(missed))
	t.pressed = 0
}

// hurry has the next attempt at more come no later than it may.
func (t *throughput) hurry() {
	switch {
	case t.known == 0 || !t.hurried:
	case t.low > t.known*(1+slowly):
		t.hasty = 0
	default:
		t.hasty++
	}
	most := t.low * max(math.Ldexp(untilHasty.Seconds(), t.hasty), waitCost*t.closed.Seconds())
	if t.hurried = most < float64(t.cost); t.hurried {
		t.cost = max(int64(most), 1)
	}
}

// pace is how fast requests go now, in requests per second: as after the first
// one that is accepted, until that is.
func (t *throughput) pace() float64 { return t.at(max(t.pressed, 1)) }

// at is the pace when so many have been accepted under pressure since the latest reopening.
func (t *throughput) at(n int64) float64 {
	switch {
	case t.modest > 0: // as much is refused at any pace
		return t.modest
	case t.doubt > 0: // the rate is searched for
		return t.searching(n)
	case t.trial: // it is tried whether the first measure was far too low
		pace := t.low * cautious * t.twice(n)
		if t.tried > 0 { // two windows would not let through as many once more at another pace
			pace *= anotherPace
		}
		return pace
	case t.climb > 0: // it may have been too low: the pace rises from the first request on
		return min(t.low*cautious*math.Exp2(min(t.climb*float64(n)/t.round(1), 30)), t.bySteps(n))
	case t.shorter && n >= t.cost:
		return t.low * t.twice(n-t.cost)
	}
	// The rate is known. It is approached until as many were accepted as an attempt at more costs; then the pace rises.
	switch {
	case n < t.clean:
		return farBelow * t.low
	case n < t.cost && t.sure: // its window is counted, too (within), and lets through no more than that however they meet
		return t.low
	case n < t.cost:
		x, less := float64(n)/float64(t.cost), (1-cautious)/float64(int(1)<<t.stood)
		return t.low * (1 - less*(1-x*x*x))
	}
	least := int64(shortestCycle)
	if t.penalty > 0 { // a window may be that long
		least = max(least, t.cost/waitCost)
	}
	return t.low * math.Exp2(min(slowly*float64(n-t.cost)/t.round(least), 30))
}

// round is how many requests are a cycle's worth where the pace rises, and least at least: no more than of a minute, unless
// a window is known that may be longer. The rate may have fallen far since the cycle was measured.
func (t *throughput) round(least int64) float64 {
	n := float64(max(t.cycle, least))
	if t.window == 0 {
		n = min(n, max(60*t.low, 1))
	}
	if t.hurried { // of a long window, as many as go in two minutes, for else it would take hours
		n = min(n, max(120*t.low, 2))
	}
	return n
}

// twice is how many times as fast it goes where more is tried, after so many requests: twice as fast for three cycles,
// evenly, for when a window ends is reckoned from when it began, and then faster.
func (t *throughput) twice(n int64) float64 {
	return math.Exp2(min(max(float64(n)/float64(t.cycle)-2, 1), 30))
}

// bySteps is the pace at which each request accepted, of so many, has one more be on its way: what a pace does shows
// only after a round trip.
func (t *throughput) bySteps(n int64) float64 {
	if t.trip == 0 || n < 0 { // before the first
		return math.Inf(1)
	}
	return t.low + float64(n)/t.trip
}

// gone reports whether there can be no such limit any more: its rate was
// exceeded by far, for long; by much more where it may have been far too low, which a trial is to show.
func (t *throughput) gone() bool {
	if t.climb > 0 || t.trial || t.shorter && t.pressed > t.cost {
		return t.pace() > max(1024, 16*math.Exp2(t.doubt))*t.low
	}
	return t.pace() > 16*t.low
}

func rateOf(n int64, d time.Duration) float64 {
	return float64(max(n, 1)) / max(d, time.Millisecond).Seconds()
}

func perUnit(r float64) time.Duration { return max(time.Duration(float64(time.Second)/r), 1) }
