package heed_test

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A Retry-After that is too short tells that little is left, and by how much it is too short.
func TestRetryAfterThatIsTooShortCostsFewRefusals(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow} {
		for _, trip := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond} {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
				RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterShort}, Latency: heedtest.RoundTrip(trip),
			}, 16, 20, nil}.play(t)
			t.Logf("%s, %v: %d accepted, %d refused", algorithm, trip, tally.Accepted, tally.Refused)
			if tally.Refused > 24 || tally.Accepted < 885 {
				t.Errorf("%s, %v: %d accepted of 1000, %d refused", algorithm, trip, tally.Accepted, tally.Refused)
			}
		}
	}
}

// Of an origin whose refusals asked for too little, and now ask for enough, no more than that is
// waited; and where they still ask for too little, that is found out ever more rarely. What was asked
// for and that heed waits longer is told.
func TestRetryAfterThatWasTooShortIsTriedAgainNowAndThen(t *testing.T) {
	for name, mended := range map[string]bool{"mended": true, "as before": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var paused heed.Event
				logged := &records{}
				r := newRegistry(t, heed.Config{Logger: slog.New(logged), OnEvent: func(e heed.Event) {
					if e.Kind == heed.EventPaused {
						paused = e
					}
				}})
				defer r.Close()
				send := sender(t, r)
				use := func() {
					for range 30 {
						send(200)
						time.Sleep(100 * time.Millisecond)
					}
				}
				use()
				send(429, "Retry-After", "10") // it takes 20
				send(429, "Retry-After", "5")
				send(429, "Retry-After", "3")
				send(429, "Retry-After", "2")
				send(200)
				var shorter, longer int
				for range 60 {
					use()
					logged.take()
					send(429, "Retry-After", "10")
					line := strings.Join(logged.take(), "\n")
					told, began := paused, time.Now()
					pm := acquire(t, r, request(example))
					waited := time.Since(began)
					if told.Asked > 0 {
						longer++
					} else {
						shorter++
					}
					if said := strings.Contains(line, " asked=10s"); !told.Timed || told.Asked != 0 && told.Asked != 10*time.Second || said != (told.Asked > 0) || (told.Wait > 10*time.Second) != said || waited < told.Wait {
						t.Fatalf("waited %v: %+v, %s", waited, told, line)
					}
					if !mended && waited < 15*time.Second {
						pm.Observe(answer(429, "Retry-After", "5"))
						pm.Release()
						pm = acquire(t, r, request(example))
					}
					time.Sleep(10 * time.Millisecond)
					pm.Observe(answer(200))
					pm.Release()
				}
				t.Logf("%d times waited for as long as asked, %d times for longer", shorter, longer)
				if mended && longer > 8 || !mended && (shorter < 2 || shorter > 5) {
					t.Errorf("%d times waited for as long as asked, %d times for longer", shorter, longer)
				}
				r.SetLimits("*", heed.Limits{MaxRetryAfter: 10 * time.Second}) // no longer than asked, then
				for range 3 {
					use()
					send(429, "Retry-After", "10")
					if paused.Asked != 0 || paused.Wait != 10*time.Second {
						t.Errorf("with a cap: %+v", paused)
					}
					send(200)
				}
			})
		})
	}
}

// How long an outage took in the end says nothing of a limit.
func TestRetryAfterOfAnOutageLengthensNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		send := sender(t, r)
		for range 30 {
			send(200)
			time.Sleep(100 * time.Millisecond)
		}
		for _, after := range []string{"10", "9", "8"} {
			send(503, "Retry-After", after)
		}
		for range 300 {
			send(200)
			time.Sleep(100 * time.Millisecond)
		}
		send(429, "Retry-After", "10")
		if waited := send(200); waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}

