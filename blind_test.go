package heed_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// Many that are under way when another client has used up what is left have waited
// for nothing: they do not show that the wait was too short.
func TestManyRefusedAtOnceDoNotLengthenTheWaitForABareCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota = 20
		w, other := &window{quota: quota, length: 2 * time.Second}, time.Now().Add(20*time.Second)
		l := &limiter{way: 100 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := w.take(now)
			if ok && now.After(other) {
				w.used, other = quota, now.Add(20*time.Second)
			}
			h.Set("X-RateLimit-Remaining", strconv.Itoa(max(quota-w.used, 0)))
			return ok
		}}
		l.ask(t, 10*time.Minute, "http://origin.test/")
		if l.accepted < 3000 || l.refused > 600 {
			t.Errorf("%d accepted of 5400, %d refused", l.accepted, l.refused)
		}
	})
}

// Of a quota of one nothing is ever left: the reset that a refusal names is as far
// from the last accepted request, not from the first.
func TestWaitForABareCountIsMeasuredFromTheLastAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &window{quota: 1, length: 2 * time.Second}
		l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := w.take(now)
			h.Set("X-RateLimit-Remaining", "0")
			if !ok {
				h.Set("X-RateLimit-Reset", strconv.Itoa(int((w.end.Sub(now)+time.Second-1)/time.Second)))
			}
			return ok
		}}
		tr := quiet(t, l, heed.Limits{})
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
			sendOne(t, tr, get(t.Context(), site))
		}
		if l.accepted < 200 || l.refused > 20 {
			t.Errorf("%d accepted of 300, %d refused", l.accepted, l.refused)
		}
	})
}
