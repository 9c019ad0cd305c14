package heed

import (
	"cmp"
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
		if e.rest <= 0 && -e.used >= int64(r.config.IdleAfter) {
			r.drop(now, e, nil)
		}
	}
	r.roomAt.Store(0)
}

// makeRoom forgets partitions where one more, of keep, would be one too many.
// It forgets a few more than it must, so that a registry that is full does
// not have to look for the next one at once, nor where few can be forgotten.
// No lock is held.
func (r *Registry) makeRoom(now time.Time, keep *origin) {
	size := r.size.Load() + 1
	most := int64(r.config.MaxOrigins)
	if size <= max(most, r.roomAt.Load()) || !r.squeezing.TryLock() {
		return
	}
	defer r.squeezing.Unlock()
	r.squeeze(now, keep, int(size-most+most/64))
	r.roomAt.Store(r.size.Load() + most/64)
}

// An entry is a partition as the sweep sees it. Its times are nanoseconds
// from then on.
type entry struct {
	p    *partition
	used int64 // when it was used last
	rest int64 // from when on forgetting it loses nothing; 0 or less: it does not
}

// entries returns every partition without requests waiting or in flight.
func (r *Registry) entries(now time.Time) []entry {
	es := make([]entry, 0, r.size.Load())
	for _, o := range r.all() {
		o.mu.Lock()
		for _, p := range o.partitions {
			if !p.busy() {
				es = append(es, entry{p, int64(p.lastUsed.Sub(now)), int64(p.rest(now).Sub(now))})
			}
		}
		o.mu.Unlock()
	}
	return es
}

// squeeze forgets n partitions: those idle longest first; where only such
// remain as a quota, a pause or an interval still holds, the soonest restored
// first, with a warning. What is waiting or in flight stays.
func (r *Registry) squeeze(now time.Time, keep *origin, n int) {
	es := r.entries(now)
	slices.SortFunc(es, func(a, b entry) int {
		if c := cmp.Compare(max(a.rest, 0), max(b.rest, 0)); c != 0 {
			return c
		}
		return cmp.Compare(a.used, b.used)
	})
	var lost *entry
	for i := range es {
		if n <= 0 {
			break
		}
		if e := &es[i]; r.drop(now, *e, keep) {
			n--
			if e.rest > 0 && lost == nil {
				lost = e
			}
		}
	}
	if lost != nil && r.warnsOfLoss(now) {
		r.log().Warn("heed: more origins and credentials than Config.MaxOrigins: some are forgotten whose limits still hold",
			"origin", lost.p.origin.name, "max", r.config.MaxOrigins, "restored_in", time.Duration(lost.rest))
	}
}

// lossWarnings is how far apart warnings are that there are too many origins.
const lossWarnings = time.Minute

func (r *Registry) warnsOfLoss(now time.Time) bool {
	if !r.warnedAt.IsZero() && now.Sub(r.warnedAt) < lossWarnings {
		return false
	}
	r.warnedAt = now
	return true
}

// drop forgets one partition if nothing has happened there meanwhile, and its
// origin with its last one.
func (r *Registry) drop(now time.Time, e entry, keep *origin) bool {
	p, o := e.p, e.p.origin
	r.mu.Lock()
	at := o.lock()
	ok := o.partition(p.key) == p && !p.busy() && int64(p.lastUsed.Sub(now)) == e.used && (e.rest > 0 || !p.rest(at).After(at))
	if ok {
		o.remove(at, p)
		if len(o.partitions) == 0 && o != keep {
			o.resume(at)
			o.gone = true
			delete(r.origins, o.name)
			for _, s := range o.spellings {
				delete(r.spellings, s)
			}
			o.emit(Event{Kind: EventForgotten, Time: at})
		}
	}
	r.mu.Unlock()
	o.unlock()
	return ok
}
