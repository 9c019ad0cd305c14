package heed

import (
	"hash/maphash"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A learner finds the limit of a partition whose origin announces none and
// only refuses: a rate, or a number of requests in flight.
//
// A rate is measured from one reopening to the next. What was accepted since
// the origin last began to accept, until it does so again after a block, is
// what the limit lets through in that time, be it a fixed window, a sliding
// one or a bucket. When exactly it reopened is known no better than between
// the last probe refused and the first accepted, which bounds the rate on
// both sides. Requests then go evenly, from the lower bound up: fast as long
// as the bounds are far apart, later the slower the more refusals the last
// attempt at more has cost.
//
// Whether it is a limit in flight shows right after the first refusal: one
// request alone is sent at once. Where it is accepted, half of what was in
// flight is, and from there one more at a time; where even one alone is
// refused, it is a rate.
type learner struct {
	since    time.Time // the cycle's beginning: the latest reopening, or the first request
	last     time.Time // latest accepted answer
	accepted int64     // in this cycle

	marks [2]mark // in a long cycle, the beginnings of its latest two parts

	blocked  bool      // refused, and nothing accepted since
	began    time.Time // the block
	refused  time.Time // when the latest refused request had been sent
	refusals int64     // since the block began
	probes   int       // refused in the block
	timed    bool      // the server said when to come back
	timed503 bool      // … with a 503
	blocks   int       // so far
	testing  bool      // it may be for too many in flight: one is sent at once to see
	tooMany  int64     // in flight when it began …
	guess    int64     // … and what was first tried in place of it
	level    int64     // the most in flight in this cycle
	usual    float64   // logarithm of the seconds that accepted requests take, for the most part; 0: not known
	tooFast  float64   // the pace at which it began

	low, high float64 // bounds of the rate, in requests per second; 0: none learned
	cycle     int64   // requests accepted in the cycle they were measured in
	cost      int64   // accepted requests that its block is to be spread over
	pressed   int64   // accepted since the last block while others were waiting
	kept      stretch // at the latest pace
	from      int64   // of them, those before low was raised
	proven    float64 // the latest pace that was kept up for a whole cycle; 0: none

	healthy paths
	sick    paths
}

const (
	learnedPolicy = "learned"
	cautious      = 0.97 // the share of the rate that is used at first
	backOff       = 0.8  // the share of a rate that is tried where it has proven unsafe
	near          = 1.1  // bounds no further apart than this are as good as known
	markEvery     = 100  // accepted requests that make a part of a cycle, at least
	attemptCost   = 200  // accepted requests over which a refusal is to be spread …
	waitCost      = 20   // … and over which one that might have been sent meanwhile
	enough        = 10   // accepted requests that make a measurement, the first time
	plenty        = 30   // … and one that is hardly wrong by a lot
	outageProbes  = 3    // refused at the time the server itself had named, they tell of an outage
	fewAtOnce     = 16   // in flight: with so few, chance decides how many meet at the origin
	idleGap       = 5 * time.Second
)

// learnAccepted takes in that pm's request was accepted.
func (p *partition) learnAccepted(now time.Time, pm *Permit) {
	l := &p.learner
	if l.since.IsZero() || !l.blocked && l.idled(now) {
		l.begin(pm.start)
	}
	l.last = now
	l.took(now.Sub(pm.start))
	l.healthy.add(pm.path)
	l.sick.remove(pm.path)
	if l.blocked && pm.waited == 0 && pm.start.Sub(latest(l.refused, l.began)) > idleGap { // nobody asked: when it reopened nobody knows
		l.blocked, l.testing = false, false
		l.begin(pm.start)
	}
	if l.blocked && (pm.doubted || pm.start.After(l.began)) {
		p.learnReopened(now, pm.start)
	}
	l.accepted++
	l.level = max(l.level, int64(pm.level))
	if m := &l.marks; l.low > 0 && l.accepted-m[1].n >= max(4*l.cycle, markEvery) {
		m[0], m[1] = m[1], mark{now, l.accepted}
	}
	if p.queued() > 0 || pm.waited > 0 {
		l.pressed++
		l.prove()
	}
	if s := p.inFlightLearned(); s != nil && l.pressed >= l.levelPatience(s.policy.Quota) {
		s.policy.Quota++ // is there more?
		s.terms.Quota++
		l.pressed = 0
		p.news = true
	}
	if l.low == 0 {
		return
	}
	p.setLearnedRate(now, l.pace())
}

// A stretch is the time since so many requests had been accepted under
// pressure, and the pace at its beginning.
type stretch struct {
	from int64
	pace float64
}

// prove notes a pace that has been kept up for more requests than a cycle had:
// whatever the limit's window, it lets so many through.
func (l *learner) prove() {
	if l.low == 0 || l.pressed-l.kept.from < max(3*l.cycle/2, enough/2) {
		return
	}
	if l.proven = l.kept.pace; l.proven > l.low {
		l.low, l.high, l.from = l.proven, max(l.high, l.proven), l.pressed
	}
	l.kept = stretch{l.pressed, l.pace()}
}

// took follows how long requests take. The mean of the logarithm is near the
// median, which few slow answers hardly move.
func (l *learner) took(d time.Duration) {
	x := math.Log(max(d, time.Microsecond).Seconds())
	if l.usual == 0 {
		l.usual = x
	}
	l.usual += (x - l.usual) / 8
}

// spacing is how far apart requests go under a limit in flight: so that they are
// evenly on their way. A strict rate may look like such a limit, and refuses
// those that come together.
func (p *partition) spacing() time.Duration {
	s := p.inFlightLearned()
	if s == nil || s.policy.Quota < 2 {
		return 0
	}
	return time.Duration(math.Exp(p.learner.usual) / float64(s.policy.Quota) * float64(time.Second))
}

// begin begins a cycle.
func (l *learner) begin(now time.Time) {
	l.since, l.accepted, l.level, l.marks = now, 0, 0, [2]mark{{at: now}, {at: now}}
}

// A mark is how many requests of a cycle had been accepted at an instant.
type mark struct {
	at time.Time
	n  int64
}

// levelPatience is how many requests have to be accepted at a number in flight
// before one more is tried: few until that has failed once.
func (l *learner) levelPatience(level int64) int64 {
	if l.cost == 0 {
		return 4 * level
	}
	return l.cost
}

// idled reports whether nothing was asked for so long that the time would
// count against the rate.
func (l *learner) idled(now time.Time) bool {
	gap := now.Sub(l.last)
	return gap > idleGap && gap > 4*now.Sub(l.since)/time.Duration(l.accepted+1)
}

// suspects reports whether a refusal that no announced policy explains may
// tell of a limit: the same path was accepted lately, or it is a 429 on a
// path that is not known to be refused while others are not.
func (p *partition) suspects(now time.Time, pm *Permit, status int) bool {
	l := &p.learner
	switch {
	case l.accepted == 0 && l.low == 0:
		return false
	case status >= 500 && p.roomSaid(now):
		return false // what the origin announces is not used up: it has a bad time
	case l.healthy.has(pm.path):
		return true
	case status >= 500, l.sick.has(pm.path):
		return false
	}
	l.sick.add(pm.path)
	return true
}

// roomSaid reports whether the origin announces policies, and none of them
// is used up.
func (p *partition) roomSaid(now time.Time) (any bool) {
	for _, s := range p.slots {
		if s.source == SourceAnnounced && s.enforced() {
			any = true
			if s.remaining(now) == 0 {
				return false
			}
		}
	}
	return any
}

// learnRefused takes in a refusal that may tell of a limit; fresh: it is an
// event of its own; timed: it says when to come back; timed503: and is a 503.
func (p *partition) learnRefused(now time.Time, pm *Permit, fresh, timed, timed503 bool) {
	l := &p.learner
	if pm.start.After(l.refused) {
		l.refused = pm.start
	}
	if l.blocked {
		l.refusals++
		if fresh || pm.doubted {
			l.probes++
			l.testing = false
		}
		if timed503 && l.probes >= outageProbes {
			l.blocked = false // no limit lets nothing through, time and again, when it said it would
			l.begin(now)
		}
		return
	}
	switch s := p.inFlightLearned(); {
	case s == nil:
		l.block(now, timed, timed503)
		// At the server others may have come before those that went first.
		l.tooMany = max(l.level, int64(pm.level))
		l.testing = l.low == 0 && !timed && l.tooMany > 1
	case !fresh, int64(pm.level) > s.policy.Quota: // sent before it was learned
	case s.policy.Quota > l.guess, l.guess <= fewAtOnce && s.policy.Quota > max(l.guess/2, 1):
		s.policy.Quota--
		s.terms.Quota--
		l.cost, l.pressed = max(l.cost, attemptCost), 0
	default: // so many at once had been accepted: it is no such limit, but a rate that they exceed
		p.dropSlot(s)
		l.high = float64(l.guess) * math.Exp(-l.usual)
		l.low, l.cycle = min(rateOf(l.accepted, now.Sub(l.since)), l.high), max(l.accepted, 2)
		l.block(now, timed, timed503)
		l.tooFast = l.high
	}
}

// block begins a block.
func (l *learner) block(now time.Time, timed, timed503 bool) {
	l.blocked, l.began, l.refusals, l.tooFast = true, now, 1, l.pace()
	l.probes, l.timed, l.timed503 = 0, timed, timed503
}

// learnReopened ends a block: the origin accepts again a request sent at start.
func (p *partition) learnReopened(now, start time.Time) {
	l := &p.learner
	l.blocked = false
	fewer := l.testing && start.Sub(l.began) < p.patience() // later it may be for the time that has passed
	if l.testing = false; fewer {
		l.guess = max(l.tooMany/2, 1)
		p.learnLevel(now, l.guess)
		return
	}
	l.blocks++
	if l.low == 0 && l.blocks < 2 && (l.accepted < enough || l.timed503) {
		l.begin(now)
		return // once is no evidence
	}
	n, from := l.accepted, l.since
	if m := l.marks[0]; m.n > 0 { // a long cycle: its latest part, at the latest pace
		n, from = n-m.n, m.at
	}
	low := rateOf(n, now.Sub(from))
	switch {
	case l.low > 0:
		l.narrow(low)
	case l.probes == 0 && l.pressed < n/3: // a bunch may have been refused for being one
		l.low, l.high, l.cycle = low, math.Inf(1), max(n, 2)
	default:
		l.low, l.high, l.cycle = low, rateOf(n, l.refused.Sub(from)), max(n, 2)
	}
	lost := l.low * now.Sub(l.began).Seconds()
	l.cost = max(attemptCost*min(l.refusals, 8), int64(waitCost*lost))
	l.pressed, l.from = 0, 0
	l.begin(now)
	l.kept = stretch{0, l.pace()}
	s := p.setLearnedRate(now, l.pace())
	s.bucket.AllowN(now, 1) // the one that has just been accepted
	p.emit(Event{Kind: EventLearned, Time: now, Policy: learnedPolicy, Quota: max(int64(low), 1), Window: perUnit(low) * time.Duration(max(int64(low), 1)),
		Unit: UnitRequests, Learned: true, Remaining: -1})
}

// narrow narrows the bounds down after a block in which requests at a pace that
// was too fast were refused; let through is what the limit let through in the
// cycle, which is less than the limit where the pace has risen.
func (l *learner) narrow(through float64) {
	high := min(l.high, l.tooFast)
	low := min(l.low, high)
	switch {
	case l.pressed >= l.cycle: // it took a while
		low = max(low, min(l.proven, high))
	case l.tooFast <= near*l.low: // what was taken for safe was not
		low, l.proven = backOff*low, 0
		high = l.tooFast
	}
	if l.probes == 0 { // a small bucket: half of what was too fast was not
		low = max(low, high/2)
	}
	l.low = max(low, min(through, high))
	l.high = max(l.low, high)
}

func rateOf(n int64, d time.Duration) float64 {
	return float64(max(n, 1)) / max(d, time.Millisecond).Seconds()
}

// pace is how fast requests go now, in requests per second.
func (l *learner) pace() float64 {
	base := l.low
	if l.high > near*l.low { // between the bounds: the faster, the further they are apart
		speed := 0.4
		switch {
		case l.high > 4*l.low && l.cycle >= enough && l.timed:
			speed = 0.1 // the server said when to come back, which is a good measure
		case l.high > 4*l.low && l.cycle < plenty:
			speed = 2
		}
		middle := math.Sqrt(l.low * l.high) // high may be +Inf
		return cautious * min(l.low*math.Exp2(min(speed*float64(l.pressed-l.from)/float64(l.cycle), 30)), middle)
	}
	x := float64(l.pressed-l.from) / float64(max(l.cost, attemptCost))
	if x <= 1 {
		return base * (cautious + (1-cautious)*x*x*x)
	}
	x = 4 * (x - 1)
	return base * (1 + (1-cautious)*x*x)
}

func perUnit(r float64) time.Duration { return time.Duration(float64(time.Second) / r) }

// pauseFor is how long to wait after a refusal at a learned rate: until the
// next unit, or until as much time has passed since the cycle began as what
// was accepted takes at the upper bound; twice the former for every further
// refusal in a row. 0: no rate is learned.
func (l *learner) pauseFor(now time.Time, inARow int) time.Duration {
	if l.low == 0 {
		return 0
	}
	next := perUnit(l.pace()) << min(max(inARow-1, 0), 10)
	due := l.since.Add(perUnit(l.high) * time.Duration(l.accepted)).Sub(now)
	return min(max(next, due), defaultMaxBackoff)
}

// setLearnedRate has the learned slot let through r requests per second.
func (p *partition) setLearnedRate(now time.Time, r float64) *slot {
	s := p.slot(SourceLearned, learnedPolicy, "", UnitRequests)
	if s == nil {
		s = &slot{source: SourceLearned, bucket: rate.NewLimiter(rate.Limit(r), 1)}
		p.slots = append(p.slots, s)
	} else {
		s.bucket.SetLimitAt(now, rate.Limit(r))
	}
	s.policy = Policy{Name: learnedPolicy, Quota: 1, Window: perUnit(r), Burst: 1, Unit: UnitRequests}
	s.terms = s.policy
	p.news = true
	return s
}

// inFlightLearned returns the slot of a learned limit in flight, nil where
// there is none.
func (p *partition) inFlightLearned() *slot {
	return p.slot(SourceLearned, learnedPolicy, "", UnitConcurrentRequests)
}

// learnLevel caps requests in flight.
func (p *partition) learnLevel(now time.Time, n int64) {
	s := newSlot(Policy{Name: learnedPolicy, Quota: n, Unit: UnitConcurrentRequests}, SourceLearned)
	for pm := p.inFlight.oldest; pm != nil; pm = pm.younger {
		pm.charges = append(pm.charges, s.take(now, 1))
	}
	p.slots = append(p.slots, s)
	p.news = true
	p.emit(Event{Kind: EventLearned, Time: now, Policy: learnedPolicy, Quota: n, Unit: UnitConcurrentRequests, Learned: true, Remaining: -1})
}

// dropSlot forgets one policy.
func (p *partition) dropSlot(s *slot) {
	slots := make([]*slot, 0, len(p.slots))
	for _, x := range p.slots {
		if x != s {
			slots = append(slots, x)
		}
	}
	p.slots = slots
	p.news = true
}

// paths remembers the hashes of a few paths.
type paths struct {
	hashes [8]uint64
	next   int
}

var pathSeed = maphash.MakeSeed()

func (ps *paths) index(path string) (hash uint64, i int) {
	hash = maphash.String(pathSeed, path) | 1 // 0 is no path
	for i, h := range ps.hashes {
		if h == hash {
			return hash, i
		}
	}
	return hash, -1
}

func (ps *paths) has(path string) bool {
	_, i := ps.index(path)
	return i >= 0
}

func (ps *paths) add(path string) {
	if h, i := ps.index(path); i < 0 {
		ps.hashes[ps.next] = h
		ps.next = (ps.next + 1) % len(ps.hashes)
	}
}

func (ps *paths) remove(path string) {
	if _, i := ps.index(path); i >= 0 {
		ps.hashes[i] = 0
	}
}
