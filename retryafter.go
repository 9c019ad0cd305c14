package heed

import (
	"math"
	"strings"
	"time"
)

// The fields that say when to come back, as net/http keys them: that of
// RFC 9110, section 10.2.3, and its siblings.
const (
	fieldRetryAfter     = "Retry-After"
	fieldRetryAfterMs   = "Retry-After-Ms"      // milliseconds
	fieldMsRetryAfterMs = "X-Ms-Retry-After-Ms" // milliseconds
	fieldRetryIn        = "X-Retry-In"          // a Go duration, at Traefik
	fieldShouldRetry    = "X-Should-Retry"      // "false": do not come back
)

// retryAfter returns when the server wants to see us again, from now, and
// false where it does not say so. An instant that is past is 0.
//
// The siblings say what Retry-After says, only finer, and come first. ref is
// the server's clock.
func retryAfter(h map[string][]string, ref time.Time) (time.Duration, bool) {
	for _, f := range [...]struct {
		name string
		form func(string, time.Time) (time.Duration, bool)
	}{
		{fieldRetryAfterMs, parseMilliseconds},
		{fieldMsRetryAfterMs, parseMilliseconds},
		{fieldRetryIn, parseGoDuration},
	} {
		if lines := h[f.name]; lines != nil {
			if d, ok := longestTime(lines, ref, f.form); ok && d > 0 {
				return d, true
			}
		}
	}
	if lines := h[fieldRetryAfter]; lines != nil {
		return longestTime(lines, ref, parseRetryAfter)
	}
	return 0, false
}

// maxValues bounds the values of one line that are looked at, and maxValueLen
// their length.
const (
	maxValues   = 16
	maxValueLen = 256
)

// longestTime returns the longest time of those in a field, 0 where all of them are
// past. Retry-After is no list, but proxies add lines to those of an application,
// and join them.
func longestTime(lines []string, ref time.Time, parse func(string, time.Time) (time.Duration, bool)) (d time.Duration, ok bool) {
	add := func(s string) bool {
		if len(s) > maxValueLen {
			return false
		}
		v, valid := parse(trimOWS(s), ref)
		if valid {
			d, ok = max(d, v), true
		}
		return valid
	}
	for _, line := range bounded(lines) {
		if add(line) {
			continue
		}
		// The dates of RFC 9110 have a comma of their own.
		for n := 0; n < maxValues && line != ""; n++ {
			value, rest, _ := strings.Cut(line, ",")
			if !add(value) {
				if second, after, _ := strings.Cut(rest, ","); add(line[:len(value)+min(1+len(second), len(line)-len(value))]) {
					rest = after
				}
			}
			line = rest
		}
	}
	return d, ok
}

// maxDelay is the greatest number of seconds that is taken for a delay. What is
// above is a number gone wrong.
const maxDelay = 1e12

// parseRetryAfter reads
//
//	Retry-After = HTTP-date / delay-seconds
//
// (RFC 9110, section 10.2.3), where the delay may have a fraction and the date
// be any that parseTimeNear knows.
func parseRetryAfter(s string, ref time.Time) (time.Duration, bool) {
	if d, ok := parseDelay(s, time.Second); ok {
		return d, true
	}
	t, ok := parseTimeNear(s, ref)
	if !ok {
		return 0, false
	}
	// Date says the second the answer was made in, not the instant: counted
	// from its beginning the wait comes out too long by what had passed of it,
	// never too short.
	return t.Sub(ref), true
}

func parseMilliseconds(s string, _ time.Time) (time.Duration, bool) {
	return parseDelay(s, time.Millisecond)
}

// parseDelay reads a number of units, rounded up to the nanosecond.
func parseDelay(s string, unit time.Duration) (time.Duration, bool) {
	n, rest, ok := scanDecimal(s)
	if !ok || rest != "" || n.neg || n.whole > maxDelay*int64(time.Second/unit) {
		return 0, false
	}
	part := n.nanos * int64(unit/time.Millisecond) // the fraction, in 1e-12 s
	ns := (part + 999) / 1000
	if n.whole > (math.MaxInt64-ns)/int64(unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n.whole)*unit + time.Duration(ns), true
}

func parseGoDuration(s string, _ time.Time) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}
