package heed_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// fare asks a limiter near by for a while from several phases of the clock on, and wants
// so many accepted and no more than so many refused each time.
func fare(t *testing.T, length time.Duration, least, most int, made func() func(now time.Time, h http.Header) bool) {
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
		})
	}
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

// What comes back comes by the second of a clock, many units at a time, and no reset is
// named that would show it. Spring Cloud Gateway counts so.
func TestBucketsThatAreFilledUpEverySecondAreUsedUp(t *testing.T) {
	for _, lasts := range []time.Duration{20 * time.Second, 100 * time.Second} {
		least := 50 + 10*int(lasts/time.Second)
		fare(t, lasts, least-least/12, 1, func() func(now time.Time, h http.Header) bool {
			left, at := int64(50), time.Now().Unix()
			h, rate := http.Header{}, int64(10)
			h.Set("X-RateLimit-Burst-Capacity", strconv.FormatInt(left, 10))
			h.Set("X-RateLimit-Replenish-Rate", strconv.FormatInt(rate, 10))
			return func(now time.Time, fields http.Header) bool {
				maps.Copy(fields, h)
				left, at = min(left+(now.Unix()-at)*rate, 50), now.Unix()
				ok := left > 0
				if ok {
					left--
				}
				fields.Set("X-RateLimit-Remaining", strconv.FormatInt(left, 10))
				return ok
			}
		})
	}
}

// As many come back in a second as the bucket holds: Spring Cloud Gateway's steady rate. It
// says so, and it is no other name for the quota.
func TestBucketsThatAreFilledUpAtOnceEverySecondAreUsedUp(t *testing.T) {
	fare(t, 20*time.Second, 195, 0, wholeEverySecond("X-RateLimit-Burst-Capacity", "X-RateLimit-Replenish-Rate")) // of 205 or so
}

// wholeEverySecond is a limit of 10 that are all back with each second of the clock, and
// named in these fields beside what is left.
func wholeEverySecond(fields ...string) func() func(now time.Time, h http.Header) bool {
	return func() func(now time.Time, h http.Header) bool {
		const quota = 10
		left, at := quota, time.Now().Unix()
		return func(now time.Time, h http.Header) bool {
			if now.Unix() > at {
				left, at = quota, now.Unix()
			}
			ok := left > 0
			if ok {
				left--
			}
			for _, field := range fields {
				h.Set(field, strconv.Itoa(quota))
			}
			h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
			return ok
		}
	}
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

// A documented bucket whose first reset, after many answers, is the present instant and says
// nothing: what was known of it by the documented window is known no more, and nothing is
// reckoned with a window of no length.
func TestDocumentedBucketGoesOnWhereAResetSaysNothing(t *testing.T) {
	fare(t, 10*time.Minute, 530, 4, func() func(now time.Time, h http.Header) bool { // of 550
		const perMinute = 50
		b, answers := tokenBucket{rate: perMinute / 60., burst: perMinute}, 0
		return func(now time.Time, h http.Header) bool {
			ok := b.take(now)
			h.Set("Anthropic-Ratelimit-Requests-Limit", strconv.Itoa(perMinute))
			h.Set("Anthropic-Ratelimit-Requests-Remaining", strconv.Itoa(int(b.left)))
			if answers++; answers == 200 {
				h.Set("Anthropic-Ratelimit-Requests-Reset", now.UTC().Format(time.RFC3339))
			}
			return ok
		}
	})
}

// What is left of a window that is met shortly before its end is used up by then: that a
// few answers looked like those of a bucket holds nothing back for good.
func TestWindowsMetNearTheirEndAreUsedUp(t *testing.T) {
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

// A bucket so small that its resets are all rounded up to the same second, and more is left
// than a window of a second could have. throttled announces one so.
func TestBucketsThatAreFullWithinASecondAreUsedUp(t *testing.T) {
	fare(t, 20*time.Second, 175, 0, func() func(now time.Time, h http.Header) bool { // of 205
		const quota, unit = 6, 100 * time.Millisecond
		var full time.Time
		return func(now time.Time, h http.Header) bool {
			if now.After(full) {
				full = now
			}
			next := full.Add(unit)
			ok := next.Sub(now) <= quota*unit
			if ok {
				full = next
			} else {
				h.Set("Retry-After", strconv.Itoa(int(math.Ceil((next.Sub(now) - quota*unit).Seconds()))))
			}
			usualFields(h, quota, int((quota*unit-full.Sub(now))/unit), int64(math.Ceil(full.Sub(now).Seconds())))
			return ok
		}
	})
}

// A burst out of a bucket whose answers overtake each other is no window that has
// turned, though the instants that they name differ by a second.
func TestBucketsWhoseAnswersOvertakeEachOtherAreUsedUp(t *testing.T) {
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
		Dialect: heedtest.XRateLimitEpoch, Latency: heedtest.RoundTrip(500 * time.Millisecond),
	}, 64, 40, nil}.play(t)
	if tally.Accepted < 1900 || tally.Refused > 0 {
		t.Errorf("%d accepted of 2050, %d refused", tally.Accepted, tally.Refused)
	}
}

