package heed

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A plan spreads what is left of one policy over what is left of its window.
type plan struct {
	from  time.Time // zero: no plan, every request may go as it comes
	to    time.Time // the reset it was made for
	units float64   // left at from
	rate  float64   // units per second
}

// span is the time over which demand for a slot is measured.
func (s *slot) span(now time.Time) time.Duration {
	w := s.inView()
	if w == 0 {
		w = s.ledger.until().Sub(now)
	}
	if w <= 0 {
		return time.Second // not known yet
	}
	return max(w/10, time.Millisecond)
}

// inView is how long the window is as far as this process sees it: from its first request in
// it. Others may have met it at the same moment, and each has yet to see the rest.
func (s *slot) inView() time.Duration {
	l, w := &s.ledger, s.terms.Window
	if end := l.until(); l.stated && !l.flows() && end.After(l.begun) {
		w = min(w, end.Sub(l.begun)+l.quickest)
	}
	return w
}

// pace returns how many units per second may go so that they last for the
// window, +Inf where that is no question. waiting are the units asked for by
// those in the queue.
func (s *slot) pace(now time.Time, waiting int64, sm *Smoothing) float64 {
	p := &s.terms
	if sm.Off || p.Unit == UnitConcurrentRequests || p.isBucket() {
		return math.Inf(1)
	}
	if pace := s.paceBeside(now, sm.Velocity); !math.IsInf(pace, 1) {
		return pace
	}
	end := s.plannedTo()
	if end.IsZero() {
		return s.paceAlong(now, waiting, sm)
	}
	return s.paceTo(now, end, waiting, sm)
}

// plannedTo is the reset until which what is left has to last, the zero Time where there is none to plan for.
func (s *slot) plannedTo() time.Time {
	if s.source == SourceConfigured || s.ledger.flows() || s.ledger.isFar(&s.terms) {
		return time.Time{}
	}
	if due := s.ledger.due(&s.terms); !due.IsZero() || !s.ledger.inCompany() {
		return due
	}
	return s.ledger.ends(&s.terms)
}

// paceAlong is pace where there is no reset to plan for: the window slides along.
func (s *slot) paceAlong(now time.Time, waiting int64, sm *Smoothing) float64 {
	p := &s.terms
	if p.Window == 0 || p.Quota == 0 {
		return math.Inf(1)
	}
	left := float64(s.remaining(now))
	if s.affords(now, now.Add(p.Window), float64(waiting), float64(p.Quota), sm) || !s.paced(now, p.Window, float64(waiting), left, sm) {
		s.plan = plan{}
		return math.Inf(1)
	}
	s.plan = plan{from: now, rate: s.makeWay(now, sm.Velocity, s.ledger.usable(now, p, sm.Velocity))}
	return s.plan.rate
}

// paceTo is pace where what is left has to last until a reset.
func (s *slot) paceTo(now, end time.Time, waiting int64, sm *Smoothing) float64 {
	p, left := &s.terms, float64(s.remaining(now))
	ahead := end.Sub(now)
	// What is announced of a window of unknown length can always be a bucket's.
	if l := &s.ledger; l.shape == shapeUnknown && l.streak > 0 && l.inferred == 0 && l.most+l.own.used(now, p.Window) < p.Quota {
		ahead = max(ahead, p.Window) // others use it, and it may be a bucket, and the reset when that is full
	}
	if ahead <= 0 || left <= 0 {
		return math.Inf(1) // the ledger decides alone
	}
	if !sm.always() && (s.ledger.atOnce() || left == 1 && (waiting > 1 || s.demand.lasting() > 0) && !s.ledger.othersSeen) { // the last one goes when that costs nothing
		return math.Inf(1)
	}
	if s.affords(now, end, float64(waiting), left, sm) || !s.paced(now, ahead, float64(waiting), left, sm) {
		s.plan = plan{}
		return math.Inf(1)
	}
	off := left - (s.plan.units - s.plan.rate*now.Sub(s.plan.from).Seconds())
	interval, _ := s.micro(sm)
	slack := max(2*s.plan.rate*interval.Seconds(), s.plan.units/10, 2)
	if s.plan.from.IsZero() || math.Abs(off) > slack || end.Sub(s.plan.to).Abs() > time.Second {
		s.plan = plan{from: now, to: end, units: left, rate: s.makeWay(now, sm.Velocity, left/ahead.Seconds())}
	}
	return s.plan.rate
}

