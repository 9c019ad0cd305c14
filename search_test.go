package heed_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Limits of which the first measure says little, because heed waited for much longer
// than it would have had to.
func TestRateIsSearchedForWhereTheWaitWasOurOwn(t *testing.T) {
	sideBySide(t)
	for name, c := range map[string]struct {
		algorithm heedtest.Algorithm
		policy    heedtest.Policy
		least     int64 // accepted in 20 s
		most      int64 // refused
	}{
		"10/s, no burst":   {heedtest.LeakyBucket, heedtest.Policy{Quota: 10, Window: time.Second}, 102, 11},
		"100/s, no burst":  {heedtest.LeakyBucket, heedtest.Policy{Quota: 100, Window: time.Second}, 1200, 20},
		"100/s, burst 100": {heedtest.TokenBucket, heedtest.Policy{Quota: 100, Window: time.Second, Burst: 100}, 1300, 20},
		"10 per 1 s":       {heedtest.FixedWindow, heedtest.Policy{Quota: 10, Window: time.Second}, 130, 12},
		// The others were measured right, and pay with a few refusals for its being in doubt.
		"10/s, burst 50":  {heedtest.TokenBucket, heedtest.Policy{Quota: 10, Window: time.Second, Burst: 50}, 225, 9},
		"50 per 5 s":      {heedtest.FixedWindow, heedtest.Policy{Quota: 50, Window: 5 * time.Second}, 172, 14},
		"50 by the clock": {heedtest.FixedWindowByClock, heedtest.Policy{Quota: 50, Window: 5 * time.Second}, 176, 14},
		"50 in any 5 s":   {heedtest.SlidingWindow, heedtest.Policy{Quota: 50, Window: 5 * time.Second}, 172, 14},
	} {
		windows := int(20 * time.Second / c.policy.Window)
		tally, _ := load{heedtest.Config{Algorithm: c.algorithm, Policies: []heedtest.Policy{c.policy}, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(time.Millisecond)}, 16, windows, nil}.play(t)
		t.Logf("%s: %d accepted, %d refused", name, tally.Accepted, tally.Refused)
		if tally.Accepted < c.least || tally.Refused > c.most {
			t.Errorf("%s: %d accepted, want at least %d; %d refused, want at most %d", name, tally.Accepted, c.least, tally.Refused, c.most)
		}
	}
}

// A window longer than heed's own first wait is no bucket that is hardly refilled.
func TestHiddenWindowLongerThanTheFirstWaitIsUsedUp(t *testing.T) {
	const windows, quota = 20, 100
	tally, _ := load{heedtest.Config{
		Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}, 16, windows, nil}.play(t)
	t.Logf("%d accepted of %d, %d refused", tally.Accepted, windows*quota, tally.Refused)
	if tally.Accepted < windows*quota*8/10 {
		t.Errorf("%d accepted of %d", tally.Accepted, windows*quota)
	}
}

// As many were accepted at once as the first time, so it is a window, and windows are of round
// lengths: nothing is asked before one of those is over.
func TestHiddenWindowsAreAskedAgainAtTheEndsOfRoundTimes(t *testing.T) {
	var accepted, refused int64
	const runs, windows, quota = 8, 4, 50
	for phase := range time.Duration(runs) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
			Phase: phase * 600 * time.Millisecond, Latency: heedtest.RoundTrip(time.Millisecond),
		}, 16, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if all := int64(runs * windows * quota); accepted < all*9/10 || refused > 77 {
		t.Errorf("%d accepted of %d, %d refused", accepted, all, refused)
	}
}

// A counter whose windows follow one another from the first request on, and begin anew after an empty
// one. It takes the window before into account.
type twoCounts struct {
	quota       float64
	window      time.Duration
	began       time.Time
	before, now float64
}

func (c *twoCounts) take(now time.Time) bool {
	if passed := now.Sub(c.began); passed >= 2*c.window {
		c.began, c.before, c.now = now, 0, 0
	} else if passed >= c.window {
		c.began, c.before, c.now = c.began.Add(c.window), c.now, 0
	}
	if c.before*(1-now.Sub(c.began).Seconds()/c.window.Seconds())+c.now+1 > c.quota {
		return false
	}
	c.now++
	return true
}

// Such a counter lets through again only when a unit of the window before has left it, a little after
// a round time is over.
func TestHiddenCounterIsAskedAgainWhenAUnitHasLeftIt(t *testing.T) {
	sideBySide(t)
	accepted, refused, all := playHidden(t, 10, 400*time.Microsecond, func(quota float64) interface{ take(time.Time) bool } {
		return &twoCounts{quota: quota, window: time.Second}
	})
	if accepted < all*4/10 {
		t.Errorf("%d accepted of %d, %d refused", accepted, all, refused)
	}
}

