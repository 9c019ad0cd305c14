package heed

import (
	"slices"
	"sync"
	"time"
)

// An origin is the state of one origin. Its lock guards it and all its
// partitions; nothing waits or talks while it is held.
type origin struct {
	reg  *Registry
	name string

	bodies []*Dialect // that read the bodies of its answers; never changed
	majors []string   // segments of a path that tell budgets of one name apart

	mu         sync.Mutex
	now        time.Time // when something happened last
	gone       bool      // forgotten: look the origin up again
	limits     *Limits
	version    uint64 // of the overrides that limits were looked up in
	partitions []*partition
	byKey      map[partitionKey]*partition // where there are more than a few
	created    int                         // partitions ever made: each one's number
	lastUsed   time.Time                   // by Acquire, Observe or Release

	clock   serverClock
	pause   pause
	backoff backoff
	opening opening       // of all partitions, after what paused all of them
	reserve reserve       // of time for answers, where deadlines come
	shared  commonSharing // what a shared ledger says of all partitions

	// What was started.
	lastStart time.Time
	lastSent  time.Time     // when what was started then was sent, if later
	together  int           // starts at that instant that were not taken back
	earlier   starts        // the last before that instant
	lastEnd   time.Time     // when a request was over last
	interval  time.Duration // WithMinInterval's, of the last start
	inFlight  int           // requests whose bodies are not over
	listening int           // refusals of all partitions whose bodies are being looked at

	// What the origin announced, and to whom it holds.
	known       []knownPolicy // for partitions to come
	opened      bool          // met, and announced nothing: partitions to come need not scout
	routes      *routes       // which requests belong to which budget; nil: there is but one
	stated      *routes       // which policies answers have stated by name, as long as they hold all; nil: none
	named       bool          // the names of policies are budgets
	apart       bool          // routes have budgets that only numbers tell apart …
	apartFailed int           // … and so often one of them turned out to have none
	announcers  announcers    // which routes announce something, if not all do
	own         []string      // routes with limits of their own that only refusals tell of …
	ownFailed   int           // … and how often one of them turned out to have none

	// Who waits.
	waiting int
	spaced  int      // of those in line, how many ask for an interval of their own …
	due     *waiter  // … and the one that the origin is kept free for; nil: none
	stirred bool     // something changed for all partitions: wake them all
	held    obstacle // what holds all who take turns; zero: nothing
	turns   ranking[*partition, byHead]
	alarms  ranking[*partition, byAlarm]
	certain [3]int      // of all who wait, how many are certain to go before newcomers, by falling priority
	timer   *time.Timer // for the first of either; nil: none
	alarm   time.Time   // when it goes off

	waited  time.Duration // in all
	warned  bool          // that it was much
	nested  bool          // warned that a request waits for what its parent holds
	pending []Event       // to be told once the lock is free

	spellings []spelling // in the registry's map; guarded by the registry's lock
}

// Starts are those at one instant, as many as were not taken back.
type starts struct {
	at time.Time
	n  int
}

// started notes a start.
func (o *origin) started(now time.Time) {
	if !o.lastStart.Equal(now) {
		o.earlier, o.lastStart, o.together = starts{o.lastStart, o.together}, now, 0
	}
	o.together++
}

// went notes that what was started at an instant is sent only now.
func (o *origin) went(now, start time.Time) {
	if o.lastStart.Equal(start) {
		o.lastSent = now
	}
}

// lastGone is when the last request was sent, as far as is known: others keep an interval from then on.
func (o *origin) lastGone() time.Time { return latest(o.lastStart, o.lastSent) }

// takeBack undoes started for a request that was not sent in the end. earlier were the last before it.
func (o *origin) takeBack(start time.Time, earlier starts) {
	if !o.lastStart.Equal(start) {
		return
	}
	if o.together--; o.together > 0 {
		return
	}
	o.lastStart, o.together, o.lastSent = earlier.at, earlier.n, time.Time{}
	o.stirred = o.stirred || o.spaced > 0 // who wants to be woken an interval after is to be sooner
}

// A knownPolicy is a policy and the budget it is of.
type knownPolicy struct {
	Policy
	budget string
}

// A partition is an origin's quota for one credential.
type partition struct {
	origin   *origin
	key      partitionKey
	number   int
	route    string // the only one, where that has a limit of its own; else ""
	lastUsed time.Time

	slots    []*slot
	cuts     []*slot // that hold for longer than is waited for, which was told and not yet that it is over
	kin      *kin    // nil: no route of its credential has a limit of its own
	smoother smoother
	opening  opening
	pause    pause
	backoff  backoff
	cap      concurrency
	learner  learner
	suspect  *suspect // nil: no refusal told of a limit
	shared   *sharing // nil: this process alone
	inTurn   inTurn
	watched  []watched // routes that may have limits of their own

	queue      queue                     // of requests in no lane
	lanes      []*lane                   // nil: all requests are counted alike
	parked     ranking[*waiter, byRetry] // waiting for their own next try, outside the queue
	inFlight   flights
	unanswered int
	listening  int           // refusals whose bodies are being looked at
	slowest    time.Duration // of recent answers, fading
	lastStart  time.Time
	lastWell   time.Time // latest answer that was no refusal
	refusals   int64
	waited     time.Duration
	news       bool // something changed that may put deadlines out of reach

	first   *waiter   // whose turn is the partition's; nil: it takes none
	turn    int       // its place among those that take turns
	alarm   time.Time // when it is to take turns again; zero: not by time
	bell    int       // its place among those that want to be woken
	index   int       // in the origin's partitions
	certain [3]int    // who wait and are certain to go, by falling priority
}