// makeWay is the pace at a velocity and a rate that would use up the quota.
// Where others use it too, the velocity is at most 1, and the pace follows what
// is left, which all who use the quota see alike: so they all get the same, and
// those who know nothing of pacing what they want: save that several may take a bunch that comes back as fast as it
// does (surge). A bucket is never used up to the last by one who seems to be alone: others would not be seen for there
// being nothing left for them.
func (s *slot) makeWay(now time.Time, velocity, rate float64) float64 {
	l, p := &s.ledger, &s.terms
	left := l.seen(now, p)
	share := left / float64(p.Quota)
	least := p.rate() / 100
	if !l.othersSeen {
		if l.shape == shapeRefill && l.fillsUp && !l.twoCounts() {
			return max(min(velocity, greedyBy*share)*rate, least)
		}
		return velocity * rate
	}
	rate *= min(velocity, 1)
	switch {
	case l.twoCounts():
		rate *= min(left/l.berth(now, p), 1)
	case l.shape == shapeSliding:
		quarters := l.quarters(now, p)
		rate *= min(left/max(3, float64(p.Quota)/40+float64(l.reserve(now, p))+l.overrun(quarters, p)), surge(quarters, velocity))
	case l.shape == shapeRefill:
		rate *= min(modestBy*share, 1)
	}
	return max(rate, least)
}

// By how much more of its rate than of a bucket is left of it one process takes …
const (
	modestBy = 2  // … where others are seen
	greedyBy = 20 // … and where none are
)

// paced reports whether demand would outrun what is left before the time
// ahead is over. Once it has, half of that keeps it so.
func (s *slot) paced(now time.Time, ahead time.Duration, waiting, left float64, sm *Smoothing) bool {
	if sm.always() {
		return true
	}
	span, d, back := s.span(now), &s.demand, left
	if s.source == SourceConfigured { // what is used is this process's own, and all of it comes back meanwhile
		back = float64(s.terms.Quota)
	}
	if s.mayBeAll(now, span, waiting > 0) {
		return waiting+d.short.lately(now, span) > left || waiting+d.long.over(now, 10*span, ahead) > back
	}
	want := max(4*waiting, d.short.over(now, span, ahead)) // those who wait are among those who came
	if !s.plan.from.IsZero() {
		want *= 2
	}
	return want > back
}

// affords reports whether what is asked for until an instant is there by then, if batches come as they came before. Where it is
// in doubt how the quota comes back, or depends on what was used before, or nobody said yet that it is back, as much need not be
// there as it seems.
func (s *slot) affords(now, until time.Time, waiting, there float64, sm *Smoothing) bool {
	if !s.isTold(now) || s.ledger.inCompany() || sm.always() {
		return false
	}
	return s.demand.batches.ahead(until, waiting, s.terms.Quota) <= there
}

// isTold reports whether it is known for certain what is left of the quota, that nobody else uses it, and how it comes back; or
// that it does not matter how: nothing came back yet, or nothing had gone for so long that all did. Of what comes back steadily,
// or as fast as it was used before, it is never certain how fast.
func (s *slot) isTold(now time.Time) bool {
	if s.source == SourceConfigured {
		return true
	}
	l, window := &s.ledger, s.terms.Window
	first := now.Sub(s.met) <= window
	return l.stated && !l.doubted && l.shape != shapeRefill &&
		(!first || l.solitude.alone >= solitary) &&
		(first || l.shape != shapeUnknown || s.demand.batches.every() >= 3*window)
}

// mayBeAll reports whether the requests that come may be all there are: they have only begun to. Then half of what
// there is may go as they come. Where they keep coming, or others may use the quota too, they are taken to go on.
func (s *slot) mayBeAll(now time.Time, span time.Duration, waiting bool) bool {
	if s.ledger.inCompany() || s.demand.lasts(now, span, waiting) {
		return false
	}
	switch {
	case s.source == SourceConfigured, s.policy.Window > 0 && now.Sub(s.met) > s.policy.Window:
		return true
	case s.policy.Window == 0 && s.plannedTo().IsZero(): // there is no telling how long it is
		return false
	}
	return s.ledger.solitude.alone >= solitary
}

// gone is how many units of those that may be all there are, but for those that wait, went as they came.
func (s *slot) gone(now time.Time, waiting float64) float64 {
	if span := s.span(now); s.mayBeAll(now, span, waiting > 0) {
		return max(s.demand.short.lately(now, span)-waiting, 0)
	}
	return 0
}

