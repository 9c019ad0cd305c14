package heed_test

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Windows turn by the clock, and how long they are is said, but never when they end: that shows
// only where far more is left all at once.
func TestWindowsByTheClockWhoseEndIsNotNamedAreUsedUp(t *testing.T) {
	manyRequests(t)
	const windows = 20
	for _, policy := range []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}, {Quota: 200, Window: 20 * time.Second}} {
		for _, latency := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond} {
			for phase := range time.Duration(min(4, 200/policy.Quota)) {
				tally, _ := load{heedtest.Config{
					Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{policy},
					Phase: (1 + phase) * policy.Window / 5, Latency: heedtest.RoundTrip(latency),
				}, 64, windows, nil}.play(t)
				t.Logf("%d per %v, %v, phase %d: %d accepted, %d refused", policy.Quota, policy.Window, latency, phase, tally.Accepted, tally.Refused)
				if tally.Accepted < windows*policy.Quota*97/100 || tally.Refused > 0 {
					t.Errorf("%d per %v, %v: %d accepted of %d, %d refused", policy.Quota, policy.Window, latency, tally.Accepted, windows*policy.Quota, tally.Refused)
				}
			}
		}
	}
}

// Where they are first met shortly before they turn, hardly anything is back by then that could show it:
// that costs a refusal at the most, and as long as that names, but not the window after.
func TestWindowsMetShortlyBeforeAnEndThatIsNotNamedAreUsedUp(t *testing.T) {
	manyRequests(t)
	const windows = 4
	for _, policy := range []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}, {Quota: 100, Window: 10 * time.Second}, {Quota: 200, Window: time.Minute}} {
		for _, latency := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
			for _, ends := range []time.Duration{3 * latency / 4, 7 * latency / 4, 5 * latency, 300 * time.Millisecond, 600 * time.Millisecond} {
				tally, _ := load{heedtest.Config{
					Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{policy},
					Phase: ends, Latency: heedtest.RoundTrip(latency),
				}, 16, windows, nil}.play(t)
				t.Logf("%d per %v, %v, ends after %v: %d accepted, %d refused", policy.Quota, policy.Window, latency, ends, tally.Accepted, tally.Refused)
				if tally.Accepted < windows*policy.Quota*95/100 || tally.Refused > 1 || tally.Early > 0 {
					t.Errorf("%d per %v, %v, ends after %v: %d accepted of %d, %d refused, %d early", policy.Quota, policy.Window, latency, ends,
						tally.Accepted, windows*policy.Quota, tally.Refused, tally.Early)
				}
			}
		}
	}
}

// A request that went too soon for such a window waits for as long as its refusal names.
func TestRefusalNamesWhenAWindowTurnsWhoseEndIsNotNamed(t *testing.T) {
	const window, ends = time.Minute, 300 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{{Quota: 500, Window: window}},
			Phase: ends, Latency: heedtest.RoundTrip(time.Millisecond), Record: true,
		})
		tr := quiet(t, o, heed.Limits{})
		get := func() bool {
			resp, err := tr.Client().Get(site)
			if err != nil {
				return false // the registry was closed
			}
			resp.Body.Close()
			return true
		}
		get() // all that shows of the window that is met first
		time.Sleep(ends)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for get() {
				}
			})
		}
		time.Sleep(3 * window)
		events, tally := o.Events(), o.Tally()
		tr.Registry.Close()
		wg.Wait()
		if tally.Refused != 1 || tally.Early > 0 {
			t.Fatalf("%d refused, %d early", tally.Refused, tally.Early)
		}
		refused := slices.IndexFunc(events, func(e heedtest.Event) bool { return e.Status == http.StatusTooManyRequests })
		waited := events[refused+1].Start - events[refused].Delivered
		t.Logf("the next waited for %v", waited)
		if waited < time.Second || waited > 1200*time.Millisecond {
			t.Errorf("the next waited for %v, where a second was named", waited)
		}
	})
}

