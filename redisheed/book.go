package redisheed

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed"
)

type bookName struct{ origin, partition string }

// A book is what this process knows of one partition: what it holds in hand,
// who waits for more, and what Redis has to be told. Of all who wait one
// flight at a time asks Redis, for all of them at once.
type book struct {
	l     *Ledger
	name  bookName     // changed with both l.mu and mu held
	slots *slots       // of the origin
	used  atomic.Int64 // when last asked, in Unix nanoseconds

	mu     sync.Mutex
	limits *limits   // as asked about last
	askers []*ask    // first come first served
	flying bool      // Redis is being asked, or is to be once it is the book's turn …
	errand string    // … for this …
	set    time.Time // … since then
	landed chan struct{}
	closed bool

	hand  []lot // units taken in advance, the first to expire first
	takes int64 // requests granted since the latest flight …
	since time.Time
	rate  float64 // … and in requests per second, of late

	until   time.Time // Redis grants nothing before …
	refused *limits   // … of this cost, for this:
	cause   heed.Cause
	policy  string
	left    int64 // as Redis said last; -1: unknown
	waiting int64 // other processes that waited then
	clients int64 // processes in all; 0: not known

	birth  string // of the origin's key, as seen last …
	begun  string // … and of the partition's
	resets int64
	clock  clock
	rtt    time.Duration         // of the slowest recent flight
	past   past                  // the units this process has in use
	known  map[string]*announced // policies

	told    time.Time // when Redis was last told how many requests are in flight
	here    int64     // of them, in the partition; guarded by slots.mu
	report  report    // for Redis
	unacked *report   // sent, and perhaps not received
	batch   int64     // its number
	asked   int64     // the number of the latest question that may have taken units …
	heard   int64     // … and of the latest one whose answer arrived …
	heardAt time.Time // … and when that was asked
	flushAt time.Time // the report is to be told by then; zero: with the next question
	open    flights   // requests without an answer

	down     error // Redis was lost; nil: it answers
	retryAt  time.Time
	failures int    // in a row
	alone    *alone // nil: Redis answers, or requests are to fail
	then     then   // when it answered last

	timer *time.Timer
	alarm time.Time
}

// An ask is one request that wants to go, or several.
type ask struct {
	limits   *limits
	need     int64 // requests that can go now
	want     int64 // … and in all
	queue    bool  // its process comes back if it is refused
	stay     bool  // it stays until it is granted
	plain    bool  // no answer follows: its units are used as soon as they are granted
	latency  time.Duration
	maxWait  time.Duration
	deadline time.Time // where it stays
	ready    chan got
}

// got is what became of an ask.
type got struct {
	ok      bool
	grant   *grant // where it is ok; nil: its units are used at once
	wait    time.Duration
	cause   heed.Cause
	policy  string
	whole   bool // it is so for all of the origin
	left    int64
	news    []heed.News
	clients int64
	alone   error // why this process goes alone
	err     error
}

func (g *got) answer() heed.Answer {
	a := heed.Answer{Wait: g.wait, Cause: g.cause, Policy: g.policy, Whole: g.whole, Remaining: g.left, News: g.news, Err: g.alone}
	if g.ok {
		a.Grant, a.Wait = g.grant, 0
	}
	return a
}

func newBook(l *Ledger, name bookName, s *slots) *book {
	b := &book{l: l, name: name, slots: s, left: -1, known: make(map[string]*announced), clock: clock{wall: l.wallClock}}
	b.heard = l.numbers.Load() // what the book before it was granted is used, or left alone
	return b
}

// take grants a, or says why not.
func (b *book) take(ctx context.Context, a *ask) (got, error) {
	b.mu.Lock()
	now := time.Now()
	a.limits = b.settle(a.limits)
	b.joinOutage(now)
	if len(b.askers) == 0 {
		if g, ok := b.fromHand(now, a); ok {
			b.mu.Unlock()
			return g, nil
		}
	}
	switch {
	case b.closed:
		b.mu.Unlock()
		return got{}, ErrClosed
	case b.down != nil && (now.Before(b.retryAt) || b.flying) && b.l.o.OnOutage == Fail:
		err := b.down
		b.mu.Unlock()
		return got{}, err
	}
	a.ready = make(chan got, 1)
	b.askers = append(b.askers, a)
	b.pump(now)
	var enoughSeen <-chan time.Time
	if b.down != nil && b.l.o.OnOutage == Fail { // a looks whether Redis is back, and others may be waiting for a
		enoughSeen = time.After(enough(now, now, b.rtt))
	}
	b.mu.Unlock()
	var wakes <-chan time.Time
	deadline, limited := ctx.Deadline()
	if limited {
		wakes = time.After(enough(now, deadline, 0))
	}
wait:
	for {
		select {
		case g := <-a.ready:
			return g, g.err
		case <-ctx.Done():
			break wait
		case now := <-wakes:
			wakes = nil
			if left := b.loseIfHung(now, a, deadline); left > 0 {
				wakes = time.After(left)
			}
		case <-enoughSeen:
			if err := b.seesInVain(a); err != nil {
				return got{}, err
			}
		}
	}
	b.mu.Lock()
	select {
	case g := <-a.ready: // meanwhile
		b.mu.Unlock()
		if g.grant != nil {
			g.grant.End(false, -1)
		} // what is used at once is spent
	default:
		b.drop(a)
		b.pump(time.Now())
		b.mu.Unlock()
	}
	return got{}, context.Cause(ctx)
}

