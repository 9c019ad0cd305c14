package heed_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

var discard = slog.New(slog.DiscardHandler)

const example = "https://api.example.org"

func newRegistry(t testing.TB, c heed.Config) *heed.Registry {
	t.Helper()
	if c.Logger == nil {
		c.Logger = discard
	}
	r, err := heed.NewRegistry(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func request(url string, header ...string) *http.Request {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		panic(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

func answer(status int, header ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Add(header[i], header[i+1])
	}
	return resp
}

// acquire is Acquire for a request that must be granted.
func acquire(t testing.TB, r *heed.Registry, req *http.Request) *heed.Permit {
	t.Helper()
	pm, err := r.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return pm
}

// meet gets the scouting of an origin over with.
func meet(t testing.TB, r *heed.Registry, url string) {
	t.Helper()
	for range 12 { // 1, 2, 4, …
		pm := acquire(t, r, request(url))
		pm.Observe(answer(200))
		pm.Release()
	}
}

// A waiting is an Acquire under way on a goroutine of its own.
type waiting struct {
	permit *heed.Permit
	err    error
	at     time.Duration // since start
	over   atomic.Bool
}

// done reports whether it is over, and the rest is set.
func (w *waiting) done() bool { return w.over.Load() }

func start(ctx context.Context, r *heed.Registry, req *http.Request) *waiting {
	w := &waiting{}
	began := time.Now()
	go func() {
		w.permit, w.err = r.Acquire(ctx, req)
		w.at = time.Since(began)
		w.over.Store(true)
	}()
	synctest.Wait()
	return w
}

// limitErr is the LimitError that err is.
func limitErr(t testing.TB, err error) *heed.LimitError {
	t.Helper()
	var le *heed.LimitError
	if !errors.As(err, &le) {
		t.Fatalf("error is %v, want a *LimitError", err)
	}
	return le
}

// manyRequests skips a test of so many requests, all in one bubble after another, that the race detector, under which
// -short is set, would take too long over it and find nothing that the others do not show it. Else it runs beside others
// like it, once those against real servers are over.
func manyRequests(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("plays very many requests")
	}
	t.Parallel()
}

// sideBySide lets a test of many requests run beside others where the race detector, under which
// -short is set, makes it take seconds. Without it they leave a core to tests of real servers.
func sideBySide(t *testing.T) {
	if testing.Short() {
		t.Parallel()
	}
}

// asking has goroutines ask until an instant, each one time after the other, or until an error: the registry was
// closed. ask is told which of them it is that asks, from 0 on.
func asking(goroutines int, end time.Time, ask func(i int) (*http.Response, error)) *sync.WaitGroup {
	var busy sync.WaitGroup
	for i := range goroutines {
		busy.Go(func() {
			for time.Now().Before(end) {
				resp, err := ask(i)
				if err != nil {
					return
				}
				resp.Body.Close()
			}
		})
	}
	return &busy
}

// askAtOnce has goroutines ask for all they can get for so long, and then closes the registry.
func askAtOnce(tr *heed.Transport, goroutines int, length time.Duration) {
	end := time.Now().Add(length)
	busy := asking(goroutines, end, func(int) (*http.Response, error) { return tr.RoundTrip(request(example)) })
	time.Sleep(time.Until(end))
	tr.Registry.Close()
	busy.Wait()
}
