package heed

import "time"

// A drought is a time in which nothing is left, and what is known of how long it lasts
// where the origin names neither a reset nor a window.
type drought struct {
	dry      time.Time     // since when nothing has been left
	hinted   time.Time     // until then Retry-After says that nothing is left, where a request went too soon
	whole    int64         // the most that was ever said to be left
	blind    time.Duration // how long to wait where nothing is left and no reset named …
	proven   time.Duration // … a wait that was too short …
	enough   time.Duration // … one that was long enough …
	longest  time.Duration // … the longest that was with all back by then, and was not too short since …
	waits    int           // … so many in a row …
	patience int           // … and how many there are to be before a shorter one is tried
	back     int64         // what was back after the latest wait …
	before   int64         // … and after the one before …
	most     int64         // … and the most that was after one as long
	long     bool          // the one named last was, as a penalty may be
	scanty   int           // the wait was made longer so many times because it brought next to nothing, and never all since
	tried    time.Duration // the first of those shorter ones that were refused in a row; zero: none was
	halved   int           // the present wait was halved so often, for little was back after the latest …
	spared   int           // … and this much less often than it may be, for that was too often once
	longer   time.Duration // so many tenths of a window longer the latest wait was made, for more to come back …
	vain     int           // … in vain, so many times: no more than one unit was back
	gained   int64         // the most that was there since the one before …
	part     bool          // … which was less than half of the quota

	outlay
}

// hearNothingLeft takes in that nothing is left: nothing may start for as long as
// the answer says or, where it does not, as it is likely to last. It reports whether that
// is longer than atMost.
func (l *ledger) hearNothingLeft(now, start time.Time, p *Policy, s *statement, atMost time.Duration) (capped bool) {
	l.dried = latest(l.dried, start)
	if s.reset > p.Window/4 && !l.drought.lasts() {
		l.hearEnd(now.Add(s.reset), s, p)
	}
	switch {
	case l.shape != shapeRefill:
	case s.reset > max(p.Window/4, 2*s.resolution):
		l.fillsUp = true // it is not when there is one more
		if !l.othersSeen {
			l.lumps.stuck++
		}
	case s.reset < 0 && s.refused: // what was counted on is not back yet
		l.lumps.stuck = lumpy
	}
	d := &l.drought
	if s.refused {
		d.spent(now, p)
	}
	again, all := d.lasts(), d.all(p)
	switch {
	case !again:
		d.part, d.gained = 2*d.gained < all, 0
	case !s.refused && all > 2: // one was back, and no more
		d.part = true
	}
	if !again || !s.refused { // until it was accepted something was left
		d.dry = now
	}
	wait := s.reset
	if wait >= 0 && d.blind > 0 && d.believes(now.Add(wait).Sub(d.dry)) { // what is named now holds from when nothing was left
		d.blind = now.Add(wait).Sub(d.dry)
		if d.longest > d.blind-s.resolution { // it was enough, and is what this may have been rounded up from
			d.blind = min(d.blind, d.longest)
		}
		d.proven, d.enough, d.most, d.halved = d.blind, d.blind, 0, 0
	}
	switch {
	case (wait == 0 && l.twoCounts() || wait < 0 && l.neverEnds()) && !s.refused: // it stops nothing, and how much comes back is known
		return false
	case wait >= 0 && l.piecemeal && !l.flows() && p.Window > 0 && d.gathers(l.inEpoch, l.othersSeen && l.inferred > 0):
		wait += max(s.resolution, l.later(now, p, s)+max(d.longer*p.Window/10, l.untilFewBack(p)))
	case wait >= 0:
		wait += l.later(now, p, s)
	case l.shape == shapeRefill && s.refused:
		wait = l.lumpGap(p)
	case l.shape == shapeRefill:
		wait = l.awaited(now, 1, p)
	case p.Window > 0 && l.shape == shapeReset:
		wait = l.lapsesIn(now, start, p, s)
	case p.Window > 0:
		wait = p.Window
		if at, ok := l.own.back(now, 1, p.Window); ok {
			wait = at.Sub(now)
		}
		wait = d.hint(now, start, s, wait)
	case now.Before(l.closed): // it went before this wait: it does not tell whether that is enough
		return false
	default:
		wait = d.blindWait(now, s.refused, again, !l.inCompany())
	}
	l.close(now, wait+l.stagger(wait, p, s), atMost)
	return wait > atMost
}

// believes reports whether a wait that is named now is to be enough later on, too: of long ones the second in a row, for the first may be
// a penalty.
func (d *drought) believes(wait time.Duration) bool {
	before := d.long
	d.long = wait > onceMost
	return before || !d.long
}

