package heed_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Many that are under way when another client has used up what is left have waited
// for nothing: they do not show that the wait was too short.
func TestManyRefusedAtOnceDoNotLengthenTheWaitForABareCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota = 20
		w, other := &window{quota: quota, length: 2 * time.Second}, time.Now().Add(20*time.Second)
		l := &limiter{way: 100 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := w.take(now)
			if ok && now.After(other) {
				w.used, other = quota, now.Add(20*time.Second)
			}
			h.Set("X-RateLimit-Remaining", strconv.Itoa(max(quota-w.used, 0)))
			return ok
		}}
		l.ask(t, 10*time.Minute, "http://origin.test/")
		if l.accepted < 3000 || l.refused > 600 {
			t.Errorf("%d accepted of 5400, %d refused", l.accepted, l.refused)
		}
	})
}

// Of a quota of one nothing is ever left: the reset that a refusal names is as far
// from the last accepted request, not from the first.
func TestWaitForABareCountIsMeasuredFromTheLastAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &window{quota: 1, length: 2 * time.Second}
		l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := w.take(now)
			h.Set("X-RateLimit-Remaining", "0")
			if !ok {
				h.Set("X-RateLimit-Reset", strconv.Itoa(int((w.end.Sub(now)+time.Second-1)/time.Second)))
			}
			return ok
		}}
		tr := quiet(t, l, heed.Limits{})
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
			sendOne(t, tr, get(t.Context(), site))
		}
		if l.accepted < 200 || l.refused > 20 {
			t.Errorf("%d accepted of 300, %d refused", l.accepted, l.refused)
		}
	})
}

// Nor does a wait that was too short cost who sends one request at a time the seconds for which an outage is
// left alone, though its refusal names no time.
func TestOneRequestAtATimeLosesNoSecondsToAWaitForABareCountThatWasTooShort(t *testing.T) {
	var accepted, refused int
	for phase := range 8 {
		synctest.Test(t, func(t *testing.T) {
			w := &window{quota: 10, length: time.Second, end: time.Now().Add(time.Duration(phase) * 123 * time.Millisecond)}
			l := &limiter{way: 25 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				for !now.Before(w.end) { // by the clock
					w.used, w.end = 0, w.end.Add(w.length)
				}
				if w.used == w.quota {
					h.Set("X-RateLimit-Retry-After-Seconds", "0")
					return false
				}
				w.used++
				h.Set("X-RateLimit-Remaining", strconv.Itoa(w.quota-w.used))
				return true
			}}
			tr := quiet(t, l, heed.Limits{})
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				sendOne(t, tr, get(t.Context(), site))
			}
			accepted, refused = accepted+l.accepted, refused+l.refused
		})
	}
	if accepted < 4450 { // of 4880 or so
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// What is back of a bucket says how long a wait is long enough, and that of a window
// mostly is a round time: neither costs more than a refusal or two.
func TestWaitForABareCountIsFoundWithFewRefusals(t *testing.T) {
	bucket := func(rate, burst float64) func(time.Time) (int, bool) {
		b := tokenBucket{rate: rate, burst: burst}
		return func(now time.Time) (int, bool) {
			ok := b.take(now)
			return int(b.left), ok
		}
	}
	windows := func(quota int, length time.Duration) func(time.Time) (int, bool) {
		w := &window{quota: quota, length: length}
		return func(now time.Time) (int, bool) {
			ok := w.take(now)
			return max(quota-w.used, 0), ok
		}
	}
	counts := func() func(time.Time) (int, bool) {
		var count func(time.Time, http.Header) bool
		return func(now time.Time) (left int, ok bool) {
			if count == nil { // the first of its windows began a while ago
				count = countedByClock(50, 5)
			}
			h := http.Header{}
			ok = count(now.Add(1300*time.Millisecond), h)
			left, _ = strconv.Atoi(h.Get("X-RateLimit-Remaining"))
			return left, ok
		}
	}
	for _, c := range []struct {
		name     string
		take     func(time.Time) (left int, ok bool)
		silent   bool // refusals say nothing
		accepted int  // in 20 s, at least …
		refused  int  // … and at most
	}{
		{"bucket", bucket(10, 20), false, 205, 0},
		{"small bucket", bucket(2, 4), false, 40, 0},
		{"bucket of one", bucket(10, 1), false, 150, 6},
		{"fast bucket", bucket(100, 100), false, 2000, 0},
		{"counts of two windows", counts(), false, 190, 2}, // of 235
		{"window of 5 s", windows(50, 5*time.Second), false, 200, 1},
		{"window of 5 s, silent refusals", windows(50, 5*time.Second), true, 200, 1},
		{"window of 1 s", windows(10, time.Second), false, 190, 2},
		{"window of 10 s", windows(100, 10*time.Second), false, 200, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &limiter{status: http.StatusServiceUnavailable, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
					left, ok := c.take(now)
					if ok || !c.silent {
						h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
					}
					return ok
				}}
				l.ask(t, 20*time.Second, site)
				if l.accepted < c.accepted || l.refused > c.refused {
					t.Errorf("%d accepted, not %d, and %d refused", l.accepted, c.accepted, l.refused)
				}
			})
		})
	}
}

