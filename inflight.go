package heed

import "time"

// An inFlightCap is the books of a limit on requests in flight at once: a unit is back when
// its request is over, bodies and all. A quota of 0 states none, for nobody could ever
// see it change.
type inFlightCap struct {
	slot *slot // which counts them
}

func (f inFlightCap) free(now time.Time, n int64, p *Policy, _ bool) (time.Time, bool) {
	if f.slot.inFlight+n <= p.Quota || p.Quota == 0 {
		return now, true
	}
	return time.Time{}, false
}

// counting knows an end where the limit was learned, and may be none after all.
func (f inFlightCap) counting(most time.Duration, _ *Policy) (time.Duration, bool) {
	return most, f.slot.source == SourceLearned
}

func (f inFlightCap) remaining(_ time.Time, p *Policy) int64 {
	if p.Quota == 0 {
		return -1
	}
	return max(p.Quota-f.slot.inFlight, 0)
}

func (inFlightCap) rest(now time.Time, _ *Policy) time.Time { return now }

func (inFlightCap) take(_ time.Time, n int64, _ *Policy) charge           { return charge{n: n} }
func (inFlightCap) refund(time.Time, *charge)                             {}
func (inFlightCap) settle(_, _ time.Time, _ *charge, _ *Policy)           {}
func (inFlightCap) correct(_, _ time.Time, _ *charge, _ int64, _ *Policy) {}
