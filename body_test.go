package heed_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// An opaque is a body of n bytes that tells nobody what it is.
type opaque struct {
	n      int64
	closed int
}

func (o *opaque) Read(p []byte) (int, error) {
	if o.n == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), o.n)
	o.n -= n
	return int(n), nil
}
func (o *opaque) Close() error { o.closed++; return nil }

func TestUploadStreams(t *testing.T) {
	const size = 64 << 20
	received := make(chan int64, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		buf := make([]byte, 64<<10)
		n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, req.Body, buf)
		received <- n
	}))
	defer server.Close()
	for name, limits := range map[string]heed.Limits{
		"plain": {},
		"bytes counted": {MaxConcurrent: 1, Policies: []heed.Policy{
			{Name: "bytes", Quota: 1 << 40, Window: time.Minute, Unit: heed.UnitContentBytes}}},
	} {
		t.Run(name, func(t *testing.T) {
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			tr := quiet(t, base, limits)
			send := func(size int64) {
				body := &opaque{n: size}
				req, _ := http.NewRequest(http.MethodPut, server.URL, body)
				status, _ := sendOne(t, tr, req)
				if got := <-received; status != 200 || got != size || body.closed == 0 {
					t.Fatalf("status %d, %d bytes received, closed %d times", status, got, body.closed)
				}
			}
			send(1) // connects
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			send(size)
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
				t.Errorf("%d bytes allocated for %d sent", allocated, size)
			}
		})
	}
}

func TestOpaqueBodyIsSentOnce(t *testing.T) {
	for _, status := range []string{"429 Retry-After: 1", "503 Retry-After: 1"} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []string{status, "200"}}
			tr := quiet(t, base, heed.Limits{})
			req, _ := http.NewRequest(http.MethodPut, site, io.NopCloser(strings.NewReader("content")))
			began := time.Now()
			if _, body := sendOne(t, tr, req); body != status || len(base.starts) != 1 || time.Since(began) != 0 {
				t.Errorf("%q after %d requests in %v", body, len(base.starts), time.Since(began))
			}
			began = time.Now()
			if _, body := sendOne(t, tr, get(t.Context(), site)); body != "200" || time.Since(began) < time.Second {
				t.Errorf("%q after %v: the refusal held nobody", body, time.Since(began))
			}
		})
	}
}

func TestResponseStreams(t *testing.T) {
	for name, status := range map[string]int{"answer": 200, "refusal that is not tried again": 429} {
		t.Run(name, func(t *testing.T) {
			rest := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(status)
				io.WriteString(w, "first")
				w.(http.Flusher).Flush()
				<-rest
				io.WriteString(w, "rest")
			}))
			defer server.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			resp, err := quiet(t, base, heed.Limits{}).RoundTrip(get(ctx, server.URL))
			if err != nil {
				t.Fatal(err)
			}
			first := make([]byte, 5)
			if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
				t.Errorf("%q, %v", first, err)
			}
			close(rest)
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(b) != "rest" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// What is read ahead of a refusal while its retry waits reads as before.
func TestRefusalIsWholeAfterTheWait(t *testing.T) {
	for _, size := range []int{0, 1, 16<<10 - 1, 16 << 10, 16<<10 + 1, 1 << 20} {
		for name, status := range map[string]int{"429": 429, "503": 503, "problem": 429} {
			t.Run(fmt.Sprint(name, " of ", size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					content := make([]byte, size)
					for i := range content {
						content[i] = byte(rand.Int())
					}
					base, conns := network(t, func(w http.ResponseWriter, req *http.Request) {
						if name == "problem" {
							w.Header().Set("Content-Type", "application/problem+json")
						}
						w.WriteHeader(status)
						w.Write(content)
					})
					tr := quiet(t, base, heed.Limits{})
					time.AfterFunc(2*time.Second, func() { tr.Registry.Pause(origin(t), time.Hour) })
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
					defer cancel()
					began := time.Now()
					resp, err := tr.RoundTrip(get(ctx, origin(t)))
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took != 2*time.Second || resp.StatusCode != status {
						t.Errorf("status %d after %v", resp.StatusCode, took)
					}
					b, err := io.ReadAll(resp.Body)
					if err != nil || !bytes.Equal(b, content) {
						t.Errorf("%d of %d bytes, %v", len(b), size, err)
					}
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
					if n := tr.Registry.Snapshot()[0].InFlight; n != 0 || conns.Load() != 1 {
						t.Errorf("%d in flight, %d connections", n, conns.Load())
					}
				})
			})
		}
	}
}

