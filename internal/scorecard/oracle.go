package scorecard

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// An oracle is what a client is held against: it knows the origin's algorithms
// and phase, what the origin will do, when others will come, and how long each
// of its requests will be on the way, and it plans with that. It has the same
// number of goroutines, each with one request at a time, and its n-th request
// takes as long as the client's n-th.
//
// It is a good client, not a perfect one, on these terms:
//
//   - It is greedy. As soon as a goroutine is free it sends the next request, at
//     the first start whose arrival will be accepted without costing a request
//     already planned, or one of another client, its place. It is never refused.
//   - It is tried with patience too, and the better of the two counts: the
//     request that takes the last unit then arrives when the reset it is told is
//     exact, so that rounding costs nothing, and not at all in the last second.
//   - It never starts a request before an instant that answers delivered until
//     then have named: the delivery of an answer that says nothing is left plus
//     the reset it announces, whatever later answers say. That is the strict
//     reading of [heedtest.Tally.Early]. A request that starts before such an
//     answer is delivered is free to go, even if it arrives later.
//   - It takes what it can get, the last unit included, and so gets itself told
//     that nothing is left. A client that knew to leave one unit of each window
//     would never be told to wait; where round trips are long against the window
//     it could get more than this oracle. So can one that spreads its requests
//     where the origin counts in a sliding window. A share above 1 is possible.
//   - It needs no first contact: it begins with all its goroutines.
//
// [rules] bind it to more than that.
//
// It runs on a clock of its own.
type oracle struct {
	manner   manner
	config   heedtest.Config
	end      int64
	zero     int64 // the start of the run, since the Unix epoch
	meters   []meter
	trial    []meter // what meters would be
	spaces   [][]int64
	last     []meter // what meters will be after the plan, where fresh
	fresh    bool
	added    int        // to last, since it was made
	plan     []step     // what will arrive, in order
	mine     int        // of it, the oracle's own
	answers  []delivery // on their way back, in order
	free     int
	bound    int64  // nothing starts before
	stamped  int64  // answers so far
	outage   int64  // until then, all is refused
	rules    *rules // nil: none but the instants that the origin names
	blind    int    // of the plan, those that first contact sent: they may be refused
	body     func(n int64) int64
	schedule []start
}

// A manner is what an oracle does about the last unit, which makes the origin
// say that nothing is left.
type manner int

const (
	greedy  manner = iota // takes it at once
	patient               // takes it when the reset that is announced is exact
	sparing               // leaves it, and is never told to wait
)

// A step is something that happens to the origin.
type step struct {
	at, down, bytes int64
	kind            stepKind
	blind           bool // the oracle's own, sent whatever will come of it
	n               int  // of the oracle's own, its place in the schedule
	change          Change
}

type stepKind int

const (
	stepMine    stepKind = iota
	stepForeign          // a request of another client
	stepChange
)

// A delivery is an answer that reaches the oracle.
type delivery struct {
	at, after, until int64
	tells, refused   bool
}

// A start is a request of the oracle's, in the order they start.
type start struct {
	at, up, down time.Duration
	refused      bool
}

func (s start) arrival() time.Duration { return s.at + s.up }

// consult returns the starts an oracle would choose, those that arrive before
// the end of the run: of its manners the one that gets most accepted between
// two instants. began is the instant of the run's start; bound: rules bind it.
func (s Scenario) consult(seed uint64, began time.Time, from, to time.Duration, bound bool) (best []start) {
	most := 0
	for _, how := range []manner{greedy, patient} {
		n, plan := 0, s.plan(how, bound, seed, began)
		for _, p := range plan {
			if at := p.arrival(); at >= from && at < to && !p.refused {
				n++
			}
		}
		if n >= most {
			most, best = n, plan
		}
	}
	return best
}

// plan is consult for one manner.
func (s Scenario) plan(how manner, bound bool, seed uint64, began time.Time) []start {
	c := s.config(seed)
	o := &oracle{
		manner: how,
		config: c,
		end:    int64(s.length()),
		zero:   began.UnixNano(),
		free:   s.Goroutines * max(1, s.Processes),
		body:   s.bodies(seed),
	}
	phase := int64(c.Phase-c.ClockSkew) - o.zero
	for _, p := range c.Policies {
		o.meters = append(o.meters, newMeter(p, c.Algorithm, phase))
	}
	o.trial = make([]meter, len(o.meters))
	o.last = make([]meter, len(o.meters))
	o.spaces = make([][]int64, len(o.meters))
	for _, at := range s.foreign(seed) {
		o.plan = append(o.plan, step{at: int64(at), kind: stepForeign})
	}
	for _, ch := range s.changes(seed) {
		o.insert(step{at: int64(ch.At), kind: stepChange, change: ch})
	}
	if bound {
		o.rules = s.rules()
		o.free -= o.rules.held
	}
	o.run()
	return o.schedule
}

