package redisheed

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// A Ledger keeps the books of any number of processes in one Redis. It goes
// into [heed.Config.Ledger]; [Ledger.Limit] uses it without HTTP. All methods
// may be called from any goroutine.
//
// Several registries in one process need a Ledger each, which may use one client:
// registries on one Ledger count as one process, and do not hear of each other's
// Pause and Reset.
type Ledger struct {
	c  redis.UniversalClient
	o  Options
	id string // of this process, in Redis

	bad error // what is wrong with the options; nil: nothing

	wallClock func(time.Time) int64
	numbers   atomic.Int64 // given to questions and to what they tell: Redis remembers them for longer than a book may live

	outage outage
	dials  *dials

	mu        sync.Mutex
	seed      []byte    // nil: not known yet
	seedErr   error     // why Redis did not say it when asked last …
	seedAgain time.Time // … and when it is asked again at the earliest
	seedDue   time.Time // when to see whether Redis still has it
	seedOther []byte    // another one that Redis was found to have
	own       []byte    // what credentials are hashed with until it is known, going alone
	unnamed   bool      // there are books under such names
	books     map[bookName]*book
	origins   map[string]*slots
	listeners map[int]func(heed.News)
	listened  int           // listeners ever
	stop      func()        // ends the subscription; nil: it has not begun
	stopped   chan struct{} // closed once it has ended
	closed    bool
	sweepDue  time.Time
}

var _ heed.Ledger = (*Ledger)(nil)

// Options configure a [Ledger]. The zero value of each field is its default. A
// negative number is an error, save of Lease: see [Ledger.Err].
type Options struct {
	// Prefix keeps applications that use one Redis apart: only processes of
	// the same prefix share quotas. "": "heed".
	Prefix string

	// Seed is what credentials are hashed with before they become part of a
	// key; all processes need the same. nil: 32 random bytes kept in Redis,
	// under Prefix:seed. If Redis loses it (in a restart, or since it evicts keys)
	// the processes that have it put it back; to be sure, set one.
	Seed []byte

	// Logger is told what concerns the connection to Redis and no origin.
	// nil: slog.Default(). What go-redis logs itself goes where
	// redis.SetLogger says.
	Logger *slog.Logger

	// OnOutage says what becomes of requests while Redis cannot be reached.
	// Zero: [Fail].
	OnOutage Outage

	// Timeout is how long Redis may take for one answer before it counts as
	// lost. 0: 1 s. For a request whose context has a deadline before that, it is
	// half the time that is left, but at least 20 ms and at least four times what
	// Redis took for recent answers. With [Fail], a request that finds out whether
	// a lost Redis is back waits no longer than these two.
	Timeout time.Duration

	// Lease is how long a busy process may keep units that it took in advance; it
	// is never more than a fortieth of the window. 0: 100 ms; negative: nothing is
	// taken in advance, and every request asks Redis.
	Lease time.Duration

	// LeaseMax is for how many requests at most units are taken in advance at
	// once. 0: for as many as the process has lately sent within a Lease.
	LeaseMax int

	// SlotLease is how long the requests in flight of a process that is no longer
	// heard of are counted: when one dies, its slots stay taken until then. 0: 5 s.
	SlotLease time.Duration

	// Processes is how many processes share a quota, for one that goes alone
	// before Redis has told it the number. 0: 1.
	Processes int
}

// check reports the first thing that is wrong with the options.
func (o *Options) check() error {
	switch {
	case o.Timeout < 0:
		return fmt.Errorf("redisheed: Options.Timeout is negative: %v", o.Timeout)
	case o.SlotLease < 0:
		return fmt.Errorf("redisheed: Options.SlotLease is negative: %v", o.SlotLease)
	case o.LeaseMax < 0:
		return fmt.Errorf("redisheed: Options.LeaseMax is negative: %d", o.LeaseMax)
	case o.Processes < 0:
		return fmt.Errorf("redisheed: Options.Processes is negative: %d", o.Processes)
	}
	return nil
}

// An Outage is what to do while Redis cannot be reached.
type Outage int

const (
	// Fail refuses requests with the error of the connection, wrapped; once Redis
	// is known to be lost, without waiting. If Redis can be connected to and does
	// not answer, the error is [context.DeadlineExceeded].
	Fail Outage = iota

	// GoAlone has this process keep to its share of each quota: the quota
	// divided by the number of processes that Redis knew of last, or by
	// Options.Processes if it was never reached; at least one unit. It obeys the
	// announcements and pauses that it sees itself, and goes back to the shared
	// books by itself once Redis can be reached.
	GoAlone
)

