package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/redis/go-redis/v9"
)

const demoHelp = `Usage: heed demo [FLAGS]

Starts two equal origins on this machine, real HTTP servers that enforce and
announce two limits at once, and lets two clients ask for as much as they can
get: a plain http.Client, and one with heed's Transport, which is told nothing
in advance. No network is needed.

The share is what an origin accepted, over the most that it could have accepted
in the time: that is what a client gets that knows the limits, has no latency,
and sends each request the instant there is room for it. Waits are those of the
requests that heed sent.

With --processes N, N processes of the operating system, each with heed, ask one
such origin together and share what they know of it through Redis. Peaks are the
most that was accepted in any stretch of time as long as a window, over the
quota; fairness is Jain's index.

Exit status: 0 if heed was never refused, 1 if it was or the demo failed,
2 for a command line that makes no sense, 130 if it was interrupted.
`

// demoPolicies are what the demo's origins enforce. The second one is the
// tighter in the long run, the first one at any moment.
var demoPolicies = []heedtest.Policy{
	{Name: "burst", Quota: 20, Window: time.Second},
	{Name: "sustained", Quota: 150, Window: 10 * time.Second},
}

const demoRoundTrip = 20 * time.Millisecond

func demo(ctx context.Context, s streams, args []string) int {
	f := s.flagSet("demo", demoHelp)
	duration := f.DurationP("duration", "d", 20*time.Second, "how long both clients run, side by side")
	goroutines := f.IntP("goroutines", "g", 16, "how many goroutines each client has")
	asJSON := f.Bool("json", false, "print the score as JSON, and nothing else")
	processes := f.IntP("processes", "p", 0, "run this many processes instead, which share one origin")
	redisURL := f.String("redis", "", "the Redis that they share it through, as a URL; without it one in this process")
	if status, ok := s.parse(f, args); !ok {
		return status
	}
	var shared *redis.Options
	if *redisURL != "" {
		var err error
		if shared, err = redis.ParseURL(*redisURL); err != nil {
			return s.misused(f, errors.New("--redis: that is no URL of a Redis: want redis://USER:PASSWORD@HOST:PORT/DATABASE")) // err may quote the password
		}
	}
	switch {
	case f.NArg() > 0:
		return s.misused(f, fmt.Errorf("it takes no arguments, and was given %q", f.Arg(0)))
	case *duration <= 0:
		return s.misused(f, errors.New("--duration must be above 0"))
	case *goroutines <= 0:
		return s.misused(f, errors.New("--goroutines must be above 0"))
	case *processes < 0:
		return s.misused(f, errors.New("--processes must not be negative"))
	case *processes == 0 && *redisURL != "":
		return s.misused(f, errors.New("--redis is for --processes"))
	case *processes > 0:
		return demoCrew(ctx, s, *processes, *goroutines, *duration, *redisURL, shared, *asJSON)
	}

	race, err := newRace(*duration, *goroutines)
	if err != nil {
		fmt.Fprintln(s.err, "heed demo:", err)
		return exitFailed
	}
	defer race.close()
	var watch watcher = silent{}
	if !*asJSON {
		fmt.Fprintf(s.out, "Two equal origins on 127.0.0.1 allow %s, and answer after %v.\n", inWords(demoPolicies), demoRoundTrip)
		fmt.Fprintf(s.out, "%d goroutines ask each of them for all they can get, for %v.\n\n", *goroutines, *duration)
		watch = watchOn(s.out, race)
	}
	race.run(ctx, watch)

	result := race.result()
	if *asJSON {
		err = s.printJSON(result)
	} else {
		err = s.print(result.print)
	}
	heeded := result.Clients[1]
	switch {
	case err != nil:
		fmt.Fprintln(s.err, "heed demo:", err)
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	case heeded.Accepted == 0:
		return s.noneAccepted(*duration)
	case heeded.Refused > 0 || heeded.Failed > 0:
		return exitFailed
	}
	return exitOK
}

// noneAccepted says why a demo that shows nothing failed.
func (s streams) noneAccepted(in time.Duration) int {
	fmt.Fprintf(s.err, "heed demo: no request of heed's was accepted in %v\n", in)
	return exitFailed
}

// A race is two clients side by side, each with an origin of its own.
type race struct {
	duration   time.Duration
	goroutines int
	runners    [2]*runner // the plain one, heed
	took       time.Duration
}

// A runner is a client and the origin it talks to.
type runner struct {
	name     string
	origin   *heedtest.Origin
	url      string
	client   *http.Client
	registry *heed.Registry // nil: it is not heed's
	close    func()
	failed   atomic.Int64
	waits    waits
}

// waiting returns how many requests wait for leave.
func (r *runner) waiting() (n int) {
	if r.registry == nil {
		return 0
	}
	for _, origin := range r.registry.Snapshot() {
		n += origin.Waiting
	}
	return n
}

func newRace(duration time.Duration, goroutines int) (*race, error) {
	r := &race{duration: duration, goroutines: goroutines}
	for i, name := range []string{"plain", "heed"} {
		origin := heedtest.NewOrigin(heedtest.Config{
			Policies: demoPolicies,
			Latency:  heedtest.RoundTrip(demoRoundTrip),
		})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.close()
			return nil, err
		}
		server := &http.Server{Handler: origin, ReadHeaderTimeout: 10 * time.Second}
		go server.Serve(listener)
		base := &http.Transport{MaxIdleConnsPerHost: goroutines}
		run := &runner{name: name, origin: origin, url: "http://" + listener.Addr().String() + "/", client: &http.Client{Transport: base}}
		run.close = func() {
			base.CloseIdleConnections()
			server.Close()
		}
		r.runners[i] = run
	}
	heeding := r.runners[1]
	registry, err := heed.NewRegistry(heed.Config{OnEvent: heeding.waits.hear, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.close()
		return nil, err
	}
	heeding.registry = registry
	heeding.client.Transport = &heed.Transport{Base: heeding.client.Transport, Registry: registry}
	return r, nil
}