// stagger is how much later than more may be left one looks for it, where others use the quota and less than half of it was back at once:
// who all look at the same instant are all told of the same units, and go for them. Nothing is lost by it, for more is back by then. It is
// only where no reset is named, or one so near that rounding can have it be the same for all of them.
func (l *ledger) stagger(wait time.Duration, p *Policy, s *statement) time.Duration {
	known := l.shape == shapeSliding && p.Window > 2*s.resolution || l.shape == shapeReset && p.Window > 0 && s.reset < 0 // when more is back
	if !l.drought.part || !l.inCompany() || s.reset > 2*s.resolution || known {
		return 0
	}
	most := wait / 2
	if s.reset < 0 { // a quarter more is as long a wait still: see hearLeft
		most = wait / 4
	}
	return jitter(min(most, max(apartTrips*l.quickest, s.resolution/4)))
}

// gathers reports whether it is worth while to wait for longer than what comes back first, where so many
// units went since the latest wait. Where one unit is all there ever is, however long the wait was, it is not. Where
// others may have been first, and the window was only inferred, it can be far longer than that: each such wait is twice as
// long as the one before, until some are left, for the reset that is named then tells how long it is.
func (d *drought) gathers(sent int64, others bool) bool {
	switch {
	case sent > 1:
		d.vain = 0
	case d.longer > 0:
		d.vain++
	}
	switch {
	case others && d.vain < fiveInVain:
		d.longer = 1 << d.vain
	case d.vain < twoInVain:
		d.longer = 1
	default:
		d.longer = 0
	}
	return d.longer > 0
}

// untilFewBack is how long it takes, of a quota that comes back piecemeal, until a few units are back: of less the first answer says at once
// that nothing is left. Where others use it, it may be a window of which they took most first.
func (l *ledger) untilFewBack(p *Policy) time.Duration {
	if l.othersSeen {
		return 0
	}
	return min(3*p.Window/time.Duration(max(p.Quota, 1)), p.Window/2)
}

// lapsesIn is how long nothing is left of a window whose end no field names. A refusal that is the
// first word of an epoch shows that it was begun too soon, and is no answer of another window: the
// one that was used up is over a window after that, and sooner where Retry-After says so. Where
// that was too soon, too, none is believed again until something was left.
func (l *ledger) lapsesIn(now, start time.Time, p *Policy, s *statement) time.Duration {
	d := &l.drought
	if tooSoon := s.refused && l.begun.Equal(now); tooSoon && d.dry.Add(p.Window-l.ahead).After(now) {
		l.opened = d.dry
	}
	return d.hint(now, start, s, l.lapses(p).Sub(now))
}

// hint is how long nothing is left where a window says that it is so for wait, and Retry-After may
// say that it is less: that is believed of the first refusal in a drought, and of those to requests
// that went before the time it names.
func (d *drought) hint(now, start time.Time, s *statement, wait time.Duration) time.Duration {
	if !s.refused || s.after <= 0 {
		return wait
	}
	if d.hinted.IsZero() {
		d.hinted = now.Add(s.after)
	}
	if start.Before(d.hinted) {
		wait = min(wait, s.after)
	}
	return wait
}

// close lets nothing start before an answer's receipt plus the wait it named.
func (l *ledger) close(now time.Time, wait, atMost time.Duration) {
	l.closeUntil(now.Add(min(wait, atMost)))
}

// closeUntil lets nothing start before an instant.
func (l *ledger) closeUntil(at time.Time) {
	l.closed, l.stopped = latest(l.closed, at), latest(l.stopped, at)
}

// all is how many units there can be, as far as is known.
func (d *drought) all(p *Policy) int64 {
	if p.Quota > 0 {
		return p.Quota
	}
	return d.whole
}

// lasts reports whether there is one.
func (d *drought) lasts() bool { return !d.dry.IsZero() }

// hearLeft takes in that so many are left by the answer to a request sent at start, which ends
// the drought unless it was counted before that began. Where it went later than the wait was, as after a
// refusal that had it wait for longer, it does not show whether that is enough.
func (d *drought) hearLeft(start time.Time, left int64) {
	if d.lasts() && start.After(d.dry) {
		if start.Sub(d.dry) <= d.blind+d.blind/4 {
			d.waited(left)
		}
		d.dry, d.hinted = time.Time{}, time.Time{}
	}
	d.whole, d.gained = max(d.whole, left), max(d.gained, left+1)
}

