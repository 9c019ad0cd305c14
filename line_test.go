package heed

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Whoever comes in whatever order, and whoever leaves, all stand by number, and is told how many, and
// how many units, are before.
func TestPlaceInLineIsByNumber(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var q queue
		var numbers []uint64
		for _, i := range rnd.Perm(rnd.IntN(20)) {
			number := uint64(10 * (i + 1))
			w := &waiter{origin: &origin{}, ask: ask{opts: &options{costs: []cost{{UnitRequests, int64(number)}}}, charged: true, number: number}}
			wantAhead := slices.ContainsFunc(numbers, func(n uint64) bool { return n > number })
			if ahead := q.push(w); ahead != wantAhead {
				t.Fatalf("%d came before others of %d: %v", number, numbers, ahead)
			}
			numbers = append(numbers, number)
		}
		q.all(func(w *waiter) { // some leave
			if rnd.IntN(3) == 0 {
				q.remove(w)
				numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n == w.number })
			}
		})
		slices.Sort(numbers)
		if n := q.len(); n != len(numbers) {
			t.Fatalf("%d of %d in line", n, len(numbers))
		}
		var stand []uint64
		q.all(func(w *waiter) { stand = append(stand, w.number) })
		if !slices.Equal(stand, numbers) {
			t.Fatalf("they stand as %d", stand)
		}
		for probe := uint64(5); probe < 220; probe += 10 {
			before := q.before(&ask{opts: &noOptions, number: probe})
			n, units := before.n, before.requests
			want, wantUnits := 0, int64(0)
			for _, number := range numbers {
				if number < probe {
					want++
					wantUnits += int64(number)
				}
			}
			if n != want || units != wantUnits {
				t.Fatalf("%d and %d units before %d of %d", n, units, probe, numbers)
			}
		}
	}
}

// A request can stand in a line more than once.
func TestOneOfSeveralOfANumberLeavesALine(t *testing.T) {
	for leaver := range 3 {
		var q queue
		var all []*waiter
		for _, number := range []uint64{1, 2, 2, 2, 3} {
			w := &waiter{origin: &origin{}, ask: ask{opts: &noOptions, number: number}}
			q.push(w)
			all = append(all, w)
		}
		q.remove(all[1+leaver])
		var stand []uint64
		q.all(func(w *waiter) {
			stand = append(stand, w.number)
			if w == all[1+leaver] {
				t.Error("it still stands in line")
			}
		})
		if !slices.Equal(stand, []uint64{1, 2, 2, 3}) || q.len() != 4 {
			t.Errorf("%d in line: %d", q.len(), stand)
		}
	}
}
