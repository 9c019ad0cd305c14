package heed

import "time"

// A route is taken to have a limit of its own on probation. What spoke for that may have been that one limit on all routes
// counts its requests for more than others, or that they take longer to arrive. If it is one limit, no more gets
// through now than before: then all routes are counted together again once others have been refused a dozen times, or once
// after some minutes, and it takes twice as much to tell a route apart from there on. If half as much again gets through, it is
// none.
type probation struct {
	of       *partition // the route's; nil: none is on probation
	since    time.Time
	rate     float64 // a limit on all routes would let through so many a second …
	burst    float64 // … and so many at once
	accepted int64   // since then, of the route and of those that have no limit of their own …
	refused  int     // … and how often one of the latter began an event
}

const (
	oneLimit      = 12              // such events before it is confirmed, for these may have limits of their own, too …
	oneLimitAfter = 5 * time.Minute // … or a single one, after so long
	mostFailed    = 6               // times that it takes twice as much
)

// unlikely is how many halvings have to speak against a limit on all routes, after so many probations that failed: at
// first it is by chance once in 256.
func unlikely(failed int) float64 { return float64(int(8) << min(failed, mostFailed)) }

// onProbation is the probation of the route that p is to be for, where what is known of the limit on all routes is in its learner.
func onProbation(now time.Time, p *partition) probation {
	l := &p.learner
	b := probation{of: p, since: now, rate: l.rate.pace(), burst: float64(max(l.rate.burst, l.accepted))}
	if l.rate.low == 0 {
		b.rate = rateOf(l.accepted, now.Sub(l.since))
	}
	return b
}

// well takes in that a request of a partition was accepted.
func (b *probation) well(now time.Time, p *partition) {
	if b.of == nil || p.route != "" && p != b.of {
		return
	}
	if b.accepted++; float64(b.accepted) > 1.5*(b.burst+b.rate*now.Sub(b.since).Seconds()) {
		*b = probation{}
	}
}

// fails reports whether it is one limit on all routes, now that the refusal of a request of another route, which was sent at
// start, begins an event.
func (b *probation) fails(start time.Time) bool {
	if b.of == nil || !start.After(b.since) {
		return false
	}
	b.refused++
	return b.refused >= oneLimit || start.Sub(b.since) >= oneLimitAfter
}
