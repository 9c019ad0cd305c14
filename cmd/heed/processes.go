package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/heedhttp/heed/redisheed"
	"github.com/redis/go-redis/v9"
)

// A crew is the demo with several processes: one origin, and workers that
// share what they know of it through Redis.
type crew struct {
	duration time.Duration
	origin   *heedtest.Origin
	server   *http.Server
	embedded *miniredis.Miniredis // nil: a Redis of the user's
	where    string
	workers  []*worker
}

// workerEnv holds, in JSON, what a process is to do that is run as a worker.
const workerEnv = "HEED_DEMO_WORKER"

// A workerJob is what a worker is to do: begin when its standard input says
// so, stop when it ends, and say how it went.
type workerJob struct {
	URL        string `json:"url"`
	Redis      string `json:"redis"`
	Prefix     string `json:"prefix"`
	Goroutines int    `json:"goroutines"`
}

// A workerScore is how a worker fared. Its JSON form is what it says in the
// end, and what demo --json prints for it.
type workerScore struct {
	PID             int     `json:"pid"`
	Accepted        int64   `json:"accepted"`
	Refused         int64   `json:"refused"`
	Failed          int64   `json:"failed"`
	Trips           int64   `json:"redis_round_trips"`
	MeanWaitSeconds float64 `json:"mean_wait_seconds"`
	MaxWaitSeconds  float64 `json:"max_wait_seconds"`
	Error           string  `json:"error,omitempty"` // the last of those that failed
}

// A crewResult is the score of a crew.
type crewResult struct {
	Seconds    float64       `json:"seconds"`
	Goroutines int           `json:"goroutines"` // in each process
	Policies   []demoPolicy  `json:"policies"`
	Possible   int64         `json:"possible"`
	Accepted   int64         `json:"accepted"`
	Refused    int64         `json:"refused"`
	Share      float64       `json:"share"`
	Peaks      []float64     `json:"peaks"` // by policy: the most accepted in any window, over its quota
	Jain       float64       `json:"jain"`  // Jain's index of fairness: 1 where all processes got the same
	Trips      float64       `json:"redis_round_trips_per_request"`
	Processes  []workerScore `json:"processes"`
}

func demoCrew(ctx context.Context, s streams, n, goroutines int, duration time.Duration, redisURL string, shared *redis.Options, asJSON bool) int {
	c, err := newCrew(n, goroutines, duration, redisURL, shared)
	if err != nil {
		fmt.Fprintln(s.err, "heed demo:", err)
		return exitFailed
	}
	defer c.close()
	if !asJSON {
		fmt.Fprintf(s.out, "One origin on 127.0.0.1 allows %s, and answers after %v.\n", inWords(demoPolicies), demoRoundTrip)
		fmt.Fprintf(s.out, "%d processes with %d goroutines each ask for all they can get, for %v.\nThey share what they know through %s.\n\n", n, goroutines, duration, c.where)
	}
	result, err := c.run(ctx, s, goroutines, asJSON)
	if err != nil {
		fmt.Fprintln(s.err, "heed demo:", err)
		return exitFailed
	}
	if asJSON {
		err = s.printJSON(result)
	} else {
		err = s.print(result.print)
	}
	failed := result.Refused > 0
	for _, w := range result.Processes {
		failed = failed || w.Failed > 0
	}
	switch {
	case err != nil:
		fmt.Fprintln(s.err, "heed demo:", err)
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	case result.Accepted == 0:
		return s.noneAccepted(duration)
	case failed:
		return exitFailed
	}
	return exitOK
}

