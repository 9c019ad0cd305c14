package heed

import "math"

// Where it was heed that chose how long to wait after the first refusal, the first
// measure says little: the rate is somewhere between that and a pace at which more
// than one request would be on its way at a time, or that was refused where the measure itself was too high. It is searched for between
// what is proven and what was refused, which every refusal moves closer together.
// Attempts start in the middle, for a refusal there costs no more than one at
// the end, and rules out half.

// settled is how many doublings are left in doubt when the search ends: it rises
// slowly from there on, as wherever the rate is known.
const settled = 0.5

// searching is the pace when so many have been accepted under pressure: from the middle of
// what is in doubt on, half of what is left with every half cycle, and a little
// beyond. The less is left, the more requests it takes to tell.
func (t *throughput) searching(n int64) float64 {
	halves := 1 + 2*float64(n)/max(float64(t.cycle), few/t.doubt)
	beyond := t.climb * float64(n) / float64(max(t.cycle, shortestCycle))
	return t.low * cautious * math.Exp2(min(t.doubt*(1-math.Exp2(-halves))+beyond, 30))
}

// narrow takes in a refusal at the pace tooFast while the rate is in doubt. The limit lets
// through least at least, and usual is how many seconds a request takes. It reports whether what
// is believed then is to be tried: two windows that meet look like a bucket that is slowly refilled.
func (t *throughput) narrow(least, usual float64) (again bool) {
	began, most := t.at(1), t.tooFast
	switch kept := t.at(t.before(t.cycle, usual)); {
	case t.doubt < 1 && t.pressed >= t.cycle, t.pressed >= 4*t.cycle: // it rose slowly: that had been kept up
		least = max(least, kept)
	case t.bunches && t.pressed >= t.cycle && t.kept.believe(kept, t.tooFast, max(t.low, least)): // by a window
		least = kept
	}
	t.refute(least)
	t.low = max(t.low, least)
	doubt := doublings(t.low, most)
	if came := t.came(); t.burst >= shortestCycle && began >= came { // slower, and some would have been lost while the bucket was full
		most = min(most, came)
	}
	if t.doubt = min(t.doubt/2, doublings(t.low, most)); t.doubt < settled {
		again = t.doubt < doubt-2
		t.doubt, t.climb = 0, 0
	}
	return again
}

// refute gives up a first measure where a refusal came before a window would have been used up, after it had begun: it
// is a bucket, and lets through least, whatever it had let through at once before the pause that heed chose. Where that is far
// less the refusal may have come by chance, or most of the pause was lost on a bucket that was full.
func (t *throughput) refute(least float64) {
	if t.pausedAfterBurst() && t.total-t.opened.n < t.cycle/2 && least >= t.low/2 {
		t.low = min(t.low, least)
	}
}

// pausedAfterBurst reports whether the first measure was of a burst and of a pause that heed chose: for most of it a bucket was
// full, so that it says little of the rate.
func (t *throughput) pausedAfterBurst() bool { return t.ours && t.burst >= shortestCycle }

// came is at what rate a bucket was refilled between the latest reopening, when it held
// what it can or what had come until then, and the latest refusal, when it was empty;
// +Inf where it was not: a window is not.
func (t *throughput) came() float64 {
	z := t.zeros[0]
	n := z.n - t.opened.n - int64(min(float64(t.burst), t.low*t.closed.Seconds()))
	if n < few/2 {
		return math.Inf(1)
	}
	return rateOf(n, z.at.Sub(t.opened.at))
}

// doublings is how many there are from one rate to another; 0: it is no higher.
func doublings(low, high float64) float64 { return max(math.Log2(high/low), 0) }
