package heed

import "time"

// resetsApart is what speaks for resets that are less than a window apart.
type resetsApart struct {
	count    int           // answers that named such a one …
	window   time.Duration // … in windows of this length …
	earliest time.Time     // … after one that was no sooner than this …
	named    time.Time     // … and no later
}

// learnApart notices that resets are named that are less than a window apart: then none of them is
// the end of one, however little this process has in use, and however fast others take what
// comes back. A bucket's are not either, but those move with what is left; and where nothing
// is left, an origin with any kind of limit may name the next unit.
func (l *ledger) learnApart(now, start time.Time, p *Policy, s *statement) {
	a := &l.apart
	// What comes back to others looks like what comes back steadily, and resets tell the two apart.
	bucket := l.shape == shapeRefill && (l.fillsUp || l.twoCounts() || !l.othersSeen)
	// Where nobody else uses it, this process's own units show how they come back. And a window that was guessed to last a few
	// round trips, and after which not all was back, may last longer: taken to slide, it would have each unit refused once.
	alone := l.inferred > 0 && (!l.othersSeen || l.piecemeal && p.Window <= 4*l.quickest)
	least := l.noShorter(p)
	off := s.resolution
	if s.clock { // by the origin's own clock, what it is rounded to is all that can hide
		off = s.grain
	}
	if a.proven() || l.shape == shapeReset || bucket || alone || least <= 3*off || p.Unit == UnitContentBytes {
		return
	}
	if s.soon { // here it tells something
		near := *s
		near.reset, s = 0, &near
	}
	if up, down := s.fills(p); up || down || s.remaining <= 0 || s.reset < 0 {
		return
	}
	if full := least * time.Duration(p.Quota-s.remaining) / time.Duration(max(p.Quota, 1)); l.inferred > 0 && s.reset+off >= full {
		return // it may be when a bucket is full that gains as fast as it can
	}
	earliest, named := start.Add(s.reset-off), now.Add(s.reset)
	if s.clock {
		earliest, named = s.instant.Add(-off), s.instant
	}
	switch {
	case a.window != p.Window:
		*a = resetsApart{window: p.Window, earliest: earliest, named: named}
	case !named.Before(a.earliest.Add(least - off)): // the end of the next window, it may be
		a.earliest, a.named = earliest, named
	case !earliest.After(a.named): // the same
		a.earliest, a.named = latest(a.earliest, earliest), soonest(a.named, named)
	case least-s.reset > off: // else it may be the newest unit's: see learnNewest
		if a.count++; a.proven() && l.shape != shapeSliding {
			l.shape, l.slides = shapeSliding, now
		}
	}
}

// proven reports whether so many speak for it that it is not by chance.
func (a *resetsApart) proven() bool { return a.count >= convinced }
