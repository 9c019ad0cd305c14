package heed

import (
	"math"
	"time"
)

// A counter follows an origin that keeps no more than two counts, of the present window
// and of the one before, and takes the units of that to have been used evenly: of these
// as many are still in use as there is left of the present window. What comes back in a
// window is then known when it begins: all that was not left at the end of the one before,
// evenly. What is not used of it by the end of the window is lost.
type counter struct {
	window     time.Duration // that all this is about
	known      bool          // the origin was found to count like that …
	stops      int64         // … and so often named the end of the window when nothing was left
	ends, last time.Time     // the present window ends between these …
	instant    time.Time     // … at this instant of the origin's clock; zero: it names none
	named      instants      // … as answers name it, by what that is rounded to later or sooner …
	prior      instants      // … and the one before, likewise
	said       int64         // units of requests answered when the origin spoke last …
	at         time.Time     // … when that was …
	of         time.Time     // … when the request went that had it say so …
	used       int64         // … and how much of the quota was in use
	before     float64       // units used in the window before …
	own        float64       // … those of them that this process used …
	mark       int64         // … and units of requests answered that used nothing of the present one: of those before, or refused
	unsure     int64         // units of requests answered since, of which it is not known whether they were of the present one, or counted at all …
	atOnce     bool          // … and far more of it came back at once when the present one began than two counts give back
	cut        bool          // in the last second of a window no reset is named: they are rounded down …
	uncut      bool          // … or one was once
	ticks      time.Duration // it goes by a clock that is cut to whole ones of these; zero: that is not cut
	edge       time.Time     // the present window, or one tick of it less, ends no later than this, wherever it does

	countSigns
}

// instants are two between which another one is.
type instants struct{ first, last time.Time }

// twoCounts reports whether the origin was found to keep two counts.
func (l *ledger) twoCounts() bool {
	return l.shape == shapeRefill && l.counter.known && l.counter.stops < maxStops
}

// counted reports whether it was, and what they are is known still.
func (l *ledger) counted(now time.Time, p *Policy) bool {
	return l.twoCounts() && now.Sub(l.said) < p.Window
}

// learnCounter takes in what the answer to c says is left.
func (l *ledger) learnCounter(now, start time.Time, c *charge, p *Policy, s *statement, r int64) {
	k := &l.counter
	w := p.Window
	if l.elastic || w <= 0 || p.Quota <= 0 || p.Unit == UnitContentBytes { // what a body holds is told too late
		return
	}
	if l.inferred > 0 && l.holds(p) < p.Quota { // it is a bucket: of two counts all comes back in time
		return
	}
	if k.window != w && l.inferred == 0 {
		*k = counter{}
	}
	k.window = w // what was seen of one that is inferred holds however long it is
	switch {
	case s.refused: // it is answered, and used nothing
		k.mark += c.n
	case r == 0 && start.After(k.ends): // the end of the window is not named
		k.unsure += c.n
	}
	l.hearCut(now, start, s, r)
	if r > 0 && !s.refused && s.tells(w) {
		l.stretchWindow(p, s)
		if !l.hearTurn(now, start, c, p, s) {
			return
		}
		l.measureWindow(p, s)
		if !l.twoCounts() {
			l.weigh(now, start, c, p, s, r)
		}
	}
	if l.twoCounts() {
		_, rest := k.passes(start, k.last, k.ticks)
		still := k.own * min(rest/w.Seconds(), 1)
		sent := l.sent
		if l.orderly(c) { // what went since it has not counted
			sent = c.sent
		}
		l.hearForeign(now, start, p.Quota-r-1-(sent-k.mark)-int64(still))
	}
	k.said, k.at, k.of, k.used = l.answered, middle(start, now), start, p.Quota-r
}

