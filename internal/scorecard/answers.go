package scorecard

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// says returns what the origin's answer number turn, given at an instant, asks
// for: to start nothing for a time after its delivery, or until an instant.
func (o *oracle) says(meters []meter, now, turn int64) (after, until int64) {
	wait := announced(meters, now)
	if wait == 0 || !o.speaks(turn) {
		return 0, 0
	}
	c := &o.config
	switch c.Dialect {
	case heedtest.XRateLimitEpoch, heedtest.XRateLimitEpochMillis, heedtest.GitHub:
		grain := time.Second
		if c.Dialect == heedtest.XRateLimitEpochMillis {
			grain = time.Millisecond
		}
		clock := o.zero + int64(c.ClockSkew)
		named := rounded(clock+now+wait, grain, c.Rounding)
		if c.Rounding == heedtest.RoundZero {
			named = rounded(clock+now, grain, heedtest.RoundDown)
		}
		return 0, named - clock
	}
	return rounded(wait, time.Second, c.Rounding), 0
}

// speaks reports whether answer number turn is one that may announce anything.
func (o *oracle) speaks(turn int64) bool {
	c := &o.config
	switch {
	case c.Dialect == heedtest.Silent, c.Dialect == heedtest.RetryAfterOnly, c.OnRefusalsOnly:
		return false
	}
	return c.Every == 0 || turn%int64(c.Every) == 0
}

// announced returns the time to the next unit, where nothing is left.
func announced(meters []meter, now int64) (wait int64) {
	for i := range meters {
		if m := &meters[i]; m.algorithm != heedtest.Concurrency {
			wait = max(wait, m.wait(now))
		}
	}
	return wait
}

// tells reports whether the origin's answer number turn, given at an instant,
// announces anything.
func (o *oracle) tells(meters []meter, now, turn int64) bool {
	if !o.speaks(turn) {
		return false
	}
	below := o.config.Below
	return below == 0 || slices.ContainsFunc(meters, func(m meter) bool { return m.left(now) < below*float64(m.quota) })
}

func rounded(t int64, grain time.Duration, r heedtest.Rounding) int64 {
	up := ceilTo(t, grain)
	switch {
	case r == heedtest.RoundZero:
		return 0
	case up == t, r == heedtest.Exact:
		return t
	case r == heedtest.RoundDown, r == heedtest.RoundNearest && up-t > t-(up-int64(grain)):
		return up - int64(grain)
	}
	return up
}