func (o *oracle) run() {
	latency := o.config.Latency
	n := int64(0)
	up, down := latency(n)
	planned, next := false, int64(0)
	for now := int64(0); now < o.end; {
		for len(o.plan) > 0 && o.plan[0].at <= now {
			s := o.plan[0]
			o.plan = o.plan[1:]
			o.happen(s)
		}
		for len(o.answers) > 0 && o.answers[0].at <= now {
			a := o.answers[0]
			o.answers = o.answers[1:]
			o.free++
			if o.rules != nil {
				free := o.rules.hear(a)
				o.free += free
				planned = planned && free == 0
			}
			named := a.until
			if a.after > 0 {
				named = max(named, a.at+a.after)
			}
			if named > o.bound {
				o.bound = named
				planned = planned && next >= named
			}
		}
		for o.free > 0 {
			if !planned {
				planned, next = true, o.next(now, up, down, o.body(n))
			}
			if next > now {
				break
			}
			planned = false
			o.send(now, up, down, o.body(n))
			n++
			up, down = latency(n)
		}
		now = o.end
		if o.free > 0 {
			now = min(now, next)
		}
		if len(o.plan) > 0 {
			now = min(now, o.plan[0].at)
		}
		if len(o.answers) > 0 {
			now = min(now, o.answers[0].at)
		}
	}
}

// next returns when the next request is to start, from now on.
func (o *oracle) next(now int64, up, down time.Duration, bytes int64) int64 {
	first := max(now, o.bound)
	if o.rules != nil {
		first = max(first, o.rules.due)
		if !o.rules.told {
			return first
		}
	}
	arrival := o.earliest(first+int64(up), int64(down), bytes)
	if arrival == never {
		return never
	}
	return arrival - int64(up)
}

// send starts a request.
func (o *oracle) send(now int64, up, down time.Duration, bytes int64) {
	s := step{at: now + int64(up), down: int64(down), bytes: bytes, n: len(o.schedule)}
	if o.rules != nil {
		if s.blind = !o.rules.told; s.blind {
			o.blind++
		} else {
			o.rules.start(now, o.meters, o.config.Rounding)
		}
	}
	o.free--
	o.mine++
	o.insert(s)
	o.schedule = append(o.schedule, start{at: time.Duration(now), up: up, down: down})
}

func (o *oracle) insert(s step) {
	i, _ := slices.BinarySearchFunc(o.plan, s.at, func(p step, at int64) int {
		if p.at <= at {
			return -1
		}
		return 1
	})
	o.fresh = o.fresh && s.kind == stepMine && !s.blind && i == len(o.plan)
	if o.fresh {
		charge(o.last, s)
		o.added++
	}
	o.plan = slices.Insert(o.plan, i, s)
}

// ahead returns the meters as they will be once all that is planned has
// arrived, if that is the oracle's own and arrives no later than at a.
func (o *oracle) ahead(a int64) ([]meter, bool) {
	if o.blind > 0 || o.mine != len(o.plan) || o.mine > 0 && o.plan[o.mine-1].at > a {
		return nil, false
	}
	if !o.fresh || o.added > 1000 { // now and then: it keeps every request
		for i := range o.meters {
			o.last[i] = o.meters[i].copy(o.last[i].more)
		}
		for _, s := range o.plan {
			charge(o.last, s)
		}
		o.fresh, o.added = true, 0
	}
	return o.last, true
}

