package heed_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
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
