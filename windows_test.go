package heed_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// fare asks a limiter near by for a while from several phases of the clock on, and wants
// so many accepted and no more than so many refused each time. It returns how many were accepted in all.
func fare(t *testing.T, length time.Duration, least, most int, made func() func(now time.Time, h http.Header) bool) (accepted int) {
	for from := 37 * time.Millisecond; from < time.Second; from += 193 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(from)
			accepts := made()
			l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool { return accepts(now, h) }}
			l.ask(t, length, "http://origin.test/")
			t.Logf("from %v: %d accepted, %d refused", from, l.accepted, l.refused)
			if l.accepted < least || l.refused > most {
				t.Errorf("from %v: %d accepted, %d refused; want at least %d and at most %d", from, l.accepted, l.refused, least, most)
			}
			accepted += l.accepted
		})
	}
	return accepted
}

// usualFields writes the three fields of most.
func usualFields(h http.Header, quota, left int, reset int64) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(quota))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
}

// Windows of a second, begun by their first requests, whose resets are rounded up to whole
// seconds of the clock: the reset named is up to a second too late, and a window
// seems longer than it is. express-rate-limit announces them so.
func TestWindowsShorterThanTheirResetsSayAreUsedUp(t *testing.T) {
	fare(t, 20*time.Second, 170, 0, func() func(now time.Time, h http.Header) bool {
		w := &window{quota: 10, length: time.Second}
		return func(now time.Time, h http.Header) bool {
			ok := w.take(now)
			usualFields(h, w.quota, max(w.quota-w.used, 0), int64(math.Ceil(float64(w.end.UnixMilli())/1000)))
			return ok
		}
	})
}

// From further away it shows only to within a round trip how long such a window is. It is
// taken to be of whole seconds then, or each would be begun late.
func TestWindowsShorterThanTheirResetsSayAreUsedUpFromFarAway(t *testing.T) {
	const windows, quota = 30, 10
	for _, trip := range []time.Duration{15 * time.Millisecond, 50 * time.Millisecond} {
		for skew := time.Duration(0); skew < time.Second; skew += 300 * time.Millisecond {
			tally, _ := load{heedtest.Config{
				Dialect: heedtest.XRateLimitEpoch, ClockSkew: skew, Policies: []heedtest.Policy{{Quota: quota, Window: time.Second}},
				Latency: heedtest.RoundTrip(trip),
			}, 16, windows, nil}.play(t)
			t.Logf("%v, %v: %d accepted, %d refused", trip, skew, tally.Accepted, tally.Refused)
			if least := int64(windows*quota) * int64(time.Second) * 88 / 100 / int64(time.Second+trip); tally.Accepted < least || tally.Refused > 0 {
				t.Errorf("%v, %v: %d accepted, want %d; %d refused", trip, skew, tally.Accepted, least, tally.Refused)
			}
		}
	}
}

// Where resets are rounded to as much as windows are long, nothing goes for a window
// after the last unit, whenever that goes: to leave it costs no more than itself.
func TestWindowsAsShortAsResetsAreRoundedToAreUsedUp(t *testing.T) {
	manyRequests(t)
	for _, alg := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
			for phase := time.Duration(0); phase < time.Second; phase += 300 * time.Millisecond {
				tally, _ := load{heedtest.Config{
					Algorithm: alg, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second}},
					Dialect: heedtest.XRateLimit, Latency: heedtest.RoundTrip(trip), Phase: phase,
				}, 16, 60, nil}.play(t)
				if tally.Refused > 0 || tally.Accepted < 520 {
					t.Errorf("%s, %v, %v: %d accepted of 600, %d refused", alg, trip, phase, tally.Accepted, tally.Refused)
				}
			}
		}
	}
}

