package heed

import (
	"cmp"
	"slices"
	"time"
)

// A history is what a limit that nobody announces accepted, and when, as far as its rate is reckoned by that.
type history struct {
	total  int64  // accepted, ever …
	opened mark   // … and until the latest reopening
	burst  int64  // of them, those before the first reopening, or what a window was seen to let through that was larger
	zeros  []zero // the latest refusals that began a block, the last one first
	steps  []step // how many were accepted by some instants …
	next   int    // … the oldest of them, once there are all …
	apart  int64  // … so many accepted requests apart, until it is known how large a burst is
}

// A mark is how many requests had been accepted by an instant.
type mark struct {
	at time.Time
	n  int64
}

// A zero is when nothing was left, for which a request was refused.
type zero struct {
	mark
	shut, reopened time.Time // when it was closed still, and when it was open again; zero: that is not known
}

// A step is how many requests had been accepted before an instant, and with those that were sent at that very instant.
type step struct {
	at         time.Time
	before, by int64
}

const (
	mostZeros = 4
	mostSteps = 8 * ofBurst
	ofBurst   = 16 // steps in as many requests as a burst has, and up to twice as many until that is known
)

// accepted counts a request sent at an instant.
func (h *history) accepted(start time.Time) {
	h.note(start)
	h.total++
	for i := range h.zeros {
		if !start.After(h.zeros[i].at) { // it was let through before that one was refused
			h.zeros[i].n++
		}
	}
}

// note notes that a request sent at an instant is one more that is accepted, if that is worth a step.
func (h *history) note(start time.Time) {
	k := len(h.steps)
	if k > 0 {
		last := &h.steps[(h.next+k-1)%k]
		switch {
		case start.Equal(last.at):
			last.by = h.total + 1
			return
		case start.Before(last.at), // it was overtaken on its way
			h.total-last.before < h.spacing() && h.total-h.opened.n > 1: // after the first that was accepted again there are none for a round trip
			return
		}
	}
	switch s := (step{start, h.total, h.total + 1}); {
	case len(h.zeros) == 0 && k == 2*ofBurst: // every other one will do
		for i := range ofBurst {
			h.steps[i] = h.steps[2*i]
		}
		h.steps, h.apart = append(h.steps[:ofBurst], s), 2*h.spacing()
	case k < mostSteps:
		h.steps = append(h.steps, s)
	default:
		h.steps[h.next] = s
		h.next = (h.next + 1) % k
	}
}

// spacing is how many requests are accepted from one step to the next.
func (h *history) spacing() int64 {
	if h.burst == 0 || len(h.zeros) == 0 {
		return max(h.apart, 1)
	}
	return h.burst / ofBurst
}

// zero notes that nothing was left for a request sent at an instant.
func (h *history) zero(start time.Time) {
	h.zeros = append([]zero{{mark: mark{start, h.total}}}, h.zeros[:min(len(h.zeros), mostZeros-1)]...)
}

// rested takes in that nobody asked for so long that what was accepted before
// tells nothing of the time since.
func (h *history) rested() { h.zeros, h.steps, h.next, h.apart = nil, nil, 0, 0 }

// A course is all that is known of when requests were accepted, in the order of time.
type course struct {
	steps []step
	from  time.Time // before that more was accepted than is known; zero: no more was
}

// course is that of what was accepted until now.
func (h *history) course() course {
	steps := make([]step, 0, len(h.steps)+len(h.zeros)+1)
	steps = append(steps, h.steps...)
	var from time.Time
	if len(h.steps) > 0 && h.steps[h.next].before > 0 {
		from = h.steps[h.next].at
	}
	if h.opened.n > 0 && !h.opened.at.Before(from) {
		steps = append(steps, step{h.opened.at, h.opened.n, h.opened.n + 1})
	}
	for _, z := range h.zeros {
		steps = append(steps, step{z.at, z.n, z.n})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	return course{steps, from}
}

// until is how many were accepted of those sent until an instant, or at that very one.
func (c *course) until(at time.Time) int64 {
	i, _ := slices.BinarySearchFunc(c.steps, at, func(s step, at time.Time) int {
		if s.at.After(at) {
			return 1
		}
		return -1
	})
	switch i {
	case 0:
		return c.steps[0].before
	case len(c.steps):
		return c.steps[i-1].by
	}
	before, after := c.steps[i-1], c.steps[i]
	part := float64(at.Sub(before.at)) / float64(after.at.Sub(before.at))
	return before.by + int64(part*float64(max(after.before-before.by, 0)))
}

// within is how many were accepted of those sent after an instant until another one.
func (c *course) within(after, until time.Time) int64 { return c.until(until) - c.until(after) }

// ago is when the n-th last request that was accepted had been sent.
func (h *history) ago(n int64) (at time.Time, known bool) {
	if len(h.zeros) == 0 {
		return at, false
	}
	n = h.total - n
	var before, after mark
	after = h.zeros[0].mark
	for _, s := range h.course().steps {
		if s.before <= n && s.before >= before.n {
			before = mark{s.at, min(s.by-1, n)}
		}
		if s.before >= n && s.before < after.n {
			after = mark{s.at, s.before}
		}
	}
	part := float64(n-before.n) / float64(max(after.n-before.n, 1))
	at = before.at.Add(time.Duration(part * float64(after.at.Sub(before.at))))
	return at, !before.at.Before(h.zeros[len(h.zeros)-1].at)
}

// since is how many were accepted of those sent since an instant before the latest refusal: of
// those after it, all.
func (h *history) since(at time.Time) int64 {
	c := h.course()
	if c.steps[0].at.After(at) {
		return h.total
	}
	return h.total - c.until(at)
}

// least is what the limit lets through at least, where a request sent at an
// instant was refused.
func (h *history) least(at time.Time) (rate float64) {
	for _, z := range h.zeros {
		n, d := h.total-z.n, at.Sub(z.at)
		tells := n >= few
		if !tells { // it may have been up to one more
			n++
		}
		if d > 0 {
			rate = float64(n) / d.Seconds()
		}
		if tells {
			break
		}
	}
	for _, s := range h.steps {
		if d := at.Sub(s.at); d > 0 {
			rate = max(rate, float64(h.total-s.before-h.burst)/d.Seconds())
		}
	}
	return rate
}

// latestTwo is how many were accepted from the refusal before to the latest one, and from the one before that to that one; 0:
// there were not as many refusals.
func (h *history) latestTwo() (n, before int64) {
	z := h.zeros
	if len(z) < 3 {
		return 0, 0
	}
	return z[0].n - z[1].n, z[1].n - z[2].n
}
