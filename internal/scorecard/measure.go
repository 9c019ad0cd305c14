package scorecard

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A view is what there is to measure of a run.
type view struct {
	scenario Scenario
	seed     uint64
	began    time.Time
	tally    heedtest.Tally
	events   []heedtest.Event // in the order of their arrival
	waits    []time.Duration

	accepted                          []float64 // by process
	earlyByProcess, standingByProcess int64
}

// figures are what rows measure each in their own way.
type figures struct {
	after      int64   // refused after the first event
	mine, best float64 // accepted requests that count for the share; the oracle's
	whole      float64 // the quota for that time
	spared     float64 // accepted requests of an oracle that leaves one unit, or 0
	problems   []string

	// reach is what an oracle gets that rules bind: its share, and how many of its
	// requests are refused. nil: that says nothing of what is measured.
	reach func() (share float64, refused int64)

	nonclairvoyant func() (share float64) // of an oracle that knows no latency beforehand; nil as above
}

// result measures a run.
func (v view) result(c Client) Result {
	s, t := v.scenario, v.tally
	measure := s.Measure
	if measure == nil {
		measure = overall
	}
	f := measure(v)
	r := Result{
		Row: s.Row, Variant: s.Variant, Condition: s.Condition.String(), Client: c.Name, Seed: v.seed,
		Accepted: t.Accepted, Refused: t.Refused, After: f.after, Early: t.Early, EarlyStanding: t.EarlyStanding,
		Share:   f.mine / max(1, f.best),
		OfQuota: f.mine / max(1, f.whole), Oracle: f.best / max(1, f.whole), Sparing: f.spared / max(1, f.whole),
		PeakInWindow: t.PeakInWindow, PeakInFlight: t.PeakInFlight,
		ForeignServed: 1, Jain: 1, Problems: f.problems,
	}
	if n := t.Foreign + t.ForeignRefused; n > 0 && s.Foreign > 0 {
		r.ForeignServed = float64(t.Foreign) / float64(n)
	}
	if s.Processes > 1 {
		r.Jain = jain(v.accepted)
		// One process cannot know what another was told.
		r.Early, r.EarlyStanding = v.earlyByProcess, v.standingByProcess
	}
	r.WaitMean, r.WaitP99, r.WaitMax = spread(v.waits)
	if f.reach != nil && s.rules() != nil && len(s.Thresholds.Fails(r)) > 0 {
		r.Reach, r.ReachRefused = f.reach()
	}
	if f.nonclairvoyant != nil && s.admitsNonclairvoyant() && len(s.Thresholds.Fails(r)) > 0 {
		r.Nonclairvoyant = f.nonclairvoyant()
	}
	return r
}