// A Retry-After that is always a whole window costs one of them at the start.
func TestPessimisticRetryAfterCostsLittle(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket} {
		tally, _ := load{heedtest.Config{
			Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterWindow}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, 16, 20, nil}.play(t)
		t.Logf("%s: %d accepted, %d refused", algorithm, tally.Accepted, tally.Refused)
		if tally.Refused > 20 || tally.Accepted < 900 {
			t.Errorf("%s: %d accepted of 1000, %d refused", algorithm, tally.Accepted, tally.Refused)
		}
	}
}

// Nor does a small quota, used up at once, whose refusals always ask for the same wait, far
// longer than its window: the second time as many were accepted tells that it is a rate, but
// not which.
func TestRateBehindALongConstantRetryAfterIsFound(t *testing.T) {
	manyRequests(t)
	const quota, minutes = 10, 3
	var accepted, refused, runs int64
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for _, trip := range []time.Duration{5 * time.Millisecond, 12 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}}, Latency: heedtest.RoundTrip(trip),
				Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: 5 * time.Second},
			}, 16, 60 * minutes, nil}.play(t)
			accepted, refused, runs = accepted+tally.Accepted, refused+tally.Refused, runs+1
		}
	}
	share := float64(accepted) / float64(runs*quota*60*minutes)
	t.Logf("%.3f of what was to be had, %d refused in %d runs", share, refused, runs)
	if share < 0.6 || refused > 28*runs {
		t.Errorf("%.3f of what was to be had, want 0.6; %d refused in %d runs, want at most %d", share, refused, runs, 28*runs)
	}
}

// It is heed's own guess alone that is doubled in a row. An origin that names a wait, less and less
// of it until it names none, has said itself when to come back all the time until then.
func TestWaitsNamedBeforeDoNotDoubleTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		send := sender(t, r)
		use := func() {
			for range 100 {
				send(200)
			}
		}
		use()
		send(429, "Retry-After", "10")
		use()
		var alone, after time.Duration
		send(429)
		alone = send(200)
		use()
		for _, wait := range []string{"16", "8", "4", "2", "1"} {
			send(429, "Retry-After", wait)
		}
		send(429)
		after = send(200)
		t.Logf("waited %v, and %v after others", alone, after)
		if after > 2*alone {
			t.Errorf("waited %v, and %v after others", alone, after)
		}
	})
}

// sender returns a function that sends a request as soon as it may go, has it answered after 10 ms, and
// returns how long it waited.
func sender(t *testing.T, r *heed.Registry) func(status int, header ...string) time.Duration {
	return func(status int, header ...string) time.Duration {
		t.Helper()
		began := time.Now()
		pm := acquire(t, r, request(example))
		waited := time.Since(began)
		time.Sleep(10 * time.Millisecond)
		pm.Observe(answer(status, header...))
		pm.Release()
		return waited
	}
}

// What refuses as soon as just as many were accepted as the last time is a limit, though it is a 503
// and lets nothing through when it said it would.
func TestUnavailableAfterJustAsManyRequestsIsALimit(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		const windows, quota = 24, 50
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindow, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly, Status: 503,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: time.Second}, Latency: heedtest.RoundTrip(trip),
		}, 16, windows, nil}.play(t)
		t.Logf("%v: %d accepted, %d refused", trip, tally.Accepted, tally.Refused)
		if tally.Accepted < windows*quota*85/100 || tally.Refused > 100 {
			t.Errorf("%v: %d accepted of %d, %d refused", trip, tally.Accepted, windows*quota, tally.Refused)
		}
	}
}

// A Retry-After of a second may be rounded up from next to nothing: that a bucket lets through as many
// again by then says little of its rate.
func TestRateBehindAWaitRoundedUpToASecondIsFound(t *testing.T) {
	manyRequests(t)
	for name, c := range map[string]struct{ rate, burst int64 }{"100/s, burst 20": {100, 20}, "100/s, burst 50": {100, 50}, "10/s, burst 5": {10, 5}} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: c.rate, Window: time.Second, Burst: c.burst}}, Dialect: heedtest.RetryAfterOnly,
			Latency: heedtest.RoundTrip(2 * time.Millisecond),
		}, 16, 60, nil}.play(t)
		t.Logf("%s: %d accepted, %d refused", name, tally.Accepted, tally.Refused)
		if tally.Accepted < 60*c.rate*68/100 || tally.Refused > 30 {
			t.Errorf("%s: %d accepted of %d, %d refused", name, tally.Accepted, 60*c.rate, tally.Refused)
		}
	}
}

