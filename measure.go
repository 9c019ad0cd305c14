package heed

import "time"

// What is shut for longer than this is more often out of order than a limit that nobody announces.
const outageMostly = 3 * time.Minute

// wholeOfFew is how many requests a window may let through, as far as it is searched for, of which only a few were met.
const wholeOfFew = 64

// measure takes what was accepted until the origin reopened for what a window
// lets through. shut is when it was known to be closed still. Where it was heed that
// chose when to ask again, the window may be far shorter, and the rate is searched for
// from there on.
func (l *learner) measure(reopened, shut time.Time) {
	r := &l.rate
	longest, shortest, climb, doubt := reopened.Sub(l.since), shut.Sub(l.since), 0.0, 0.0
	open, hint := l.wasOpen(), l.named.Sub(l.began)
	told := l.timed && l.probes == 0
	round := isRound(l.accepted)
	switch {
	case told: // rounded up to a second
		shortest = longest - time.Second - l.trip()
	case longest > shortest*5/4:
		climb = steep(l.accepted)
		// With more than one at a time on their way, an attempt would cost more than one refusal.
		n := l.accepted
		if n < few/2 { // they may be the rest of a window that lets through far more
			n = wholeOfFew
		}
		most := min(rateOf(n, shortest), 1/max(l.crowd.trip(), nearBy.Seconds()))
		switch d := doublings(rateOf(l.accepted, longest), most); {
		case (l.timed || d < settled) && round && nextRoundTime(shortest+1) == roundTime(longest):
			climb = 0
		case d >= settled:
			climb, doubt = gently, d
		}
	}
	window := roundTime(longest)
	switch {
	case told && hint > open && roundTime(hint) == hint: // it asks for a whole window, whenever it is
		window = hint
	case l.curt && l.blind && nextRoundTime(shortest) <= longest: // there was hardly any left to name
		window, doubt = nextRoundTime(shortest), 0
		if window <= shortest*5/4 || roundTime(shortest) <= l.shut() { // else a shorter one by the clock may have ended while it was open
			climb = 0
		}
	case window > shortest:
	case told && round && nextRoundTime(longest) <= longest*5/4: // it had begun before
		window = nextRoundTime(longest)
	default: // it may be two by the clock, of which the first was used in part
		window, climb = longest, max(climb, gently)
	}
	if r.pressed < l.accepted/3 && float64(l.accepted)*l.crowd.trip() < float64(l.crowd.most)/2*open.Seconds() {
		climb = max(steep(l.accepted), 1) // that was its own pace, and not the limit's
	}
	r.measured(l.accepted, window, climb)
	r.doubt, r.most, r.ours = doubt, longest+l.trip(), !l.timed
	// Where all had been used up in a moment, it says nothing of whether the wait is what the limit
	// takes, or a penalty, or was an outage where it took long. Trying twice as much costs no more
	// than what is left of a window.
	r.trial = (told || l.closed() > outageMostly) && open < l.windowClosed(open)/4 && l.triesCheaply()
	if n := roundCount(l.accepted); n < l.accepted && !r.trial { // which tells how much it is
		r.cycle, r.low = n, rateOf(n, window)
	}
}

// onceMore takes in that a trial was refused after n requests. Where that is more than the first measure, but less than two of it, it
// is one larger window, of which others had used a part when that was made, or two that met. As many in another trial show that it is
// one. It reports whether that tells something, and t.tried whether it is to be tried once more.
func (t *throughput) onceMore(n int64) (tells bool) {
	before, some := t.tried, t.cycle/few+1
	if t.tried = 0; t.cycle < few || n < t.cycle+some || n > 2*t.cycle-some {
		return false
	}
	switch {
	case before == 0:
		t.tried = n
	case before-1 <= n && n <= before+1:
		t.low, t.cycle = t.low*float64(n)/float64(t.cycle), n
	default:
		return false
	}
	return true
}

// triesCheaply reports whether a trial costs few refusals: where hardly more than one request is on its way at a
// time, and where all take about as long, so that they arrive as evenly as they go, and it was closed for more than
// the second that every wait can be rounded up to.
func (l *learner) triesCheaply() bool {
	return l.oneAtATime() || l.trip() <= 2*l.quickest && l.closed() >= time.Second
}

// oneAtATime reports whether hardly more than one request is on its way at a time at the rate that is known.
func (l *learner) oneAtATime() bool { return l.rate.low*l.crowd.trip() <= 0.25 }

// remeasure looks for the window again, in the light of another block: when the
// origin reopens, one has passed since the first of as many requests as it
// lets through.
func (l *learner) remeasure(reopened time.Time) {
	r := &l.rate
	r.shorter = false
	if l.timed && r.doubt > 0 && !l.shrinks { // it may ask for as long whenever it refuses
		r.window = 0
		return
	}
	closed := l.closed()
	if l.accepted < r.cycle && r.low < backOff*r.tooFast && closed > 3*perUnit(r.low) {
		l.remeasureFewer(reopened)
		return
	}
	first, known := r.ago(r.cycle)
	if !known || r.cycle < few || r.most == 0 { // none was ever measured
		return
	}
	shortest, longest := l.refused.Sub(first)-l.trip(), reopened.Sub(first)+l.trip()
	if l.asMany() { // the first of them may have been long on its way
		// Closed for longer than a bucket is, and than the window is by far.
		if shortest = min(shortest, l.refused.Sub(l.seen)); closed > 3*perUnit(r.low) && shortest-shortest/3 > r.most {
			r.punish(min(reopened.Sub(l.hit), r.closed))
			return
		}
	}
	if r.steady > 0 && l.timed && !l.shrinks && r.window > l.hint { // the waits asked for may make it look longer than they are
		longest = min(longest, time.Duration(float64(r.cycle)/r.steady*float64(time.Second)))
	}
	r.most = min(r.most, longest)
	low := rateOf(r.cycle, r.window)
	likely := low > r.low*2/3
	if r.sure = r.window > max(shortest, 0) && r.window <= longest && likely; r.sure {
		l.confirm(reopened, shortest, low)
	} else {
		l.lookAgain(shortest, longest, closed)
	}
}

// remeasureFewer is remeasure where it lets through less than was taken for a window's, and was closed for longer than a
// bucket would have been: no longer than two windows, though, unless that was an outage.
func (l *learner) remeasureFewer(reopened time.Time) {
	r := &l.rate
	shortest, longest := l.refused.Sub(l.since), reopened.Sub(l.since)
	window := r.window
	if window <= shortest || window > longest {
		window = roundTime(longest)
	}
	if l.accepted < few || window <= shortest || window > 2*r.window {
		r.climb = max(r.climb, steep(l.accepted))
		return
	}
	r.measured(l.accepted, window, 0)
	r.low = min(r.low, r.tooFast)
	r.trial = l.timed && l.triesCheaply() // some ask for as long whenever they refuse, and more is back later
}

// lookAgain looks for a window between the shortest and the longest that it can be, in place of the one that was known.
func (l *learner) lookAgain(shortest, longest, closed time.Duration) {
	r := &l.rate
	if r.window = roundTime(longest); r.window <= shortest {
		r.window = 0
		slow := closed > 0 && (r.tooFast == 0 || closed > 3*perUnit(r.tooFast)) // one by one, some would have come meanwhile
		if !l.asMany() && slow && rateOf(r.cycle, longest) > r.low {            // one of no round length
			r.measured(r.cycle, longest, 0)
			r.sure = longest < shortest*5/4
			return
		}
	}
	if !l.asMany() || closed <= 3*perUnit(r.low) {
		return
	}
	window := r.window
	if window == 0 {
		window = longest
	}
	low := rateOf(r.cycle, window)
	switch {
	case r.doubt > 0: // what is known is proven
		low = max(low, r.low)
	case low < r.low/2 && (!l.timed || l.whole || l.probes > 0): // it may have been an outage, which is over, and did not say when
		return
	}
	r.low, r.doubt, r.climb = low, 0, 0
}

// confirm takes the window that is known to be in keeping with the block that is over; low is the rate that it makes. What came
// in the one that has just ended tells, too, how much a window lets through: the first measure may be of two by the clock, or
// of a part of one.
func (l *learner) confirm(reopened time.Time, shortest time.Duration, low float64) {
	r := &l.rate
	least := r.since(reopened.Add(-r.window))
	most := max(r.since(l.refused.Add(-r.window-max(l.trip()-l.quickest, 0))), least, 2) // as measured has it
	switch {
	case r.cycle < least, r.cycle > most:
		r.cycle = min(max(r.cycle, least), most)
		r.low = min(max(r.low, rateOf(least, r.window)), rateOf(most, r.window))
	case low < r.low, low < r.tooFast:
		r.low = low
	default: // hardly less was refused, however little came since the refusal before: some of that was a wait
		r.low = max(r.low, 0.95*r.tooFast)
	}
	r.climb, r.doubt, r.kept = 0, 0, keptUp{}
	r.shorter = !l.timed && shortest < r.window*3/4 && l.oneAtATime() // it was heed that chose when to ask again
}

// asMany reports whether no more were accepted since the latest reopening than the first
// time: a window's.
func (l *learner) asMany() bool { return l.accepted == l.rate.cycle || l.accepted == l.rate.cycle-1 }

// trip is how long requests take.
func (l *learner) trip() time.Duration { return time.Duration(l.crowd.trip() * float64(time.Second)) }
