package heed

import (
	"context"
	"net/http"
	"time"
)

// A waiter is one request that waits for its permit.
type waiter struct {
	ask
	home   *partition
	ctx    context.Context // its request's
	ready  chan struct{}   // closed once permit or err is set
	permit *Permit
	err    error

	queue      *queue // where it stands; nil: nowhere any more
	prev, next *waiter
	cause      Cause  // what held it last …
	policy     string // … and whose policy
}

// resolve ends the wait. The origin's lock is held.
func (w *waiter) resolve(p *Permit, err error) {
	w.permit, w.err = p, err
	close(w.ready)
}

// A queue holds the requests that wait in one partition: first come first
// served within a priority. A retry keeps the number of its first attempt,
// and so its place.
type queue struct {
	lines     [3]line // by falling priority
	len       int
	deadlines int // of those waiting, how many have one
}

// A line is the waiters of one priority, in the order of their numbers.
type line struct {
	first, last *waiter
	len         int
	units       int64 // requests they stand for
}

func (q *queue) line(p Priority) *line { return &q.lines[PriorityHigh-p] }

func (q *queue) head() *waiter {
	for i := range q.lines {
		if w := q.lines[i].first; w != nil {
			return w
		}
	}
	return nil
}

func (q *queue) push(w *waiter) {
	l := q.line(w.opts.priority)
	after := l.last
	for after != nil && after.number > w.number {
		after = after.prev
	}
	w.queue, w.prev = q, after
	if after == nil {
		w.next, l.first = l.first, w
	} else {
		w.next, after.next = after.next, w
	}
	if w.next == nil {
		l.last = w
	} else {
		w.next.prev = w
	}
	l.len++
	l.units += w.units()
	q.len++
	if !w.deadline.IsZero() {
		q.deadlines++
	}
}

func (q *queue) remove(w *waiter) {
	if w.queue != q {
		return
	}
	l := q.line(w.opts.priority)
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queue, w.prev, w.next = nil, nil, nil
	l.len--
	l.units -= w.units()
	q.len--
	if !w.deadline.IsZero() {
		q.deadlines--
	}
}

// ahead returns how many waiters, and units, would go before a.
func (q *queue) ahead(a *ask) (n int, units int64) {
	for p := PriorityHigh; p > a.opts.priority; p-- {
		n += q.line(p).len
		units += q.line(p).units
	}
	l := q.line(a.opts.priority)
	if l.last == nil || l.last.number < a.number {
		return n + l.len, units + l.units
	}
	for w := l.first; w != nil && w.number < a.number; w = w.next {
		n++
		units += w.units()
	}
	return n, units
}

// units returns how many requests all waiters stand for.
func (q *queue) units() int64 { return q.lines[0].units + q.lines[1].units + q.lines[2].units }

// all calls f for every waiter from the first to the last; f may remove it.
func (q *queue) all(f func(w *waiter, n int, units int64)) {
	var n int
	var units int64
	for i := range q.lines {
		for w := q.lines[i].first; w != nil; {
			next, u := w.next, w.units()
			f(w, n, units)
			if w.queue == q {
				n, units = n+1, units+u
			}
			w = next
		}
	}
}

// An ask is what one request asks of its partition.
type ask struct {
	opts      *options
	charged   bool   // opts.costs hold here: it is not another origin's redirect
	path      string // what it asks for, to tell endpoints apart
	req       *http.Request
	number    uint64    // its place in line
	attempt   int       // 1: the first
	status    int       // of the answer that has it tried again; 0: none
	arrived   time.Time // when it began to wait
	notBefore time.Time // its own wait before another try; zero: none
	deadline  time.Time // it must start before; zero: none
	maxWait   bool      // the deadline is Limits.MaxWait's, not the context's
	inLine    func()    // what to do once it is put in line; nil: nothing
}

// units is how many requests the ask counts as.
func (a *ask) units() int64 { return a.cost(UnitRequests, 1) }

// cost is what the ask costs in a unit for which no cost set means usual.
func (a *ask) cost(u Unit, usual int64) int64 {
	if a.charged {
		for _, c := range a.opts.costs {
			if c.unit == u {
				return c.n
			}
		}
	}
	return usual
}
