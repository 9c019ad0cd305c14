package heed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Many an origin names a limit per minute and keeps a small bucket that gives it out bit by bit. Nothing says how long it
// takes to fill, so nothing is counted on that was never seen to be there, or to come back.
func TestASmallBucketBehindALargeLimitIsNotOverrun(t *testing.T) {
	manyRequests(t)
	for _, burst := range []int64{10, 30} {
		for _, dialect := range []heedtest.Dialect{heedtest.XRateLimit, heedtest.XRateLimitEpoch, heedtest.XRateLimitEpochMillis} {
			for _, reset := range []heedtest.Reset{heedtest.ResetFull, heedtest.ResetNext} {
				for _, trip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
					t.Run(fmt.Sprint(burst, "/", dialect, "/", reset, "/", trip), func(t *testing.T) {
						tally, _ := load{heedtest.Config{
							Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 300, Window: time.Minute, Burst: burst}},
							Dialect: dialect, Reset: reset, Latency: heedtest.RoundTrip(trip),
						}, 64, 1, nil}.play(t)
						const most = 24 // how soon units come back is not known before some did
						if tally.Refused > most || tally.EarlyStanding > 0 || tally.Accepted < 240 {
							t.Errorf("%d accepted of 300, %d refused, %d early", tally.Accepted, tally.Refused, tally.EarlyStanding)
						}
					})
				}
			}
		}
	}
}

// A reset that is when the next unit of a bucket is back makes its window look shorter than a round trip. What was used longer
// ago than that is not all back, as the first stop shows.
func TestABucketIsNotOverrunWhoseResetsAreNearerThanARoundTrip(t *testing.T) {
	sideBySide(t)
	for _, trip := range []time.Duration{200 * time.Millisecond, 500 * time.Millisecond} {
		for _, burst := range []int64{30, 100} {
			t.Run(fmt.Sprint(trip, "/", burst), func(t *testing.T) {
				tally, _ := load{heedtest.Config{
					Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 300, Window: time.Minute, Burst: burst}},
					Dialect: heedtest.XRateLimit, Reset: heedtest.ResetNext, Rounding: heedtest.Exact, Latency: heedtest.RoundTrip(trip),
				}, 64, 2, nil}.play(t)
				if tally.Refused > 100 || tally.EarlyStanding > 0 || tally.Accepted < 570 {
					t.Errorf("%d accepted of 600, %d refused, %d early", tally.Accepted, tally.Refused, tally.EarlyStanding)
				}
			})
		}
	}
}

// By chance such a bucket looks as if others used most of the limit beside it. That its window is guessed too short shows all the same,
// and so no window slides, though resets are nearer than that.
func TestABucketIsNotTakenForAWindowThatSlidesBecauseAnotherLimitIsLarger(t *testing.T) {
	manyRequests(t)
	for range 200 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 300, Window: time.Minute, Burst: 100}},
			Dialect: heedtest.XRateLimit, Reset: heedtest.ResetNext, Rounding: heedtest.Exact, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 64, 2, nil}.play(t)
		if tally.Refused > 100 {
			t.Errorf("%d accepted of 600, %d refused", tally.Accepted, tally.Refused)
		}
	}
}

// A limit of many a minute, given out a few at once, has units back many times in the second that resets are named in. Neither
// that second nor the limit says how many come back by the next request: no more than ever were there, and as fast as
// they were seen to.
func TestABucketThatIsFullAgainManyTimesASecondIsNotOverrun(t *testing.T) {
	manyRequests(t)
	for _, goroutines := range []int{16, 64} {
		for _, trip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
			for _, reset := range []heedtest.Reset{heedtest.ResetFull, heedtest.ResetNext} {
				t.Run(fmt.Sprint(goroutines, "/", trip, "/", reset), func(t *testing.T) {
					tally, _ := load{heedtest.Config{
						Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 6000, Window: time.Minute, Burst: 20}},
						Dialect: heedtest.XRateLimit, Reset: reset, Latency: heedtest.RoundTrip(trip),
					}, goroutines, 1, nil}.play(t)
					if tally.Refused > 4 || tally.EarlyStanding > 0 || tally.Accepted < 4000 {
						t.Errorf("%d accepted of 6000, %d refused, %d early", tally.Accepted, tally.Refused, tally.EarlyStanding)
					}
				})
			}
		}
	}
}

