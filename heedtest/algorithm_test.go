package heedtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A definition decides from the history alone, as the textbook has it, whether n
// units at an instant are granted. All are exact: fractions are multiplied out,
// which fits an int64 since instants in these tests are small.
type definition func(p Policy, granted []span, at, n int64) bool

const testPhase = 123456789

// floorDiv numbers clock windows.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// At most Q in [s, s+W), s being the grant that opened the window: the first
// one not in the window before it.
func definedFixed(p Policy, granted []span, at, n int64) bool {
	var start, used int64
	for i, g := range granted {
		if i == 0 || g.at >= start+int64(p.Window) {
			start, used = g.at, 0
		}
		used += g.n
	}
	if len(granted) == 0 || at >= start+int64(p.Window) {
		used = 0
	}
	return used+n <= p.Quota
}

// At most Q in each window of the clock.
func definedByClock(p Policy, granted []span, at, n int64) bool {
	used := int64(0)
	for _, g := range granted {
		if floorDiv(g.at-testPhase, int64(p.Window)) == floorDiv(at-testPhase, int64(p.Window)) {
			used += g.n
		}
	}
	return used+n <= p.Quota
}

// At most Q in (t-W, t].
func definedLog(p Policy, granted []span, at, n int64) bool {
	used := int64(0)
	for _, g := range granted {
		if g.at > at-int64(p.Window) {
			used += g.n
		}
	}
	return used+n <= p.Quota
}

// previous·(1 - elapsed/W) + current + n <= Q.
func definedCounter(p Policy, granted []span, at, n int64) bool {
	w := int64(p.Window)
	window := floorDiv(at-testPhase, w)
	previous, current := int64(0), int64(0)
	for _, g := range granted {
		switch floorDiv(g.at-testPhase, w) {
		case window:
			current += g.n
		case window - 1:
			previous += g.n
		}
	}
	elapsed := at - testPhase - window*w
	return previous*(w-elapsed)+(current+n)*w <= p.Quota*w
}

// A bucket of B tokens, full at first, into which Q/W tokens flow per unit of
// time and out of which each grant takes its own. The level is counted in W-ths
// of a token.
func definedTokens(p Policy, granted []span, at, n int64) bool {
	w, size := int64(p.Window), p.Burst
	if size == 0 {
		size = p.Quota
	}
	level, last := size*w, int64(0)
	for _, g := range granted {
		level = min(size*w, level+(g.at-last)*p.Quota) - g.n*w
		last = g.at
	}
	level = min(size*w, level+(at-last)*p.Quota)
	return level >= n*w
}

// The virtual scheduling form of ITU-T I.371: a cell that comes before TAT - τ
// does not conform; one that does moves TAT to max(t, TAT) + T. Here T = W/Q and
// τ = (B-1)·T. n units at once are n cells, of which all must conform. TAT is
// counted in Q-ths of a nanosecond.
func definedGCRA(p Policy, granted []span, at, n int64) bool {
	size := p.Burst
	if size == 0 {
		size = p.Quota
	}
	interval := int64(p.Window)
	tolerance := (size - 1) * interval
	tat := int64(0)
	cell := func(at int64) bool {
		if at*p.Quota < tat-tolerance {
			return false
		}
		tat = max(at*p.Quota, tat) + interval
		return true
	}
	for _, g := range granted {
		for range g.n {
			cell(g.at)
		}
	}
	for range n {
		if !cell(at) {
			return false
		}
	}
	return true
}

// nginx: excess = max(0, excess - rate·elapsed + 1), 0 for the first request of
// all; refused if that exceeds the burst. The excess is counted in W-ths.
func definedLeaky(p Policy, granted []span, at, n int64) bool {
	w := int64(p.Window)
	excess, last, first := int64(0), int64(0), true
	step := func(at int64) int64 {
		if first {
			return 0
		}
		return max(0, excess-(at-last)*p.Quota+w)
	}
	for _, g := range granted {
		for range g.n {
			excess = step(g.at)
			last, first = g.at, false
		}
	}
	for range n {
		e := step(at)
		if e > p.Burst*w {
			return false
		}
		excess, last, first = e, at, false
	}
	return true
}

var definitions = []struct {
	algorithm Algorithm
	bursts    []int64
	definedBy definition
}{
	{FixedWindow, []int64{0}, definedFixed},
	{FixedWindowByClock, []int64{0}, definedByClock},
	{SlidingWindow, []int64{0}, definedLog},
	{SlidingCounter, []int64{0}, definedCounter},
	{TokenBucket, []int64{0, 1, 4, 20}, definedTokens},
	{GCRA, []int64{0, 1, 4, 20}, definedGCRA},
	{LeakyBucket, []int64{0, 3, 10}, definedLeaky},
}