// That the answer came after a round time was over says nothing of whether the request did: it is asked again a
// round trip after that time, not after the next one, which is five times as long, and then seems to be the window.
func TestHiddenWindowIsOverByWhenARequestWentNotByItsAnswer(t *testing.T) {
	accepted, refused, all := playHidden(t, 4, 26*time.Millisecond, func(quota float64) interface{ take(time.Time) bool } {
		return &window{quota: int(quota), length: time.Second}
	})
	if accepted < all*8/10 {
		t.Errorf("%d accepted of %d, %d refused", accepted, all, refused)
	}
}

// playHidden returns how many requests a limit that nobody announces accepts and refuses in a minute, over some
// runs, and how many of 10 a second there can be.
func playHidden(t *testing.T, runs int, way time.Duration, limit func(quota float64) interface{ take(time.Time) bool }) (accepted, refused, all int) {
	const length, quota = time.Minute, 10
	for range runs {
		synctest.Test(t, func(t *testing.T) {
			c := limit(quota)
			l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, _ http.Header) bool { return c.take(now) }}
			l.ask(t, length, example)
			accepted, refused = accepted+l.accepted, refused+l.refused
		})
	}
	all = runs * int(length/time.Second) * quota
	t.Logf("%d accepted of %d, %d refused", accepted, all, refused)
	return accepted, refused, all
}

// Two windows by the clock that meet look like a bucket that is slowly refilled: that is tried before
// it is believed.
func TestHiddenWindowsThatMeetAreNotTakenForABucket(t *testing.T) {
	manyRequests(t)
	var accepted, refused int64
	const runs, windows, quota = 10, 60, 100
	for phase := range time.Duration(runs) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}},
			Phase: phase * 100 * time.Millisecond, Latency: heedtest.RoundTrip(time.Millisecond),
		}, 16, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if all := int64(runs * windows * quota); accepted < all*8/10 {
		t.Errorf("%d accepted of %d, %d refused", accepted, all, refused)
	}
}

// series is a limit that lets through so many requests each time, and then refuses until nobody asked for a while.
type series struct {
	lengths []int
	n       int
	shut    bool
	last    time.Time
	after   []time.Time // when the others came
}

func (s *series) take(now time.Time) bool {
	if paused := now.Sub(s.last) > 200*time.Millisecond; paused {
		s.shut = false
	}
	s.last = now
	switch {
	case s.shut:
		return false
	case len(s.lengths) == 0:
		s.after = append(s.after, now)
		return len(s.after) <= 16
	case s.n < s.lengths[0]:
		s.n++
	default:
		s.n, s.lengths, s.shut = 0, s.lengths[1:], true
	}
	return !s.shut
}

// What lets through as many as at first after a pause that heed chose may be a window: that is tried, at twice the pace. A
// refusal long before a window would have been used up shows that it is none, and then the pause tells nothing of the rate.
func TestHiddenBucketIsKnownOnceItIsNoWindow(t *testing.T) {
	var accepted, later int64
	const runs = 6
	for run := range runs {
		var first int64
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.LeakyBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second, Burst: 51}},
			Latency: heedtest.RoundTrip([]time.Duration{200 * time.Microsecond, time.Millisecond}[run%2]),
		}, 16, 5, func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(time.Second)
			first = o.Tally().Refused
		}}.play(t)
		accepted, later = accepted+tally.Accepted, later+tally.Refused-first
	}
	t.Logf("%d accepted, %d refused after the first event", accepted, later)
	if accepted < runs*275 || later > 8*runs/3 {
		t.Errorf("%d accepted of %d, %d refused after the first event", accepted, runs*300, later)
	}
}

// stray is an origin beside which one request is refused, once so many were accepted since it first let through again.
type stray struct {
	*heedtest.Origin
	after int

	mu      sync.Mutex
	refused time.Time // when the origin first refused …
	n       int       // … and accepted since, a second later or more
	over    bool
}

func (s *stray) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	now := !s.over && s.n >= s.after
	s.over = s.over || now
	s.mu.Unlock()
	if now {
		return answer(503), nil
	}
	resp, err := s.Origin.RoundTrip(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch refused := err == nil && resp.StatusCode == 429; {
	case refused && s.refused.IsZero():
		s.refused = time.Now()
	case !refused && !s.refused.IsZero() && time.Since(s.refused) > time.Second:
		s.n++
	}
	return resp, err
}

// One that is refused by chance when the limit has just let through again for the first time does not make a slow bucket of it.
func TestStrayRefusalAfterTheFirstReopeningLowersTheRateLittle(t *testing.T) {
	manyRequests(t)
	const length = 5 * time.Minute
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.TokenBucket} {
		for _, k := range []int{1, 5, 12} {
			synctest.Test(t, func(t *testing.T) {
				s := &stray{after: k, Origin: heedtest.NewOrigin(heedtest.Config{
					Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 400, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
				})}
				client := quiet(t, s, heed.Limits{}).Client()
				end := time.Now().Add(length)
				var wg sync.WaitGroup
				for range 16 {
					wg.Go(func() {
						for time.Now().Before(end) {
							resp, err := client.Get("https://origin.test/")
							if err != nil {
								t.Error(err)
								return
							}
							resp.Body.Close()
						}
					})
				}
				wg.Wait()
				if !s.over {
					t.Errorf("%s, %d: none was refused by chance", algorithm, k)
				}
				tally := s.Tally()
				t.Logf("%s, %d: %d accepted, %d refused", algorithm, k, tally.Accepted, tally.Refused)
				if all := int64(40 * length.Seconds()); tally.Accepted < all*8/10 {
					t.Errorf("%s, %d: %d accepted of %d", algorithm, k, tally.Accepted, all)
				}
			})
		}
	}
}

