package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// A watcher shows how a race stands while it runs.
type watcher interface {
	every() time.Duration // how often to call show
	show(elapsed time.Duration)
	end(elapsed time.Duration)
}

// watchOn returns a live display where w is a terminal, else plain lines.
func watchOn(w io.Writer, r *race) watcher {
	if isTerminal(w) {
		return newBars(w, r)
	}
	return &lines{w: w, race: r}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// silent shows nothing.
type silent struct{}

func (silent) every() time.Duration { return time.Hour }
func (silent) show(time.Duration)   {}
func (silent) end(time.Duration)    {}

// lines prints a line now and then.
type lines struct {
	w    io.Writer
	race *race
	last time.Duration // when show was last called
}

func (l *lines) every() time.Duration { return max(l.race.duration/10, 100*time.Millisecond) }

func (l *lines) show(elapsed time.Duration) {
	l.last = elapsed
	fmt.Fprintf(l.w, "%5.1f s", elapsed.Seconds())
	for _, run := range l.race.runners {
		t := run.origin.Tally()
		fmt.Fprintf(l.w, "   %s: %s accepted, %s refused", run.name, grouped(t.Accepted), grouped(t.Refused))
	}
	fmt.Fprintln(l.w)
}

func (l *lines) end(elapsed time.Duration) {
	if elapsed-l.last > l.every()/10 {
		l.show(elapsed)
	}
}

// bars is a live display: the time, and what each client got of what it could.
type bars struct {
	race     *race
	progress *mpb.Progress
	time     *mpb.Bar
	runners  []*mpb.Bar
}

func newBars(w io.Writer, r *race) *bars {
	b := &bars{race: r, progress: mpb.New(mpb.WithOutput(w), mpb.WithWidth(64), mpb.WithAutoRefresh())}
	b.time = b.bar("time", int64(r.duration), func(s decor.Statistics) string {
		return fmt.Sprintf(" %4.1f s of %v", time.Duration(s.Current).Seconds(), r.duration)
	})
	for _, run := range r.runners {
		b.runners = append(b.runners, b.bar(run.name, mostPossible(demoPolicies, r.duration), func(decor.Statistics) string {
			t := run.origin.Tally()
			text := fmt.Sprintf(" %4s accepted  %6s refused", grouped(t.Accepted), grouped(t.Refused))
			if n := run.waiting(); n > 0 {
				text += fmt.Sprintf("  %d waiting", n)
			}
			return text
		}))
	}
	return b
}

func (b *bars) bar(name string, total int64, say func(decor.Statistics) string) *mpb.Bar {
	// Made with a total of 0, it is not taken as complete once it is full.
	bar := b.progress.AddBar(0, mpb.BarWidth(30), mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-5s ", name))), mpb.AppendDecorators(decor.Any(say)))
	bar.SetTotal(total, false)
	return bar
}

func (b *bars) every() time.Duration { return 100 * time.Millisecond }

func (b *bars) show(elapsed time.Duration) {
	b.time.SetCurrent(int64(elapsed))
	for i, run := range b.race.runners {
		b.runners[i].SetCurrent(run.origin.Tally().Accepted)
	}
}

func (b *bars) end(elapsed time.Duration) {
	b.show(elapsed)
	b.time.Abort(false)
	for _, bar := range b.runners {
		bar.Abort(false)
	}
	b.progress.Wait()
}
