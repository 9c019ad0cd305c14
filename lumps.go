package heed

import "time"

// Lumps are units that come back steadily in the long run, but many at a time: as where an
// origin counts in whole seconds of its clock. None that has not been said to be
// left can be counted on then.
type lumps struct {
	stuck  int          // how often all had to stop though some should have come back
	gained time.Time    // when the last answer came that said that more is left …
	went   [2]time.Time // … and when the requests of the last two of them went
}

// lumpy is how often all had to stop until units are taken to come back in lumps. One
// that had been counted on and was refused shows it at once.
const lumpy = 2

// inLumps reports whether units come back in lumps.
func (l *ledger) inLumps() bool {
	return l.lumps.stuck >= lumpy && l.shape == shapeRefill && !l.twoCounts() && !l.othersSeen
}

// nextLump returns when more should have come back: for the last unit, where the origin
// may count in whole seconds of its clock, a second after more was seen to be left.
func (l *ledger) nextLump(p *Policy, n int64) time.Time {
	soon := l.said.Add(p.Window / 20)
	if l.left > n {
		return soon
	}
	return latest(soon, l.lumps.gained.Add(l.lumpGap(p)))
}

// lumpGap is how far apart lumps may come: those of a clock in whole seconds, where no
// reset was ever named.
func (l *ledger) lumpGap(p *Policy) time.Duration {
	return max(p.Window/10, l.tick())
}

// tick is what the clock that lumps come by is taken to be cut to.
func (l *ledger) tick() time.Duration {
	grain := max(l.grain, l.rounded)
	orDefault(&grain, time.Second)
	return grain
}

// gain takes in that the answer to c, sent at start, says that more is left than can have been. Of
// three lumps the last comes more than a tick after the first was seen: what came back sooner does so
// steadily.
func (l *ledger) gain(now, start time.Time, c *charge) {
	u := &l.lumps
	u.gained = now
	if !l.orderly(c) { // one of them may show in several answers
		u.went = [2]time.Time{}
		return
	}
	if now.Sub(u.went[0]) < l.tick() {
		u.stuck = 0
	}
	u.went[0], u.went[1] = u.went[1], start
}
