package heed

import "time"

// A Source says where a policy comes from.
type Source int

const (
	SourceAnnounced  Source = iota + 1 // the origin announced it
	SourceConfigured                   // the user set it
	SourceLearned                      // inferred from refusals
)

// String returns "announced", "configured" or "learned".
func (s Source) String() string {
	switch s {
	case SourceAnnounced:
		return "announced"
	case SourceConfigured:
		return "configured"
	case SourceLearned:
		return "learned"
	}
	return "unknown"
}

// MarshalText encodes s as the text of [Source.String].
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A slot is one policy of one partition at work: how many units are left
// until when, and how fast they may go. It knows time only as an argument,
// and no HTTP.
type slot struct {
	policy Policy // as announced, configured or learned; Unit is set
	terms  Policy // policy as it is kept to: with a window inferred where none was said
	source Source

	met    time.Time // when it was first heard of
	budget string    // of the budget it belongs to, which holds requests of that alone; "": it holds all

	books  bookkeeper // how many units may go, and when
	ledger ledger     // announced: what answers said; where it follows them, its books
	plan   plan       // how its units are spread over the window
	demand demand     // how fast requests for it come

	inFlight int64     // units of requests whose bodies are not over yet
	taken    time.Time // when the latest request went that took any
	refused  int64     // units of requests that were refused for it, or free
	content  content   // of requests, where bytes are counted

	said      Policy    // as it was announced last
	habit     habit     // of announcing it
	resetUnit resetUnit // what resets are counted in
	inference inference // of its window, where none is stated
	nextUnit  nextUnit  // and whether resets tell of that at all
	capacity  capacity  // how much of its quota there is at once
	capped    bool      // what it holds for is too long to wait for, and that was told
}

func newSlot(p Policy, source Source) *slot {
	s := &slot{policy: p, terms: p, source: source, said: p}
	switch {
	case p.Unit == UnitConcurrentRequests:
		s.books = inFlightCap{s}
	case source == SourceAnnounced:
		s.books = &s.ledger
	case p.isBucket():
		s.books = newTokenBucket(p.rate(), p.Burst)
	default:
		s.books = &rollingWindow{}
	}
	return s
}

// resize changes a slot's quota and window while its books go on.
func (s *slot) resize(now time.Time, p Policy) {
	known := s.terms
	s.policy, s.terms = p, p
	if b, ok := s.books.(*tokenBucket); ok {
		b.resize(now, p.rate(), p.Burst)
	}
	if s.source != SourceAnnounced {
		return
	}
	if l := &s.ledger; p.Quota == 0 { // there is no telling what comes back of nothing, nor how another quota will
		l.shape, l.fits, l.apart = shapeUnknown, 0, resetsApart{}
	}
	if known.Quota > 0 && known.Quota != p.Quota {
		s.habit.atOnce = false // it may be another one that is told of now and then
		s.nextUnit, s.inference.untimed = nextUnit{}, untimed{}
		s.ledger.anew()
	}
	if p.Window == 0 || s.inference.loose && s.inference.shown {
		s.terms.Window = known.Window
	} else {
		s.ledger.inferred = 0
	}
}

// follows reports whether the slot's books are a ledger that follows what answers say.
func (s *slot) follows() bool {
	return s.source == SourceAnnounced && s.policy.Unit != UnitConcurrentRequests
}

// enforced reports whether the slot bounds anything: units nobody can count
// on this side are only shown.
func (s *slot) enforced() bool {
	switch s.policy.Unit {
	case UnitRequests, UnitContentBytes, UnitConcurrentRequests:
		return true
	}
	return false
}

// closes reports whether the slot's ledger can hold requests until an instant.
func (s *slot) closes() bool { return s.enforced() && s.policy.Unit != UnitConcurrentRequests }

// show takes in what is said of a policy whose units nobody on this side can
// count. It holds nothing, save where a service's own dialect states it in a unit
// that all requests cost, and nothing is left: then until the reset named,
// or until a request sent since is answered otherwise.
func (s *slot) show(now, start time.Time, lim *ServiceLimit, known bool, most time.Duration) {
	l := &s.ledger
	if lim.Remaining >= 0 {
		l.stated, l.left = true, lim.Remaining
	}
	switch {
	case known && (s.policy.Unit == "tokens" || s.policy.Unit == "percent") && lim.Remaining == 0 && lim.Reset > 0:
		l.said = now
		l.close(now, lim.Reset, most)
	case lim.Remaining > 0 && start.After(l.said):
		l.closed = time.Time{}
	}
}

// shut returns the instant until which such a policy holds everything, and
// whether that is yet to come; the zero Time where it holds nothing. That it is
// over is reported once.
func (s *slot) shut(now time.Time) (until time.Time, closed bool) {
	until = s.ledger.closed
	if closed = now.Before(until); !closed {
		s.ledger.closed = time.Time{}
	}
	return until, closed
}

// most is the largest number of units one request can take of the slot:
// whoever asks for more waits for the whole quota.
func (s *slot) most() int64 {
	switch {
	case s.policy.isBucket():
		return s.policy.Burst
	case s.policy.Quota > 0 && s.follows():
		return min(s.policy.Quota, max(s.terms.Quota, 1)) // which may be as much as there ever was
	case s.policy.Quota > 0:
		return s.policy.Quota
	}
	return unlimited
}