// blindWait is how long to wait for more where an origin said that nothing is left
// and neither until when nor of what window: what was enough before, or where that is too
// short twice, the next longer time that windows mostly have. alone: nobody else is seen to use the quota, who could have come first.
func (d *drought) blindWait(now time.Time, refused, again, alone bool) time.Duration {
	switch {
	case d.blind == 0:
		d.blind, d.patience = blindFirst, blindPatience
	case refused && again && d.halved > 0:
		d.spared, d.halved = finest-d.halved+1, 0
		return max(d.dry.Add(d.blind).Sub(now), blindLeast)
	case refused && again:
		if d.blind >= d.longest {
			d.longest = 0
		}
		was, waits := d.blind, 0
		switch {
		case d.enough == d.blind && 0 < d.waits && d.waits < seldomShort: // it is hardly enough
			d.enough, d.proven, d.blind = 0, d.blind, d.blind+d.blind/4
		case d.enough == d.blind && d.waits > 0: // others may have been first
			d.enough = 0
		case d.enough > d.blind: // a shorter one was tried
			waits = d.tryBetween(alone)
		default:
			least := d.blind + d.blind/8
			if roundTime(d.blind) == d.blind {
				least = 2 * d.blind
			}
			d.proven, d.blind = d.blind, min(nextRoundTime(least), defaultMaxBackoff)
		}
		if d.longest > 0 { // what is enough only by chance does not make that too short
			d.blind = min(d.blind, d.longest)
		}
		if d.waits, d.most = waits, 0; d.blind > was { // more will be back
			d.gave = 0
		}
		if left := d.dry.Add(d.blind).Sub(now); left > 0 {
			return left
		}
	case again && alone && d.scant(): // it is hardly enough
		d.scanty++
		d.proven, d.blind = d.blind, max(d.blind, min(d.blind+d.blind/16, defaultMaxBackoff))
		d.enough, d.waits, d.back, d.most = max(d.enough, d.blind), 0, 1, 0
	case again: // one was back, which may be all there is
		d.waited(0)
	}
	d.halve()
	return max(d.blind>>d.halved, blindLeast)
}

// tryBetween has who is alone wait next for a time between the one that was refused and the one that is enough, if windows have any, and else for
// the latter. It returns how many waits as long are known to have been enough: beside others that one was refused may be theirs.
func (d *drought) tryBetween(alone bool) (waits int) {
	if d.tried == 0 { // all between count as one attempt
		d.tried = d.blind
		d.patience *= 2
	}
	next := likelyTime(d.blind+d.blind/8, d.enough-d.enough/8)
	switch {
	case alone && next > 0:
		d.proven, d.blind = d.blind, next
		return 0
	case alone:
		waits = 1
	}
	d.proven, d.blind, d.tried = d.tried, d.enough, 0
	return waits
}

// scant reports whether a wait that brought one back was hardly too short: the one before brought all the others back, and the one before that
// one as well. So it is where each is back after the same time, and of those taken one wait ago only the first is.
func (d *drought) scant() bool {
	return d.halved == 0 && d.scanty < twoInVain && d.whole >= few && d.before == 1 && 2*d.back > d.whole && d.back <= d.whole
}

// halve has the next wait halved where as long a one has brought far more than the latest has: then it is no bucket.
// Two counts give back nothing while the latest window is full, but evenly what was used in the one before, and the less
// the longer it takes until that is used again. So the wait is halved as often as it still brings some.
func (d *drought) halve() {
	switch {
	case d.most == 0 || 2*d.back > d.most:
		d.halved = 0
	case d.halved == 0 || d.back >= few:
		d.halved = min(d.halved+1, finest-d.spared)
	case d.back < few/2:
		d.halved = max(d.halved-1, 1)
	}
}

// waited takes in that after a blind wait so many were left beside the one that was accepted.
// Where all was back, half of it may do: that is tried at once where no wait was too short yet,
// and else the more rarely the more often one was. Where not all was, that is no window: the
// wait loses nothing, unless it was made longer for one that was too short.
func (d *drought) waited(left int64) {
	d.before, d.back = d.back, left+1
	if d.halved > 0 {
		return
	}
	d.most = max(d.most, d.back)
	if d.waits++; d.enough == 0 || d.proven == 0 || d.waits >= d.patience { // else a shorter one may be by chance
		d.enough, d.tried = d.blind, 0
	}
	d.proven -= d.proven / 500 // it may have become more
	if left >= d.whole {
		d.longest, d.scanty = max(d.longest, d.blind), 0
	}
	shorter, try := max(d.blind/2, d.proven+d.proven/4, blindLeast), left > 0 && d.proven > 0
	if left >= d.whole {
		try = d.proven == 0 || d.waits >= d.patience
	}
	if try && shorter < d.blind {
		d.blind, d.waits, d.most, d.tried = shorter, 0, 0, 0
	}
}

const (
	blindFirst    = time.Second           // the first such wait …
	blindLeast    = 50 * time.Millisecond // … and the shortest
	twoInVain     = 2                     // longer waits that brought no more, and none is made longer …
	fiveInVain    = 5                     // … where others may have been first
	blindPatience = 4                     // waits in a row that were enough before a shorter one is tried
	finest        = 4                     // times that a wait is halved, at most, where little is back …
	apartTrips    = 16                    // round trips within which those who share a quota look for more
	seldomShort   = 16                    // … and between two that were not where that may be by chance
)