// Each algorithm grants what its definition grants, over random arrivals that
// come too fast, too slow, in bursts, and at the very nanosecond things change;
// and says rightly how long to wait, what is left and when all is there again.
func TestAlgorithmsKeepToTheirDefinitions(t *testing.T) {
	for _, d := range definitions {
		for _, burst := range d.bursts {
			for _, size := range []struct {
				quota  int64
				window time.Duration
			}{{1, time.Second}, {3, 5 * time.Second}, {7, time.Second + 7}, {10, 3}, {13, 60 * time.Second}} {
				p := Policy{Quota: size.quota, Window: size.window, Burst: burst, Algorithm: d.algorithm}
				t.Run(fmt.Sprintf("%s/%d per %v/burst %d", d.algorithm, p.Quota, p.Window, burst), func(t *testing.T) {
					t.Parallel()
					granted, refused := 0, 0
					for seed := range uint64(30) {
						g, r := holdToDefinition(t, p, d.definedBy, rand.New(rand.NewPCG(seed, 1)))
						granted += g
						refused += r
					}
					if refused < 20 || granted < 20 {
						t.Errorf("%d granted, %d refused: the arrivals tried little", granted, refused)
					}
				})
			}
		}
	}
}

func holdToDefinition(t *testing.T, p Policy, definedBy definition, rng *rand.Rand) (granted, refusals int) {
	t.Helper()
	now := 1e15 + rng.Int64N(1e12)
	l := newLimiter(p, testPhase, now)
	var history []span
	crowd := int(p.Burst) + 10 // that come at once, at first
	for step := range 60 + crowd {
		units := int64(1)
		if rng.IntN(5) == 0 {
			units += rng.Int64N(p.Quota)
		}
		defined := definedBy(p, history, now, units)
		wait := l.wait(now, units)
		if (wait == 0) != defined {
			t.Fatalf("step %d: wait %d for %d units after %v, defined: %v", step, wait, units, history, defined)
		}
		if wait > 0 && wait != never {
			if definedBy(p, history, now+wait-1, units) || !definedBy(p, history, now+wait, units) {
				t.Fatalf("step %d: wait %d for %d units is not the first instant", step, wait, units)
			}
		}
		if wait == never && definedBy(p, history, now+1000*int64(p.Window), units) {
			t.Fatalf("step %d: %d units never, but some time they are granted", step, units)
		}
		seen := l.look(now)
		if seen.left > 0 && !definedBy(p, history, now, seen.left) || definedBy(p, history, now, seen.left+1) {
			t.Fatalf("step %d: %d left is wrong", step, seen.left)
		}
		checkFull(t, p, definedBy, history, now, seen, l)
		if defined {
			l.take(now, units)
			history = append(history, span{now, units})
		} else {
			refusals++
		}
		if step >= crowd {
			now += stride(p, rng, l.wait(now, 1))
		}
	}
	return len(history), refusals
}

// stride picks the time to the next arrival.
func stride(p Policy, rng *rand.Rand, wait int64) int64 {
	w := int64(p.Window)
	switch rng.IntN(8) {
	case 0, 1:
		return 0
	case 2:
		return rng.Int64N(w/p.Quota + 2)
	case 3:
		return rng.Int64N(2*w/p.Quota + 2)
	case 4:
		return w
	case 5:
		return rng.Int64N(3 * w)
	case 6: // just in time
		if wait != never {
			return wait
		}
	case 7: // just too soon
		if wait != never {
			return max(0, wait-1)
		}
	}
	return 1
}

// checkFull holds full to its meaning: from then on, and no sooner, as much is
// granted as ever. A fixed window says when it ends, used or not.
func checkFull(t *testing.T, p Policy, definedBy definition, granted []span, now int64, seen level, l limiter) {
	t.Helper()
	whole := p.Quota
	switch p.Algorithm {
	case LeakyBucket:
		whole = p.Burst + 1
	case TokenBucket, GCRA:
		if p.Burst > 0 {
			whole = p.Burst
		}
	}
	if !definedBy(p, granted, now+seen.full, whole) {
		t.Fatalf("not full after %d", seen.full)
	}
	used := !l.idle(now)
	if seen.full > 0 && used && definedBy(p, granted, now+seen.full-1, whole) {
		// A counter's estimate may round its way to the whole quota a little
		// before the last request has left altogether; nothing else may.
		t.Fatalf("full before %d", seen.full)
	}
	if !used && !definedBy(p, granted, now, whole) {
		t.Fatal("idle, but not as good as new")
	}
}

