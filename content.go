package heed

import "time"

// content is what requests hold that a policy counts in bytes. How much that is is known
// when a request is over: until then it counts as an estimate.
type content struct {
	estimate int64   // what a request is taken to cost: the most that one did, fading …
	mean     float64 // … towards what one costs in the long run
	unasked  bool    // the origin lets a request pass whatever it holds, for it counts it when it is over …
	exacting bool    // … or does not
}

// weighed takes in what a request cost.
func (k *content) weighed(bytes int64) {
	if k.mean == 0 {
		k.mean = float64(bytes)
	}
	k.mean += (float64(bytes) - k.mean) / 16
	k.estimate = max(bytes, k.estimate-max(k.estimate-int64(k.mean), 0)/16)
}

// weigh makes what c took the bytes that its request held now that it is over: below 0, nobody
// knows; where that is not exact, at least so many.
func (s *slot) weigh(now, start time.Time, c *charge, bytes int64, exact bool) {
	if bytes < 0 {
		s.books.correct(now, start, c, c.n, &s.terms)
		return
	}
	if !exact {
		bytes = max(bytes, c.n)
	} else if c.told > 0 && c.told > s.policy.Quota-bytes {
		s.content.unasked = true
	}
	s.books.correct(now, start, c, bytes, &s.terms)
	s.content.weighed(bytes)
}

// unweigh gives back what c took of a slot that follows what answers say, whose request was
// refused: it costs what the refusal itself holds.
func (s *slot) unweigh(now time.Time, c *charge) {
	if left := s.ledger.left + c.n; c.epoch == s.ledger.epoch && left > 0 && left < c.n {
		s.content.exacting = true // something was left
	}
	s.inFlight -= c.n
	s.ledger.refund(now, c)
	c.n = 0
}

// overdraws reports whether a request may go however little is left, though its body may hold more:
// nothing else is on its way, and answers were seen to say what is left without their own
// bodies, so the origin does not know what one holds before it is over. Where a quota comes back bit by
// bit, nothing that is left is lost.
func (s *slot) overdraws() bool {
	return s.content.unasked && !s.content.exacting && s.inFlight == 0 && !s.ledger.flows()
}
