package heed

import (
	"context"
	"slices"
	"time"
)

// What processes that share a ledger tell one another, beside what they ask: what was heard of a limit, and
// that all are to pause, or to begin anew.

// pauses are what is paused for pm's request.
type pauses struct{ here, whole pause }

func (p *partition) pauses() pauses { return pauses{p.pause, p.origin.pause} }

// tellLedger passes on what was heard of pm's request; before is what was
// paused before, and first says whether it is the request's answer.
func (pm *Permit) tellLedger(now time.Time, a *Announcement, first bool, before pauses) {
	if pm.grant == nil {
		return
	}
	p := pm.p
	h := Heard{At: now, Start: pm.start, Answered: first, Free: first && a.Cached}
	if !p.origin.limits.IgnoreHeaders && !a.Cached {
		h.Announcement = p.common(now, pm, a, first)
	}
	after := p.pauses()
	switch {
	case after.whole.until.After(before.whole.until) && after.whole.holds(now):
		h.Pause, h.Whole, h.Doubt = after.whole.until.Sub(now), true, after.whole.doubtful
	case after.here.until.After(before.here.until) && after.here.holds(now):
		h.Pause, h.Doubt = after.here.until.Sub(now), after.here.doubtful
	case before.here.doubtful && before.here.holds(now) && !after.here.holds(now):
		h.Pause = -1
	}
	pm.grant.Heard(h)
}

// hearNews takes in what another process did.
func (r *Registry) hearNews(n News) {
	o := r.known(n.Origin)
	if o == nil {
		return
	}
	now := o.lock()
	defer o.mu.Unlock() // events are told by the requests it wakes
	o.heed(now, &n)
	o.wakeAll(now)
	if k := len(o.pending); k > mostPending && o.waiting == 0 && o.inFlight == 0 { // nobody is about to tell of them
		o.pending = slices.Delete(o.pending, 0, k/2)
	}
}

// mostPending bounds the events that other processes bring about where this one
// makes no requests on whose goroutines they could be told. The latest count.
const mostPending = 1024

// heed does what News asks for. Those who wait are to be judged again after.
func (o *origin) heed(now time.Time, n *News) {
	o.stirred = true
	if n.Err != nil {
		for _, p := range o.partitions {
			p.endWaits(nil, ledgerError(n.Err))
		}
	}
	if n.Partition == "" && (n.Ask || n.Pause < 0) {
		o.shared.until = time.Time{}
	}
	if n.Reset {
		o.reset(now)
	}
	if n.Partition == "" && n.Pause < 0 {
		o.resume(now)
	}
	for _, p := range o.partitions {
		s := p.shared
		if n.Partition != "" && s.key != n.Partition {
			continue
		}
		p.news = true
		if n.Ask || n.Pause < 0 {
			s.until = time.Time{}
		}
		if n.Partition != "" {
			p.heedPause(now, n, &p.pause)
		}
		if !o.limits.IgnoreHeaders {
			for _, pol := range n.Policies {
				if p.slot(SourceAnnounced, pol.Name, pol.PartitionKey, "") == nil {
					p.announced(now, pol, "")
				}
			}
		}
	}
	if n.Partition == "" {
		for _, p := range o.partitions {
			p.heedPause(now, n, &o.pause)
		}
	}
}

// heedPause pauses held, p's own pause or its origin's, as News says.
func (p *partition) heedPause(now time.Time, n *News, held *pause) {
	whole, was := held != &p.pause, held.until
	if most := p.origin.limits.MaxRetryAfter; n.Pause > most && !n.Manual && !n.Doubt {
		capped := *n
		capped.Pause = most
		n = &capped
	}
	switch {
	case n.Pause < 0 && held.open:
		held.end()
		p.emit(Event{Kind: EventResumed, Time: now, Whole: whole, Manual: n.Manual})
	case n.Pause > 0 && n.Doubt && (p.succeededSince(time.Time{}, now) || held.holds(now)):
		// What is refused there succeeds here.
	case n.Pause > 0 && held.hear(now, n):
		if now.Before(was) && held.until.Sub(was) < 50*time.Millisecond {
			return // the same pause, as another way of hearing of it tells it
		}
		held.doubtful, held.path, held.tried = n.Doubt, "", false
		if !n.Doubt {
			p.opening.restart(now)
		}
		if whole {
			p.origin.opening.restart(now)
		}
		p.paused(now, Event{Cause: CausePause, Wait: n.Pause, Timed: !n.Doubt, Manual: n.Manual, Whole: whole})
	}
}

// hear is extend for what News asks for.
func (p *pause) hear(now time.Time, n *News) bool {
	until := now.Add(n.Pause)
	switch {
	case n.Manual:
		return p.hand(until)
	case n.Doubt:
		return p.extend(until)
	}
	return p.obey(now, until)
}

// pauseShared and resetShared do for all processes what was done for this
// one. They are called with no lock held, and leave an error that is there.
func (r *Registry) pauseShared(origin string, d time.Duration, err *error) {
	if r.config.Ledger != nil {
		orLedgerError(err, r.config.Ledger.Pause(context.Background(), origin, d))
		r.hearNews(News{Origin: origin, Ask: true}) // what it said before may be over
	}
}

func (r *Registry) resetShared(origin string, err *error) {
	if r.config.Ledger != nil {
		orLedgerError(err, r.config.Ledger.Reset(context.Background(), origin))
		r.hearNews(News{Origin: origin, Ask: true})
	}
}