// Nor do two of them, one right after the other, where the limit has become larger than what is known of it: less was accepted
// between them than a burst, but the rate before them was as it had been, and so the pace need not rise far, and fast.
func TestStrayRefusalsOneAfterTheOtherDoNotMakeThePaceRise(t *testing.T) {
	manyRequests(t)
	const trip = 50 * time.Millisecond
	for _, apart := range []time.Duration{200 * time.Millisecond, 250 * time.Millisecond} {
		for seed := range uint64(2) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{status: 503, trip: trip, rng: rand.New(rand.NewPCG(seed, 7)), base: heedtest.NewOrigin(heedtest.Config{
					Algorithm: heedtest.TokenBucket, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 100, Window: time.Second}}, Latency: heedtest.RoundTrip(trip),
				})}
				f.play(t, 64, 66*time.Second, func() {
					time.Sleep(time.Minute)
					f.base.SetPolicies(heedtest.Policy{Quota: 150, Window: time.Second})
					time.Sleep(time.Second)
					f.base.ResetTally()
					for range 2 {
						f.partly(1)
						time.Sleep(10 * time.Millisecond)
						f.partly(0)
						time.Sleep(apart)
					}
				})
				tally := f.base.Tally()
				t.Logf("%v apart: %d accepted, %d refused", apart, tally.Accepted, tally.Refused)
				if tally.Accepted < 300 || tally.Refused > 5 {
					t.Errorf("%v apart: %d accepted, %d refused", apart, tally.Accepted, tally.Refused)
				}
			})
		}
	}
}

// So few requests as come from one refusal to the next where a bucket is tried twice as fast tell its rate only to one
// more or less. What came between the refusals before tells it better.
func TestRateIsNotMeasuredByAHandfulOfRequests(t *testing.T) {
	for handful := 5; handful <= 7; handful++ {
		var c *series
		playHidden(t, 1, 100*time.Microsecond, func(float64) interface{ take(time.Time) bool } {
			c = &series{lengths: []int{51, 56, handful}}
			return c
		})
		const known = 51.0 / 5 // let through before the first pause, and that
		if pace := 15 / c.after[15].Sub(c.after[0]).Seconds(); pace > known {
			t.Errorf("%d: asked at %.2f a second, want at most %.2f", handful, pace, known)
		}
	}
}

// The rate of a window that was searched for is the pace that it let through for as many requests as it holds, and not only
// what came from one refusal to the next, of which heed chose a part; nor is a whole window judged by the few that it lets
// through while what was too much before still counts.
func TestRateOfASlidingCounterIsFoundInAMinute(t *testing.T) {
	manyRequests(t)
	var share, runs float64
	for phase := range 5 {
		for _, refused := range []bool{false, true} {
			load{heedtest.Config{
				Algorithm: heedtest.SlidingCounter, Phase: time.Duration(phase) * time.Second, CountRefused: refused, Dialect: heedtest.Silent,
				Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}, 16, 24, func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(time.Minute)
				o.ResetTally()
				time.Sleep(time.Minute - time.Second)
				share, runs = share+float64(o.Tally().Accepted)/590, runs+1
			}}.play(t)
		}
	}
	t.Logf("%.3f of what was to be had in the second minute", share/runs)
	if share/runs < 0.85 {
		t.Errorf("%.3f of what was to be had in the second minute", share/runs)
	}
}

// How few were left of a window that others had used says next to nothing of how many it lets through.
func TestFewLeftOfAHiddenWindowAreNoMeasureOfIt(t *testing.T) {
	sideBySide(t)
	for _, c := range []struct {
		quota, left int
		ends        time.Duration
	}{{60, 1, 54 * time.Second}, {60, 2, 30 * time.Second}, {5, 1, 30 * time.Second}, {5, 1, 2 * time.Second}, {10, 10, 2 * time.Second}, {3, 3, 2 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			w := window{quota: c.quota, length: time.Minute, used: c.quota - c.left, end: time.Now().Add(c.ends)}
			l := &limiter{way: 20 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, _ http.Header) bool { return w.take(now) }}
			l.ask(t, 40*time.Minute, example)
			t.Logf("%d left of %d for %v: %d accepted of %d, %d refused", c.left, c.quota, c.ends, l.accepted, 40*c.quota, l.refused)
			if l.accepted < 40*c.quota*80/100 || l.refused > min(8*c.quota+20, 80) {
				t.Errorf("%d left of %d for %v: %d accepted of %d, %d refused", c.left, c.quota, c.ends, l.accepted, 40*c.quota, l.refused)
			}
		})
	}
}