// measureWindow takes a window that was inferred to be as long as from one end of it to the next, as answers
// name them, all rounded the same way, where units come back while the one is named all the time: then that
// is no unit's return.
func (l *ledger) measureWindow(p *Policy, s *statement) {
	k := &l.counter
	if l.inferred <= 1 || !k.stays && !k.known || k.prior == (instants{}) {
		return
	}
	least, most := k.named.first.Sub(k.prior.last), k.named.last.Sub(k.prior.first)
	if !s.clock { // else they differ by whole windows
		least, most = least-s.grain, most+s.grain
	}
	least = max(least, p.Window-l.inferred+1)
	if most < least || least <= p.Window && p.Window <= most && !s.clock {
		return
	}
	p.Window = roundest(least, most)
	l.inferred, k.window = max(p.Window-least, 1), p.Window
}

// stretchWindow takes a window that was inferred to be longer where two ends of it, as instants of the origin's
// clock, are further apart than that: they are one window apart where two cannot be as short.
func (l *ledger) stretchWindow(p *Policy, s *statement) {
	k := &l.counter
	if l.inferred <= 1 || !s.clock || k.instant.IsZero() || !k.stays && !k.known {
		return
	}
	least := l.noShorter(p)
	if apart := s.instant.Sub(k.instant); p.Window < apart && apart < 2*least {
		p.Window, l.inferred, k.window = apart, max(min(apart-least, s.grain), 1), apart
	}
}

// tells reports whether it is certain of which window of a length an answer names the end. Instants are
// compared as the origin named them: what they are rounded to, and how well its clock is known, matters less.
func (s *statement) tells(window time.Duration) bool {
	if s.clock {
		return s.reset > 0 && window >= s.grain
	}
	return s.reset > s.resolution && window > 4*s.resolution
}

// turns is how many windows the one that an answer names the end of is after the present one. whole: as far
// as is known it is so many, and not some of one more.
func (k *counter) turns(s *statement, ends, last time.Time) (turns time.Duration, whole bool) {
	if !s.clock || k.instant.IsZero() {
		return middle(ends, last).Sub(middle(k.ends, k.last)).Round(k.window) / k.window, true
	}
	by := s.instant.Sub(k.instant)
	turned := by.Round(k.window)
	return turned / k.window, (by - turned).Abs() < max(s.grain, k.window/20)
}

// hearTurn follows when the present window ends, and counts what was used in it once it has.
// It reports whether the answer is about the present one.
func (l *ledger) hearTurn(now, start time.Time, c *charge, p *Policy, s *statement) bool {
	k, w := &l.counter, l.counter.window
	ends, last := start.Add(s.reset-s.resolution), now.Add(s.reset+s.resolution)
	if k.cut {
		ends = start.Add(s.reset) // it is not rounded up
	}
	mark, edge := l.answered-c.n, now.Add(s.reset)
	named := instants{start.Add(s.reset), edge}
	if s.clock {
		named = instants{s.instant, s.instant}
	}
	turns, whole := k.turns(s, ends, last)
	switch {
	case turns == 0:
		k.named = instants{latest(k.named.first, named.first), soonest(k.named.last, named.last)}
		k.ends, k.last, k.edge = latest(k.ends, ends), soonest(k.last, last), soonest(k.edge, edge)
	case turns == 1:
		steadily := now.Sub(k.at).Seconds() * p.rate()
		k.atOnce = float64(k.used-p.Quota+s.remaining) > steadily+float64(p.Quota)/4
		k.own = float64(mark - k.mark - k.unsure)
		if k.before > 0 { // else nobody knows how much of what was in use was of the window before that
			k.before = float64(k.used-1) - k.gone(k.at) // what is left is told in whole units
		}
		k.before = max(k.own, k.before)
		if mark-k.said > int64(k.before/20) && !k.known { // the origin was silent meanwhile: nobody knows when they were used
			k.own = 0
		}
		k.mark, k.unsure, k.fits, k.since, k.prior, k.named = mark, 0, 0, time.Time{}, k.named, named
		// It turned between the latest two answers.
		k.ends, k.last = latest(k.ends.Add(w), latest(k.of.Add(w), ends)), soonest(k.last.Add(w), soonest(now.Add(w), last))
		k.edge = soonest(k.edge.Add(w), edge)
	case turns < 0 && now.Before(k.last): // a late answer
		return false
	default:
		k.ends, k.last, k.edge, k.mark, k.unsure, k.before, k.own, k.fits, k.since = ends, last, edge, mark, 0, 0, 0, 0, time.Time{}
		k.atOnce = false
		k.named, k.prior = named, instants{}
	}
	if !whole || k.last.Before(k.ends) { // it is not the end of a window that is named
		k.ends, k.last, k.edge, k.fits, k.since = start.Add(s.reset-s.resolution), last, edge, 0, time.Time{}
		k.cut, k.uncut = false, k.uncut || k.cut
		if turns == 0 {
			k.named, k.prior = named, instants{}
		}
		if !k.known {
			k.own = 0
		}
	}
	k.instant = time.Time{}
	if s.clock {
		k.instant = s.instant
	}
	return true
}

