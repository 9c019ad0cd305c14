package heed

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A Source says where a policy comes from.
type Source int

const (
	SourceAnnounced  Source = iota + 1 // the origin announced it
	SourceConfigured                   // the user set it
	SourceLearned                      // inferred from refusals
)

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

	bucketName string // of the budget it belongs to, which holds requests of that alone; "": it holds all

	ledger ledger        // announced: what answers said; configured: own use
	bucket *rate.Limiter // where it is a token bucket
	within within        // learned: how many may go in a window beside
	plan   plan          // how its units are spread over the window
	demand demand        // how fast requests for it come

	inFlight  int64     // units of requests whose bodies are not over yet
	taken     time.Time // when the latest request went that took any
	habit     habit     // of announcing it
	estimate  int64     // content-bytes: what a request is taken to cost …
	mean      float64   // … and what one costs in the long run
	unasked   bool      // … which the origin lets pass whatever it holds, for it counts it when it is over …
	exacting  bool      // … or does not
	refused   int64     // units of requests that were refused for it
	resetSaid time.Time // as announced last …
	usedThen  int64     // … how many units had been accepted by then …
	firstThen time.Time // … and when the first request after that reset went
	slip      bool      // the reset announced last was far later than the window explains
	capped    bool      // what it holds for is too long to wait for, and that was told
	said      Policy    // as it was announced last
	loose     bool      // its window is the service's documentation's word, not that of its answers …
	shown     bool      // … which show how long it is
	resetUnit resetUnit // what resets are counted in
}

func newSlot(p Policy, s Source) *slot {
	sl := &slot{policy: p, source: s, said: p}
	sl.resize(p)
	return sl
}

// resize changes a slot's quota and window while its books go on.
func (s *slot) resize(p Policy) {
	known := s.terms.Window
	if l := &s.ledger; p.Quota == 0 { // there is no telling what comes back of nothing, nor how another quota will
		l.shape, l.fits, l.apart = shapeUnknown, 0, resetsApart{}
	}
	if s.terms.Quota > 0 && s.terms.Quota != p.Quota {
		s.ledger.anew()
	}
	s.policy, s.terms = p, p
	if (p.Window == 0 || s.loose && s.shown) && s.source == SourceAnnounced {
		s.terms.Window = known
	} else {
		s.ledger.inferred, s.ledger.shorter = 0, 0
	}
	if s.source != SourceConfigured || p.Burst <= 0 || p.Window <= 0 {
		s.bucket = nil
		return
	}
	perSecond := rate.Limit(p.rate())
	s.bucket = rate.NewLimiter(perSecond, int(min(p.Burst, math.MaxInt)))
}

// infer takes a window to be as long as the longest wait for its end. That is
// known to a grain: the most it can be counts, in whole seconds where that
// fits, for windows mostly are, and one too long does no harm.
func (s *slot) infer(reset, grain time.Duration) {
	l := &s.ledger
	least := reset - max(grain, 1)
	if s.terms.Window > 0 && least <= s.terms.Window-l.inferred {
		return
	}
	window := reset
	if whole := reset.Truncate(time.Second); whole > least {
		window = whole
	}
	s.terms.Window, l.inferred, l.shorter = window, max(window-max(least, time.Second), 1), 0
}

// inferFrom infers the window of a policy that states none itself from a reset that is
// rounded to a grain: it is as long as the longest wait for its end. Refusals come late in it,
// and so do answers that say that little is left. Where they alone announce it, it is as long as
// from one end to the next, too, if there was no other between: the first request after the one went so
// soon that it was of the next window, and no more went than that has used. One answer that
// names a wait far longer than all before it may be a slip, and would hold requests back for
// good: the next has to do so, too.
func (s *slot) inferFrom(now time.Time, lim *ServiceLimit, grain time.Duration) {
	accepted := s.accepted()
	if s.loose && !s.shown { // what this origin says of its windows counts for more than what others do
		s.shown, s.terms.Window = true, 0
		s.ledger.comeback = comeback{adopted: s.ledger.adopted} // it was reckoned by that window
	}
	if (s.policy.Window == 0 || s.loose) && lim.Reset > 0 && (lim.Remaining != 0 || s.habit.onRefusals) { // 0 says nothing of how long
		window, slack := usual(lim, grain)
		if s.slip = s.terms.Window > 0 && window > 2*s.terms.Window && !s.slip; !s.slip {
			s.infer(window, slack)
		}
		since := accepted - s.usedThen
		if all := since == s.policy.Quota; s.habit.onRefusals && all && s.firstThen.After(s.resetSaid) {
			whole := *lim // what was used up has all been of this window
			whole.Reset = min(whole.Reset, ages) + now.Sub(s.firstThen)
			s.infer(usual(&whole, grain))
		}
		gap := now.Add(lim.Reset).Sub(s.resetSaid).Round(max(grain, 1))
		oneWindow := since <= s.policy.Quota-max(lim.Remaining, 0)
		soon := s.firstThen.After(s.resetSaid) && s.firstThen.Sub(s.resetSaid) < s.terms.Window
		if (s.habit.onRefusals || s.habit.late(&s.policy)) && oneWindow && soon && gap > s.terms.Window {
			s.infer(gap, 0)
		}
	}
	s.usedThen = accepted
}

