package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Who share a window of which accepted answers say what is left, but not until when, find out how long it is: from refusals that say when
// there is more, or from when all was back. They spread what is left over it then, and few are refused at its end.
func TestProcessesFindOutHowLongAWindowIsThatAcceptedAnswersDoNotTime(t *testing.T) {
	manyRequests(t)
	for _, says := range []struct {
		name    string
		refused func(h http.Header, wait time.Duration) // what a refusal adds
		most    int                                     // refused in all
	}{
		{"when in seconds", func(h http.Header, wait time.Duration) {
			h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		}, 450},
		{"Retry-After", func(h http.Header, wait time.Duration) {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		}, 650},
		{"nothing", func(http.Header, time.Duration) {}, 800},
	} {
		const quota, length, lasts = 50, 5 * time.Second, 3 * time.Minute
		accepted, refused, could := 0, 0, 0
		for _, processes := range []int{2, 4} {
			for _, byTheClock := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(1850 * time.Millisecond)
					w := window{quota: quota, length: length}
					l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
						if byTheClock && !now.Before(w.end) {
							w.used, w.end = 0, now.Truncate(length).Add(length)
						}
						ok := w.take(now)
						countsOf(h, quota, float64(max(quota-w.used, 0)))
						if !ok {
							says.refused(h, w.end.Sub(now))
						}
						return ok
					}}
					l.sharedBy(t, processes, 8, lasts)
					t.Logf("%d processes, refusals say %s, by the clock %v: %d accepted, %d refused", processes, says.name, byTheClock, l.accepted, l.refused)
					accepted, refused, could = accepted+l.accepted, refused+l.refused, could+quota*int(lasts/length)
				})
			}
		}
		if accepted < could*85/100 || refused > says.most {
			t.Errorf("refusals say %s: %d of %d accepted, %d refused; want at most %d", says.name, accepted, could, refused, says.most)
		}
	}
}
