package heed

import "time"

// lastUnit returns when the last unit of an epoch is best sent while others
// wait behind it. Its answer will say that nothing is left, and no request
// may start before the reset it names, which is rounded to whole seconds: so
// it is sent when that rounding will cost nothing, a whole number of grains
// before the reset, or where it is too late for that not in this epoch. Where an
// instant is named, it is when that may have been rounded up from: the answer shows. Of
// a small quota a unit is worth more than the wait for what the instant was rounded up to.
func (l *ledger) lastUnit(now time.Time, p *Policy) time.Time {
	reset, trip := l.opens, l.surely()
	switch {
	case l.atOnce(): // keeping it would keep the others, too
		return now
	case l.partial && !l.flows(): // more may come back before the reset
		return latest(now, soonest(l.said.Add(p.Window/10), reset))
	}
	if l.shape == shapeSliding {
		if at, ok := l.own.back(now, 1, p.Window); ok {
			reset, trip = at, 0 // which is a round trip sooner than the origin will say
		}
	}
	switch {
	case l.sparing(p):
		return latest(l.until(), now)
	case l.shape == shapeSliding && (l.down > 0 || times(p.Quota, l.quickest) > p.Window || l.atNewest || l.beyond >= convinced || l.rounded > 2*l.quickest && costsAUnit(l.rounded, p) || p.Quota > shareable && l.uneven()): // it always costs
		return latest(reset, now)
	}
	if due, until := l.due(p), l.until(); due.Before(until) && (l.unending() || costsAUnit(until.Sub(due), p)) {
		return latest(due, now)
	}
	if l.untried(p) {
		return latest(l.until(), now)
	}
	ahead := reset.Sub(now) - trip
	quota := p.Quota
	orDefault(&quota, l.inEpoch) // nobody says how many there were
	if l.grain <= 0 || reset.Sub(now) <= 0 || times(quota, l.grain) < p.Window {
		return now
	}
	late := l.grain - ahead%l.grain // since the latest such instant
	switch {
	case late <= l.grain/20: // timers are never quite on time
		return now
	case ahead < l.grain:
		return reset
	}
	return now.Add(ahead % l.grain)
}

// costsAUnit reports whether to stop for so long, once in a window, costs more than one unit of it.
func costsAUnit(stop time.Duration, p *Policy) bool { return times(p.Quota, stop) > p.Window }

// atOnce reports whether all of a window is best sent at once, for the sooner the last of
// it goes, the sooner there is more: every request puts the reset off.
func (l *ledger) atOnce() bool { return l.elastic && !l.othersSeen }

// sparing reports whether the last unit of a window is better left: its answer
// would say that nothing is left, and the next request then begins the next window
// a round trip later than one that nothing holds, in which more could have gone.
func (l *ledger) sparing(p *Policy) bool {
	if !l.byUse || l.flows() {
		return false
	}
	lost := l.usual
	if l.uneven() && l.own.inFlight > 0 { // the last to arrive may be another one
		lost += l.grain / 2
	}
	return times(p.Quota, lost) > p.Window
}

// uneven reports whether answers take now long, now short, so that none comes at a
// time that could be chosen.
func (l *ledger) uneven() bool { return l.usual-l.quickest > l.grain/50 }

// due returns when the window may turn, where that can be much sooner than at the
// instant named, because that was rounded up, or is as far away all the time: a window
// that began with its first request does. Else it is until.
func (l *ledger) due(p *Policy) time.Time {
	until := l.until()
	if p.Window <= 0 || l.begun.IsZero() || !l.unending() && (l.rounded <= 2*l.quickest || l.rounded < p.Window/10) {
		return until
	}
	due := l.begun.Add(p.Window)
	if !l.unending() {
		due = latest(due, l.opens.Add(-l.rounded))
	}
	if !l.said.Before(due) { // it did not
		return until
	}
	return soonest(until, due)
}
