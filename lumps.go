package heed

import "time"

// Lumps are units that come back steadily in the long run, but many at a time: as where an
// origin counts in whole seconds of its clock. None that has not been said to be
// left can be counted on then.
type lumps struct {
	stuck  int       // how often all had to stop though some should have come back
	gained time.Time // when the last answer came that said that more is left
}

// lumpy is how often all had to stop until units are taken to come back in lumps. One
// that had been counted on and was refused shows it at once.
const lumpy = 2

// inLumps reports whether units come back in lumps.
func (l *ledger) inLumps() bool {
	return l.lumps.stuck >= lumpy && l.shape == shapeRefill && !l.twoCounts() && l.stated && l.told() && !l.othersSeen
}

// nextLump returns when more should have come back: for the last unit, where the origin
// may count in whole seconds of its clock, a second after more was seen to be left.
func (l *ledger) nextLump(p *Policy, n int64) time.Time {
	soon := l.said.Add(p.Window / 20)
	if l.left > n {
		return soon
	}
	gap := l.lumpGap(p)
	return soonest(l.said.Add(gap), latest(soon, l.lumps.gained.Add(gap)))
}

// lumpGap is how far apart lumps may come: those of a clock in whole seconds, where no
// reset was ever named.
func (l *ledger) lumpGap(p *Policy) time.Duration {
	grain := max(l.grain, l.rounded)
	orDefault(&grain, time.Second)
	return max(p.Window/10, min(grain, p.Window/4))
}
