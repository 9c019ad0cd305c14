package redisheed

import (
	"time"
)

// A lot is units booked at one instant, for requests that have not come yet.
type lot struct {
	x     int64 // on Redis's clock
	n     int64 // requests
	until time.Time
	seen  []*announced
}

// fromHand grants one request of a from the units in hand.
func (b *book) fromHand(now time.Time, a *ask) (got, bool) {
	if b.limits != a.limits || a.limits.single || b.down != nil || b.closed {
		return got{}, false
	}
	for len(b.hand) > 0 {
		lot := &b.hand[0]
		if lot.n == 0 || !now.Before(lot.until) {
			b.giveUp(now, a.limits, lot)
			b.hand = b.hand[1:]
			continue
		}
		lot.n--
		b.takes++
		g := got{ok: true, left: b.left, grant: b.grant(now, a, lot.x, lot.seen, false)}
		if g.left >= 0 {
			g.left += b.inHand()
		}
		return g, true
	}
	b.hand = nil
	return got{}, false
}

// inHand is how many requests the units in hand are for.
func (b *book) inHand() (n int64) {
	for i := range b.hand {
		n += b.hand[i].n
	}
	return n
}

// giveUp returns what is left of a lot.
func (b *book) giveUp(now time.Time, m *limits, l *lot) {
	if l.n > 0 {
		b.move(move{l.x, 0, m.cost.Requests, m.cost.Bytes}, l.n, 0)
		b.flushBy(now.Add(b.patience()))
		l.n = 0
	}
}

// emptyHand returns all units in hand.
func (b *book) emptyHand(now time.Time) {
	for i := range b.hand {
		b.giveUp(now, b.limits, &b.hand[i])
	}
	b.hand = nil
}

// patience is how long news that others could use may wait for a question to
// ride along with.
func (b *book) patience() time.Duration {
	if b.waiting > 0 {
		return 0
	}
	if b.limits == nil || b.limits.window == 0 {
		return 50 * time.Millisecond
	}
	return min(max(time.Duration(b.limits.window/50)*time.Microsecond, 5*time.Millisecond), 250*time.Millisecond)
}
