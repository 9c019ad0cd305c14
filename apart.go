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
	if a.proven() || l.shape == shapeReset || bucket || l.inferred > 0 || p.Window <= 3*s.resolution || p.Unit == UnitContentBytes {
		return
	}
	if up, down := s.fills(p); up || down || s.remaining <= 0 || s.reset < 0 {
		return
	}
	earliest, named := start.Add(s.reset-s.resolution), now.Add(s.reset)
	switch {
	case a.window != p.Window:
		*a = resetsApart{window: p.Window, earliest: earliest, named: named}
	case !named.Before(a.earliest.Add(p.Window - s.resolution)): // the end of the next window, it may be
		a.earliest, a.named = earliest, named
	case !earliest.After(a.named): // the same
		a.earliest, a.named = latest(a.earliest, earliest), soonest(a.named, named)
	case p.Window-s.reset > s.resolution: // else it may be the newest unit's: see learnNewest
		if a.count++; a.proven() && l.shape != shapeSliding {
			l.shape, l.slides = shapeSliding, now
		}
	}
}

// proven reports whether so many speak for it that it is not by chance.
func (a *resetsApart) proven() bool { return a.count >= convinced }
