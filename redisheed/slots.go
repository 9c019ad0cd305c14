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

	resuming int       // how many calls are ending its pauses in Redis …
	resumed  time.Time // … and when the latest one had

	start, end time.Time // of requests granted without Redis, the latest
}

// latest returns when a request last started, and when one last ended, without Redis.
func (s *slots) latest() (start, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start, s.end
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
	s.end = now
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
	q.SlotsHere, q.SlotsThere, q.Seq = &here, &there, s.seq
	b.told = now
}

// undo takes back what count counted in for q.
func (s *slots) undo(b *book, q *question) {
	if q.pending {
		q.pending = false
		s.free(b, q.Concurrent)
	}
}
