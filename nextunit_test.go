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
	manyRequests(t)
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

// Nor are they where nobody says how many are left. Then the refusals that come though less than all of such a window is used show it, and
// the limit is learned from them.
func TestResetsThatAreABucketsNextUnitAreNoWindowsEndThoughNobodySaysWhatIsLeft(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		name            string
		instant, refuse bool // the reset is an instant; a refusal names it, too
	}{
		{"an instant, with every answer", true, true},
		{"an instant, with accepted answers", true, false},
		{"in how long, with every answer", false, true},
	} {
		for _, way := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(1850 * time.Millisecond)
				b := bucketOf(50, 5*time.Second)
				l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
					ok := b.take(now)
					h.Set("X-RateLimit-Limit", "50")
					next := max(1-b.left, 0) / b.rate
					if c.instant {
						next += now.Sub(time.Unix(0, 0)).Seconds()
					}
					if ok || c.refuse {
						h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(next))))
					} else {
						h.Set("X-RateLimit-Remaining", "0")
					}
					return ok
				}}
				l.ask(t, 5*time.Minute, example)
				t.Logf("%s, %v away: %d of 3050 accepted, %d refused", c.name, way, l.accepted, l.refused)
				if l.accepted < 2900 || l.refused > 150 {
					t.Errorf("%s, %v away: %d of 3050 accepted, %d refused; want 2900 at least, and at most 150", c.name, way, l.accepted, l.refused)
				}
			})
		}
	}
}

// Others who take most of a window at once, time and again, after this process had it for itself, look as if such resets were no ends of windows.
// That is seen to be wrong once they have gone.
func TestWindowsThatOthersTookMostOfAreWindowsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := window{quota: 100, length: 5 * time.Second}
		turned := 0
		l := &limiter{way: time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			end := w.end
			ok := w.take(now)
			if w.end != end {
				if turned++; turned > 1 && turned < 8 {
					w.used += 85
				}
			}
			countsOf(h, w.quota, float64(max(w.quota-w.used, 0)))
			h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(math.Ceil(w.end.Sub(time.Unix(0, 0)).Seconds())), 10))
			return ok
		}}
		l.ask(t, 5*time.Minute, example)
		could := 54*100 + 6*15
		t.Logf("%d of %d accepted, %d refused", l.accepted, could, l.refused)
		if l.accepted < could*9/10 || l.refused > 20 {
			t.Errorf("%d of %d accepted, %d refused; want 90 %% at least, and at most 20", l.accepted, could, l.refused)
		}
	})
}