// newCrew starts n workers that share the Redis at a URL, which says what shared does; "":
// one in this process.
func newCrew(n, goroutines int, duration time.Duration, redisURL string, shared *redis.Options) (_ *crew, err error) {
	c := &crew{duration: duration}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	// A key of its own, so that one demo's books are not another's.
	job := workerJob{Redis: redisURL, Prefix: fmt.Sprintf("heed-demo-%d-%d", os.Getpid(), time.Now().UnixNano()), Goroutines: goroutines}
	if redisURL == "" {
		if c.embedded, err = miniredis.Run(); err != nil {
			return nil, err
		}
		job.Redis = "redis://" + c.embedded.Addr()
		c.where = "a Redis in this process"
	} else if err := reach(shared); err != nil {
		return nil, err
	} else {
		c.where = "the Redis at " + shared.Addr
	}
	c.origin = heedtest.NewOrigin(heedtest.Config{Policies: demoPolicies, Latency: heedtest.RoundTrip(demoRoundTrip)})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.server = &http.Server{Handler: c.origin, ReadHeaderTimeout: 10 * time.Second}
	go c.server.Serve(listener)
	job.URL = "http://" + listener.Addr().String() + "/"
	for range n {
		w, err := startWorker(job)
		if err != nil {
			return nil, err
		}
		c.workers = append(c.workers, w)
	}
	return c, nil
}

// reach reports whether there is such a Redis.
func reach(o *redis.Options) error {
	client := redis.NewClient(o)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("no Redis at %s: %w", o.Addr, err)
	}
	return nil
}

func (c *crew) close() {
	for _, w := range c.workers {
		w.kill()
	}
	if c.server != nil {
		c.server.Close()
	}
	if c.embedded != nil {
		c.embedded.Close()
	}
}

// run lets all workers run until their time is up or ctx is done.
func (c *crew) run(ctx context.Context, s streams, goroutines int, quiet bool) (*crewResult, error) {
	began := time.Now()
	for _, w := range c.workers {
		w.begin()
	}
	up := time.NewTimer(c.duration)
	defer up.Stop()
	tick := time.NewTicker(max(c.duration/10, 100*time.Millisecond))
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
			if t := c.origin.Tally(); !quiet {
				fmt.Fprintf(s.out, "%5.1f s   %s accepted, %s refused\n", time.Since(began).Seconds(), grouped(t.Accepted), grouped(t.Refused))
			}
		case <-up.C:
			running = false
		case <-ctx.Done():
			running = false
		}
	}
	took := min(time.Since(began), c.duration)
	tally := c.origin.Tally()
	for _, w := range c.workers {
		w.end()
	}
	r := &crewResult{
		Seconds: took.Seconds(), Goroutines: goroutines, Possible: mostPossible(demoPolicies, took),
		Accepted: tally.Accepted, Refused: tally.Refused,
	}
	if r.Possible > 0 {
		r.Share = float64(r.Accepted) / float64(r.Possible)
	}
	for i, p := range demoPolicies {
		r.Policies = append(r.Policies, demoPolicy{p.Name, p.Quota, p.Window.Seconds()})
		r.Peaks = append(r.Peaks, float64(tally.Policies[i].PeakInWindow)/float64(p.Quota))
	}
	var sum, squares, trips float64
	for _, w := range c.workers {
		score, err := w.score()
		if err != nil {
			return nil, err
		}
		r.Processes = append(r.Processes, score)
		x := float64(score.Accepted)
		sum, squares, trips = sum+x, squares+x*x, trips+float64(score.Trips)
	}
	if sum > 0 {
		r.Jain = sum * sum / (float64(len(c.workers)) * squares)
		r.Trips = trips / sum
	}
	return r, nil
}

func (r *crewResult) print(w io.Writer) {
	fmt.Fprint(w, "\nprocess   accepted   refused   waited: mean       most\n")
	for i, p := range r.Processes {
		fmt.Fprintf(w, "%7d %10s %9s %14.2f s %8.2f s\n", i+1, grouped(p.Accepted), grouped(p.Refused), p.MeanWaitSeconds, p.MaxWaitSeconds)
		if p.Failed > 0 {
			fmt.Fprintf(w, "        %d of its requests failed: %s\n", p.Failed, p.Error)
		}
	}
	fmt.Fprintf(w, "%7s %10s %9s\n\n", "all", grouped(r.Accepted), grouped(r.Refused))
	fmt.Fprintf(w, "%.1f %% of the %s possible; shared out with a fairness of %.3f; %.2f round trips to Redis per request.\n", 100*r.Share, grouped(r.Possible), r.Jain, r.Trips)
	fmt.Fprint(w, "The most in any window:")
	for i, p := range r.Policies {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, " %.2f of %q", r.Peaks[i], p.Name)
	}
	fmt.Fprintln(w, ".")
	if r.Refused > 0 {
		fmt.Fprintf(w, "\nTogether they were refused %s times.\n", grouped(r.Refused))
	} else if r.Accepted > 0 {
		fmt.Fprintln(w, "\nTogether they were never refused.")
	}
}

