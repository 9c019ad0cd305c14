package heed

import (
	"math"
	"time"
)

// A ledger keeps the books of one announced policy: how many units may still
// be sent, and from when on there are more. It believes what answers say only
// as far as requests in flight allow, in whatever order answers arrive.
//
// An epoch is the time from one reset to the next. In an epoch in which the
// origin has said what remains, the books follow that and this process's own
// sends. At the start of an epoch, before its first answer, they follow the
// quota.
type ledger struct {
	own usage

	epoch    uint32
	stated   bool  // an answer of this epoch said what remains
	left     int64 // where stated: what may still be sent; may be negative
	fresh    bool  // the epoch began after a stop: the quota is presumed whole
	inEpoch  int64 // units sent in this epoch
	sent     int64 // units ever sent …
	answered int64 // … and ever answered, or never to be answered

	earliest time.Time // the reset is not before this …
	opens    time.Time // … and taken to be at this instant; zero: not said
	closed   time.Time // nothing may start before: an answer named this instant with nothing left
	last     time.Time // when the reset before this epoch was taken to be
	down     bool      // the origin was caught rounding resets down
	blind    int       // statements in a row with nothing left and no reset
}

// unlimited is the room where nothing is known that would bound it.
const unlimited = math.MaxInt64 / 4

// A charge is what one request took from one slot.
type charge struct {
	slot     *slot
	n        int64
	answered int64 // of the ledger, when this one was sent
	epoch    uint32
	settled  bool // no longer in flight
}

// A statement is what one answer says about one policy.
type statement struct {
	remaining  int64         // negative: not said
	reset      time.Duration // negative: not said
	resolution time.Duration
	refused    bool
}

// blindWait is how long to wait for more where an origin said that nothing
// is left and not until when.
func (l *ledger) blindWait() time.Duration {
	return min(defaultMinBackoff<<min(max(l.blind-1, 0), 10), defaultMaxBackoff)
}

// until returns the instant at which what is known of this epoch runs out;
// zero where nothing says when.
func (l *ledger) until() time.Time {
	if l.closed.After(l.opens) {
		return l.closed
	}
	return l.opens
}

// turn begins a new epoch where the present one is over. It reports whether
// requests that go now need to be confirmed by answers first: after a stop,
// or where the quota is unknown.
func (l *ledger) turn(now time.Time, p *Policy) (probe bool) {
	until := l.until()
	if until.IsZero() || now.Before(until) {
		return false
	}
	stopped := l.stated && l.left <= 0 || !l.closed.IsZero()
	l.epoch++
	l.last = until
	l.fresh, l.stated, l.left, l.inEpoch = stopped, false, 0, 0
	l.earliest, l.opens, l.closed = time.Time{}, time.Time{}, time.Time{}
	return stopped || p.Quota == 0
}

// room returns how many units may be sent now.
func (l *ledger) room(now time.Time, p *Policy) int64 {
	switch {
	case now.Before(l.closed):
		return 0
	case l.stated:
		return l.left
	case p.Quota == 0:
		return unlimited
	case l.fresh || p.Window == 0:
		return p.Quota - l.inEpoch
	}
	return p.Quota - l.own.used(now, p.Window)
}

// free returns the instant from which n units may be sent, as far as is
// known now; false where that depends on answers still to come.
func (l *ledger) free(now time.Time, n int64, p *Policy) (time.Time, bool) {
	room := l.room(now, p)
	if room >= n {
		return now, true
	}
	at, known := l.until(), true
	switch {
	case now.Before(l.closed):
		at = l.closed // even where less would do
	case at.IsZero() && !l.stated && !l.fresh && p.Window > 0:
		return l.own.back(now, n-room, p.Window)
	case at.IsZero() && l.sent == l.answered:
		// Nothing in flight, nothing said: what was sent first comes back.
		if at, known = l.own.back(now, 1, p.Window); !known || p.Window == 0 {
			return now, true
		}
	case at.IsZero():
		return time.Time{}, false
	}
	if p.Quota > 0 && p.Window > 0 && n > p.Quota+max(room, 0) {
		at = at.Add(time.Duration((n-max(room, 0)-1)/p.Quota) * p.Window)
	}
	return at, known
}

