package redisheed

import (
	"slices"
	"time"
)

// ending has ask end the pauses of an origin in Redis. What was sent off before may set one there
// yet, and the replies to it may tell of one: the former is waited for, and the latter not believed.
func (l *Ledger) ending(origin string, ask func() error) error {
	l.mu.Lock()
	s := l.origins[origin]
	l.mu.Unlock()
	if s == nil {
		return ask()
	}
	s.mu.Lock()
	s.resuming++
	s.mu.Unlock()
	for _, b := range l.of(origin, "") {
		if landed := b.dropPauses(); landed != nil {
			<-landed
		}
	}
	err := ask()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resuming--
	s.resumed = time.Now()
	return err
}

// endedSince reports whether pauses were ended in Redis, or are being ended, since a question was sent.
func (s *slots) endedSince(sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resuming > 0 || sent.Before(s.resumed)
}

// dropPauses tells of no pauses that were not told of yet; what is under way lands with the channel
// that it returns, where there is any.
func (b *book) dropPauses() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range []*report{&b.report, b.unacked} {
		if r != nil {
			r.rest = slices.DeleteFunc(r.rest, func(h happened) bool { return h.kind == "p" })
		}
	}
	if b.flying {
		return b.landed
	}
	return nil
}
