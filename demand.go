package heed

import "time"

// demand is how fast requests come for a policy.
type demand struct {
	short   flow // how many come in a tenth of the window: long enough not to take a short burst for a lasting one, short enough to see one that lasts before it has used up the quota …
	long    flow // … and in all of it
	run          // of requests of which each came soon after another had gone …
	before  run  // … as it was before the latest came
	stream  run  // of requests of which each came while another one waited, or in the tenth of the window after it could be answered, whatever became of them
	batches batches
	were    batches // … as they were before the latest came
}

// A flow counts what comes in spans of time.
type flow struct {
	start     time.Time
	now, last int64
}

// A run is requests that came one soon after the other.
type run struct {
	since time.Time // when the first of them came …
	came  time.Time // … and the latest
}

// join adds a request that came: it begins a new run unless others wait, or it came soon after the one before came or, gone, was sent.
func (r *run) join(now, gone time.Time, soon time.Duration, waiting bool) (begins bool) {
	if begins = r.came.IsZero() || !waiting && now.Sub(latest(r.came, gone)) > soon; begins {
		r.since = now
	}
	r.came = now
	return begins
}

func (f *flow) roll(now time.Time, span time.Duration) {
	switch age := now.Sub(f.start); {
	case age >= 2*span:
		f.start, f.now, f.last = now, 0, 0
	case age >= span:
		f.start, f.now, f.last = f.start.Add(span), 0, f.now
	}
}

// add counts n that came.
func (f *flow) add(now time.Time, n int64, span time.Duration) {
	f.roll(now, span)
	f.now += n
}

// drop uncounts n.
func (f *flow) drop(now time.Time, n int64, span time.Duration) {
	f.roll(now, span)
	recent := min(n, f.now)
	f.now -= recent
	f.last = max(f.last-(n-recent), 0)
}

// over returns how much comes in a time ahead at the present pace.
func (f *flow) over(now time.Time, span, ahead time.Duration) float64 {
	f.roll(now, span)
	carried := 1 - float64(now.Sub(f.start))/float64(span)
	return (float64(f.now) + float64(f.last)*carried) * float64(ahead) / float64(span)
}

// lately returns how much came in the latest one or two spans.
func (f *flow) lately(now time.Time, span time.Duration) float64 {
	f.roll(now, span)
	return float64(f.now + f.last)
}

// add counts n units that are wanted of a policy of whose window span is a tenth.
func (d *demand) add(now time.Time, n int64, span time.Duration) {
	d.short.add(now, n, span)
	d.long.add(now, n, 10*span)
}

// drop uncounts n that turned out not to be wanted of the policy.
func (d *demand) drop(now time.Time, n int64, span time.Duration) {
	d.short.drop(now, n, span)
	d.long.drop(now, n, 10*span)
}

// follow counts a request that came; gone is when the latest one before it was sent. It
// belongs to those before it where that is soon enough.
func (d *demand) follow(now, gone time.Time, soon time.Duration) {
	d.before = d.run
	d.join(now, gone, soon, false)
}

// comes counts a request that came in the stream of them: while one waits, or soon after another one came or, gone, was sent.
func (d *demand) comes(now, gone time.Time, soon time.Duration, waiting bool) {
	d.stream.join(now, gone, soon, waiting)
}

// goesOn reports whether requests keep coming: for longer than a span of time.
func (d *demand) goesOn(span time.Duration) bool { return d.stream.came.Sub(d.stream.since) > span }

// lasts reports whether they keep coming, or some of them wait, for longer than a span of time.
func (d *demand) lasts(now time.Time, span time.Duration, waiting bool) bool {
	return d.goesOn(span) || waiting && now.Sub(d.stream.since) > span
}

// lasting is for how long requests have come one soon after the other: a client that sends
// the next one when the last is answered has never two waiting, and is held up all the same if
// the answer to the last unit says that nothing is left. As they have come, they are taken
// to go on, for as long again.
func (d *demand) lasting() time.Duration { return d.came.Sub(d.since) }

// wants counts demand, for the smoother. Who sends the next request when the last is answered comes a
// round trip later, and those are now long, now short.
func (p *partition) wants(now time.Time, a *ask) {
	p.eachWanted(a, func(s *slot, n int64) {
		span := s.span(now)
		s.demand.add(now, n, span)
		s.demand.comes(now, s.taken, span+2*s.ledger.usual, p.queued() > 0)
		s.demand.were = s.demand.batches
		s.demand.batches.add(now, s.taken, n, s.terms.Window, s.ledger.usual, p.waiting() > 0)
		s.demand.follow(now, s.taken, max(s.ledger.grain, s.ledger.rounded, 2*s.ledger.usual))
	})
}

// asIfNobodyCame calls f, and undoes what that makes of demand.
func (p *partition) asIfNobodyCame(f func()) {
	was := make([]demand, 0, 2) // most have no more policies, and no memory is allocated for those
	for _, s := range p.slots {
		was = append(was, s.demand)
	}
	f()
	for i, d := range was {
		p.slots[i].demand = d
	}
}

// wantsNot undoes wants, if no other request came since. That it came is not forgotten.
func (p *partition) wantsNot(now time.Time, a *ask) {
	p.eachWanted(a, func(s *slot, n int64) {
		s.demand.drop(now, n, s.span(now))
		s.demand.run, s.demand.batches = s.demand.before, s.demand.were
	})
}

// eachWanted has do see every slot that a takes units of, and how many.
func (p *partition) eachWanted(a *ask, do func(s *slot, n int64)) {
	for _, s := range p.slots {
		if n := p.cost(s, a); n > 0 && s.enforced() && s.holds(a.lane) {
			do(s, n)
		}
	}
}
