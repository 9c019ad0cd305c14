package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// heedCommand runs the command with args, and returns what it printed and its
// exit status.
func heedCommand(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(t.Context(), args, &out, &err)
	return out.String(), err.String(), status
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args           string
		status         int
		stdout, stderr string // part of what is printed there
	}{
		{"", exitUsage, "", "Usage:"},
		{"-h", exitOK, "demo ", ""},
		{"help", exitOK, "inspect ", ""},
		{"help demo", exitOK, "Exit status: 0 if", ""},
		{"help nonsense", exitUsage, "", `no command "nonsense"`},
		{"--version", exitOK, "heed ", ""},
		{"nonsense", exitUsage, "", `no command "nonsense"`},
		{"demo -h", exitOK, "Exit status: 0 if", ""},
		{"demo --help", exitOK, "--goroutines", ""},
		{"demo extra", exitUsage, "", "no arguments"},
		{"demo --duration 0s", exitUsage, "", "--duration"},
		{"demo --duration soon", exitUsage, "", "invalid"},
		{"demo -g 0", exitUsage, "", "--goroutines"},
		{"demo -p -1", exitUsage, "", "--processes"},
		{"demo --redis redis://127.0.0.1", exitUsage, "", "--processes"},
		{"demo -p 2 --redis nonsense", exitUsage, "", "--redis"},
		{"inspect -h", exitOK, "Exit status: 0 if", ""},
		{"inspect", exitUsage, "", "one URL"},
		{"inspect a b", exitUsage, "", "one URL"},
		{"inspect ftp://127.0.0.1/", exitUsage, "", "not a URL of the web"},
		{"inspect http://", exitUsage, "", "not a URL of the web"},
		{"inspect :", exitUsage, "", "not a URL of the web"},
		{"inspect http://127.0.0.1/ --timeout 0", exitUsage, "", "--timeout"},
		{"inspect http://127.0.0.1/ -H nothing", exitUsage, "", `"Name: value"`},
		{"inspect http://127.0.0.1/ -H (name):value", exitUsage, "", `"Name: value"`},
		{"inspect http://127.0.0.1/ -H name:\x01", exitUsage, "", `"Name: value"`},
		{"inspect http://127.0.0.1/ -H Host:a/b", exitUsage, "", "host"},
		{"inspect http://127.0.0.1/ --nonsense", exitUsage, "", "unknown flag"},
		{"simulate -h", exitOK, "Exit status: 0 if", ""},
		{"simulate extra", exitUsage, "", "no arguments"},
		{"simulate --seeds 0", exitUsage, "", "--seeds"},
		{"simulate --row nonsense", exitUsage, "", "no scenario is left"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			stdout, stderr, status := heedCommand(t, strings.Fields(tt.args)...)
			if status != tt.status {
				t.Errorf("exit status %d, want %d", status, tt.status)
			}
			if !strings.Contains(stdout, tt.stdout) || tt.stdout == "" && stdout != "" {
				t.Errorf("stdout is %q, want %q in it", stdout, tt.stdout)
			}
			if !strings.Contains(stderr, tt.stderr) || tt.stderr == "" && stderr != "" {
				t.Errorf("stderr is %q, want %q in it", stderr, tt.stderr)
			}
		})
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	for _, c := range commands {
		var out, err bytes.Buffer
		if status := run(context.Background(), []string{c.name, "-h"}, &out, &err); status != exitOK {
			t.Errorf("heed %s -h exits with %d", c.name, status)
		}
		for _, part := range []string{"Usage: heed " + c.name, "Exit status:", "Flags:"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("heed %s -h does not say %q", c.name, part)
			}
		}
	}
}