// jain returns Jain's index of fairness: 1 where all got the same, 1/n where
// one got everything.
func jain(got []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range got {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}

// oracle returns when the requests of an oracle in the same place arrive, of
// the one that gets most accepted between two instants.
func (v view) oracle(from, to time.Duration) (arrivals []time.Duration) {
	arrivals, _ = v.consult(from, to, false)
	return arrivals
}

// consult is oracle, for one that rules bind or not, and says how many of its
// requests are refused.
func (v view) consult(from, to time.Duration, bound bool) (arrivals []time.Duration, refused int64) {
	return outcome(v.scenario.consult(v.seed, v.began, from, to, bound))
}

// outcome returns when the requests of a plan arrive that are accepted, and how
// many are refused.
func outcome(plan []start) (arrivals []time.Duration, refused int64) {
	for _, s := range plan {
		if s.refused {
			refused++
		} else {
			arrivals = append(arrivals, s.arrival())
		}
	}
	return arrivals, refused
}

// arrivals returns when the accepted requests arrived.
func (v view) arrivals() (at []time.Duration) {
	for _, e := range v.events {
		if e.Accepted && !e.Foreign {
			at = append(at, e.Arrival)
		}
	}
	return at
}

// told returns when the first answer to a request that arrived at or after an
// instant, and fits, was delivered; never, where none was.
func (v view) told(from time.Duration, fits func(heedtest.Event) bool) time.Duration {
	first := time.Duration(never)
	for _, e := range v.events {
		if !e.Foreign && e.Arrival >= from && e.Delivered > 0 && fits(e) {
			first = min(first, e.Delivered)
		}
	}
	return first
}

// refusedAfter counts the refused requests that started after an instant.
func (v view) refusedAfter(at time.Duration) (n int64) {
	for _, e := range v.events {
		if !e.Foreign && !e.Accepted && e.Start > at {
			n++
		}
	}
	return n
}

// probes is refusedAfter without the requests that were sent because the one
// before them had been without an answer for a second: a client cannot know
// that it will be one.
func (v view) probes(at time.Duration) (n int64) {
	var sent []heedtest.Event
	for _, e := range v.events {
		if !e.Foreign && !e.Accepted && e.Start > at {
			sent = append(sent, e)
		}
	}
	slices.SortStableFunc(sent, func(a, b heedtest.Event) int { return cmp.Compare(a.Start, b.Start) })
	for i, e := range sent {
		if i == 0 || e.Start < sent[i-1].Start+time.Second || sent[i-1].Delivered <= e.Start {
			n++
		}
	}
	return n
}

func refused(e heedtest.Event) bool  { return !e.Accepted }
func accepted(e heedtest.Event) bool { return e.Accepted }
func anyAnswer(heedtest.Event) bool  { return true }

// overall counts the whole run but for the windows to skip, and where windows
// go by the clock, whole windows only: the first and the last one are cut off
// by the run's start and end at a place that no client knows.
func overall(v view) figures {
	s := v.scenario
	from, to := time.Duration(s.Skip)*s.Quota.Window, s.length()
	if c := s.config(v.seed); c.Algorithm == heedtest.FixedWindowByClock && len(c.Policies) == 1 {
		m := newMeter(c.Policies[0], c.Algorithm, int64(c.Phase-c.ClockSkew)-v.began.UnixNano())
		m.roll(int64(from))
		if m.start < int64(from) {
			from = time.Duration(m.start + m.window)
		}
		m.roll(int64(to))
		to = time.Duration(m.start)
	}
	var spared []time.Duration
	for _, e := range s.plan(sparing, false, v.seed, v.began) {
		spared = append(spared, e.arrival())
	}
	best := count(v.oracle(from, to), from, to)
	whole := float64(s.Quota.Units) * float64(to-from) / float64(s.Quota.Window)
	if s.Origin.Algorithm == heedtest.Concurrency {
		whole = best // the quota is not one of requests in a window
	}
	return figures{
		after:  v.refusedAfter(v.told(0, refused)),
		spared: count(spared, from, to),
		mine:   count(v.arrivals(), from, to),
		best:   best,
		whole:  whole,
		reach: func() (float64, int64) {
			arrivals, refused := v.consult(from, to, true)
			return count(arrivals, from, to) / max(1, best), refused
		},
		nonclairvoyant: func() float64 {
			arrivals, _ := outcome(s.hindsight(v.seed, from, to))
			return count(arrivals, from, to) / max(1, best)
		},
	}
}

func count(arrivals []time.Duration, from, to time.Duration) (n float64) {
	for _, at := range arrivals {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// fading counts what arrives between two instants, what arrives within a
// window of either of them in part. So it makes no difference to a rate where
// in a window the instants lie.
func fading(arrivals []time.Duration, from, to, window time.Duration) (n float64) {
	for _, at := range arrivals {
		if in := min(at-from, to-at); in > 0 {
			n += min(1, float64(in)/float64(window))
		}
	}
	return n
}

// changed measures the rate from one window after each change on, and takes
// the worse one. What was in flight when the quota was cut may be refused: all
// that had started when the first answer was delivered that can tell of it.
func changed(v view) figures {
	s := v.scenario
	changes := s.changes(v.seed)
	cut, raised := changes[0].At, changes[1].At
	f := figures{after: v.refusedAfter(v.told(cut, anyAnswer))}
	for _, e := range v.events {
		if !e.Accepted && e.Arrival < cut {
			f.after++
		}
	}
	w := s.Quota.Window
	spans := [][2]time.Duration{{cut + w, raised}, {raised + w, s.length()}}
	best := v.oracle(0, s.length())
	worse := func(arrivals []time.Duration) (at int, got, of float64) {
		for i, span := range spans {
			m, b := fading(arrivals, span[0], span[1], w), fading(best, span[0], span[1], w)
			if i == 0 || m*of < got*b {
				at, got, of = i, m, b
			}
		}
		return at, got, of
	}
	i, mine, of := worse(v.arrivals())
	f.mine, f.best = mine, of
	f.whole = float64(changes[i].Policies[0].Quota) * float64(spans[i][1]-spans[i][0]-w) / float64(w)
	f.reach = func() (float64, int64) {
		arrivals, _ := v.consult(0, s.length(), true)
		_, got, of := worse(arrivals)
		return got / max(1, of), 0
	}
	return f
}

// penalized measures the rate from one window after the end of the block on.
func penalized(v view) figures {
	s := v.scenario
	told := v.told(0, refused)
	f := figures{after: v.refusedAfter(told)}
	over := s.changes(v.seed)[0].At
	for _, e := range v.events {
		if !e.Accepted && !e.Foreign && e.Start <= told {
			over = max(over, e.Arrival+s.config(v.seed).Block)
		}
	}
	w := s.Quota.Window
	f.mine = fading(v.arrivals(), over+w, s.length(), w)
	f.best = fading(v.oracle(0, s.length()), over+w, s.length(), w)
	f.whole = float64(s.Quota.Units) * float64(s.length()-over-2*w) / float64(w)
	return f
}

// restored measures an outage: refusals once the first one had been delivered,
// and how fast the client is back.
func restored(v view) figures {
	s := v.scenario
	change := s.changes(v.seed)[0]
	over := change.At + change.Outage
	f := figures{after: v.probes(v.told(0, refused))}
	first := time.Duration(never) // the start of the first request accepted thereafter
	for _, e := range v.events {
		if e.Accepted && e.Arrival >= over {
			first = min(first, e.Start)
		}
	}
	if first == never {
		f.problems = append(f.problems, "did not come back")
		return f
	}
	if s.Quota.Units == 0 {
		// Nothing is announced: all must be in flight after log2(n)+1 round trips.
		rounds := bits.Len(uint(s.Goroutines-1)) + 1
		by := first + time.Duration(rounds)*time.Duration(s.Trip)
		inFlight := 0
		for _, e := range v.events {
			if e.Start <= by && (e.Delivered > by || e.Delivered == 0) {
				inFlight++
			}
		}
		if inFlight < s.Goroutines {
			f.problems = append(f.problems, fmt.Sprintf("%d in flight after %d round trips", inFlight, rounds))
		}
		f.mine, f.best, f.whole = 1, 1, 1
		return f
	}
	// The full rate two answers after the end, against an oracle that begins then.
	two := v.told(v.told(over, accepted), accepted)
	w := s.Quota.Window
	calm := s
	calm.Changes, calm.Length = nil, func(q Quota) time.Duration { return 11 * q.Window }
	v.scenario, v.began = calm, v.began.Add(two)
	f.mine = fading(v.arrivals(), two, two+11*w, w)
	f.best = fading(v.oracle(0, 11*w), 0, 11*w, w)
	f.whole = 10 * float64(s.Quota.Units)
	return f
}

// undelayed measures a burst, which must be accepted without delay.
func undelayed(v view) figures {
	n := float64(v.scenario.Goroutines)
	f := figures{after: v.tally.Refused, mine: float64(v.tally.Accepted) - 2, best: n, whole: n}
	if most := slices.Max(append(v.waits, 0)); most > 0 {
		f.problems = append(f.problems, fmt.Sprintf("delayed by up to %v", most))
	}
	return f
}
