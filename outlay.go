package heed

import (
	"cmp"
	"time"
)

// An outlay is what this process had accepted after a wait, where only refusals tell of a limit, and nobody of when there is more.
// As much is taken to be back after the next wait that is as long, and when it is gone the one after that begins: another
// would be refused. Now and then one goes all the same, for there may be more, or no limit any longer.
type outlay struct {
	used     int64     // accepted in the epoch …
	gave     int64     // … and as a rule before one was refused, after a wait at least as long as the present one; zero: all of the quota, as far as is known …
	beyond   int64     // … so many more may go to see whether there are …
	presumed int       // … and so many waits in a row began because that was gone, without a refusal …
	since    time.Time // … after the latest one …
	surplus  int       // … half as many may for each time in a row that there was more
}

// So many waits in a row begin for what is gone by this process's own count, and for so long, before one more goes all the same.
const (
	mostPresumed = 16
	presumedFor  = time.Minute
)

// returns is how many are back after a wait, as far as is known.
func (o *outlay) returns(p *Policy) int64 {
	return cmp.Or(o.gave, p.Quota) + o.beyond
}

// presumes reports whether a wait may begin without a refusal.
func (o *outlay) presumes(now time.Time) bool {
	return o.presumed < max(mostPresumed>>o.surplus, 1) || now.Sub(o.since) < presumedFor>>o.surplus
}

// spent takes in that another is refused. A few that were back tell no more than that it comes back bit by bit, and
// each wait has some refused: it is made longer then all the same. What gathered in waits that nobody was refused before
// came back in all of them.
func (d *drought) spent(now time.Time, p *Policy) {
	enough := d.used > 0 && d.used >= min(few, (p.Quota+1)/2)
	if d.lasts() && d.used > 0 {
		if d.dry = now; enough {
			d.waited(d.used - 1)
			d.dry, d.hinted = time.Time{}, time.Time{}
		}
	}
	switch more := d.used - d.gave; {
	case enough && d.gave > 0 && d.presumed > 0 && more > 0 && d.used < p.Quota: // else all of it is back at once
		d.gave += max(more/int64(d.presumed+1), 1)
		d.surplus++
	case enough:
		d.gave, d.surplus = d.used, 0
	}
	d.used, d.presumed, d.beyond, d.since = 0, 0, 0, now
}

// useUp takes in, where only refusals tell of a limit, and nobody of when it ends, that the request of c, sent at start, was accepted. Where
// most of the quota was since the latest wait that was enough, and where it is all that comes back nothing is left.
func (l *ledger) useUp(now, start time.Time, c *charge, p *Policy) {
	d := &l.drought
	switch {
	case c.epoch != l.epoch || p.Quota <= 0 || p.Window > 0 || p.Unit == UnitContentBytes:
		return
	case now.Before(l.closed) && d.gave > 0 && d.presumed == 0: // a refusal came first
		d.gave += c.n
		return
	case d.blind == 0 || l.stated || !l.until().IsZero():
		return
	}
	d.used += c.n
	if d.lasts() && 2*d.used > p.Quota {
		d.hearLeft(start, d.used-1)
	}
	if d.used < d.returns(p) {
		return
	}
	if d.presumes(now) {
		d.presumed++
		d.dry = now
		l.closeUntil(now.Add(d.blindWait(now, false, false, !l.inCompany())))
	} else {
		d.beyond += d.used/8 + 1
	}
}
