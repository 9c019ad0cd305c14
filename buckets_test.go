package heed_test

import (
	"maps"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// What comes back comes by the second of a clock, many units at a time, and no reset is
// named that would show it. Spring Cloud Gateway counts so.
func TestBucketsThatAreFilledUpEverySecondAreUsedUp(t *testing.T) {
	manyRequests(t)
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
	sideBySide(t)
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
		Dialect: heedtest.XRateLimitEpoch, Latency: heedtest.RoundTrip(500 * time.Millisecond),
	}, 64, 40, nil}.play(t)
	if tally.Accepted < 1900 || tally.Refused > 0 {
		t.Errorf("%d accepted of 2050, %d refused", tally.Accepted, tally.Refused)
	}
}

// Where nothing is left after every request, however long the wait before it was, no more is waited than is named.
func TestSpacingThatIsAnnouncedIsNotWaitedForLongerThanNamed(t *testing.T) {
	const windows, quota = 3, 300
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.LeakyBucket, Policies: []heedtest.Policy{{Quota: quota, Window: time.Minute}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
	}, 16, windows, nil}.play(t)
	if tally.Accepted < 160 || tally.Refused > 0 || tally.Early > 0 { // of 180, as a fifth of a second is announced as one
		t.Errorf("%d accepted, %d refused, %d early", tally.Accepted, tally.Refused, tally.Early)
	}
}