// Units come back one by one, and the reset named is that of a window that begins anew with
// the first request after it, in whole seconds, rounded up. Whoever uses the last unit a
// moment too early, by as much as answers from near by differ, is held for a second
// longer. NestJS counts so.
func TestResetsOfWindowsBesideASlidingOneAreMetToTheMoment(t *testing.T) {
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

// Windows turn by the clock, and how long they are is said, but never when they end: that shows
// only where far more is left all at once.
func TestWindowsByTheClockWhoseEndIsNotNamedAreUsedUp(t *testing.T) {
	const windows = 20
	for _, policy := range []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}, {Quota: 200, Window: 20 * time.Second}} {
		for _, latency := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond} {
			for phase := range time.Duration(min(4, 200/policy.Quota)) {
				tally, _ := load{heedtest.Config{
					Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{policy},
					Phase: (1 + phase) * policy.Window / 5, Latency: heedtest.RoundTrip(latency),
				}, 64, windows, nil}.play(t)
				t.Logf("%d per %v, %v, phase %d: %d accepted, %d refused", policy.Quota, policy.Window, latency, phase, tally.Accepted, tally.Refused)
				if tally.Accepted < windows*policy.Quota*97/100 || tally.Refused > 0 {
					t.Errorf("%d per %v, %v: %d accepted of %d, %d refused", policy.Quota, policy.Window, latency, tally.Accepted, windows*policy.Quota, tally.Refused)
				}
			}
		}
	}
}

// Where they are first met shortly before they turn, hardly anything is back by then that could show it:
// that costs a refusal at the most, and as long as that names, but not the window after.
func TestWindowsMetShortlyBeforeAnEndThatIsNotNamedAreUsedUp(t *testing.T) {
	const windows = 4
	for _, policy := range []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}, {Quota: 100, Window: 10 * time.Second}, {Quota: 200, Window: time.Minute}} {
		for _, latency := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
			for _, ends := range []time.Duration{3 * latency / 4, 7 * latency / 4, 5 * latency, 300 * time.Millisecond, 600 * time.Millisecond} {
				tally, _ := load{heedtest.Config{
					Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{policy},
					Phase: ends, Latency: heedtest.RoundTrip(latency),
				}, 16, windows, nil}.play(t)
				t.Logf("%d per %v, %v, ends after %v: %d accepted, %d refused", policy.Quota, policy.Window, latency, ends, tally.Accepted, tally.Refused)
				if tally.Accepted < windows*policy.Quota*95/100 || tally.Refused > 1 || tally.Early > 0 {
					t.Errorf("%d per %v, %v, ends after %v: %d accepted of %d, %d refused, %d early", policy.Quota, policy.Window, latency, ends,
						tally.Accepted, windows*policy.Quota, tally.Refused, tally.Early)
				}
			}
		}
	}
}

// A request that went too soon for such a window waits for as long as its refusal names.
func TestRefusalNamesWhenAWindowTurnsWhoseEndIsNotNamed(t *testing.T) {
	const window, ends = time.Minute, 300 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{{Quota: 500, Window: window}},
			Phase: ends, Latency: heedtest.RoundTrip(time.Millisecond), Record: true,
		})
		tr := quiet(t, o, heed.Limits{})
		get := func() bool {
			resp, err := tr.Client().Get(site)
			if err != nil {
				return false // the registry was closed
			}
			resp.Body.Close()
			return true
		}
		get() // all that shows of the window that is met first
		time.Sleep(ends)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for get() {
				}
			})
		}
		time.Sleep(3 * window)
		events, tally := o.Events(), o.Tally()
		tr.Registry.Close()
		wg.Wait()
		if tally.Refused != 1 || tally.Early > 0 {
			t.Fatalf("%d refused, %d early", tally.Refused, tally.Early)
		}
		refused := slices.IndexFunc(events, func(e heedtest.Event) bool { return e.Status == http.StatusTooManyRequests })
		waited := events[refused+1].Start - events[refused].Delivered
		t.Logf("the next waited for %v", waited)
		if waited < time.Second || waited > 1200*time.Millisecond {
			t.Errorf("the next waited for %v, where a second was named", waited)
		}
	})
}

