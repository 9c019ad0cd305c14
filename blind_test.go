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

// That something was left is no news in an answer to a request that went before nothing
// was: the wait that a refusal names is measured from then all the same.
func TestWaitForABareCountIsMeasuredWhateverOrderAnswersComeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		defer r.Close()
		observe := func(pm *heed.Permit, status int, left string, more ...string) {
			time.Sleep(time.Millisecond)
			pm.Observe(answer(status, append(more, "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", left)...))
			pm.Release()
		}
		spend := func() {
			observe(acquire(t, r, request(example)), 200, "2")
			first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
			observe(second, 200, "0")
			observe(first, 200, "1")
		}
		spend()
		wait := r.Check(request(example)).Wait
		observe(acquire(t, r, request(example)), 429, "0", "X-RateLimit-Reset", "20", "Retry-After", "20")
		time.Sleep(25 * time.Second)
		spend()
		if again := r.Check(request(example)).Wait; again < wait+19*time.Second {
			t.Errorf("it waits for %v where %v were 20 s too short", again, wait)
		}
	})
}
