package heed_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// What was used of a sliding window is back before the answer to it is a window
// old, by as long as that and the next request are on their way: however the reset is
// announced, and be the quota so small that they take no longer than a unit.
func TestSlidingWindowFarAwayIsUsedUp(t *testing.T) {
	for _, c := range []struct {
		dialect heedtest.Dialect
		quota   int64
		share   float64
	}{
		{heedtest.IETF11, 50, 0.97},
		{heedtest.IETF11, 10, 0.88},
		{heedtest.XRateLimitEpochMillis, 50, 0.97},
	} {
		const windows = 20
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: c.quota, Window: 5 * time.Second}},
			Dialect: c.dialect, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 16, windows, nil}.play(t)
		t.Logf("%s, %d: %d accepted, %d refused", c.dialect, c.quota, tally.Accepted, tally.Refused)
		if tally.Refused > 0 || tally.EarlyStanding > 0 {
			t.Errorf("%s, %d: %d refused, %d early", c.dialect, c.quota, tally.Refused, tally.EarlyStanding)
		}
		if least := int64(c.share * windows * float64(c.quota)); tally.Accepted < least {
			t.Errorf("%s, %d: %d accepted, want at least %d", c.dialect, c.quota, tally.Accepted, least)
		}
	}
}

// A unit whose answer was long on its way has left the window long before that answer is a
// window old: later ones show when it had been counted.
func TestSlidingWindowIsUsedUpWhereSomeAnswersTakeLong(t *testing.T) {
	const windows, quota = 20, 20
	accepted := int64(0)
	for _, c := range []struct {
		every int64
		takes time.Duration
	}{{10, 2 * time.Second}, {20, 4 * time.Second}, {30, 9 * time.Second}, {40, 9 * time.Second}} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}},
			Latency: func(n int64) (up, down time.Duration) {
				if n%c.every == c.every-1 {
					return 5 * time.Millisecond, c.takes
				}
				return 5 * time.Millisecond, 5 * time.Millisecond
			},
		}, 64, windows, nil}.play(t)
		if tally.Refused > 0 || tally.EarlyStanding > 0 {
			t.Errorf("every %dth answer takes %v: %d refused, %d early", c.every, c.takes, tally.Refused, tally.EarlyStanding)
		}
		accepted += tally.Accepted
	}
	t.Logf("%d accepted", accepted)
	if accepted < 4*windows*quota*965/1000 {
		t.Errorf("%d accepted of %d", accepted, 4*windows*quota)
	}
}

// How much of a sliding window others use shows in every answer, however many requests
// of one's own are on their way, as long as answers come in the order of
// their requests.
func TestOthersOnASlidingWindowAreSeenFromFarAway(t *testing.T) {
	const windows, quota = 20, 50
	wanted, served := 0, 0
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
	}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
		for range 198 { // a fifth of the quota
			time.Sleep(500*time.Millisecond + 777*time.Microsecond)
			wanted++
			if o.Take(1) {
				served++
			}
		}
	}}.play(t)
	t.Logf("%d of %d served, %d accepted, %d refused", served, wanted, tally.Accepted, tally.Refused)
	if served < wanted*97/100 {
		t.Errorf("the others got %d of %d", served, wanted)
	}
	if left := int64(windows * quota * 4 / 5); tally.Accepted < left*88/100 || tally.Refused > 10 {
		t.Errorf("%d accepted of the %d left, %d refused", tally.Accepted, left, tally.Refused)
	}
}

// A burst that is under way when the first word of a policy comes, part of which is refused,
// leaves more in use than is known: that less is back later says nothing of how a quota
// comes back.
func TestSlidingWindowThatIsAnnouncedInTheMiddleOfABurstIsUsedUp(t *testing.T) {
	manyRequests(t)
	for range 8 { // which of the answers comes first is for chance to decide
		const windows, quota = 20, 50
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Below: 0.2,
			Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 64, windows, nil}.play(t)
		t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
		if tally.Accepted < windows*quota*9/10 {
			t.Errorf("%d accepted of %d", tally.Accepted, windows*quota)
		}
	}
}

// A sliding window whose resets are instants in whole seconds, the next one when they fall on one,
// seems longer than it is: that what was used is back sooner shows how long. flask-limiter
// announces one so. What an origin forgets that begins anew shows nothing for good.
func TestSlidingWindowsShorterThanTheirResetsSayAreUsedUp(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		quota, seconds int
		anew           bool
		share          float64
		refused        int
	}{{10, 1, false, 0.7, 0}, {30, 3, false, 0.92, 0}, {30, 3, true, 0.92, 3}, {77, 7, true, 0.96, 3}} {
		const windows = 20
		length := time.Duration(c.seconds) * time.Second
		least := int(c.share * windows * float64(c.quota))
		fare(t, windows*length, least, c.refused, func() func(now time.Time, h http.Header) bool {
			var log []time.Time
			begin, anew := time.Now(), c.anew
			return func(now time.Time, h http.Header) bool {
				for len(log) > 0 && now.Sub(log[0]) >= length {
					log = log[1:]
				}
				if anew && now.Sub(begin) > windows*length/3 {
					log, anew = nil, false
				}
				ok := len(log) < c.quota
				if ok {
					log = append(log, now)
				}
				usualFields(h, c.quota, c.quota-len(log), log[0].Add(length).Unix()+1)
				return ok
			}
		})
	}
}