// An answer that was long on its way says that more is left than one that says that nothing is:
// that window has not turned, whatever reset is named, and nothing goes early.
func TestLateAnswersTurnNoWindowAsShortAsResetsAreRoundedTo(t *testing.T) {
	manyRequests(t)
	for _, alg := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		for seed := range uint64(6) {
			tally, _ := load{heedtest.Config{
				Algorithm: alg, Policies: []heedtest.Policy{{Quota: 10, Window: time.Second}},
				Dialect: heedtest.XRateLimit, Latency: heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, seed),
			}, 16, 60, nil}.play(t)
			if tally.EarlyStanding > 0 || tally.Refused > 2 {
				t.Errorf("%s, seed %d: %d early, %d refused", alg, seed, tally.EarlyStanding, tally.Refused)
			}
		}
	}
}

// The quota is back when nothing was sent for as long as a window: every request puts
// that off. gin-rate-limit counts so.
func TestQuotaWhoseReturnEveryRequestPutsOffIsUsedUp(t *testing.T) {
	fare(t, 20*time.Second, 195, 0, func() func(now time.Time, h http.Header) bool {
		left, last := 0, int64(0)
		return func(now time.Time, h http.Header) bool {
			if last+5 <= now.Unix() {
				left = 50
			}
			ok := left > 0
			if ok {
				left, last = left-1, now.Unix()
			}
			usualFields(h, 50, left, last+5)
			return ok
		}
	})
}

// Units come back one by one though the reset named is that of the newest, which every
// request puts off. flask-limiter counts so.
func TestQuotaWhoseNewestUnitIsNamedIsUsedUp(t *testing.T) {
	fare(t, 20*time.Second, 190, 0, func() func(now time.Time, h http.Header) bool {
		var log []time.Time
		return func(now time.Time, h http.Header) bool {
			for len(log) > 0 && now.Sub(log[0]) >= 5*time.Second {
				log = log[1:]
			}
			ok := len(log) < 50
			if ok {
				log = append(log, now)
			}
			usualFields(h, 50, 50-len(log), log[len(log)-1].Unix()+6)
			return ok
		}
	})
}

// Units come back one by one, but the reset named is the end of a window that nothing else depends on: where nothing is
// left when that has just begun, all have to wait for the whole of it. @nestjs/throttler announces so.
func TestQuotaWhoseResetsAreOfAnotherWindowIsUsedUp(t *testing.T) {
	const windows, quota, length = 5, 100, time.Minute
	for _, way := range []time.Duration{0, 5 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(37 * time.Millisecond)
			var log []time.Time
			var end time.Time
			l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				for len(log) > 0 && now.Sub(log[0]) >= length {
					log = log[1:]
				}
				if !end.After(now) {
					end = now.Add(length)
				}
				ok := len(log) < quota
				if ok {
					log = append(log, now)
				}
				usualFields(h, quota, quota-len(log), int64((end.Sub(now)+time.Second-1)/time.Second))
				return ok
			}}
			l.ask(t, windows*length, "http://origin.test/")
			t.Logf("%v: %d accepted, %d refused", way, l.accepted, l.refused)
			if l.accepted < windows*quota*96/100 || l.refused > 0 {
				t.Errorf("%v: %d accepted of %d, %d refused", way, l.accepted, windows*quota, l.refused)
			}
		})
	}
}

// What is left is counted out of two windows, the one before being taken to have been used
// evenly. Nothing is back at once when a window is over, though its end is the reset that
// is named, and whoever is told that nothing is left has to wait until then.
func TestQuotaCountedOutOfTwoWindowsIsUsedUp(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		quota, length int64 // seconds
		lasts         time.Duration
		cut, whole    int // accepted at least, by a clock cut to seconds and by a whole one
		most          int // refused at most
	}{
		{120, 60, 10 * time.Minute, 900, 900, 1}, // of 1260
		{50, 5, 20 * time.Second, 130, 140, 0},   // of 175 and 235
		{50, 5, 100 * time.Second, 630, 900, 0},  // of 840 and 990
	} {
		fare(t, c.lasts, c.cut, c.most, func() func(now time.Time, h http.Header) bool { return countedByCutClock(c.quota, c.length) })
		fare(t, c.lasts, c.whole, c.most, func() func(now time.Time, h http.Header) bool { return countedByClock(c.quota, c.length) })
	}
}

