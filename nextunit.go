package heed

import "time"

// A nextUnit is what speaks for it that the resets of a policy that states no window are when the next unit of a bucket is back. Then
// they tell neither how long a window is nor when one ends: where all is presumed back at each of them, each has some refused.
type nextUnit struct {
	heard   time.Time     // an answer that came then named a reset …
	end     time.Time     // … that is over at this instant: where it named one, by the origin's clock, else by this one …
	sent    int64         // … and so many units had been sent by then
	top     int64         // of so many that were left …
	topOf   int64         // … by an answer that counts so many of those sent at least; 0: none was more than half …
	ours    bool          // … this process alone took nearly all, and no more than half has been left since
	last    int64         // left by the latest answer …
	at      time.Time     // … which came then
	fits    int           // resets that were over since then, and little was left
	only    bool          // so it is: nothing is inferred from them …
	longest time.Duration // … as long as none is more than twice as far away as those were …
	faster  bool          // far more was seen to come back than one unit in as long, and so none is a bucket's
}

// enoughOver are so many resets that were over in vain that this was no chance. Where it was, little is lost: what is left is told
// by every answer.
const enoughOver = 2

// hear takes in what the answer to c, sent at start, says of the slot, be it of a reset at an instant while the origin's clock showed
// date. It reports whether that reset is no end of a window. Where this process alone took nearly all of the quota, and still little is left once a
// reset is over, though this process took little since it was named, and in as long as such a window, no window ended then. Others who
// took as much as it gave at once, and nothing before, would look just like that.
func (u *nextUnit) hear(now, start, instant, date time.Time, c *charge, s *slot, lim *ServiceLimit) bool {
	l, p, r := &s.ledger, &s.terms, lim.Remaining
	switch {
	case s.policy.Window > 0:
		*u = nextUnit{}
		return false
	case s.policy.Unit != UnitRequests || p.Quota <= 0 || lim.Reset <= 0 || r < 0:
		return u.only
	case u.only && !u.refuted(now, start, r, lim.Reset, p):
		u.last, u.at = r, now
		return true
	case u.only:
		*u, l.piecemeal = nextUnit{}, false
	}
	if !lim.Clock || date.IsZero() {
		date = start
	}
	over := start.After(u.heard) && date.After(u.end)
	if unit := u.longest - 2*lim.Resolution; unit > 0 && start.After(u.at) && r-u.last > max(2, p.Quota/16)+int64(now.Sub(u.at)/unit) {
		u.faster = true
	}
	switch {
	case r > p.Quota/2:
		u.ours, u.fits = false, 0
		if u.topOf == 0 || r > max(u.top, u.last+p.Quota/4) {
			u.top, u.topOf = r, c.answered+c.n
		}
	case r > p.Quota/4:
	case u.topOf > 0:
		gone := u.top - r
		u.ours = gone > p.Quota/2 && gone <= l.sent-u.topOf && gone >= c.answered-u.topOf-p.Quota/4
		u.topOf = 0
	case u.ours && over && !u.faster && p.Quota-r-max(l.sent-u.sent, l.own.used(now, p.Window)) > p.Quota/2:
		u.fits++
		l.piecemeal = true // until the next one shows it, no more is presumed back than was this time
	}
	u.last, u.at, u.longest = r, now, max(u.longest, lim.Reset)
	if over {
		u.heard, u.end, u.sent = now, instant, l.sent
	}
	if u.fits < enoughOver {
		return false
	}
	u.only = true
	s.forgetWindow()
	l.forgetOthers()
	return true
}

// refuted reports whether an answer to a request sent at start shows that resets are ends of windows after all: more has come back
// than the half that did not until a reset was over, in no more time; or one is named that is much further away.
func (u *nextUnit) refuted(now, start time.Time, r int64, reset time.Duration, p *Policy) bool {
	leap := r-u.last > p.Quota/2 && start.After(u.at) && now.Sub(u.at) <= u.longest
	return leap || reset > 2*u.longest
}
