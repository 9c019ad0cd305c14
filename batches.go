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
	began := b.since
	if b.join(now, gone, silence, waiting) {
		if b.units > 0 {
			b.past = [2]pastBatch{{b.units, now.Sub(began)}, b.past[0]}
		}
		b.units = 0
	}
	b.units += n
}

// every is how long after the batch before the latest one that is over began, the next one did.
func (b *batches) every() time.Duration { return b[0].past[0].every }

// ahead returns how many units are asked for until an instant, those that wait among them, if batches come as they have come;
// +Inf: they have not yet, or the present one is a larger one.
func (b *batches) ahead(until time.Time, waiting float64, quota int64) float64 {
	least := math.Inf(1)
	for i := range b {
		least = min(least, b[i].ahead(until, waiting, quota))
	}
	return least
}

// ahead is that of batches, as one length of silence divides them. Two are needed that are alike to tell when the next one comes,
// and neither what is more than a quota is a batch nor one request that follows another, as those at a pace do.
func (b *batch) ahead(until time.Time, waiting float64, quota int64) float64 {
	last, before := b.past[0], b.past[1]
	units, every := max(last.units, before.units), min(last.every, before.every)
	if every == 0 || !alike(last.units, before.units) || !alike(last.every, before.every) || units > quota || units == 1 || b.units > units+units/4 {
		return math.Inf(1)
	}
	more := math.Ceil(until.Sub(b.since).Seconds()/every.Seconds()-0.1) - 1 // jobs are not punctual
	return waiting + float64(max(units-b.units, 0)) + max(more, 0)*float64(units)
}

// alike reports whether neither of two is more than a quarter above the other.
func alike[N int64 | time.Duration](a, b N) bool { return max(a, b) <= min(a, b)+min(a, b)/4 }
