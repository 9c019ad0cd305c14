package heed

import "time"

// A serverClock knows how far an origin's clock is from this process's own. A Date
// field is cut to whole seconds and was stamped at any time between request
// and receipt; what many of them leave possible narrows down to milliseconds.
type serverClock struct {
	known     bool
	low, high time.Duration // the origin's time less ours is within
}

// hear takes in the Date of an answer that was received at now, to a request
// sent at start.
func (c *serverClock) hear(now, start, date time.Time) {
	low, high := date.Sub(now), date.Add(time.Second).Sub(start)
	if c.known && low <= c.high && high >= c.low {
		low, high = max(low, c.low), min(high, c.high)
	}
	c.known, c.low, c.high = true, low, high // else it was set anew
}

// until returns how long it is from now to an instant of the origin's clock,
// rather too long than too short, and by how much that may be.
func (c *serverClock) until(now, instant time.Time) (d, by time.Duration) {
	return max(instant.Sub(now)-c.low, 0), c.high - c.low
}
