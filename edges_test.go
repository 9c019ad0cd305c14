package heed_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// shareOfShortWindows is what part of the policy of c is accepted, and how many are refused, in five minutes for each of some phases, in milliseconds.
func shareOfShortWindows(t *testing.T, c heedtest.Config, phases ...int) (share float64, refused int64) {
	t.Helper()
	p := c.Policies[0]
	windows := int(5 * time.Minute / p.Window)
	for _, phase := range phases {
		c := c
		c.Phase = time.Duration(phase) * time.Millisecond
		tally, _ := load{c, 16, windows, nil}.play(t)
		share += float64(tally.Accepted) / float64(p.Quota*int64(windows*len(phases)))
		refused += tally.Refused
	}
	t.Logf("%.3f of it accepted, %d refused", share, refused)
	return share, refused
}

// Where resets are rounded by as much as a window is long, what is left tells when those of two counts end. Such a counter
// is not taken for a window, or a bucket, that others use as well.
func TestCounterOfShortWindowsIsUsedUp(t *testing.T) {
	manyRequests(t)
	for _, dialect := range []heedtest.Dialect{heedtest.IETF06, heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
		t.Run(string(dialect), func(t *testing.T) {
			share, refused := shareOfShortWindows(t, heedtest.Config{
				Algorithm: heedtest.SlidingCounter, Dialect: dialect, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second}},
				Latency: heedtest.RoundTrip(40 * time.Millisecond),
			}, 130, 370, 630, 900)
			if share < 0.68 || refused > 0 {
				t.Errorf("%.3f of it accepted, %d refused", share, refused)
			}
		})
	}
}

// Nor is anything else taken for two counts, of which a unit or two would be left each time.
func TestOtherShortWindowsAreNotTakenForTwoCounts(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		dialect   heedtest.Dialect
		policy    heedtest.Policy
		least     float64
	}{
		{heedtest.FixedWindowByClock, heedtest.XRateLimitEpoch, heedtest.Policy{Quota: 20, Window: 2 * time.Second}, 0.98},
		{heedtest.SlidingWindow, heedtest.IETF06, heedtest.Policy{Quota: 10, Window: 3 * time.Second}, 0.87},
		{heedtest.SlidingWindow, heedtest.XRateLimit, heedtest.Policy{Quota: 10, Window: 3 * time.Second}, 0.87},
		{heedtest.TokenBucket, heedtest.IETF06, heedtest.Policy{Quota: 20, Window: 2 * time.Second}, 0.98},
	} {
		t.Run(fmt.Sprint(c.algorithm, "/", c.dialect), func(t *testing.T) {
			share, refused := shareOfShortWindows(t, heedtest.Config{
				Algorithm: c.algorithm, Dialect: c.dialect, Policies: []heedtest.Policy{c.policy}, Latency: heedtest.RoundTrip(20 * time.Millisecond),
			}, 100)
			if share < c.least || refused > 0 {
				t.Errorf("%.3f of it accepted, %d refused", share, refused)
			}
		})
	}
}

// A request that costs all there is of such a counter, or more, goes when nothing else is in use.
func TestWhatCostsMoreThanACounterOfShortWindowsHasGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.SlidingCounter, Dialect: heedtest.IETF06, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second}},
			Latency: heedtest.RoundTrip(40 * time.Millisecond), Phase: 130 * time.Millisecond,
		})
		tr := quiet(t, o, heed.Limits{})
		client := tr.Client()
		others := asking(16, time.Now().Add(time.Minute), func(int) (*http.Response, error) { return client.Get(example) })
		time.Sleep(40 * time.Second) // by then it is known for one
		for _, cost := range []int64{2, 10, 25} {
			began := time.Now()
			resp, err := client.Do(get(heed.WithCost(t.Context(), heed.UnitRequests, cost), example))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if waited := time.Since(began); waited > 10*time.Second {
				t.Errorf("a request that costs %d waited for %v", cost, waited)
			}
		}
		others.Wait()
		tr.Registry.Close()
	})
}

// Where the origin keeps something else from an instant on, or allows more than can be reckoned with one by one, that is found out.
func TestWhatWasACounterOfShortWindowsIsUsedUpAsWhatItIsNow(t *testing.T) {
	for _, c := range []struct {
		now   heedtest.Algorithm
		quota int64
		least float64
	}{{heedtest.FixedWindow, 10, 0.87}, {heedtest.TokenBucket, 10, 0.9}, {heedtest.SlidingCounter, 100, 0.85}} {
		t.Run(fmt.Sprint(c.now, "/", c.quota), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := func(algorithm heedtest.Algorithm, quota int64) *heedtest.Origin {
					return heedtest.NewOrigin(heedtest.Config{
						Algorithm: algorithm, Dialect: heedtest.IETF06, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}},
						Latency: heedtest.RoundTrip(40 * time.Millisecond), Phase: 130 * time.Millisecond,
					})
				}
				first, then := of(heedtest.SlidingCounter, 10), of(c.now, c.quota)
				began := time.Now()
				tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
					if time.Since(began) < time.Minute {
						return first.RoundTrip(req)
					}
					return then.RoundTrip(req)
				}), heed.Limits{})
				client := tr.Client()
				busy := asking(16, began.Add(3*time.Minute), func(int) (*http.Response, error) { return client.Get(example) })
				time.Sleep(2 * time.Minute)
				before := then.Tally()
				busy.Wait()
				after := then.Tally()
				share := float64(after.Accepted-before.Accepted) / float64(60*c.quota)
				t.Logf("%.3f of it accepted, %d refused", share, after.Refused-before.Refused)
				if share < c.least || after.Refused-before.Refused > 6 {
					t.Errorf("%.3f of it accepted, %d refused", share, after.Refused-before.Refused)
				}
				tr.Registry.Close()
			})
		})
	}
}
