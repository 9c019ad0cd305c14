package heed

import (
	"math"
	"math/rand/v2"
	"time"
)

// Lots decide who goes next while a route is under suspicion, once it was refused again though others were accepted
// meanwhile: where one of it is the first in line and others wait behind, it goes by chance, or lets the first of those
// go. Whether a limit on all routes is met by one of them is then chance, too, however regularly a program asks for them.
// At first one of the route goes far more rarely than it would else, so that few refusals tell, and others get more of
// what they are held back for; then as often; and once nothing has been refused for long, in turn.
type lots struct {
	until time.Time // they are drawn; zero: they are not
	rare  time.Time // until then they rarely fall on the route
	lot   float64   // the present one, from 0 up to 1: one of the route goes if that is less than its chance
}

const (
	lotsFor    = time.Hour        // after a refusal
	rareFor    = 10 * time.Minute // likewise
	rareChance = 1.0 / 8          // the chance of the route meanwhile, at most
	drawnFrom  = 16               // of those in line, the first
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

// draw returns the first in line that may go in place of the head, which is of a route under suspicion, and the chance
// that the head goes; nil where there is none to draw from.
func (p *partition) draw(now time.Time, q *queue, head *waiter) (other *waiter, chance float64) {
	s := p.suspect
	if s == nil || head == nil || !now.Before(s.lots.until) || !p.canSplit() || !isOf(s.route, head.method(), head.path) {
		return nil, 0
	}
	of, n := 0, 0
	q.line(head.opts.priority).root.walk(func(w *waiter) bool {
		n++
		switch {
		case isOf(s.route, w.method(), w.path):
			of++
		case other == nil:
			other = w
		}
		return n < drawnFrom
	})
	chance = float64(of) / float64(n)
	if now.Before(s.lots.rare) {
		chance = min(chance, rareChance)
	}
	return other, chance
}

// goesBehind returns who goes in place of the head, nil where that goes itself.
func (p *partition) goesBehind(now time.Time, q *queue, head *waiter) *waiter {
	other, chance := p.draw(now, q, head)
	if other == nil || p.suspect.lots.lot < chance {
		return nil
	}
	return other
}

// halvings is by how many it makes a limit on all routes less likely that one of the route is refused that had a chance
// to go; 0: no lots were drawn.
func halvings(chance float64) float64 {
	if chance == 0 {
		return 0
	}
	return -math.Log2(chance)
}