// Nor is it where only the last fifth of a window is told of: the silent answers before it are of that window,
// too.
func TestWindowsWhoseEndIsNotNamedAreUsedUpWhereTheirBeginningIsSilent(t *testing.T) {
	const windows, quota, phases = 20, 50, 16
	var accepted, refused int64
	for phase := range time.Duration(phases) { // in some, as chance will have it, less is used up
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Rounding: heedtest.RoundZero, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
			Below: 0.2, Phase: phase * 330 * time.Millisecond, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		}, 64, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted of %d, %d refused", accepted, phases*windows*quota, refused)
	if accepted < phases*windows*quota*82/100 || refused > 40*phases {
		t.Errorf("%d accepted of %d, %d refused", accepted, phases*windows*quota, refused)
	}
}

// A window that was only inferred may be longer than it seems: what is used of it comes back no sooner.
// Where it is told of only when little is left of it, from one end to the next shows how long it is.
func TestInferredWindowsFarAwayAreNotMetSooner(t *testing.T) {
	const windows, quota, seeds = 20, 50, 4
	var accepted, refused int64
	for seed := range time.Duration(seeds) {
		tally, _ := load{heedtest.Config{
			Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.XRateLimitEpochMillis, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
			Below: 0.2, Phase: seed * 330 * time.Millisecond, ClockSkew: seed*2270*time.Millisecond + 333*time.Millisecond, Latency: heedtest.RoundTrip(500 * time.Millisecond),
		}, 64, windows, nil}.play(t)
		accepted, refused = accepted+tally.Accepted, refused+tally.Refused
	}
	t.Logf("%d accepted of %d, %d refused", accepted, seeds*windows*quota, refused)
	if accepted < seeds*windows*quota*95/100 || refused > 180 { // 101 to 123 were, most of them at first, and 238 to 461 where it stays too short
		t.Errorf("%d accepted of %d, %d refused", accepted, seeds*windows*quota, refused)
	}
}

// Where a reset later than a window is named and not what is left, what went a window ago is back: who has
// waited for it goes no later than who comes by then.
func TestWhoWaitsBehindAResetAloneGoesNoLaterThanWhoComesThen(t *testing.T) {
	goes := func(comes time.Duration) (at, check time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			meet(t, r, example)
			begun := time.Now()
			for range 2 {
				pm := acquire(t, r, request(example))
				pm.Observe(answer(200, "RateLimit-Policy", `"p";q=2;w=1`, "RateLimit", `"p";t=3`))
				pm.Release()
			}
			check = r.Check(request(example)).Wait
			time.Sleep(comes)
			acquire(t, r, request(example)).Release()
			at = time.Since(begun)
		})
		return at, check
	}
	then, _ := goes(1100 * time.Millisecond)
	if waited, check := goes(0); waited != then || check != time.Second {
		t.Errorf("goes at %v where it waits, at %v where it comes later; Check says %v, want 1s", waited, then, check)
	}
}

// What was on its way when the first word of a policy came may not have been counted in it. That less is left
// then is no sign of others, and all of the windows to come is used.
func TestWindowsThatAreToldOfLateAreUsedUp(t *testing.T) {
	const windows, quota, phases = 20, 50, 16
	for _, c := range []struct {
		name    string
		latency heedtest.Latency
		least   int64
	}{ // there is more than a quota in twenty lengths of a window, for they begin and end within one
		{"5 ms", heedtest.RoundTrip(5 * time.Millisecond), 16080},
		{"500 ms", heedtest.RoundTrip(500 * time.Millisecond), 15550},
		{"drawn", heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, 2), 15950},
	} {
		var accepted int64
		for phase := range time.Duration(phases) {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
				Below: 0.2, Phase: phase * 312 * time.Millisecond, Latency: c.latency,
			}, 16, windows, nil}.play(t)
			accepted += tally.Accepted
		}
		t.Logf("%s: %d accepted of %d", c.name, accepted, phases*windows*quota)
		if accepted < c.least {
			t.Errorf("%s: %d accepted of %d, want %d", c.name, accepted, phases*windows*quota, c.least)
		}
	}
}