// A unit in doubt is a tenth of a small one, and how many are is chance.
func TestSmallQuotaCountedOutOfTwoWindowsIsUsedUp(t *testing.T) {
	sideBySide(t)
	const phases, lasts = 5, 5 * time.Minute // of 270
	cut := fare(t, lasts, 150, 4, func() func(now time.Time, h http.Header) bool { return countedByCutClock(10, 10) })
	whole := fare(t, lasts, 165, 5, func() func(now time.Time, h http.Header) bool { return countedByClock(10, 10) })
	if cut < phases*180 || whole < phases*196 {
		t.Errorf("%d and %d accepted in %d runs, want at least %d and %d", cut, whole, phases, phases*180, phases*196)
	}
}

// So it is where the end of a window is told by nothing but a field that says when to come back, with each answer.
func TestQuotaWhoseEndAFieldForRetriesNamesIsUsedUp(t *testing.T) {
	manyRequests(t)
	fare(t, 100*time.Second, 930, 0, func() func(now time.Time, h http.Header) bool { return countedAsSymfony(50, 5*time.Second) })
	n := fare(t, 5*time.Minute, 190, 1, func() func(now time.Time, h http.Header) bool { return countedAsSymfony(10, 10*time.Second) })
	if n < 5*212 { // it is up to chance how a single run goes
		t.Errorf("%d accepted in five runs, want at least %d", n, 5*212)
	}
}

// countedAsSymfony counts as Symfony's sliding window does, whose windows begin with the first request of all.
func countedAsSymfony(quota int, length time.Duration) func(now time.Time, h http.Header) bool {
	var end time.Time
	var before, used int
	return func(now time.Time, h http.Header) bool {
		switch {
		case !now.Before(end.Add(length)):
			end, before, used = now.Add(length), 0, 0
		case !now.Before(end):
			end, before, used = end.Add(length), used, 0
		}
		gone := int(float64(before) * float64(end.Sub(now)) / float64(length))
		ok := gone+used < quota
		if ok {
			used++
		}
		h.Set("X-RateLimit-Limit", strconv.Itoa(quota))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(max(quota-gone-used, 0)))
		h.Set("X-RateLimit-Retry-After", strconv.FormatInt(end.Unix(), 10))
		return ok
	}
}

// countedByCutClock counts as gofiber does.
func countedByCutClock(quota, length int64) func(now time.Time, h http.Header) bool {
	var before, used, end int64
	return func(now time.Time, h http.Header) bool {
		switch at := now.Unix(); {
		case end == 0 || at >= end+length:
			before, used, end = 0, 0, at+length
		case at >= end:
			before, used, end = used, 0, end+length
		}
		in := end - now.Unix()
		used++
		left := quota - (before*in+length-1)/length - used
		if left < 0 {
			h.Set("Retry-After", strconv.FormatInt(in, 10))
			return false
		}
		usualFields(h, int(quota), int(left), in)
		return true
	}
}

// countedByClock counts as httprate does, whose windows begin with the process.
func countedByClock(quota, length int64) func(now time.Time, h http.Header) bool {
	begin := time.Now()
	window := time.Duration(length) * time.Second
	var before, used, turn int64
	return func(now time.Time, h http.Header) bool {
		switch n := int64(now.Sub(begin) / window); {
		case n > turn+1:
			before, used, turn = 0, 0, n
		case n > turn:
			before, used, turn = used, 0, n
		}
		part := float64(now.Sub(begin)%window) / float64(window)
		rate := math.Round(float64(before)*(1-part)) + float64(used)
		ok := rate < float64(quota)
		if ok {
			used, rate = used+1, rate+1
		} else {
			h.Set("Retry-After", strconv.FormatInt(length, 10))
		}
		usualFields(h, int(quota), max(int(quota)-int(rate), 0), begin.Add(time.Duration(turn+1)*window).Unix())
		return ok
	}
}

// Nobody says how large the quota is: only how many are left, and until when, rounded up. The
// last unit still goes when rounding costs nothing.
func TestQuotaWhoseSizeNobodySaysIsUsedUp(t *testing.T) {
	manyRequests(t)
	fare(t, 100*time.Second, 915, 0, func() func(now time.Time, h http.Header) bool { // of 1000
		w := &window{quota: 50, length: 5 * time.Second}
		return func(now time.Time, h http.Header) bool {
			ok := w.take(now)
			h.Set("X-RateLimit-Remaining", strconv.Itoa(max(w.quota-w.used, 0)))
			h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(w.end.Sub(now).Seconds()))))
			return ok
		}
	})
}

