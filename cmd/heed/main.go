// Command heed shows rate limits and how to keep to them.
//
//	heed demo          drives an origin that enforces limits, with heed and without
//	heed inspect URL   says what limits a URL announces
//	heed simulate      plays all scenarios in virtual time: the score card
//
// Every command explains itself with -h.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/pflag"
)

// Exit statuses common to all commands. A command may have others of its own,
// from 3 on, which its help lists.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// A command is one of heed's subcommands. Each has a file of its own.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, io streams, args []string) int
}

var commands = []command{
	{"demo", "drive an origin that enforces limits, with heed and without, and score both", demo},
	{"inspect", "say what limits a URL announces", inspect},
	{"simulate", "play all scenarios in virtual time: the score card", simulate},
}

// streams are where a command writes: what it was asked for to out, all else
// to err.
type streams struct{ out, err io.Writer }

// print has text written to out, all at once: where that fails, so does the command.
func (s streams) print(write func(io.Writer)) error {
	var text bytes.Buffer
	write(&text)
	_, err := s.out.Write(text.Bytes())
	return err
}

// printJSON is print for what is to be read by programs.
func (s streams) printJSON(v any) error {
	e := json.NewEncoder(s.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func main() {
	if workIfAsked() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second one ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s := streams{stdout, stderr}
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	if args[0] == "help" && len(args) > 1 {
		args = []string{args[1], "-h"}
	}
	switch args[0] {
	case "-h", "--help", "help":
		usage(stdout)
		return exitOK
	case "--version", "version":
		fmt.Fprintln(stdout, "heed", version())
		return exitOK
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, s, args[1:])
		}
	}
	fmt.Fprintf(stderr, "heed: there is no command %q\n\n", args[0])
	usage(stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "heed keeps to the rate limits of every origin it talks to.\n\nUsage:\n\n  heed COMMAND [FLAGS] [ARGUMENTS]\n\nCommands:\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\n\"heed COMMAND -h\" explains a command; \"heed --version\" says which one this is.\n")
}

// version is that of the module the command was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}

// flagSet returns the flags of a command; help is what -h says before it
// lists them.
func (s streams) flagSet(name, help string) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SortFlags = false
	f.SetOutput(s.err)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "%s\nFlags:\n\n%s", help, f.FlagUsages())
	}
	return f
}

// parse parses a command's arguments. Where the command has nothing left to
// do it reports false and the exit status.
func (s streams) parse(f *pflag.FlagSet, args []string) (status int, ok bool) {
	f.BoolP("help", "h", false, "explain this command")
	if err := f.Parse(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return s.misused(f, err), false
	}
	if help, _ := f.GetBool("help"); help {
		f.SetOutput(s.out)
		f.Usage()
		return exitOK, false
	}
	return exitOK, true
}

// misused reports a command line that makes no sense.
func (s streams) misused(f *pflag.FlagSet, err error) int {
	fmt.Fprintf(s.err, "heed %s: %v\n\"heed %s -h\" explains the command.\n", f.Name(), err, f.Name())
	return exitUsage
}
