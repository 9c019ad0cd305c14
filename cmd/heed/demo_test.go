package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/heedtest"
	"github.com/heedhttp/heed/internal/ontime"
)

func TestDemoScoresAFullRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for 20 s of wall-clock time")
	}
	t.Parallel()
	ontime.Try(t, func() error {
		stdout, stderr, status := heedCommand(t, "demo", "--json")
		var r demoResult
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatal(err)
		}
		if r.Possible != 300 {
			t.Errorf("%d requests were possible, want 300", r.Possible)
		}
		plain, heeded := r.Clients[0], r.Clients[1]
		if plain.Refused == 0 {
			t.Error("the plain client was never refused: the origin enforces nothing")
		}
		if heeded.Refused != 0 || heeded.Share < 0.97 || heeded.Share > 1 {
			return fmt.Errorf("heed was refused %d times and got %.3f of the quota, want 0 and 0.97 to 1", heeded.Refused, heeded.Share)
		}
		if status != exitOK || stderr != "" {
			t.Errorf("exit status %d, stderr %q", status, stderr)
		}
		return nil
	})
}

func TestDemoPrintsLinesWhereThereIsNoTerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on the wall clock")
	}
	t.Parallel()
	stdout, stderr, status := heedCommand(t, "demo", "--duration", "1s", "-g", "2")
	if status != exitOK || stderr != "" {
		t.Fatalf("exit status %d, stderr %q", status, stderr)
	}
	for _, part := range []string{"20 requests per second and 150 requests per 10 seconds", "   plain: 2", "heed was never refused."} {
		if !strings.Contains(stdout, part) {
			t.Errorf("%q is not in\n%s", part, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Errorf("escape sequences in\n%q", stdout)
	}
}

func TestDemoStopsWhenInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on the wall clock")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var out, err bytes.Buffer
	if status := run(ctx, []string{"demo", "--duration", "1h"}, &out, &err); status != exitInterrupted {
		t.Errorf("exit status %d, want %d", status, exitInterrupted)
	}
	if !strings.Contains(out.String(), "of 20 possible") {
		t.Errorf("no score of what there was in\n%s", out.String())
	}
}

// A full disk is no success.
func TestDemoFailsWhereItCannotPrint(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on the wall clock")
	}
	t.Parallel()
	for _, args := range []string{"demo -d 200ms -g 1", "demo -d 200ms -g 1 --json", "demo -d 200ms -g 1 -p 1"} {
		full := writer(func([]byte) (int, error) { return 0, errors.New("no space left") })
		var stderr bytes.Buffer
		if status := run(t.Context(), strings.Fields(args), full, &stderr); status != exitFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s: status %d, %q", args, status, stderr.String())
		}
	}
}

func TestDemoSaysThatItShowsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on the wall clock")
	}
	for _, args := range []string{"demo -d 1ns", "demo -d 1ns --json", "demo -d 1ns -p 1"} {
		// A machine that stands still for a moment may let something through.
		if _, stderr, status := heedCommand(t, strings.Fields(args)...); status != exitOK && !strings.Contains(stderr, "no request of heed's was accepted in 1ns") {
			t.Errorf("%s: status %d, %q", args, status, stderr)
		}
	}
}

func TestMostPossible(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name     string
		policies []heedtest.Policy
		d        time.Duration
		want     int64
	}{
		{"nothing in no time", []heedtest.Policy{{Quota: 5, Window: s}}, 0, 0},
		{"one window", []heedtest.Policy{{Quota: 5, Window: s}}, s, 5},
		{"the next window opens with its first instant", []heedtest.Policy{{Quota: 5, Window: s}}, s + 1, 10},
		{"the longer one binds", demoPolicies, 20 * s, 300},
		{"the shorter one binds", demoPolicies, 5 * s, 100},
		{"both in turn", demoPolicies, 12 * s, 190},
		{"a window opened late", []heedtest.Policy{{Quota: 3, Window: 2 * s}, {Quota: 4, Window: 5 * s}}, 8 * s, 8},
	} {
		if got := mostPossible(tt.policies, tt.d); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