func origin(*testing.T) string { return "http://in.memory.example" }

// A refusal up to what is read ahead gives back its connection while its
// retry waits: others use it.
func TestWaitDoesNotPinItsConnection(t *testing.T) {
	for size, want := range map[int]int64{100: 1, 16 << 10: 1, 16<<10 + 1: 2} {
		synctest.Test(t, func(t *testing.T) {
			refused := false
			base, conns := network(t, func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/refused" && !refused {
					refused = true
					w.Header().Set("Retry-After", "60")
					w.WriteHeader(429)
					w.Write(make([]byte, size))
				}
			})
			base.DisableCompression = true
			tr := quiet(t, base, heed.Limits{})
			done := make(chan int)
			go func() {
				status, _ := sendOne(t, tr, get(t.Context(), origin(t)+"/refused"))
				done <- status
			}()
			synctest.Wait()
			sendOne(t, tr, get(heed.Bypass(t.Context()), origin(t)))
			if n := conns.Load(); n != want {
				t.Errorf("%d bytes: %d connections, want %d", size, n, want)
			}
			if status := <-done; status != 200 {
				t.Errorf("status %d", status)
			}
		})
	}
}

func TestRefusalIsClosedBeforeTheNextAttempt(t *testing.T) {
	for _, c := range []struct {
		size    int
		backoff time.Duration
	}{{10, 0}, {10, 1}, {1 << 20, 0}, {1 << 20, 1}} {
		synctest.Test(t, func(t *testing.T) {
			body, requests := watch(strings.Repeat("x", c.size)), 0
			tr := quiet(t, respond(func(*http.Request) *http.Response {
				if requests++; requests > 1 {
					if body.closed.Load() != 1 {
						t.Errorf("%+v: closed %d times", c, body.closed.Load())
					}
					return reply(200, "")
				}
				resp := reply(429, "")
				resp.Body = body
				return resp
			}), heed.Limits{MinBackoff: c.backoff, MaxBackoff: c.backoff})
			sendOne(t, tr, get(t.Context(), site))
		})
	}
}

// Also where the next attempt need not wait, the connection is used again.
func TestRefusalIsDrainedWhereThereIsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		base, conns := network(t, func(w http.ResponseWriter, req *http.Request) {
			if requests++; requests == 1 {
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(429)
				w.Write(make([]byte, 10000))
			}
		})
		var r *heed.Registry
		r = listening(t, heed.Limits{}, func(e heed.Event) {
			if e.Kind == heed.EventPaused {
				r.Pause(origin(t), 0)
			}
		})
		began := time.Now()
		sendOne(t, &heed.Transport{Base: base, Registry: r}, get(t.Context(), origin(t)))
		if time.Since(began) != 0 || conns.Load() != 1 || requests != 2 {
			t.Errorf("%d requests on %d connections in %v", requests, conns.Load(), time.Since(began))
		}
	})
}

