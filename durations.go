package heed

import (
	"math"
	"time"
)

// ages is what stands for every duration that is longer: a wait that long is
// reckoned again before it is over.
const ages = 100 * 365 * 24 * time.Hour

// nanoseconds is so many of them, or ages, rounded up: a nanosecond early is
// early.
func nanoseconds(n float64) time.Duration {
	if !(n < float64(ages)) {
		return ages
	}
	return time.Duration(math.Ceil(n))
}

// times is n times d, or ages.
func times(n int64, d time.Duration) time.Duration {
	if n > 0 && d > ages/time.Duration(n) {
		return ages
	}
	return time.Duration(n) * d
}

// inAll is a sum of waits and another one: many who wait at once make a hundred years of it in weeks.
func inAll(sum, d time.Duration) time.Duration {
	if sum > math.MaxInt64-d {
		return math.MaxInt64
	}
	return sum + d
}

// latest is the later of two instants, of which the zero Time is the first.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// soonest is the earlier of two instants, of which the zero Time is none: it is the other one.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
