// Command cmd plays the score card, or a part of it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/heedhttp/heed/internal/scorecard"
)

func main() {
	var f scorecard.Filter
	flag.StringVar(&f.Row, "row", "", "rows")
	flag.StringVar(&f.Variant, "variant", "", "parts of variants' names")
	flag.StringVar(&f.Quota, "quota", "", "quotas, such as 50/5s")
	flag.StringVar(&f.Goroutines, "n", "", "numbers of goroutines")
	flag.StringVar(&f.Trip, "rtt", "", "round trips, such as 50ms or tail")
	seeds := flag.Int("seeds", 1, "seeds")
	all := flag.Bool("all", false, "all clients")
	cells := flag.Bool("cells", false, "a line for every cell")
	flag.Parse()
	clients := scorecard.Clients()
	if !*all {
		clients = clients[:1]
	}
	rows := scorecard.Rows()
	scenarios := f.Scenarios(rows)
	done := 0
	results := scorecard.PlayAll(scenarios, clients, *seeds, func(scorecard.Result) {
		done++
		fmt.Fprintf(os.Stderr, "\r%d runs of about %d ", done, len(scenarios)**seeds)
	})
	fmt.Fprintln(os.Stderr)
	scorecard.WriteTable(os.Stdout, scorecard.Sum(rows, results, *cells))
}