// Where two counts are kept little is back when a constant wait is over, and more of it soon after. What
// was accepted by then is not taken for the rate for long.
func TestTwoCountsBehindAConstantRetryAfterAreUsed(t *testing.T) {
	manyRequests(t)
	const windows, quota = 20, 60
	var accepted, refused, runs int64
	for _, count := range []bool{false, true} { // refused requests as well, as haproxy does
		for _, trip := range []time.Duration{2 * time.Millisecond, 50 * time.Millisecond} {
			for phase := range 5 {
				tally, _ := load{heedtest.Config{
					Algorithm: heedtest.SlidingCounter, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, CountRefused: count,
					Phase: time.Duration(2*phase) * time.Second, Dialect: heedtest.RetryAfterOnly, Latency: heedtest.RoundTrip(trip),
					RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: 5 * time.Second},
				}, 16, windows, nil}.play(t)
				share := float64(tally.Accepted) / (windows * quota)
				t.Logf("refused ones counted: %v, %v, phase %d s: %.2f, %d refused", count, trip, 2*phase, share, tally.Refused)
				accepted, refused, runs = accepted+tally.Accepted, refused+tally.Refused, runs+1
			}
		}
	}
	share := float64(accepted) / float64(runs*windows*quota)
	t.Logf("%.3f of what was to be had, %d refused in %d runs", share, refused, runs)
	if share < 0.81 || refused > 20*runs {
		t.Errorf("%.3f of what was to be had, want 0.81; %d refused in %d runs, want at most %d", share, refused, runs, 20*runs)
	}
}

// So it is where far more than one request is on its way at a time, if all take about as long.
func TestRateBehindALongConstantRetryAfterIsFoundWithManyOnTheirWay(t *testing.T) {
	manyRequests(t)
	const seconds = 400
	var refused, runs int64
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		quota     int64
		trip      time.Duration
	}{
		{heedtest.FixedWindow, 100, 50 * time.Millisecond}, {heedtest.SlidingWindow, 100, 50 * time.Millisecond},
		{heedtest.TokenBucket, 100, 50 * time.Millisecond}, {heedtest.FixedWindow, 50, 50 * time.Millisecond},
	} {
		tally, _ := load{heedtest.Config{
			Algorithm: c.algorithm, Policies: []heedtest.Policy{{Quota: c.quota, Window: time.Second}}, Latency: heedtest.RoundTrip(c.trip),
			Dialect: heedtest.RetryAfterOnly, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterConstant, Value: 10 * time.Second},
		}, 16, seconds, nil}.play(t)
		t.Logf("%s, %d/s, %v: %.2f, %d refused", c.algorithm, c.quota, c.trip, float64(tally.Accepted)/float64(c.quota*seconds), tally.Refused)
		if tally.Accepted < c.quota*seconds*4/10 {
			t.Errorf("%s, %d/s, %v: %d accepted of %d", c.algorithm, c.quota, c.trip, tally.Accepted, c.quota*seconds)
		}
		refused, runs = refused+tally.Refused, runs+1
	}
	if refused > 40*runs {
		t.Errorf("%d refused in %d runs", refused, runs)
	}
}

