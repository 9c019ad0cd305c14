package redisheed

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/redis/go-redis/v9"
)

// Tests that need several processes run the test binary again, as a worker.
const workerEnv = "REDISHEED_WORKER"

func TestMain(m *testing.M) {
	if job := os.Getenv(workerEnv); job != "" {
		work(job)
		return
	}
	os.Exit(m.Run())
}

// A job is what a worker does: send requests from so many goroutines until
// its standard input ends. It then writes a tally to its standard output.
type job struct {
	Redis      []string
	Origin     string
	Goroutines int
	Policies   []heed.Policy
	InFlight   int           // MaxConcurrent
	Options    Options       // without a logger
	Rate       float64       // requests per second in all; 0: as many as may
	Hold       time.Duration // how long a response's body is kept open
}

type workerTally struct {
	OK, Refused, Errors int64
	Trips               int64
	LastError           string
	Longest             time.Duration // of a wait
}

func work(text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: j.Redis})
	var t workerTally
	c.AddHook(&tripCounter{n: &t.Trips})
	j.Options.Logger = slog.New(slog.DiscardHandler)
	l := New(c, j.Options)
	r, err := heed.NewRegistry(heed.Config{
		Default: heed.Limits{Policies: j.Policies, MaxConcurrent: j.InFlight, Smoothing: heed.Smoothing{Off: true}, MinBackoff: 10 * time.Millisecond},
		Ledger:  l, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	client := (&heed.Transport{Registry: r, Base: &http.Transport{MaxIdleConnsPerHost: 64}, Retry: heed.Retry{Max: -1}}).Client()
	os.Stdout.WriteString("ready\n")
	in := bufio.NewReader(os.Stdin)
	in.ReadString('\n')
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range j.Goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				if j.Rate > 0 {
					time.Sleep(time.Duration(float64(j.Goroutines) / j.Rate * float64(time.Second)))
				}
				began := time.Now()
				req, _ := http.NewRequestWithContext(ctx, "GET", j.Origin, nil)
				req.Header.Set("Authorization", "Bearer shared")
				resp, err := client.Do(req)
				mu.Lock()
				t.Longest = max(t.Longest, time.Since(began))
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Errors++
					t.LastError = err.Error()
				case resp.StatusCode == 200:
					t.OK++
				default:
					t.Refused++
				}
				mu.Unlock()
				if err == nil {
					time.Sleep(j.Hold)
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				} else if ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	io.Copy(io.Discard, in)
	stop()
	wg.Wait()
	r.Close()
	l.Close()
	json.NewEncoder(os.Stdout).Encode(&t)
}

// tripCounter counts the round trips of commands. It is a redis.Hook.
type tripCounter struct{ n *int64 }

func (h *tripCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if n := cmd.Name(); n != "hello" && n != "client" {
			atomic.AddInt64(h.n, 1)
		}
		return next(ctx, cmd)
	}
}

func (h *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A worker is another process at work.
type worker struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker(t testing.TB, j job) *worker {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	w.cmd.Stderr = os.Stderr
	in, _ := w.cmd.StdinPipe()
	out, _ := w.cmd.StdoutPipe()
	w.in, w.out = in, bufio.NewReader(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kill)
	if line, err := w.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the worker said %q, %v", line, err)
	}
	return w
}

// startWorkers starts n workers that begin at once.
func startWorkers(t testing.TB, n int, j job) []*worker {
	var ws []*worker
	for range n {
		ws = append(ws, startWorker(t, j))
	}
	for _, w := range ws {
		w.begin()
	}
	return ws
}

// begin has the worker begin.
func (w *worker) begin() { io.WriteString(w.in, "go\n") }

// stop has the worker finish, and returns its tally.
func (w *worker) stop() (t workerTally) {
	w.t.Helper()
	w.in.Close()
	if err := json.NewDecoder(w.out).Decode(&t); err != nil {
		w.t.Fatal("the worker's tally: ", err)
	}
	w.cmd.Wait()
	return t
}

// kill ends the worker at once, as kill -9 does.
func (w *worker) kill() {
	if w.cmd.ProcessState == nil {
		w.cmd.Process.Kill()
		w.cmd.Wait()
	}
}

// origin serves an origin that enforces limits.
func origin(t testing.TB, c heedtest.Config) (*heedtest.Origin, string) {
	o := heedtest.NewOrigin(c)
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	return o, s.URL
}

// jain is Jain's index of fairness: 1 where all have the same.
func jain(xs []int64) float64 {
	var sum, squares float64
	for _, x := range xs {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum * sum / (float64(len(xs)) * squares)
}

// utilisation is the share of a quota that was used: how long the k-th unit
// after another took to be accepted, against the window.
func utilisation(events []heedtest.Event, quota int, window time.Duration) float64 {
	var at []time.Duration
	for _, e := range events {
		if e.Accepted {
			at = append(at, e.Arrival)
		}
	}
	if len(at) <= quota {
		return 0
	}
	var sum time.Duration
	for i := quota; i < len(at); i++ {
		sum += at[i] - at[i-quota]
	}
	return float64(window) / (float64(sum) / float64(len(at)-quota))
}

const (
	sharedQuota  = 100
	sharedWindow = 5 * time.Second
)

func TestFourProcessesLookLikeOnePoliteClient(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		for _, announced := range []bool{false, true} {
			name := map[bool]string{false: "one server", true: "cluster"}[cluster] + map[bool]string{false: ", configured", true: ", announced"}[announced]
			t.Run(name, func(t *testing.T) {
				needServer(t)
				j := job{Goroutines: 16}
				if cluster {
					opts := startCluster(t).(*redis.ClusterClient).Options()
					j.Redis = opts.Addrs
				} else {
					j.Redis = []string{startServer(t).addr}
				}
				config := heedtest.Config{Record: true, Algorithm: heedtest.SlidingWindow, Policies: []heedtest.Policy{{Name: "p", Quota: sharedQuota, Window: sharedWindow}}}
				if !announced {
					config.Dialect = heedtest.Silent
					j.Policies = []heed.Policy{{Name: "p", Quota: sharedQuota, Window: sharedWindow}}
				}
				o, url := origin(t, config)
				j.Origin = url
				workers := startWorkers(t, 4, j)
				const windows = 3
				time.Sleep(windows*sharedWindow + sharedWindow/2)
				tally := o.Tally()
				var each []int64
				var trips, ok int64
				for _, w := range workers {
					w.in.Close()
				}
				for _, w := range workers {
					wt := w.stop()
					each = append(each, wt.OK)
					trips, ok = trips+wt.Trips, ok+wt.OK
					if wt.Errors > 0 {
						t.Errorf("%d errors: %s", wt.Errors, wt.LastError)
					}
				}
				used := utilisation(o.Events(), sharedQuota, sharedWindow)
				t.Logf("accepted %d, refused %d, peak %d, used %.3f, Jain %.4f %v, %.3f trips per request", tally.Accepted, tally.Refused, tally.PeakInWindow, used, jain(each), each, float64(trips)/float64(ok))
				if tally.Refused != 0 || tally.PeakInWindow > sharedQuota {
					t.Errorf("%d refused, at most %d in a window, want none and %d", tally.Refused, tally.PeakInWindow, sharedQuota)
				}
				if used < 0.97 {
					t.Errorf("%.3f of the quota used", used)
				}
				if jain(each) < 0.95 {
					t.Errorf("Jain's index is %.3f: %v", jain(each), each)
				}
			})
		}
	}
}
