package heedtest

// keyed is the state of one key: a limiter for each of the origin's policies,
// and what the origin told the key's clients. All of it is guarded by the
// origin's lock.
type keyed struct {
	limiters []limiter
	accepted []spans // by policy: the units accepted within the last window, for PeakInWindow
	blocked  int64   // until then, all is refused
	inFlight int

	// What answers named, for Tally.Early. Those delivered at one and the same
	// instant are kept apart until time has moved on: a request that starts at
	// that very instant cannot have heeded them.
	notBefore   int64
	pending     int64
	pendingAt   int64
	latest      int64 // named by the answer stamped last, of those delivered
	latestStamp int64
}

// policyState is a policy and what all keys together made of it.
type policyState struct {
	Policy
	item  string // in the RateLimit-Policy field
	tally PolicyTally
}

// A verdict on a request: accepted, or how long until it would be.
type verdict struct {
	ok    bool
	wait  int64  // never: time alone will not do
	worst int    // index of the policy with the longest wait; -1: none refuses, the key is blocked
	mask  uint64 // policies that refuse, by index; those past 63 are missing
}

func (v verdict) violates(i int) bool { return i < 64 && v.mask&(1<<i) != 0 }

// minSweep is the number of keys below which idle ones are not looked for.
const minSweep = 1024

// key returns the state of a key. Keys that have become idle are forgotten now
// and then, so that memory is bounded by the keys in use.
func (o *Origin) key(name string, now int64) *keyed {
	if k := o.keys[name]; k != nil {
		return k
	}
	if len(o.keys) >= o.sweepAt {
		for name, k := range o.keys {
			if k.idle(now) {
				delete(o.keys, name)
			}
		}
		o.sweepAt = max(minSweep, 2*len(o.keys))
	}
	k := o.newKeyed(now)
	o.keys[name] = k
	return k
}

func (o *Origin) newKeyed(now int64) *keyed {
	k := &keyed{accepted: make([]spans, len(o.policies))}
	for _, p := range o.policies {
		k.limiters = append(k.limiters, o.newLimiter(p.Policy, now))
	}
	return k
}

func (o *Origin) newLimiter(p Policy, now int64) limiter {
	return newLimiter(p, int64(o.config.Phase-o.config.ClockSkew), now)
}

func (k *keyed) idle(now int64) bool {
	if k.inFlight > 0 || now < k.blocked || now < k.notBefore || now < k.pending {
		return false
	}
	for _, l := range k.limiters {
		if !l.idle(now) {
			return false
		}
	}
	return true
}

// setPolicies gives the origin and all its keys new policies.
func (o *Origin) setPolicies(now int64, policies []Policy) {
	// was[i] is the index of the policy that policies[i] carries on; -1: none.
	was := make([]int, len(policies))
	states := make([]*policyState, len(policies))
	for i, p := range policies {
		was[i] = -1
		states[i] = &policyState{Policy: p, item: policyItem(p)}
		states[i].tally = PolicyTally{Name: p.Name, Quota: p.Quota, Window: p.Window, Unit: p.Unit, Algorithm: p.Algorithm}
		for j, old := range o.policies {
			if old.Name == p.Name && old.Unit == p.Unit {
				t := &states[i].tally
				t.Accepted, t.Refused, t.PeakInWindow = old.tally.Accepted, old.tally.Refused, old.tally.PeakInWindow
				if old.Algorithm == p.Algorithm && (old.Quota == 0) == (p.Quota == 0) {
					was[i] = j
				}
				break
			}
		}
	}
	o.policies = states
	o.header = policyHeader(o.config.Dialect, states)
	for _, k := range o.keys {
		limiters, accepted := make([]limiter, len(policies)), make([]spans, len(policies))
		for i, p := range policies {
			if j := was[i]; j >= 0 {
				limiters[i], accepted[i] = k.limiters[j], k.accepted[j]
				limiters[i].change(now, p)
			} else {
				limiters[i] = o.newLimiter(p, now)
			}
		}
		k.limiters, k.accepted = limiters, accepted
	}
}

