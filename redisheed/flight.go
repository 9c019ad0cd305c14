package redisheed

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/heedhttp/heed"
)

// fly sends a question off, as soon as it is its turn. b.mu is held.
func (b *book) fly(now time.Time, do string) {
	b.flying, b.errand, b.set = true, do, now
	b.landed = make(chan struct{})
	m := b.limits
	if do == "ask" {
		m = b.askers[0].limits
	}
	if m == nil || !m.whole || b.slots.begin(b) {
		b.takeOff(now)
	}
}

// follow sends off a question whose turn has come after another one, or has it fail where that one failed: it
// would wait for the same Redis.
func (b *book) follow(err error) {
	b.mu.Lock()
	now := time.Now()
	switch {
	case err != nil:
		b.lost(now, &question{}, err)
	case !b.closed:
		if len(b.askers) == 0 { // they have left
			b.errand = "tell"
		}
		b.takeOff(now)
		b.mu.Unlock()
		return
	}
	next := b.over(now)
	b.mu.Unlock()
	if next != nil {
		go next.follow(err)
	}
}

// over ends a flight; it returns whose is next. b.mu is held.
func (b *book) over(now time.Time) (next *book) {
	b.flying = false
	close(b.landed)
	next = b.slots.end(b)
	b.pump(now)
	return next
}

// takeOff sends the question. b.mu is held.
func (b *book) takeOff(now time.Time) {
	do := b.errand
	b.measure(now)
	q := &question{Do: do, Birth: b.birth, Begun: b.begun}
	var first *ask
	if do == "ask" {
		first = b.askers[0]
		b.fillAsk(q, first)
	} else if b.limits != nil {
		q.Limits, q.Announced, q.Most = b.limits.list, b.limits.heard, b.limits.most
		q.MinPause = b.limits.mp // of which a request that is over is the beginning
	}
	if b.birth != "" && b.uses(now) {
		q.History = 1
	}
	if b.down != nil {
		q.Away = micros(min(now.Sub(b.heardAt), time.Minute)) // who has never heard of it cannot tell; Redis knows of no more
	}
	b.slots.count(now, b, q, first)
	if !b.clock.at.IsZero() { // else it is not known what to tell
		b.alone.tell(&b.report)
	}
	if b.unacked == nil {
		b.tells(b.report)
		b.report = report{}
	}
	if b.report.empty() {
		b.flushAt = time.Time{}
	}
	q.Ops, q.Batch = b.unacked.ops(now), b.batch
	q.Flight, q.Heard = b.l.numbers.Add(1), b.heard
	if do == "ask" {
		b.asked = q.Flight
	}
	name := b.name
	go func() {
		late := func(r *reply) { b.cameLate(q, r) }
		r, err := b.l.run(context.Background(), name.origin, name.partition, q, late)
		b.land(q, first, r, err)
	}()
}

// tells has the next question, and if need be those after it, tell what is in r.
func (b *book) tells(r report) {
	if b.unacked = nil; !r.empty() {
		b.unacked, b.batch = &r, b.l.numbers.Add(1)
	}
}

// uses reports whether Redis has to know of anything that is in use at now.
func (b *book) uses(now time.Time) bool {
	return b.past.any(b.clock.now(now)) || b.limits != nil && b.limits.bounds && b.slots.any(b)
}

// measure brings the rate of requests up to date.
func (b *book) measure(now time.Time) {
	if d := now.Sub(b.since).Seconds(); d > 0 {
		const memory = 0.25
		b.rate += (float64(b.takes+int64(len(b.askers)))/d - b.rate) * (1 - math.Exp(-d/memory))
		b.takes, b.since = 0, now
	}
}

// margin is the share of a window that units are booked later by than recent
// answers took: what is late has to be told, what is early can wait for the
// next question.
const margin = 100

// worthALease is the least number of requests worth taking units for in advance.
const worthALease = 4

func (b *book) fillAsk(q *question, first *ask) {
	m := first.limits
	m.put(q)
	q.Latency, q.RTT = micros(first.latency), micros(b.rtt)
	if !first.plain {
		q.Latency += m.window / margin
	}
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
	q.More = b.open.n // whose answers others may be waiting for, to send the next
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
	if n := b.rate * (hold + b.rtt).Seconds(); n >= worthALease { // those who come while the answer is on its way are there when it comes
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
	} else if err == nil && b.l.seedIsDue() {
		go b.l.keepSeed()
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
	now = time.Now()
	if err == nil {
		b.serve(now, q, first, r, news)
	}
	next := b.over(now)
	b.mu.Unlock()
	if next != nil {
		next.follow(err)
	}
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
	if b.asked > b.heard || q.SlotsHere != nil {
		b.flushBy(now) // what it took all the same comes back with the next question
	}
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
	unread := b.clock.at.IsZero()
	by := b.clock.set(r)
	b.alone.shift(by)
	if unread || r.status == tell { // else Redis knows it all by its clock as it was
		b.past.shift(by)
		b.open.shift(by)
	}
	b.alone.tell(&b.report)
	b.down, b.alone = nil, nil
	b.heard, b.heardAt = q.Flight, r.sent
	took := r.came.Sub(r.sent)
	b.rtt = max(took, b.rtt-b.rtt/8)
	b.begun = r.begun
	if r.status == tell {
		b.slots.undo(b, q)
		b.birth, b.resets = r.birth, r.resets
		b.tells(b.report.restore(b.unacked, &b.past))
		b.flushBy(now)
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
	if b.slots.endedSince(r.sent) {
		r.pause, r.whole = 0, 0
	}
	if r.pause > 0 || r.whole > 0 {
		b.emptyHand(now)
	}
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
				a.ready <- got{wait: b.until.Sub(now), cause: b.cause, policy: b.policy, whole: r.shut, left: b.left, news: news}
			}
		}
		if r.shut { // it may be over with any request of the origin
			b.until = time.Time{}
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
		b.hand = append(b.hand, lot{x: r.x1, n: r.later, until: r.sent.Add(time.Duration(q.RTT+q.Hold) * time.Microsecond), seen: r.announced})
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