// Where nothing is left and nobody says until when, the wait that was tried was too short: the
// next one is longer, and not by the seconds for which an outage is left alone.
func TestRefusalsThatSayNothingIsLeftAreNoOutage(t *testing.T) {
	fare(t, 20*time.Second, 165, 12, wholeEverySecond("X-RateLimit-Limit")) // of 205 or so
}

// A count that takes the window before into account, and says what is left but never when there is more:
// after as long a wait now all is back, now next to nothing. Symfony announces it so.
func TestWaitsThatBringNowAllNowNothingAreHalved(t *testing.T) {
	fare(t, 100*time.Second, 800, 2, func() func(now time.Time, h http.Header) bool { // of 1000
		const quota, window = 50, 5 * time.Second
		var began time.Time
		before, latest := 0, 0
		return func(now time.Time, h http.Header) bool {
			if passed := now.Sub(began); passed >= 2*window {
				began, before, latest = now, 0, 0
			} else if passed >= window {
				began, before, latest = began.Add(window), latest, 0
			}
			left := quota - latest - int(float64(before)*(1-now.Sub(began).Seconds()/window.Seconds()))
			ok := left > 0
			if ok {
				latest, left = latest+1, left-1
			}
			h.Set("X-RateLimit-Limit", strconv.Itoa(quota))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(max(left, 0)))
			return ok
		}
	})
}

// A bucket that holds but one unit, and says that it is empty but not until when: a wait that is now enough, now
// too short is made longer.
func TestWaitsThatAreHardlyEnoughAreMadeLonger(t *testing.T) {
	var accepted, refused int
	const runs, length = 4, time.Minute
	for run := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			var full time.Time
			uneven := rand.New(rand.NewPCG(run, 1))
			l := &limiter{way: 25 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				h.Set("X-RateLimit-Limit", "1")
				h.Set("X-RateLimit-Remaining", "0")
				if now.Before(full) {
					return false
				}
				full = now.Add(95*time.Millisecond + time.Duration(uneven.Int64N(int64(10*time.Millisecond))))
				return true
			}}
			l.ask(t, length, example)
			accepted, refused = accepted+l.accepted, refused+l.refused
		})
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < runs*450 || refused > accepted/40 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// What resets are rounded down to is 0 for as long as they are rounded by, before a window
// ends. That is no constant, nor is the window over.
func TestLastSecondOfAWindowIsNoConstant(t *testing.T) {
	sideBySide(t)
	for phase := 100 * time.Millisecond; phase < 5*time.Second; phase += 350 * time.Millisecond {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Phase: phase, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
			Dialect: heedtest.XRateLimit, Rounding: heedtest.RoundDown, RetryAfter: heedtest.RetryAfter{Mode: heedtest.RetryAfterNone},
			Latency: heedtest.RoundTrip(time.Millisecond),
		}, 16, 4, nil}.play(t)
		t.Logf("turns after %v: %d accepted, %d refused", phase, tally.Accepted, tally.Refused)
		if tally.Accepted < 200 || tally.Refused > 1 {
			t.Errorf("turns after %v: %d accepted of 200 at least, %d refused", phase, tally.Accepted, tally.Refused)
		}
	}
}

// The windows that a service documents are not those of everybody who announces limits as it
// does: what the origin says itself counts for more.
func TestDocumentedWindowsGiveWayToWhatAnOriginSays(t *testing.T) {
	manyRequests(t)
	for rate, least := range map[int]int{10: 235, 50: 1000} { // of 250 and 1050
		fare(t, 20*time.Second, least, 0, func() func(now time.Time, h http.Header) bool {
			b := tokenBucket{rate: float64(rate), burst: 50}
			return func(now time.Time, h http.Header) bool {
				ok := b.take(now)
				full := now.Add(time.Duration((b.burst - b.left) / b.rate * float64(time.Second)))
				h.Set("Anthropic-Ratelimit-Requests-Limit", "50")
				h.Set("Anthropic-Ratelimit-Requests-Remaining", strconv.Itoa(int(b.left)))
				h.Set("Anthropic-Ratelimit-Requests-Reset", full.UTC().Format(time.RFC3339))
				return ok
			}
		})
	}
}

