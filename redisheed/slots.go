package redisheed

import (
	"sync"
	"time"
)

// slots counts one origin's requests in flight in this process. Redis is told
// the whole number each time, so that a message that is lost or comes twice
// does no harm; of two that overtake each other the one sent last counts.
type slots struct {
	mu    sync.Mutex
	held  int64
	seq   int64
	books map[string]*book // of the origin, by partition; guarded by the ledger's lock

	telling *book   // its question, which is under way, tells of them; nil: none does …
	line    []*book // … and those whose questions come after

	resuming int       // how many calls are ending its pauses in Redis …
	resumed  time.Time // … and when the latest one had

	start, stop time.Time // of requests granted without Redis, the latest
}

// latest returns when a request last started, and when one last ended, without Redis.
func (s *slots) latest() (start, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start, s.stop
}

// started notes a start, or takes one back, unless there was another one since. It reports
// whether it did.
func (s *slots) started(was, is time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.start.Equal(was) {
		return false
	}
	s.start = is
	return true
}

func (s *slots) ended(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = now
}

// take counts a request of b that goes.
func (s *slots) take(b *book, concurrent int64) {
	s.mu.Lock()
	s.held++
	b.here += concurrent
	s.mu.Unlock()
}

// free counts one that is over.
func (s *slots) free(b *book, concurrent int64) {
	s.mu.Lock()
	s.held--
	b.here -= concurrent
	s.mu.Unlock()
}

func (s *slots) any(b *book) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.here > 0
}

// begin reports whether b's question may set out, of those that tell how many of the origin's requests are in
// flight. One at a time does: what may yet be granted, and what was not, cannot be told by another one.
func (s *slots) begin(b *book) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.telling != nil {
		s.line = append(s.line, b)
		return false
	}
	s.telling = b
	return true
}

// end says that b's question is over, and returns whose is next; nil: nobody's.
func (s *slots) end(b *book) (next *book) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.telling != b {
		return nil
	}
	if s.telling = nil; len(s.line) > 0 {
		s.telling, s.line = s.line[0], s.line[1:]
	}
	return s.telling
}

// count fills in how many requests are in flight where a limit bounds them.
// The one asked for is counted in until it is refused.
func (s *slots) count(now time.Time, b *book, q *question, first *ask) {
	m := b.limits
	if first != nil {
		m = first.limits
	}
	if m == nil || !m.bounds {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first != nil {
		s.held++
		b.here += m.cost.Concurrent
		q.pending = true
		q.Concurrent = m.cost.Concurrent
	}
	s.seq++
	here, there := b.here, s.held
	q.SlotsHere, q.Seq = &here, s.seq
	if m.whole {
		q.SlotsThere = &there
	}
	b.told = now
}

// undo takes back what count counted in for q.
func (s *slots) undo(b *book, q *question) {
	if q.pending {
		q.pending = false
		s.free(b, q.Concurrent)
	}
}
