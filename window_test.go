package heed_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Requests that go evenly meet at the origin where some are late, and in a window that is
// used up almost all the time one too many of them costs the wait that is named.
func TestLateRequestsDoNotMeetInALearnedWindow(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow} {
		for seed := range uint64(4) {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
				RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
			}, 16, 20, nil}.play(t)
			t.Logf("%s: %d accepted, %d refused", algorithm, tally.Accepted, tally.Refused)
			if tally.Refused > 15 || tally.Accepted < 910 { // those in flight at the first refusal
				t.Errorf("%s: %d accepted of 1000, %d refused", algorithm, tally.Accepted, tally.Refused)
			}
		}
	}
}

// More than one window lets through was accepted at first, as it turned meanwhile. When that
// shows, its length is still what it was taken for, and not the longest that it could be.
func TestWindowIsNotTakenForALongerOneWhereItFits(t *testing.T) {
	manyRequests(t)
	for _, turns := range []time.Duration{250, 300, 350, 400} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.RoundTrip(50 * time.Millisecond), Phase: turns * time.Millisecond,
		}, 16, 20, nil}.play(t)
		t.Logf("%v: %d accepted, %d refused", turns*time.Millisecond, tally.Accepted, tally.Refused)
		if tally.Accepted < 1700 {
			t.Errorf("turns after %d ms: %d accepted of 2000, %d refused", turns, tally.Accepted, tally.Refused)
		}
	}
}

// A bucket lets some through of what is on its way when it is exceeded: how many tells its rate,
// and that it was not closed.
func TestBucketBehindLongRoundTripsIsNotTakenForAWindow(t *testing.T) {
	manyRequests(t)
	const runs = 32 // which of those in flight is refused is chance
	var accepted, refused int64
	for range runs {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 16, 20, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if refused > 11*runs || accepted < 905*runs {
		t.Errorf("%d accepted of %d, %d refused", accepted, 1050*runs, refused)
	}
}

// As many were accepted as the first time, and then nothing for longer than a bucket takes: it is
// a window, though the wait that was named is too short for it.
func TestWindowLongerThanTheWaitThatIsNamedIsFound(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
		RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: 5 * time.Second}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
	}, 16, 20, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Refused > 31 || tally.Accepted < 1830 {
		t.Errorf("%d accepted of 2000, %d refused", tally.Accepted, tally.Refused)
	}
}

// Nor is a window missed because its first request was long on its way.
func TestWindowThatBeganLateIsFound(t *testing.T) {
	manyRequests(t)
	for seed := range uint64(24) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.Silent,
			Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
		}, 16, 20, nil}.play(t)
		t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
		if tally.Refused > 38 || tally.Accepted < 870 {
			t.Errorf("%d accepted of 1000, %d refused", tally.Accepted, tally.Refused)
		}
	}
}

// Requests that are not answered for hours are no reason for others to wait as long: the window
// that they count in is over.
func TestRequestsThatHangHoldALearnedWindowForNoLongerThanOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, length = 20, 5 * time.Second
		w := &window{quota: quota, length: length}
		l := &limiter{accepts: func(_ *http.Request, now time.Time, _ http.Header) bool { return w.take(now) }}
		hangs := time.Now().Add(4 * time.Minute)
		end := hangs.Add(10 * length)
		var hung atomic.Int64
		tr := quiet(t, baseFunc(func(r *http.Request) (*http.Response, error) {
			if time.Now().After(hangs) {
				hung.Add(1)
				time.Sleep(3 * time.Hour)
			}
			return l.RoundTrip(r)
		}), heed.Limits{})
		c := tr.Client()
		busy := asking(100, end, func(int) (*http.Response, error) { return c.Get("http://origin.test/") })
		time.Sleep(time.Until(end))
		if n := hung.Load(); n < quota+8 {
			t.Errorf("%d of 100 went in ten windows in which none was answered; want %d and one for each after the first", n, quota)
		}
		tr.Registry.Close()
		busy.Wait()
	})
}

// What was let through at once, just before a window by the clock ended, is not let through as soon
// again: that it is closed for longer the next times, as it says itself, is no outage.
func TestWindowByTheClockThatHadHardlyBegunIsFoundSoon(t *testing.T) {
	manyRequests(t)
	var accepted, refused int64
	const runs = 8
	for i := range time.Duration(runs) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			Latency: heedtest.RoundTrip(5 * time.Millisecond), Phase: (200 + 100*i) * time.Millisecond,
		}, 16, 20, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if refused > 22*runs || accepted < 950*runs {
		t.Errorf("%d accepted of %d, %d refused", accepted, 1000*runs, refused)
	}
}

// A window of no round length looks like one of five seconds at first, for so long heed waits.
func TestHiddenWindowsOfOddLengthAreFoundOut(t *testing.T) {
	sideBySide(t)
	for _, c := range []struct {
		window  time.Duration
		windows int
		share   float64
	}{{2 * time.Second, 60, 0.65}, {3 * time.Second, 60, 0.78}, {20 * time.Second, 24, 0.76}} {
		const quota = 20
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindow, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: c.window}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, 16, c.windows, nil}.play(t)
		all := float64(c.windows * quota)
		if t.Logf("%v: %.2f accepted, %d refused", c.window, float64(tally.Accepted)/all, tally.Refused); float64(tally.Accepted) < c.share*all || tally.Refused > 30 {
			t.Errorf("%v: %d accepted of %v, %d refused", c.window, tally.Accepted, all, tally.Refused)
		}
	}
}

// Right after a wait hardly anything is sent, and then far more. What a sliding window lets through is counted
// to the unit all the same, so that none of it is left over until more is tried.
func TestSlidingWindowIsCountedToTheUnitAfterAWait(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
		RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: 5 * time.Second}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
	}, 64, 20, func(o *heedtest.Origin, _ *heed.Registry) {
		time.Sleep(5 * time.Second) // how many were in flight at the first refusal is chance
		o.ResetTally()
	}}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Refused > 12 || tally.Accepted < 1710 {
		t.Errorf("%d accepted of 1900, %d refused", tally.Accepted, tally.Refused)
	}
}

// Where two windows had met at first, a pace hardly below the one that those tell is refused. What came since the
// refusal before says little then, for some of that time was a long wait.
func TestPaceOfAWindowDoesNotFallByAWaitBeforeIt(t *testing.T) {
	sideBySide(t)
	for _, turns := range []time.Duration{1000, 1250} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterShort}, Latency: heedtest.RoundTrip(500 * time.Millisecond), Phase: turns * time.Millisecond,
		}, 16, 20, nil}.play(t)
		t.Logf("turns after %d ms: %d accepted, %d refused", turns, tally.Accepted, tally.Refused)
		if tally.Refused > 30 || tally.Accepted < 800 {
			t.Errorf("turns after %d ms: %d accepted of 1000, %d refused", turns, tally.Accepted, tally.Refused)
		}
	}
}
