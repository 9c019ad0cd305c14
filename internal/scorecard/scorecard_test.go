package scorecard

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// A floor is what a row keeps to in the mean: refused per 1000 accepted, at most,
// and the share, at least.
type floor struct{ perMille, share float64 }

// above reports whether a row is neither met nor at least as good.
func (f floor) above(l Line) bool {
	return !l.Met() && (l.PerMilleMean > f.perMille || l.ShareMean < f.share)
}

// notYet are the rows that are known not to be met in every scenario, and what
// they are held to instead, which is no substitute. TestScoreCard says so where one
// of them is met, and does not fail: at the edge the order in which goroutines run
// can decide. The floors are a hundredth of the share below the least seen in dozens of runs;
// what is below them nevertheless is played with more seeds before it is judged.
var notYet = map[string]floor{
	"announced": {0.3, 0.983},
	"rounded":   {0.6, 0.98},
	"epoch":     {0.3, 0.99},
	"policies":  {0.3, 0.982},
	"sparse":    {6, 0.966},
	"refusals":  {4, 0.953},
	"silent":    {16, 0.875},
	"foreign":   {2, 0.958},
	"four":      {13, 0.953},
	"change":    {0.5, 0.968},
	"cold":      {0.4, 0.984},
}

// TestScoreCard plays a part of every row's conditions and holds heed to the
// thresholds: with HEED_SCORECARD=quick in the environment what "heed simulate
// --quick" plays, else less. The command "heed simulate" plays them all.
func TestScoreCard(t *testing.T) {
	rows := Rows()
	filter := Filter{Quick: true}
	whole := os.Getenv("HEED_SCORECARD") == "quick"
	if !whole {
		filter.Quota, filter.Trip = "50/5s,100/60s,5000/3600s,4/5s,0/5s", "50ms,tail"
		if testing.Short() { // the race detector makes each of them ten times as long
			filter.Trip, filter.Goroutines = "50ms", "16,20,64"
		}
		// Leave a core to the tests against real servers that run meanwhile.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			filter.Row = row.Name
			play := func(seeds int) ([]Result, Line) {
				results := PlayAll(t.Context(), filter.Scenarios(rows), []Client{Heed}, seeds, nil)
				return results, Sum(rows, results, false)[0]
			}
			results, line := play(1)
			least, expected := notYet[row.Name]
			if expected && least.above(line) {
				results, line = play(4)
			}
			var table strings.Builder
			WriteTable(&table, rows, append([]Line{line}, failed(rows, results)...))
			switch {
			case expected && least.above(line):
				t.Errorf("below what it was: %.1f refused per 1000, share %.3f in the mean\n%s", line.PerMilleMean, line.ShareMean, &table)
			case !line.Met() && expected:
				t.Logf("not met yet: %.1f refused per 1000, share %.3f in the mean\n%s", line.PerMilleMean, line.ShareMean, &table)
			case !line.Met():
				t.Errorf("not met:\n%s", &table)
			case expected && whole:
				t.Logf("%s is met: if it always is, take it off the list\n%s", row.Name, &table)
			default:
				t.Logf("met:\n%s", &table)
			}
		})
	}
}

// failed returns the cells that break a threshold.
func failed(rows []Row, results []Result) (lines []Line) {
	for _, l := range Sum(rows, results, true) {
		if !l.Met() {
			lines = append(lines, l)
		}
	}
	return lines
}

// TestSameSeedSameScenario holds scenarios to their word: what varies, varies
// with the seed alone.
func TestSameSeedSameScenario(t *testing.T) {
	for _, row := range Rows() {
		s := Filter{Row: row.Name, Quick: true}.Scenarios(Rows())[0]
		a, b, c := s.config(1), s.config(1), s.config(2)
		first, again := s.offset(1), s.offset(1)
		if a.Phase != b.Phase || a.ClockSkew != b.ClockSkew || first != again {
			t.Errorf("%s: one seed, two scenarios", row.Name)
		}
		if a.Phase == c.Phase || s.offset(1) == s.offset(2) {
			t.Errorf("%s: two seeds, one scenario", row.Name)
		}
	}
}

// TestBareClientFails makes sure the score card can tell bad from good.
func TestBareClientFails(t *testing.T) {
	rows := Rows()
	scenarios := Filter{Row: "announced", Variant: "fixed-window ", Quota: "50/5s", Goroutines: "16", Trip: "50ms"}.Scenarios(rows)
	for _, l := range Sum(rows, PlayAll(t.Context(), scenarios, Clients(), 1, nil), false) {
		switch l.Client {
		case Bare.Name, Retryable.Name:
			if l.Met() || l.PerMilleWorst < 100 || l.Early == 0 {
				t.Errorf("%s: %+v", l.Client, l)
			}
		case Limiter1.Name, LimiterBurst.Name:
			if l.ShareWorst < 0.9 || l.ShareWorst > 1.1 {
				t.Errorf("%s: %+v", l.Client, l)
			}
		}
	}
}
