package heed

import (
	"context"
	"net/http"
	"time"
)

// A waiter is one request that waits for its permit.
type waiter struct {
	ask
	origin *origin
	home   *partition      // guarded by the origin's lock
	ctx    context.Context // its request's
	ready  chan struct{}   // closed once permit or err is set
	permit *Permit
	err    error

	queue      *queue // where it stands; nil: aside, or nowhere any more
	prev, next *waiter
	seat       int         // among those that stand aside; 0: it does not
	over       bool        // permit or err is set
	expiry     *time.Timer // Limits.MaxWait's; nil: none
	held       obstacle    // what held it last
}

// resolve ends the wait. The origin's lock is held, and w is out of line.
func (w *waiter) resolve(p *Permit, err error) {
	w.permit, w.err, w.over = p, err, true
	if w.expiry != nil {
		w.expiry.Stop()
	}
	close(w.ready)
}

// byRetry orders those who stand aside by when they may try again.
type byRetry struct{}

func (byRetry) before(a, b *waiter) bool { return a.notBefore.Before(b.notBefore) }
func (byRetry) seat(w *waiter) *int      { return &w.seat }

// A queue holds the requests that wait in one partition: first come first
// served within a priority. A retry keeps the number of its first attempt,
// and so its place.
type queue struct {
	lines     [3]line // by falling priority
	len       int
	deadlines int // of those waiting, how many have one
	priced    int // of those waiting, how many set a cost of their own …
	spaced    int // … or an interval
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

// push puts w in line and reports whether that is before others.
func (q *queue) push(w *waiter) (ahead bool) {
	l := q.line(w.opts.priority)
	after, _, _ := l.spot(w.number)
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
	q.count(w, 1)
	if w.next != nil {
		return true
	}
	for p := w.opts.priority - 1; p >= PriorityLow; p-- {
		if q.line(p).first != nil {
			return true
		}
	}
	return false
}

// count keeps count of what sets w apart.
func (q *queue) count(w *waiter, n int) {
	if !w.deadline.IsZero() {
		q.deadlines += n
	}
	if w.charged {
		q.priced += n
	}
	if w.opts.minInterval > 0 {
		q.spaced += n
		w.origin.spaced += n
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
	q.count(w, -1)
	w.origin.letGo(w)
}

// ahead returns how many waiters, and units, would go before a.
func (q *queue) ahead(a *ask) (n int, units int64) {
	for p := PriorityHigh; p > a.opts.priority; p-- {
		n += q.line(p).len
		units += q.line(p).units
	}
	_, before, of := q.line(a.opts.priority).spot(a.number)
	return n + before, units + of
}

// behind returns how many waiters of a queue, and units, a would go behind.
func (a *ask) behind(q *queue) (n int, units int64) { return q.ahead(a) }

// spot returns after whom in the line a number stands, nil: before all, and how
// many, and units, that is. It looks from both ends, for newcomers stand near
// the last and retries near the first.
func (l *line) spot(number uint64) (after *waiter, n int, units int64) {
	behind, of := 0, int64(0)
	for first, last := l.first, l.last; ; first, last = first.next, last.prev {
		switch {
		case last == nil || last.number < number:
			return last, l.len - behind, l.units - of
		case first.number >= number:
			return first.prev, n, units
		}
		n++
		units += first.units()
		behind++
		of += last.units()
	}
}

// units returns how many requests all waiters stand for.
func (q *queue) units() int64 { return q.lines[0].units + q.lines[1].units + q.lines[2].units }

// all calls f for every waiter from the first to the last; f may remove it.
func (q *queue) all(f func(w *waiter)) {
	for i := range q.lines {
		for w := q.lines[i].first; w != nil; {
			next := w.next
			f(w)
			w = next
		}
	}
}

// precedes reports whether a goes before b where both may go.
func (a *ask) precedes(b *ask) bool {
	if a.opts.priority != b.opts.priority {
		return a.opts.priority > b.opts.priority
	}
	return a.number < b.number
}

// An ask is what one request asks of its partition.
type ask struct {
	opts      *options
	charged   bool   // opts.costs are set and hold here: it is not another origin's redirect
	path      string // what it asks for, to tell endpoints apart
	req       *http.Request
	number    uint64        // its place in line
	attempt   int           // 1: the first
	spent     time.Duration // waited by the earlier attempts: MaxWait is for all of them
	status    int           // of the answer that has it tried again; 0: none
	arrived   time.Time     // when it began to wait
	notBefore time.Time     // its own wait before another try; zero: none
	until     time.Time     // its context's deadline; zero: none
	deadline  time.Time     // the earlier of that and Limits.MaxWait's; zero: none
	maxWait   bool          // the deadline is Limits.MaxWait's
	lane      *lane         // of the budgets it is counted in; nil: none known
	budgets   string        // the key of that lane, as the answer that has it tried again named it; "": as its like are counted
	inLine    func()        // what to do once it is put in line; nil: nothing
}

// method is the request's.
func (a *ask) method() string {
	if a.req == nil {
		return ""
	}
	return a.req.Method
}

// limit sets the deadline to what a context and MaxWait say.
func (a *ask) limit(ctx context.Context, most time.Duration) {
	a.until, _ = ctx.Deadline()
	a.limitWait(most)
}

// limitWait is limit where MaxWait alone has changed.
func (a *ask) limitWait(most time.Duration) {
	a.deadline, a.maxWait = a.until, false
	if most > 0 {
		if d := a.arrived.Add(most - a.spent); a.until.IsZero() || d.Before(a.until) {
			a.deadline, a.maxWait = d, true
		}
	}
}

// misses reports whether a start at an instant is too late: it has to be
// before the context's deadline, and may be as late as MaxWait says.
func (a *ask) misses(at time.Time) bool {
	switch {
	case a.deadline.IsZero():
		return false
	case a.maxWait:
		return at.After(a.deadline)
	}
	return !at.Before(a.deadline)
}

// units is how many requests the ask counts as.
func (a *ask) units() int64 { return a.cost(UnitRequests, 1) }

// cost is what the ask costs in a unit for which no cost set means usual.
func (a *ask) cost(u Unit, usual int64) int64 {
	if !a.charged {
		return usual
	}
	return costOf(a.opts.costs, u, usual)
}

// costOf is the cost set in a unit, usual where none is.
func costOf(costs []cost, u Unit, usual int64) int64 {
	for _, c := range costs {
		if c.unit == u {
			return c.n
		}
	}
	return usual
}