// solitary is how many units that nobody else took tell, of a window that is new, that nobody else uses the quota.
const solitary = 32

// always reports whether every request is to be paced, whatever the demand and
// whether or not it wants to wait.
func (sm *Smoothing) always() bool { return sm.Strict || sm.Velocity < 1 }

// micro is the length of a micro-interval within a window. Where others use the
// quota too, what could have gone and did not is theirs. Of a window met late there
// is little time to see them: there it grows as answers show that nobody else does.
func (s *slot) micro(sm *Smoothing) (interval time.Duration, grown bool) {
	w := s.inView()
	switch {
	case s.ledger.othersSeen, s.ledger.contest.known():
		return 0, false
	case w <= 0:
		return sm.Interval, false
	case w > s.terms.Window/2:
		return min(sm.Interval, w/10), false
	}
	shown := min(s.terms.Window/10, nanoseconds(float64(s.ledger.solitude.alone)/s.plan.rate*1e9))
	return min(sm.Interval, max(w/10, shown)), shown > w/10
}

// faster is when the next unit of this process's own is back: then it may go at a higher pace, or as it comes.
// The zero Time where that is not known, or what is left has to last until a reset all the same.
func (s *slot) faster(now time.Time) time.Time {
	if !s.plannedTo().IsZero() {
		return time.Time{}
	}
	back, _ := s.ledger.own.back(now, 1, s.terms.Window)
	if !back.After(now) {
		return time.Time{}
	}
	return back
}

// A tempo is how fast requests may go for one policy.
type tempo struct {
	pace     float64       // units per second; +Inf: as fast as they come
	interval time.Duration // a micro-interval …
	grown    bool          // … which is longer for what answers have shown
	gone     float64       // units that went as they came until now
	pacing
}

// A pacing is what holds by a pace, and until when.
type pacing struct {
	whose  obstacle
	faster time.Time // when there may be reason for a higher pace, though nothing happens; zero: none is known of
	kept   bool      // it is kept to though deadlines pass
}

// A smoother spreads the requests of one partition as the policy that binds
// most asks for.
type smoother struct {
	limiter *rate.Limiter // nil: off
	most    int           // units that could go in one bunch so far
	pacing
}

// set makes the smoother keep to a tempo, in bunches of at most one micro-interval's
// worth; strict: the first of them is none, else what went lately counts as of it. What a bunch has grown by goes at once.
func (m *smoother) set(now time.Time, to tempo, strict bool) {
	m.pacing = to.pacing
	if math.IsInf(to.pace, 1) {
		m.limiter = nil
		return
	}
	pace, burst := rate.Limit(to.pace), max(int(to.pace*to.interval.Seconds()), 1)
	if m.limiter == nil {
		m.limiter, m.most = rate.NewLimiter(pace, burst), burst
		spent := min(to.gone, float64(burst-1))
		if strict { // a bunch is what could have gone and did not: there is none yet
			spent = float64(burst - 1)
		}
		m.limiter.AllowN(now, int(spent))
		return
	}
	if m.limiter.Limit() != pace {
		m.limiter.SetLimitAt(now, pace)
	}
	if m.limiter.Burst() != burst {
		m.limiter.SetBurstAt(now, burst)
	}
	if more := burst - m.most; more > 0 && to.grown && !strict {
		m.limiter.AllowN(now, -more)
		m.most = burst
	}
}

// free returns now if n units may go, else the instant from which they may.
// More than a bunch at once goes when a whole bunch may.
func (m *smoother) free(now time.Time, n int64) time.Time {
	if m.limiter == nil || n == 0 {
		return now
	}
	missing := float64(min(n, int64(m.limiter.Burst()))) - m.limiter.TokensAt(now)
	if missing <= 0 {
		return now
	}
	return now.Add(nanoseconds(missing/float64(m.limiter.Limit())*1e9) + 1)
}

// take takes n units where there are so many, and reports whether it did: who does not wait for
// the pace goes without.
func (m *smoother) take(now time.Time, n int64) bool {
	return m.limiter != nil && n > 0 && m.limiter.AllowN(now, int(min(n, int64(m.limiter.Burst()))))
}

// refund undoes take.
func (m *smoother) refund(now time.Time, n int64) {
	if m.limiter != nil && n > 0 {
		m.limiter.AllowN(now, -int(min(n, int64(m.limiter.Burst())))) // never above the burst
	}
}
