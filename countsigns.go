package heed

import (
	"math"
	"time"
)

// countSigns are what speaks for it that an origin keeps two counts, until it is known to.
type countSigns struct {
	fits                   int       // answers in a row, in one window, that fit that …
	from                   time.Time // … when the first of them came …
	unsureFrom             int64     // … what unsure was then …
	up, down               bool      // … whether all fit a bucket too, rounded up or down …
	counts, sliding, fixed bounds    // … and what is left beside this process's own use, if it is two counts, a sliding window or a fixed one …
	ticking                bounds    // … or two counts by a clock that is cut

	since       time.Time // when an answer first named the end of the present window; zero: none has …
	unsureSince int64     // … what unsure was then …
	due         time.Time // … when that is, at the earliest …
	same        time.Time // … or this instant of the origin's clock, if all named it since; else zero …
	low         float64   // … the least that was left beside this process's own use, at most …
	lowAt       time.Time // … when that was heard …
	stays       bool      // … whether units came back before that end all the same …
	fills       bool      // … and whether all that was said since fits a bucket
}

// bounds are those of a number that several answers are to agree on.
type bounds struct{ least, most float64 }

func (b *bounds) narrow(least, most float64) {
	b.least, b.most = max(b.least, least), min(b.most, most)
}

// contradict reports whether the answers differ by more than rounding and one or two
// requests of others explain, and so many more of them.
func (b *bounds) contradict(more int64) bool { return b.least > b.most+2+float64(more) }

// weigh holds an answer against what those before it in the same window said. If two counts
// are kept, what is left and this process's own use make up a sum that rises with the time,
// as steadily as this process used the window before. In a fixed window that stays the
// same, in a sliding one it rises with each unit that went a window ago, and in a bucket the
// reset moves with what is left. Nor does it slide where more came back than can have, as a bucket's units do.
// Others may use two counts so that nothing fits for long: where they are seen, what stay notices is enough.
func (l *ledger) weigh(now, start time.Time, c *charge, p *Policy, s *statement, r int64) {
	k := &l.counter
	rate := k.own / p.Window.Seconds()
	used := l.own.used(now, p.Window)
	still := l.own.between(now.Add(l.inferred-p.Window), start) + c.n // a window that slides has not given them back
	least, most := float64(r+c.answered+c.n), float64(r+l.sent)
	if l.orderly(c) {
		least, most = float64(r+c.sent), float64(r+c.sent)
	}
	up, down := l.filling(p, s)
	k.stay(now, start, s, least, most, l.othersSeen)
	told := least
	k.fills = k.fills && (up || down)
	for range 2 {
		if k.fits == 0 {
			all := bounds{math.Inf(-1), math.Inf(1)}
			k.from, k.counts, k.ticking, k.sliding, k.fixed, k.up, k.down = now, all, all, all, all, true, true
			k.unsureFrom = k.unsure
		}
		least = told - float64(k.unsure-k.unsureFrom) // those that were not counted make it seem that as many came back
		if k.own >= fewUnits {
			k.counts.narrow(least-now.Sub(k.from).Seconds()*rate, most-start.Sub(k.from).Seconds()*rate)
			k.ticking.narrow(k.steps(least, most, start, now, l.tick()))
		}
		k.fixed.narrow(least, most)
		k.sliding.narrow(float64(r+still), float64(r+max(used, c.used)))
		if !k.counts.contradict(0) || !l.othersSeen && k.jumps(l.tick()) { // what others use comes in steps, too
			break
		}
		k.fits = 0
	}
	k.fits, k.up, k.down = k.fits+1, k.up && up, k.down && down
	long := now.Sub(k.from) > k.last.Sub(k.ends) // a reset that every answer puts off would show
	jumps := k.counts.contradict(0)
	slides := !k.stays && !(jumps && l.shape == shapeRefill) && !k.sliding.contradict(l.foreign/8) && (l.inferred > 0 || k.sliding.most+2 >= float64(p.Quota) || !now.Before(k.due))
	fits := long && !k.atOnce && k.own >= fewUnits && k.fits >= convinced && !k.up && !k.down && k.fixed.contradict(0) && !slides
	if fits || l.othersSeen && k.stays && !k.fills {
		if l.shape, k.known = shapeRefill, true; jumps {
			k.ticks = l.tick()
		}
		l.forgetOthers()
	}
}

// stay notices whether units come back before the end of the window that is named, while that stays the same:
// beside this process's own use at least and at most so many are left, which others can but lessen. Nothing of a
// sliding window comes back before the reset named, if that is when the oldest unit does, and if it is when the newest
// does, every request puts it off. So where the very same instant is named meanwhile, it does not slide; or
// in seconds to go the same one for longer than what they are rounded to and a round trip could hide that it is put
// off. The latter counts only where others are seen: some name the end of a window, in seconds, beside units that
// slide, and who is alone knows how its own units come back.
func (k *counter) stay(now, start time.Time, s *statement, least, most float64, others bool) {
	if k.since.IsZero() {
		k.unsureSince = k.unsure
		k.since, k.due, k.same, k.low, k.stays, k.fills = now, start.Add(s.reset-s.resolution), k.instant, math.Inf(1), false, true
	}
	least -= float64(k.unsure - k.unsureSince) // as in weigh
	if !k.same.Equal(k.instant) {
		k.same = time.Time{}
	}
	same := !k.same.IsZero() || others && now.Sub(k.since) > 2*s.resolution+now.Sub(start)
	k.stays = k.stays || same && now.Before(k.due) && start.After(k.lowAt) && least > k.low+1
	if most < k.low {
		k.low, k.lowAt = most, now
	}
}

// likely reports whether it looks as if two counts were kept.
func (k *counter) likely() bool { return k.own >= fewUnits || k.stays }

// fewUnits are too few in a window to tell by how they come back.
const fewUnits = 5
