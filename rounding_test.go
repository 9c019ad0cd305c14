package heed_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Which way an origin rounds resets is found out without a refusal, for the last unit of a
// window goes at the instant named, and is accepted though the window has not turned.
// Nor does it cost a second for each window to wait for one whose resets are rounded down.
func TestResetsRoundedDownCostNoRefusal(t *testing.T) {
	manyRequests(t)
	const windows, quota = 40, 50
	for algorithm, most := range map[heedtest.Algorithm]int64{heedtest.FixedWindow: 0, heedtest.FixedWindowByClock: 2} {
		for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
			for phase := range 3 {
				tally, _ := load{heedtest.Config{
					Algorithm: algorithm, Dialect: dialect, Rounding: heedtest.RoundDown,
					Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
					Phase:    time.Duration(phase) * 1930 * time.Millisecond, Latency: heedtest.RoundTrip(5 * time.Millisecond),
				}, 16, windows, nil}.play(t)
				if tally.Refused > most || tally.Accepted < windows*quota*99/100 {
					t.Errorf("%s, %s, phase %d: %d accepted of %d, %d refused, want at most %d",
						algorithm, dialect, phase, tally.Accepted, windows*quota, tally.Refused, most)
				}
			}
		}
	}
}

// Where nothing is left, and the instant named is over nevertheless, it was rounded down: in a window as short as that all
// answers may name such an instant, so that none goes as long as the window lasts. sethvargo/go-limiter and ulule/limiter
// announce theirs so.
func TestInstantsThatAreOverWhereNothingIsLeftCostNoRefusal(t *testing.T) {
	const windows, quota = 20, 10
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.TokenBucket} {
		for phase := range 4 {
			tally, _ := load{heedtest.Config{
				Algorithm: algorithm, Dialect: heedtest.XRateLimitEpoch, Rounding: heedtest.RoundDown,
				Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}},
				Phase:    time.Duration(phase) * 247 * time.Millisecond, ClockSkew: time.Duration(phase) * 247 * time.Millisecond,
				Latency: heedtest.RoundTrip(time.Millisecond),
			}, 16, windows, nil}.play(t)
			if tally.Refused > 0 || tally.Accepted < windows*quota*98/100 {
				t.Errorf("%s, phase %d: %d accepted of %d, %d refused", algorithm, phase, tally.Accepted, windows*quota, tally.Refused)
			}
		}
	}
}

// A window whose reset passes before it has turned looks like one that slides until then, for nothing came back at that
// reset. An instant that is over where nothing is left shows that it was none.
func TestWindowsThatTurnLateAreNotTakenForOnesThatSlide(t *testing.T) {
	const windows, quota, length = 20, 50, 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(925 * time.Millisecond)
		var end time.Time
		left := 0
		l := &limiter{way: time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			if now.After(end) {
				end, left = now.Add(length), quota
			}
			ok := left > 0
			if ok {
				left--
			}
			usualFields(h, quota, left, end.Unix())
			return ok
		}}
		l.ask(t, windows*length, "http://origin.test/")
		t.Logf("%d accepted, %d refused", l.accepted, l.refused)
		if l.refused > 0 || l.accepted < windows*quota*98/100 {
			t.Errorf("%d accepted of %d, %d refused", l.accepted, windows*quota, l.refused)
		}
	})
}

// What is too little for the next request is waited for like what is used up, and tells as
// much of how resets are rounded.
func TestRequestsOfManyUnitsUseUpQuotasWhoseResetsAreRoundedDown(t *testing.T) {
	const windows, quota = 20, 100
	for cost, most := range map[int64]int64{10: 0, 7: 1} { // 2 units are left over of 100, which no request can have
		for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow} {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: algorithm, Rounding: heedtest.RoundDown, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}},
					Cost: func(*http.Request) int64 { return cost }, Latency: heedtest.RoundTrip(5 * time.Millisecond),
				})
				tr := quiet(t, o, heed.Limits{})
				end := time.Now().Add(windows * 10 * time.Second)
				busy := asking(16, end, func(int) (*http.Response, error) {
					return tr.Client().Do(get(heed.WithCost(t.Context(), heed.UnitRequests, cost), site))
				})
				time.Sleep(time.Until(end))
				tally := o.Tally()
				tr.Registry.Close()
				busy.Wait()
				if least := windows * (quota / cost) * 90 / 100; tally.Accepted < least || tally.Refused > most {
					t.Errorf("%s, %d units each: %d accepted, want at least %d; %d refused, want at most %d", algorithm, cost, tally.Accepted, least, tally.Refused, most)
				}
			})
		}
	}
}