// fewPartitions is how many are found faster without a map.
const fewPartitions = 8

// partition returns the partition of that key, nil where there is none.
func (o *origin) partition(key partitionKey) *partition {
	if o.byKey != nil {
		return o.byKey[key]
	}
	for _, p := range o.partitions {
		if p.key == key {
			return p
		}
	}
	return nil
}

// newPartition is called with o.mu held. route: the only one it is for; "": it is for all.
func (o *origin) newPartition(key partitionKey, route string, now time.Time) *partition {
	p := &partition{origin: o, key: key, route: route, number: o.created, lastUsed: now, shared: o.reg.newSharing()}
	o.created++
	o.reg.size.Add(1)
	switch {
	case o.pause.holds(now):
		p.opening.start(now)
	case !o.opened:
		p.opening.meet(now)
	}
	if q := o.kinOf(key, route); q != nil {
		p.joinKin(q)
	} else {
		p.configure(now, true)
		p.announceKnown(now)
	}
	p.index = len(o.partitions)
	o.partitions = append(o.partitions, p)
	o.stirred = o.stirred || p.index == 1 // the other one has been judged alone
	switch {
	case o.byKey != nil:
		o.byKey[key] = p
	case len(o.partitions) > fewPartitions:
		o.byKey = make(map[partitionKey]*partition)
		for _, p := range o.partitions {
			o.byKey[p.key] = p
		}
	}
	return p
}

// announceKnown has the partition keep to what the origin announced to others.
func (p *partition) announceKnown(now time.Time) {
	if p.origin.limits.IgnoreHeaders { // they are from before that was set
		return
	}
	for _, k := range p.origin.known {
		s := newSlot(k.Policy, SourceAnnounced)
		s.met, s.budget = now, k.budget
		p.slots = append(p.slots, s)
	}
}

// remove forgets a partition.
func (o *origin) remove(now time.Time, p *partition) {
	p.resume(now)
	p.leaveKin()
	p.slots = nil
	p.uncut(now)
	o.reg.size.Add(-1)
	p.standAside(time.Time{})
	last := len(o.partitions) - 1
	o.partitions[p.index] = o.partitions[last]
	o.partitions[p.index].index = p.index
	o.partitions[last] = nil
	o.partitions = o.partitions[:last]
	delete(o.byKey, p.key)
	if len(o.partitions) <= fewPartitions/2 {
		o.byKey = nil
	}
}

// forgotten reports whether the partition is none of its origin's any more: only permits that are over know it yet.
func (p *partition) forgotten() bool {
	all := p.origin.partitions
	return p.index >= len(all) || all[p.index] != p
}

// configure makes the partition's configured slots those of the origin's
// limits; one whose policy is as before goes on as it is. charge: requests in
// flight count in a new one, for the origin may yet count them.
func (p *partition) configure(now time.Time, charge bool) {
	old := p.slots
	p.slots = nil
	take := func(fits func(*slot) bool) *slot { // of several the one with the shortest window
		best := -1
		for i, s := range old {
			if s != nil && s.source == SourceConfigured && fits(s) && (best < 0 || s.policy.Window < old[best].policy.Window) {
				best = i
			}
		}
		if best < 0 {
			return nil
		}
		s := old[best]
		old[best] = nil
		return s
	}
	policies := p.origin.limits.Policies
	kept := make([]*slot, len(policies))
	for _, fits := range []func(*slot, *Policy) bool{ // what goes on best goes on first
		func(s *slot, p *Policy) bool { return s.policy == *p },
		func(s *slot, p *Policy) bool { return s.fits(p) && s.policy.Window == p.Window },
		func(s *slot, p *Policy) bool { return s.fits(p) && s.policy.Window > p.Window }, // a shorter one has forgotten some
		(*slot).fits,
	} {
		for i := range policies {
			if kept[i] == nil {
				kept[i] = take(func(s *slot) bool { return fits(s, &policies[i]) })
			}
		}
	}
	for i, pol := range policies {
		s := kept[i]
		if s != nil && s.policy != pol {
			s.resize(now, pol)
		}
		if s == nil {
			s = newSlot(pol, SourceConfigured)
			if charge || pol.Unit == UnitConcurrentRequests {
				p.charge(now, s)
			}
		}
		p.slots = append(p.slots, s)
	}
	for _, s := range old {
		switch {
		case s == nil:
		case s.source == SourceConfigured, s.source == SourceAnnounced && p.origin.limits.IgnoreHeaders:
			p.closeAccounts(s)
		default:
			p.slots = append(p.slots, s)
		}
	}
}