// usual returns how long the window is taken to be at whose end a reset is
// named, rounded to a grain either way, and how much less it can be than that: where
// it can be a multiple of five grains, as most are, it is one, and never less than
// a grain.
func usual(lim *ServiceLimit, grain time.Duration) (window, slack time.Duration) {
	window = max(lim.Reset, grain)
	if five := (lim.Reset + grain - 1).Truncate(5 * grain); five > max(lim.Reset-lim.Resolution, 0) {
		window = five
	}
	return window, lim.Resolution + window - lim.Reset
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
		l.closed = latest(l.closed, now.Add(min(lim.Reset, most)))
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
	case s.bucket != nil:
		return s.policy.Burst
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
	p := &s.terms
	switch {
	case p.Unit == UnitConcurrentRequests:
		if s.inFlight+n <= p.Quota || n == 0 || p.Quota == 0 { // a quota of 0 states none: nobody could ever see it change
			return now, true
		}
		return time.Time{}, false
	case n == 0:
		return now, true
	case s.bucket != nil:
		at := now
		if missing := float64(n) - s.bucket.TokensAt(now); missing > 0 {
			at = now.Add(nanoseconds(missing/float64(s.bucket.Limit())*1e9) + 1)
		}
		return s.within.free(now, at, n)
	case s.source == SourceConfigured:
		return s.freeConfigured(now, n)
	}
	return s.ledger.free(now, n, p, pressed)
}