const (
	defaultTimeout   = time.Second
	defaultLease     = 100 * time.Millisecond
	defaultSlotLease = 5 * time.Second
	defaultPrefix    = "heed"

	tryAgainAfter  = 100 * time.Millisecond // Redis was found lost: until then it is not asked; doubling …
	tryAgainAtMost = 250 * time.Millisecond // … up to this
	grace          = 500 * time.Millisecond // for all to tell an emptied Redis what they used
)

// ErrClosed is the error of a Ledger that was closed.
var ErrClosed = errors.New("redisheed: ledger closed")

// New returns a Ledger that keeps its books in c: a single Redis or Valkey
// (7 or newer), one behind Sentinel, or a Cluster. c stays the caller's to
// close, after the Ledger; it must not be nil. New itself does not talk to Redis.
// It adds a hook to c, which sees why Redis cannot be connected to.
func New(c redis.UniversalClient, o Options) *Ledger {
	bad := o.check()
	o.Prefix = cmp.Or(o.Prefix, defaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Lease = max(cmp.Or(o.Lease, defaultLease), 0)
	o.SlotLease = cmp.Or(o.SlotLease, defaultSlotLease)
	o.Processes = cmp.Or(o.Processes, 1)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	var id [6]byte
	rand.Read(id[:])
	var dialed dials
	dialed.watch(c)
	return &Ledger{
		c: c, o: o, bad: bad, dials: &dialed, id: hex.EncodeToString(id[:]), seed: o.Seed, own: randomSeed(), wallClock: time.Time.UnixMicro,
		books: make(map[bookName]*book), origins: make(map[string]*slots), listeners: make(map[int]func(heed.News)),
	}
}

// Err returns what is wrong with the Options the Ledger was made with; nil: nothing.
// [heed.NewRegistry] returns it, and so does whatever the Ledger is asked for.
func (l *Ledger) Err() error { return l.bad }

// Close gives back all that the Ledger holds for requests to come, and ends
// its subscription. Its error is that of Redis; if that does not answer, Close
// waits for no longer than three times Options.Timeout. Requests that are waiting
// get [ErrClosed].
func (l *Ledger) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	stop, stopped := l.stop, l.stopped
	l.mu.Unlock()
	err := l.giveBack()
	for _, b := range l.all() {
		b.close()
	}
	l.tell(l.ended())
	if stop != nil {
		stop()
		select {
		case <-stopped:
		case <-time.After(l.o.Timeout): // it is connecting, and ends with that
		}
	}
	return err
}

// ended is what to tell registries of the origins whose requests may wait there: for limits of their own as well.
func (l *Ledger) ended() (news []heed.News) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for origin := range l.origins {
		news = append(news, heed.News{Origin: origin, Err: ErrClosed})
	}
	return news
}

// giveBack returns every lease and tells what has not been told. Where Redis does not
// answer, it is not waited for once for each partition.
func (l *Ledger) giveBack() error {
	var mu sync.Mutex
	var failed error // the first one: of thousands of partitions, all are alike
	var wg sync.WaitGroup
	enough := time.Now().Add(l.o.Timeout)
	atOnce := make(chan struct{}, flushesAtOnce)
	for _, b := range l.all() {
		atOnce <- struct{}{}
		mu.Lock()
		giveUp := failed != nil && !time.Now().Before(enough)
		mu.Unlock()
		if giveUp {
			break
		}
		wg.Go(func() {
			err := b.flush()
			mu.Lock()
			failed = cmp.Or(failed, err)
			mu.Unlock()
			<-atOnce
		})
	}
	wg.Wait()
	return failed
}

// flushesAtOnce is how many partitions are told of at once when a ledger is
// closed: a few for each connection that a client has.
const flushesAtOnce = 64

func (l *Ledger) all() []*book {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.books))
}

// Attach implements [heed.Ledger].
func (l *Ledger) Attach(news func(heed.News)) (detach func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listen()
	l.listened++
	id := l.listened
	l.listeners[id] = news
	return func() error {
		l.mu.Lock()
		delete(l.listeners, id)
		l.mu.Unlock()
		return l.giveBack()
	}
}

