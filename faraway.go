package heed

import "time"

// A farAway keeps the books of a window that is over before an answer is there: what answers say is left was left in another one. So it
// goes by when requests went. They arrive as far apart as they went, save for how much longer than the quickest some are on
// their way; hence no more than the quota go in any time as long as the window and that.
type farAway struct {
	gone     usage         // when they went
	began    bool          // whether what was on the way when the books were begun is among them
	answers  int           // heard …
	quickest time.Duration // … the quickest of them …
	spread   time.Duration // … and how much longer than that they take, at most, lately
	foreign  int64         // units that others were seen to use of a window …
	since    time.Time     // … and since when no more
}

// isFar reports whether the books are kept so: an origin is far away, and its answers take about as long as each other. Else some may be
// counted much later than they went.
func (l *ledger) isFar(p *Policy) bool {
	return l.isDistant(p) && l.away.answers >= few && l.away.spread <= p.Window/2
}

// isDistant reports whether answers take half a window or longer, of which it was said how long it is.
func (l *ledger) isDistant(p *Policy) bool {
	from := p.Window / 2
	if l.shape == shapeRefill { // which is followed well for longer
		from = p.Window * 2 / 3
	}
	return p.Window > 0 && p.Quota > 0 && l.inferred == 0 && l.least >= from && p.Unit != UnitContentBytes
}

// span is in how long no more than the quota go: a hundredth longer than needed, for timers are never quite on time.
func (f *farAway) span(p *Policy) time.Duration { return p.Window + p.Window/100 + f.spread }

// goes takes in that n units go now, while so many others are on their way or may yet count.
func (f *farAway) goes(now time.Time, n, others int64, p *Policy) {
	if !f.began {
		f.began, n = true, n+others
	}
	f.gone.take(n)
	f.gone.done(now, now, 0, n, p.Quota, f.span(p))
}

// hear takes in an answer that took so long, where the quickest take that long, and says that r units were left when its request arrived, of
// so many that had gone in a span.
func (f *farAway) hear(now time.Time, took, quickest time.Duration, r, gone int64, p *Policy) {
	f.answers++
	if f.quickest > quickest { // the others took longer than was known
		f.spread += f.quickest - quickest
	}
	f.quickest = quickest
	f.spread = max(took-quickest, f.spread-f.spread/1024)
	if r < 0 {
		return
	}
	meanwhile := 1 + int64(float64(p.Quota)*f.spread.Seconds()/p.Window.Seconds()) // may have been there first
	switch seen := max(p.Quota-r-gone-meanwhile, 0); {
	case seen >= f.foreign:
		f.foreign, f.since = seen, now
	case now.Sub(f.since) >= p.Window:
		f.foreign, f.since = f.foreign-(f.foreign-seen+31)/32, now
	}
}

// farRoom is how many units may go now: by when those before went, or as all that are not answered may yet count, whichever leaves more. The
// last one is left, for the answer to that would hold all until a window later.
func (l *ledger) farRoom(now time.Time, p *Policy) int64 {
	return l.farMost(p) - min(l.away.gone.used(now, l.away.span(p)), l.own.used(now, p.Window))
}

// farMost is how many may go in a span.
func (l *ledger) farMost(p *Policy) int64 {
	return max(p.Quota-1-l.away.foreign, 1)
}

// farFree is when n units may go.
func (l *ledger) farFree(now time.Time, n int64, p *Policy) time.Time {
	f, most := &l.away, l.farMost(p)
	span := f.span(p)
	at, known := f.gone.back(now, n-most+f.gone.used(now, span), span)
	if !known { // with those that go until then, at least
		at = latest(latest(now, l.closed), f.gone.rest(span)).Add(times((max(n-most, 1)-1)/p.Quota, p.Window))
	}
	if sooner, known := l.own.back(now, n-most+l.own.used(now, p.Window), p.Window); known {
		at = soonest(at, sooner)
	}
	return latest(now, at)
}