// Where only answers that say that little is left announce a policy, one that says nothing says that more is left. So
// what a bucket holds at first is used, too.
func TestBucketsThatAreToldOfLateAreUsedUp(t *testing.T) {
	const windows, quota, runs = 20, 50, 8
	for name, latency := range map[string]heedtest.Latency{
		"5 ms":  heedtest.RoundTrip(5 * time.Millisecond),
		"drawn": heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, 2),
	} {
		var accepted, refused int64
		for range runs { // which of the answers comes first is for chance to decide
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Below: 0.2, Latency: latency,
			}, 16, windows, nil}.play(t)
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		}
		t.Logf("%s: %d accepted of %d, %d refused", name, accepted, runs*(windows+1)*quota, refused)
		if accepted < runs*(windows+1)*quota*966/1000 || refused > 3*runs { // 0.949 to 0.962 were, where it said nothing
			t.Errorf("%s: %d accepted of %d, %d refused", name, accepted, runs*(windows+1)*quota, refused)
		}
	}
}

// Another route may be silent whatever is left, and so may one that has not always spoken, or where others used what
// went before it did.
func TestSilenceTellsOnlyWhereAnAnswerWouldHaveSpoken(t *testing.T) {
	const policy = `"p";q=50;w=60`
	for _, c := range []struct {
		name   string
		before int    // answers before the first that says what is left
		said   []int  // from there on; -1: nothing
		path   string // of the request whose answer is silent then …
		status int    // … and this one …
		left   int64  // … and what is left
	}{
		{"of the route that spoke", 40, []int{9, 8, 7, 6, 5}, "/a", 200, 10},
		{"of one from nearer by", 40, []int{9, 8, 7, 6, 5}, "/a", 304, 4},
		{"of another route", 40, []int{9, 8, 7, 6, 5}, "/b", 200, 4},
		{"of one that was silent before", 40, []int{9, 8, -1, 6, 5}, "/a", 200, 4},
		{"where others used it", 20, []int{9, 8, 7, 6, 5}, "/a", 200, 4},
		{"of one that also speaks where much is left", 10, []int{39, 38, 37, 36, 35}, "/a", 200, 34},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: unsmoothed})
			defer r.Close()
			send := func(path string, left, status int) {
				pm := acquire(t, r, request(example+path))
				time.Sleep(time.Millisecond)
				var fields []string
				if left >= 0 {
					fields = []string{"RateLimit-Policy", policy, "RateLimit", `"p";r=` + strconv.Itoa(left) + ";t=60"}
				}
				pm.Observe(answer(status, fields...))
				pm.Release()
			}
			for range c.before {
				send("/a", -1, 200)
			}
			for _, left := range c.said {
				send("/a", left, 200)
			}
			send(c.path, -1, c.status)
			if got := r.Check(request(example + "/a")).Remaining; got != c.left {
				t.Errorf("silence %s: %d are left, want %d", c.name, got, c.left)
			}
		})
	}
}

// A window begins with its first request, and the reset that is named is as long as it, however little is left of it. It is
// planned for as long as it is, and the last unit goes when it must have turned, for nothing would go for a whole window
// after an answer that says that nothing is left.
func TestWindowsWhoseResetIsAlwaysAWholeOneAreUsedUp(t *testing.T) {
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
			tr := quiet(t, l, heed.Limits{})
			end := time.Now().Add(windows * w.length)
			var busy sync.WaitGroup
			for range clients {
				busy.Go(func() {
					for time.Now().Before(end) {
						resp, err := tr.Client().Get(example)
						if err != nil {
							return
						}
						resp.Body.Close()
					}
				})
			}
			time.Sleep(time.Until(end))
			tr.Registry.Close()
			busy.Wait()
			t.Logf("%d clients: %d accepted of %d, %d refused", clients, l.accepted, windows*quota, l.refused)
			if l.accepted < windows*quota*95/100 || l.refused > 0 {
				t.Errorf("%d clients: %d accepted of %d, %d refused", clients, l.accepted, windows*quota, l.refused)
			}
		})
	}
}
