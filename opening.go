package heed

import (
	"math"
	"time"
)

// An opening lets few requests go unanswered at first and more as answers
// come back well: one ahead on first contact with an origin, after a pause
// and after a reset, and of all partitions after a pause of all; two once that is answered, four after the next round,
// and so on, or all at once when an answer says what remains. An origin near
// by, where rounds take no time, is not met in a rush: a limit that nobody
// announces costs what is in flight when it is found.
type opening struct {
	limit   int           // requests of this opening that may be unanswered; 0: wide open
	serial  uint32        // tells this opening's requests from an earlier one's
	flying  int           // of this opening, unanswered
	since   time.Time     // when the latest step was taken, or the first request after it went
	used    bool          // a request went since the latest step
	scouted bool          // an answer came back well: the origin was met
	contact bool          // on first contact: nobody was refused
	double  int           // limit at the end of the present round …
	round   time.Time     // … which began here
	quick   time.Duration // the quickest answer
	atHand  int           // answers as quick as on one machine, less those that were not
	wary    bool          // what it opens up to is a guess: a step takes more than one good answer …
	good    int           // … and so many came since the latest one
}

// wideOpen is the number of unanswered requests at which an opening has
// nothing left to prove.
const wideOpen = 1024

const (
	nearBy       = 5 * time.Millisecond  // round trips shorter than this are …
	leastRound   = 20 * time.Millisecond // … and how long a round takes there, at least
	oneMachine   = time.Millisecond      // on one machine most are shorter than this …
	longestRound = 50 * time.Millisecond // … and a round takes so long …
	leastInTrips = 500                   // … or so many of the quickest round trips, where that is less
	goodSteps    = 4                     // good answers that a step of a wary opening takes, from so many in flight on
)

// start begins anew with one request. An opening that waits for its first
// answer goes on as it is; one whose request was refused waits for that of the next.
func (o *opening) start(now time.Time) {
	if o.limit == 1 {
		o.used = o.used && o.flying > 0
		return
	}
	o.restart(now)
}

// meet is start on first contact.
func (o *opening) meet(now time.Time) {
	o.start(now)
	o.contact = true
}

// restart begins anew with one request whatever was under way.
func (o *opening) restart(now time.Time) {
	*o = opening{limit: 1, serial: o.serial + 1, since: now}
}

// restartWarily is restart where the requests in flight are not known to be what was
// refused. A quarter more in each round shows a rate with few in flight, for what they
// exceed it by is what will be refused.
func (o *opening) restartWarily(now time.Time) {
	o.restart(now)
	o.wary = true
}

// free reports whether another request may go unanswered; else it returns the
// instant at which the one that has not been answered counts as a step, so
// that one that hangs cannot stop the others.
func (o *opening) free(now time.Time, patience time.Duration) (time.Time, bool) {
	if o.limit == 0 || o.flying < o.limit {
		return now, true
	}
	if at := o.since.Add(patience); now.Before(at) {
		return at, false
	}
	return now, true
}

// sure is how many more requests may go before an answer comes.
func (o *opening) sure(now time.Time, patience time.Duration) int {
	switch _, ok := o.free(now, patience); {
	case o.limit == 0:
		return math.MaxInt
	case !ok:
		return 0
	}
	return max(o.limit-o.flying, 1)
}

// take counts a request that goes now; the serial it returns goes with it.
func (o *opening) take(now time.Time) uint32 {
	if o.limit == 0 {
		return o.serial
	}
	if o.flying >= o.limit { // patience ran out
		o.step(now)
	}
	if !o.used { // one that comes to nothing does not begin anew
		o.used, o.since = true, now
	}
	o.flying++
	return o.serial
}

// proven reports whether so many answers came back well that nobody else needs
// to try the origin first.
func (o *opening) proven() bool { return o.limit == 0 || o.limit > 10 }

// gone forgets a request that was not answered, or never sent.
func (o *opening) gone(serial uint32) {
	if serial == o.serial && o.flying > 0 {
		o.flying--
	}
}

// well says that a request of this opening, sent at start, was answered well;
// told, that the answer said what remains.
func (o *opening) well(now, start time.Time, serial uint32, told bool) {
	if o.limit == 0 || serial != o.serial {
		return
	}
	trip := now.Sub(start)
	if !o.scouted || trip < o.quick {
		o.quick = trip
	}
	if trip < oneMachine {
		o.atHand++
	} else {
		o.atHand--
	}
	o.scouted = true
	if told {
		o.limit = 0
		return
	}
	if !o.hesitates() && !o.rushes(now) {
		o.step(now)
	}
}

// hesitates reports whether a wary opening waits for more good answers before it takes
// another step.
func (o *opening) hesitates() bool {
	o.good++
	return o.wary && o.limit >= goodSteps && o.good < goodSteps
}

// rushes reports whether on first contact another round would begin too soon
// after the one before it.
func (o *opening) rushes(now time.Time) bool {
	if !o.contact || o.limit < o.double {
		return false
	}
	if now.Sub(o.round) < o.least() {
		return true
	}
	o.double, o.round = 2*o.limit, now
	return false
}

// least is how long a round takes on first contact, at least.
func (o *opening) least() time.Duration {
	switch {
	case o.atHand > 0:
		return min(longestRound, leastInTrips*o.quick)
	case o.quick < nearBy:
		return leastRound
	}
	return 0
}

// step lets one more go unanswered: where every answer does, that is twice as
// many after each round, and never more than were answered well.
func (o *opening) step(now time.Time) {
	o.limit++
	o.since, o.used, o.good = now, false, 0
	if o.limit >= wideOpen {
		o.limit = 0
	}
}
