package heed_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// playUntimed has 16 goroutines ask an origin for ten minutes that says how much is left, but not until when: to nobody, or only to those
// it refuses.
func playUntimed(t *testing.T, c heedtest.Config, refusalsTell bool) (tally heedtest.Tally, could int64) {
	t.Helper()
	const length = 10 * time.Minute
	c.Dialect = heedtest.XRateLimit
	if !refusalsTell {
		c.RetryAfter.Mode = heedtest.RetryAfterNone
	}
	windows := int(length / c.Policies[0].Window)
	tally, _ = load{c, 16, windows, nil}.playBehind(t, func(o *heedtest.Origin) http.RoundTripper {
		return edited(o, func(resp *http.Response) {
			if resp.StatusCode == http.StatusOK || !refusalsTell {
				resp.Header.Del("X-RateLimit-Reset")
			}
		})
	})
	return tally, c.Policies[0].Quota * int64(windows)
}

// Where answers say how much is left, and never until when, the wait for more is soon as long as the window, be it no time that windows
// mostly have; and where it became too short, so that one was back and then the rest, it is made longer again.
func TestWaitForMoreThatNobodyTimesIsAsLongAsTheWindow(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow} {
		for _, p := range []heedtest.Policy{{Quota: 20, Window: 2 * time.Second}, {Quota: 30, Window: 3 * time.Second}, {Quota: 40, Window: 20 * time.Second}} {
			t.Run(fmt.Sprint(algorithm, "/", p.Quota, " in ", p.Window), func(t *testing.T) {
				tally, could := playUntimed(t, heedtest.Config{
					Algorithm: algorithm, Policies: []heedtest.Policy{p}, Phase: 370 * time.Millisecond, Latency: heedtest.RoundTrip(50 * time.Millisecond),
				}, false)
				t.Logf("%d of %d accepted, %d refused", tally.Accepted, could, tally.Refused)
				if tally.Accepted < could*88/100 || tally.Refused > 15 {
					t.Errorf("%d of %d accepted, %d refused", tally.Accepted, could, tally.Refused)
				}
			})
		}
	}
}

// Where only those that are refused are told when the window turns, be it by the clock or as long after its first request, a few show how
// long it is. It is not taken for shorter because it turned sooner after it was met than it lasts.
func TestWindowsOfWhichRefusalsTellTheEndAreNotOverrun(t *testing.T) {
	manyRequests(t)
	const uneven = "now long, now short"
	latencies := map[string]heedtest.Latency{
		"5ms": heedtest.RoundTrip(5 * time.Millisecond), "100ms": heedtest.RoundTrip(100 * time.Millisecond), uneven: heedtest.HeavyTail(30*time.Millisecond, 0.5, time.Second, 1),
	}
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		for _, p := range []heedtest.Policy{
			{Quota: 20, Window: 2 * time.Second}, {Quota: 10, Window: 3 * time.Second}, {Quota: 50, Window: 5 * time.Second}, {Quota: 10, Window: 10 * time.Second},
			{Quota: 40, Window: 20 * time.Second},
		} {
			for name, latency := range latencies {
				t.Run(fmt.Sprint(algorithm, "/", p.Quota, " in ", p.Window, "/", name), func(t *testing.T) {
					tally, could := playUntimed(t, heedtest.Config{
						Algorithm: algorithm, Policies: []heedtest.Policy{p}, Phase: 370 * time.Millisecond, Latency: latency,
					}, true)
					t.Logf("%d of %d accepted, %d refused", tally.Accepted, could, tally.Refused)
					least, most := could*93/100, int64(12)
					if name == uneven {
						least, most = could*88/100, 15
					}
					if tally.Accepted < least || tally.Refused > most {
						t.Errorf("%d of %d accepted, %d refused", tally.Accepted, could, tally.Refused)
					}
				})
			}
		}
	}
}

// So it is where it slides, which shows in that far more is never back at once: then each unit goes when one is back.
func TestSlidingWindowOfWhichRefusalsTellTheEndIsUsedUp(t *testing.T) {
	manyRequests(t)
	for _, p := range []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}, {Quota: 100, Window: time.Minute}} {
		for name, latency := range map[string]heedtest.Latency{"5ms": heedtest.RoundTrip(5 * time.Millisecond), "50ms": heedtest.RoundTrip(50 * time.Millisecond)} {
			t.Run(fmt.Sprint(p.Quota, " in ", p.Window, "/", name), func(t *testing.T) {
				tally, could := playUntimed(t, heedtest.Config{Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{p}, Latency: latency}, true)
				t.Logf("%d of %d accepted, %d refused", tally.Accepted, could, tally.Refused)
				if tally.Accepted < could*97/100 || tally.Refused > 5 {
					t.Errorf("%d of %d accepted, %d refused", tally.Accepted, could, tally.Refused)
				}
			})
		}
	}
}