// Where two are left of 300, and two are again a second later, it is not the 300 that come back with the reset named.
func TestABucketOfTwoBehindALargeLimitIsNotOverrun(t *testing.T) {
	sideBySide(t)
	for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.IETF07} {
		for _, goroutines := range []int{16, 64} {
			for _, trip := range []time.Duration{5 * time.Millisecond, 200 * time.Millisecond} {
				tally, _ := load{heedtest.Config{
					Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 300, Window: time.Minute, Burst: 2}},
					Dialect: dialect, Latency: heedtest.RoundTrip(trip),
				}, goroutines, 1, nil}.play(t)
				if tally.Refused > 0 || tally.EarlyStanding > 0 || tally.Accepted < 40 {
					t.Errorf("%s, %d goroutines, %v: %d accepted, %d refused, %d early", dialect, goroutines, trip, tally.Accepted, tally.Refused, tally.EarlyStanding)
				}
			}
		}
	}
}

// What would come back to a bucket beyond what it holds is lost, however often it would be full again until the next request
// arrives.
func TestWhatABucketCannotHoldIsNotCountedOn(t *testing.T) {
	manyRequests(t)
	for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.IETF07} {
		for _, goroutines := range []int{16, 64} {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 6000, Window: time.Minute, Burst: 5}},
				Dialect: dialect, Latency: heedtest.RoundTrip(200 * time.Millisecond),
			}, goroutines, 1, nil}.play(t)
			if tally.Refused > 8 || tally.EarlyStanding > 0 || tally.Accepted < 1500 {
				t.Errorf("%s, %d goroutines: %d accepted of 6000, %d refused, %d early", dialect, goroutines, tally.Accepted, tally.Refused, tally.EarlyStanding)
			}
		}
	}
}

// Where the window is stated, too, what a small bucket holds comes back at the rate of the quota, and not once in a window.
func TestASmallBucketBehindALongWindowIsUsedUp(t *testing.T) {
	manyRequests(t)
	for _, window := range []time.Duration{time.Minute, 10 * time.Minute} {
		for _, reset := range []struct {
			of       heedtest.Reset
			rounding heedtest.Rounding
		}{{heedtest.ResetNext, heedtest.RoundUp}, {heedtest.ResetFull, heedtest.RoundDown}} {
			quota := int64(5 * window / time.Second)
			tally, state := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: quota, Window: window, Burst: 10}},
				Reset: reset.of, Rounding: reset.rounding, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, 16, 1, nil}.play(t)
			if tally.Refused > 0 || tally.Accepted < quota*9/10 {
				t.Errorf("%v, %s: %d accepted of %d, %d refused", window, reset.of, tally.Accepted, quota, tally.Refused)
			}
			if p := state.Partitions[0].Policies[0]; p.Quota != quota || p.Window != window {
				t.Errorf("it shows %d per %v, want what is announced", p.Quota, p.Window)
			}
		}
	}
}

// What is left of a window that others have nearly used up is not all that it holds.
func TestAWindowThatWasMetLateIsUsedUpFromTheNextOneOn(t *testing.T) {
	sideBySide(t)
	for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimit, heedtest.XRateLimitEpochMillis} {
		const windows, quota = 10, 100
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}},
			Dialect: dialect, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) { o.Take(95) }}.play(t)
		if tally.Refused > 0 || tally.Accepted < (windows-1)*quota*97/100 {
			t.Errorf("%s: %d accepted of %d, %d refused", dialect, tally.Accepted, windows*quota, tally.Refused)
		}
	}
}

// So is one whose answers say how much is left only where that is little, and one that slides, whose units come back as those
// others took them.
func TestAQuotaThatOthersHadNearlyUsedUpIsUsedUpAfterwards(t *testing.T) {
	manyRequests(t)
	const windows, quota = 12, 100
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
			for _, below := range []float64{0, 0.2} {
				if below > 0 && algorithm == heedtest.SlidingWindow { // which is taken for a bucket now and then
					continue
				}
				for _, others := range []int64{50, 85, 95} {
					tally, _ := load{heedtest.Config{
						Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}},
						Dialect: dialect, Below: below, Latency: heedtest.RoundTrip(50 * time.Millisecond),
					}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) { o.Take(others) }}.play(t)
					if least := int64((windows-2)*quota - 10); tally.Accepted < least || tally.Refused > 0 {
						t.Errorf("%s, %s, told below %v, %d used by others: %d accepted, want at least %d, %d refused", algorithm, dialect, below, others, tally.Accepted, least, tally.Refused)
					}
				}
			}
		}
	}
}

