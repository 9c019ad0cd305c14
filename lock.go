package heed

import "time"

// What happens at an origin happens under its lock, and at the instant that is read with it. Whoever is to be told of it
// is told once the lock is free.

// emit notes an event to be told once the lock is free.
func (p *partition) emit(e Event) {
	if p.origin.reg.listens(e.Kind) {
		e.Partition = p.number
		e.Queue = p.waiting()
		p.origin.note(e)
	}
}

func (o *origin) emit(e Event) {
	if o.reg.listens(e.Kind) {
		o.note(e)
	}
}

func (o *origin) note(e Event) {
	e.Origin = o.name
	o.pending = append(o.pending, e)
}

// lock locks the origin and returns the instant at which what is done then happens. It is read with
// the lock held: who had to wait for it, or was not run meanwhile, must not act as of before others
// who have been.
func (o *origin) lock() time.Time {
	o.mu.Lock()
	return o.present()
}

// present reads the clock. The origin is locked.
func (o *origin) present() time.Time {
	o.now = time.Now()
	return o.now
}

// lockAt is lock for what came at an instant that is over. It counts as having come when something
// happened last, where that was later.
func (o *origin) lockAt(at time.Time) time.Time {
	o.mu.Lock()
	o.now = latest(at, o.now)
	return o.now
}

// unlock releases the origin and tells what happened, on the caller's
// goroutine, with no lock held.
func (o *origin) unlock() {
	events := o.pending
	o.pending = nil
	o.mu.Unlock()
	if len(events) > 0 {
		o.tell(events)
	}
}

// flush tells of the events that others left behind.
func (o *origin) flush() {
	o.mu.Lock()
	o.unlock()
}

// tell tells of events. Where the user's function panics, those it has not
// been told of are left to the next one who comes by.
func (o *origin) tell(events []Event) {
	defer func() {
		if len(events) > 0 {
			o.mu.Lock()
			o.pending = append(events, o.pending...)
			o.mu.Unlock()
		}
	}()
	for len(events) > 0 {
		e := &events[0]
		events = events[1:]
		o.reg.tell(e)
	}
}
