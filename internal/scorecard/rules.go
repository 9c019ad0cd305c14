package scorecard

import (
	"math"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// rules bind an oracle not only to the instants that an origin names, before which
// nothing may start, but also to what else slows a client that is considerate. What
// it gets then is what such a client can reach, however much it knows of the
// origin: a threshold that this oracle misses is out of reach.
//
//   - First contact: of each process one request goes ahead. As long as
//     nothing is announced, each answer that comes back well lets two go, no
//     matter what the oracle knows: some of them may be refused.
//   - The pace: requests are spread over the window at one and a half times
//     the rate that uses it up, or at that rate where others use the quota, a
//     micro-interval's worth at once. Where windows end, that rate follows what
//     is left of the quota and of the time, as announced in whole seconds.
type rules struct {
	velocity float64
	due      int64 // nothing starts before, by the pace
	held     int   // goroutines that first contact holds back
	told     bool  // an answer has announced something
}

// maxVelocity is the pace of a client that is alone, as heed has it by default.
const maxVelocity = 1.5

// rules returns those of a scenario, or nil where nothing is announced, to which
// they do not apply.
func (s Scenario) rules() *rules {
	if s.Origin.OnRefusalsOnly || s.Origin.Dialect == heedtest.Silent || s.Origin.Dialect == heedtest.RetryAfterOnly {
		return nil
	}
	r := &rules{due: math.MinInt64 / 2, velocity: maxVelocity, held: (s.Goroutines - 1) * max(1, s.Processes)}
	if s.Foreign > 0 || s.Processes > 1 {
		r.velocity = 1
	}
	return r
}

// hear takes in an answer and returns how many goroutines become free beside
// the one that got it.
func (r *rules) hear(a delivery) (free int) {
	switch {
	case r.told:
		return 0
	case a.tells:
		r.told = true
		free = r.held
	case !a.refused:
		free = min(1, r.held)
	}
	r.held -= free
	return free
}

// start takes note of a request that starts now.
func (r *rules) start(now int64, meters []meter, rounding heedtest.Rounding) {
	due := r.due
	for i := range meters {
		m := &meters[i]
		if m.bytes || m.algorithm == heedtest.Concurrency {
			continue
		}
		interval := min(2*second, m.window/10)
		r.due = max(r.due, max(due, now-interval)+int64(float64(second)/(r.velocity*m.rate(now, rounding))))
	}
}

// rate returns the units per second that use up what there is of the quota.
func (m *meter) rate(now int64, rounding heedtest.Rounding) float64 {
	perSecond := float64(m.quota) / time.Duration(m.window).Seconds()
	m.roll(now)
	switch m.algorithm {
	case heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingCounter:
		if m.open && rounding != heedtest.RoundZero { // which does not tell the time
			ahead := ceilTo(m.start+m.window-now, time.Second)
			return max(perSecond, m.left(now)/time.Duration(ahead).Seconds())
		}
	}
	return perSecond
}
