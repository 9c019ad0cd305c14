package heed

import "time"

// A bookkeeper keeps the books of one slot: how many units may go, and from when on there
// are more. There is one kind for each way in which units come back: an inFlightCap's with
// the end of a request, a tokenBucket's one by one, a rollingWindow's a window after each
// was used, a ledger's as answers say. p is the policy as it is kept to.
type bookkeeper interface {
	// free returns now if n units may be taken, n being more than none, else the
	// instant from which they may, as far as is known now; false where that depends
	// on requests in flight, and is no sooner. pressed says that others wait behind.
	free(now time.Time, n int64, p *Policy, pressed bool) (at time.Time, known bool)

	// counting returns for how long the origin may count a request that is not
	// answered, where free waits for its answer; most is the longest wait for anything
	// an origin says. false: as long as the request lasts.
	counting(most time.Duration, p *Policy) (d time.Duration, ends bool)

	// take takes n units for a request that starts now, and refund undoes that for
	// one that was not sent, or cost nothing.
	take(now time.Time, n int64, p *Policy) charge
	refund(now time.Time, c *charge)

	// settle says that c's answer came, or will not, and said nothing of the policy.
	settle(now, start time.Time, c *charge, p *Policy)

	// correct makes what c took, which was an estimate of bytes, the n that they were,
	// once it is settled.
	correct(now, start time.Time, c *charge, n int64, p *Policy)

	// remaining returns how many units may be sent now; -1: unknown.
	remaining(now time.Time, p *Policy) int64

	// rest returns the instant by which all is as if no unit had ever been taken.
	rest(now time.Time, p *Policy) time.Time
}
