package heed

import (
	"math"
	"time"
)

// Batches are requests that come together, with silence before and after: those of a job that runs once an hour, say. What divides
// one batch from the next nobody says: a job may pause, and come again long before a window is over. So they are divided by
// silences of several lengths, the shortest of which is a thousandth of the window.
type batches [3]batch

// A batch is what came since a silence of one length, and what is remembered of the two batches before it.
type batch struct {
	run
	units int64
	past  [2]pastBatch // the latest first
}

// A pastBatch is one that is over.
type pastBatch struct {
	units int64
	every time.Duration // from when it began until the next one did
}

// add counts n units that came: while others wait, or else after a request that came or, gone, was sent. A round trip, as usual is
// the time it takes, is no silence.
func (b *batches) add(now, gone time.Time, n int64, window, usual time.Duration, waiting bool) {
	silence := window
	for i := range b {
		silence /= 10
		b[i].add(now, gone, n, silence+2*usual, waiting)
	}
}

func (b *batch) add(now, gone time.Time, n int64, silence time.Duration, waiting bool) {
	if b.came.IsZero() || !waiting && now.Sub(latest(b.came, gone)) > silence {
		if b.units > 0 {
			b.past = [2]pastBatch{{b.units, now.Sub(b.since)}, b.past[0]}
		}
		b.since, b.units = now, 0
	}
	b.came = now
	b.units += n
}

// drop uncounts n units.
func (b *batches) drop(n int64) {
	for i := range b {
		b[i].units = max(b[i].units-n, 0)
	}
}

// ahead returns how many units are asked for until an instant, those that wait among them, if batches come as they have come;
// +Inf: they have not yet, or the present one is a larger one.
func (b *batches) ahead(until time.Time, waiting float64) float64 {
	least := math.Inf(1)
	for i := range b {
		least = min(least, b[i].ahead(until, waiting))
	}
	return least
}

func (b *batch) ahead(until time.Time, waiting float64) float64 {
	units, every := max(b.past[0].units, b.past[1].units), min(b.past[0].every, b.past[1].every)
	if every == 0 || b.units > units+units/4 {
		return math.Inf(1)
	}
	more := math.Ceil(until.Sub(b.since).Seconds()/every.Seconds()-0.1) - 1 // jobs are not punctual
	return waiting + float64(max(units-b.units, 0)) + max(more, 0)*float64(units)
}
