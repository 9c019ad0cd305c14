package heed_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// An origin that refuses everything for two seconds, every half minute in the mean, for as long as a run takes.
func interrupted(o *heedtest.Origin, seed uint64, length time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for end := time.Now().Add(length); ; {
		next := time.Duration(rng.ExpFloat64() * float64(30*time.Second))
		if next >= time.Until(end) {
			return
		}
		time.Sleep(next)
		o.Outage(time.Now().Add(2*time.Second), 503, 0)
	}
}

// Each interruption looks like a limit that has become less: what is sent falls by a few in a hundred each time.
func TestInterruptionsDoNotSlowAnOriginForGood(t *testing.T) {
	manyRequests(t)
	const half = 20 * time.Minute
	for _, c := range []struct {
		name      string
		algorithm heedtest.Algorithm
		quota     int64
		status    int     // of what the limit refuses
		all       float64 // accepted in half the time without interruptions
		least     float64 // the share of that in the second half
	}{
		{"no limit", heedtest.FixedWindow, 1 << 40, 429, 8 * 5 * half.Seconds(), 0.55},
		{"a rate", heedtest.TokenBucket, 20, 503, 20 * half.Seconds(), 0.55},
		{"a rate that refuses with another status", heedtest.TokenBucket, 20, 429, 20 * half.Seconds(), 0.55},
		{"a limit in flight", heedtest.Concurrency, 4, 503, 4 * 5 * half.Seconds(), 0.6},
		{"a limit in flight that refuses with another status", heedtest.Concurrency, 4, 429, 4 * 5 * half.Seconds(), 0.6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var accepted, refused int64
			const seeds = 3
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) {
					o := heedtest.NewOrigin(heedtest.Config{Algorithm: c.algorithm, Dialect: heedtest.Silent, Status: c.status,
						Policies: []heedtest.Policy{{Quota: c.quota, Window: time.Second}}, Latency: heedtest.HeavyTail(200*time.Millisecond, 0.1, time.Second, seed)})
					f := &flaky{base: o, rng: rand.New(rand.NewPCG(seed, 1))}
					f.play(t, 8, 2*half, func() {
						go interrupted(o, seed, 2*half-time.Minute)
						time.Sleep(half)
						o.ResetTally()
						time.Sleep(half - time.Second)
						tally := o.Tally()
						accepted, refused = accepted+tally.Accepted, refused+tally.Refused
						t.Logf("seed %d: %d accepted, %d refused", seed, tally.Accepted, tally.Refused)
					})
				})
			}
			share := float64(accepted) / seeds / c.all
			t.Logf("%.3f of all, %.1f refused per 1000", share, 1000*float64(refused)/float64(accepted))
			if share < c.least {
				t.Errorf("%.3f of what is let through without interruptions was used, at least %.2f wanted", share, c.least)
			}
		})
	}
}

// What was learned from outages that came one after the other is soon forgotten once no more come, however many requests
// went between two of them at first.
func TestOutagesOneAfterTheOtherAreSoonForgotten(t *testing.T) {
	manyRequests(t)
	const outages, after, seeds = 30 * time.Minute, 10 * time.Minute, 6
	var mean float64
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			o := heedtest.NewOrigin(heedtest.Config{Dialect: heedtest.Silent, Latency: heedtest.HeavyTail(200*time.Millisecond, 0.1, time.Second, seed)})
			f := &flaky{base: o, rng: rand.New(rand.NewPCG(seed, 1))}
			f.play(t, 8, outages+2*after, func() {
				rng := rand.New(rand.NewPCG(seed, 7))
				for end := time.Now().Add(outages); time.Now().Before(end); time.Sleep(30 * time.Second) {
					time.Sleep(time.Minute + time.Duration(rng.Int64N(int64(30*time.Second))))
					o.Outage(time.Now().Add(30*time.Second), 429, 0) // a 503 is known for what it is
				}
				time.Sleep(after)
				o.ResetTally()
				time.Sleep(after / 2)
				share := float64(o.Tally().Accepted) / (8 * 5 * (after / 2).Seconds())
				t.Logf("seed %d: %.3f", seed, share)
				mean += share / seeds
			})
		})
	}
	if mean < 0.6 {
		t.Errorf("in the mean %.3f of what goes without a limit was sent ten minutes after the last outage", mean)
	}
}

// Outages are no limits: whatever was known of those holds once they are over, and all that they let through is used.
func TestOutagesTellNothingOfALimit(t *testing.T) {
	manyRequests(t)
	const outages, apart, settles, after, seeds = 3, 10 * time.Minute, 2 * time.Minute, 5 * time.Minute, 3
	for _, c := range []struct {
		name      string
		algorithm heedtest.Algorithm
		quota     int64
		status    int     // of what the limit refuses
		rate      float64 // accepted a second
		lasts     time.Duration
		least     float64 // the share of all, from two minutes after the last of them on
	}{
		{"no limit", heedtest.FixedWindow, 1 << 40, 429, 40, 2 * time.Minute, 0.95},
		{"no limit, and a moment", heedtest.FixedWindow, 1 << 40, 429, 40, 3 * time.Second, 0.95},
		{"a rate that refuses with another status", heedtest.TokenBucket, 20, 429, 20, 2 * time.Minute, 0.95},
		{"a rate", heedtest.TokenBucket, 20, 503, 20, 2 * time.Minute, 0.55},
		{"a limit in flight that refuses with another status", heedtest.Concurrency, 4, 429, 20, 2 * time.Minute, 0.95},
		{"a limit in flight", heedtest.Concurrency, 4, 503, 20, 2 * time.Minute, 0.7},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) {
					o := heedtest.NewOrigin(heedtest.Config{Algorithm: c.algorithm, Dialect: heedtest.Silent, Status: c.status,
						Policies: []heedtest.Policy{{Quota: c.quota, Window: time.Second}}, Latency: heedtest.HeavyTail(200*time.Millisecond, 0.1, time.Second, seed)})
					f := &flaky{base: o, rng: rand.New(rand.NewPCG(seed, 1))}
					f.play(t, 8, outages*(apart+outages*time.Minute+c.lasts)+settles+after+time.Second, func() {
						for i := range outages {
							time.Sleep(apart + time.Duration(i)*time.Minute) // not after as many requests each time, which a limit would be
							o.Outage(time.Now().Add(c.lasts), 503, 0)
							time.Sleep(c.lasts)
						}
						time.Sleep(settles)
						o.ResetTally()
						time.Sleep(after)
						tally := o.Tally()
						share := float64(tally.Accepted) / (c.rate * after.Seconds())
						t.Logf("seed %d: %.3f, %d refused", seed, share, tally.Refused)
						if share < c.least {
							t.Errorf("seed %d: %.3f of what is let through was used after the outages, at least %.2f wanted", seed, share, c.least)
						}
					})
				})
			}
		})
	}
}

