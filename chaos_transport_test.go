package heed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Hundreds of goroutines send what can be sent through Transports, to origins
// that do what can be done to a client, alone and over a shared ledger that is
// lost now and then. Nothing may hang, no goroutine be left, and in the end every
// unit taken has to be accounted for.
func TestBooksBalanceAfterChaosOfTransports(t *testing.T) {
	for seed := range uint64(2) {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint("seed ", seed, ", shared ", shared), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { chaosOfTransports(t, seed, shared) })
			})
		}
	}
}

var errChaos = errors.New("chaos")

func chaosOfTransports(t *testing.T, seed uint64, shared bool) {
	const goroutines, rounds = 200, 8
	b := &books{rtt: 2 * time.Millisecond}
	var registries []*Registry
	for range 2 {
		c := Config{Logger: slog.New(slog.DiscardHandler), MaxOrigins: 10, IdleAfter: 20 * time.Second, OnEvent: func(e Event) {
			if e.Kind == EventWaiting && e.Time.Nanosecond()%97 == 0 {
				panic(errChaos)
			}
		}}
		if shared {
			c.Ledger = b.process()
		}
		r, err := NewRegistry(c)
		if err != nil {
			t.Fatal(err)
		}
		registries = append(registries, r)
	}
	stop := make(chan struct{})
	var meddlers, busy sync.WaitGroup
	for i, r := range registries {
		meddlers.Go(func() { chaosMeddle(t, r, rand.New(rand.NewPCG(seed, uint64(i))), stop) })
	}
	if shared {
		meddlers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 2))
			for chaosWait(stop, chaosTime(rnd, 3*time.Second)) {
				b.mu.Lock()
				if b.down = nil; rnd.IntN(4) == 0 {
					b.down = errChaos
				}
				b.mu.Unlock()
			}
		})
	}
	for g := range goroutines {
		busy.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)+10))
			tr := &Transport{Base: &chaosBase{rnd: rand.New(rand.NewPCG(seed, uint64(g)+10_000))}, Registry: registries[g%len(registries)]}
			if g%3 == 0 {
				tr.Retry.Check = func(_ *http.Request, resp *http.Response, err error) bool {
					return err != nil || resp.StatusCode >= 500
				}
			}
			c := tr.Client()
			if g%5 == 0 {
				c = (&Pool{Transport: tr, Tokens: func(context.Context) ([]string, error) { return []string{"0", "1", "2"}, nil }}).Client()
			}
			for range rounds {
				time.Sleep(chaosTime(rnd, 5*time.Second))
				chaosSend(t, c, rnd)
			}
		})
	}
	busy.Wait()
	close(stop)
	meddlers.Wait()
	b.mu.Lock()
	b.down = nil
	b.mu.Unlock()
	for _, r := range registries {
		if err := r.SetAllLimits(Limits{}, nil); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(time.Hour)
	for _, r := range registries {
		for _, o := range r.all() {
			checkBooks(t, o)
		}
	}
	for name, acc := range b.accounts {
		if acc.inFlight != 0 {
			t.Errorf("%s: %d in flight, as the ledger knows", name, acc.inFlight)
		}
	}
	for _, r := range registries {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// chaosWait waits and reports true, or false where it is time to stop.
func chaosWait(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return false
	case <-time.After(d):
		return true
	}
}

// chaosCatch recovers from what the user's own functions panic with.
func chaosCatch() {
	if e := recover(); e != nil && e != errChaos {
		panic(e)
	}
}

// chaosSend makes one request and does with the answer what callers do.
func chaosSend(t *testing.T, c *http.Client, rnd *rand.Rand) {
	defer chaosCatch()
	ctx, cancel := chaosContext(t.Context(), rnd)
	defer cancel()
	req := chaosRequest(rnd).WithContext(ctx)
	switch req.URL.Path = fmt.Sprint("/r", rnd.IntN(40)); rnd.IntN(6) {
	case 0:
		req.Method = "HEAD"
	case 1:
		req.Method = "POST"
		req.Body, req.GetBody = io.NopCloser(strings.NewReader("0123456789")), nil
	case 2:
		req.Method = "PUT"
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("0123456789")), nil }
		req.Body, _ = req.GetBody()
	}
	resp, err := c.Do(req)
	if err != nil {
		return
	}
	var closing sync.WaitGroup
	switch rnd.IntN(4) {
	case 0:
		io.Copy(io.Discard, resp.Body)
	case 1:
		io.CopyN(io.Discard, resp.Body, 5)
	case 2: // as it is read
		closing.Go(func() { resp.Body.Close() })
		io.Copy(io.Discard, resp.Body)
	}
	resp.Body.Close()
	closing.Wait()
}

