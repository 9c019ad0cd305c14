package heed

import "time"

// hearNothingLeft takes in that nothing is left: nothing may start for as long as
// the answer says or, where it does not, as it is likely to last. It reports whether that
// is longer than atMost.
func (l *ledger) hearNothingLeft(now time.Time, p *Policy, s *statement, atMost time.Duration) (capped bool) {
	if s.reset > p.Window/4 {
		l.counter.hearEnd(now.Add(s.reset))
	}
	switch {
	case l.shape != shapeRefill:
	case s.reset > max(p.Window/4, 2*s.resolution):
		l.fillsUp = true // it is not when there is one more
		if l.stated && !l.othersSeen {
			l.stuck++
		}
	case s.reset < 0 && s.refused && l.stated: // what was counted on is not back yet
		l.stuck = lumpy
	}
	again := !l.dry.IsZero()
	if !again || !s.refused { // until it was accepted something was left
		l.dry = now
	}
	wait := s.reset
	if wait >= 0 && l.blind > 0 { // what is named now holds from when nothing was left
		l.blind = now.Add(wait).Sub(l.dry)
		l.proven = l.blind
	}
	switch {
	case wait >= 0 && l.piecemeal && !l.flows() && p.Window > 0:
		wait += max(s.resolution, l.later(now, p, s)+p.Window/10)
	case wait >= 0:
		wait += l.later(now, p, s)
	case l.shape == shapeRefill && s.refused:
		wait = l.lumpGap(p)
	case l.shape == shapeRefill:
		wait = l.awaited(now, 1, p)
	case p.Window > 0 && l.shape == shapeReset && !l.begun.IsZero():
		wait = l.lapses(p).Sub(now)
	case p.Window > 0:
		wait = p.Window
		if at, ok := l.own.back(now, 1, p.Window); ok {
			wait = at.Sub(now)
		}
	case now.Before(l.closed): // it went before this wait: it does not tell whether that is enough
		return false
	default:
		wait = l.blindWait(s.refused, again)
	}
	l.close(now, wait, atMost)
	return wait > atMost
}

// close lets nothing start before an answer's receipt plus the wait it named.
func (l *ledger) close(now time.Time, wait, atMost time.Duration) {
	l.closed = latest(l.closed, now.Add(min(wait, atMost)))
}

// blindWait is how long to wait for more where an origin said that nothing is left
// and neither until when nor of what window: half as long after each wait that was
// enough, and twice as long after one that was not. What was too short is not tried again;
// where one request after the other is answered that nothing is left, nor is half as
// long as is needed good enough.
func (l *ledger) blindWait(refused, again bool) time.Duration {
	switch {
	case l.blind == 0:
		l.blind = defaultMinBackoff
	case refused && again:
		l.proven = l.blind
		l.blind = min(2*l.blind, defaultMaxBackoff)
	case again:
		l.proven -= l.proven / 500 // it may have become more
		l.blind = max(l.blind/2, l.proven+l.proven/4, blindLeast)
	case l.blind/2 > l.proven:
		l.blind /= 2
	}
	return l.blind
}

// blindLeast is the shortest such wait.
const blindLeast = 50 * time.Millisecond
