package heed

import (
	"context"
	"net/http"
	"sync/atomic"
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

	queue  *queue      // where it stands; nil: aside, or nowhere any more
	node               // in its line
	seat   int         // among those that stand aside; 0: it does not
	over   bool        // permit or err is set
	expiry *time.Timer // Limits.MaxWait's; nil: none
	held   obstacle    // what held it last
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
// and so its place, save that where nothing was accepted lately others are tried first.
type queue struct{ lines [3]line } // by falling priority

func (q *queue) line(p Priority) *line { return &q.lines[PriorityHigh-p] }

func (q *queue) head() *waiter {
	for i := range q.lines {
		if w := q.lines[i].first(); w != nil {
			return w
		}
	}
	return nil
}

// last returns who goes last; nil: nobody waits.
func (q *queue) last() (last *waiter) {
	for i := range q.lines {
		if w := q.lines[i].last(); w != nil {
			last = w
		}
	}
	return last
}

// firstUntried returns the first in the head's line that has not been refused yet; nil: there is none.
func (q *queue) firstUntried() *waiter {
	for i := range q.lines {
		if w := q.lines[i].root; w != nil {
			return w.firstUntried()
		}
	}
	return nil
}

// push puts w in line and reports whether that is before others.
func (q *queue) push(w *waiter) (ahead bool) {
	w.queue = q
	if w.opts.minInterval > 0 {
		w.origin.spaced++
	}
	ahead = q.line(w.opts.priority).push(w)
	for p := w.opts.priority - 1; p >= PriorityLow; p-- {
		ahead = ahead || q.line(p).root != nil
	}
	return ahead
}

// remove takes out one who is in the queue.
func (q *queue) remove(w *waiter) {
	w.queue = nil
	if w.opts.minInterval > 0 {
		w.origin.spaced--
	}
	q.line(w.opts.priority).remove(w)
	w.origin.letGo(w)
}

// before is what those who would go before a come to.
func (q *queue) before(a *ask) tally {
	t := q.from(a.opts.priority + 1)
	same := q.line(a.opts.priority).before(a.number)
	t.add(&same)
	return t
}

// from is what those of a priority and of higher ones come to.
func (q *queue) from(least Priority) (t tally) {
	for p := PriorityHigh; p >= least; p-- {
		if w := q.line(p).root; w != nil {
			t.add(&w.below)
		}
	}
	return t
}

// len is how many wait.
func (q *queue) len() int {
	n := 0
	for i := range q.lines {
		if w := q.lines[i].root; w != nil {
			n += w.below.n
		}
	}
	return n
}

// tally is what all who wait come to.
func (q *queue) tally() tally { return q.from(PriorityLow) }

// all calls f for every waiter from the first to the last; f may remove it.
func (q *queue) all(f func(w *waiter)) {
	for i := range q.lines {
		for _, w := range q.lines[i].root.appendTo(nil) {
			f(w)
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
	route     string // of that; "": nobody has asked
	req       *http.Request
	number    uint64        // its place in line
	attempt   int           // 1: the first
	spent     time.Duration // waited by the earlier attempts: MaxWait is for all of them
	status    int           // of the answer that has it tried again; 0: none
	arrived   time.Time     // when it began to wait
	notBefore time.Time     // its own wait before another try, or, …
	follows   bool          // … before it follows a redirect; zero: none
	until     time.Time     // its context's deadline; zero: none
	deadline  time.Time     // the earlier of that and Limits.MaxWait's; zero: none
	maxWait   bool          // the deadline is Limits.MaxWait's
	lane      *lane         // of the budgets it is counted in; nil: none known
	budgets   string        // the key of that lane, as the answer that has it tried again named it; "": as its like are counted
	peers     *peers        // where it stands; nil: in one line
	lines     lines         // it stands in several, and goes from one of them; zero: it stands in one
	share     int           // a place counts a share of those that stand in the same lines as it: one in so many; 0: none of them, for all may go from elsewhere
	again     bool          // it stands in another line already: whether it goes from here is not sure
	went      *atomic.Bool  // it has gone from one of its lines, which may be of several origins; nil: it stands in one
	inLine    func()        // what to do once it is put in line; nil: nothing
}

// routeKey is the route of the request.
func (a *ask) routeKey() string {
	if a.route == "" {
		a.route = routeOf(a.method(), a.path)
	}
	return a.route
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

// ownCause is why a waits by itself.
func (a *ask) ownCause() Cause {
	if a.follows {
		return CauseRedirect
	}
	return CauseBackoff
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
