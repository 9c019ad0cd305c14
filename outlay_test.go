package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// bucketOf is full at first.
func bucketOf(quota int, window time.Duration) *tokenBucket {
	return &tokenBucket{rate: float64(quota) / window.Seconds(), burst: float64(quota)}
}

// countsOf are the fields of who tells of no window and no end.
func countsOf(h http.Header, quota int, left float64) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(quota))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(int(left)))
}

// A bucket that only refusals tell of, and that nothing is left of it, gives back some of it after any wait. As much as came back after
// one goes after the next, without a refusal that shows that it is gone; and that some came back at all is no reason to
// wait for longer.
func TestBucketThatOnlyRefusalsTellOfIsUsedUp(t *testing.T) {
	for _, c := range []struct {
		quota         int
		window, lasts time.Duration
		least, most   int // accepted at least, and refused at most
	}{
		{10, time.Second, 10 * time.Minute, 5200, 140},
		{20, 10 * time.Second, 10 * time.Minute, 1050, 120},
		{100, time.Minute, 10 * time.Minute, 1000, 100},
		{1000, time.Hour, 2 * time.Hour, 2500, 170},
	} {
		for _, way := range []time.Duration{100 * time.Microsecond, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				b := bucketOf(c.quota, c.window)
				l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
					ok := b.take(now)
					if !ok {
						countsOf(h, c.quota, 0)
					}
					return ok
				}}
				l.ask(t, c.lasts, example)
				t.Logf("%d per %v, %v away: %d accepted, %d refused", c.quota, c.window, way, l.accepted, l.refused)
				if l.accepted < c.least || l.refused > c.most {
					t.Errorf("%d per %v, %v away: %d accepted, %d refused; want at least %d and at most %d", c.quota, c.window, way, l.accepted, l.refused, c.least, c.most)
				}
			})
		}
	}
}

// One of two buckets tells of itself with each answer, unless the other one refuses: that one is never told of otherwise. Which is which
// is found out even where a refusal comes first whenever more go.
func TestBucketThatOnlyRefusalsTellOfBesideOneThatAllAnswersTellOf(t *testing.T) {
	for _, way := range []time.Duration{100 * time.Microsecond, 5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			outer, inner := bucketOf(100, time.Minute), bucketOf(10, time.Second)
			l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				if !outer.take(now) {
					countsOf(h, 100, 0)
					return false
				}
				ok := inner.take(now)
				countsOf(h, 10, inner.left)
				return ok
			}}
			l.ask(t, 10*time.Minute, example)
			t.Logf("%v away: %d accepted, %d refused", way, l.accepted, l.refused)
			if l.accepted < 970 || l.refused > 150 { // of 1100
				t.Errorf("%v away: %d accepted, %d refused; want at least 970 and at most 150", way, l.accepted, l.refused)
			}
		})
	}
}

// What came back after a wait is forgotten with the quota it was of, and is followed where others leave more of it.
func TestWhatOnlyRefusalsTellOfFollowsTheQuotaAndWhatOthersLeave(t *testing.T) {
	const length, half = 10 * time.Second, 5 * time.Minute
	for name, c := range map[string]struct {
		before, after, others int
		least, most           int // accepted and refused in the second half
	}{
		"quota cut":    {before: 100, after: 20, least: 550, most: 30},
		"quota raised": {before: 20, after: 100, least: 2700, most: 40},
		"others leave": {before: 50, after: 50, others: 35, least: 1150, most: 40},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, began := window{quota: c.before, length: length}, time.Now()
			accepted, refused := 0, 0
			l := &limiter{way: 5 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				second := now.Sub(began) > half
				if second {
					w.quota = c.after
				}
				turned := !now.Before(w.end)
				ok := w.take(now)
				if turned && !second {
					w.used += c.others
				}
				h.Set("X-RateLimit-Limit", strconv.Itoa(w.quota))
				if !ok {
					h.Set("X-RateLimit-Remaining", "0")
				}
				switch {
				case second && ok:
					accepted++
				case second:
					refused++
				}
				return ok
			}}
			l.ask(t, 2*half, example)
			t.Logf("%s: %d accepted and %d refused after it", name, accepted, refused)
			if accepted < c.least || refused > c.most {
				t.Errorf("%s: %d accepted and %d refused after it, want at least %d and at most %d", name, accepted, refused, c.least, c.most)
			}
		})
	}
}

// Where accepted answers say that nothing is left, and only refusals when there is more, as a bucket does that gives a unit a second, the
// wait that such a refusal named is enough the next time.
func TestWaitThatARefusalNamedForTheNextUnitIsNotHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(22200 * time.Millisecond)
		b := bucketOf(60, time.Minute)
		l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := b.take(now)
			countsOf(h, 60, b.left)
			if !ok {
				h.Set("X-RateLimit-Reset", strconv.FormatFloat((1-b.left)/b.rate, 'f', 3, 64))
			}
			return ok
		}}
		l.ask(t, 5*time.Minute, example)
		t.Logf("%d of 360 accepted, %d refused", l.accepted, l.refused)
		if l.accepted < 350 || l.refused > 10 {
			t.Errorf("%d of 360 accepted, %d refused", l.accepted, l.refused)
		}
	})
}

// Who share a bucket of which nothing is left all look for more a second later. They are told of the same units then, and go for
// them; so they come to look at different times.
func TestProcessesThatShareABucketDoNotLookForMoreAtTheSameInstant(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		name      string
		next      bool // answers name when the next unit is back
		processes int
		way       time.Duration
		most      int // refused
	}{
		{"no reset", false, 2, 20 * time.Millisecond, 300},
		{"no reset", false, 4, time.Millisecond, 300},
		{"no reset", false, 4, 20 * time.Millisecond, 600},
		{"its next unit", true, 2, time.Millisecond, 200},
		{"its next unit", true, 4, time.Millisecond, 500},
		{"its next unit", true, 4, 20 * time.Millisecond, 900},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := bucketOf(50, 5*time.Second)
			l := &limiter{way: c.way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				ok := b.take(now)
				countsOf(h, 50, b.left)
				if c.next {
					h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(max(1-b.left, 0)/b.rate))))
				}
				return ok
			}}
			l.sharedBy(t, c.processes, 8, 3*time.Minute)
			t.Logf("%d processes, %s, %v away: %d of 1850 accepted, %d refused", c.processes, c.name, c.way, l.accepted, l.refused)
			if l.accepted < 1750 || l.refused > c.most {
				t.Errorf("%d processes, %s, %v away: %d of 1850 accepted, %d refused; want 1750 at least, and at most %d", c.processes, c.name, c.way, l.accepted, l.refused, c.most)
			}
		})
	}
}
