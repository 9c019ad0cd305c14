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

// sharedEvenly has four processes ask an origin for all they can get, and returns Jain's index of what they got, in the
// mean of some runs.
func sharedEvenly(t *testing.T, runs int, c heedtest.Config) (jain float64) {
	t.Helper()
	for run := range runs {
		c := c
		c.Phase = time.Duration(run) * c.Policies[0].Window / time.Duration(runs)
		c.ClockSkew = time.Duration(run) * 137 * time.Millisecond
		_, index := fourProcesses(t, c, 20)
		jain += index / float64(runs)
	}
	t.Logf("%s, %s: Jain's index %.3f", c.Dialect, c.Algorithm, jain)
	return jain
}

// A reset of a sliding window that is rounded down is mostly named as 0 where others use all of it. That it is near,
// time and again, tells that units come back one by one, whether or not it is known how long the window is.
func TestProcessesShareASlidingWindowWhoseResetsAreRoundedDown(t *testing.T) {
	manyRequests(t)
	for dialect, least := range map[heedtest.Dialect]float64{heedtest.IETF06: 0.98, heedtest.XRateLimit: 0.96, heedtest.XRateLimitEpoch: 0.9} {
		jain := sharedEvenly(t, 8, heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Dialect: dialect, Rounding: heedtest.RoundDown,
			Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		})
		if jain < least {
			t.Errorf("%s: Jain's index %.3f, want %.2f at least", dialect, jain, least)
		}
	}
}

// What several processes took of a sliding window in a bunch comes back in one, faster than at the rate of the policy. All of it is
// taken then, each time: none has it wait, so that the next bunch would be longer and begin later. In the mean .981 are used, and .963 where
// it does.
func TestBunchThatSeveralProcessesShareDoesNotComeLaterEachTime(t *testing.T) {
	manyRequests(t)
	const windows, runs = 20, 6
	var mean float64
	for run := range runs {
		tally, jain := fourProcesses(t, heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
			Latency: heedtest.RoundTrip(50 * time.Millisecond), Phase: time.Duration(run) * 800 * time.Millisecond,
		}, windows)
		share := float64(tally.Accepted) / (50 * windows)
		t.Logf("share %.3f, %d refused, Jain's index %.3f", share, tally.Refused, jain)
		if mean += share / runs; tally.Refused > 8 || jain < .93 {
			t.Errorf("share %.3f, %d refused, Jain's index %.3f", share, tally.Refused, jain)
		}
	}
	if mean < .972 {
		t.Errorf("share %.3f in the mean", mean)
	}
}

// Two counts whose window was taken for shorter than it is, for the instants named are rounded down, show how long it
// is by how far these are apart.
func TestProcessesShareTwoCountsWhoseWindowSeemedShorter(t *testing.T) {
	manyRequests(t)
	if jain := sharedEvenly(t, 16, heedtest.Config{
		Algorithm: heedtest.SlidingCounter, Dialect: heedtest.XRateLimitEpoch, Rounding: heedtest.RoundDown,
		Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}); jain < 0.9 {
		t.Errorf("Jain's index %.3f", jain)
	}
}

// A window that is met just before it ends seems to be that short. Where several processes take each unit of two counts
// as soon as it is back, nothing is ever left to name its end, until one waits for longer.
func TestProcessesFindOutHowLongAWindowIsThatSeemedShort(t *testing.T) {
	manyRequests(t)
	const runs = 12
	var refused float64
	for run := range runs {
		tally, _ := fourProcesses(t, heedtest.Config{
			Algorithm: heedtest.SlidingCounter, Dialect: heedtest.XRateLimit, Rounding: heedtest.Exact,
			Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
			Phase: time.Duration(100+run%4*10) * time.Millisecond,
		}, 20)
		refused += float64(tally.Refused) / runs
	}
	t.Logf("%.1f refused", refused)
	if refused > 180 {
		t.Errorf("%.1f refused", refused)
	}
}

// Whoever comes to a window in its last second, when others have used up nearly all of it, is told a reset of 0 where that
// is rounded down, and so of none. It does not wait for a whole window to see what is left: it would be as late for the next.
func TestWhoComesLateToAWindowDoesNotComeAsLateToTheNext(t *testing.T) {
	const windows, quota, length = 20, 50, 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Add(-700 * time.Millisecond)
		var mu sync.Mutex
		mine, all, window := 0, 0, time.Duration(0)
		tr := quiet(t, baseFunc(func(_ *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Millisecond)
			defer time.Sleep(2 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			since := time.Since(began)
			if since/length != window {
				mine, window = 0, since/length
			}
			mine, all = mine+1, all+1
			since %= length
			left := max(quota-mine-int(since.Seconds()*40), 1) // others leave one
			return answer(http.StatusOK, "RateLimit-Policy", "50;w=5", "RateLimit-Limit", "50",
				"RateLimit-Remaining", strconv.Itoa(left), "RateLimit-Reset", strconv.Itoa(int((length - since).Seconds()))), nil
		}), heed.Limits{})
		crowd(time.Now().Add(windows*length), []*heed.Transport{tr})
		t.Logf("%d accepted", all)
		if all < windows*3 {
			t.Errorf("%d accepted in %d windows", all, windows)
		}
	})
}

// Who is refused right at a reset is not taken to have come too soon where another one is named by then: others were first.
// The resets after that are not waited for longer than they are named for, once that has brought no more.
func TestResetAtWhichOthersWereFirstIsNotTakenToBeRoundedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := [][2]string{{"40", "3"}, {"20", "3"}, {"0", "3"}, {"0", "2"}}
		var asked []time.Time
		tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(5 * time.Millisecond)
			said, status := says[min(len(asked), 3)], http.StatusOK
			if asked = append(asked, time.Now()); len(asked) == 4 {
				status = http.StatusTooManyRequests
			}
			return answer(status, "RateLimit-Policy", "50;w=5", "RateLimit-Limit", "50", "RateLimit-Remaining", said[0], "RateLimit-Reset", said[1]), nil
		}), heed.Limits{})
		for range 8 {
			resp, err := tr.Client().Get("https://origin.test/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if waited := asked[8].Sub(asked[7]); waited < 2*time.Second || waited > 2500*time.Millisecond {
			t.Errorf("waited %v for what was to be back in 2 s", waited)
		}
	})
}