// Take implements [heed.Ledger].
func (l *Ledger) Take(ctx context.Context, q *heed.Question) (heed.Answer, error) {
	b, err := l.book(q.Origin, q.Partition)
	if err != nil {
		return heed.Answer{}, err
	}
	got, err := b.take(ctx, &ask{limits: limitsOf(q), need: 1 + int64(q.Ahead), want: 1 + int64(max(q.Waiting, q.Ahead)), queue: !q.NoWait, latency: q.Latency, maxWait: q.MaxWait})
	if err != nil {
		return heed.Answer{}, err
	}
	return got.answer(), nil
}

// Check implements [heed.Ledger].
func (l *Ledger) Check(ctx context.Context, q *heed.Question) (heed.Answer, error) {
	b, err := l.book(q.Origin, q.Partition)
	if err != nil {
		return heed.Answer{}, err
	}
	got, err := b.check(ctx, &ask{limits: limitsOf(q), need: 1, latency: q.Latency, maxWait: q.MaxWait})
	if err != nil {
		return heed.Answer{}, err
	}
	return got.answer(), nil
}

// Pause implements [heed.Ledger].
func (l *Ledger) Pause(ctx context.Context, origin string, d time.Duration) error {
	pause := func(d int64) error {
		_, err := l.run(ctx, origin, "-", &question{Do: "pause", D: d}, nil)
		return err
	}
	var err error
	if d > 0 {
		err = pause(micros(d))
	} else {
		err = l.ending(origin, func() error { return pause(-1) })
	}
	if err == nil {
		l.forgetAnswers(origin)
	}
	return err
}

// Reset implements [heed.Ledger].
func (l *Ledger) Reset(ctx context.Context, origin string) error {
	return l.ending(origin, func() error {
		r, err := l.run(ctx, origin, "-", &question{Do: "reset"}, nil)
		if err != nil {
			return err
		}
		for _, b := range l.of(origin, "") {
			b.wasReset(r.resets)
		}
		return nil
	})
}

// forgetAnswers has all books of an origin ask anew.
func (l *Ledger) forgetAnswers(origin string) {
	for _, b := range l.of(origin, "") {
		b.askAnew()
	}
}

// of returns the books of one origin, "" for all of its partitions.
func (l *Ledger) of(origin, partition string) []*book {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.origins[origin]
	switch {
	case s == nil:
		return nil
	case partition == "":
		return slices.Collect(maps.Values(s.books))
	}
	if b := s.books[partition]; b != nil {
		return []*book{b}
	}
	return nil
}

// idleBook is how long a book nobody asks is kept.
const idleBook = 10 * time.Minute

// book returns the book of a partition, made where there is none.
func (l *Ledger) book(origin, partition string) (*book, error) {
	if l.bad != nil {
		return nil, l.bad
	}
	name := bookName{origin, partition}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	b := l.books[name]
	if b == nil {
		l.sweep(time.Now())
		s := l.origins[origin]
		if s == nil {
			s = &slots{books: make(map[string]*book)}
			l.origins[origin] = s
		}
		b = newBook(l, name, s)
		l.books[name], s.books[partition] = b, b
	}
	b.used.Store(time.Now().UnixNano())
	l.listen()
	return b, nil
}

// sweep drops books that have been idle for long. l.mu is held.
func (l *Ledger) sweep(now time.Time) {
	if now.Before(l.sweepDue) {
		return
	}
	l.sweepDue = now.Add(idleBook / 10)
	for name, b := range l.books {
		if now.UnixNano()-b.used.Load() > int64(idleBook) && b.retire() {
			delete(l.books, name)
			delete(b.slots.books, name.partition)
			if len(b.slots.books) == 0 {
				delete(l.origins, name.origin)
			}
		}
	}
}

// keys returns the keys of a partition; both have the same hash tag.
func (l *Ledger) keys(origin, partition string) []string {
	tag := "{" + escape(l.o.Prefix) + ":" + escape(origin) + "}"
	return []string{tag, tag + ":" + partition}
}

var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// escape keeps braces out of a hash tag.
func escape(s string) string { return braces.Replace(s) }

// longest is the longest span, in microseconds, that the scripts write in full: some three years.
const longest = 99_999_999_999_999

// micros returns a span in microseconds, rounded up: never early.
func micros(d time.Duration) int64 {
	n := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		n++
	}
	return min(n, longest)
}