// What was found out of a quota says nothing of the one that takes its place once it has been
// nothing for a while: that may come back in another way.
func TestQuotaThatWasNothingIsFoundOutAboutAnew(t *testing.T) {
	for name, met := range map[string]bool{"never met": false, "met as a sliding window": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				say := func(quota, left, reset int) {
					pm := acquire(t, r, request(example))
					time.Sleep(10 * time.Millisecond)
					pm.Observe(answer(200, "RateLimit-Policy", fmt.Sprintf(`"p";q=%d;w=10`, quota), "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, left, reset)))
					pm.Release()
				}
				if met {
					tr := &heed.Transport{Registry: r, Base: heedtest.NewOrigin(heedtest.Config{
						Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Name: "p", Quota: 20, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(20 * time.Millisecond),
					})}
					began := time.Now()
					var wg sync.WaitGroup
					for range 4 {
						wg.Go(func() {
							for time.Since(began) < time.Minute {
								resp, err := tr.RoundTrip(request(example))
								if err != nil {
									t.Error(err)
									return
								}
								resp.Body.Close()
							}
						})
					}
					wg.Wait()
					say(0, 0, 5)
					time.Sleep(11 * time.Second)
				}
				for left := range 5 { // a fixed window near its end
					say(20, 19-left, 2)
				}
				time.Sleep(2100 * time.Millisecond)
				say(20, 11, 10) // others have used 8 of the next one already
				d := r.Check(request(example).WithContext(heed.WithCost(t.Context(), heed.UnitRequests, 13)))
				if d.Wait != 10*time.Second {
					t.Errorf("%+v, want a wait for the end of the window, 10s", d)
				}
			})
		})
	}
}

// Whoever looks at what is left of a sliding window that others use, too, changes nothing of what is known of them.
func TestLookingOnChangesNothingOfASlidingWindow(t *testing.T) {
	for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimitEpochMillis} {
		play := func(look func(*heed.Registry)) (took time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: heedtest.SlidingWindow, Dialect: dialect, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
					Latency: heedtest.RoundTrip(20 * time.Millisecond),
				})
				r := newRegistry(t, heed.Config{})
				tr := &heed.Transport{Registry: r, Base: o}
				begun := time.Now()
				for i := range 600 {
					if i%5 != 0 {
						o.Take(1 + int64(i%2))
					}
					look(r)
					sendOne(t, tr, get(t.Context(), site))
					if i%100 == 40 {
						time.Sleep(3 * time.Second)
						look(r)
					}
				}
				took = time.Since(begun)
			})
			return took
		}
		unseen := play(func(*heed.Registry) {})
		seen := play(func(r *heed.Registry) { r.Snapshot() })
		if unseen != seen {
			t.Errorf("%s: took %v, and %v where it was looked at", dialect, unseen, seen)
		}
	}
}

// A request that is long on its way there does not hide that others have arrived, whose answers are long on
// their way back.
func TestSlidingWindowIsUsedUpWhereSomeRequestsTakeLongAndSomeAnswers(t *testing.T) {
	const windows, quota, long = 20, 20, 4 * time.Second
	accepted := int64(0)
	for _, every := range []int64{5, 8, 10} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}},
			Latency: func(n int64) (up, down time.Duration) {
				up, down = 5*time.Millisecond, 5*time.Millisecond
				switch n % every {
				case 2:
					up = long
				case 3, 4:
					down = long
				}
				return up, down
			},
		}, 64, windows, nil}.play(t)
		if tally.Refused > 0 || tally.EarlyStanding > 0 {
			t.Errorf("of every %d: %d refused, %d early", every, tally.Refused, tally.EarlyStanding)
		}
		accepted += tally.Accepted
	}
	t.Logf("%d accepted", accepted)
	if accepted < 3*windows*quota*855/1000 {
		t.Errorf("%d accepted of %d", accepted, 3*windows*quota)
	}
}

// The instant that the oldest unit of a sliding window comes back is over already by the answer that names it, where it is
// cut to seconds. From there to the next one named is no leap for which the window would have to have turned.
func TestInstantsThatAreOverAreNoLeapOfASlidingWindow(t *testing.T) {
	sideBySide(t)
	const windows, quota = 20, 30
	var accepted, refused int64
	for phase := range 6 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Dialect: heedtest.XRateLimitEpoch, Rounding: heedtest.RoundDown,
			Policies:  []heedtest.Policy{{Quota: quota, Window: 3 * time.Second}},
			ClockSkew: time.Duration(phase) * 157 * time.Millisecond, Latency: heedtest.RoundTrip(200 * time.Millisecond),
		}, 16, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 6*windows*quota*90/100 || refused > 10 {
		t.Errorf("%d accepted of %d, %d refused", accepted, 6*windows*quota, refused)
	}
}

// A sliding window that states no length is taken for one by how this process's own units come back where nobody else
// uses it: exact resets, which say that it slides before they have shown how long it is, would have it overrun.
func TestSlidingWindowOfUnknownLengthIsNotOverrunByWhoIsAlone(t *testing.T) {
	sideBySide(t)
	for _, trip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}},
			Dialect: heedtest.XRateLimit, Rounding: heedtest.Exact, Latency: heedtest.RoundTrip(trip),
		}, 16, 20, nil}.play(t)
		if tally.Accepted < 1800 || tally.Refused > 2 {
			t.Errorf("%v away: %d accepted of 2000, %d refused, want at least 1800 and at most 2", trip, tally.Accepted, tally.Refused)
		}
	}
}
