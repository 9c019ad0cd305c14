package scorecard

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// PlayAll plays every scenario with heed under the seeds 1 to seeds, on all
// processors. The other clients play under one condition of each row. The
// results come back in order; seen, if not nil, is called with each as it
// comes, one at a time, and with how many there will be. When ctx is done, what
// is left is not played, and the results end there.
func PlayAll(ctx context.Context, scenarios []Scenario, clients []Client, seeds int, seen func(r Result, of int)) []Result {
	type job struct {
		Scenario
		client Client
		seed   uint64
	}
	var jobs []job
	for _, s := range scenarios {
		for _, c := range clients {
			if c.Name != Heed.Name && !s.Compared {
				continue
			}
			for seed := range seeds {
				jobs = append(jobs, job{s, c, uint64(seed + 1)})
			}
		}
	}
	results := make([]Result, len(jobs))
	next := make(chan int)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				j := jobs[i]
				results[i] = j.Play(j.client, j.seed)
				if seen != nil {
					mu.Lock()
					seen(results[i], len(jobs))
					mu.Unlock()
				}
			}
		})
	}
	played := 0
	for played < len(jobs) && ctx.Err() == nil {
		next <- played
		played++
	}
	close(next)
	workers.Wait()
	return results[:played]
}

// A Line sums up results: those of one row or one cell with one client.
type Line struct {
	Row, Cell, Client string
	Runs              int
	Failed            int      // runs that break a threshold
	OutOfReach        int      // of those, runs in which an oracle breaks it, too: see Thresholds.OutOfReach
	Why               []string // thresholds broken

	PerMilleWorst, PerMilleMean float64 // refused per 1000 accepted; after the first event, where the row says so
	RefusedWorst                int64   // refused in a run, counted likewise
	FirstWorst                  int64   // refused in a first event
	ShareWorst, ShareMean       float64
	Early                       int64   // in all runs together
	OfQuotaMean                 float64 // accepted, over windows times quota
	OracleWorst, OracleMean     float64 // the same of the oracle
	PeakInWindow, PeakInFlight  int64
	WaitMean, WaitP99, WaitMax  float64 // seconds: mean of means, worst of the others
	ForeignWorst, JainWorst     float64
	WorstRun                    string // the condition and seed of the lowest share or, where any was refused, the most refusals
}

// Met reports whether all runs kept to the thresholds.
func (l Line) Met() bool { return l.Failed == 0 }

// Sum sums up results by row and client or, with cells, by row, variant,
// condition and client.
func Sum(rows []Row, results []Result, cells bool) []Line {
	var lines []Line
	index := map[[3]string]int{}
	for _, row := range rows {
		for _, r := range results {
			if r.Row != row.Name {
				continue
			}
			cell := ""
			if cells {
				cell = r.Variant + " " + r.Condition
			}
			key := [3]string{r.Row, cell, r.Client}
			i, ok := index[key]
			if !ok {
				i = len(lines)
				index[key] = i
				lines = append(lines, Line{Row: r.Row, Cell: cell, Client: r.Client, ShareWorst: r.Share, OracleWorst: r.Oracle, ForeignWorst: 1, JainWorst: 1})
			}
			lines[i].add(row.Thresholds, r)
		}
	}
	for i := range lines {
		l := &lines[i]
		for _, mean := range []*float64{&l.PerMilleMean, &l.ShareMean, &l.OfQuotaMean, &l.OracleMean, &l.WaitMean} {
			*mean /= float64(l.Runs)
		}
	}
	return lines
}

func (l *Line) add(t Thresholds, r Result) {
	perMille, refused := r.PerMille(), r.Refused
	if t.AfterEvent {
		perMille, refused = r.AfterPerMille(), r.After
	}
	if why := t.Fails(r); len(why) > 0 {
		l.Failed++
		if t.OutOfReach(r) {
			l.OutOfReach++
		}
		for _, w := range why {
			if !slices.Contains(l.Why, w) {
				l.Why = append(l.Why, w)
			}
		}
	}
	if l.Runs == 0 || refused > l.RefusedWorst || l.RefusedWorst == 0 && r.Share < l.ShareWorst {
		l.WorstRun = strings.Join([]string{r.Variant, r.Condition, fmt.Sprintf("seed %d", r.Seed)}, ", ")
	}
	l.Runs++
	l.PerMilleWorst = max(l.PerMilleWorst, perMille)
	l.PerMilleMean += perMille
	l.RefusedWorst = max(l.RefusedWorst, refused)
	l.FirstWorst = max(l.FirstWorst, r.Refused-r.After)
	l.ShareWorst = min(l.ShareWorst, r.Share)
	l.ShareMean += r.Share
	l.Early += r.EarlyStanding
	l.OfQuotaMean += r.OfQuota
	l.OracleWorst = min(l.OracleWorst, r.Oracle)
	l.OracleMean += r.Oracle
	l.PeakInWindow = max(l.PeakInWindow, r.PeakInWindow)
	l.PeakInFlight = max(l.PeakInFlight, r.PeakInFlight)
	l.WaitMean += r.WaitMean.Seconds()
	l.WaitP99 = max(l.WaitP99, r.WaitP99.Seconds())
	l.WaitMax = max(l.WaitMax, r.WaitMax.Seconds())
	l.ForeignWorst = min(l.ForeignWorst, r.ForeignServed)
	l.JainWorst = min(l.JainWorst, r.Jain)
}
