package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// Who share a bucket of which answers say what is left, but not how fast it fills, keep it from running dry: once they have found
// out what each of them gets, hardly any is refused, and nothing is lost.
func TestProcessesKeepABucketThatTheyShareFromRunningDry(t *testing.T) {
	manyRequests(t)
	for _, says := range []struct {
		name  string
		reset func(now time.Time, next float64) float64 // what answers say of when the next unit is back; nil: nothing
		known bool                                      // accepted ones, too
	}{
		{"no reset", nil, false},
		{"seconds until the next unit", func(_ time.Time, next float64) float64 { return next }, true},
		{"the second of the next unit, in refusals", func(now time.Time, next float64) float64 { return now.Sub(time.Unix(0, 0)).Seconds() + next }, false},
	} {
		for _, c := range []struct {
			processes, quota int
			window           time.Duration
		}{
			{2, 50, 5 * time.Second}, {4, 50, 5 * time.Second}, {4, 60, time.Minute}, {4, 1000, time.Minute}, {8, 1000, time.Minute},
		} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(370 * time.Millisecond)
				const learning, lasts = time.Minute, 4 * time.Minute
				began, late := time.Now(), 0
				b := bucketOf(c.quota, c.window)
				l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
					ok := b.take(now)
					countsOf(h, c.quota, b.left)
					if says.reset != nil && (says.known || !ok) {
						h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(says.reset(now, max(1-b.left, 0)/b.rate)))))
					}
					if !ok && now.Sub(began) > learning {
						late++
					}
					return ok
				}}
				l.sharedBy(t, c.processes, 8, lasts)
				could := c.quota + int(b.rate*lasts.Seconds())
				t.Logf("%d processes at %d per %v, %s: %d of %d accepted, %d refused, of them %d later on", c.processes, c.quota, c.window, says.name, l.accepted, could, l.refused, late)
				if l.accepted < could*19/20 || late > could/50 || l.refused > 40*c.processes {
					t.Errorf("%d processes at %d per %v, %s: %d of %d accepted, %d refused, of them %d later on",
						c.processes, c.quota, c.window, says.name, l.accepted, could, l.refused, late)
				}
			})
		}
	}
}

// When the others are gone, who is left gets what they got.
func TestWhoIsLeftOfThoseThatSharedABucketUsesAllOfIt(t *testing.T) {
	manyRequests(t)
	synctest.Test(t, func(t *testing.T) {
		const quota, shared, alone = 50, 2 * time.Minute, 2 * time.Minute
		var last int
		began := time.Now()
		b := bucketOf(quota, 5*time.Second)
		l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := b.take(now)
			countsOf(h, quota, b.left)
			if ok && now.Sub(began) > shared+30*time.Second {
				last++
			}
			return ok
		}}
		go l.sharedBy(t, 3, 8, shared)
		l.askedBy(t, 8, shared+alone)
		synctest.Wait()
		t.Logf("%d of 900 accepted, %d refused in all", last, l.refused)
		if last < 850 {
			t.Errorf("%d of 900 accepted, %d refused in all", last, l.refused)
		}
	})
}

// Who was quiet for long gets its part again, though the others use all there is.
func TestWhoWasQuietForLongGetsItsPartOfABucketAgain(t *testing.T) {
	manyRequests(t)
	var got [2]int // in the last two minutes, of those that were there and of the one that was quiet
	for range 4 {
		synctest.Test(t, func(t *testing.T) {
			const quota, back, end = 50, 2 * time.Minute, 6 * time.Minute
			began := time.Now()
			b := bucketOf(quota, 5*time.Second)
			var mu sync.Mutex
			of := func(who int) *limiter {
				return &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
					mu.Lock()
					defer mu.Unlock()
					ok := b.take(now)
					countsOf(h, quota, b.left)
					if ok && now.Sub(began) > end-2*time.Minute {
						got[who]++
					}
					return ok
				}}
			}
			var others sync.WaitGroup
			others.Go(func() { of(0).sharedBy(t, 3, 8, end) })
			tr := quiet(t, of(1), heed.Limits{})
			ask := func(int) (*http.Response, error) { return tr.Client().Get(example) }
			asking(8, began.Add(30*time.Second), ask).Wait()
			time.Sleep(time.Until(began.Add(back)))
			busy := asking(8, began.Add(end), ask)
			others.Wait()
			tr.Registry.Close()
			busy.Wait()
		})
	}
	t.Logf("in the last two minutes the others got %d, and it got %d", got[0], got[1])
	if part := float64(got[1]) / float64(got[0]+got[1]); part < 0.1 || part > 0.6 {
		t.Errorf("in the last two minutes the others got %d, and it got %d", got[0], got[1])
	}
}
