package heed

import "math"

// Where it was heed that chose how long to wait after the first refusal, the first
// measure says little: the rate is somewhere between that and a pace at which more
// than one request would be on its way at a time. It is searched for between
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
	beyond := t.climb * float64(n) / float64(max(t.cycle, shortest))
	return t.low * cautious * math.Exp2(min(t.doubt*(1-math.Exp2(-halves))+beyond, 30))
}

// narrow takes in a refusal at the pace tooFast while the rate is in doubt. The limit lets
// through least at least, and usual is how many seconds a request takes.
func (t *throughput) narrow(least, usual float64) {
	if t.doubt < 1 && t.pressed >= t.cycle || t.pressed >= 4*t.cycle { // it rose slowly: that had been kept up
		least = max(least, t.at(t.pressed-t.cycle-int64(t.tooFast*usual)))
	}
	t.low = max(t.low, least)
	if t.doubt = min(t.doubt/2, doublings(t.low, t.tooFast)); t.doubt < settled {
		t.doubt, t.climb = 0, 0
	}
}

// doublings is how many there are from one rate to another; 0: it is no higher.
func doublings(low, high float64) float64 { return max(math.Log2(high/low), 0) }
