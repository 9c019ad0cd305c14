package redisheed

import (
	"context"
	"encoding/base64"
	"math"
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
	name  bookName
	slots *slots       // of the origin
	used  atomic.Int64 // when last asked, in Unix nanoseconds

	mu     sync.Mutex
	limits *limits // as asked about last
	askers []*ask  // first come first served
	flying bool    // Redis is being asked
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

	birth  string // of the origin's key, as seen last
	resets int64
	clock  clock
	rtt    time.Duration         // of the slowest recent flight
	past   past                  // the units this process has in use
	known  map[string]*announced // policies

	told    time.Time // when Redis was last told how many requests are in flight
	here    int64     // of them, in the partition; guarded by slots.mu
	report  report    // for Redis
	unacked []op      // sent, and perhaps not received
	batch   int64     // its number
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

// A lot is units booked at one instant, for requests that have not come yet.
type lot struct {
	x     int64 // on Redis's clock
	n     int64 // requests
	until time.Time
	seen  []*announced
}

// limits are what a question is about. Questions about the same share one.
type limits struct {
	list   []limit // configured
	heard  []limit // announced
	cost   heed.Cost
	iv, mp int64
	mc     int64

	single bool  // nothing can be taken in advance
	bounds bool  // requests in flight are counted
	window int64 // the shortest; 0: none
	grain  int64 // instants closer than this are as good as one
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
	left    int64
	news    []heed.News
	clients int64
	alone   error // why this process goes alone
	err     error
}

func (g *got) answer() heed.Answer {
	a := heed.Answer{Wait: g.wait, Cause: g.cause, Policy: g.policy, Remaining: g.left, News: g.news, Err: g.alone}
	if g.ok {
		a.Grant, a.Wait = g.grant, 0
	}
	return a
}

func newBook(l *Ledger, name bookName, s *slots) *book {
	return &book{l: l, name: name, slots: s, left: -1, known: make(map[string]*announced)}
}

// limitsOf returns the limits of a question.
func (b *book) limitsOf(q *heed.Question) *limits {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &limits{cost: q.Cost, iv: micros(q.MinInterval), mp: micros(q.MinPause), mc: int64(q.MaxConcurrent)}
	for _, p := range q.Policies {
		if u := unitOf(p.Unit); u != 0 {
			m.list = append(m.list, limit{idOf(p.Name, p.PartitionKey), u, p.Quota, micros(p.Window), p.Burst})
		}
	}
	for _, p := range q.Announced {
		if u := unitOf(p.Unit); u != 0 {
			m.heard = append(m.heard, limit{idOf(p.Name, p.PartitionKey), u, p.Quota, micros(p.Window), 0})
		}
	}
	return b.settle(m)
}

// settle returns the limits that stand for all equal to m.
func (b *book) settle(m *limits) *limits {
	if was := b.limits; was != nil && was.cost == m.cost && was.iv == m.iv && was.mp == m.mp && was.mc == m.mc && slices.Equal(was.list, m.list) && slices.Equal(was.heard, m.heard) {
		return was
	}
	if b.limits != nil {
		b.emptyHand(time.Now())
	}
	m.grain = 1
	m.bounds = m.mc > 0 || m.mp > 0
	m.single = m.bounds || m.iv > 0
	for _, l := range m.list {
		m.consider(l.unit, l.quota, l.window)
	}
	for _, a := range b.known {
		m.consider(a.unit, a.quota, a.window)
	}
	b.limits = m
	return m
}

func (m *limits) consider(unit byte, quota, window int64) {
	if unit == 'c' {
		m.bounds, m.single = true, true
	}
	if window > 0 && (m.window == 0 || window < m.window) {
		m.window = window
		m.grain = 1
		if quota == 0 || quota > exactUnits {
			m.grain = max(window/400, 1)
		}
	}
}

// exactUnits is up to which quota every unit is remembered by itself.
const exactUnits = 100

func unitOf(u heed.Unit) byte {
	switch u {
	case "", heed.UnitRequests:
		return 'r'
	case heed.UnitContentBytes:
		return 'b'
	case heed.UnitConcurrentRequests:
		return 'c'
	}
	return 0
}

func idOf(name, key string) string {
	return name + "\n" + base64.RawStdEncoding.EncodeToString([]byte(key))
}

// take grants a, or says why not.
func (b *book) take(ctx context.Context, a *ask) (got, error) {
	now := time.Now()
	b.mu.Lock()
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
	case b.down != nil && now.Before(b.retryAt) && b.l.o.OnOutage == Fail:
		err := b.down
		b.mu.Unlock()
		return got{}, err
	}
	a.ready = make(chan got, 1)
	b.askers = append(b.askers, a)
	b.pump(now)
	b.mu.Unlock()
	select {
	case g := <-a.ready:
		return g, g.err
	case <-ctx.Done():
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

func (b *book) drop(a *ask) {
	if i := slices.Index(b.askers, a); i >= 0 {
		b.askers = slices.Delete(b.askers, i, i+1)
	}
}

// fromHand grants one request of a from the units in hand.
func (b *book) fromHand(now time.Time, a *ask) (got, bool) {
	if b.limits != a.limits || a.limits.single || b.down != nil || b.closed {
		return got{}, false
	}
	for len(b.hand) > 0 {
		lot := &b.hand[0]
		if lot.n == 0 || now.After(lot.until) {
			b.giveUp(now, a.limits, lot)
			b.hand = b.hand[1:]
			continue
		}
		lot.n--
		b.takes++
		g := got{ok: true, left: b.left, grant: b.grant(now, a, lot.x, lot.seen, false)}
		if g.left >= 0 {
			g.left += b.inHand()
		}
		return g, true
	}
	b.hand = nil
	return got{}, false
}

// inHand is how many requests the units in hand are for.
func (b *book) inHand() (n int64) {
	for i := range b.hand {
		n += b.hand[i].n
	}
	return n
}

// giveUp returns what is left of a lot.
func (b *book) giveUp(now time.Time, m *limits, l *lot) {
	if l.n > 0 {
		b.move(move{l.x, 0, m.cost.Requests, m.cost.Bytes}, l.n, 0)
		b.flushBy(now.Add(b.patience()))
		l.n = 0
	}
}

// emptyHand returns all units in hand.
func (b *book) emptyHand(now time.Time) {
	for i := range b.hand {
		b.giveUp(now, b.limits, &b.hand[i])
	}
	b.hand = nil
}

// patience is how long news that others could use may wait for a question to
// ride along with.
func (b *book) patience() time.Duration {
	if b.waiting > 0 {
		return 0
	}
	if b.limits == nil || b.limits.window == 0 {
		return 50 * time.Millisecond
	}
	return min(max(time.Duration(b.limits.window/50)*time.Microsecond, 5*time.Millisecond), 250*time.Millisecond)
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
			if !g.ok && a.stay && (a.deadline.IsZero() || !now.Add(g.wait).After(a.deadline)) {
				b.until = now.Add(g.wait)
				b.arm(now)
				return
			}
			a.ready <- g
			b.askers = b.askers[1:]
			continue
		}
		if b.refused == a.limits && now.Before(b.until) {
			if b.dismiss(now); len(b.askers) > 0 && b.askers[0].limits == a.limits {
				break // they stay
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
		if a.limits != b.refused || a.stay && (a.deadline.IsZero() || !b.until.After(a.deadline)) {
			return false
		}
		a.ready <- g
		return true
	})
}

// fly sends a question off. b.mu is held.
func (b *book) fly(now time.Time, do string) {
	b.flying = true
	b.landed = make(chan struct{})
	b.measure(now)
	q := &question{Do: do, Birth: b.birth}
	var first *ask
	if do == "ask" {
		first = b.askers[0]
		b.fillAsk(q, first)
	} else if b.limits != nil {
		q.Limits, q.Announced = b.limits.list, b.limits.heard
	}
	if b.birth != "" && b.past.any(b.clock.now(now)) {
		q.History = 1
	}
	b.slots.count(now, b, q, first)
	if !b.clock.at.IsZero() { // else it is not known what to tell
		b.alone.tell(&b.report)
	}
	if b.unacked == nil {
		if b.unacked = b.report.ops(now); b.unacked != nil {
			b.batch++
		}
		b.flushAt = time.Time{}
	}
	q.Ops, q.Batch = b.unacked, b.batch
	go func() {
		late := func(r *reply) { b.cameLate(q, r) }
		r, err := b.l.run(context.Background(), b.name.origin, b.name.partition, q, late)
		b.land(q, first, r, err)
	}()
}

// measure brings the rate of requests up to date.
func (b *book) measure(now time.Time) {
	if d := now.Sub(b.since).Seconds(); d > 0 {
		const memory = 0.25
		b.rate += (float64(b.takes+int64(len(b.askers)))/d - b.rate) * (1 - math.Exp(-d/memory))
		b.takes, b.since = 0, now
	}
}

// worthALease is the least number of requests worth taking units for in advance.
const worthALease = 4

func (b *book) fillAsk(q *question, first *ask) {
	m := first.limits
	q.Limits, q.Announced, q.MinInterval, q.MinPause, q.MaxInFlight = m.list, m.heard, m.iv, m.mp, m.mc
	q.Requests, q.Bytes, q.Concurrent = m.cost.Requests, m.cost.Bytes, m.cost.Concurrent
	q.Latency, q.RTT = micros(first.latency), micros(b.rtt)
	for _, a := range b.askers {
		if a.limits == m {
			q.Imm++
			q.Need += a.need
			q.Want += a.want
			if a.queue {
				q.Queue = 1
			}
		}
	}
	hold := b.l.o.Lease
	if m.window > 0 {
		hold = min(hold, time.Duration(m.window/40)*time.Microsecond)
	}
	switch {
	case m.single:
		q.Need, q.Imm = 1, 1
		return
	case hold <= 0:
		q.Need = q.Imm // who has asked, and nothing in advance
		return
	}
	if n := b.rate * hold.Seconds(); n >= worthALease {
		q.Extra = int64(math.Ceil(n))
		if most := int64(b.l.o.LeaseMax); most > 0 {
			q.Extra = min(q.Extra, most)
		}
	}
	q.Hold = micros(hold)
}

// land takes in the answer to q, which was asked for first and others like it.
func (b *book) land(q *question, first *ask, r *reply, err error) {
	if err == nil && r.status == tell {
		b.l.keepSeed()
	}
	b.mu.Lock()
	now := time.Now()
	var news []heed.News
	if err != nil {
		b.lost(now, q, err)
	} else {
		news = b.hear(now, q, first, r)
	}
	b.mu.Unlock()
	// Others learn of it before those who asked act on it.
	b.l.tell(news)
	b.mu.Lock()
	defer b.mu.Unlock()
	now = time.Now()
	if err == nil {
		b.serve(now, q, first, r, news)
	}
	b.flying = false
	close(b.landed)
	b.pump(now)
}

// lost notes that Redis did not answer.
func (b *book) lost(now time.Time, q *question, err error) {
	fresh := b.down == nil
	if fresh {
		b.failures = 0
	}
	b.down, b.retryAt = err, now.Add(min(tryAgainAfter<<b.failures, tryAgainAtMost))
	b.failures = min(b.failures+1, 8)
	b.slots.undo(b, q)
	if b.l.o.OnOutage == GoAlone {
		b.emptyHand(now)
		if fresh || b.alone == nil {
			b.alone = b.newAlone()
		}
		return
	}
	for _, a := range b.askers {
		a.ready <- got{err: err}
	}
	b.askers = nil
}

// hear takes in what a reply says of the partition; it returns what others in
// this process should know.
func (b *book) hear(now time.Time, q *question, first *ask, r *reply) []heed.News {
	if by := b.clock.set(r); by != 0 {
		b.past.shift(by)
		b.alone.shift(by)
	}
	b.alone.tell(&b.report)
	b.down, b.alone = nil, nil
	took := r.came.Sub(r.sent)
	b.rtt = min(max(took, b.rtt-b.rtt/8), maxRTT)
	if r.status == tell {
		b.slots.undo(b, q)
		b.birth, b.resets = r.birth, r.resets
		b.unacked = b.report.restore(b.unacked, &b.past)
		if b.unacked != nil {
			b.batch++
		}
		b.hand = nil // it is among the past
		b.until = time.Time{}
		return nil
	}
	b.unacked = nil
	if len(b.report.adds) > 0 {
		b.flushBy(now)
	}
	b.clients, b.waiting = r.clients, r.waiting
	var news []heed.News
	if b.birth == r.birth && b.resets < r.resets {
		b.forget(r.resets)
		news = append(news, heed.News{Origin: b.name.origin, Reset: true, Ask: true})
	}
	b.birth, b.resets = r.birth, r.resets
	if r.pause > 0 {
		news = append(news, heed.News{Origin: b.name.origin, Partition: b.name.partition, Pause: r.pause, Doubt: r.doubt})
	}
	if r.whole > 0 {
		news = append(news, heed.News{Origin: b.name.origin, Pause: r.whole, Doubt: r.wdoubt, Manual: r.manual})
	}
	if fresh := b.learn(now, r.announced); len(fresh) > 0 {
		news = append(news, heed.News{Origin: b.name.origin, Partition: b.name.partition, Policies: fresh})
	}
	return news
}

// maxRTT bounds what a slow answer can make units wait.
const maxRTT = 100 * time.Millisecond

// learn takes in the announced policies that Redis knows of; it returns those
// that are news here.
func (b *book) learn(now time.Time, list []*announced) (fresh []heed.Policy) {
	changed := len(list) != len(b.known)
	for _, a := range list {
		was := b.known[a.id]
		if was == nil {
			if p, ok := a.policy(); ok {
				fresh = append(fresh, p)
			}
		}
		changed = changed || was == nil || was.quota != a.quota || was.window != a.window
	}
	if changed { // so may what can be taken in advance
		b.emptyHand(now)
		b.limits = nil
		clear(b.known)
	}
	for _, a := range list {
		b.known[a.id] = a
	}
	return fresh
}

// serve hands out what a reply grants.
func (b *book) serve(now time.Time, q *question, first *ask, r *reply, news []heed.News) {
	defer b.remember()
	if q.Do != "ask" || r.status == tell {
		return
	}
	b.left = r.left
	if r.status == refused {
		b.slots.undo(b, q)
		b.until, b.refused = r.came.Add(r.wait), first.limits
		b.cause, b.policy = causeOf(r.cause), r.policy
		for _, a := range b.askers {
			if a.limits == first.limits && !a.stay {
				a.ready <- got{wait: b.until.Sub(now), cause: b.cause, policy: b.policy, left: b.left, news: news}
			}
		}
		b.askers = slices.DeleteFunc(b.askers, func(a *ask) bool { return a.limits == first.limits && !a.stay })
		return
	}
	b.until = time.Time{}
	m := first.limits
	b.past.add(m, r.announced, r.x0, r.now0)
	b.past.add(m, r.announced, r.x1, r.later)
	at := r.now0
	b.askers = slices.DeleteFunc(b.askers, func(a *ask) bool {
		if at == 0 || a.limits != m {
			return false
		}
		at--
		b.takes++
		a.ready <- got{ok: true, left: r.left, grant: b.grant(now, a, r.x0, r.announced, q.pending), news: news}
		return true
	})
	if at > 0 { // who asked has left
		b.giveUp(now, m, &lot{x: r.x0, n: at})
		b.slots.undo(b, q)
	}
	if b.limits != m {
		b.giveUp(now, m, &lot{x: r.x1, n: r.later})
	} else if r.later > 0 {
		b.hand = append(b.hand, lot{x: r.x1, n: r.later, until: r.sent.Add(time.Duration(q.Hold) * time.Microsecond), seen: r.announced})
	}
}

func causeOf(s string) heed.Cause {
	switch s {
	case "policy":
		return heed.CausePolicy
	case "pause":
		return heed.CausePause
	case "interval":
		return heed.CauseInterval
	case "concurrency":
		return heed.CauseConcurrency
	case "queue":
		return heed.CauseQueue
	}
	return heed.CauseLedger
}
