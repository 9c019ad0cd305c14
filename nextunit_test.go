package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Some name beside what is left of a bucket when its next unit is back, as an instant in whole seconds. That is a second away at most, and
// no window of a second that others use up: what is left tells how many may go.
func TestResetsThatAreABucketsNextUnitAreNoWindowsEnd(t *testing.T) {
	for _, c := range []struct {
		quota  int
		window time.Duration
		unit   time.Duration // of the instants that are named
		way    time.Duration
	}{
		{100, time.Minute, time.Second, 100 * time.Millisecond},
		{300, time.Minute, time.Second, 20 * time.Millisecond},
		{300, time.Minute, time.Millisecond, 50 * time.Millisecond},
		{1000, time.Minute, time.Second, 5 * time.Millisecond},
		{5000, time.Hour, time.Second, 5 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(c.window * 2 / 5)
			b := bucketOf(c.quota, c.window)
			l := &limiter{way: c.way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				ok := b.take(now)
				countsOf(h, c.quota, b.left)
				next := now.Add(time.Duration(max(1-b.left, 0) / b.rate * 1e9))
				h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(math.Ceil(next.Sub(time.Unix(0, 0)).Seconds()/c.unit.Seconds())), 10))
				return ok
			}}
			l.ask(t, 10*time.Minute, example)
			could := float64(c.quota) + b.rate*600
			t.Logf("%d per %v, %v away: %d of %.0f accepted, %d refused", c.quota, c.window, c.way, l.accepted, could, l.refused)
			if float64(l.accepted) < .97*could || l.refused > 120 {
				t.Errorf("%d per %v, %v away: %d of %.0f accepted, %d refused; want 97 %% at least, and at most 120", c.quota, c.window, c.way, l.accepted, could, l.refused)
			}
		})
	}
}