// A chaosBase is the base transport of one goroutine.
type chaosBase struct{ rnd *rand.Rand }

func (b *chaosBase) RoundTrip(req *http.Request) (*http.Response, error) {
	rnd := b.rnd
	if req.Body != nil {
		io.CopyN(io.Discard, req.Body, rnd.Int64N(20))
		req.Body.Close()
	}
	select {
	case <-time.After(chaosTime(rnd, 400*time.Millisecond)):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	h := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
	switch rnd.IntN(6) {
	case 0:
		h.Set("RateLimit-Policy", fmt.Sprintf(`"x";q=%d;w=%d, "y%d";q=%d;w=2`, 1+rnd.IntN(100), 1+rnd.IntN(5), rnd.IntN(3), 1+rnd.IntN(100)))
		h.Set("RateLimit", fmt.Sprintf(`"x";r=%d;t=%d`, rnd.IntN(50), rnd.IntN(5)))
	case 1:
		h.Set("X-RateLimit-Bucket", fmt.Sprint("b", rnd.IntN(6)))
		h.Set("X-RateLimit-Limit", fmt.Sprint(rnd.IntN(30)))
		h.Set("X-RateLimit-Remaining", fmt.Sprint(rnd.IntN(20)))
		h.Set("X-RateLimit-Reset-After", fmt.Sprint(rnd.IntN(4)))
	case 2:
		h.Set("X-RateLimit-Remaining", fmt.Sprint(rnd.IntN(3)))
	case 3:
		h.Set("RateLimit-Policy", fmt.Sprintf(`"z";q=%d;w=1;qu="content-bytes", "c";q=%d;qu="concurrent-requests"`, 1+rnd.IntN(1<<12), 1+rnd.IntN(9)))
	}
	if rnd.IntN(6) == 0 {
		h.Set("Retry-After", fmt.Sprint(rnd.IntN(4)))
	}
	if rnd.IntN(20) == 0 {
		h.Set("Age", "3")
	}
	var body io.ReadCloser = &chaosBody{left: rnd.IntN(40)}
	resp := &http.Response{StatusCode: 200, Header: h, Body: body, ContentLength: -1, Request: req}
	switch rnd.IntN(16) {
	case 0, 1:
		resp.StatusCode = 429
	case 2:
		resp.StatusCode = 429
		h.Set("Content-Type", "application/problem+json")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["x"]`), body, strings.NewReader("}")))
	case 3:
		resp.StatusCode = 503
	case 4:
		resp.StatusCode = 500
	case 5:
		resp.StatusCode = 401
	case 6:
		resp.StatusCode = 302
		h.Set("Location", chaosOrigin(rnd)+"/r0")
	case 7:
		resp.StatusCode, resp.Body = 204, http.NoBody
	case 8:
		return nil, &net.OpError{Op: "dial", Err: errChaos}
	case 9:
		return nil, errChaos
	case 10:
		if rnd.IntN(3) == 0 {
			panic(errChaos)
		}
	}
	return resp, nil
}

// A chaosBody comes slowly, and not always to its end.
type chaosBody struct {
	mu   sync.Mutex
	left int
}

func (b *chaosBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Millisecond << b.left % 8)
	if b.left == 7 {
		return 0, errChaos
	}
	b.left--
	return copy(p, "x"), nil
}

func (b *chaosBody) Close() error { return nil }
