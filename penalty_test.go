package heed_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Whoever exceeds some limits is shut out for far longer than they take to let through again, by
// a time that is named or not. That is no window as long: most of what there is to get is got in
// the long run, and the penalty is hardly ever incurred.
func TestPenaltyIsNotTakenForTheWindow(t *testing.T) {
	manyRequests(t)
	for name, c := range map[string]struct {
		policy  heedtest.Policy
		block   time.Duration
		dialect heedtest.Dialect
		first   time.Duration // that is left out
	}{
		"named":                   {heedtest.Policy{Quota: 10, Window: time.Second}, 10 * time.Second, heedtest.RetryAfterOnly, 3 * time.Minute},
		"named, of two windows":   {heedtest.Policy{Quota: 50, Window: 5 * time.Second}, 10 * time.Second, heedtest.RetryAfterOnly, 3 * time.Minute},
		"unnamed":                 {heedtest.Policy{Quota: 10, Window: time.Second}, 10 * time.Second, heedtest.Silent, 10 * time.Minute},
		"unnamed, and one window": {heedtest.Policy{Quota: 100, Window: 10 * time.Second}, 10 * time.Second, heedtest.Silent, 10 * time.Minute},
		"unnamed, for long":       {heedtest.Policy{Quota: 5, Window: time.Second}, 30 * time.Second, heedtest.Silent, 10 * time.Minute},
	} {
		const length = 10 * time.Minute
		var tally heedtest.Tally
		load{heedtest.Config{
			Policies: []heedtest.Policy{c.policy}, Block: c.block, Dialect: c.dialect, Latency: heedtest.RoundTrip(time.Millisecond),
		}, 16, int((c.first + length) / c.policy.Window), func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(c.first)
			o.ResetTally()
			time.Sleep(length - time.Second)
			tally = o.Tally()
		}}.play(t)
		share := float64(tally.Accepted) / float64(c.policy.Quota) / length.Seconds() * c.policy.Window.Seconds()
		t.Logf("%s: %.2f of the quota, %d refused", name, share, tally.Refused)
		if share < 0.7 || tally.Refused > 20 {
			t.Errorf("%s: %.2f of the quota, %d refused", name, share, tally.Refused)
		}
	}
}

// An outage that comes on top of a limit is no penalty for having exceeded it: it is asked again
// as soon as before.
func TestOutageIsNotTakenForAPenalty(t *testing.T) {
	manyRequests(t)
	var tally heedtest.Tally
	load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(20 * time.Millisecond),
	}, 16, 480, func(o *heedtest.Origin, _ *heed.Registry) {
		time.Sleep(5 * time.Minute)
		o.Outage(time.Now().Add(10*time.Minute), 429, 0)
		time.Sleep(20 * time.Minute)
		o.ResetTally()
		time.Sleep(10 * time.Minute)
		tally = o.Tally()
	}}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < 5400 {
		t.Errorf("%d accepted of 6000 in ten minutes, after an outage", tally.Accepted)
	}
}

// Nor is one before the limit was ever met, however much is accepted after it in less time: the
// next refusal shows it.
func TestOutageBeforeTheLimitIsMetIsNotTakenForAPenalty(t *testing.T) {
	manyRequests(t)
	const plays = 3 // with fewer, chance decides
	var share, runs float64
	for _, algorithm := range []heedtest.Algorithm{heedtest.TokenBucket, heedtest.FixedWindow} {
		for i := range 2 * plays {
			begin := []time.Duration{time.Second, 10 * time.Second}[i%2]
			load{heedtest.Config{
				Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 3000, Window: time.Minute}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, 1, 67, func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(begin)
				o.Outage(time.Now().Add(10*time.Minute), 429, 0)
				time.Sleep(20 * time.Minute)
				o.SetPolicies(heedtest.Policy{Quota: 600, Window: time.Minute})
				time.Sleep(30 * time.Minute)
				o.ResetTally()
				time.Sleep(15 * time.Minute)
				share, runs = share+float64(o.Tally().Accepted)/600/15, runs+1
			}}.play(t)
		}
	}
	t.Logf("%.2f of what was to be had", share/runs)
	if share/runs < 0.85 {
		t.Errorf("%.2f of what was to be had", share/runs)
	}
}

