package scorecard

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteJSON writes lines and the results they sum up. Times are in nanoseconds
// in results and in seconds in lines.
func WriteJSON(w io.Writer, lines []Line, results []Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(struct {
		Lines   []Line
		Results []Result
	}{lines, results})
}

// WriteCSV writes results, one a line under a heading. Times are in seconds.
func WriteCSV(w io.Writer, results []Result) error {
	c := csv.NewWriter(w)
	c.Write([]string{"row", "variant", "condition", "client", "seed", "accepted", "refused", "after_first_event", "early", "early_standing",
		"share", "of_quota", "oracle", "sparing", "reach", "reach_refused", "nonclairvoyant", "peak_in_window", "peak_in_flight", "wait_mean", "wait_p99", "wait_max",
		"foreign_served", "jain", "problems"})
	for _, r := range results {
		record := []string{r.Row, r.Variant, r.Condition, r.Client}
		for _, v := range []any{r.Seed, r.Accepted, r.Refused, r.After, r.Early, r.EarlyStanding} {
			record = append(record, fmt.Sprint(v))
		}
		for _, v := range []float64{r.Share, r.OfQuota, r.Oracle, r.Sparing, r.Reach} {
			record = append(record, fmt.Sprintf("%.4f", v))
		}
		record = append(record, fmt.Sprint(r.ReachRefused), fmt.Sprintf("%.4f", r.Nonclairvoyant), fmt.Sprint(r.PeakInWindow), fmt.Sprint(r.PeakInFlight))
		for _, v := range []float64{r.WaitMean.Seconds(), r.WaitP99.Seconds(), r.WaitMax.Seconds(), r.ForeignServed, r.Jain} {
			record = append(record, fmt.Sprintf("%.4f", v))
		}
		c.Write(append(record, strings.Join(r.Problems, "; ")))
	}
	c.Flush()
	return c.Error()
}
