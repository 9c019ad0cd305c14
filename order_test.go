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
