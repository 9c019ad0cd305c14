package heed

import "time"

// An inference is what is known of how long the window is of a policy that states none itself:
// it is told from the resets that answers name.
type inference struct {
	resetSaid time.Time // as announced last …
	usedThen  int64     // … how many units had been accepted by then …
	firstThen time.Time // … and when the first request after that reset went
	slip      bool      // the reset announced last was far later than the window explains
	loose     bool      // the window is the service's documentation's word, not that of its answers …
	shown     bool      // … which show how long it is
	end       time.Time // as announced last, of the origin's clock: only where that is an instant
	farthest  time.Time // so the reset that the window was inferred from …
	farFrom   time.Time // … and when it was named
	untimed
}

// went notes that a request goes.
func (i *inference) went(now time.Time) {
	if now.After(i.resetSaid) && !i.firstThen.After(i.resetSaid) {
		i.firstThen = now
	}
}

// inferFrom infers the window of a policy that states none itself from a reset that is
// rounded to a grain: it is as long as the longest wait for its end.
//
// Where only refusals announce it, or answers that say that little is left, that comes too short, for these come
// late in a window. There it is also as long as from one end that was named to the next, if no other lies
// between them: the first request after the former went so soon that it was of the next window, and no more
// went since than that one has used. So it is elsewhere if both ends are instants, and requests went on hardly
// later than the former may have been.
//
// One answer that names a wait far longer than all before it may be a slip, and would hold requests back for
// good: the next has to do so, too.
func (s *slot) inferFrom(now, instant time.Time, lim *ServiceLimit, grain time.Duration) {
	i, accepted := &s.inference, s.accepted()
	if i.loose && !i.shown { // what this origin says of its windows counts for more than what others do
		i.shown, s.terms.Window = true, 0
		s.ledger.comeback = comeback{adopted: s.ledger.adopted} // it was reckoned by that window
	}
	if (s.policy.Window == 0 || i.loose) && lim.Reset > 0 && (lim.Remaining != 0 || s.habit.onRefusals) { // 0 says nothing of how long
		window, slack := windowTo(lim, grain)
		least := s.terms.Window - s.ledger.inferred
		if i.slip = s.terms.Window > 0 && window > 2*s.terms.Window && !i.slip; !i.slip {
			s.infer(window, slack)
		}
		if lim.Clock && s.terms.Window-s.ledger.inferred > least {
			i.farthest, i.farFrom = instant, now
		}
		since := accepted - i.usedThen
		if all := since == s.policy.Quota; s.habit.onRefusals && all && i.firstThen.After(i.resetSaid) {
			whole := *lim // what was used up has all been of this window
			whole.Reset = min(whole.Reset, ages) + now.Sub(i.firstThen)
			s.infer(windowTo(&whole, grain))
		}
		gap := now.Add(lim.Reset).Sub(i.resetSaid).Round(max(grain, 1))
		oneWindow := since <= s.policy.Quota-max(lim.Remaining, 0)
		soon := i.firstThen.After(i.resetSaid) && i.firstThen.Sub(i.resetSaid) < s.terms.Window
		switch seldom := s.habit.seldom(&s.policy); {
		case !oneWindow, !soon:
		case seldom && gap > s.terms.Window:
			s.infer(gap, 0)
		case !seldom && lim.Clock && !i.slip && i.firstThen.Sub(i.resetSaid) <= 2*grain:
			s.inferBetween(instant, grain)
		}
	}
	if lim.Clock { // be it over, as one that is cut off may be: the next to be named is no other
		i.end = instant
	}
	i.usedThen = accepted
}

// inferBetween takes a window of which all comes back at once to be as long as from the end named before to
// the one that an answer names, both as instants, for they are rounded the same way. That is never too short.
// The waits for its end can be, by twice what they are rounded to: where that is down, and who waits for as long
// again, lest it go too soon, meets windows by the clock when they have long begun. Where windows begin
// with a request it is too long by what was waited; so only multiples of five grains count here, and the
// shortest that was seen.
func (s *slot) inferBetween(instant time.Time, grain time.Duration) {
	l := &s.ledger
	apart, least := instant.Sub(s.inference.end), s.terms.Window-l.inferred
	window := apart.Truncate(max(5*grain, time.Second))
	if l.shape != shapeReset || s.inference.end.IsZero() || window < least {
		return
	}
	if window > s.terms.Window || l.bounded {
		s.terms.Window, l.inferred, l.bounded = window, max(window-least, 1), true
	}
}

// infer takes a window to be as long as the longest wait for its end. That is
// known to a grain: the most it can be counts, in whole seconds where that
// fits, for windows mostly are, and one too long does no harm; but never more than
// from one end to the next.
func (s *slot) infer(reset, grain time.Duration) {
	l := &s.ledger
	least := reset - max(grain, 1)
	if s.terms.Window > 0 && least <= s.terms.Window-l.inferred {
		return
	}
	if l.bounded && least < s.terms.Window {
		l.inferred = s.terms.Window - least
		return
	}
	l.bounded = false
	window := roundest(least+1, reset)
	s.terms.Window, l.inferred = window, max(window-max(least, time.Second), 1)
}

// forgetWindow forgets a window that was inferred from resets that were no end of any, and how the quota was seen to come back by it.
func (s *slot) forgetWindow() {
	s.terms.Window, s.inference = 0, inference{}
	s.ledger.inferred, s.ledger.comeback = 0, comeback{adopted: s.ledger.adopted}
}

// sharpen takes in that a window that was inferred from an instant of the origin's clock is no shorter than that
// shows now: the clock is known the better, the more answers tell of it.
func (s *slot) sharpen(clock *serverClock, grain time.Duration) {
	if i := &s.inference; !i.farthest.IsZero() {
		reset, by := clock.until(i.farFrom, i.farthest)
		s.ledger.shortest = max(s.ledger.shortest, reset-by-grain)
	}
}

// noShorter is how long a window is at least.
func (l *ledger) noShorter(p *Policy) time.Duration {
	return min(max(p.Window-l.inferred, l.shortest), p.Window)
}

// windowTo returns how long the window is taken to be at whose end a reset is
// named, rounded to a grain either way, and how much less it can be than that: where
// it can be a multiple of five grains, as most are, it is one, and never less than
// a grain.
func windowTo(lim *ServiceLimit, grain time.Duration) (window, slack time.Duration) {
	window = max(lim.Reset, grain)
	if five := (lim.Reset + grain - 1).Truncate(5 * grain); five > max(lim.Reset-lim.Resolution, 0) {
		window = five
	}
	return window, lim.Resolution + window - lim.Reset
}
