package heed

import (
	"slices"
	"time"
)

// usage remembers the units this process took from a window, and when each
// comes back: one window after its answer, because only by then must the
// origin have counted it, however late it arrived there, or after another one that
// shows that it had; sooner by what the request that goes next is known to be on its
// way. As long as no more than the quota is in use, every window of that length holds
// at most the quota, sliding ones included.
//
// Small quotas are remembered unit by unit. Above exactUnits, uses within a
// hundredth of the window of each other come back together with the last of
// them, so that memory does not grow with the quota.
type usage struct {
	inFlight int64
	logged   int64      // sum over log
	log      []use      // those first that come back first
	counted  []counting // of what is in flight, oldest first
}

// A counting says that the origin had counted n of the units that were in flight at an instant.
type counting struct {
	at time.Time
	n  int64
}

type use struct {
	sent        time.Time // when the earliest of them was
	heard       time.Time // when the latest of them was answered
	first, last time.Time // a window before they come back
	n           int64
	unsure      int64 // of those that the origin may never have counted
}

const exactUnits = 100

func (u *usage) take(n int64)   { u.inFlight += n }
func (u *usage) refund(n int64) { u.inFlight -= n }

// done moves n units, sent at start and answered now, from in flight to the log. They come
// back so much sooner than a window from now. It returns those that come back with them; nil: none of them are remembered.
func (u *usage) done(now, start time.Time, sooner time.Duration, n, quota int64, window time.Duration) *use {
	u.inFlight -= n
	if n <= 0 || window <= 0 {
		return nil
	}
	u.expire(now, window)
	u.logged += n
	from := latest(u.countedBy(start, now, n).Add(-sooner), start)
	if u.inFlight <= 0 {
		u.counted = u.counted[:0]
	}
	k := len(u.log)
	for k > 0 && u.log[k-1].last.After(from) {
		k--
	}
	coarse := quota <= 0 || quota > exactUnits || len(u.log) > 2*exactUnits
	if k < len(u.log) {
		if coarse { // with the next that comes back
			u.log[k].join(now, start, n)
		} else {
			u.log = slices.Insert(u.log, k, use{start, now, from, from, n, 0})
		}
		return &u.log[k]
	}
	if k > 0 {
		l := &u.log[k-1]
		if from.Equal(l.last) || coarse && from.Sub(l.first) <= window/exactUnits {
			l.last = from
			l.join(now, start, n)
			return l
		}
	}
	u.log = append(u.log, use{start, now, from, from, n, 0})
	return &u.log[len(u.log)-1]
}

// join adds n units, sent at start and answered now, to those that come back with e.
func (e *use) join(now, start time.Time, n int64) {
	e.sent, e.heard, e.n = soonest(e.sent, start), now, e.n+n
}

// areCounted says that by now the origin has counted n of the units in flight, whichever they are. What is a window
// old, or hardly newer than the one before, says no more.
func (u *usage) areCounted(now time.Time, n int64, window time.Duration) {
	u.counted = slices.DeleteFunc(u.counted, func(c counting) bool { return c.n == 0 || now.Sub(c.at) >= window })
	for _, c := range u.counted {
		n -= c.n
	}
	if k := len(u.counted); n > 0 && (k == 0 || now.Sub(u.counted[k-1].at) >= window/exactUnits) {
		u.counted = append(u.counted, counting{now, n})
	}
}

// countedBy returns the first instant by which the origin is known to have counted n units that were sent at
// start and are answered now: now at the latest. Which of those in flight had been counted at an instant nobody
// knows. It makes no difference to how many come back by when, so they are taken to be those answered first.
func (u *usage) countedBy(start, now time.Time, n int64) time.Time {
	for i := range u.counted {
		if c := &u.counted[i]; c.at.After(start) && c.n >= n {
			c.n -= n
			return c.at
		}
	}
	return now
}

// more takes n more units for a request that was sent at start, and is settled; below 0, it
// took that many less.
func (u *usage) more(now, start time.Time, n int64, p *Policy) {
	if n < 0 {
		u.less(now, start, -n, p.Window)
		return
	}
	u.inFlight += n
	u.done(now, start, 0, n, p.Quota, p.Window)
}

