package redisheed

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
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
	go watchStalls()
	redis.SetLogger(quietly{}) // of connections to servers that are down on purpose
	os.Exit(m.Run())
}

type quietly struct{}

func (quietly) Printf(context.Context, string, ...any) {}

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

// A distance is how long each command is on its way. It is a redis.Hook.
type distance time.Duration

func (d distance) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d distance) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}

func (d distance) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmds)
	}
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

// utilisation is the share of a quota that was used: how long it was from one
// accepted request to the one a quota later, against the window. The median
// counts: that the machine stood still for a while is no fault of ours.
func utilisation(events []heedtest.Event, quota int, window time.Duration) float64 {
	var at []time.Duration
	for _, e := range events {
		if e.Accepted {
			at = append(at, e.Arrival)
		}
	}
	var took []time.Duration
	for i := quota; i < len(at); i++ {
		took = append(took, at[i]-at[i-quota])
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(window) / float64(took[len(took)/2])
}

const (
	sharedQuota  = 100
	sharedWindow = 5 * time.Second
)

// A scene is an origin that four processes share, and how it went.
type scene struct {
	name      string
	addrs     []string // of Redis
	announced bool

	tally  heedtest.Tally
	used   float64
	each   []int64
	trips  float64
	errors []string
}

// play has a process use up a quota, so that the four all have to wait from
// the start, and then lets them run for three windows.
func (s *scene) play(t testing.TB) {
	j := job{
		Redis: s.addrs, Goroutines: 16, Policies: []heed.Policy{{Name: "p", Quota: sharedQuota, Window: sharedWindow}},
		Options: Options{Prefix: rand.Text(), Timeout: patience},
	}
	config := heedtest.Config{Record: true, Algorithm: heedtest.SlidingWindow, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Name: "p", Quota: sharedQuota, Window: sharedWindow}}}
	if s.announced {
		config.Dialect, j.Policies = "", nil
	}
	o, url := origin(t, config)
	j.Origin = url
	first := startWorker(t, j)
	var four []*worker
	for range 4 {
		four = append(four, startWorker(t, j))
	}
	first.begin()
	eventually(t, sharedWindow, "a quota is used up", func() bool { return o.Tally().Accepted >= sharedQuota*9/10 })
	first.stop()
	for _, w := range four {
		w.begin()
	}
	time.Sleep(3*sharedWindow + sharedWindow/2)
	s.tally, s.used = o.Tally(), utilisation(o.Events(), sharedQuota, sharedWindow)
	for _, w := range four {
		w.in.Close()
	}
	s.each, s.errors = nil, nil
	var trips, ok int64
	for _, w := range four {
		wt := w.stop()
		s.each = append(s.each, wt.OK)
		trips, ok = trips+wt.Trips, ok+wt.OK
		if wt.Errors > 0 {
			s.errors = append(s.errors, fmt.Sprintf("%d, the last: %s", wt.Errors, wt.LastError))
		}
	}
	s.trips = float64(trips) / float64(max(ok, 1))
}

// kept reports whether nothing was refused and no window had too many.
func (s *scene) kept() bool { return s.tally.Refused == 0 && s.tally.PeakInWindow <= sharedQuota }

// well reports whether the quota was used, and shared out evenly.
func (s *scene) well() bool { return s.used >= 0.97 && jain(s.each) >= 0.95 && len(s.errors) == 0 }

func (s *scene) String() string {
	return fmt.Sprintf("accepted %d, refused %d, peak %d, used %.3f, Jain %.4f %v, %.3f trips per request, errors %q",
		s.tally.Accepted, s.tally.Refused, s.tally.PeakInWindow, s.used, jain(s.each), s.each, s.trips, s.errors)
}

func TestAProcessKilledWithLeasesInHandStopsNobody(t *testing.T) {
	t.Parallel()
	const quota, window = 1000, 2 * time.Second
	server := startServer(t)
	o, url := origin(t, heedtest.Config{
		Record: true, Algorithm: heedtest.SlidingWindow, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: quota, Window: window}},
	})
	j := job{
		Redis: []string{server.addr}, Origin: url, Goroutines: 16, Rate: 150, // three of them: a little below the quota
		Policies: []heed.Policy{{Name: "p", Quota: quota, Window: window}}, Options: Options{Timeout: patience},
	}
	dead, others := startWorker(t, j), []*worker{startWorker(t, j), startWorker(t, j)}
	j.Rate = 0
	greedy := startWorker(t, j)
	for _, w := range append(others, dead) {
		w.begin()
	}
	time.Sleep(window)
	dead.kill()
	killed := time.Now()
	greedy.begin() // there is demand for all that it leaves
	time.Sleep(2*time.Second + window + window/4)
	accepted := 0
	from := killed.Add(2 * time.Second).Sub(o.Began())
	for _, e := range o.Events() {
		if e.Accepted && e.Arrival >= from && e.Arrival < from+window+window/4 {
			accepted++
		}
	}
	for _, w := range append(others, greedy) {
		if wt := w.stop(); wt.Errors > 0 || wt.Longest > 2*window {
			t.Errorf("%+v", wt)
		}
	}
	tally := o.Tally()
	t.Logf("%d accepted in a window and a quarter that begin 2 s after it, %d refused in all, peak %d", accepted, tally.Refused, tally.PeakInWindow)
	if tally.Refused > 0 || tally.PeakInWindow > quota {
		t.Errorf("%d refused, at most %d in a window", tally.Refused, tally.PeakInWindow)
	}
	if accepted < quota*9/10 {
		t.Errorf("%d accepted in a window, want about %d", accepted, quota)
	}
}

// That nothing is refused must hold however busy the machine is. That all is
// used, and evenly, takes processes that run when it is their turn: a scene
// that goes otherwise is played again.
func TestFourProcessesLookLikeOnePoliteClient(t *testing.T) {
	t.Parallel()
	needServer(t)
	single := []string{startServer(t).addr}
	cluster := startCluster(t).(*redis.ClusterClient).Options().Addrs
	scenes := []*scene{
		{name: "one server, configured", addrs: single},
		{name: "one server, announced", addrs: single, announced: true},
		{name: "cluster, configured", addrs: cluster},
		{name: "cluster, announced", addrs: cluster, announced: true},
	}
	// All at once, but not in step: they have little to do but when a window
	// ends.
	var wg sync.WaitGroup
	for i, s := range scenes {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * sharedWindow / 4)
			s.play(t)
		})
	}
	wg.Wait()
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			for try := 1; ; try++ {
				t.Log(s)
				if !s.kept() {
					t.Fatalf("want no refusal, and %d in a window at most", sharedQuota)
				}
				if s.well() {
					return
				}
				if try == 3 {
					t.Fatal("want 0.97 of the quota used, and a Jain's index of 0.95")
				}
				s.play(t)
			}
		})
	}
}
