package heed

import "time"

// lumpy is how often all had to stop where there should have been more, until that is
// taken to come back many units at a time.
const lumpy = 2

// inLumps reports whether what comes back comes many units at a time, so that none that
// has not been said to be left can be counted on: twice there was nothing left where there
// should have been, and all had to stop until a reset; or one that had been counted on was
// refused.
func (l *ledger) inLumps() bool {
	return l.stuck >= lumpy && l.shape == shapeRefill && !l.twoCounts() && l.stated && l.told() && !l.othersSeen
}

// nextLump returns when more should have come back: for the last unit, where the origin
// may count in whole seconds of its clock, a second after more was seen to be left.
func (l *ledger) nextLump(p *Policy, n int64) time.Time {
	soon := l.said.Add(p.Window / 20)
	if l.left > n {
		return soon
	}
	gap := l.lumpGap(p)
	return soonest(l.said.Add(gap), latest(soon, l.gained.Add(gap)))
}

// lumpGap is how far apart lumps may come: those of a clock in whole seconds, where no
// reset was ever named.
func (l *ledger) lumpGap(p *Policy) time.Duration {
	grain := max(l.grain, l.rounded)
	orDefault(&grain, time.Second)
	return max(p.Window/10, min(grain, p.Window/4))
}