func (r *race) close() {
	for _, run := range r.runners {
		if run != nil {
			run.close()
		}
	}
}

// run lets both clients run until their time is up or ctx is done.
func (r *race) run(ctx context.Context, watch watcher) {
	began := time.Now()
	// Not a deadline: heed would decline what could not start before it, and
	// what is to be shown is a job without an end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(r.duration, cancel).Stop()

	var busy sync.WaitGroup
	for _, run := range r.runners {
		for range r.goroutines {
			busy.Go(func() { run.run(ctx) })
		}
	}
	tick := time.NewTicker(watch.every())
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			watch.show(time.Since(began))
		case <-ctx.Done():
		}
	}
	busy.Wait()
	r.took = min(time.Since(began), r.duration)
	watch.end(r.took)
}

// run sends one request after the other until ctx is done.
func (r *runner) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.get(ctx); err != nil && ctx.Err() == nil {
			r.failed.Add(1)
			return
		}
	}
}

func (r *runner) get(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// waits adds up how long requests waited for leave.
type waits struct {
	mu         sync.Mutex
	n          int64
	total, max time.Duration
}

func (w *waits) hear(e heed.Event) {
	if e.Kind != heed.EventAdmitted {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	w.total += e.Wait
	w.max = max(w.max, e.Wait)
}

// seconds returns how long they waited in the mean, and at most.
func (w *waits) seconds() (mean, most float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return (w.total / time.Duration(max(w.n, 1))).Seconds(), w.max.Seconds()
}

// A demoResult is the score of a race. Its JSON form is what --json prints.
type demoResult struct {
	Seconds    float64      `json:"seconds"`
	Goroutines int          `json:"goroutines"`
	Policies   []demoPolicy `json:"policies"`
	Possible   int64        `json:"possible"` // the most an origin could have accepted
	Clients    []demoScore  `json:"clients"`
}

type demoPolicy struct {
	Name          string  `json:"name"`
	Quota         int64   `json:"quota"`
	WindowSeconds float64 `json:"window_seconds"`
}

type demoScore struct {
	Client          string  `json:"client"`
	Accepted        int64   `json:"accepted"`
	Refused         int64   `json:"refused"`
	Share           float64 `json:"share"` // of Possible
	Failed          int64   `json:"failed"`
	MeanWaitSeconds float64 `json:"mean_wait_seconds"`
	MaxWaitSeconds  float64 `json:"max_wait_seconds"`
}

// result is the score of a race that is over.
func (r *race) result() demoResult {
	result := demoResult{Seconds: r.took.Seconds(), Goroutines: r.goroutines, Possible: mostPossible(demoPolicies, r.took)}
	for _, p := range demoPolicies {
		result.Policies = append(result.Policies, demoPolicy{p.Name, p.Quota, p.Window.Seconds()})
	}
	for _, run := range r.runners {
		tally := run.origin.Tally()
		score := demoScore{Client: run.name, Accepted: tally.Accepted, Refused: tally.Refused, Failed: run.failed.Load()}
		if result.Possible > 0 {
			score.Share = float64(tally.Accepted) / float64(result.Possible)
		}
		score.MeanWaitSeconds, score.MaxWaitSeconds = run.waits.seconds()
		result.Clients = append(result.Clients, score)
	}
	return result
}

func (r demoResult) print(w io.Writer) {
	fmt.Fprintf(w, "\n        accepted   refused   of %s possible   waited: mean       most\n", grouped(r.Possible))
	for _, c := range r.Clients {
		fmt.Fprintf(w, "%-5s %10s %9s %15.1f %%", c.Client, grouped(c.Accepted), grouped(c.Refused), 100*c.Share)
		if c.MaxWaitSeconds > 0 {
			fmt.Fprintf(w, " %13.2f s %8.2f s", c.MeanWaitSeconds, c.MaxWaitSeconds)
		}
		fmt.Fprintln(w)
		if c.Failed > 0 {
			fmt.Fprintf(w, "      %d requests of this client failed\n", c.Failed)
		}
	}
	switch h := r.Clients[1]; {
	case h.Refused > 0:
		fmt.Fprintf(w, "\nheed was refused %s times.\n", grouped(h.Refused))
	case h.Accepted > 0:
		fmt.Fprintln(w, "\nheed was never refused.")
	}
}

// mostPossible returns how many requests an origin with these fixed windows,
// each opened by the first request after the one before it, accepts in d from
// a client that knows everything.
func mostPossible(policies []heedtest.Policy, d time.Duration) (total int64) {
	type window struct {
		end  time.Duration
		left int64
	}
	windows := make([]window, len(policies))
	for now := time.Duration(0); now < d; {
		n := policies[0].Quota
		for i, p := range policies {
			if windows[i].end <= now {
				windows[i] = window{now + p.Window, p.Quota}
			}
			n = min(n, windows[i].left)
		}
		total += n
		for i := range windows {
			if windows[i].left -= n; windows[i].left == 0 {
				now = max(now, windows[i].end)
			}
		}
	}
	return total
}
