package heed

import "time"

// concurrency caps how many requests may be unanswered where a server asked
// for less at once (draft-11's temporary-reduced-capacity). The cap grows by
// one for every round of good answers and is lifted once it is back at twice
// what was too much.
type concurrency struct {
	limit   float64 // 0: no cap
	tooMuch float64
	began   time.Time
}

func (c *concurrency) free(unanswered int) bool {
	return c.limit == 0 || float64(unanswered) < c.limit
}

// reduce halves what was in flight, once for all requests that were: start is
// when the one was sent whose answer asks for it.
func (c *concurrency) reduce(now, start time.Time, unanswered int) {
	if !start.After(c.began) {
		return
	}
	c.began = now
	c.tooMuch = float64(max(unanswered, 1))
	c.limit = max(c.tooMuch/2, 1)
}

func (c *concurrency) well() {
	if c.limit == 0 {
		return
	}
	c.limit += 1 / c.limit
	if c.limit >= 2*c.tooMuch {
		c.limit = 0
	}
}