// hearCut notices whether a reset is named in the last second of a window. One that is rounded
// down is not, nor is any that is a whole window away.
func (l *ledger) hearCut(now, start time.Time, s *statement, r int64) {
	k := &l.counter
	switch {
	case !l.twoCounts():
	case s.reset >= k.window, s.reset > 0 && l.closing(start) && l.closing(now):
		k.cut, k.uncut = false, true
	case l.zeros > 0 && r > 0 && !k.uncut:
		k.cut = now.After(k.ends.Add(-l.grain)) && start.Before(k.last)
	}
}

// closing reports whether the present window is over within what resets are rounded to.
func (l *ledger) closing(now time.Time) bool {
	return now.After(l.counter.last.Add(-l.grain)) && now.Before(l.counter.ends)
}

// cuts reports whether that is so of two counts that this process alone uses.
func (l *ledger) cuts() bool { return l.twoCounts() && l.counter.cut && !l.othersSeen }

// leaves is how much of what comes back steadily stays where others wait. The last unit does, for its answer
// would stop all for a while. Where no reset is named in the last second of a window it stops nothing.
func (l *ledger) leaves(now time.Time, n int64, p *Policy) float64 {
	leaves, spare := 1.0, aQuarter
	if l.cuts() && l.closing(now) {
		leaves, spare = 0, min(aQuarter, l.refill(p)*l.usual.Seconds())
	}
	if l.lastOfWindow(now, n, p) || l.neverEnds() && l.oneByOne(p) {
		leaves = 0
	}
	if l.twoCounts() {
		if meet := l.refill(p) * 2 * max(l.usual-l.least, 0).Seconds(); meet < 1 && !l.othersSeen { // else what is left is not known to a unit
			spare += meet
		}
		leaves += spare + math.Floor(l.meanwhile(now, p)) + float64(min(l.counter.stops, max(p.Quota/10, 1)))
	}
	return leaves
}

// lastOfWindow reports whether of two counts too little will come back by the end of the window for another unit
// to go beside the last one, which is lost then: that it has all stop for a moment costs nothing of this window, and
// what comes back meanwhile can go later in the next. Of a quota that is not small it goes only where it is certain that the
// window has not turned, and what is left is known to a unit: else it may be the next one that names its end, far away.
func (l *ledger) lastOfWindow(now time.Time, n int64, p *Policy) bool {
	k := &l.counter
	if !l.counted(now, p) || l.othersSeen {
		return false
	}
	end := k.last
	if k.uncut {
		end = k.edge
	}
	if p.Quota >= shareable && (k.cut || !l.oneByOne(p) || !now.Add(l.usual).Before(k.ends)) {
		return false
	}
	return now.Before(end) && l.refilled(end, p) < float64(n)+1+aQuarter
}

// maxStops is how often two counts may run empty until they are kept to as a bucket.
const maxStops = 3

// aQuarter of a unit more than is needed is waited for where what comes back is known exactly:
// what is left is told in whole units, and one too few says that nothing is.
const aQuarter = 0.25

