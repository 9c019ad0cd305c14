package heed

import (
	"math/rand/v2"
	"time"
)

// A line is the waiters of one priority, in the order of their numbers: a
// treap (Seidel and Aragon, Randomized Search Trees, 1996), each node of which
// knows the sum of those below it. So it takes no look at each to tell how
// many, and how much, go before one, or whether a deadline is out of reach.
type line struct{ root *waiter }

// A node is a waiter's place in its line.
type node struct {
	left, right *waiter
	weight      uint32 // a parent's is no less than its children's
	below       tally  // of the waiter and of all below it
}

// A tally is what several waiters come to.
type tally struct {
	amount
	astride  amount    // of those among them that stand in several lines …
	lines    lines     // … which are these …
	diverse  bool      // … save that some stand in others
	again    int       // of them stand in another line already
	untried  bool      // one of them has not been refused yet
	most     maximum   // of what one of them asks for
	deadline time.Time // the earliest; zero: none has one
	path     string    // all ask for it …
	mixed    bool      // … save that some do not
}

// An amount is how many wait, and what they cost together.
type amount struct {
	n        int
	requests int64 // they cost
	bytes    int64 // they were said to cost …
	unsaid   int   // … save so many
}

func (m *amount) add(u *amount) {
	m.n += u.n
	m.requests += u.requests
	m.bytes += u.bytes
	m.unsaid += u.unsaid
}

// A maximum is the most that is asked for: the largest cost that was set, by
// unit, and the longest interval.
type maximum struct {
	requests, bytes, concurrent int64
	interval                    time.Duration
}

// tallyOf is what one comes to.
func tallyOf(a *ask) tally {
	t := tally{amount: amount{n: 1, requests: a.units(), unsaid: 1}, untried: a.attempt <= 1, deadline: a.deadline, path: a.path}
	t.most.interval = a.opts.minInterval
	if a.again {
		t.again = 1
	}
	if a.charged {
		t.most.requests, t.most.bytes, t.most.concurrent = a.units(), a.cost(UnitContentBytes, 0), a.cost(UnitConcurrentRequests, 0)
		if bytes := a.cost(UnitContentBytes, -1); bytes >= 0 {
			t.bytes, t.unsaid = bytes, 0
		}
	}
	if a.lines.n > 1 {
		t.astride, t.lines = t.amount, a.lines
	}
	return t
}

// add adds what others come to.
func (t *tally) add(u *tally) {
	if t.n == 0 {
		*t = *u
		return
	}
	switch {
	case t.astride.n == 0:
		t.lines, t.diverse = u.lines, u.diverse
	case u.astride.n > 0:
		t.diverse = t.diverse || u.diverse || t.lines != u.lines
	}
	t.amount.add(&u.amount)
	t.astride.add(&u.astride)
	t.again += u.again
	t.untried = t.untried || u.untried
	t.most.requests = max(t.most.requests, u.most.requests)
	t.most.bytes = max(t.most.bytes, u.most.bytes)
	t.most.concurrent = max(t.most.concurrent, u.most.concurrent)
	t.most.interval = max(t.most.interval, u.most.interval)
	t.deadline = soonest(t.deadline, u.deadline)
	t.mixed = t.mixed || u.n > 0 && (u.mixed || u.path != t.path)
}

// sum brings w's tally up to date with its children's.
func (w *waiter) sum() {
	w.below = tallyOf(&w.ask)
	if w.left != nil {
		w.below.add(&w.left.below)
	}
	if w.right != nil {
		w.below.add(&w.right.below)
	}
}

// tally is what all in the line come to.
func (l *line) tally() tally {
	if l.root == nil {
		return tally{}
	}
	return l.root.below
}

// first returns the first in line, nil where there is none.
func (l *line) first() *waiter {
	w := l.root
	for w != nil && w.left != nil {
		w = w.left
	}
	return w
}

// last returns the last in line, nil where there is none.
func (l *line) last() *waiter {
	w := l.root
	for w != nil && w.right != nil {
		w = w.right
	}
	return w
}

