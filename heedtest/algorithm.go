package heedtest

import (
	"math"
	"math/bits"
)

// never is the wait for what no amount of waiting brings.
const never = math.MaxInt64

// A limiter is one policy at work for one key. Instants are nanoseconds since
// the Unix epoch, and never decrease from one take to the next; lengths of time
// are nanoseconds. Judging (wait, look, idle) changes nothing, so it may be
// asked about any instant from the last take on.
type limiter interface {
	// wait returns how long after now a request of n units is first accepted if
	// nothing else comes: 0 for now, or never.
	wait(now, n int64) int64

	// take charges n units, whether or not they are there.
	take(now, n int64)

	// punish charges a request that this limiter has just refused.
	punish(now, n int64)

	// look returns what there is to announce.
	look(now int64) level

	// idle reports whether the limiter is as good as new.
	idle(now int64) bool

	// change sets new limits. What was used stays used.
	change(now int64, p Policy)
}

// level is the state of a limiter as servers announce it.
type level struct {
	left  int64 // units that would be accepted now, at least 0
	usual int64 // time to the reset servers of this kind announce while units are left
	full  int64 // time until the whole quota is free; for fixed windows, to the end
}

// newLimiter makes the limiter for a policy that is complete. The phase is that
// of clock windows, in true time.
func newLimiter(p Policy, phase, now int64) limiter {
	var l limiter
	switch {
	case p.Quota == 0:
		return &closed{window: int64(p.Window)}
	case p.Algorithm == Concurrency:
		l = &concurrency{}
	case p.Algorithm == SlidingWindow:
		l = &slidingLog{}
	case p.Algorithm == SlidingCounter:
		l = &slidingCounter{phase: phase}
	case p.Algorithm == TokenBucket, p.Algorithm == GCRA, p.Algorithm == LeakyBucket:
		l = &bucket{}
	default:
		l = &fixedWindow{byClock: p.Algorithm == FixedWindowByClock, phase: phase}
	}
	l.change(now, p)
	return l
}

// fixedWindow grants quota units in each window [start, start+window). A window
// is opened by the first charge after the last one ended, or lies where the
// clock has it.
type fixedWindow struct {
	quota, window int64
	byClock       bool
	phase         int64

	open        bool // there has been a charge
	start, used int64
}

// at returns the window that holds now, and what is used of it. Without a
// window open, the one a request would open.
func (f *fixedWindow) at(now int64) (start, used int64) {
	if f.byClock {
		start = clockWindow(now, f.phase, f.window)
		if f.open && start == f.start {
			used = f.used
		}
		return start, used
	}
	if f.open && now < f.start+f.window {
		return f.start, f.used
	}
	return now, 0
}

func (f *fixedWindow) wait(now, n int64) int64 {
	start, used := f.at(now)
	switch {
	case n > f.quota:
		return never
	case used <= f.quota-n:
		return 0
	}
	return start + f.window - now
}

func (f *fixedWindow) take(now, n int64) {
	f.start, f.used = f.at(now)
	f.open = true
	f.used += n
}

func (f *fixedWindow) punish(now, n int64) { f.take(now, n) }

func (f *fixedWindow) look(now int64) level {
	start, used := f.at(now)
	end := start + f.window - now
	return level{left: max(0, f.quota-used), usual: end, full: end}
}

func (f *fixedWindow) idle(now int64) bool {
	_, used := f.at(now)
	return used == 0
}

func (f *fixedWindow) change(now int64, p Policy) {
	window := int64(p.Window)
	if f.byClock && f.open && window != f.window {
		_, f.used = f.at(now)
		f.start = clockWindow(now, f.phase, window)
	}
	f.quota, f.window = p.Quota, window
}

// slidingCounter estimates the use of the last window's length from the counts
// of two clock windows, as if the earlier one's requests had come evenly:
// previous·(1 - elapsed/window) + current.
type slidingCounter struct {
	quota, window  int64
	phase          int64
	start          int64
	previous, used int64
}

// at returns the clock window that holds now, the count of the one before it
// and its own.
func (c *slidingCounter) at(now int64) (start, previous, used int64) {
	start = clockWindow(now, c.phase, c.window)
	switch start - c.start {
	case 0:
		return start, c.previous, c.used
	case c.window:
		return start, c.used, 0
	}
	return start, 0, 0
}

func (c *slidingCounter) wait(now, n int64) int64 {
	if n > c.quota {
		return never
	}
	start, previous, used := c.at(now)
	for {
		// Within a window the estimate only falls, and it does not jump where
		// one window follows the other: the first instant found is the answer.
		if room := c.quota - n - used; room >= 0 {
			first := start
			if previous > 0 {
				weight, _ := mulDiv(room, c.window, previous)
				first = max(start, start+c.window-weight)
			}
			if first = max(first, now); first < start+c.window {
				return first - now
			}
		}
		start, previous, used = start+c.window, used, 0
	}
}

func (c *slidingCounter) take(now, n int64) {
	c.start, c.previous, c.used = c.at(now)
	c.used += n
}

func (c *slidingCounter) punish(now, n int64) { c.take(now, n) }

func (c *slidingCounter) look(now int64) level {
	start, previous, used := c.at(now)
	end := start + c.window - now
	weighted, rest := mulDiv(previous, end, c.window)
	if rest > 0 {
		weighted++
	}
	l := level{left: max(0, c.quota-used-weighted), usual: end}
	switch {
	case used > 0:
		l.full = end + c.window
	case previous > 0:
		l.full = end
	}
	return l
}

func (c *slidingCounter) idle(now int64) bool {
	_, previous, used := c.at(now)
	return previous == 0 && used == 0
}

func (c *slidingCounter) change(now int64, p Policy) {
	if window := int64(p.Window); window != c.window {
		// Counts of windows of another length say little about these; what is
		// used of the present one stays.
		if c.window > 0 {
			_, _, used := c.at(now)
			c.previous, c.used = 0, used
		}
		c.window = window
		c.start = clockWindow(now, c.phase, window)
	}
	c.quota = p.Quota
}

// concurrency caps the units in flight.
type concurrency struct{ quota, inFlight int64 }

func (c *concurrency) wait(_, n int64) int64 {
	if c.inFlight <= c.quota-n {
		return 0
	}
	return never // only the end of another request helps
}

func (c *concurrency) take(_, n int64)          { c.inFlight += n }
func (c *concurrency) punish(_, _ int64)        {}
func (c *concurrency) look(int64) level         { return level{left: max(0, c.quota-c.inFlight)} }
func (c *concurrency) idle(int64) bool          { return c.inFlight == 0 }
func (c *concurrency) change(_ int64, p Policy) { c.quota = p.Quota }

// closed grants nothing.
type closed struct{ window int64 }

func (c *closed) wait(_, n int64) int64    { return never }
func (c *closed) take(_, _ int64)          {}
func (c *closed) punish(_, _ int64)        {}
func (c *closed) look(int64) level         { return level{usual: c.window, full: c.window} }
func (c *closed) idle(int64) bool          { return true }
func (c *closed) change(_ int64, p Policy) { c.window = int64(p.Window) }

// clockWindow returns the start of the window that holds now, of those that
// start at phase + k·window.
func clockWindow(now, phase, window int64) int64 {
	into := (now - phase) % window
	if into < 0 {
		into += window
	}
	return now - into
}

// mulDiv returns a·b/c and its remainder without overflow on the way; where the
// result itself does not fit, the largest integer. a and b must not be
// negative, c must be above 0.
func mulDiv(a, b, c int64) (quotient, remainder int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return int64(q), int64(r)
}
