package scorecard

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteTable writes lines as an aligned table. The figures are the worst over
// all runs, with the mean in parentheses.
func WriteTable(w io.Writer, lines []Line) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "row\tclient\truns\trefused ‰\tfirst\tshare\toracle\tearly\tpeak\tin flight\twait mean, p99, max s\tresult")
	for _, l := range lines {
		name := l.Row
		if l.Cell != "" {
			name += " " + l.Cell
		}
		verdict := "met"
		if !l.Met() {
			verdict = fmt.Sprintf("%d not met: %s; worst: %s", l.Failed, strings.Join(l.Why, ", "), l.WorstRun)
		}
		if l.Client != Heed.Name {
			verdict = ""
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%.1f (%.2f)\t%d\t%.3f (%.3f)\t%.3f (%.3f)\t%d\t%d\t%d\t%.2f %.1f %.1f\t%s\n",
			name, l.Client, l.Runs, l.PerMilleWorst, l.PerMilleMean, l.FirstWorst, l.ShareWorst, l.ShareMean,
			l.OracleWorst, l.OracleMean, l.Early, l.PeakInWindow, l.PeakInFlight, l.WaitMean, l.WaitP99, l.WaitMax, verdict)
	}
	return tw.Flush()
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }
