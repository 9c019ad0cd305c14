package heed

import "time"

// Limits are mostly stated per second, minute or hour, or a few of them. So where
// it is known only between which bounds the window of a limit lies, it is
// taken to be the longest such time between them.

// measure takes what was accepted until the origin reopened for what a window
// lets through. shut is when it was known to be closed still. Where it was heed that
// chose when to ask again, the window may be far shorter, and the rate is searched for
// from there on.
func (l *learner) measure(reopened, shut time.Time) {
	r := &l.rate
	longest, shortest, climb, doubt := reopened.Sub(l.since), shut.Sub(l.since), 0.0, 0.0
	open, hint := r.zeros[0].at.Sub(l.since), l.named.Sub(l.began)
	told := l.timed && l.probes == 0
	switch {
	case told: // rounded up to a second
		shortest = longest - time.Second - l.trip()
	case longest > shortest*5/4:
		climb = steep(l.accepted)
		// With more than one at a time on their way, an attempt would cost more than one refusal.
		most := min(rateOf(l.accepted, shortest), 1/max(l.crowd.trip(), nearBy.Seconds()))
		if d := doublings(rateOf(l.accepted, longest), most); d >= settled && !l.timed {
			climb, doubt = gently, d
		}
	}
	window := roundTime(longest)
	switch {
	case told && hint > open && roundTime(hint) == hint: // it asks for a whole window, whenever it is
		window = hint
	case window > shortest:
	default:
		if window = longest; l.timed && longest > max(hint, open)*5/4 {
			climb = max(climb, slowly)
		}
	}
	if r.pressed < l.accepted/3 && float64(l.accepted)*l.crowd.trip() < float64(l.crowd.most)/2*open.Seconds() {
		climb = max(steep(l.accepted), 1) // that was its own pace, and not the limit's
	}
	r.measured(l.accepted, window, climb)
	r.doubt = doubt
	r.full = l.accepted - int64(r.low*open.Seconds())
}

// remeasure looks for the window again, in the light of another block: when the
// origin reopens, one has passed since the first of as many requests as it
// lets through.
func (l *learner) remeasure(reopened time.Time) {
	r := &l.rate
	closed := l.refused.Sub(r.zeros[0].at)
	if l.timed {
		closed = max(closed, l.named.Sub(l.began)-time.Second)
	}
	if l.accepted < r.cycle && r.low < backOff*r.tooFast && closed > 3*perUnit(r.low) {
		// It lets through less than was taken for a window's, and it was closed
		// for longer than a bucket would have been: no longer than two
		// windows, though, unless that was an outage.
		window := roundTime(reopened.Sub(l.since))
		if l.accepted >= few && window > l.refused.Sub(l.since) && window <= 2*r.window {
			r.measured(l.accepted, window, 0)
			r.low = min(r.low, r.tooFast)
		} else {
			r.climb = max(r.climb, steep(l.accepted))
		}
		return
	}
	first, known := r.ago(r.cycle)
	if !known || r.cycle < few {
		return
	}
	shortest, longest := l.refused.Sub(first)-l.trip(), reopened.Sub(first)+l.trip()
	low := rateOf(r.cycle, r.window)
	if r.sure = r.window > max(shortest, 0) && r.window <= longest && low > r.low*2/3; !r.sure {
		if r.window = roundTime(longest); r.window <= shortest {
			r.window = 0
		}
		if r.doubt > 0 && closed > 3*perUnit(r.low) && l.accepted <= r.cycle*5/4 { // as many at a time as before
			window := r.window
			if window == 0 {
				window = longest
			}
			r.low, r.doubt, r.climb = max(r.low, rateOf(r.cycle, window)), 0, 0
		}
		return
	}
	if low < r.low || low < r.tooFast {
		r.low = low
	}
	r.climb, r.doubt = 0, 0
}

// trip is how long requests take.
func (l *learner) trip() time.Duration { return time.Duration(l.crowd.trip() * float64(time.Second)) }

// roundTime is the longest time up to d that windows mostly have; 0: none.
func roundTime(d time.Duration) (round time.Duration) {
	for _, t := range roundTimes {
		if t <= d {
			round = t
		}
	}
	return round
}

// nextRoundTime is the shortest time from d on that windows mostly have; d where there is none.
func nextRoundTime(d time.Duration) time.Duration {
	for _, t := range roundTimes {
		if t >= d {
			return t
		}
	}
	return d
}

// roundTimes are those that windows mostly have.
var roundTimes = func() (all []time.Duration) {
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour} {
		for _, n := range []time.Duration{1, 5, 10, 15, 30} {
			all = append(all, n*unit)
		}
	}
	return append(all, 60*time.Hour)
}()
