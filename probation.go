package heed

import "time"

// A route is taken to have a limit of its own on probation. What spoke for that may have been that one limit on all routes
// counts its requests for more than others, or that they take longer to arrive. If it is one limit, no more gets
// through now than before: then all routes are counted together again once some of the others are refused, and it
// takes twice as much to tell a route apart from there on. If half as much again gets through, it is none.
type probation struct {
	since    time.Time // it began; zero: there is none
	rate     float64   // a limit on all routes would let through so many a second …
	burst    float64   // … and so many at once
	accepted int64     // since it began …
	refused  int       // … and so often one of another route was refused meanwhile
	failed   int       // so often it was one limit
}

const (
	mostFailed = 6               // times that it takes twice as much
	isOne      = 12              // refusals of other routes, for these may have limits of their own, too …
	isOneAfter = 5 * time.Minute // … or a single one, after so long
)

// unlikely is how many halvings have to speak against a limit on all routes: at first it is by chance once in 256.
func (b *probation) unlikely() float64 { return float64(int(8) << min(b.failed, mostFailed)) }

// begin begins it anew where what is known of the limit on all routes is in l.
func (b *probation) begin(now time.Time, l *learner) {
	b.since, b.accepted, b.refused = now, 0, 0
	b.burst = float64(max(l.rate.burst, l.accepted))
	b.rate = l.rate.pace()
	if l.rate.low == 0 {
		b.rate = rateOf(l.accepted, now.Sub(l.since))
	}
}

// end ends it, however it ended.
func (b *probation) end() { b.since = time.Time{} }

// well takes in that a request of any route was accepted.
func (b *probation) well(now time.Time) {
	if b.since.IsZero() {
		return
	}
	if b.accepted++; float64(b.accepted) > 1.5*(b.burst+b.rate*now.Sub(b.since).Seconds()) {
		b.end()
	}
}

// fails reports whether the refusal of a request of another route, which was sent at start and is no answer of an event that
// was counted, shows that there is one limit on all.
func (b *probation) fails(start time.Time) bool {
	if b.since.IsZero() || !start.After(b.since) {
		return false
	}
	if b.refused++; b.refused < isOne && start.Sub(b.since) < isOneAfter {
		return false
	}
	b.failed++
	return true
}