// A Retry-After beside the word that nothing is left is when there is more, on an
// answer that is accepted, too, whatever reset is named (draft-11, section 7).
func TestRetryAfterOnAnAcceptedAnswerWithNothingLeftIsKeptTo(t *testing.T) {
	for _, reset := range []string{"", "3", "30", "instant"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			defer r.Close()
			fields := []string{"X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "Retry-After", "7"}
			switch reset {
			case "":
			case "instant":
				fields = append(fields, "X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(30*time.Second).Unix(), 10), "Date", time.Now().UTC().Format(http.TimeFormat))
			default:
				fields = append(fields, "X-RateLimit-Reset", reset)
			}
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200, fields...))
			pm.Release()
			if wait := r.Check(request(example)).Wait; wait != 7*time.Second {
				t.Errorf("reset %q: the next one waits %v, not 7s", reset, wait)
			}
		})
	}
}

// Where a refusal says that nothing is left of a window and not when it ends, Retry-After says
// when there is more. Where that was too soon, the window is waited for.
func TestRetryAfterOfARefusalIsKeptToWhereOnlyTheWindowIsNamed(t *testing.T) {
	for _, fields := range [][]string{
		{"RateLimit-Policy", `"p";q=100;w=120`, "RateLimit", `"p";r=0`},
		{"X-App-Rate-Limit", "100:120", "X-App-Rate-Limit-Count", "101:120"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			defer r.Close()
			send := sender(t, r)
			fields = append(fields, "Retry-After", "3")
			send(429, fields...)
			if wait := send(429, fields...); wait < 3*time.Second || wait > 4*time.Second {
				t.Errorf("%s: the next one waited %v, not 3s", fields[0], wait)
			}
			if wait := send(200); wait < time.Minute || wait > 121*time.Second {
				t.Errorf("%s: the one after it waited %v", fields[0], wait)
			}
		})
	}
}

// A wait for more that is hardly too short is made a little longer. Where that is too short, too, the next time that windows mostly last
// is tried, and not one far beyond it.
func TestWaitThatIsALittleTooShortIsNotFollowedByOneOfMinutes(t *testing.T) {
	manyRequests(t)
	for _, quota := range []int{60, 1000} {
		synctest.Test(t, func(t *testing.T) {
			const length, lasts = time.Minute, 10 * time.Minute
			time.Sleep(36600 * time.Millisecond)
			w := window{quota: quota, length: length}
			l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				w.turnByClock(now)
				ok := w.take(now)
				countsOf(h, quota, float64(max(quota-w.used, 0)))
				return ok
			}}
			l.ask(t, lasts, example)
			could := quota * int(lasts/length)
			t.Logf("%d of %d accepted, %d refused", l.accepted, could, l.refused)
			if l.accepted < could*9/10 || l.refused > 10 {
				t.Errorf("%d of %d accepted, %d refused", l.accepted, could, l.refused)
			}
		})
	}
}

// A tokenBucket refills steadily.
type tokenBucket struct {
	rate, burst, left float64
	at                time.Time
}

func (b *tokenBucket) take(now time.Time) bool {
	if b.at.IsZero() {
		b.left = b.burst
	} else {
		b.left = min(b.burst, b.left+now.Sub(b.at).Seconds()*b.rate)
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// That something was left is no news in an answer to a request that went before nothing
// was: the wait that a refusal names is measured from then all the same.
func TestWaitForABareCountIsMeasuredWhateverOrderAnswersComeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		defer r.Close()
		observe := func(pm *heed.Permit, status int, left string, more ...string) {
			time.Sleep(time.Millisecond)
			pm.Observe(answer(status, append(more, "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", left)...))
			pm.Release()
		}
		spend := func() {
			observe(acquire(t, r, request(example)), 200, "2")
			first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
			observe(second, 200, "0")
			observe(first, 200, "1")
		}
		spend()
		wait := r.Check(request(example)).Wait
		observe(acquire(t, r, request(example)), 429, "0", "X-RateLimit-Reset", "20", "Retry-After", "20")
		time.Sleep(25 * time.Second)
		spend()
		if again := r.Check(request(example)).Wait; again < wait+19*time.Second {
			t.Errorf("it waits for %v where %v were 20 s too short", again, wait)
		}
	})
}

// Windows by the clock may be over sooner than one that began with its first request, so that shorter waits are enough
// by chance. What always was enough is no reason to wait for longer still once they are refused.
func TestWaitForWindowsByTheClockIsNoLongerThanOneThatAlwaysWasEnough(t *testing.T) {
	const windows, quota = 60, 5
	var accepted, refused int64
	for phase := range 6 {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.XRateLimit, Rounding: heedtest.RoundZero,
			Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}},
			Phase:    time.Duration(phase) * 157 * time.Millisecond, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 16, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 6*windows*quota*85/100 || refused > 6*5 {
		t.Errorf("%d accepted of %d, %d refused", accepted, 6*windows*quota, refused)
	}
}

// A refusal that names a wait in whole seconds may have rounded it up: where one that was enough before is no shorter
// than that allows, it is enough.
func TestWaitThatWasEnoughOutlastsOneThatIsRoundedUp(t *testing.T) {
	const quota, length = 5, time.Second
	synctest.Test(t, func(t *testing.T) {
		w := &window{quota: quota, length: length}
		l := &limiter{way: 25 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := w.take(now)
			h.Set("X-RateLimit-Remaining", strconv.Itoa(max(quota-w.used, 0)))
			if !ok {
				h.Set("X-RateLimit-Reset", "1")
			}
			return ok
		}}
		l.ask(t, 60*length, "http://origin.test/")
		t.Logf("%d accepted, %d refused", l.accepted, l.refused)
		if l.accepted < 60*quota*80/100 || l.refused > 3 {
			t.Errorf("%d accepted of %d, %d refused", l.accepted, 60*quota, l.refused)
		}
	})
}
