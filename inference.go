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
}

// went notes that a request goes.
func (i *inference) went(now time.Time) {
	if now.After(i.resetSaid) && !i.firstThen.After(i.resetSaid) {
		i.firstThen = now
	}
}

// inferFrom infers the window of a policy that states none itself from a reset that is
// rounded to a grain: it is as long as the longest wait for its end. Refusals come late in it,
// and so do answers that say that little is left. Where they alone announce it, it is as long as
// from one end to the next, too, if there was no other between: the first request after the one went so
// soon that it was of the next window, and no more went than that has used. One answer that
// names a wait far longer than all before it may be a slip, and would hold requests back for
// good: the next has to do so, too.
func (s *slot) inferFrom(now time.Time, lim *ServiceLimit, grain time.Duration) {
	i, accepted := &s.inference, s.accepted()
	if i.loose && !i.shown { // what this origin says of its windows counts for more than what others do
		i.shown, s.terms.Window = true, 0
		s.ledger.comeback = comeback{adopted: s.ledger.adopted} // it was reckoned by that window
	}
	if (s.policy.Window == 0 || i.loose) && lim.Reset > 0 && (lim.Remaining != 0 || s.habit.onRefusals) { // 0 says nothing of how long
		window, slack := windowTo(lim, grain)
		if i.slip = s.terms.Window > 0 && window > 2*s.terms.Window && !i.slip; !i.slip {
			s.infer(window, slack)
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
		if (s.habit.onRefusals || s.habit.late(&s.policy)) && oneWindow && soon && gap > s.terms.Window {
			s.infer(gap, 0)
		}
	}
	i.usedThen = accepted
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
	window := roundest(least+1, reset, time.Second)
	s.terms.Window, l.inferred = window, max(window-max(least, time.Second), 1)
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
