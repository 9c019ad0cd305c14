package heed

import "time"

// Some origins refuse everything for a moment now and then, as while they are deployed anew or overloaded, be there a
// limit or none. One such refusal looks like a limit's, and so less is sent after it. But a limit refuses nothing at a
// pace well below what it let through from one refusal to another before, unless it has been cut or others have come.
// Where that happens again, below what was let through since, it is taken for such an origin: a refusal that comes after
// many were accepted tells next to nothing from then on, until several of them came without another sign of that. It is a
// limit's once one follows soon after another, or after as many.
type interruptions struct {
	at      time.Time // the latest refusal that began a block …
	n       int64     // accepted of those sent since …
	before  int64     // … and from the one before to that
	proven  float64   // what was let through from one to another, since the latest that was a sign …
	through float64   // … and before that
	often   int       // refusals that were a sign, at a pace well below that …
	since   int       // … and so many came since the latest of them
	soon    int       // in a row that came soon, or after as many
}

const (
	believed     = 8    // refusals in a row that are taken for interruptions without a sign
	outageProbes = 3    // refused at the time the server itself had named, they tell of an outage …
	outageAfter  = 64   // … and later than the first where none is named, after so many accepted …
	largeBurst   = 1024 // … or so many
)

// accepted takes in that a request sent at start was accepted.
func (i *interruptions) accepted(start time.Time) {
	if start.After(i.at) {
		i.n++
	}
}

// refused takes in the first refusal of a block, of a request sent at start, and reports whether that is no limit's, and
// whether it came soon after another, or after just as many requests, as a window's do.
func (i *interruptions) refused(r *throughput, start time.Time) (yes, soon bool) {
	n, before, at := i.n, i.before, i.at
	i.n, i.before, i.at = 0, n, start
	soon = n < 2*few || before-few <= n && n <= before+few
	if r.low > 0 && r.pace() > r.low { // an attempt at more is
		return false, soon
	}
	i.since++
	if i.soon++; !soon {
		i.soon = 0
	} else if i.soon > 1 {
		*i = interruptions{at: start, before: n, soon: i.soon}
	}
	if r.low > 0 && r.pace() <= farBelow*i.proven && !soon {
		i.often, i.since, i.through, i.proven = i.often+1, 0, i.proven, 0
	}
	if i.since > believed {
		i.often = min(i.often, timeAndAgain-1)
	}
	if n >= 2*few && !at.IsZero() {
		i.proven = max(i.proven, rateOf(n, start.Sub(at)))
	}
	return i.known() && !soon, soon
}

// known reports whether there are interruptions.
func (i *interruptions) known() bool { return i.often >= timeAndAgain }

// interruptionOver ends an interruption, with a request sent at start that was accepted: what was known before still
// holds. The pace rises where refusals had lowered it.
func (p *partition) interruptionOver(now, start time.Time) {
	l := &p.learner
	r := &l.rate
	if l.known != nil {
		total := r.total
		*r, r.total = *l.known, total
	}
	l.begin(start)
	r.rested()
	r.opened, l.seen = mark{start, r.total}, now
	switch i := &l.interruptions; {
	case l.known != nil:
		p.beginAtRate(now)
	case i.through > 0:
		cycle := max(r.cycle, shortestCycle)
		p.letGo(now, max(r.low, i.through))
		r.cycle, i.through = cycle, 0
	case r.low > 0:
		r.low *= cautious // it may be a limit's all the same
		p.beginAtRate(now)
	}
}

// outOfOrder takes in that nothing was let through, time and again, at the time that a 503 had
// named. No limit does that: it was an outage. Where one begins after just as many requests as the
// one before did, though, it is a limit, and what it says of the time is wrong.
func (l *learner) outOfOrder() {
	if l.takeForOutage() {
		l.blocked = false
		l.begin(time.Time{}) // with the first that is accepted again
	}
}

// takeForOutage takes what was refused for an outage's, and reports true, unless just as many were accepted as before the
// latest outage: that was a limit then, and so is this.
func (l *learner) takeForOutage() bool {
	n := l.unrefused + l.accepted
	if d := n - l.outage; l.outage >= few/2 && -1 <= d && d <= 1 {
		l.rate.burst, l.blocks = l.outage, max(l.blocks, 1)
		return false
	}
	l.outage, l.unrefused = n, 0
	return true
}

// wasOut reports whether the block that is over is taken for an outage, whose refusals are no limit's. Where a limit is known
// that refuses with another status, 503s are an outage's, unless a single one may have come by chance. Where none is known, and
// all that was refused were 503s that named no time, it was an outage
//
//   - up to twice, after no more requests in a row than had been let through before with none refused;
//   - once, if it lasted for more than three minutes;
//   - if it lasted for no longer than all had been let through before, after so many that no bucket holds as large a burst;
//     one that does would have let one through after a while.
//
// Where another comes after just as many requests, it is a limit: see takeForOutage.
func (l *learner) wasOut() bool {
	switch {
	case l.known != nil:
		return l.probes > 0 || l.also > 0 && l.meanwhile == 0 // else it may have come by chance
	case !l.whole, l.timed, l.rate.low > 0, l.blocks > 0:
		return false
	}
	n, brief, first := l.accepted, l.shut() <= l.wasOpen(), l.outage == 0 && l.shut() > outageMostly
	switch {
	case l.outages < timeAndAgain && n <= l.mostInARow && l.unrefused+n >= outageAfter && l.probes > 0:
		l.outages++
	case first && n >= 2*few && l.probes > 0:
	case brief && n >= outageAfter && l.probes > 0, brief && n >= largeBurst && l.meanwhile == 0:
	default:
		return false
	}
	return l.takeForOutage()
}