// enough is how long Redis may take for an answer that is wanted by a deadline, where it lately took as long as rtt,
// before it counts as lost: so that what becomes of the request then still can. It is more than is left where that
// is too little to tell.
func enough(now, deadline time.Time, rtt time.Duration) time.Duration {
	return max(deadline.Sub(now)/2, 4*rtt, 20*time.Millisecond)
}

// loseIfHung has Redis count as lost for a, which cannot wait for longer than until a deadline, where it is late with
// its answer. Who can wait longer does, unless a goes alone: then all do. It returns when to look again; 0: never.
func (b *book) loseIfHung(now time.Time, a *ask, deadline time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := now
	if b.flying {
		since = b.set
	}
	most := enough(since, deadline, b.rtt)
	switch left := most - now.Sub(since); {
	case left > 0 && left < deadline.Sub(now):
		return left
	case left > 0 || !slices.Contains(b.askers, a): // it has its answer
	default:
		err := b.l.noAnswer(since, most)
		if b.l.o.OnOutage == GoAlone {
			b.lost(now, &question{}, err)
		} else {
			b.drop(a)
			a.ready <- got{err: err}
		}
		b.pump(now)
	}
	return 0
}

// seesInVain returns why Redis is lost where it has not answered a's question, which goes on without a; nil: it has.
func (b *book) seesInVain(a *ask) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down == nil || !slices.Contains(b.askers, a) {
		return nil
	}
	b.drop(a)
	return b.down
}

func (b *book) drop(a *ask) {
	if i := slices.Index(b.askers, a); i >= 0 {
		b.askers = slices.Delete(b.askers, i, i+1)
	}
}

// pump serves those who ask, as far as can be done without Redis, and sends
// off a flight for the rest. b.mu is held.
func (b *book) pump(now time.Time) {
	for len(b.askers) > 0 {
		a := b.askers[0]
		if b.closed {
			a.ready <- got{err: ErrClosed}
			b.askers = b.askers[1:]
			continue
		}
		if g, ok := b.fromHand(now, a); ok {
			a.ready <- g
			b.askers = b.askers[1:]
			continue
		}
		if b.down != nil && b.l.o.OnOutage == GoAlone {
			g := b.goAlone(now, a)
			if !g.ok && a.stays(now.Add(g.wait)) {
				b.until = now.Add(g.wait)
				b.dismissBehind(now, g.left)
				b.arm(now)
				return
			}
			a.ready <- g
			b.askers = b.askers[1:]
			continue
		}
		if b.refused == a.limits && now.Before(b.until) {
			if b.dismiss(now); len(b.askers) > 0 && b.askers[0].limits == a.limits {
				b.dismissBehind(now, b.left)
				break // it stays
			}
			continue
		}
		if !b.flying {
			b.fly(now, "ask")
		}
		break
	}
	b.arm(now)
}

// dismiss answers those who asked for what was refused and do not stay.
func (b *book) dismiss(now time.Time) {
	g := got{wait: b.until.Sub(now), cause: b.cause, policy: b.policy, left: b.left}
	b.askers = slices.DeleteFunc(b.askers, func(a *ask) bool {
		if a.limits != b.refused || a.stays(b.until) {
			return false
		}
		a.ready <- g
		return true
	})
}

// dismissBehind answers those behind the first, which waits, who do not stay for as long, whatever they ask for.
func (b *book) dismissBehind(now time.Time, left int64) {
	g, first := got{wait: b.until.Sub(now), cause: heed.CauseQueue, left: left}, b.askers[0]
	b.askers = slices.DeleteFunc(b.askers, func(a *ask) bool {
		if a == first || a.stays(b.until) {
			return false
		}
		a.ready <- g
		return true
	})
}

// stays reports whether a waits until then.
func (a *ask) stays(until time.Time) bool {
	return a.stay && (a.deadline.IsZero() || !until.After(a.deadline))
}