// A worker is a process of the crew.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker(job workerJob) (*worker, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(exe)}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	w.cmd.Stderr = os.Stderr
	ownGroup(w.cmd)
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := w.out.ReadString('\n'); err != nil || line != "ready\n" {
		w.kill()
		return nil, fmt.Errorf("a process of the demo did not start: %q, %v", line, err)
	}
	return w, nil
}

func (w *worker) begin() { io.WriteString(w.in, "go\n") }

func (w *worker) end() { w.in.Close() }

func (w *worker) score() (s workerScore, err error) {
	if err := json.NewDecoder(w.out).Decode(&s); err != nil {
		return s, fmt.Errorf("a process of the demo did not say how it went: %w", err)
	}
	return s, w.cmd.Wait()
}

func (w *worker) kill() {
	if w.cmd.ProcessState == nil {
		w.cmd.Process.Kill()
		w.cmd.Wait()
	}
}

// workIfAsked is a worker's main; it reports whether the process is one.
func workIfAsked() bool {
	text := os.Getenv(workerEnv)
	if text == "" {
		return false
	}
	if err := work(text); err != nil {
		fmt.Fprintln(os.Stderr, "heed demo:", err)
		os.Exit(exitFailed)
	}
	return true
}

func work(text string) error {
	var job workerJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	o, err := redis.ParseURL(job.Redis)
	if err != nil {
		return err
	}
	client := redis.NewClient(o)
	defer client.Close()
	var trips tripCounter
	client.AddHook(&trips)
	log := slog.New(slog.DiscardHandler)
	ledger := redisheed.New(client, redisheed.Options{Prefix: job.Prefix, Logger: log, Seed: []byte(job.Prefix)})
	defer ledger.Close()
	var run runner
	registry, err := heed.NewRegistry(heed.Config{Ledger: ledger, OnEvent: run.waits.hear, Logger: log})
	if err != nil {
		return err
	}
	base := &http.Transport{MaxIdleConnsPerHost: job.Goroutines}
	var accepted, refused atomic.Int64
	run.url, run.client = job.URL, &http.Client{Transport: counting{
		&heed.Transport{Base: base, Registry: registry, Retry: heed.Retry{Max: -1}}, &accepted, &refused,
	}}

	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return nil // the demo was given up
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	score := workerScore{PID: os.Getpid()}
	var busy sync.WaitGroup
	for range job.Goroutines {
		busy.Go(func() {
			for ctx.Err() == nil {
				if err := run.get(ctx); err != nil && ctx.Err() == nil {
					mu.Lock()
					score.Failed++
					score.Error = err.Error()
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
	io.Copy(io.Discard, in) // until the demo is over
	cancel()
	busy.Wait()
	if err := errors.Join(registry.Close(), ledger.Close()); err != nil && score.Error == "" {
		score.Error = err.Error()
	}
	score.Accepted, score.Refused, score.Trips = accepted.Load(), refused.Load(), trips.n.Load()
	score.MeanWaitSeconds, score.MaxWaitSeconds = run.waits.seconds()
	return json.NewEncoder(os.Stdout).Encode(score)
}

// counting counts answers by what they are.
type counting struct {
	base              http.RoundTripper
	accepted, refused *atomic.Int64
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(req)
	switch {
	case err != nil:
	case resp.StatusCode < 400:
		c.accepted.Add(1)
	default:
		c.refused.Add(1)
	}
	return resp, err
}

// tripCounter counts commands sent to Redis. It is a redis.Hook.
type tripCounter struct{ n atomic.Int64 }

func (h *tripCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