// push puts w in line and reports whether that is before others.
func (l *line) push(w *waiter) (ahead bool) {
	w.node = node{weight: rand.Uint32()}
	w.sum()
	before, after := splitLine(l.root, w.number)
	l.root = mergeLines(mergeLines(before, w), after)
	return after != nil
}

// remove takes w out of line. A request that waits for whichever of several tokens has room stands there
// more than once, by one number, where the tokens are counted together.
func (l *line) remove(w *waiter) {
	before, after := splitLine(l.root, w.number)
	same, after := splitLine(after, w.number+1)
	for _, other := range same.appendTo(nil) {
		if other.left, other.right = nil, nil; other != w {
			other.sum()
			before = mergeLines(before, other)
		}
	}
	l.root = mergeLines(before, after)
	w.node = node{}
}

// splitLine parts those below w into those before a number and those from it on.
func splitLine(w *waiter, number uint64) (before, after *waiter) {
	switch {
	case w == nil:
		return nil, nil
	case w.number < number:
		w.right, after = splitLine(w.right, number)
		before = w
	default:
		before, w.left = splitLine(w.left, number)
		after = w
	}
	w.sum()
	return before, after
}

// mergeLines undoes it.
func mergeLines(before, after *waiter) *waiter {
	switch {
	case before == nil:
		return after
	case after == nil:
		return before
	case before.weight >= after.weight:
		before.right = mergeLines(before.right, after)
		before.sum()
		return before
	}
	after.left = mergeLines(before, after.left)
	after.sum()
	return after
}

// before is what those in line before a number come to.
func (l *line) before(number uint64) (t tally) {
	for w := l.root; w != nil; {
		if w.number >= number {
			w = w.left
			continue
		}
		own := tallyOf(&w.ask)
		t.add(&own)
		if w.left != nil {
			t.add(&w.left.below)
		}
		w = w.right
	}
	return t
}

// appendTo appends w and all below it to others, in order.
func (w *waiter) appendTo(all []*waiter) []*waiter {
	if w == nil {
		return all
	}
	all = append(w.left.appendTo(all), w)
	return w.right.appendTo(all)
}

// walk calls f for w and all below it, in order, until that returns false.
func (w *waiter) walk(f func(*waiter) bool) bool {
	return w == nil || w.left.walk(f) && f(w) && w.right.walk(f)
}

// sumAll is sum for w and all below it.
func (w *waiter) sumAll() {
	if w != nil {
		w.left.sumAll()
		w.right.sumAll()
		w.sum()
	}
}

// firstElsewhere returns the first of w and those below it that asks for another path than one.
func (w *waiter) firstElsewhere(path string) *waiter {
	if w == nil || !w.below.mixed && w.below.path == path {
		return nil
	}
	if other := w.left.firstElsewhere(path); other != nil {
		return other
	}
	if w.path != path {
		return w
	}
	return w.right.firstElsewhere(path)
}

// firstUntried returns the first of w and those below it that has not been refused yet.
func (w *waiter) firstUntried() *waiter {
	switch {
	case w == nil || !w.below.untried:
		return nil
	case w.left != nil && w.left.below.untried:
		return w.left.firstUntried()
	case w.attempt <= 1:
		return w
	}
	return w.right.firstUntried()
}

// firstLate returns the first of w and those below it, of a number or a later one, whose
// deadline may be too soon: start says by when one goes where so much goes no later, which
// is no sooner where that is more. t is what goes before all of them.
func (w *waiter) firstLate(from uint64, t tally, start func(*tally) time.Time) *waiter {
	if w == nil || w.below.deadline.IsZero() {
		return nil
	}
	if w.number < from { // so are those on the left
		own := tallyOf(&w.ask)
		t.add(&own)
		if w.left != nil {
			t.add(&w.left.below)
		}
		return w.right.firstLate(from, t, start)
	}
	all := t
	all.add(&w.below)
	if start(&all).Before(w.below.deadline) {
		return nil
	}
	if late := w.left.firstLate(from, t, start); late != nil {
		return late
	}
	if w.left != nil {
		t.add(&w.left.below)
	}
	own := tallyOf(&w.ask)
	t.add(&own)
	if !w.deadline.IsZero() && !start(&t).Before(w.deadline) {
		return w
	}
	return w.right.firstLate(from, t, start)
}