// Resets are plain numbers of thousandths of a second at some origins, MuleSoft's and Zuul's,
// and of seconds at nearly all: what they are shows by how fast they pass.
func TestResetsInThousandthsAreToldFromSeconds(t *testing.T) {
	manyRequests(t)
	for _, length := range []time.Duration{time.Second, 5 * time.Second, 7 * time.Second, 10 * time.Second} {
		quota := int(length / (100 * time.Millisecond))
		fare(t, 2*length, quota*9/5, 1, func() func(now time.Time, h http.Header) bool {
			w := &window{quota: quota, length: length}
			return func(now time.Time, h http.Header) bool {
				ok := w.take(now)
				usualFields(h, quota, max(quota-w.used, 0), w.end.Sub(now).Milliseconds())
				return ok
			}
		})
	}
	for _, ends := range []time.Duration{20 * time.Minute, 47*time.Minute + 54*time.Second} {
		for _, way := range []time.Duration{0, 250 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				const quota = 100
				w := &window{quota: quota, length: time.Hour, end: time.Now().Add(ends)}
				l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
					ok := w.take(now)
					usualFields(h, quota, max(quota-w.used, 0), int64(math.Ceil(w.end.Sub(now).Seconds())))
					return ok
				}}
				l.ask(t, ends+2*time.Hour, "http://origin.test/")
				if l.accepted < 3*quota-2 || l.refused > 0 {
					t.Errorf("%v before the hour: %d accepted of %d, %d refused", ends, l.accepted, 3*quota, l.refused)
				}
			})
		}
	}
}

// Two windows of odd lengths that are told of in turn, as by two nodes of one origin, differ by as
// many seconds as thousandths may have passed while answers were on their way. That
// does not make them thousandths.
func TestWindowsToldInTurnAreNotTakenForThousandths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		says := func(pm *heed.Permit, left, reset string) {
			pm.Observe(answer(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", left, "X-RateLimit-Reset", reset))
			pm.Release()
		}
		scout := acquire(t, r, request(example))
		time.Sleep(50 * time.Millisecond)
		says(scout, "90", "3500")
		first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
		time.Sleep(50 * time.Millisecond)
		says(first, "90", "3450")
		says(second, "0", "3450")
		w := start(t.Context(), r, request(example))
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.at < 3450*time.Second {
			t.Errorf("it went %v after an answer that said that nothing is left for 3450 s", w.at)
		}
	})
}

// What is left of a window that is met shortly before its end is used up by then: that a
// few answers looked like those of a bucket holds nothing back for good.
func TestWindowsMetNearTheirEndAreUsedUp(t *testing.T) {
	manyRequests(t)
	for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.IETF07, heedtest.IETF06} {
		for ends := 6 * time.Second; ends < 30*time.Second; ends += 4 * time.Second {
			load{heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Phase: ends, Policies: []heedtest.Policy{{Quota: 100, Window: time.Minute}},
				Dialect: dialect, Latency: heedtest.RoundTrip(time.Millisecond),
			}, 16, 1, func(o *heedtest.Origin, _ *heed.Registry) {
				time.Sleep(ends)
				if tally := o.Tally(); tally.Accepted < 95 || tally.Refused > 0 {
					t.Errorf("%s, %v before its end: %d accepted of 100, %d refused", dialect, ends, tally.Accepted, tally.Refused)
				}
			}}.play(t)
		}
	}
}

