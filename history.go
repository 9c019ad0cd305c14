package heed

import "time"

// A history is what a limit that nobody announces accepted, and when, as far as its rate is reckoned by that.
type history struct {
	total  int64  // accepted, ever …
	opened mark   // … and until the latest reopening
	burst  int64  // of them, those before the first reopening, or what a window was seen to let through that was larger
	zeros  []mark // the latest refusals that began a block, the last one first
	marks  []mark // instants since the first of them …
	next   int    // … the oldest of them, once there are all
}

// A mark is how many requests had been accepted by an instant.
type mark struct {
	at time.Time
	n  int64
}

const (
	mostZeros = 4
	mostMarks = 32
)

// accepted counts a request sent at an instant.
func (h *history) accepted(start time.Time) {
	switch k := len(h.marks); {
	case len(h.zeros) == 0:
	case k < mostMarks:
		h.marks = append(h.marks, mark{start, h.total})
	case h.total-h.marks[(h.next+k-1)%k].n >= h.burst/4,
		h.total == h.opened.n+1: // after the first that was accepted again there are none for a round trip
		h.marks[h.next] = mark{start, h.total}
		h.next = (h.next + 1) % k
	}
	h.total++
	for i := range h.zeros {
		if !start.After(h.zeros[i].at) { // it was let through before that one was refused
			h.zeros[i].n++
		}
	}
}

// zero notes that nothing was left for a request sent at an instant.
func (h *history) zero(start time.Time) {
	h.zeros = append([]mark{{start, h.total}}, h.zeros[:min(len(h.zeros), mostZeros-1)]...)
}

// rested takes in that nobody asked for so long that what was accepted before
// tells nothing of the time since.
func (h *history) rested() { h.zeros, h.marks, h.next = nil, nil, 0 }

// ago is when the n-th last request that was accepted had been sent.
func (h *history) ago(n int64) (at time.Time, known bool) {
	if len(h.zeros) == 0 {
		return at, false
	}
	n = h.total - n
	before, after := mark{}, h.zeros[0]
	for _, m := range append(h.marks[:len(h.marks):len(h.marks)], h.opened) {
		if m.n <= n && m.n > before.n {
			before = m
		}
		if m.n >= n && m.n < after.n {
			after = m
		}
	}
	part := float64(n-before.n) / float64(max(after.n-before.n, 1))
	return before.at.Add(time.Duration(part * float64(after.at.Sub(before.at)))), before.n > 0
}

// since is how many were accepted of those sent since an instant before the latest refusal: of
// those after it, all.
func (h *history) since(at time.Time) int64 {
	before, after := mark{}, h.zeros[0]
	for _, m := range append(append(h.marks[:len(h.marks):len(h.marks)], h.opened), h.zeros...) {
		if !m.at.After(at) && m.at.After(before.at) {
			before = m
		}
		if m.at.After(at) && m.at.Before(after.at) {
			after = m
		}
	}
	if before.at.IsZero() {
		return h.total
	}
	part := at.Sub(before.at).Seconds() / max(after.at.Sub(before.at).Seconds(), time.Millisecond.Seconds())
	return h.total - before.n - int64(min(part, 1)*float64(after.n-before.n))
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
	for _, m := range h.marks {
		if d := at.Sub(m.at); d > 0 {
			rate = max(rate, float64(h.total-m.n-h.burst)/d.Seconds())
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
