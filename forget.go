package heed

import (
	"slices"
	"time"
)

// sweepEvery is how often what has been idle is looked for.
func (r *Registry) sweepEvery() time.Duration { return r.config.IdleAfter / 4 }

// sweep forgets, when it is due, what has been idle for long enough. It runs
// on the goroutine of whoever comes by; no lock is held.
func (r *Registry) sweep(now time.Time) {
	due := r.sweepDue.Load()
	if int64(now.Sub(r.born)) < due || !r.sweepDue.CompareAndSwap(due, int64(now.Sub(r.born)+r.sweepEvery())) {
		return
	}
	for _, e := range r.entries(now) {
		if e.rested && now.Sub(e.used) >= r.config.IdleAfter {
			r.drop(now, e, nil)
		}
	}
}

// makeRoom counts a partition that is about to be added to keep, and forgets
// others where that is one too many. It forgets a few more than it must, so
// that a registry that is full does not have to look for the next one at
// once. No lock is held.
func (r *Registry) makeRoom(now time.Time, keep *origin) {
	if excess := int(r.size.Add(1)) - r.config.MaxOrigins; excess > 0 {
		r.squeeze(now, keep, excess+r.config.MaxOrigins/64)
	}
}

// An entry is a partition as the sweep sees it.
type entry struct {
	p      *partition
	used   time.Time
	rest   time.Time // forgetting it from then on loses nothing
	busy   bool
	rested bool
}

// entries returns every partition.
func (r *Registry) entries(now time.Time) []entry {
	var es []entry
	for _, o := range r.all() {
		o.mu.Lock()
		rest := o.rest(now)
		for _, p := range o.partitions {
			e := entry{p: p, used: p.lastUsed, rest: p.rest(now), busy: p.busy()}
			if len(o.partitions) == 1 {
				e.rest = rest
			}
			e.rested = !e.busy && !now.Before(e.rest)
			es = append(es, e)
		}
		o.mu.Unlock()
	}
	return es
}

// squeeze drops n partitions: those idle longest first; where only such
// remain as a quota, a pause or an interval still holds, the soonest restored
// first, with a warning. What is waiting or in flight stays.
func (r *Registry) squeeze(now time.Time, keep *origin, n int) {
	es := slices.DeleteFunc(r.entries(now), func(e entry) bool { return e.busy })
	slices.SortFunc(es, func(a, b entry) int {
		switch {
		case a.rested != b.rested:
			if a.rested {
				return -1
			}
			return 1
		case a.rested:
			return a.used.Compare(b.used)
		}
		return a.rest.Compare(b.rest)
	})
	warned := false
	for _, e := range es[:min(n, len(es))] {
		if r.drop(now, e, keep) && !e.rested && !warned {
			warned = true
			r.log().Warn("heed: too many origins: forgetting one whose limits still hold",
				"origin", e.p.origin.name, "max", r.config.MaxOrigins, "restored_in", e.rest.Sub(now))
		}
	}
}

// drop forgets one partition if it has not been used meanwhile, and its
// origin with its last one.
func (r *Registry) drop(now time.Time, e entry, keep *origin) bool {
	o := e.p.origin
	r.mu.Lock()
	o.mu.Lock()
	ok := !e.p.busy() && e.p.lastUsed.Equal(e.used) && o.partitions[e.p.key] == e.p
	if ok {
		e.p.setAlarm(time.Time{})
		delete(o.partitions, e.p.key)
		r.size.Add(-1)
		if len(o.partitions) == 0 && o != keep && o.inFlight == 0 {
			o.gone = true
			delete(r.origins, o.name)
			for _, s := range o.spellings {
				delete(r.spellings, s)
			}
			o.emit(Event{Kind: EventForgotten, Time: now})
		}
	}
	r.mu.Unlock()
	o.unlock()
	return ok
}
