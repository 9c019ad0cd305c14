package heed

import (
	"slices"
	"time"
)

// canSplit reports whether a route of the partition may be given one of its own: where no budgets tell
// routes apart already, and no other processes would have to do so as well.
func (p *partition) canSplit() bool {
	o := p.origin
	return p.route == "" && p.shared == nil && o.routes == nil && len(o.own) < mostOwn
}

// split gives each route under suspicion a partition of its own: the one refused last gets the present one, which holds
// already what its limit is to hold. All others go on in a new one, which keeps to what refusals of them asked
// for. So it is for every credential; what holds another one holds all of its partitions.
// What was learned from all routes together is true of none.
func (p *partition) split(now time.Time) {
	o, routes, others := p.origin, p.suspect.routes, p.suspect.others
	trial := onProbation(now, p)
	for i, a := range routes {
		o.own = append(o.own, a.route)
		of := func(method, path string) bool { return isOf(a.route, method, path) }
		for _, q := range slices.Clone(o.partitions) {
			switch key := o.reg.ownKey(q.key, []byte(a.route)); {
			case q.route != "":
			case q == p && i == len(routes)-1:
				rest := p.key
				o.rename(p, key, a.route)
				q = o.newPartition(rest, "", now)
				q.kin.probation = trial
				q.waitFor(now, nil, &others)
				p.handOver(now, q, func(method, path string) bool { return !of(method, path) })
			case q.pause.firm(now) || q.asks(of):
				own := o.newPartition(key, a.route, now)
				own.waitFor(now, nil, &q.pause)
				q.handOver(now, own, of)
			}
		}
	}
}

// rejoin has all routes counted together again, each credential's in one partition: in that one,
// where it is one of them.
func (o *origin) rejoin(now time.Time, into *partition) {
	if len(o.own) == 0 {
		return
	}
	o.own = nil
	all := func(string, string) bool { return true }
	for _, p := range slices.Clone(o.partitions) {
		if p.route == "" {
			continue
		}
		key := o.reg.ownKey(p.key, []byte(p.route)) // again, which undoes it
		from, to := p, o.partition(key)
		if to == nil || p == into {
			from, to = to, p
		}
		if from != nil {
			to.waitFor(now, nil, &from.pause)
			from.handOver(now, to, all)
			for _, l := range from.lanes {
				if own := to.lane(now, l.key); own != nil && to.waitFor(now, own, &l.pause) {
					own.opening.restart(now)
				}
			}
			if from.backoff.began.After(to.backoff.began) {
				to.backoff = from.backoff
			}
			to.refusals += from.refusals
			to.waited = inAll(to.waited, from.waited)
			o.remove(now, from)
		}
		if to == p {
			p.forgetLearned()
			o.rename(p, key, "")
		}
	}
}

// rename gives a partition another key, and the only route it is for.
func (o *origin) rename(p *partition, key partitionKey, route string) {
	if o.byKey != nil {
		delete(o.byKey, p.key)
		o.byKey[key] = p
	}
	p.key, p.route = key, route
}

// asks reports whether requests of some kind are waiting or in flight.
func (p *partition) asks(kind func(method, path string) bool) (any bool) {
	for pm := p.inFlight.oldest; pm != nil && !any; pm = pm.younger {
		any = kind(pm.method, pm.path)
	}
	p.waiters(func(w *waiter) { any = any || kind(w.method(), w.path) })
	return any
}

// handOver has requests of some kind go on in another partition of the origin, and forgets what
// was learned from all of them together. Those that this held go one ahead of the others, lest all go at once.
func (p *partition) handOver(now time.Time, to *partition, kind func(method, path string) bool) {
	p.forgetLearned()
	for pm, next := p.inFlight.oldest, (*Permit)(nil); pm != nil; pm = next {
		next = pm.younger
		if kind(pm.method, pm.path) {
			pm.goOn(to)
		}
	}
	p.waiters(func(w *waiter) {
		if kind(w.method(), w.path) {
			p.leave(w)
			w.home, w.lane = to, to.laneOf(now, &w.ask)
			to.join(now, w)
		}
	})
	to.slowest, to.lastWell = max(to.slowest, p.slowest), latest(to.lastWell, p.lastWell)
	if c := &p.cap; c.limit > 0 && (to.cap.limit == 0 || c.limit < to.cap.limit) {
		to.cap = *c
	}
	p.opening.restart(now)
	to.opening.restart(now)
	p.news, to.news, p.origin.stirred = true, true, true
}

// goOn moves a request in flight to another partition, whose opening it proves nothing for.
func (pm *Permit) goOn(to *partition) {
	from := pm.p
	from.inFlight.remove(pm)
	if !pm.answered { // the origin's opening still has it
		from.opening.gone(pm.serial)
		if pm.lane != nil {
			pm.lane.opening.gone(pm.ahead)
		}
		from.unanswered--
		to.unanswered++
	}
	if pm.listening == &from.listening {
		from.listening--
		to.listening++
		pm.listening = &to.listening
	}
	pm.p, pm.serial, pm.lane = to, to.opening.serial-1, nil
	to.inFlight.add(pm)
}

// waitFor has a partition, or where l is not nil that lane of it, wait for as long as another one
// was asked to. It reports whether that is longer than before.
func (p *partition) waitFor(now time.Time, l *lane, asked *pause) bool {
	held, e := &p.pause, Event{Cause: CausePause, Wait: asked.until.Sub(now), Timed: !asked.asked.IsZero()}
	if l != nil {
		held, e.Bucket = &l.pause, l.shown()
	}
	longer := held.join(now, asked)
	if longer {
		p.paused(now, e)
	}
	return longer
}

// forgetLearned forgets a limit that was learned, and what would have told more of it.
func (p *partition) forgetLearned() {
	p.unlearn()
	p.learner, p.suspect = learner{}, nil
}
