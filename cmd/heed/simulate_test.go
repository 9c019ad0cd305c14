package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heedhttp/heed/internal/scorecard"
)

func TestSimulateWritesWhatItIsAskedFor(t *testing.T) {
	dir := t.TempDir()
	name := func(kind string) string { return filepath.Join(dir, "card."+kind) }
	out, _, status := heedCommand(t, "simulate", "--row", "burst", "--variant", "token-bucket", "--seeds", "2",
		"--json", name("json"), "--csv", name("csv"), "--svg", name("svg"), "--html", name("html"))
	if status != exitOK {
		t.Errorf("exit status %d", status)
	}
	for _, part := range []string{"20 requests at once", "share 1.00", "heed ", "limiter b=1", "met"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	read := func(kind string) string {
		b, err := os.ReadFile(name(kind))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var card struct{ Lines, Results []map[string]any }
	if err := json.Unmarshal([]byte(read("json")), &card); err != nil || len(card.Lines) != 5 || len(card.Results) < 10 {
		t.Errorf("JSON: %d lines, %d results, %v", len(card.Lines), len(card.Results), err)
	}
	records, err := csv.NewReader(strings.NewReader(read("csv"))).ReadAll()
	if err != nil || len(records) != len(card.Results)+1 {
		t.Errorf("CSV: %d records, %v", len(records), err)
	}
	svg := read("svg")
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
		t.Errorf("SVG: %v", err)
	}
	if page := read("html"); !strings.Contains(page, svg) || !strings.Contains(page, "20 requests at once") {
		t.Error("the page lacks chart or table")
	}
}

// That a file cannot be written is not found out after hours of play.
func TestSimulateSeesToItsFilesFirst(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"json", "csv", "svg", "html"} {
		out, stderr, status := heedCommand(t, "simulate", "--row", "burst", "--alone", "--quick", "--"+kind, filepath.Join(dir, "none", "card"))
		if status != exitFailed || out != "" || !strings.Contains(stderr, "none") || strings.Contains(stderr, "runs") {
			t.Errorf("--%s: exit status %d, stdout %q, stderr %q", kind, status, out, stderr)
		}
	}
}

func TestSimulateWritesWhatWasPlayedWhenInterrupted(t *testing.T) {
	name := filepath.Join(t.TempDir(), "card.json")
	ctx, interrupt := context.WithCancel(t.Context())
	stderr := writer(func(b []byte) (int, error) {
		interrupt() // at the first sign of progress
		return len(b), nil
	})
	status := run(ctx, []string{"simulate", "--row", "burst", "--alone", "--seeds", "20", "--json", name}, io.Discard, stderr)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var card struct{ Lines, Results []map[string]any }
	if err := json.Unmarshal(text, &card); err != nil || len(card.Lines) == 0 || len(card.Results) == 0 {
		t.Errorf("%d lines, %d results, %v", len(card.Lines), len(card.Results), err)
	}
	if status != exitInterrupted {
		t.Errorf("exit status %d", status)
	}
}

// Who writes standard error to a file wants lines there.
func TestSimulateShowsProgressByLinesWhereThereIsNoTerminal(t *testing.T) {
	_, stderr, _ := heedCommand(t, "simulate", "--row", "burst", "--alone", "--quick")
	if strings.Contains(stderr, "\r") || !strings.HasSuffix(stderr, " runs\n") || strings.Count(stderr, "\n") > 10 {
		t.Errorf("%q", stderr)
	}
}

func TestSimulateInMarkdown(t *testing.T) {
	out, _, _ := heedCommand(t, "simulate", "--row", "burst", "--markdown", "--alone", "--quick")
	if !strings.HasPrefix(out, "| scenario | client |") || strings.Contains(out, "bare") {
		t.Errorf("not the table asked for:\n%s", out)
	}
}

func TestSimulateHelpNamesEveryRow(t *testing.T) {
	out, _, _ := heedCommand(t, "simulate", "-h")
	_, names, _ := strings.Cut(out, "The rows are")
	names, _, _ = strings.Cut(names, ";")
	named := strings.Fields(strings.ReplaceAll(names, ",", " "))
	for _, row := range scorecard.Rows() {
		if !slices.Contains(named, row.Name) {
			t.Errorf("it names %q, and not %q", named, row.Name)
		}
	}
}