// Answers that come late make the reset seem to move on with the time, as where every
// request puts it off, and those of the last units of a window hold back the next one.
func TestWindowsWhoseAnswersComeLateAreUsedUp(t *testing.T) {
	manyRequests(t)
	const windows = 20
	for dialect, policy := range map[heedtest.Dialect]heedtest.Policy{
		heedtest.IETF11:     {Quota: 100, Window: 10 * time.Second},
		heedtest.XRateLimit: {Quota: 50, Window: 5 * time.Second}, // that does not say how long they are
	} {
		var accepted int64
		for seed := range uint64(8) {
			tally, _ := load{heedtest.Config{
				Dialect: dialect, Policies: []heedtest.Policy{policy},
				Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
			}, 16, windows, nil}.play(t)
			accepted += tally.Accepted
			if tally.Refused > 0 {
				t.Errorf("%s, seed %d: %d refused", dialect, seed, tally.Refused)
			}
		}
		if all := 8 * windows * policy.Quota; accepted < all*96/100 {
			t.Errorf("%s: %d accepted of %d", dialect, accepted, all)
		}
	}
}

// What was accepted after a stop shows that the reset was not named too soon: who is refused again soon after had
// used up what had come back, and to wait longer each time for a window that turns late would have that go on.
func TestRefusalAfterSomeWereAcceptedIsNoResetRoundedDown(t *testing.T) {
	const windows, quota = 80, 50
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, OnRefusalsOnly: true,
		Latency: heedtest.RoundTrip(5 * time.Millisecond),
	}, 16, windows, nil}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Refused > 50 || tally.Accepted < windows*quota*95/100 { // 14 to 16 were, most of them at first, and 97 where each waits longer
		t.Errorf("%d accepted of %d, %d refused", tally.Accepted, windows*quota, tally.Refused)
	}
}

// Who sends one request at a time has nobody else go to see whether there is more: a refusal that says that
// nothing is left, and names a reset of 0 because it is rounded down, holds it no longer than what is rounded off.
func TestOneRequestAtATimeLosesNoSecondsToResetsRoundedDownToNothing(t *testing.T) {
	const windows, quota, phases = 60, 10, 8
	var accepted, refused int64
	for phase := range phases {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.XRateLimit, Rounding: heedtest.RoundDown,
			RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterNone}, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}},
			Phase: time.Duration(phase) * 123 * time.Millisecond, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 1, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	if least := int64(phases * windows * quota * 80 / 100); accepted < least {
		t.Errorf("%d accepted, want at least %d; %d refused", accepted, least, refused)
	}
}

// Of two counts nothing is back for up to two windows where the quota is one. A reset that is rounded down, and is over when
// a window has passed, was that of a window in which it is not.
func TestResetsRoundedDownOfWhatLastsLongerThanAWindowCostFewRefusals(t *testing.T) {
	for phase := range 3 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.SlidingCounter, Rounding: heedtest.RoundDown,
			Policies: []heedtest.Policy{{Quota: 1, Window: time.Second}},
			Phase:    time.Duration(phase) * 247 * time.Millisecond, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 16, 60, nil}.play(t)
		t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
		if tally.Refused > 3 || tally.Accepted < 25 {
			t.Errorf("phase %d: %d accepted of 30, %d refused", phase, tally.Accepted, tally.Refused)
		}
	}
}

// That others have used up all of a window before the first request in it arrives looks like a reset that was rounded down, and
// like two counts. It makes no window longer by far.
func TestWindowsThatOthersUseUpAreNotTakenToBeLonger(t *testing.T) {
	const windows, quota, taken = 60, 20, 4
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}},
		Latency: heedtest.RoundTrip(50 * time.Millisecond),
	}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
		for range taken {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(2*time.Second + time.Millisecond)))
			o.Take(quota)
		}
	}}.play(t)
	t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
	if tally.Accepted < (windows-taken)*quota*88/100 || tally.Refused > 12 {
		t.Errorf("%d accepted of %d, %d refused", tally.Accepted, (windows-taken)*quota, tally.Refused)
	}
}

// besideAnother plays a load by the clock whose resets are instants rounded down, beside another client that
// wants a fifth of the quota. When windows begin, and what the origin's clock shows then, is another one for each turn.
// It returns what share of that the other client got, and how many requests of this one were refused.
func besideAnother(t *testing.T, turn int) (served float64, refused int64) {
	t.Helper()
	const windows, quota, length, trip = 20, 50, 5 * time.Second, 25 * time.Millisecond
	const wanted = windows * quota / 5
	theirs := 0
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.XRateLimitEpoch, Rounding: heedtest.RoundDown,
		Policies: []heedtest.Policy{{Quota: quota, Window: length}}, Latency: heedtest.RoundTrip(trip),
		Phase: time.Duration(turn) * 970 * time.Millisecond, ClockSkew: time.Duration(turn) * 230 * time.Millisecond,
	}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
		for range wanted {
			resp, err := o.RoundTrip(request("https://origin.test/"))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				theirs++
			}
			time.Sleep(windows*length/wanted - trip)
		}
	}}.play(t)
	return float64(theirs) / wanted, tally.Refused - int64(wanted-theirs)
}