// What was seen to be there at once is no bound where the limit is raised.
func TestARaisedQuotaIsUsedUp(t *testing.T) {
	manyRequests(t)
	const window, windows, before, quota = 10 * time.Second, 15, 5, 1000
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
			for _, reset := range []heedtest.Reset{heedtest.ResetFull, heedtest.ResetNext} {
				tally, _ := load{heedtest.Config{
					Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 10, Window: window}},
					Dialect: dialect, Reset: reset, Latency: heedtest.RoundTrip(50 * time.Millisecond),
				}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
					time.Sleep(before*window + 3*time.Second)
					o.SetPolicies(heedtest.Policy{Quota: quota, Window: window})
				}}.play(t)
				if least := int64((windows - before - 1) * quota * 99 / 100); tally.Accepted < least || tally.Refused > 4 {
					t.Errorf("%s, %s, %s: %d accepted, want at least %d, %d refused", algorithm, dialect, reset, tally.Accepted, least, tally.Refused)
				}
			}
		}
	}
}

// A bucket that stays full says nothing of how fast it fills, so the least it can be is no pace to keep to.
func TestARaisedBucketThatStaysFullIsTriedFaster(t *testing.T) {
	sideBySide(t)
	const window, windows, quota = 10 * time.Second, 10, 100
	for _, extra := range []time.Duration{0, 3 * time.Second, 9 * time.Second} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 5, Window: window}},
			Dialect: heedtest.XRateLimit, Reset: heedtest.ResetFull, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(3*window + extra)
			o.SetPolicies(heedtest.Policy{Quota: quota, Window: window})
		}}.play(t)
		if least := int64((windows - 4) * quota * 95 / 100); tally.Accepted < least || tally.Refused > 0 {
			t.Errorf("raised after %v: %d accepted, want at least %d, %d refused", 3*window+extra, tally.Accepted, least, tally.Refused)
		}
	}
}

// Where resets are instants in whole seconds, a bucket that is empty and full again many times in one looks like two counts. It
// is none of a quota that it never comes near.
func TestASmallBucketWhoseResetsAreInstantsIsUsedUp(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		quota, burst int64
		trip         time.Duration
	}{{3000, 10, 50 * time.Millisecond}, {600, 10, 50 * time.Millisecond}, {6000, 20, 50 * time.Millisecond}} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: c.quota, Window: time.Minute, Burst: c.burst}},
			Dialect: heedtest.XRateLimitEpoch, Reset: heedtest.ResetFull, Latency: heedtest.RoundTrip(c.trip),
		}, 8, 3, nil}.play(t)
		t.Logf("%d of %d, %v: %d accepted, %d refused", c.burst, c.quota, c.trip, tally.Accepted, tally.Refused)
		if tally.Refused > 0 || tally.EarlyStanding > 0 || tally.Accepted < 3*c.quota*9/10 {
			t.Errorf("%d of %d, %v: %d accepted of %d, %d refused, %d early", c.burst, c.quota, c.trip, tally.Accepted, 3*c.quota, tally.Refused, tally.EarlyStanding)
		}
	}
}

// Where resets are when it is full again, such a bucket shows though it is never seen empty: who takes it for a window that slides,
// most of which others use, sends no more than as many as happened to come in the first window, for good.
func TestASmallBucketThatIsNeverEmptyIsNotTakenForAWindowThatOthersUse(t *testing.T) {
	sideBySide(t)
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 30, Window: time.Minute, Burst: 3}}, Reset: heedtest.ResetFull,
				Latency: heedtest.RoundTrip(5 * time.Millisecond),
			})
			tr := quiet(t, o, heed.Limits{})
			defer tr.Registry.Close()
			random := rand.New(rand.NewPCG(seed, 0))
			var all sync.WaitGroup
			var longest atomic.Int64
			for range 600 {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(4*time.Second))) // half of what it lets through
				all.Go(func() {
					began := time.Now()
					sendOne(t, tr, get(t.Context(), "https://origin.test/"))
					for took := int64(time.Since(began)); ; {
						if most := longest.Load(); took <= most || longest.CompareAndSwap(most, took) {
							break
						}
					}
				})
			}
			all.Wait()
			if tally, most := o.Tally(), time.Duration(longest.Load()); tally.Refused > 0 || most > time.Minute {
				t.Errorf("%d: %d refused, the longest wait was %v", seed, tally.Refused, most)
			}
		})
	}
}

