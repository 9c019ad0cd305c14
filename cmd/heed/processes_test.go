package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// The demo's processes are this program again: in tests, the test binary.
func TestMain(m *testing.M) {
	if workIfAsked() {
		return
	}
	os.Exit(m.Run())
}

func TestDemoOfProcessesScoresThemTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for 20 s of wall-clock time")
	}
	t.Parallel()
	stdout, stderr, status := heedCommand(t, "demo", "--processes", "4", "--json")
	if status != exitOK || stderr != "" {
		t.Fatalf("exit status %d, stderr %q: %s", status, stderr, stdout)
	}
	var r crewResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Possible != 300 || r.Refused != 0 || r.Share < 0.95 || r.Jain < 0.95 || len(r.Processes) != 4 {
		t.Errorf("%+v", r)
	}
	pids := map[int]bool{}
	for _, p := range r.Processes {
		pids[p.PID] = true
	}
	if len(pids) != 4 {
		t.Errorf("processes %v", pids)
	}
	for i, peak := range r.Peaks {
		if peak > 1 {
			t.Errorf("at its peak %.2f of policy %q", peak, r.Policies[i].Name)
		}
	}
}

func TestDemoOfProcessesPrintsATable(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on the wall clock")
	}
	t.Parallel()
	stdout, stderr, status := heedCommand(t, "demo", "--processes", "2", "-g", "2", "-d", "1s")
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "Together they were never refused.") || !strings.Contains(stdout, "a Redis in this process") {
		t.Errorf("exit status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestDemoShowsNoPasswordOfRedis(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("secret")
	stdout, stderr, status := heedCommand(t, "demo", "-p", "1", "-g", "1", "-d", "100ms", "--redis", "redis://:secret@"+server.Addr())
	if strings.Contains(stdout+stderr, "secret") || !strings.Contains(stdout, "the Redis at "+server.Addr()) || status == exitUsage {
		t.Errorf("exit status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
	for _, url := range []string{"redis://:secret@[::1", "redis://:secret@host:port", "redis://host:1/2secret@host/x"} {
		stdout, stderr, status = heedCommand(t, "demo", "-p", "1", "--redis", url)
		if strings.Contains(stdout+stderr, "secret") || !strings.Contains(stderr, "--redis") || status != exitUsage {
			t.Errorf("%s: exit status %d, stderr %q, stdout:\n%s", url, status, stderr, stdout)
		}
	}
}