// units is what a request of this cost needs of a policy to be accepted.
func (p *policyState) units(cost int64) int64 {
	switch p.Unit {
	case UnitContentBytes, UnitConcurrentRequests:
		return 1
	}
	return cost
}

// judge says what becomes of a request at an instant, and charges nothing.
func (k *keyed) judge(o *Origin, now, cost int64) verdict {
	v := verdict{worst: -1, wait: max(0, k.blocked-now)}
	for i, l := range k.limiters {
		n := o.policies[i].units(cost)
		if n == 0 {
			continue
		}
		if w := l.wait(now, n); w > 0 {
			if i < 64 {
				v.mask |= 1 << i
			}
			if v.worst < 0 || w > v.wait {
				v.worst = i
			}
			v.wait = max(v.wait, w)
		}
	}
	v.ok = v.wait == 0
	return v
}

// charge takes the units of an accepted request and returns the slots it
// occupies: none without hold.
func (k *keyed) charge(o *Origin, now, cost, bytes int64, hold bool) (held []*concurrency) {
	for i, l := range k.limiters {
		p := o.policies[i]
		switch p.Unit {
		case UnitContentBytes:
			k.chargeOne(p, i, now, bytes)
		case UnitConcurrentRequests:
			c, ok := l.(*concurrency)
			if !ok || !hold {
				continue
			}
			c.take(now, 1)
			held = append(held, c)
			p.tally.Accepted++
			p.tally.PeakInWindow = max(p.tally.PeakInWindow, c.inFlight)
		default:
			k.chargeOne(p, i, now, cost)
		}
	}
	return held
}

func (k *keyed) chargeOne(p *policyState, i int, now, n int64) {
	if n <= 0 {
		return
	}
	k.limiters[i].take(now, n)
	accepted := &k.accepted[i]
	accepted.drop(now - int64(p.Window))
	accepted.push(now, n)
	p.tally.Accepted += n
	p.tally.PeakInWindow = max(p.tally.PeakInWindow, accepted.sum)
}

// chargeBytes charges bytes found later than on arrival.
func (k *keyed) chargeBytes(o *Origin, now, n int64) {
	for i, p := range o.policies {
		if p.Unit == UnitContentBytes {
			k.chargeOne(p, i, now, n)
		}
	}
}

// refuse does to the key what a refusal does, given the verdict that led to it,
// and returns the verdict with the wait as it is then.
func (k *keyed) refuse(o *Origin, now, cost int64, v verdict) verdict {
	for i, p := range o.policies {
		if v.violates(i) {
			p.tally.Refused++
		}
	}
	if o.config.Block == 0 && !o.config.CountRefused {
		return v
	}
	if o.config.Block > 0 {
		k.blocked = now + int64(o.config.Block)
	}
	if o.config.CountRefused {
		for i, l := range k.limiters {
			p := o.policies[i]
			switch n := p.units(cost); {
			case n == 0, p.Unit == UnitContentBytes, p.Unit == UnitConcurrentRequests:
			case v.violates(i):
				l.punish(now, n)
			default:
				l.take(now, n)
			}
		}
	}
	after := k.judge(o, now, cost)
	v.wait = after.wait
	if after.worst >= 0 {
		v.worst = after.worst
	}
	return v
}

// early reports whether a request that starts now does so before an instant that
// answers already delivered have named, and whether the newest of those answers
// still says so.
func (k *keyed) early(now int64) (early, standing bool) {
	named := k.notBefore
	if now > k.pendingAt {
		named = max(named, k.pending)
	}
	early = now < named
	return early, early && now < k.latest
}

// named takes in what an answer delivered now had to say.
func (k *keyed) named(s statement, stamped, now int64) {
	if !s.spoke {
		return
	}
	until := s.until
	if s.after > 0 {
		until = max(until, now+s.after)
	}
	if now > k.pendingAt {
		k.notBefore = max(k.notBefore, k.pending)
		k.pending, k.pendingAt = 0, now
	}
	k.pending = max(k.pending, until)
	if stamped >= k.latestStamp {
		k.latest, k.latestStamp = until, stamped
	}
}
