package heed_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// An origin that says when its window ends in whole seconds, and cuts them off,
// names a reset that is less than a window away even with the first request in
// it. That is no shorter window.
func TestWindowsWhoseEndsAreCutOffAreNotTakenForShorterOnes(t *testing.T) {
	manyRequests(t)
	for phase := range 10 {
		tally, _ := load{heedtest.Config{
			Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.XRateLimitEpoch, Rounding: heedtest.RoundDown,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterNone}, Latency: heedtest.RoundTrip(time.Millisecond),
			ClockSkew: 30*time.Millisecond + time.Duration(phase)*100*time.Millisecond,
		}, 16, 6, nil}.play(t)
		if tally.Refused > 1 { // which shows that they are cut off
			t.Errorf("phase %d: %d refused", phase, tally.Refused)
		}
		if tally.Accepted < 240 {
			t.Errorf("phase %d: %d accepted of 300", phase, tally.Accepted)
		}
	}
}

// attack refuses as rack-attack does: windows are of so many seconds by the clock,
// and only refusals announce them.
func attack(quota int, length int64) *limiter {
	used, turn := 0, int64(0)
	return &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
		if n := now.Unix() / length; n != turn {
			used, turn = 0, n
		}
		if used++; used <= quota {
			return true
		}
		h.Set("Ratelimit-Limit", strconv.Itoa(quota))
		h.Set("Ratelimit-Remaining", "0")
		h.Set("Ratelimit-Reset", strconv.FormatInt((turn+1)*length, 10))
		return false
	}}
}

// A policy that only refusals announce, late in its windows, is known by how far
// apart their ends are.
func TestWindowsThatOnlyRefusalsTellOfAreKeptToFromTheSecondOn(t *testing.T) {
	manyRequests(t)
	for phase := range 10 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*500*time.Millisecond + 37*time.Millisecond)
			l := attack(50, 5)
			l.ask(t, time.Minute, "http://origin.test/")
			if l.refused > 20 { // what was in flight, and at the end of the second window
				t.Errorf("phase %d: %d refused", phase, l.refused)
			}
			if l.accepted < 520 {
				t.Errorf("phase %d: %d accepted of 600", phase, l.accepted)
			}
		})
	}
}

// From the end of one window to that of the next but one is no window.
func TestWindowsThatOnlyRefusalsTellOfAreNotTakenForTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := attack(50, 5)
		tr := quiet(t, l, heed.Limits{})
		ask := func(n int) {
			var busy sync.WaitGroup
			for range n {
				busy.Go(func() { sendOne(t, tr, get(t.Context(), site)) })
			}
			busy.Wait()
		}
		time.Sleep(2 * time.Second)
		ask(70) // twenty of them in the next window
		time.Sleep(time.Until(began.Add(11 * time.Second)))
		ask(70) // and some too many in that after it
		time.Sleep(time.Minute)
		before := l.accepted
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
			ask(16)
		}
		if n := l.accepted - before; n < 1100 || l.refused > 60 {
			t.Errorf("%d accepted of 1200, %d refused", n, l.refused)
		}
	})
}

// One answer that names a reset far too late does not make the window as long.
func TestOneResetNamedFarTooLateHoldsNothingForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, window = 50, 5 * time.Second
		var log []time.Time // when requests within the last window were accepted
		answers := 0
		l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			for len(log) > 0 && now.Sub(log[0]) >= window {
				log = log[1:]
			}
			ok := len(log) < quota
			if ok {
				log = append(log, now)
			}
			answers++
			reset := int64(log[0].Add(window).Sub(now)+time.Second-1) / int64(time.Second)
			if answers == 2*quota+quota/2 { // with something left
				reset = 900
			}
			h.Set("X-Ratelimit-Limit", strconv.Itoa(quota))
			h.Set("X-Ratelimit-Remaining", strconv.Itoa(quota-len(log)))
			h.Set("X-Ratelimit-Reset", strconv.FormatInt(reset, 10))
			return ok
		}}
		l.ask(t, time.Minute, "http://origin.test/")
		if l.accepted < 10*quota {
			t.Errorf("%d accepted, want %d of %d", l.accepted, 10*quota, 12*quota)
		}
	})
}