// free returns now if n units may be taken, else the instant from which they
// may, as far as is known now; false where that depends on requests in flight,
// and is no sooner. n may exceed a quota: units for those ahead in a queue are
// counted in. pressed says that others wait behind.
func (s *slot) free(now time.Time, n int64, pressed bool) (time.Time, bool) {
	if n == 0 {
		return now, true
	}
	return s.books.free(now, n, &s.terms, pressed)
}

// probe is when a request may go that could go at an instant, where no
// announcement holds longer than most: then one goes to see, and is waited for.
func (s *slot) probe(at time.Time, most time.Duration) (time.Time, bool) {
	if !s.follows() {
		return at, true
	}
	last := s.habit.last
	if k := len(s.ledger.own.log); k > 0 {
		last = latest(last, s.ledger.own.log[k-1].last)
	}
	if end := last.Add(most); at.After(end) {
		return end, s.ledger.own.inFlight == 0
	}
	return at, true
}

// probes is when a request behind n others goes at the latest that could go at an
// instant: each of them has gone to see by then.
func (s *slot) probes(at time.Time, n int, most time.Duration) time.Time {
	if s.terms.Window <= most { // nobody has to: it holds for no longer
		return at
	}
	if first, _ := s.probe(at, most); first.Before(at) {
		return soonest(at, first.Add(times(int64(n), most)))
	}
	return at
}

// take takes n units for a request that starts now.
func (s *slot) take(now time.Time, n int64) charge {
	c := s.books.take(now, n, &s.terms)
	c.slot = s
	s.inFlight += n
	if n > 0 {
		s.taken = now
	}
	if s.follows() {
		s.inference.went(now)
		c.due = s.habit.due(s.ledger.own.used(now, s.terms.Window), &s.terms)
	}
	return c
}

// refund undoes take for a request that was not sent, or cost nothing.
func (s *slot) refund(now time.Time, c *charge) {
	s.inFlight -= c.n
	if c.settled {
		return
	}
	c.settled = true
	s.demand.drop(now, c.n, s.span(now))
	s.books.refund(now, c)
}

// settle says that c's answer came, or will not, and said nothing of this policy.
func (s *slot) settle(now, start time.Time, c *charge) {
	if c.settled {
		return
	}
	c.settled = true
	s.books.settle(now, start, c, &s.terms)
}

// missed says that the answer to pm's request, which took c, could be expected to announce the policy, and said nothing of it;
// well: it comes from where it is counted.
func (s *slot) missed(now time.Time, pm *Permit, c *charge, well bool) {
	s.habit.missed()
	s.capacity.proven, s.ledger.ever = false, 0 // where little is left each answer would say so
	s.keepToWhole()
	if well && s.habit.tells(pm.route(), &s.policy) {
		s.ledger.hearMore(now, c, s.habit.most+1, &s.terms)
	}
}

// settleRefused says that c's request was refused: what it took is in nobody's
// use, save where the origin counts refused requests, which what it says of
// this policy will show. Of a policy of which answers say nothing it is not known.
func (s *slot) settleRefused(now time.Time, c *charge) {
	if c.settled {
		return
	}
	c.settled = true
	if s.policy.Unit == UnitContentBytes {
		s.unweigh(now, c)
		return
	}
	s.ledger.own.refund(c.n)
	s.ledger.answered += c.n
	s.ledger.counter.since = time.Time{} // which sees units come back by what was sent
	s.refused += c.n
}

// settleFree says that c's request was answered and used nothing.
func (s *slot) settleFree(now time.Time, c *charge) {
	if c.settled {
		return
	}
	c.settled = true
	s.demand.drop(now, c.n, s.span(now))
	s.ledger.settleFree(c)
	s.refused += c.n
}

// accepted is how many units of requests were ever accepted.
func (s *slot) accepted() int64 { return s.ledger.answered - s.refused }

// over says that c's request is over, bodies and all; bytes is what they held,
// or where that is not exact, what they held at least.
func (s *slot) over(now, start time.Time, c *charge, bytes int64, exact bool) {
	c.unsure = c.unsure || !c.settled
	s.settle(now, start, c)
	s.inFlight -= c.n
	if s.policy.Unit == UnitContentBytes {
		s.weigh(now, start, c, bytes, exact)
	}
}

// turn begins a new window where the present one is over; it reports whether
// requests need to be confirmed by answers from then on, the first of which takes n units.
func (s *slot) turn(now time.Time, n int64) (probe bool) {
	if s.source != SourceAnnounced {
		return false
	}
	return s.ledger.turn(now, n, &s.terms)
}

// remaining returns how many units may be sent now; -1: unknown.
func (s *slot) remaining(now time.Time) int64 { return s.books.remaining(now, &s.terms) }

// left is what remains as it is shown: as the next request will find it, with which a new window
// begins where the present one is over.
func (s *slot) left(now time.Time) int64 {
	if !s.follows() || now.Before(s.ledger.until()) {
		return s.remaining(now)
	}
	s.ledger.own.used(now, s.terms.Window) // what is over is forgotten there, and not in the copy alone …
	s.ledger.foreignNow(now, &s.terms)     // … which would move what they both hold …
	if l := &s.ledger; l.away.began {
		l.away.gone.used(now, l.away.span(&s.terms)) // … likewise
	}
	next, terms := s.ledger, s.terms
	next.turn(now, 1, &terms)
	return next.remaining(now, &terms)
}

// rest returns the instant by which the slot is as if it had never been used.
func (s *slot) rest(now time.Time) time.Time { return s.books.rest(now, &s.terms) }
