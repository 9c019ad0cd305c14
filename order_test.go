package heed_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Answers of a bucket have all come in the order of their requests, and of eight that went at
// once the first three do, too. That the second says that more is left than the first
// shows that the origin had them in another order, however long they were on their way.
func TestAnswersInOrderDoNotHideThatTheirRequestsArrivedInAnother(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: unsmoothed})
			defer r.Close()
			says := func(left int) []string {
				return []string{"RateLimit-Policy", `"p";q=100;w=100`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, left, 100-left)}
			}
			for left := 99; left >= 9; left-- {
				one(t, r, 200, says(left)...)
			}
			var atOnce []*heed.Permit
			for range 8 {
				pm := acquire(t, r, request(example))
				defer pm.Release()
				atOnce = append(atOnce, pm)
			}
			time.Sleep(trip)
			for i, left := range []int{3, 7, 8} {
				atOnce[i].Observe(answer(200, says(left)...))
			}
			if v := r.Check(request(example)); v.Remaining > 1 {
				t.Errorf("over %v: %d left, want at most the one that the eight leave of nine", trip, v.Remaining)
			}
		})
	}
}

// Seven requests that went at once reached the origin in another order, the first of them last, while answers had come
// in order till then: the window is not taken for one of two counts, from which more comes back.
func TestWindowIsNotTakenForAnotherByTheOrderOfRequestsThatWentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, window, trip, spacing = 50, 5 * time.Second, 500 * time.Millisecond, 64 * time.Millisecond
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		defer r.Close()
		type sent struct {
			*heed.Permit
			at   time.Time
			left int
		}
		var begun time.Time // the window, at the origin
		var onTheWay []sent
		send := func(left ...int) {
			for _, left := range left {
				onTheWay = append(onTheWay, sent{acquire(t, r, request(example)), time.Now(), left})
			}
		}
		hear := func(until time.Time) {
			for len(onTheWay) > 0 && !onTheWay[0].at.Add(trip).After(until) {
				s := onTheWay[0]
				onTheWay = onTheWay[1:]
				time.Sleep(time.Until(s.at.Add(trip)))
				reset := (begun.Add(window).Sub(s.at.Add(trip/2)) + time.Second - 1) / time.Second
				s.Observe(answer(200, "RateLimit-Policy", `"p";q=50;w=5`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, s.left, reset)))
				s.Release()
			}
			time.Sleep(time.Until(until))
		}
		for range 4 {
			begun = time.Now().Add(trip / 2)
			for left, n := 50, 1; left > 43; n *= 2 { // one goes first, the others as answers confirm
				for range n {
					left--
					send(left)
					time.Sleep(time.Millisecond)
				}
				hear(time.Now().Add(trip))
			}
			send(36, 39, 37, 40, 42, 41, 38)
			for left := 35; left > 0; left-- {
				hear(time.Now().Add(spacing))
				send(left)
				if v := r.Check(request(example)); v.Remaining > int64(left) {
					t.Fatalf("%d left, more than the %d that the origin has", v.Remaining, left)
				}
			}
			hear(time.Now().Add(trip))
			time.Sleep(time.Until(begun.Add(window + trip/2)))
		}
	})
}

// stalls is the latency of an origin that stops now and then. Requests that come meanwhile are handled when it
// goes on, the latest first, and answered in the order they came.
func stalls(every, length time.Duration) heedtest.Latency {
	const way = 5 * time.Millisecond
	return func(int64) (up, down time.Duration) {
		into := time.Since(time.Now().Truncate(every))
		if into >= length {
			return way, way
		}
		left := length - into
		return left + way + left/1000, way + into/500
	}
}

// A request that is late may be overtaken by the next, though its answer is not: then that one's
// does not count it. Neither says that a bucket holds more than it does.
func TestBucketIsNotEmptiedByRequestsThatWereOvertaken(t *testing.T) {
	manyRequests(t)
	for _, window := range []time.Duration{5 * time.Second, 10 * time.Second} {
		for stall := 140 * time.Millisecond; stall <= 200*time.Millisecond; stall += 20 * time.Millisecond {
			quota := int64(window / (100 * time.Millisecond))
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.GCRA, Dialect: heedtest.XRateLimit,
				Policies: []heedtest.Policy{{Quota: quota, Window: window}},
				Latency:  stalls(1520*time.Millisecond, stall),
			}, 16, 8, nil}.play(t)
			t.Logf("window %v, stalls of %v: %d accepted, %d refused", window, stall, tally.Accepted, tally.Refused)
			if admissible := 9 * quota; tally.Accepted < admissible*985/1000 || tally.Refused > 0 {
				t.Errorf("window %v, stalls of %v: %d of %d accepted, %d refused", window, stall, tally.Accepted, admissible, tally.Refused)
			}
		}
	}
}
