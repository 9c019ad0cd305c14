package scorecard

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The columns of a table. Figures are the worst over all runs, with the mean in
// parentheses; early starts are of all runs together.
var columns = []string{
	"client", "runs", "refused ‰", "first event", "early", "share", "oracle", "foreign", "fairness",
	"peak", "in flight", "wait mean, p99, max", "result",
}

func (l Line) cells() []string {
	share := fmt.Sprintf("%.3f (%.3f)", l.ShareWorst, l.ShareMean)
	return []string{
		l.Client,
		fmt.Sprint(l.Runs),
		fmt.Sprintf("%.1f (%.2f)", l.PerMilleWorst, l.PerMilleMean),
		fmt.Sprint(l.FirstWorst),
		fmt.Sprint(l.Early),
		share,
		fmt.Sprintf("%.3f (%.3f)", l.OracleWorst, l.OracleMean),
		fmt.Sprintf("%.2f", l.ForeignWorst),
		fmt.Sprintf("%.2f", l.JainWorst),
		fmt.Sprint(l.PeakInWindow),
		fmt.Sprint(l.PeakInFlight),
		fmt.Sprintf("%.2f %.1f %.1f s", l.WaitMean, l.WaitP99, l.WaitMax),
		l.verdict(),
	}
}

func (l Line) verdict() string {
	switch {
	case l.Client != Heed.Name:
		return ""
	case l.Met():
		return "met"
	}
	beyond := ""
	switch l.OutOfReach {
	case 0:
	case l.Failed:
		beyond = ", out of reach"
	default:
		beyond = fmt.Sprintf(", of which %d out of reach", l.OutOfReach)
	}
	return fmt.Sprintf("NOT MET in %d%s: %s; worst: %s", l.Failed, beyond, strings.Join(l.Why, ", "), l.WorstRun)
}

// String says what a row asks for.
func (t Thresholds) String() string {
	var asks []string
	after := ""
	if t.AfterEvent {
		after = " after the first event"
	}
	if t.PerRun > 0 {
		asks = append(asks, fmt.Sprintf("at most %d refused in a run%s", t.PerRun, after))
	} else {
		asks = append(asks, fmt.Sprintf("at most %g refused per 1000%s", t.PerMille, after))
	}
	asks = append(asks, fmt.Sprintf("share %.2f", t.Share))
	if t.Foreign > 0 {
		asks = append(asks, fmt.Sprintf("the foreign client %.2f", t.Foreign))
	}
	if t.Jain > 0 {
		asks = append(asks, fmt.Sprintf("fairness %.2f", t.Jain))
	}
	return strings.Join(asks, ", ")
}

// WriteTable writes lines as an aligned table, those of each row under its
// title and thresholds.
func WriteTable(w io.Writer, rows []Row, lines []Line) error {
	widths := make([]int, len(columns))
	table := [][]string{columns}
	for _, l := range lines {
		cells := l.cells()
		if l.Cell != "" {
			cells[0] += " " + l.Cell
		}
		table = append(table, cells)
	}
	for _, cells := range table {
		for i, cell := range cells[:len(cells)-1] {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	write := func(cells []string) {
		for i, cell := range cells {
			fmt.Fprintf(&b, "  %s%s", cell, strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))))
		}
		b.WriteString("\n")
	}
	write(columns)
	for _, row := range rows {
		titled := false
		for i, l := range lines {
			if l.Row != row.Name {
				continue
			}
			if !titled {
				fmt.Fprintf(&b, "\n%s: %s\n  (%v)\n", row.Name, row.Title, row.Thresholds)
				titled = true
			}
			write(table[i+1])
		}
	}
	_, err := io.WriteString(w, trimLines(b.String()))
	return err
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// WriteMarkdown writes lines as a table in Markdown with the columns that
// matter most.
func WriteMarkdown(w io.Writer, rows []Row, lines []Line) error {
	var b strings.Builder
	b.WriteString("| scenario | client | refused per 1000: worst (mean) | early starts | share of the oracle: worst (mean) | oracle, of the quota | runs that keep to it | out of reach |\n|---|---|---:|---:|---:|---:|---:|---:|\n")
	for _, row := range rows {
		title := row.Title
		for _, l := range lines {
			if l.Row != row.Name {
				continue
			}
			kept, beyond := "", ""
			if l.Client == Heed.Name {
				kept = fmt.Sprintf("%d of %d", l.Runs-l.Failed, l.Runs)
				if l.OutOfReach > 0 {
					beyond = fmt.Sprint(l.OutOfReach)
				}
			}
			c := l.cells()
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", title, l.Client, c[2], c[4], c[5], c[6], kept, beyond)
			title = ""
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