// Who asks now and then, of an origin without any limit that is out of order for long and does not say so, asks as often as before
// once it is well again.
func TestLongOutageDoesNotSlowWhoAsksNowAndThen(t *testing.T) {
	sideBySide(t)
	const settles, after, trip = 10 * time.Minute, 20 * time.Minute, 100 * time.Millisecond
	for _, c := range []struct {
		goroutines    int
		every, up, is time.Duration
	}{
		{8, 10 * time.Second, 2 * time.Hour, 20 * time.Minute}, // in step with each other after a while
		{8, 10 * time.Second, 2 * time.Hour, 6 * time.Hour},
		{20, time.Minute, 2 * time.Hour, time.Hour},
		{1, time.Second, 10 * time.Minute, 6 * time.Hour},
		{1, 10 * time.Second, 10 * time.Minute, 6 * time.Hour},
	} {
		t.Run(fmt.Sprint(c.goroutines, " every ", c.every, ", out for ", c.is), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(trip)})
				tr := &heed.Transport{Base: o, Registry: newRegistry(t, heed.Config{})}
				end := time.Now().Add(c.up + c.is + settles + after)
				busy := asking(c.goroutines, end, func(int) (*http.Response, error) {
					time.Sleep(c.every)
					return tr.RoundTrip(request(example))
				})
				time.Sleep(c.up)
				o.Outage(time.Now().Add(c.is), 503, 0)
				time.Sleep(c.is + settles)
				o.ResetTally()
				time.Sleep(after)
				tally := o.Tally()
				tr.Registry.Close()
				busy.Wait()
				all := int64(after/(c.every+trip)) * int64(c.goroutines)
				t.Logf("%d accepted of %d", tally.Accepted, all)
				if tally.Accepted < all*95/100 {
					t.Errorf("%d accepted of %d that were asked for", tally.Accepted, all)
				}
			})
		})
	}
}

// A limit whose windows are longer than the pauses of those who ask now and then is met after no more in a row than it has let through
// before. It is not taken for an outage in one window after the other.
func TestLimitMetByThoseWhoAskNowAndThenIsNoOutage(t *testing.T) {
	manyRequests(t)
	const length = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 150, Window: 10 * time.Minute}},
			Dialect: heedtest.Silent, Status: http.StatusServiceUnavailable, Latency: heedtest.RoundTrip(100 * time.Millisecond)})
		tr := &heed.Transport{Base: o, Registry: newRegistry(t, heed.Config{})}
		busy := asking(20, time.Now().Add(length), func(int) (*http.Response, error) {
			time.Sleep(time.Minute)
			return tr.RoundTrip(request(example))
		})
		time.Sleep(length)
		tally := o.Tally()
		tr.Registry.Close()
		busy.Wait()
		t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
		if tally.Accepted < 18500 || tally.Refused > 200 {
			t.Errorf("%d accepted of 21600, %d refused", tally.Accepted, tally.Refused)
		}
	})
}

// Nor is an outage taken for a limit where each path is asked for but once: that those it refused are accepted when they are tried
// again, once it is over, tells nothing of one.
func TestOutagesTellNothingOfALimitToWhoAsksForEachPathOnce(t *testing.T) {
	manyRequests(t)
	const outages, apart, settles, after = 4, 10 * time.Minute, 6 * time.Minute, 5 * time.Minute
	for _, lasts := range []time.Duration{3 * time.Second, 30 * time.Second, 2 * time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			o := heedtest.NewOrigin(heedtest.Config{Dialect: heedtest.Silent, Latency: heedtest.HeavyTail(200*time.Millisecond, 0.1, time.Second, 1)})
			tr := quiet(t, o, heed.Limits{})
			busy := eachOnce(tr, 8, time.Now().Add(outages*(apart+outages*time.Minute+lasts)+settles+after))
			for i := range outages {
				time.Sleep(apart + time.Duration(i)*time.Minute) // not after as many requests each time, which a limit would be
				o.Outage(time.Now().Add(lasts), 503, 0)
				time.Sleep(lasts)
			}
			time.Sleep(settles)
			o.ResetTally()
			time.Sleep(after)
			share := float64(o.Tally().Accepted) / (8 * 5 * after.Seconds())
			tr.Registry.Close()
			busy.Wait()
			t.Logf("%v: %.3f", lasts, share)
			if share < 0.95 {
				t.Errorf("%.3f of what is let through was used after outages of %v, at least 0.95 wanted", share, lasts)
			}
		})
	}
}