// Nor is it where only the last fifth of a window is told of: the silent answers before it are of that window,
// too.
func TestWindowsWhoseEndIsNotNamedAreUsedUpWhereTheirBeginningIsSilent(t *testing.T) {
	manyRequests(t)
	const windows, quota, phases = 20, 50, 16
	var accepted, refused int64
	for phase := range time.Duration(phases) { // in some, as chance will have it, less is used up
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
			Below: 0.2, Phase: phase * 330 * time.Millisecond, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, 64, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted of %d, %d refused", accepted, phases*windows*quota, refused)
	if accepted < phases*windows*quota*82/100 || refused > 40*phases {
		t.Errorf("%d accepted of %d, %d refused", accepted, phases*windows*quota, refused)
	}
}

// A window that was only inferred may be longer than it seems: what is used of it comes back no sooner.
// Where it is told of only when little is left of it, from one end to the next shows how long it is.
func TestInferredWindowsFarAwayAreNotMetSooner(t *testing.T) {
	manyRequests(t)
	const windows, quota, seeds = 20, 50, 4
	var accepted, refused int64
	for seed := range time.Duration(seeds) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.XRateLimitEpochMillis, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
			Below: 0.2, Phase: seed * 330 * time.Millisecond, ClockSkew: seed*2270*time.Millisecond + 333*time.Millisecond, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 64, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted of %d, %d refused", accepted, seeds*windows*quota, refused)
	if accepted < seeds*windows*quota*95/100 || refused > 180 { // 101 to 123 were, most of them at first, and 238 to 461 where it stays too short
		t.Errorf("%d accepted of %d, %d refused", accepted, seeds*windows*quota, refused)
	}
}

// Where a reset later than a window is named and not what is left, what went a window ago is back: who has
// waited for it goes no later than who comes by then.
func TestWhoWaitsBehindAResetAloneGoesNoLaterThanWhoComesThen(t *testing.T) {
	goes := func(comes time.Duration) (at, check time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			meet(t, r, example)
			begun := time.Now()
			for range 2 {
				pm := acquire(t, r, request(example))
				pm.Observe(answer(200, "RateLimit-Policy", `"p";q=2;w=1`, "RateLimit", `"p";t=3`))
				pm.Release()
			}
			check = r.Check(request(example)).Wait
			time.Sleep(comes)
			acquire(t, r, request(example)).Release()
			at = time.Since(begun)
		})
		return at, check
	}
	then, _ := goes(1100 * time.Millisecond)
	if waited, check := goes(0); waited != then || check != time.Second {
		t.Errorf("goes at %v where it waits, at %v where it comes later; Check says %v, want 1s", waited, then, check)
	}
}

// Windows that turn between two seconds, whose ends are dates: the date is over for the last part of each, and was then
// taken for the end before the last one, which made the windows seem longer.
func TestShortWindowsAreUsedUpWhoseEndsAreDates(t *testing.T) {
	const quota, window, trip = 10, time.Second, 50 * time.Millisecond
	for phase := range 5 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase) * 200 * time.Millisecond)
			var mu sync.Mutex
			var first time.Time
			var turn time.Duration
			left, accepted, refused := 0, 0, 0
			tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) {
				time.Sleep(trip / 2)
				defer time.Sleep(trip / 2)
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				if first.IsZero() {
					first, turn = now, -1
				}
				if at := now.Sub(first) / window; at != turn {
					turn, left = at, quota
				}
				status, end := 200, first.Add((turn+1)*window).UTC().Format(http.TimeFormat)
				if left == 0 {
					status, refused = 429, refused+1
				} else {
					left, accepted = left-1, accepted+1
				}
				return answer(status, "Date", now.UTC().Format(http.TimeFormat), "X-RateLimit-Limit", strconv.Itoa(quota),
					"X-RateLimit-Remaining", strconv.Itoa(left), "X-RateLimit-Reset", end), nil
			}), heed.Limits{})
			const windows = 20
			askAtOnce(tr, 16, windows*window)
			if accepted < windows*quota*95/100 || refused > 0 {
				t.Errorf("begun %d ms after a second: %d accepted of %d, %d refused", phase*200, accepted, windows*quota, refused)
			}
		})
	}
}
