package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/heedhttp/heed/internal/scorecard"
)

const simulateHelp = `Usage: heed simulate [FLAGS]

Plays the score card in virtual time: fake origins of all kinds, each asked by
many goroutines for as much as they can get, over round trips short, long and
random. It prints

  - how often each client was refused, per 1000 requests accepted;
  - early starts: requests that started before an instant a server had named;
  - the share of the oracle: what the client got accepted, over what an oracle
    gets that has the same goroutines and latencies and knows the origin;
  - what that oracle got accepted, over the quota.

The worst run counts; means are in parentheses. A run that breaks a threshold of
its row is called out of reach if the oracle breaks the same one under heed's
manners: to begin with few requests on first contact and double them, and to
spread requests over the window; or, where latencies are random, if an oracle
breaks it that learns only from each answer how long that request was on the
way. Their shares are in the JSON and the CSV.

heed, which is told nothing, plays every scenario. The others (a bare client,
go-retryablehttp, and a rate.Limiter that is told the limit, with a burst of 1
and of the whole quota) play under one condition of each row, for comparison.

The chart is of one scenario: the first one that all clients play.

Rows, variants and so on are picked by lists separated by commas. The rows are
announced, rounded, epoch, policies, sparse, refusals, silent, foreign, four,
change, cold, outage, penalty and burst; with --cells the table names the rest.
--quick plays a fifth of the conditions. All of it with 20 seeds takes hours.

Files are made before anything is played. If it is interrupted, table and files
have what was played until then; a second interrupt ends it at once.

Exit status: 0 if every row was met, 1 if one was not or a file could not be
written, 2 for a command line that makes no sense, 130 if it was interrupted.
`

func simulate(ctx context.Context, s streams, args []string) int {
	f := s.flagSet("simulate", simulateHelp)
	var filter scorecard.Filter
	f.StringVar(&filter.Row, "row", "", "only these rows, such as announced,rounded")
	f.StringVar(&filter.Variant, "variant", "", "only variants with one of these in their name, such as token-bucket")
	f.StringVar(&filter.Quota, "quota", "", "only these quotas, such as 50/5s")
	f.StringVar(&filter.Goroutines, "goroutines", "", "only these numbers of goroutines, such as 16")
	f.StringVar(&filter.Trip, "round-trip", "", "only these round trips, such as 50ms or tail")
	f.BoolVar(&filter.Quick, "quick", false, "play a fifth of the conditions")
	seeds := f.Int("seeds", 1, "how many seeds to play each scenario under")
	alone := f.Bool("alone", false, "play heed without the others")
	cells := f.Bool("cells", false, "print a line for each scenario, not for each row")
	markdown := f.Bool("markdown", false, "print the table in Markdown")
	jsonFile := f.String("json", "", "write sums and all results to this file as JSON")
	csvFile := f.String("csv", "", "write all results to this file as CSV")
	svgFile := f.String("svg", "", "draw a chart to this file as SVG")
	htmlFile := f.String("html", "", "write chart and table to this file as a page")
	if status, ok := s.parse(f, args); !ok {
		return status
	}
	rows := scorecard.Rows()
	scenarios := filter.Scenarios(rows)
	switch {
	case f.NArg() > 0:
		return s.misused(f, fmt.Errorf("it takes no arguments, and was given %q", f.Arg(0)))
	case *seeds <= 0:
		return s.misused(f, errors.New("--seeds must be above 0"))
	case len(scenarios) == 0:
		return s.misused(f, errors.New("no scenario is left: a row has no such variant, quota, number of goroutines or round trip, or there is no such row"))
	}
	clients := scorecard.Clients()
	if *alone {
		clients = clients[:1]
	}
	var results []scorecard.Result
	var lines []scorecard.Line
	drawn := scorecard.Drawn(scenarios)
	files := []struct {
		name  string
		write func(io.Writer) error
		file  *os.File
	}{
		{*jsonFile, func(w io.Writer) error { return scorecard.WriteJSON(w, lines, results) }, nil},
		{*csvFile, func(w io.Writer) error { return scorecard.WriteCSV(w, results) }, nil},
		{*svgFile, func(w io.Writer) error { return scorecard.WriteSVG(w, drawn, clients, 1) }, nil},
		{*htmlFile, func(w io.Writer) error { return scorecard.WriteHTML(w, drawn, clients, 1, rows, lines) }, nil},
	}
	for i := range files { // now, and not after hours
		f := &files[i]
		if f.name == "" {
			continue
		}
		var err error
		if f.file, err = os.Create(f.name); err != nil {
			fmt.Fprintln(s.err, "heed simulate:", err)
			return exitFailed
		}
		defer f.file.Close() // where it is not reached below
	}
	seen, end := progressOn(s.err)
	results = scorecard.PlayAll(ctx, scenarios, clients, *seeds, seen)
	end()
	lines = scorecard.Sum(rows, results, *cells)
	table := scorecard.WriteTable
	if *markdown {
		table = scorecard.WriteMarkdown
	}
	err := table(s.out, rows, lines)
	for _, f := range files {
		if f.file != nil {
			err = errors.Join(err, f.write(f.file), f.file.Close())
		}
	}
	switch {
	case err != nil:
		fmt.Fprintln(s.err, "heed simulate:", err)
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	}
	for _, l := range lines {
		if l.Client == scorecard.Heed.Name && !l.Met() {
			return exitFailed
		}
	}
	return exitOK
}

// progressOn returns what shows how far the play is after each run, and what ends that: one line that changes where
// w is a terminal, else a line for each tenth.
func progressOn(w io.Writer) (seen func(_ scorecard.Result, of int), end func()) {
	played := 0
	if isTerminal(w) {
		return func(_ scorecard.Result, of int) {
			if played++; played%10 == 0 || played == of {
				fmt.Fprintf(w, "\r%d of %d runs ", played, of)
			}
		}, func() { fmt.Fprintln(w) }
	}
	return func(_ scorecard.Result, of int) {
		if played++; played*10/of > (played-1)*10/of {
			fmt.Fprintf(w, "%d of %d runs\n", played, of)
		}
	}, func() {}
}
