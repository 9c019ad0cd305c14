package heed

import (
	"sync"
	"time"
)

// An origin is the state of one origin. Its lock guards it and all its
// partitions; nothing waits or talks while it is held.
type origin struct {
	reg  *Registry
	name string

	mu         sync.Mutex
	gone       bool // forgotten: look the origin up again
	limits     *Limits
	overrides  *overrides // that limits were looked up in
	partitions map[partitionKey]*partition
	created    int       // partitions ever made: each one's number
	lastUsed   time.Time // by Acquire, Observe or Release

	pause     pause
	backoff   backoff
	lastStart time.Time
	lastEnd   time.Time
	inFlight  int // requests whose bodies are not over
	waiting   int
	waited    time.Duration // in all
	warned    bool          // that it was much
	nested    bool          // warned that a request waits for what its parent holds
	known     []Policy      // announced, for partitions to come
	opened    bool          // met, and announced nothing: partitions to come need not scout

	pending []Event // to be told once the lock is free

	spellings []spelling // in the registry's map; guarded by the registry's lock
}

// A partition is an origin's quota for one credential.
type partition struct {
	origin   *origin
	key      partitionKey
	number   int
	lastUsed time.Time

	slots    []*slot
	smoother smoother
	opening  opening
	pause    pause
	backoff  backoff
	cap      concurrency
	shared   *sharing // nil: this process alone
	learner  learner

	queue      queue
	parked     []*waiter // waiting for their own next try, outside the queue
	inFlight   flights
	unanswered int
	slowest    time.Duration // of recent answers, fading
	lastWell   time.Time     // latest answer that was no refusal
	refusals   int64
	waited     time.Duration
	news       bool // something changed that may put deadlines out of reach

	timer *time.Timer // for the head; nil: none
	alarm time.Time   // when it goes off
}

// newPartition is called with o.mu held.
func (o *origin) newPartition(key partitionKey, now time.Time) *partition {
	p := &partition{origin: o, key: key, number: o.created, lastUsed: now, shared: o.reg.newSharing()}
	o.created++
	if !o.opened {
		p.opening.start(now)
	}
	p.configure()
	for _, pol := range o.known {
		p.slots = append(p.slots, newSlot(pol, SourceAnnounced))
	}
	if o.partitions == nil {
		o.partitions = make(map[partitionKey]*partition, 1)
	}
	o.partitions[key] = p
	return p
}

// configure makes the partition's configured slots those of the origin's
// limits; one whose policy is as before goes on as it is.
func (p *partition) configure() {
	var slots []*slot
	for _, pol := range p.origin.limits.Policies {
		s := p.slot(SourceConfigured, pol.Name, pol.PartitionKey, pol.Unit)
		if s == nil {
			s = newSlot(pol, SourceConfigured)
		} else if s.policy != pol {
			s.resize(pol)
		}
		slots = append(slots, s)
	}
	for _, s := range p.slots {
		if s.source != SourceConfigured && !(s.source == SourceAnnounced && p.origin.limits.IgnoreHeaders) {
			slots = append(slots, s)
		}
	}
	p.slots = slots
}

// slot returns the slot of a policy, nil where there is none.
func (p *partition) slot(source Source, name, key string, unit Unit) *slot {
	for _, s := range p.slots {
		if s.source == source && s.policy.Name == name && s.policy.PartitionKey == key && (unit == "" || s.policy.Unit == unit) {
			return s
		}
	}
	return nil
}

// patience is how long a request sent ahead may go unanswered before another
// one goes.
func (p *partition) patience() time.Duration { return max(time.Second, 2*p.slowest) }

// emit notes an event to be told once the lock is free.
func (p *partition) emit(e Event) {
	o := p.origin
	e.Partition = p.number
	e.Queue = p.queue.len + len(p.parked)
	o.emit(e)
}

func (o *origin) emit(e Event) {
	if !o.reg.listens(e.Kind) {
		return
	}
	e.Origin = o.name
	o.pending = append(o.pending, e)
}

// unlock releases the origin and tells what happened, on the caller's
// goroutine, with no lock held.
func (o *origin) unlock() {
	events := o.pending
	o.pending = nil
	o.mu.Unlock()
	for i := range events {
		o.reg.tell(&events[i])
	}
}

// idle reports whether nothing of the origin is waiting, in flight or held.
func (o *origin) idle(now time.Time) bool {
	return o.inFlight == 0 && o.waiting == 0 && !now.Before(o.rest(now))
}

// rest returns the instant from which forgetting the origin loses nothing:
// its quotas are restored, its pauses and intervals over.
func (o *origin) rest(now time.Time) time.Time {
	at := o.pause.until
	if !o.lastStart.IsZero() {
		at = latest(at, o.lastStart.Add(o.limits.MinInterval))
	}
	if !o.lastEnd.IsZero() {
		at = latest(at, o.lastEnd.Add(o.limits.MinPause))
	}
	for _, p := range o.partitions {
		at = latest(at, p.rest(now))
	}
	return at
}

func (p *partition) rest(now time.Time) time.Time {
	at := p.pause.until
	for _, s := range p.slots {
		at = latest(at, s.rest(now))
	}
	return at
}

// busy reports whether requests of the partition are waiting or in flight.
func (p *partition) busy() bool {
	return p.queue.len > 0 || len(p.parked) > 0 || p.inFlight.oldest != nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
