package heed

import (
	"math"
	"time"
)

// Where two counts are kept by a clock that is cut to whole seconds, what comes back does so many units
// at a time, whenever that clock goes on. A reset that it names is not rounded any more: it becomes one
// less at the same instants, and so tells when they are.

// jumps reports whether what is left rises as it does there: as far as this process's use of the
// window before has it, in steps that are too large to be anything else.
func (k *counter) jumps(tick time.Duration) bool {
	first, last := k.edges(tick)
	step := k.own * tick.Seconds() / k.window.Seconds()
	return step >= fewUnits && last.Sub(first) < tick/4 && !k.ticking.contradict(0)
}

// steps takes what has come back by such a clock, since the first answer of those that fit, from the bounds
// that the answer to a request sent at start puts to what is left beside this process's own use.
func (k *counter) steps(least, most float64, start, now time.Time, tick time.Duration) (float64, float64) {
	rate := k.own / k.window.Seconds()
	shortest, _ := k.passes(k.from, start, tick)
	_, longest := k.passes(k.from, now, tick)
	return least - longest*rate, most - shortest*rate
}

// edges are the earliest and the latest instant at which the clock goes on by a tick. It is one at which
// a window ends, or whole ticks before, whichever way resets are rounded.
func (k *counter) edges(tick time.Duration) (first, last time.Time) {
	over := max(k.ends.Sub(k.edge).Round(tick), 0)
	first, last = k.ends.Add(-over), k.edge
	if last.Before(first) { // the clocks do not run alike
		return last, first
	}
	return first, last
}

// passes is how many seconds pass by the origin's clock from one instant to another, at least and at most.
// tick: what it is cut to, zero if it is not.
func (k *counter) passes(from, to time.Time, tick time.Duration) (least, most float64) {
	if tick == 0 {
		d := max(to.Sub(from), 0).Seconds()
		return d, d
	}
	first, last := k.edges(tick)
	ticks := func(edge, at time.Time) float64 { return math.Floor(at.Sub(edge).Seconds() / tick.Seconds()) }
	least = max(ticks(last, to)-ticks(first, from), 0)
	most = max(ticks(first, to)-ticks(last, from), 0)
	return least * tick.Seconds(), most * tick.Seconds()
}

// jump returns in how many seconds the clock has gone on by so many.
func (k *counter) jump(now time.Time, seconds float64) float64 {
	if k.ticks == 0 {
		return seconds
	}
	_, edge := k.edges(k.ticks)
	tick, since := k.ticks.Seconds(), now.Sub(edge).Seconds()
	return (math.Ceil(seconds/tick)+math.Floor(since/tick))*tick - since
}
