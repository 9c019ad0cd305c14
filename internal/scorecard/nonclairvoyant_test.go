package scorecard

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// unforeseen returns one scenario of each kind that a nonclairvoyant plays.
func unforeseen() (all []Scenario) {
	for _, s := range (Filter{Row: "silent", Quota: "50/5s,4/5s", Goroutines: "16", Trip: HeavyTail.String()}).Scenarios(Rows()) {
		if s.admitsNonclairvoyant() {
			all = append(all, s)
		}
	}
	return all
}

// onlyReckons skips a test under the race detector, under which -short is set: there is nothing but one goroutine that reckons.
func onlyReckons(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("only reckons, and for long")
	}
}

// venturing is in between what is refused too often and what is hardly ever.
func (s Scenario) venturing() caution {
	if s.Origin.Algorithm == heedtest.Concurrency {
		return caution{most: 0.05, price: math.Inf(1)}
	}
	return caution{most: 0.5, price: 0.05}
}

// TestNonclairvoyantKeepsItsWord sends what it plans to real fake origins: as
// many requests must be accepted and refused as it says.
func TestNonclairvoyantKeepsItsWord(t *testing.T) {
	for _, s := range unforeseen() {
		t.Run(s.Variant, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := int64(0)
				replay(t, s, func(seed uint64, _ time.Time) []start {
					plan := s.venture(s.venturing(), s.Trip.latency(seed), seed)
					_, refused = outcome(plan)
					return plan
				}, false, 1)
				if refused == 0 {
					t.Error("nothing was refused: that tells little")
				}
			})
		})
	}
}

// TestNonclairvoyantForeseesNothing draws anew how long those requests are on the
// way whose answers have not come by an instant: until then, or until an answer says
// something else as another request has come in its way, the same ones must start.
func TestNonclairvoyantForeseesNothing(t *testing.T) {
	onlyReckons(t)
	const seed = 1
	for _, s := range unforeseen() {
		latency, again := s.Trip.latency(seed), s.Trip.latency(seed+1)
		whole := s.venture(s.venturing(), latency, seed)
		for now := 10 * time.Second; now <= s.length()-tailCut; now += 10 * time.Second {
			redrawn := 0
			other := s.venture(s.venturing(), func(n int64) (up, down time.Duration) {
				up, down = latency(n)
				at := whole[min(n, int64(len(whole)-1))].at
				if at+up+down <= now {
					return up, down
				}
				redrawn++
				for up, down = again(n); at+up+down <= now; up, down = again(n) {
					n += 1 << 32
				}
				return up, down
			}, seed)
			until := now
			for i, p := range whole[:min(len(whole), len(other))] {
				if answered := p.arrival() + p.down; p.refused != other[i].refused && answered <= until {
					until = answered - 1
				}
			}
			a, b := startedBy(until, whole), startedBy(until, other)
			if !slices.Equal(a, b) || redrawn == 0 {
				t.Errorf("%s: with %d redrawn, %d start until %v in place of %d, or at other instants", s.Variant, redrawn, len(b), until, len(a))
			}
		}
	}
}

// startedBy returns the starts until an instant.
func startedBy(now time.Duration, plan []start) (starts []time.Duration) {
	for _, p := range plan {
		if p.at <= now {
			starts = append(starts, p.at)
		}
	}
	return starts
}

// TestNonclairvoyantIsAGoodClient holds it against plainer ways that know the same,
// each chosen in hindsight, too: to send at a fixed pace, and to go by answers, with
// a limit to how long one is waited for.
func TestNonclairvoyantIsAGoodClient(t *testing.T) {
	onlyReckons(t)
	for _, s := range unforeseen() {
		for seed := range uint64(2) {
			from, to := time.Duration(s.Skip)*s.Quota.Window, s.length()
			got := func(plan []start) float64 {
				arrivals, kept := s.keepsTo(plan)
				if !kept {
					return 0
				}
				return count(arrivals, from, to)
			}
			most := got(s.hindsight(seed, from, to))
			for wait := 20 * time.Millisecond; wait < tailCut; wait += wait / 4 {
				paced, answered := got(s.plain(seed, wait, false)), got(s.plain(seed, wait, true))
				if paced > most || answered > most {
					t.Errorf("%s, seed %d: %v accepted at one per %v, %v by answers that are waited for so long, %v by weighing risks",
						s.Variant, seed, paced, wait, answered, most)
				}
			}
		}
	}
}

// plain returns what becomes of requests of which one starts whenever a time has
// passed or, if asked for, as soon as the one before has its answer. A cap is used
// in as many such ways at once as it has slots.
func (s Scenario) plain(seed uint64, wait time.Duration, answers bool) (plan []start) {
	config := s.config(seed)
	m := newMeter(config.Policies[0], config.Algorithm, 0)
	lines := make([]time.Duration, 1)
	if m.algorithm == heedtest.Concurrency {
		lines = make([]time.Duration, m.quota)
	}
	for n := int64(0); ; n++ {
		i := slices.Index(lines, slices.Min(lines))
		p := start{at: lines[i]}
		if p.at >= s.length() {
			break
		}
		p.up, p.down = config.Latency(n)
		lines[i] += wait
		if answers {
			lines[i] = min(lines[i], p.arrival()+p.down)
		}
		plan = append(plan, p)
	}
	slices.SortFunc(plan, func(a, b start) int { return cmp.Compare(a.arrival(), b.arrival()) })
	for i := range plan {
		at := int64(plan[i].arrival())
		if plan[i].refused = m.wait(at) > 0; !plan[i].refused {
			m.take(at, 0, at+int64(plan[i].down))
		}
	}
	return slices.DeleteFunc(plan, func(p start) bool { return p.arrival() >= s.length() })
}

func TestOutOfReach(t *testing.T) {
	thresholds := Thresholds{PerMille: 20, Share: 0.9}
	for _, test := range []struct {
		name string
		Result
		want bool
	}{
		{"met", Result{Accepted: 100, Share: 0.95, Nonclairvoyant: 0.7}, false},
		{"no oracle asked", Result{Accepted: 100, Share: 0.6}, false},
		{"beyond courtesy", Result{Accepted: 100, Share: 0.6, Reach: 0.8}, true},
		{"beyond who does not foresee", Result{Accepted: 100, Share: 0.6, Nonclairvoyant: 0.7}, true},
		{"beyond one of two", Result{Accepted: 100, Share: 0.6, Reach: 0.95, Nonclairvoyant: 0.7}, true},
		{"in reach", Result{Accepted: 100, Share: 0.6, Nonclairvoyant: 0.95}, false},
		{"refused more often than it need be", Result{Accepted: 100, Refused: 9, Share: 0.6, Nonclairvoyant: 0.7}, false},
		{"refused by courtesy", Result{Accepted: 100, Refused: 9, Share: 0.95, Reach: 0.95, ReachRefused: 8}, true},
	} {
		if got := thresholds.OutOfReach(test.Result); got != test.want {
			t.Errorf("%s: out of reach is %v, want %v", test.name, got, test.want)
		}
	}
}
