package redisheed

import (
	"math"
	"time"

	"github.com/heedhttp/heed"
)

// alone is how a process keeps to its share of the quotas while Redis cannot
// be reached. A nil alone does nothing.
//
// Its share of a quota is the quota divided by the processes that Redis knew
// of last. Until a window has passed since Redis answered last, it also takes
// no more than it had in use then and its share of what was left: what others
// had used is not its to use.
type alone struct {
	then
	n       int64 // processes
	taken   past  // since
	buckets map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

// then is how things stood when Redis answered last.
type then struct {
	since  int64 // Redis's clock
	left   int64 // -1: not known
	before map[string]int64
}

// remember notes how things stand.
func (b *book) remember() {
	t := &b.then
	t.since, t.left = b.clock.now(time.Now()), b.left
	if t.before == nil {
		t.before = make(map[string]int64)
	}
	clear(t.before)
	b.past.any(t.since)
	for field, w := range b.past.windows {
		t.before[field] = w.used
	}
}

func (b *book) newAlone() *alone {
	x := &alone{then: b.then, n: b.clients, buckets: make(map[string]*bucket)}
	if x.n == 0 {
		x.n = int64(b.l.o.Processes)
	}
	if x.before == nil {
		x.left = -1 // Redis never answered
	}
	if x.left >= 0 {
		x.left /= x.n
	}
	return x
}

func (x *alone) shift(by int64) {
	if x != nil {
		x.taken.shift(by)
	}
}

// checkAlone says what goAlone would, and takes nothing.
func (b *book) checkAlone(now time.Time, a *ask) got {
	g := b.judgeAlone(now, a)
	if g.ok && g.left >= 0 {
		g.left += a.limits.cost.Requests
	}
	return g
}

// judgeAlone judges a without Redis; what is left is so once it goes.
func (b *book) judgeAlone(now time.Time, a *ask) got {
	x, m := b.alone, a.limits
	at := b.clock.now(now)
	g := got{ok: true, left: -1, alone: b.down}
	hold := func(until int64, cause heed.Cause, policy string) {
		if d := time.Duration(until-at) * time.Microsecond; d > g.wait {
			g.ok, g.wait, g.cause, g.policy = false, d, cause, policy
		}
	}
	judge := func(field string, unit byte, quota, length int64) {
		w := b.past.window(field, unit, quota, length)
		w.expire(at)
		most, long := quota/x.n, length
		if most == 0 {
			most, long = 1, length*x.n/quota
		}
		if x.left >= 0 && at < x.since+length {
			most = min(most, x.before[field]+x.left)
		}
		cost := min(w.cost(1, m.cost.Requests, m.cost.Bytes), max(most, 1))
		if unit == 'r' && (g.left < 0 || most-w.used < g.left) {
			g.left = max(most-w.used-cost, 0)
		}
		if cost == 0 || w.used+cost <= most {
			if k := len(w.at); cost == 0 || long == length || k == 0 || w.at[k-1]*w.grain+long <= at {
				return
			}
			hold(w.at[len(w.at)-1]*w.grain+long, heed.CausePolicy, nameOf(field[2:]))
			return
		}
		until, ok := w.back(at, w.used+cost-most)
		if !ok {
			until = max(at, x.since) + length
		}
		hold(max(until, at+1000), heed.CausePolicy, nameOf(field[2:]))
	}
	for _, l := range m.list {
		switch {
		case l.unit == 'c':
			b.capAlone(hold, at, b.here+m.cost.Concurrent, max(l.quota/x.n, 1), nameOf(l.id))
		case l.burst > 0:
			if until, ok := x.bucket(now, &l, m.cost); !ok {
				hold(at+micros(until), heed.CausePolicy, nameOf(l.id))
			}
		default:
			judge("w:"+l.id, l.unit, l.quota, l.window)
		}
	}
	heard := b.known
	if m.deaf {
		heard = nil
	}
	for id, k := range heard {
		if k.unit == 'c' && k.quota > 0 {
			b.capAlone(hold, at, b.here+m.cost.Concurrent, max(k.quota/x.n, 1), nameOf(id))
		} else if k.unit != 'c' && k.quota > 0 && k.window > 0 {
			judge("a:"+id, k.unit, k.quota, k.window)
		}
	}
	if m.mc > 0 {
		b.capAlone(hold, at, b.slots.inFlight()+1, max(m.mc/x.n, 1), "")
	}
	start, end := b.slots.latest()
	if m.iv > 0 && !start.IsZero() {
		hold(at+micros(start.Add(time.Duration(m.iv*x.n)*time.Microsecond).Sub(now)), heed.CauseInterval, "")
	}
	if m.mp > 0 {
		if b.slots.inFlight() > 0 {
			hold(at+20_000, heed.CauseInterval, "")
		} else if !end.IsZero() {
			hold(at+micros(end.Add(time.Duration(m.mp*x.n)*time.Microsecond).Sub(now)), heed.CauseInterval, "")
		}
	}
	return g
}

// goAlone grants a without Redis, or says why not.
func (b *book) goAlone(now time.Time, a *ask) got {
	x, m := b.alone, a.limits
	g := b.judgeAlone(now, a)
	if !g.ok {
		return g
	}
	for _, l := range m.list {
		if l.burst > 0 {
			x.buckets[l.id].tokens -= tokens(&l, m.cost)
		}
	}
	booked := b.clock.now(now) + micros(a.latency)
	var seen []*announced
	for _, k := range b.known {
		seen = append(seen, k)
	}
	b.past.add(m, seen, booked, 1)
	x.taken.add(m, seen, booked, 1)
	g.grant = b.grant(now, a, booked, seen, false)
	if start, _ := b.slots.latest(); g.grant != nil && b.slots.started(start, now) {
		g.grant.start, g.grant.before = now, start
	}
	return g
}

func (b *book) capAlone(hold func(int64, heed.Cause, string), at, want, most int64, policy string) {
	if want > most {
		hold(at+20_000, heed.CauseConcurrency, policy)
	}
}

func tokens(l *limit, c heed.Cost) float64 {
	n := c.Requests
	if l.unit == 'b' {
		n = c.Bytes
	}
	return float64(min(n, l.burst))
}

// bucket judges a token bucket of this process's share of the rate.
func (x *alone) bucket(now time.Time, l *limit, c heed.Cost) (time.Duration, bool) {
	rate := float64(l.quota) / float64(l.window) / float64(x.n) // per microsecond
	most := max(float64(l.burst)/float64(x.n), tokens(l, c))
	k := x.buckets[l.id]
	if k == nil {
		k = &bucket{at: now} // what was in it when Redis was lost is not known
		x.buckets[l.id] = k
	}
	k.tokens = min(most, k.tokens+rate*float64(micros(now.Sub(k.at))))
	k.at = now
	if missing := tokens(l, c) - k.tokens; missing > 0 {
		return time.Duration(math.Ceil(missing/rate)) * time.Microsecond, false
	}
	return 0, true
}

// move reports whether a move is of units that Redis has not been told of.
func (x *alone) move(m move, k, really int64) bool {
	if x == nil {
		return false
	}
	found := false
	for _, w := range x.taken.windows {
		for j := len(w.at) - 1; j >= 0; j-- {
			found = found || w.at[j] == w.index(m.x)
		}
	}
	if found {
		x.taken.move(m, k, really)
	}
	return found
}

// tell adds to a report what was taken alone.
func (x *alone) tell(r *report) {
	if x == nil {
		return
	}
	for field, w := range x.taken.windows {
		for i, at := range w.at {
			r.adds = append(r.adds, op{"a", field, at * w.grain, w.n[i]})
		}
	}
	x.taken = past{}
}

func (s *slots) inFlight() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}
