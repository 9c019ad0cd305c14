package redisheed

import "time"

// flushBy has the report told by an instant at the latest.
func (b *book) flushBy(at time.Time) {
	if b.flushAt.IsZero() || at.Before(b.flushAt) {
		b.flushAt = at
	}
}

// due returns when the book next has something to do by itself; zero: never.
func (b *book) due(now time.Time) time.Time {
	at := b.flushAt
	soonest := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	beats := b.limits != nil && b.limits.bounds && b.slots.any(b)
	if b.down != nil && !b.flying {
		again := beats || b.alone != nil && now.UnixNano()-b.used.Load() < int64(time.Minute) || len(b.askers) > 0 || b.unacked != nil || !b.flushAt.IsZero()
		at = time.Time{}
		if again {
			at = b.retryAt
		}
	}
	if len(b.askers) > 0 && b.until.After(now) {
		soonest(b.until)
	}
	if len(b.hand) > 0 {
		soonest(b.hand[0].until)
	}
	if beats && b.down == nil { // else it is told once Redis is back
		soonest(b.told.Add(b.l.o.SlotLease / 3))
	}
	if g := b.open.oldest; g != nil && b.limits != nil && b.limits.window > 0 {
		soonest(now.Add(time.Duration(g.x+b.limits.window/2-b.clock.now(now)) * time.Microsecond))
	}
	return at
}

// arm sets the timer for what is due next. b.mu is held.
func (b *book) arm(now time.Time) {
	at := b.due(now)
	if b.flying && !at.IsZero() && !at.After(now) {
		return // landing arms it
	}
	if b.timer != nil {
		if b.alarm.Equal(at) {
			return
		}
		b.timer.Stop()
		b.timer = nil
	}
	if at.IsZero() || b.closed {
		return
	}
	b.alarm = at
	b.timer = time.AfterFunc(max(at.Sub(now), 0), func() { b.ring(at) })
}

func (b *book) ring(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.alarm.Equal(at) {
		return
	}
	b.timer = nil
	now := time.Now()
	if len(b.hand) > 0 && !now.Before(b.hand[0].until) {
		b.giveUp(now, b.limits, &b.hand[0])
		b.hand = b.hand[1:]
	}
	if b.limits != nil && b.limits.window > 0 {
		b.extend(now)
	}
	if !b.flying && (b.down == nil || !now.Before(b.retryAt)) {
		beat := b.limits != nil && b.limits.bounds && b.slots.any(b) && now.Sub(b.told) >= b.l.o.SlotLease/3
		switch {
		case b.alone != nil: // see whether Redis is back
			b.fly(now, "tell")
		case len(b.askers) > 0: // pump asks
		case b.down != nil, beat, !b.flushAt.IsZero() && !now.Before(b.flushAt):
			b.fly(now, "tell")
		}
	}
	b.pump(now)
}

// extend keeps the units of requests that have had no answer for half a
// window from coming back: the origin may count them yet.
func (b *book) extend(now time.Time) {
	y := b.clock.now(now)
	for g := b.open.oldest; g != nil && g.x+b.limits.window/2 <= y; g = b.open.oldest {
		b.open.remove(g)
		b.move(move{g.x, y, g.cost.Requests, g.cost.Bytes}, 1, g.cost.Bytes)
		g.x = y
		b.open.add(g)
		b.flushBy(now)
	}
}

// flush returns what is in hand and tells Redis all there is to tell. What is under way may
// bring more to return; others may go on asking.
func (b *book) flush() error {
	for range 4 {
		b.mu.Lock()
		now := time.Now()
		b.emptyHand(now)
		if b.closed || b.down != nil {
			err := b.down
			b.mu.Unlock()
			return err
		}
		if !b.flying && b.flushAt.IsZero() && b.unacked == nil {
			b.mu.Unlock()
			return nil
		}
		if !b.flying {
			b.fly(now, "tell")
		}
		landed := b.landed
		b.mu.Unlock()
		<-landed
	}
	return nil
}

// close ends the book: who waits gets [ErrClosed].
func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.pump(time.Now())
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// retire closes the book unless it is in use.
func (b *book) retire() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flying || len(b.askers) > 0 || b.open.oldest != nil || !b.flushAt.IsZero() || b.past.any(b.clock.now(time.Now())) || b.slots.any(b) {
		return false
	}
	b.closed = true
	return true
}