// Nor is a bucket, out of which as many were accepted as the first time before it was empty: it
// lets through again at once.
func TestBucketIsNotTakenForAPenalty(t *testing.T) {
	manyRequests(t)
	const minutes = 20
	var share, runs float64
	for _, quota := range []int64{8, 10} {
		for _, trip := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond} {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}}, Latency: heedtest.RoundTrip(trip),
			}, 16, 60 * minutes, nil}.play(t)
			share, runs = share+float64(tally.Accepted)/float64(60*minutes*quota), runs+1
		}
	}
	t.Logf("%.4f of what was to be had", share/runs)
	if share/runs < 0.992 {
		t.Errorf("%.4f of what was to be had", share/runs)
	}
}

// Where refused requests count, too, a window that was used up at once is not over until more have
// left it than were refused. What is asked sooner does not make it out to be longer.
func TestRefusedThatCountDoNotMakeAWindowLonger(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.SlidingWindow, CountRefused: true, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second}}, Latency: heedtest.RoundTrip(time.Millisecond),
	}, 16, 60, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < 400 || tally.Refused > 40 {
		t.Errorf("%d accepted of 600, %d refused", tally.Accepted, tally.Refused)
	}
}

// What is shut for many minutes once a window's worth has been accepted looks like a window as long. If that was an
// outage, nothing else shows it than that more is let through, and that is tried soon.
func TestOutageTakenForAWindowIsSoonSeenToHaveBeenOne(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.TokenBucket, heedtest.FixedWindow} {
		for _, begin := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
			load{heedtest.Config{
				Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 600, Window: time.Minute}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, 16, 57, func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(begin)
				o.Outage(time.Now().Add(10*time.Minute), 429, time.Minute)
				time.Sleep(45 * time.Minute)
				o.ResetTally()
				time.Sleep(10 * time.Minute)
				t.Logf("%s from %v: %d accepted of %d", algorithm, begin, o.Tally().Accepted, 10*600)
				if o.Tally().Accepted < 10*600/2 {
					t.Errorf("%s from %v: %d accepted of %d", algorithm, begin, o.Tally().Accepted, 10*600)
				}
			}}.play(t)
		}
	}
}

// Each request that exceeds a limit which punishes costs a penalty: where it was cut, few attempts find what it lets through now,
// and that they come one by one, each after a penalty, is no reason to take them for chance.
func TestLimitThatPunishesAndWasCutIsFoundInFewAttempts(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.TokenBucket} {
		load{heedtest.Config{
			Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 600, Window: time.Minute}}, Block: time.Minute, Latency: heedtest.RoundTrip(20 * time.Millisecond),
		}, 16, 122, func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(time.Hour)
			o.SetPolicies(heedtest.Policy{Quota: 200, Window: time.Minute})
			o.ResetTally()
			time.Sleep(time.Hour)
			tally := o.Tally()
			t.Logf("%s: %d accepted of %d, %d refused", algorithm, tally.Accepted, 60*200, tally.Refused)
			if tally.Accepted < 60*200*7/10 || tally.Refused > 10 {
				t.Errorf("%s: %d accepted of %d, %d refused", algorithm, tally.Accepted, 60*200, tally.Refused)
			}
		}}.play(t)
	}
}

// Nor is the rest of a window of which others had used most. It is taken for one, because far more comes in the next window, until as
// much comes in one more.
func TestRestOfAWindowIsNotTakenForAPenalty(t *testing.T) {
	manyRequests(t)
	for _, left := range []int{30, 100, 300} {
		synctest.Test(t, func(t *testing.T) {
			w := window{quota: 1000, length: time.Minute, used: 1000 - left, end: time.Now().Add(4 * time.Second)}
			l := &limiter{accepts: func(_ *http.Request, now time.Time, _ http.Header) bool { return w.take(now) }}
			l.ask(t, 40*time.Minute, example)
			t.Logf("%d left: %d accepted of %d, %d refused", left, l.accepted, 40*w.quota, l.refused)
			if l.accepted < 40*w.quota*85/100 || l.refused > 60 {
				t.Errorf("%d left: %d accepted of %d, %d refused", left, l.accepted, 40*w.quota, l.refused)
			}
		})
	}
}