// gone is how much of the window before is no longer in use at the end of the present one,
// but was at an instant.
func (k *counter) gone(at time.Time) float64 {
	_, rest := k.passes(at, k.last, k.ticks)
	return rest * k.before / k.window.Seconds()
}

// hearEnd takes in that nothing is left until an instant. Where that is the end of the
// window, not when a unit is back, to run empty costs all that comes back until then. Of requests that
// are on their way together some may have arrived sooner than was reckoned with: one more unit is
// kept from then on, and so it is of a small quota, where a single unit in doubt explains it. Where none was on its way,
// or that does not help, units come back otherwise. It shows nothing where two counts give none back sooner: more is in
// use than may be, since the quota was cut, or all of it went in this window, where what is on its way may have been counted.
func (l *ledger) hearEnd(at time.Time, s *statement, p *Policy) {
	k := &l.counter
	if !k.known || at.Before(k.ends) || at.After(k.last) {
		return
	}
	if float64(l.sent-k.mark)+k.gone(at.Add(-s.resolution)) >= float64(p.Quota) {
		return
	}
	if k.stops++; l.own.inFlight == 0 && p.Quota > 3*few {
		k.stops = maxStops
	}
}

// present is how many units will have been used in the present window at its end, if no more are.
func (l *ledger) present() float64 {
	k := &l.counter
	return max(float64(l.answered-k.mark), float64(k.used-1)-k.gone(k.at))
}

// forSure is how much of what should come back is counted on. What is told in whole units shows
// at once when more did, and when less did only by that nothing is left.
const forSure = 0.98

// comes returns how many units come back from one instant to another.
func (l *ledger) comes(from, to time.Time, p *Policy) float64 {
	if !l.counted(to, p) {
		return to.Sub(from).Seconds() * l.refill(p)
	}
	k := &l.counter
	all, _ := k.passes(from, to, k.ticks)
	sure, _ := k.passes(from, soonest(k.last, to), k.ticks)
	next := min(l.present(), float64(p.Quota)) // which may have been counted over two windows, where no answer told that one turned
	return forSure * (sure*k.before + (all-sure)*next) / p.Window.Seconds()
}

// usable is how many units a second are to go for all that is left of two counts, and comes back by
// then, to be used by the end of the window: what is left then is lost. Of a bucket that is as good as full and whose window
// was only inferred it is what comes back at the most, for as long as it is full it tells nothing of how fast it fills; save
// at a velocity below 1, which asks for a part of what is known.
func (l *ledger) usable(now time.Time, p *Policy, velocity float64) float64 {
	switch {
	case velocity >= 1 && l.shape == shapeRefill && l.inferred > 0 && !l.twoCounts() && l.refilled(now, p) >= brimful*float64(p.Quota):
		return float64(p.Quota) / max(l.noShorter(p), p.Window/10).Seconds()
	case !l.counted(now, p), l.othersSeen:
		return p.rate()
	}
	end := latest(middle(l.counter.ends, l.counter.last), now.Add(p.Window/10))
	return max(l.refilled(end, p)/end.Sub(now).Seconds(), p.rate())
}

// brimful is the part of a bucket from which on it is as good as full.
const brimful = 0.9

// awaited is how long it takes until so many units have come back, or a window, if that is
// less: by then more is known.
func (l *ledger) awaited(now time.Time, n float64, p *Policy) time.Duration {
	wait, w := n/l.refill(p), p.Window.Seconds()
	if l.counted(now, p) {
		k := &l.counter
		n /= forSure
		end := max(k.last.Sub(now).Seconds(), 0)
		if wait = n * w / k.before; wait > end {
			wait = end + (n*w-end*k.before)/l.present()
		}
		wait = k.jump(now, wait)
	}
	return nanoseconds(min(wait, w)*1e9) + 1
}

// middle is the instant half-way between two.
func middle(a, b time.Time) time.Time { return a.Add(b.Sub(a) / 2) }
