package heed

import (
	"math"
	"math/rand/v2"
	"time"
)

// Lots decide in which order those first in line go while a route is under suspicion, once it was refused again though
// others were accepted meanwhile: one of the route goes as likely as it has a part in them. Whether a limit on all
// routes is met by one of them is then chance, too, however regularly a program asks for them. Where it has no more than
// half of the line, or was not accepted when the server had said it would be, it goes far more rarely for a while: then
// fewer refusals tell, and others get more of what they are held back for. Several routes under suspicion are one here.
// Within them, and among all others, it is still first come first served, and so it is in all once nothing has been refused
// for long.
type lots struct {
	until time.Time // they are drawn; zero: they are not
	rare  time.Time // until then they rarely fall on the route
	lot   float64   // the present one, from 0 up to 1: one of the route goes if that is less than its chance
}

const (
	lotsFor    = time.Hour       // after a refusal
	rareFor    = 5 * time.Minute // likewise
	rareChance = 1.0 / 8         // of the route meanwhile, at most
	drawnFrom  = 16              // of those in line, the first …
	mostWalked = 256             // … and as many more until one of another route comes
)

// renew has lots drawn for a while from now on.
func (l *lots) renew(now time.Time) {
	if l.until.Before(now) {
		l.next()
	}
	l.until, l.rare = now.Add(lotsFor), now.Add(rareFor)
}

// next draws the next lot.
func (l *lots) next() { l.lot = rand.Float64() }

// A candidate is who may be the next to go.
type candidate struct {
	*waiter
	chance float64 // it goes by lot, and one of the route under suspicion had this chance; 0: it is its turn in line
}

// draw returns who of a queue goes by lot; false where none is drawn: while the head is pressed for time, or one of the
// first asks for more than the others, all go in turn.
func (p *partition) draw(now time.Time, q *queue, head *waiter) (c candidate, drawn bool) {
	s := p.suspect
	if s == nil || head == nil || !now.Before(s.lots.until) || head.pressed(now) || !p.canSplit() {
		return candidate{}, false
	}
	var one, other *waiter
	of, n, alike := 0, 0, true
	q.line(head.opts.priority).root.walk(func(w *waiter) bool {
		n++
		alike = alike && w.units() == 1 && w.opts.minInterval == 0
		switch mine := s.accuses(w.routeKey()); {
		case mine:
			if of++; one == nil {
				one = w
			}
		case other == nil:
			other = w
		}
		return n < drawnFrom || other == nil && n < mostWalked
	})
	if one == nil || other == nil || !alike {
		return candidate{}, false
	}
	chance := float64(of) / float64(n)
	if (chance <= 0.5 || s.unheard()) && now.Before(s.lots.rare) {
		chance = min(chance, rareChance)
	}
	if s.lots.lot < chance {
		other = one
	}
	return candidate{other, chance}, true
}

// drew takes in that pm's request went by a lot with a chance; 0: by none.
func (s *suspect) drew(pm *Permit, chance float64) {
	if chance == 0 {
		return
	}
	s.lots.next()
	if s.isFor(pm) {
		pm.chance = chance
	}
}

// pressed reports whether more than three quarters of the time are over in which a has to start.
func (a *ask) pressed(now time.Time) bool {
	return !a.deadline.IsZero() && now.Sub(a.arrived) > 3*a.deadline.Sub(now)
}

// halvings is by how many it makes a limit on all routes less likely that one of the route is refused that had a chance
// to go; 0: it did not go by lot.
func halvings(chance float64) float64 {
	if chance == 0 {
		return 0
	}
	return -math.Log2(chance)
}