// A slow bucket names the instant of its next unit, and that one is all that is back by then: after the second time nobody
// is to hope for more.
func TestInstantsOfTheNextUnitAreNoReasonToTryMore(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct{ quota, least int64 }{{100, 1190}, {1000, 11900}} { // an hour, and accepted in twelve
		for seed := range uint64(4) {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: c.quota, Window: time.Hour}},
					Dialect: heedtest.RetryAfterOnly, Latency: heedtest.HeavyTail(100*time.Millisecond, 0.3, time.Second, seed)})
				askAtOnce(&heed.Transport{Base: o, Registry: newRegistry(t, heed.Config{})}, 8, 12*time.Hour)
				tally := o.Tally()
				t.Logf("%d an hour, seed %d: %d accepted, %d refused", c.quota, seed, tally.Accepted, tally.Refused)
				if tally.Accepted < c.least || tally.Refused > 150 {
					t.Errorf("%d an hour: %d accepted, %d refused", c.quota, tally.Accepted, tally.Refused)
				}
			})
		}
	}
}

// A window of which others had used a part looks like a smaller one, where each refusal asks for a whole one: that more is let
// through than that shows in two attempts.
func TestWindowUsedInPartIsFoundBehindAConstantRetryAfter(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		quota, left int
		length      time.Duration
	}{{100, 60, 10 * time.Second}, {1000, 600, time.Minute}, {1000, 300, time.Minute}, {1000, 100, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			w := window{quota: c.quota, length: c.length, used: c.quota - c.left, end: time.Now().Add(c.length / 2)}
			l := &limiter{way: 20 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				h.Set("Retry-After", strconv.Itoa(int(c.length.Seconds())))
				return w.take(now)
			}}
			l.ask(t, 40*c.length, example)
			t.Logf("%d left of %d per %v: %d accepted of %d, %d refused", c.left, c.quota, c.length, l.accepted, 40*c.quota, l.refused)
			if l.accepted < 40*c.quota*85/100 || l.refused > 90 {
				t.Errorf("%d left of %d per %v: %d accepted of %d, %d refused", c.left, c.quota, c.length, l.accepted, 40*c.quota, l.refused)
			}
		})
	}
}

// A bucket that names the instant of its next unit is empty at each refusal, so what it let through from one to the next is its rate, where
// it was hardly closed meanwhile. That is no reason to try more at once.
func TestRateBelowWhatWasTakenForItIsKeptToWhereLittleWasWaited(t *testing.T) {
	sideBySide(t)
	const runs, each = 4, 1000
	var accepted, refused int64
	for range runs {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Dialect: heedtest.RetryAfterOnly,
			Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 64, 20, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < each*runs*95/100 || refused > 65*runs {
		t.Errorf("%d accepted of %d, %d refused", accepted, each*runs, refused)
	}
}

// A second is named whenever a request is refused, however long it takes until there is room again: who asks each time has one
// request after the other refused until it may be tried no more, a second each.
func TestRequestsAreNotRefusedEachSecondThatAWindowAsksFor(t *testing.T) {
	for window, most := range map[time.Duration]int64{time.Minute: 10, time.Hour: 24} {
		synctest.Test(t, func(t *testing.T) {
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Quota: 10, Window: window}}, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(20 * time.Millisecond),
			})
			tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := o.RoundTrip(req)
				if err == nil && resp.StatusCode == 429 {
					resp.Header.Set("Retry-After", "1")
				}
				return resp, err
			}), heed.Limits{})
			defer tr.Registry.Close()
			var all sync.WaitGroup
			var refused atomic.Int64
			began := time.Now()
			for range 20 {
				all.Go(func() {
					if status, _ := sendOne(t, tr, get(t.Context(), "https://origin.test/")); status == 429 {
						refused.Add(1)
					}
				})
			}
			all.Wait()
			took, probes := time.Since(began), o.Tally().Refused-10
			t.Logf("%v: %d probes were refused, of %d requests none was accepted, after %v", window, probes, refused.Load(), took)
			if probes > most || refused.Load() > most/4 || took > window+max(window/2, 5*time.Minute) {
				t.Errorf("%v: %d probes were refused, of %d requests none was accepted, after %v", window, probes, refused.Load(), took)
			}
		})
	}
}