// probe is when a request may go that could go at an instant, where no
// announcement holds longer than most: then one goes to see, and is waited for.
func (s *slot) probe(at time.Time, most time.Duration) (time.Time, bool) {
	if s.source != SourceAnnounced || s.policy.Unit == UnitConcurrentRequests {
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

// counting returns for how long the origin may count a request that is not answered, as far
// as it is waited for; most is the longest wait for anything an origin says. false: as long as
// the request lasts.
func (s *slot) counting(most time.Duration) (time.Duration, bool) {
	window := s.terms.Window
	switch {
	case s.bucket != nil && s.source == SourceLearned: // a window at most, wherever it hangs
		return min(s.within.window, most), true
	case s.source == SourceLearned: // for as long as it lasts, if that is the limit
		return most, true
	case s.policy.Unit == UnitConcurrentRequests:
		return 0, false
	case s.source == SourceConfigured: // from its arrival there, whenever that was
		return min(window, ages) + min(most, ages), true
	}
	orDefault(&window, windowless)
	return min(window, most), true
}

func (s *slot) freeConfigured(now time.Time, n int64) (time.Time, bool) {
	p := &s.terms
	var cycles int64
	if n > p.Quota { // those ahead take whole windows first
		cycles = (n - 1) / p.Quota
		n -= cycles * p.Quota
	}
	missing := s.ledger.own.used(now, p.Window) + n - p.Quota
	at, known := s.ledger.own.back(now, missing, p.Window)
	if !known {
		at = now.Add(p.Window) // those in flight come back no sooner
	}
	return at.Add(times(cycles, p.Window)), known
}

// take takes n units for a request that starts now.
func (s *slot) take(now time.Time, n int64) charge {
	c := charge{n: n}
	s.inFlight += n
	if n > 0 {
		s.taken = now
	}
	switch {
	case s.policy.Unit == UnitConcurrentRequests:
	case s.bucket != nil:
		s.bucket.AllowN(now, int(n))
		s.within.own.take(n)
	default:
		c = s.ledger.take(now, n, &s.terms)
		if now.After(s.resetSaid) && !s.firstThen.After(s.resetSaid) {
			s.firstThen = now
		}
		c.due = s.source == SourceAnnounced && s.habit.due(s.ledger.own.used(now, s.terms.Window), &s.terms)
	}
	c.slot = s
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
	switch {
	case s.policy.Unit == UnitConcurrentRequests:
	case s.bucket != nil:
		s.bucket.AllowN(now, -int(c.n)) // gives back; never above the burst
		s.within.own.refund(c.n)
	default:
		s.ledger.refund(c)
	}
}

// settle says that c's answer came, or will not, and said nothing of this policy.
func (s *slot) settle(now, start time.Time, c *charge) {
	if c.settled {
		return
	}
	c.settled = true
	switch {
	case s.policy.Unit == UnitConcurrentRequests:
	case s.bucket != nil:
		s.within.answered(now, start, c.n)
	default:
		s.ledger.settle(now, start, c, &s.terms)
	}
}

// settleRefused says that c's request was refused: what it took is in nobody's
// use, save where the origin counts refused requests, which what it says of
// this policy will show.
func (s *slot) settleRefused(now, start time.Time, c *charge) {
	if c.settled || s.policy.Unit == UnitConcurrentRequests {
		s.settle(now, start, c)
		return
	}
	c.settled = true
	if s.policy.Unit == UnitContentBytes { // it costs what the refusal itself holds
		if left := s.ledger.left + c.n; c.epoch == s.ledger.epoch && left > 0 && left < c.n {
			s.exacting = true // something was left
		}
		s.inFlight -= c.n
		s.ledger.refund(c)
		c.n = 0
		return
	}
	s.ledger.own.refund(c.n)
	s.ledger.answered += c.n
	s.refused += c.n
}

// accepted is how many units of requests were ever accepted.
func (s *slot) accepted() int64 { return s.ledger.answered - s.refused }

// over says that c's request is over, bodies and all; bytes is what they held,
// or where that is not exact, what they held at least.
func (s *slot) over(now, start time.Time, c *charge, bytes int64, exact bool) {
	s.settle(now, start, c)
	s.inFlight -= c.n
	switch {
	case s.policy.Unit != UnitContentBytes:
	case bytes < 0: // nobody knows
		s.ledger.answered += c.n
	default:
		if !exact {
			bytes = max(bytes, c.n)
		} else if c.told > 0 && c.told > s.policy.Quota-bytes {
			s.unasked = true
		}
		if s.bucket != nil {
			s.correct(now, bytes-c.n)
		} else {
			s.ledger.correct(now, start, c, bytes, &s.terms)
		}
		if s.mean == 0 {
			s.mean = float64(bytes)
		}
		s.mean += (float64(bytes) - s.mean) / 16
		s.estimate = max(bytes, s.estimate-max(s.estimate-int64(s.mean), 0)/16)
	}
}

// overdraws reports whether a request may go however little is left, though its body may hold more:
// nothing else is on its way, and answers were seen to say what is left without their own
// bodies, so the origin does not know what one holds before it is over. Where a quota comes back bit by
// bit, nothing that is left is lost.
func (s *slot) overdraws() bool {
	return s.unasked && !s.exacting && s.inFlight == 0 && !s.ledger.flows()
}

// correct takes more units of a bucket than were taken, be it into debt, or
// gives some back.
func (s *slot) correct(now time.Time, more int64) {
	burst := s.bucket.Burst()
	s.bucket.SetBurstAt(now, int(max(more, int64(burst)))) // no more than that can be taken at once
	s.bucket.ReserveN(now, int(more))
	s.bucket.SetBurstAt(now, burst)
	s.bucket.AllowN(now, 0) // never above the burst
}

// correct replaces an estimate of bytes by what they were.
func (l *ledger) correct(now, start time.Time, c *charge, n int64, p *Policy) {
	more := n - c.n
	if c.epoch == l.epoch {
		l.left -= more
		l.most -= more
		l.inEpoch += more
	} else {
		l.carried -= max(more, 0) // it may count in either
	}
	l.sent += more
	l.answered += n
	if more < 0 {
		l.own.less(now, start, -more, p.Window)
		return
	}
	l.own.inFlight += more
	l.own.done(now, start, 0, more, p.Quota, p.Window)
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
func (s *slot) remaining(now time.Time) int64 {
	p := &s.terms
	switch {
	case p.Unit == UnitConcurrentRequests && p.Quota == 0:
		return -1
	case p.Unit == UnitConcurrentRequests:
		return max(p.Quota-s.inFlight, 0)
	case s.bucket != nil:
		return max(int64(s.bucket.TokensAt(now)), 0)
	case s.source == SourceConfigured:
		return max(p.Quota-s.ledger.own.used(now, p.Window), 0)
	case !s.ledger.stated && p.Quota == 0:
		return -1
	}
	return max(s.ledger.room(now, p), 0)
}

// rest returns the instant by which the slot is as if it had never been used.
func (s *slot) rest(now time.Time) time.Time {
	p := &s.terms
	switch {
	case p.Unit == UnitConcurrentRequests:
		return now
	case s.bucket != nil:
		at, _ := s.free(now, p.Burst, false)
		return at
	}
	at := s.ledger.own.rest(p.Window)
	if u := s.ledger.until(); u.After(at) {
		at = u
	}
	return at
}
