package heed

import "math"

// A descent is a succession of refusals in which the pace falls far. What refuses as many at any pace is no limit, but an origin that
// is in part out of order, or a limit that was cut by far. Which of both shows once that is over: then more are accepted in a row than
// ever come by chance where so many are refused. The pace rises steeply then. Where it was a limit it is met again at once: what was
// known holds again, and that is tried again after twice as many.
type descent struct {
	blocks   int         // in close succession …
	refused  int64       // … requests refused in them …
	accepted int64       // … and accepted between them
	run      int64       // accepted since the latest, or since the pace began to rise
	top      float64     // what was let through at most: since so many were accepted in a row that hardly any come by chance
	from     float64     // the rate that it rises from; 0: it does not …
	known    *throughput // … and what was known then
	vain     int         // times in a row that it rose in vain
}

const (
	farDown    = 16     // times less than what was let through …
	risen      = 4      // … and so many times more than what was known
	ofAll      = 1. / 8 // a share that no limit refuses for long, though it is looked for
	unlikelyBy = 6      // halvings: so rarely are as many accepted in a row by chance
	mostVain   = 8
)

// begin takes in that a block begins, at a pace, where a rate had been let through. Where the pace rose in vain it returns what was
// known before; else nil.
func (d *descent) begin(pace, through float64) (known *throughput) {
	switch {
	case d.from > 0 && (pace < risen*d.from || d.run < few): // so few may have been gathered
		d.vain, known = min(d.vain+1, mostVain), d.known
	case d.from > 0:
		d.vain = 0
	}
	d.from, d.known = 0, nil
	switch {
	case d.run >= attemptCost:
		*d = descent{}
	case d.run >= 2*few:
		d.blocks, d.refused, d.accepted, d.run = 0, 0, 0, 0
	}
	d.accepted += d.run
	d.blocks, d.refused, d.run = d.blocks+1, d.refused+1, 0
	d.top = max(d.top, through)
	return known
}

// shows takes in that one was accepted at a known rate, and reports whether so many were in a row that the pace is to rise from there.
func (d *descent) shows(rate float64) bool {
	d.run++
	if d.blocks < inSuccession || rate > d.top/farDown || d.from > 0 {
		return false
	}
	share := float64(d.refused) / float64(d.refused+d.accepted)
	return share >= ofAll && float64(d.run) >= math.Ldexp(max(unlikelyBy/-math.Log2(1-share), few/2), d.vain)
}

// risesFrom notes what is known when the pace begins to rise.
func (d *descent) risesFrom(known throughput) {
	d.from, d.known = known.low, &known
	d.accepted, d.run = d.accepted+d.run, 0
}

// asKnown goes back to a rate that the pace rose from in vain, as from any other attempt at more.
func (l *learner) asKnown(known *throughput) {
	l.rate.takeUp(*known)
	l.rate.pressed = max(l.rate.pressed, l.rate.cost+1)
}

// recovers reports whether the known rate may have been left for good: no other way to find one is being gone.
func (l *learner) recovers() bool {
	r := &l.rate
	return r.doubt == 0 && r.penalty == 0 && !r.trial && r.climb < steeply && l.chance.share == 0
}