func TestRefusalWhoseBodyBreaksOffGoesBackAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := respond(func(*http.Request) *http.Response {
			resp := reply(429, "")
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("begin"), failing{errAny}))
			return resp
		})
		tr := quiet(t, base, heed.Limits{})
		time.AfterFunc(time.Second, func() { tr.Registry.Pause(site, time.Hour) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp, err := tr.RoundTrip(get(ctx, site))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "begin" || err != errAny {
			t.Errorf("%q, %v", b, err)
		}
		resp.Body.Close()
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestSlotIsHeldUntilTheBodyIsOver(t *testing.T) {
	inFlight := func(tr *heed.Transport) int { return tr.Registry.Snapshot()[0].InFlight }
	for name, c := range map[string]struct {
		method string
		status int
		body   io.ReadCloser
		held   bool
		finish func(io.ReadCloser)
	}{
		"read to its end": {status: 200, body: watch("x"), held: true, finish: func(b io.ReadCloser) { io.Copy(io.Discard, b) }},
		"closed":          {status: 200, body: watch("x"), held: true, finish: func(b io.ReadCloser) { b.Close() }},
		"closed twice":    {status: 200, body: watch("x"), held: true, finish: func(b io.ReadCloser) { b.Close(); b.Close() }},
		"broken off":      {status: 200, body: io.NopCloser(failing{errAny}), held: true, finish: func(b io.ReadCloser) { b.Read(make([]byte, 1)) }},
		"no body":         {status: 200, body: http.NoBody},
		"nil":             {status: 200},
		"HEAD":            {method: http.MethodHead, status: 200, body: watch("")},
		"no content":      {status: 204, body: watch("")},
		"not modified":    {status: 304, body: watch("")},
	} {
		t.Run(name, func(t *testing.T) {
			tr := quiet(t, respond(func(*http.Request) *http.Response {
				resp := reply(c.status, "")
				resp.Body = c.body
				return resp
			}), heed.Limits{MaxConcurrent: 1})
			req := get(t.Context(), site)
			req.Method = c.method
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if held := inFlight(tr) == 1; held != c.held {
				t.Errorf("held: %v", held)
			}
			if !c.held && resp.Body != c.body {
				t.Errorf("the body was wrapped: %T", resp.Body)
			}
			if c.held {
				c.finish(resp.Body)
			}
			if n := inFlight(tr); n != 0 {
				t.Errorf("%d in flight in the end", n)
			}
		})
	}
}

// An answer without content is over as it comes, over HTTP/2 too, where net/http gives it a body all the same:
// there is nothing that whoever does not close it would hold on to.
func TestSlotIsFreeAfterAnAnswerWithoutContent(t *testing.T) {
	for _, two := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }))
		server.EnableHTTP2 = two
		server.StartTLS()
		defer server.Close()
		tr := quiet(t, server.Client().Transport, heed.Limits{MaxConcurrent: 1})
		resp, err := tr.RoundTrip(get(t.Context(), server.URL))
		if err != nil {
			t.Fatal(err)
		}
		if n := tr.Registry.Snapshot()[0].InFlight; n != 0 || (resp.ProtoMajor == 2) != two {
			t.Errorf("%s: %d in flight", resp.Proto, n)
		}
	}
}

func TestSlotIsFreeAfterAnErrorOfTheBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := heed.Limits{MaxConcurrent: 1, Policies: []heed.Policy{{Name: "p", Quota: 2, Window: time.Hour}}}
		for name, c := range map[string]struct {
			err  error
			used int64
		}{
			"never sent":          {&net.OpError{Op: "dial", Err: errAny}, 0},
			"no such host":        {fmt.Errorf("lookup: %w", &net.DNSError{IsNotFound: true}), 0},
			"no proxy":            {&net.OpError{Op: "proxyconnect", Err: errAny}, 0},
			"unknown certificate": {fmt.Errorf("dial: %w", &tls.CertificateVerificationError{Err: errAny}), 0},
			"no TLS":              {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake", Conn: new(net.TCPConn)}, 0},
			"broken TLS":          {tls.RecordHeaderError{Msg: "oversized record received"}, 1},
			"perhaps sent":        {&net.OpError{Op: "read", Err: errAny}, 1},
			"no way of telling":   {errAny, 1},
		} {
			tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) { return nil, c.err }), limits)
			if _, err := tr.RoundTrip(get(t.Context(), site)); err != c.err {
				t.Errorf("%s: error %v", name, err)
			}
			o := tr.Registry.Snapshot()[0]
			if used := o.Partitions[0].Policies[0].Used; used != c.used || o.InFlight != 0 {
				t.Errorf("%s: %d used, %d in flight", name, used, o.InFlight)
			}
		}
	})
}

