package heed

import "time"

// tooShort is by how much the waits are too short that an origin's refusals ask for.
type tooShort struct {
	times float64 // so many times as long as was asked it took, at least; 0: no longer

	// Now and then it is tried whether as long as asked is enough by now.
	blocks int  // since that was tried last …
	after  int  // … which costs a refusal where it is not: it is tried after twice as many then
	trying bool // in this block, and that has not been refused yet
	tried  bool // in this block
}

const (
	mostTimes  = 4 // as long as was asked: what was shut for longer may have been out of order
	firstTrial = 4 // blocks: where it fails there is a refusal more than so many have cost at least
)

// asks takes in a refusal that is an event of its own; first: of a block, and it asks to wait
// for what may be too short.
func (s *tooShort) asks(first bool) {
	s.tried = s.tried && !first || first && s.times > 1 && s.blocks >= max(s.after, firstTrial)
	s.trying = s.tried && first
}

// lengthened is how long to wait where a refusal asks for hint; whole: and is a 503. An outage
// is over when it is over.
func (l *learner) lengthened(hint time.Duration, whole bool) time.Duration {
	if whole || l.short.trying {
		return hint
	}
	return l.short.lengthened(hint)
}

func (s *tooShort) lengthened(hint time.Duration) time.Duration {
	return nanoseconds(float64(hint) * max(s.times, 1))
}

// inVain is how long to wait where a refusal asks for hint, and others before it were refused at the time that one had named:
// from the third on twice as long each time, up to most, as after refusals that name none, for what is named says nothing then. Not so
// where they ask for less and less.
func (l *learner) inVain(hint time.Duration, whole bool, most time.Duration) time.Duration {
	if whole || hint <= 0 || !l.blocked || l.curt {
		return hint
	}
	return doubled(hint, max(l.probes-1, 1), max(hint, most))
}

// learnShort takes in that a block is over: a request sent at start was accepted.
func (l *learner) learnShort(start time.Time) {
	s := &l.short
	switch {
	case s.tried && l.probes > 0:
		s.blocks, s.after = 0, 2*max(s.after, firstTrial)
	case s.tried && start.Before(l.began.Add(s.lengthened(l.hint))): // else the time that passed may have been what it took
		*s = tooShort{}
	case s.tried:
	case l.curt && !l.whole:
		s.blocks = 0
		s.times = min(max(l.refused.Sub(l.began).Seconds()/l.hint.Seconds(), 1), mostTimes)
	default:
		s.blocks++
	}
}