// Units come back one by one, and the reset named is that of a window that begins anew with
// the first request after it, in whole seconds, rounded up. Whoever uses the last unit a
// moment too early, by as much as answers from near by differ, is held for a second
// longer. NestJS counts so.
func TestResetsOfWindowsBesideASlidingOneAreMetToTheMoment(t *testing.T) {
	manyRequests(t)
	const phases, length = 20, 100 * time.Second
	accepted := 0
	for phase := range phases {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(37*time.Millisecond + time.Duration(phase)*250*time.Millisecond)
			a, b := windowBesideLog(15, time.Second, "-Short"), windowBesideLog(50, 5*time.Second, "-Long")
			l := &limiter{uneven: rand.New(rand.NewPCG(uint64(phase), 1))}
			l.accepts = func(_ *http.Request, now time.Time, h http.Header) bool { return a(now, h) && b(now, h) }
			l.ask(t, length, "http://origin.test/")
			if accepted += l.accepted; l.refused > 0 {
				t.Errorf("phase %d: %d refused", phase, l.refused)
			}
		})
	}
	if mean := accepted / phases; mean < 935 {
		t.Errorf("%d accepted on average, want 935 of 1000", mean)
	}
}

// windowBesideLog counts as NestJS does.
func windowBesideLog(quota int, length time.Duration, name string) func(now time.Time, h http.Header) bool {
	var log []time.Time
	var end time.Time
	return func(now time.Time, h http.Header) bool {
		for len(log) > 0 && now.Sub(log[0]) >= length {
			log = log[1:]
		}
		if !now.Before(end) {
			end = now.Add(length)
		}
		if len(log) >= quota {
			h.Set("Retry-After"+name, strconv.Itoa(int(math.Ceil(log[0].Add(length).Sub(now).Seconds()))))
			return false
		}
		log = append(log, now)
		h.Set("X-RateLimit-Limit"+name, strconv.Itoa(quota))
		h.Set("X-RateLimit-Remaining"+name, strconv.Itoa(quota-len(log)))
		h.Set("X-RateLimit-Reset"+name, strconv.Itoa(int(math.Ceil(end.Sub(now).Seconds()))))
		return true
	}
}

// An exact instant on the origin's clock is known here as late by the time an answer takes to
// come back, and met by as much sooner as a request takes to get there.
func TestWindowsThatEndAtAnInstantAreUsedUpOverLongRoundTrips(t *testing.T) {
	manyRequests(t)
	const windows, quota = 20, 100
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow} {
		tally, _ := load{heedtest.Config{
			Algorithm: algorithm, Dialect: heedtest.XRateLimitEpochMillis, ClockSkew: 7300 * time.Millisecond,
			Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 64, windows, nil}.play(t)
		t.Logf("%s: %d accepted of %d, %d refused", algorithm, tally.Accepted, windows*quota, tally.Refused)
		if tally.Accepted < windows*quota*97/100 || tally.Refused > 0 {
			t.Errorf("%s: %d accepted of %d, %d refused", algorithm, tally.Accepted, windows*quota, tally.Refused)
		}
	}
}

// An origin whose instants are always the present one tells nothing of when there is more, and
// nothing goes sooner for them: one or a few requests in a window are refused, not one after the other.
func TestInstantsThatAreAlwaysThePresentOneCostFewRefusals(t *testing.T) {
	const windows, quota = 20, 100
	for _, trip := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond} {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.XRateLimitEpochMillis, Rounding: heedtest.RoundZero, ClockSkew: 333 * time.Millisecond,
			Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(trip),
		}, 64, windows, nil}.play(t)
		t.Logf("%v: %d accepted of %d, %d refused", trip, tally.Accepted, windows*quota, tally.Refused)
		if tally.Accepted < windows*quota || tally.Refused > 5*windows {
			t.Errorf("%v: %d accepted of %d, %d refused", trip, tally.Accepted, windows*quota, tally.Refused)
		}
	}
}