// Charging beyond the quota, as bytes are, delays what follows by just as much.
func TestOverdrawnUnitsAreOwed(t *testing.T) {
	const s = int64(time.Second)
	for _, test := range []struct {
		algorithm Algorithm
		wait      int64 // for one unit, after 25 of 10 per 10 s at instant 0
	}{
		{FixedWindow, 10 * s},
		{FixedWindowByClock, 10 * s},
		{SlidingWindow, 10 * s},
		{SlidingCounter, 10*s + s*64/10}, // 25·(1 - e/10 s) <= 9
		{TokenBucket, 16 * s},
		{GCRA, 16 * s},
	} {
		l := newLimiter(Policy{Quota: 10, Window: 10 * time.Second, Algorithm: test.algorithm}, 0, 0)
		l.take(0, 25)
		if got := l.wait(0, 1); got != test.wait {
			t.Errorf("%s: wait %v, want %v", test.algorithm, time.Duration(got), time.Duration(test.wait))
		}
		if left := l.look(0).left; left != 0 {
			t.Errorf("%s: %d left", test.algorithm, left)
		}
	}
}

func TestConcurrencyCountsWhatIsInFlight(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	c := newLimiter(Policy{Quota: 4, Algorithm: Concurrency}, 0, 0).(*concurrency)
	var flying int64
	for range 1000 {
		if rng.IntN(2) == 0 && flying > 0 {
			c.inFlight--
			flying--
			continue
		}
		if got := c.wait(0, 1); (got == 0) != (flying < 4) {
			t.Fatalf("wait %d with %d in flight", got, flying)
		}
		if got := c.look(0).left; got != 4-flying {
			t.Fatalf("%d left with %d in flight", got, flying)
		}
		if flying < 4 {
			c.take(0, 1)
			flying++
		}
	}
}

// A quota of 0 grants nothing, whatever the algorithm.
func TestQuotaZeroIsClosed(t *testing.T) {
	for _, d := range definitions {
		l := newLimiter(Policy{Quota: 0, Window: time.Second, Algorithm: d.algorithm}, 0, 0)
		if l.wait(5, 1) != never || l.look(5).left != 0 {
			t.Errorf("%s grants something", d.algorithm)
		}
	}
}

// The log's memory is bounded by its quota even if every refusal is counted.
func TestSlidingLogIsBounded(t *testing.T) {
	p := Policy{Quota: 50, Window: time.Hour, Algorithm: SlidingWindow}
	l := newLimiter(p, 0, 0).(*slidingLog)
	for now := range int64(100_000) {
		l.punish(now, 1)
	}
	if l.units.n > 50 {
		t.Errorf("%d instants kept", l.units.n)
	}
	if got, want := l.wait(99_999, 1), 99_950+int64(time.Hour)-99_999; got != want {
		t.Errorf("wait %d, want %d: the fiftieth newest must leave", got, want)
	}
}

// Nothing overflows at quotas and windows as large as they come.
func TestLargeQuotas(t *testing.T) {
	const now = int64(1_700_000_000_000_000_000)
	for _, d := range definitions {
		p := Policy{Quota: 1e15, Window: 365 * 24 * time.Hour, Burst: 1e15, Algorithm: d.algorithm}
		l := newLimiter(p, 0, now)
		l.take(now, 1e15+1)
		if got := l.look(now).left; got != 0 {
			t.Errorf("%s: %d left", d.algorithm, got)
		}
		if d.algorithm == LeakyBucket {
			continue
		}
		if w := l.wait(now, 1); w <= 0 || w > 2*int64(p.Window) {
			t.Errorf("%s: wait %d", d.algorithm, w)
		}
	}
}

// What was used stays used when limits change.
func TestChangedLimitsKeepWhatWasUsed(t *testing.T) {
	const now = int64(1_700_000_000_000_000_000)
	for _, d := range definitions {
		if d.algorithm == LeakyBucket {
			continue
		}
		p := Policy{Quota: 10, Window: 10 * time.Second, Algorithm: d.algorithm}
		l := newLimiter(p, 0, now)
		l.take(now, 6)
		p.Quota = 20
		if l.change(now, p); l.look(now).left != 14 {
			t.Errorf("%s: raised to 20 with 6 used: %d left", d.algorithm, l.look(now).left)
		}
		p.Quota = 5
		if l.change(now, p); l.look(now).left != 0 {
			t.Errorf("%s: cut to 5 with 6 used: %d left", d.algorithm, l.look(now).left)
		}
		p.Quota, p.Window = 12, time.Minute
		l.change(now, p)
		if left := l.look(now).left; left > 7 {
			t.Errorf("%s: 12 per minute with at least 5 used: %d left", d.algorithm, left)
		}
		later := now + int64(2*time.Minute)
		if w := l.wait(later, 12); w != 0 {
			t.Errorf("%s: two windows later 12 wait %v", d.algorithm, time.Duration(w))
		}
		p.Window = 2 * time.Minute
		if l.change(later, p); l.look(later).left != 12 {
			t.Errorf("%s: changed when nothing was in use: %d left", d.algorithm, l.look(later).left)
		}
	}
}