func TestBytesAreCountedAsTheyPass(t *testing.T) {
	base := respond(func(*http.Request) *http.Response { return reply(200, strings.Repeat("y", 700)) })
	tr := quiet(t, base, heed.Limits{Policies: []heed.Policy{{Name: "bytes", Quota: 10000, Window: time.Hour, Unit: heed.UnitContentBytes}}})
	for _, body := range []io.Reader{strings.NewReader(strings.Repeat("x", 300)), io.NopCloser(strings.NewReader(strings.Repeat("x", 300)))} {
		req, _ := http.NewRequest(http.MethodPut, site, body)
		sendOne(t, tr, req)
	}
	if used := usedBy(tr.Registry); used != site+" 2000" {
		t.Errorf("used %s", used)
	}
}

// upgraded is a server that switches protocols and echoes lines.
func upgraded(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(conn, rw)
		io.WriteString(conn, "over")
	}))
	t.Cleanup(server.Close)
	return server
}

func TestUpgradedConnectionCanBeWrittenTo(t *testing.T) {
	server := upgraded(t)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	tr := quiet(t, base, heed.Limits{MaxConcurrent: 1})
	req := get(t.Context(), server.URL)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := tr.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	conn, ok := resp.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	if !ok || resp.StatusCode != 101 {
		t.Fatalf("status %d, body %T", resp.StatusCode, resp.Body)
	}
	in := bufio.NewReader(conn)
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(conn, line); err != nil {
			t.Fatal(err)
		}
		if got, err := in.ReadString('\n'); got != line || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := conn.CloseWrite(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(in); string(rest) != "over" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if n := tr.Registry.Snapshot()[0].InFlight; n != 1 {
		t.Errorf("%d in flight before the connection is closed", n)
	}
	conn.Close()
	if n := tr.Registry.Snapshot()[0].InFlight; n != 0 {
		t.Errorf("%d in flight after", n)
	}
}

func TestCloseWriteWhereThereIsNone(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	tr := quiet(t, respond(func(*http.Request) *http.Response {
		resp := reply(101, "")
		resp.Body = client
		return resp
	}), heed.Limits{})
	resp, err := tr.RoundTrip(get(t.Context(), site))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("error %v", err)
	}
	resp.Body.Close()
}

func TestHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		fmt.Fprint(w, req.Proto, " ", len(body))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	base := server.Client().Transport.(*http.Transport)
	tr := quiet(t, base, heed.Limits{MaxConcurrent: 2})
	for range 3 {
		resp, err := tr.Client().Post(server.URL, "text/plain", strings.NewReader("content"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if string(body) != "HTTP/2.0 7" || resp.TLS == nil || resp.TLS.Version < tls.VersionTLS12 {
			t.Errorf("%q", body)
		}
	}
}

// A server that ends a connection with GOAWAY has not seen what came after: the base sends
// that again, and it counts once.
func TestRequestReplayedAfterGoAwayCountsOnce(t *testing.T) {
	var served atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if served.Add(1)%5 == 0 {
			w.Header().Set("Connection", "close") // GOAWAY, over HTTP/2
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections given up while they were made
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	const each, goroutines = 10, 8
	r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: goroutines, Policies: []heed.Policy{
		{Name: "requests", Quota: 1000, Window: time.Hour},
		{Name: "bytes", Quota: 1 << 40, Window: time.Hour, Unit: heed.UnitContentBytes},
	}}})
	tr := &heed.Transport{Base: server.Client().Transport, Registry: r}
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				resp, err := tr.Client().Post(server.URL, "text/plain", strings.NewReader("content"))
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			}
		})
	}
	all.Wait()
	o := r.Snapshot()[0]
	if used := o.Partitions[0].Policies[0].Used; used != each*goroutines || o.InFlight != 0 || o.Waiting != 0 {
		t.Errorf("%d counted of %d; %d in flight, %d waiting", used, each*goroutines, o.InFlight, o.Waiting)
	}
}