// A bucket that is full whenever a request comes says nothing of how fast it fills, nor does one's own pace tell how long a
// window is: who reckons by them slows down ever more.
func TestASmallBucketThatIsFullEachTimeSlowsNobodyDown(t *testing.T) {
	sideBySide(t)
	for seed := range uint64(8) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 20, Window: time.Second, Burst: 2}},
			Dialect: heedtest.XRateLimit, Reset: heedtest.ResetFull, Latency: heedtest.HeavyTail(80*time.Millisecond, 1, 5*time.Second, seed),
		}, 32, 300, nil}.play(t)
		if tally.Refused > 3 || tally.Accepted < 400 { // nothing says that it is more than one a second
			t.Errorf("%d: %d accepted in 300 s, %d refused", seed, tally.Accepted, tally.Refused)
		}
	}
}

// Of a bucket that was full when a request came it is known exactly how much is missing after it, and so how fast it fills.
func TestASmallBucketTellsHowFastItFillsWhereItWasFull(t *testing.T) {
	sideBySide(t)
	for _, goroutines := range []int{1, 8} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 30, Window: time.Minute, Burst: 3}},
			Dialect: heedtest.XRateLimit, Reset: heedtest.ResetFull, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, goroutines, 40, nil}.play(t)
		if tally.Refused > 3 || tally.Accepted < 900 {
			t.Errorf("%d goroutines: %d accepted of 1200, %d refused", goroutines, tally.Accepted, tally.Refused)
		}
	}
}

// A draft's RateLimit field says what is left and until when; nobody need say of how much. Then there is as much as ever was left, and it is used
// up without a refusal, however it comes back and whatever reset is named.
func TestAQuotaIsUsedUpThatNobodyNames(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{
		heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.SlidingCounter, heedtest.TokenBucket, heedtest.GCRA,
	} {
		for _, reset := range []heedtest.Reset{"", heedtest.ResetFull} {
			if reset == heedtest.ResetFull && algorithm == heedtest.SlidingCounter {
				continue // it is full two windows later, and so these seem to be as long
			}
			for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
				t.Run(fmt.Sprint(algorithm, "/", reset, "/", dialect), func(t *testing.T) {
					tally, _ := load{heedtest.Config{
						Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: dialect, Reset: reset,
						Latency: heedtest.RoundTrip(10 * time.Millisecond),
					}, 16, 20, nil}.playBehind(t, func(o *heedtest.Origin) http.RoundTripper {
						return edited(o, func(resp *http.Response) {
							resp.Header.Del("RateLimit-Policy")
							resp.Header.Del("X-RateLimit-Limit")
						})
					})
					t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
					if tally.Refused > 0 || tally.EarlyStanding > 0 || tally.Accepted < 900 {
						t.Errorf("%d accepted of 1000, %d refused, %d early; want 900 at least, and none", tally.Accepted, tally.Refused, tally.EarlyStanding)
					}
				})
			}
		}
	}
}

// What was seen of a quota that nobody names need not be all of it: who comes late is not told that it is far away.
func TestAQuotaThatNobodyNamesIsNoCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := window{quota: 100, length: time.Minute, used: 96, end: time.Now().Add(30 * time.Second)}
		l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := w.take(now)
			h.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, max(w.quota-w.used, 0), int(w.end.Sub(now).Seconds())+1))
			return ok
		}}
		tr := quiet(t, l, heed.Limits{})
		defer tr.Registry.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
		defer cancel()
		var busy sync.WaitGroup
		for i := range 40 {
			busy.Go(func() {
				if i > 0 {
					time.Sleep(time.Second) // what the first one was told is known
				}
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, example, nil)
				resp, err := tr.Client().Do(r)
				if err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
				resp.Body.Close()
			})
		}
		busy.Wait()
		if l.refused > 0 || l.accepted != 40 {
			t.Errorf("%d accepted, %d refused", l.accepted, l.refused)
		}
	})
}
