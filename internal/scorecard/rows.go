package scorecard

import (
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A Row is one line of the score card: a claim, and the scenarios that try it.
type Row struct {
	Name       string // short, to pick it by
	Title      string
	Thresholds Thresholds
	Variants   []Scenario // without condition
	Conditions []Condition
}

// Thresholds are what every result of a row must keep to. In none of them may a
// request start early.
type Thresholds struct {
	PerMille   float64 // refused per 1000 accepted, at most
	AfterEvent bool    // PerMille is about refusals after the first event
	PerRun     int64   // refused in a run, at most, whatever PerMille says
	Share      float64 // of what the oracle gets, at least
	Foreign    float64 // of what the foreign client wants, at least
	Jain       float64 // at least
}

// The conditions, all of them combined unless a row says otherwise.
var (
	quotas     = []Quota{{50, 5 * time.Second}, {100, 10 * time.Second}, {1000, 60 * time.Second}}
	goroutines = []int{16, 64, 1000}
	trips      = []Trip{Trip(5 * time.Millisecond), Trip(50 * time.Millisecond), Trip(500 * time.Millisecond), HeavyTail}
)

// announcing are the algorithms whose origins announce what is left.
var announcing = []heedtest.Algorithm{
	heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow,
	heedtest.SlidingCounter, heedtest.TokenBucket, heedtest.GCRA,
}

func conditions(qs []Quota, ns []int, ts []Trip) (all []Condition) {
	for _, q := range qs {
		for _, n := range ns {
			for _, t := range ts {
				all = append(all, Condition{q, n, t})
			}
		}
	}
	return all
}

// Rows returns the score card.
func Rows() []Row {
	all := conditions(quotas, goroutines, trips)
	return []Row{
		{
			Name: "announced", Title: "announced, resets rounded up",
			Thresholds: Thresholds{Share: 0.98},
			Variants:   byAlgorithm(announcing, "", heedtest.Config{}),
			Conditions: all,
		},
		{
			Name: "rounded", Title: "announced, resets rounded down or cut to 0",
			Thresholds: Thresholds{PerRun: 2, Share: 0.97},
			Variants: append(
				byAlgorithm(announcing, " down", heedtest.Config{Rounding: heedtest.RoundDown}),
				byAlgorithm(announcing, " zero", heedtest.Config{Rounding: heedtest.RoundZero})...),
			Conditions: all,
		},
	}
}

func byAlgorithm(algorithms []heedtest.Algorithm, suffix string, c heedtest.Config) (vs []Scenario) {
	for _, a := range algorithms {
		c.Algorithm = a
		vs = append(vs, Scenario{Variant: string(a) + suffix, Origin: c})
	}
	return vs
}

// Fails says what of a result breaks the thresholds; nothing: it keeps to them.
func (t Thresholds) Fails(r Result) (why []string) {
	refused, perMille := r.Refused, r.PerMille()
	if t.AfterEvent {
		refused, perMille = r.After, r.AfterPerMille()
	}
	if refused > t.PerRun && perMille > t.PerMille {
		why = append(why, "refused")
	}
	if r.Share < t.Share {
		why = append(why, "share")
	}
	if r.Early > 0 {
		why = append(why, "early")
	}
	if r.ForeignServed < t.Foreign {
		why = append(why, "foreign")
	}
	if r.Jain < t.Jain {
		why = append(why, "jain")
	}
	return why
}