// A window by the clock is as long as from one instant that is named as its end to the next. What another client wants
// of it would not be left if it were taken for shorter, as the waits for its end say: they are rounded down, and named
// by requests that come when the window has long begun.
func TestWindowsByTheClockWhoseEndsAreRoundedDownLeaveOthersTheirs(t *testing.T) {
	manyRequests(t)
	for _, turn := range []int{0, 1, 2, 3, 4, 40} {
		if served, _ := besideAnother(t, turn); served < 0.95 {
			t.Errorf("turn %d: another client got %.3f of what it wanted", turn, served)
		}
	}
}

// An instant that is over where nothing is left is no reset that came on time, though a unit that had been kept was
// accepted right after it: it was rounded down.
func TestInstantsThatAreOverBesideOthersAreNotTakenToBeOnTime(t *testing.T) {
	manyRequests(t)
	for _, turn := range []int{4, 38, 40, 51, 53} {
		if _, refused := besideAnother(t, turn); refused > 0 {
			t.Errorf("turn %d: %d refused", turn, refused)
		}
	}
}

// Some refusals say no more than when to come back. One that comes to the first request of a window went too soon for it, be it because resets are
// rounded or because what was used lasts for longer than the window; else each window would begin with a refusal.
func TestARefusalThatNamesNoResetTellsThatItsWindowWasBegunTooSoon(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		name   string
		way    time.Duration
		counts bool // a refusal says that nothing is left
		takes  func(now time.Time) (ok bool, left int, back time.Duration)
		says   func(h http.Header, back time.Duration)
		wait   func(back time.Duration) int
	}{
		{"windows by the clock, rounded down, always the same Retry-After", 50 * time.Millisecond, false, byClock(50, 5*time.Second), inSeconds, whole(5)},
		{"windows by the clock, rounded down, the right Retry-After", 100 * time.Microsecond, false, byClock(50, 5*time.Second), inSeconds, roundedUp},
		{"a bucket, in thousandths", 0, true, ofBucket(50, 5*time.Second), inThousandths, roundedUp},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(1850 * time.Millisecond)
			l := &limiter{way: c.way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				ok, left, back := c.takes(now)
				if ok || c.counts {
					countsOf(h, 50, float64(left))
				}
				if ok {
					c.says(h, back)
				} else {
					h.Set("Retry-After", strconv.Itoa(c.wait(back)))
				}
				return ok
			}}
			l.ask(t, 5*time.Minute, example)
			t.Logf("%s: %d of 3000 accepted, %d refused", c.name, l.accepted, l.refused)
			if l.accepted < 2800 || l.refused > 15 {
				t.Errorf("%s: %d of 3000 accepted, %d refused; want 2800 at least, and at most 15", c.name, l.accepted, l.refused)
			}
		})
	}
}

func inSeconds(h http.Header, back time.Duration) {
	h.Set("X-RateLimit-Reset", strconv.Itoa(int(back/time.Second)))
}

func inThousandths(h http.Header, back time.Duration) {
	h.Set("X-RateLimit-Reset", strconv.FormatFloat(back.Seconds(), 'f', 3, 64))
}

func whole(seconds int) func(time.Duration) int { return func(time.Duration) int { return seconds } }

func roundedUp(back time.Duration) int { return int((back + time.Second - 1) / time.Second) }

func byClock(quota int, length time.Duration) func(time.Time) (bool, int, time.Duration) {
	w := window{quota: quota, length: length}
	return func(now time.Time) (bool, int, time.Duration) {
		w.turnByClock(now)
		ok := w.take(now)
		return ok, max(quota-w.used, 0), w.end.Sub(now)
	}
}

func ofBucket(quota int, length time.Duration) func(time.Time) (bool, int, time.Duration) {
	b := bucketOf(quota, length)
	return func(now time.Time) (bool, int, time.Duration) {
		ok := b.take(now)
		return ok, int(b.left), time.Duration(max(1-b.left, 0) / b.rate * 1e9)
	}
}

// A 503 at the beginning of a window is an outage, and tells nothing of the window.
func TestA503AtTheBeginningOfAWindowIsNoSignThatItWasBegunTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := window{quota: 20, length: time.Hour}
		begin := time.Now()
		out := false
		tr := quiet(t, baseFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond)
			now := time.Now()
			resp := answer(http.StatusOK, "Date", now.UTC().Format(http.TimeFormat))
			resp.Request = r
			if now.Sub(begin) > time.Hour && !out {
				out, resp.StatusCode = true, http.StatusServiceUnavailable
				return resp, nil
			}
			if !w.take(now) {
				resp.StatusCode = http.StatusTooManyRequests
			}
			resp.Header.Set("RateLimit-Policy", "20;w=3600")
			resp.Header.Set("RateLimit", fmt.Sprintf("limit=20, remaining=%d, reset=%d", max(w.quota-w.used, 0), int(w.end.Sub(now).Seconds())+1))
			return resp, nil
		}), heed.Limits{})
		defer tr.Registry.Close()
		for i := range 21 {
			resp, err := tr.Client().Get(example)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			resp.Body.Close()
		}
		if after := time.Since(begin); after > time.Hour+time.Minute {
			t.Errorf("21 requests at 20 an hour took %v", after)
		}
	})
}