// happen is what a step does to the origin.
func (o *oracle) happen(s step) {
	refused := false
	if s.kind == stepMine {
		o.mine--
	}
	if s.blind {
		o.blind--
	}
	if s.kind == stepChange {
		o.outage = s.apply(o.meters, o.outage)
	} else if refused = !s.fits(o.meters); !refused {
		charge(o.meters, s)
	}
	for i := range o.meters {
		o.meters[i].settle()
	}
	if s.kind != stepMine {
		return
	}
	if refused {
		o.schedule[s.n].refused = true
	}
	d := delivery{at: s.at + s.down, refused: refused, tells: o.tells(o.meters, s.at, o.stamped)}
	d.after, d.until = o.says(o.meters, s.at, o.stamped)
	o.stamped++
	i, _ := slices.BinarySearchFunc(o.answers, d.at, func(a delivery, at int64) int {
		if a.at <= at {
			return -1
		}
		return 1
	})
	o.answers = slices.Insert(o.answers, i, d)
}

// regret returns for how long the request that has just been charged had better
// wait, given what its answer will say and how the oracle minds that; 0: it is
// fine.
func (o *oracle) regret(meters []meter, now int64) int64 {
	if o.manner == greedy {
		return 0
	}
	wait := announced(meters, now)
	if wait == 0 {
		return 0
	}
	after, until := o.says(meters, now, 0)
	if named := max(after, until-now); o.manner == patient && named <= wait || named <= 0 {
		return 0
	}
	if o.manner == patient && wait > second {
		return wait % second
	}
	return wait
}

// earliest returns the first instant from a on at which one more request can
// arrive, be accepted, and cost none of those planned after it their place.
func (o *oracle) earliest(a, down, bytes int64) int64 {
search:
	for a < o.end {
		from, outage, i := o.meters, o.outage, 0
		if last, ok := o.ahead(a); ok {
			from, i = last, len(o.plan)
		}
		for i := range from {
			o.trial[i] = from[i].copy(o.spaces[i])
		}
		for {
			for ; i < len(o.plan) && o.plan[i].at <= a; i++ {
				if s := o.plan[i]; s.kind == stepChange {
					outage = s.apply(o.trial, outage)
				} else if s.fits(o.trial) {
					charge(o.trial, s)
				}
			}
			wait := max(waitOf(o.trial, a), outage-a)
			if wait <= 0 {
				break
			}
			if wait >= o.end-a {
				return never
			}
			a += wait
		}
		charge(o.trial, step{at: a, down: down, bytes: bytes})
		if later := o.regret(o.trial, a); later > 0 {
			a += later
			o.keep()
			continue search
		}
		mine, horizon := 0, a
		for _, s := range o.plan[i:] {
			if s.kind == stepMine {
				mine++
			}
		}
		for j := range o.trial {
			horizon = max(horizon, a+2*o.trial[j].window)
		}
		for ; i < len(o.plan) && (mine > 0 || o.plan[i].at < horizon); i++ {
			s := o.plan[i]
			if s.kind == stepChange {
				outage = s.apply(o.trial, outage)
				continue
			}
			if s.blind && !s.fits(o.trial) {
				continue
			}
			if s.at < outage || waitOf(o.trial, s.at) > 0 {
				a = s.at
				o.keep()
				continue search
			}
			charge(o.trial, s)
			if s.kind == stepMine {
				mine--
				if o.regret(o.trial, s.at) > 0 {
					a = s.at
					o.keep()
					continue search
				}
			}
		}
		o.keep()
		return a
	}
	return never
}

// keep saves the space that copies grew into.
func (o *oracle) keep() {
	for i := range o.trial {
		if cap(o.trial[i].more) > cap(o.spaces[i]) {
			o.spaces[i] = o.trial[i].more
		}
	}
}

func waitOf(meters []meter, at int64) (wait int64) {
	for i := range meters {
		wait = max(wait, meters[i].wait(at))
	}
	return wait
}

// fits reports whether a request will be accepted. What the oracle has planned
// always will.
func (s step) fits(meters []meter) bool {
	return s.kind == stepMine && !s.blind || waitOf(meters, s.at) == 0
}

func charge(meters []meter, s step) {
	for i := range meters {
		if s.kind == stepMine || !meters[i].bytes && meters[i].algorithm != heedtest.Concurrency {
			meters[i].take(s.at, s.bytes, s.at+s.down)
		}
	}
}

// apply makes a change, and returns the instant until which all is refused.
func (s step) apply(meters []meter, outage int64) int64 {
	ch := s.change
	for i, p := range ch.Policies {
		meters[i].change(s.at, p)
	}
	for ch.Drain && waitOf(meters, s.at) == 0 {
		charge(meters, step{at: s.at, kind: stepForeign})
	}
	if ch.Outage > 0 {
		return max(outage, s.at+int64(ch.Outage))
	}
	return outage
}