// So it is where they are told only when little is left: nobody says then how long a window is.
func TestInstantsThatAreThePresentSecondAndToldLateCostFewRefusals(t *testing.T) {
	sideBySide(t)
	const windows, quota = 20, 100
	for _, test := range []struct {
		algorithm heedtest.Algorithm
		trip      time.Duration
	}{
		{heedtest.FixedWindow, 200 * time.Millisecond},
		{heedtest.FixedWindowByClock, 200 * time.Millisecond},
		{heedtest.FixedWindowByClock, 500 * time.Millisecond},
		{heedtest.SlidingWindow, 500 * time.Millisecond},
	} {
		tally, _ := load{heedtest.Config{
			Algorithm: test.algorithm, Dialect: heedtest.XRateLimitEpoch, Rounding: heedtest.RoundZero, ClockSkew: 333 * time.Millisecond, Below: 0.2,
			Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(test.trip),
		}, 16, windows, nil}.play(t)
		t.Logf("%s, %v: %d accepted of %d, %d refused", test.algorithm, test.trip, tally.Accepted, windows*quota, tally.Refused)
		if tally.Accepted < windows*quota*16/20 || tally.Refused > 3*windows {
			t.Errorf("%s, %v: %d accepted of %d, %d refused", test.algorithm, test.trip, tally.Accepted, windows*quota, tally.Refused)
		}
	}
}

// A window begins with its first request, and the reset that is named is as long as it, however little is left of it. It is
// planned for as long as it is, and the last unit goes when it must have turned, for nothing would go for a whole window
// after an answer that says that nothing is left.
func TestWindowsWhoseResetIsAlwaysAWholeOneAreUsedUp(t *testing.T) {
	manyRequests(t)
	const windows, quota = 20, 100
	for _, clients := range []int{1, 2, 16} {
		synctest.Test(t, func(t *testing.T) {
			w := &window{quota: quota, length: time.Minute}
			l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				ok := w.take(now)
				h.Set("RateLimit-Policy", "100;w=60")
				h.Set("RateLimit-Limit", "100")
				h.Set("RateLimit-Remaining", strconv.Itoa(max(w.quota-w.used, 0)))
				h.Set("RateLimit-Reset", "60")
				return ok
			}}
			l.askedBy(t, clients, windows*w.length)
			t.Logf("%d clients: %d accepted of %d, %d refused", clients, l.accepted, windows*quota, l.refused)
			if l.accepted < windows*quota*95/100 || l.refused > 0 {
				t.Errorf("%d clients: %d accepted of %d, %d refused", clients, l.accepted, windows*quota, l.refused)
			}
		})
	}
}

// How long heed waits for a server says nothing of its windows: that nothing is back by then of a longer one does not show that
// it slides, and what Snapshot says of its reset is what the server said.
func TestWindowsLongerThanTheLongestWaitAreNoneThatSlide(t *testing.T) {
	manyRequests(t)
	for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
		synctest.Test(t, func(t *testing.T) {
			const day, hourly = 24 * time.Hour, 100
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: 2 * 24 * hourly, Window: day}}, Dialect: dialect,
				Latency: heedtest.RoundTrip(100 * time.Millisecond),
			})
			tr := quiet(t, o, heed.Limits{})
			for hour := range 48 {
				began := time.Now()
				var job sync.WaitGroup
				for range hourly {
					job.Go(func() {
						if resp, err := tr.RoundTrip(request(example)); err == nil {
							resp.Body.Close()
						}
					})
				}
				job.Wait()
				took, reset := time.Since(began), tr.Registry.Snapshot()[0].Partitions[0].Policies[0].Reset
				ends := began.Truncate(day).Add(day)
				if took > time.Second || ends.Sub(time.Now().Add(reset)).Abs() > time.Second {
					t.Errorf("%s, hour %d: it took %v, half of the quota is used a day; the window is said to end in %v, and does in %v", dialect, hour, took, reset, time.Until(ends))
				}
				time.Sleep(time.Until(began.Add(time.Hour)))
			}
			if refused := o.Tally().Refused; refused > 0 {
				t.Errorf("%s: %d refused", dialect, refused)
			}
		})
	}
}

// Nor is an end believed that is further away than the window is said to be long: what is left is not spread over weeks.
func TestResetsFarBeyondTheWindowThatIsStatedAreNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return answer(200, "RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=50;t=900000`), nil
		}), heed.Limits{})
		began := time.Now()
		for range 200 {
			if resp, err := tr.RoundTrip(request(example)); err == nil {
				resp.Body.Close()
			}
		}
		if took := time.Since(began); took > 6*time.Hour {
			t.Errorf("200 requests took %v, with 50 left in each answer", took)
		}
	})
}
