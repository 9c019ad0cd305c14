package scorecard

import (
	"math"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// never is a wait that no amount of waiting ends.
const never = math.MaxInt64

const second = int64(time.Second)

// A meter is one policy of an origin as the oracle knows it, written against
// the definitions in the documentation of package heedtest. Instants are
// nanoseconds since the start of the run. A copy of a meter is a meter of its
// own, for as long as the original is not charged: the oracle tries plans out
// on copies.
type meter struct {
	algorithm           heedtest.Algorithm
	bytes               bool  // charged the bytes of a body
	quota, window, size int64 // size: of a bucket
	phase               int64 // of windows by the clock

	open           bool
	start          int64 // of the present window
	used, previous int64
	due            int64   // of a bucket: the theoretical arrival time, times quota
	log, more      []int64 // arrivals, or ends of those in flight; more: those of a copy
}

// newMeter returns the meter of a policy. The clock windows of the origin are
// those that begin at phase + k·window.
func newMeter(p heedtest.Policy, a heedtest.Algorithm, phase int64) meter {
	if p.Algorithm != "" {
		a = p.Algorithm
	}
	if a == "" {
		a = heedtest.FixedWindow
	}
	if p.Unit == heedtest.UnitConcurrentRequests {
		a = heedtest.Concurrency
	}
	m := meter{algorithm: a, bytes: p.Unit == heedtest.UnitContentBytes}
	if m.bytes && a == heedtest.Concurrency {
		m.algorithm = heedtest.FixedWindow
	}
	m.phase = phase
	m.set(p)
	return m
}

func (m *meter) set(p heedtest.Policy) {
	m.quota, m.window = p.Quota, int64(p.Window)
	switch m.size = p.Burst; {
	case m.algorithm == heedtest.LeakyBucket:
		m.size++
	case m.size == 0:
		m.size = m.quota
	}
}

// change gives a meter another quota. What was used stays used.
func (m *meter) change(now int64, p heedtest.Policy) {
	quota, window := m.quota, m.window
	m.set(p)
	if missing := float64(m.due/max(quota, 1) - now); m.due > 0 && missing > 0 {
		units := min(missing*float64(quota)/float64(window), float64(m.size))
		m.due = (now + int64(units*float64(m.window)/float64(m.quota))) * m.quota
	}
}

// roll brings a window up to date.
func (m *meter) roll(now int64) {
	switch m.algorithm {
	case heedtest.FixedWindow:
		if !m.open || now >= m.start+m.window {
			m.open, m.start, m.used = false, now, 0
		}
	case heedtest.FixedWindowByClock, heedtest.SlidingCounter:
		into := (now - m.phase) % m.window
		if into < 0 {
			into += m.window
		}
		start := now - into
		switch {
		case m.open && start == m.start:
		case m.open && start == m.start+m.window:
			m.previous, m.used = m.used, 0
		default:
			m.previous, m.used = 0, 0
		}
		m.open, m.start = true, start
	case heedtest.Concurrency:
		for {
			first, at := int64(never), -1
			for i, end := range m.more {
				if end < first {
					first, at = end, i
				}
			}
			if at < 0 || first > now {
				break
			}
			m.more = append(m.more[:at], m.more[at+1:]...)
		}
	}
}

// wait returns how long after now the next request is accepted if none comes
// in between: 0 for now.
func (m *meter) wait(now int64) int64 {
	m.roll(now)
	switch m.algorithm {
	case heedtest.FixedWindow, heedtest.FixedWindowByClock:
		if m.used < m.quota {
			return 0
		}
		return m.start + m.window - now
	case heedtest.SlidingCounter:
		// previous·(1 - elapsed/window) + used <= quota - 1
		start, previous, used := m.start, m.previous, m.used
		for {
			if room := m.quota - 1 - used; room >= 0 {
				first := start
				if previous > 0 {
					first = max(start, start+m.window-room*m.window/previous)
				}
				if first = max(first, now); first < start+m.window {
					return first - now
				}
			}
			start, previous, used = start+m.window, used, 0
		}
	case heedtest.SlidingWindow:
		if i := m.arrivals() - int(m.quota); i >= 0 {
			return max(0, m.arrival(i)+m.window-now)
		}
		return 0
	case heedtest.Concurrency:
		if int64(len(m.more)) < m.quota {
			return 0
		}
		first := int64(never)
		for _, end := range m.more {
			first = min(first, end)
		}
		return first - now
	}
	// A bucket: from the theoretical arrival time less (size-1)·window/quota on.
	first := m.due - (m.size-1)*m.window
	return max(0, ceilDiv(first, m.quota)-now)
}

// left returns how many units would be accepted now, and the fraction of one.
func (m *meter) left(now int64) float64 {
	m.roll(now)
	left := float64(m.quota)
	switch m.algorithm {
	case heedtest.FixedWindow, heedtest.FixedWindowByClock:
		left -= float64(m.used)
	case heedtest.SlidingCounter:
		left -= float64(m.used) + float64(m.previous)*float64(m.start+m.window-now)/float64(m.window)
	case heedtest.SlidingWindow:
		for i := m.arrivals() - 1; i >= 0 && m.arrival(i)+m.window > now; i-- {
			left--
		}
	case heedtest.Concurrency:
		left -= float64(len(m.more))
	default:
		left = float64(m.size) - float64(max(0, m.due-now*m.quota))/float64(m.window)
	}
	return max(0, left)
}

// take charges a request that brings so many bytes and ends at an instant.
func (m *meter) take(now, bytes, end int64) {
	m.roll(now)
	n := int64(1)
	if m.bytes {
		n = bytes
	}
	switch m.algorithm {
	case heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingCounter:
		m.open = true
		m.used += n
	case heedtest.SlidingWindow:
		m.more = append(m.more, now)
	case heedtest.Concurrency:
		// Whoever arrives at the very instant of the end may come too soon.
		m.more = append(m.more, end+1)
	default:
		m.due = max(m.due, now*m.quota) + m.window
	}
}

// copy returns a meter that can be charged without a trace in m. Its arrivals
// go to space.
func (m *meter) copy(space []int64) meter {
	c := *m
	switch m.algorithm {
	case heedtest.SlidingWindow:
		c.log, c.more = m.log, append(space[:0], m.more...)
	case heedtest.Concurrency:
		c.more = append(space[:0], m.more...)
	}
	return c
}

// settle moves what was charged to where copies share it.
func (m *meter) settle() {
	if m.algorithm == heedtest.SlidingWindow {
		m.log = append(m.log, m.more...)
		m.more = m.more[:0]
	}
}

func (m *meter) arrivals() int { return len(m.log) + len(m.more) }

func (m *meter) arrival(i int) int64 {
	if i < len(m.log) {
		return m.log[i]
	}
	return m.more[i-len(m.log)]
}

func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// ceilTo rounds a time up to a multiple of a grain.
func ceilTo(t int64, grain time.Duration) int64 { return ceilDiv(t, int64(grain)) * int64(grain) }