func (l *ledger) take(n int64) (answered int64, epoch uint32) {
	answered = l.answered
	l.own.take(n)
	l.sent += n
	l.inEpoch += n
	l.left -= n
	return answered, l.epoch
}

// refund gives back what a request took that was never counted.
func (l *ledger) refund(c *charge) {
	l.own.refund(c.n)
	l.sent -= c.n
	if c.epoch == l.epoch {
		l.inEpoch -= c.n
		l.left += c.n
	}
}

// settle closes a request's account without news: its answer said nothing
// of this policy, or none will come.
func (l *ledger) settle(now time.Time, c *charge, p *Policy) {
	l.own.done(now, c.n, p.Quota, p.Window)
	l.answered += c.n
}

// hear takes in what the answer to the request c, sent at start, says at now.
// No wait it asks for is longer than atMost; hear reports whether one was.
func (l *ledger) hear(now, start time.Time, c *charge, p *Policy, s statement, atMost time.Duration) (capped bool) {
	// Of the requests sent so far, those not yet answered when this one was
	// sent may or may not be counted in what it says.
	overlap := l.sent - c.answered - c.n
	if s.reset > atMost {
		s.reset, capped = atMost, true
	}
	if l.stale(now, start, c, p, s) {
		return false
	}
	if s.reset >= 0 {
		l.hearReset(now, start, s)
	}
	if s.refused && l.turnedTooSoon(now, c, p, s) {
		l.down = true
		l.opens = l.opens.Add(s.resolution)
	}
	if s.remaining < 0 {
		return capped
	}
	r := s.remaining
	if p.Quota > 0 {
		r = min(r, p.Quota) // an absurd count must not raise the rate
	}
	before := l.left
	if !l.stated {
		before = l.room(now, p)
		l.stated = true
	}
	l.left = min(max(before, r-overlap), r)
	if r > 0 {
		l.blind = 0
		return capped
	}
	wait := s.reset
	switch {
	case wait < 0 && p.Window > 0:
		if at, ok := l.own.back(now, 1, p.Window); ok {
			wait = at.Sub(now)
		} else {
			wait = p.Window
		}
	case wait < 0:
		l.blind++
		wait = l.blindWait()
	case l.down:
		wait += s.resolution
	}
	if at := now.Add(min(wait, atMost)); at.After(l.closed) {
		l.closed = at
	}
	return capped
}

// hearReset narrows down when the reset is. An origin may have rounded it up
// or down by s.resolution and have stamped it at any time since start; of
// several answers about one reset the earliest instant named stands. It is
// taken to round up until it is caught rounding down.
func (l *ledger) hearReset(now, start time.Time, s statement) {
	named := now.Add(s.reset)
	if l.down {
		named = named.Add(s.resolution)
	}
	earliest := start.Add(s.reset - s.resolution)
	switch {
	case l.opens.IsZero(), earliest.After(l.opens), named.Before(l.earliest): // another reset
		l.opens, l.earliest = named, earliest
		return
	}
	if named.Before(l.opens) {
		l.opens = named
	}
	if earliest.After(l.earliest) {
		l.earliest = earliest
	}
}

// stale reports whether an answer belongs to an epoch that is over: it was
// sent in one, and the reset it names is not clearly a later one.
func (l *ledger) stale(now, start time.Time, c *charge, p *Policy, s statement) bool {
	if c.epoch == l.epoch {
		return false
	}
	if s.reset < 0 || l.last.IsZero() {
		return true
	}
	return !start.Add(s.reset - s.resolution).After(l.last)
}

// turnedTooSoon reports whether a refusal shows that the epoch was begun
// before the origin's window had turned: it still names the old reset.
func (l *ledger) turnedTooSoon(now time.Time, c *charge, p *Policy, s statement) bool {
	return !l.down && s.resolution > 0 && s.reset >= 0 && c.epoch == l.epoch && !l.last.IsZero() &&
		now.Sub(l.last) < 2*s.resolution+p.Window/10 && now.Add(s.reset).Sub(l.last) < max(2*s.resolution, p.Window/2)
}
