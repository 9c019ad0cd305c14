package heedtest

// slidingLog grants quota units in every window (t-window, t], by keeping the
// instant of each unit charged.
type slidingLog struct {
	quota, window int64
	units         spans
}

func (s *slidingLog) wait(now, n int64) int64 {
	if n > s.quota {
		return never
	}
	// Units leave oldest first, a window after they came.
	sum, first := s.units.sum, now
	for i := 0; i < s.units.n && sum > s.quota-n; i++ {
		u := s.units.get(i)
		sum -= u.n
		first = max(now, u.at+s.window)
	}
	return first - now
}

func (s *slidingLog) take(now, n int64) {
	s.units.drop(now - s.window)
	s.units.push(now, n)
	// Once the newest units make up the quota, those before them change no
	// verdict: they leave first. Without them memory is bounded by the quota
	// even where refused requests are counted.
	for s.units.n > 0 && s.units.sum-s.units.get(0).n >= s.quota {
		s.units.pop()
	}
}

func (s *slidingLog) punish(now, n int64) { s.take(now, n) }

func (s *slidingLog) look(now int64) level {
	sum, i := s.units.sum, 0
	for ; i < s.units.n && s.units.get(i).at <= now-s.window; i++ {
		sum -= s.units.get(i).n
	}
	l := level{left: max(0, s.quota-sum)}
	if i < s.units.n {
		l.usual = s.units.get(i).at + s.window - now
		l.full = s.units.get(s.units.n-1).at + s.window - now
	}
	return l
}

func (s *slidingLog) idle(now int64) bool {
	return s.units.n == 0 || s.units.get(s.units.n-1).at <= now-s.window
}

func (s *slidingLog) change(_ int64, p Policy) { s.quota, s.window = p.Quota, int64(p.Window) }

// spans is a queue of units and the instants they came at, oldest first.
type spans struct {
	ring    []span
	head, n int
	sum     int64 // of all units
}

type span struct{ at, n int64 }

func (s *spans) get(i int) span { return s.ring[(s.head+i)&(len(s.ring)-1)] }

func (s *spans) push(at, n int64) {
	if n <= 0 {
		return
	}
	s.sum += n
	if s.n > 0 {
		if last := &s.ring[(s.head+s.n-1)&(len(s.ring)-1)]; last.at == at {
			last.n += n
			return
		}
	}
	if s.n == len(s.ring) {
		bigger := make([]span, max(8, 2*s.n)) // a power of two, so that get can mask
		for i := range s.n {
			bigger[i] = s.get(i)
		}
		s.ring, s.head = bigger, 0
	}
	s.ring[(s.head+s.n)&(len(s.ring)-1)] = span{at, n}
	s.n++
}

func (s *spans) pop() {
	s.sum -= s.get(0).n
	s.head = (s.head + 1) & (len(s.ring) - 1)
	s.n--
}

// drop removes what came at or before an instant.
func (s *spans) drop(until int64) {
	for s.n > 0 && s.get(0).at <= until {
		s.pop()
	}
}