// less takes back n of the units that a request sent at start was counted
// for, from the oldest uses that can be its own: those that come back last
// stay.
func (u *usage) less(now, start time.Time, n int64, window time.Duration) {
	if now.Sub(start) >= window { // its own may have come back already
		return
	}
	for i := range u.log {
		if e := &u.log[i]; !e.last.Before(start) {
			k := min(n, e.n)
			e.n -= k
			u.logged -= k
			n -= k
		}
	}
}

// drop takes the n units that went first to be back.
func (u *usage) drop(n int64) {
	for i := range u.log {
		k := min(n, u.log[i].n)
		u.log[i].n -= k
		u.logged -= k
		n -= k
	}
}

// forget takes all that was answered to be back.
func (u *usage) forget() { u.logged, u.log = 0, nil }

func (u *usage) expire(now time.Time, window time.Duration) {
	i := 0
	for i < len(u.log) && now.Sub(u.log[i].last) >= window {
		u.logged -= u.log[i].n
		i++
	}
	if i > 0 {
		u.log = u.log[:copy(u.log, u.log[i:])]
	}
	if len(u.log) == 0 && cap(u.log) > 2*exactUnits { // of a burst that is long over
		u.log = nil
	}
}

// used returns the units that are in flight or have not come back yet.
func (u *usage) used(now time.Time, window time.Duration) int64 {
	u.expire(now, window)
	return u.inFlight + u.logged
}

// back returns the instant at which n more units will have come back, as far
// as the log tells; false where that depends on requests still in flight.
func (u *usage) back(now time.Time, n int64, window time.Duration) (time.Time, bool) {
	if n <= 0 {
		return now, true
	}
	for _, e := range u.log {
		if n -= e.n; n <= 0 {
			return e.last.Add(window), true
		}
	}
	return time.Time{}, false
}

// backWith is back for what this usage and another make up together.
func (u *usage) backWith(v *usage, now time.Time, n int64, window time.Duration) (time.Time, bool) {
	for i, j := 0, 0; i < len(u.log) || j < len(v.log); {
		var e use
		if j == len(v.log) || i < len(u.log) && !v.log[j].last.Before(u.log[i].last) {
			e = u.log[i]
			i++
		} else {
			e = v.log[j]
			j++
		}
		if n -= e.n; n <= 0 {
			return latest(now, e.last.Add(window)), true
		}
	}
	return time.Time{}, false
}

// sure is how many of them the origin has counted for certain.
func (e *use) sure() int64 { return max(e.n-e.unsure, 0) }

// between returns the units sent after from and answered before to that the origin has counted for certain.
func (u *usage) between(from, to time.Time) (n int64) {
	n, _ = u.counts(from, to)
	return n
}

// counts returns how many units sent after from and answered before to the origin has counted, and of how many
// that is not known.
func (u *usage) counts(from, to time.Time) (sure, unsure int64) {
	for _, e := range u.log {
		if e.sent.After(from) && e.heard.Before(to) {
			sure += e.sure()
			unsure += e.n - e.sure()
		}
	}
	return sure, unsure
}

// deny takes n of those to be nobody's that the origin may never have counted, and that were sent after from and answered
// before to: those that come back last stay.
func (u *usage) deny(from, to time.Time, n int64) {
	for i := range u.log {
		if e := &u.log[i]; n > 0 && e.unsure > 0 && e.sent.After(from) && e.heard.Before(to) {
			k := min(n, e.unsure, e.n)
			e.n -= k
			e.unsure -= k
			u.logged -= k
			n -= k
		}
	}
}

// beyond returns when the last of those units was sent, at the earliest, that went first and were
// answered before an instant, if no more than n that went later were; false where there are none.
func (u *usage) beyond(at time.Time, n int64) (sent time.Time, known bool) {
	var before []use
	for _, e := range u.log {
		if e.heard.Before(at) {
			before = append(before, e)
		}
	}
	slices.SortFunc(before, func(a, b use) int { return b.sent.Compare(a.sent) })
	for _, e := range before {
		if n -= e.sure(); n < 0 {
			return e.sent, true
		}
	}
	return time.Time{}, false
}

// rest returns the instant by which all units have come back.
func (u *usage) rest(window time.Duration) time.Time {
	if k := len(u.log); k > 0 {
		return u.log[k-1].last.Add(window)
	}
	return time.Time{}
}