// fits reports whether a configured slot can go on as the one of another policy.
// A bucket's books are none of a window.
func (s *slot) fits(p *Policy) bool {
	return s.policy.Name == p.Name && s.policy.Unit == p.Unit && s.policy.isBucket() == p.isBucket()
}

// dropSlot forgets one policy.
func (p *partition) dropSlot(s *slot) {
	p.slots = slices.DeleteFunc(slices.Clone(p.slots), func(other *slot) bool { return other == s }) // some are just walking through them
	p.news = true
	p.closeAccounts(s)
}

// closeAccounts has requests in flight forget what they took of a slot that is
// gone: some are in flight for days.
func (p *partition) closeAccounts(s *slot) {
	for pm := p.inFlight.oldest; pm != nil; pm = pm.younger {
		pm.charges = slices.DeleteFunc(pm.charges, func(c charge) bool { return c.slot == s })
	}
}

// charge charges requests in flight to a slot that was none of theirs: they may or may
// not be counted in what is said of it.
func (p *partition) charge(now time.Time, s *slot) {
	if !s.enforced() {
		return
	}
	for pm := p.inFlight.oldest; pm != nil; pm = pm.younger {
		if s.budget != "" && !p.mayCount(s.budget, pm) || pm.pays(s) {
			continue
		}
		c := s.take(now, p.cost(s, &ask{opts: &noOptions}))
		if pm.answered {
			s.settle(now, pm.start, &c)
		}
		pm.charges = append(pm.charges, c)
	}
}

// pays reports whether the permit's request is counted in a slot.
func (pm *Permit) pays(s *slot) bool {
	return slices.ContainsFunc(pm.charges, func(c charge) bool { return c.slot == s })
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

// waiting is how many requests wait in the partition.
func (p *partition) waiting() int { return p.queued() + p.parked.len() }

// busy reports whether requests of the partition are waiting or in flight.
func (p *partition) busy() bool { return p.waiting() > 0 || p.inFlight.oldest != nil }

// touch notes that the partition is in use.
func (p *partition) touch(now time.Time) { p.lastUsed, p.origin.lastUsed = now, now }

// rest returns the instant from which forgetting the partition loses nothing:
// its quotas are restored, its pauses over, and so are the origin's and the
// intervals between its requests.
func (p *partition) rest(now time.Time) time.Time {
	o := p.origin
	at := latest(p.pause.until, o.pause.until)
	if !o.lastStart.IsZero() {
		at = latest(at, o.lastGone().Add(max(o.limits.MinInterval, o.interval)))
	}
	if !o.lastEnd.IsZero() {
		at = latest(at, o.lastEnd.Add(o.limits.MinPause))
	}
	for _, s := range p.slots {
		if p.kin == nil || s.source == SourceLearned { // else others keep it
			at = latest(at, s.rest(now))
		}
	}
	for _, l := range p.lanes {
		at = latest(at, l.pause.until)
	}
	return at
}

// reset makes o as if it had just been met, save for requests in flight and
// that nobody has to go ahead.
func (o *origin) reset(now time.Time) {
	o.resume(now)
	o.rejoin(now, nil)
	o.backoff, o.lastStart, o.lastSent, o.lastEnd, o.interval = backoff{}, time.Time{}, time.Time{}, time.Time{}, 0
	o.opening = opening{serial: o.opening.serial + 1}
	o.known, o.opened, o.waited, o.warned, o.nested, o.reserve = nil, false, 0, false, false, reserve{}
	o.stated, o.named, o.apart, o.apartFailed, o.ownFailed, o.announcers = nil, false, false, 0, 0, announcers{}
	if o.routes != nil {
		o.routes = nil
		o.sort(now)
	}
	for _, p := range o.partitions {
		p.backoff, p.cap, p.smoother, p.learner = backoff{}, concurrency{}, smoother{}, learner{}
		p.opening = opening{serial: p.opening.serial + 1}
		p.lanes, p.watched, p.suspect = nil, nil, nil
		p.lastWell, p.waited = time.Time{}, 0
		for pm := p.inFlight.oldest; pm != nil; pm = pm.younger {
			pm.charges = nil
		}
		p.slots = nil
		p.configure(now, false)
		p.uncut(now)
		p.shared.forget()
		for _, w := range p.parked.items {
			w.notBefore = time.Time{}
		}
	}
}

// resume ends all pauses, and tells of those that nobody has been told are over.
func (o *origin) resume(now time.Time) {
	if o.pause.open {
		o.emit(Event{Kind: EventResumed, Time: now, Whole: true, Manual: o.pause.manual()})
	}
	o.pause.end()
	o.shared.until = time.Time{}
	for _, p := range o.partitions {
		p.resume(now)
	}
}

// resume does so for the partition's own.
func (p *partition) resume(now time.Time) {
	if p.pause.open {
		p.emit(Event{Kind: EventResumed, Time: now})
	}
	p.pause.end()
	if p.suspect != nil {
		p.suspect.others.end()
	}
	for _, l := range p.lanes {
		p.resumeLane(now, l)
	}
}
