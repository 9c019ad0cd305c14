package heed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jarcoal/httpmock"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A baseFunc is a base transport.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// respond makes a baseFunc of a function that only answers: it reads and
// closes the request's body as a transport does.
func respond(answer func(*http.Request) *http.Response) baseFunc {
	return func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			defer req.Body.Close()
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return nil, err
			}
		}
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return answer(req), nil
	}
}

// reply is a response with a body and fields in the form "Name: value".
func reply(status int, body string, fields ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Status: fmt.Sprint(status), ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}
	if body != "" {
		resp.Body = io.NopCloser(strings.NewReader(body))
		resp.ContentLength = int64(len(body))
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		resp.Header.Add(name, value)
	}
	return resp
}

// script answers with one status and fields after the other ("429 Retry-After:
// 3"), the last one over and over, and notes when requests start.
type script struct {
	answers []string
	mu      sync.Mutex
	starts  []time.Time
	bodies  []string
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.starts = append(s.starts, time.Now())
	answer := s.answers[min(len(s.starts), len(s.answers))-1]
	s.mu.Unlock()
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
	}
	if answer == "error" {
		return nil, errors.New("connection reset")
	}
	var status int
	fmt.Sscan(answer, &status)
	_, fields, _ := strings.Cut(answer, " ")
	return reply(status, answer, fields), nil
}

// gaps are the times between one start and the next.
func (s *script) gaps() (gaps []time.Duration) {
	for i, at := range s.starts[1:] {
		gaps = append(gaps, at.Sub(s.starts[i]))
	}
	return gaps
}

// network is an HTTP server and a transport to it over pipes, so that real
// connections can be had in a bubble. It counts the connections.
func network(t *testing.T, h http.HandlerFunc) (*http.Transport, *atomic.Int64) {
	var conns atomic.Int64
	l := listener{make(chan net.Conn), make(chan struct{}), sync.OnceFunc(func() {})}
	l.stop = sync.OnceFunc(func() { close(l.closed) })
	server := &http.Server{Handler: h}
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conns.Add(1)
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}}
	go server.Serve(l)
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return base, &conns
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	stop   func()
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l listener) Close() error   { l.stop(); return nil }
func (l listener) Addr() net.Addr { return &net.IPAddr{} }

// listening is a registry that logs nothing and tells onEvent.
func listening(t *testing.T, l heed.Limits, onEvent func(heed.Event)) *heed.Registry {
	t.Helper()
	r, err := heed.NewRegistry(heed.Config{Default: l, Logger: slog.New(slog.DiscardHandler), OnEvent: onEvent})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// quiet is a transport over base with a registry that logs nothing.
func quiet(t *testing.T, base http.RoundTripper, l heed.Limits) *heed.Transport {
	t.Helper()
	return &heed.Transport{Base: base, Registry: listening(t, l, nil)}
}

// warned is a registry that logs warnings to log.
func warned(t *testing.T, l heed.Limits, log io.Writer) *heed.Registry {
	t.Helper()
	r, err := heed.NewRegistry(heed.Config{Default: l, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(ctx context.Context, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

const site = "https://api.example.org"

func TestZeroValueIsReady(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer server.Close()
	client := &http.Client{Transport: &heed.Transport{}}
	defer client.CloseIdleConnections()
	for range 3 {
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "hello" {
			t.Fatalf("body %q, error %v", body, err)
		}
	}
}

func TestTransportCanBeTheDefaultOne(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer srv.Close()
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	tr := &heed.Transport{}
	defer tr.CloseIdleConnections()
	http.DefaultTransport = tr
	// One that sends through itself would wait for its own answer.
	req, _ := http.NewRequestWithContext(heed.NoWait(t.Context()), "GET", srv.URL, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "hello" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestNothingIsSlowedThatNobodyAskedToSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := heedtest.NewOrigin(heedtest.Config{Latency: heedtest.RoundTrip(100 * time.Millisecond)})
		client := quiet(t, origin, heed.Limits{}).Client()
		began := time.Now()
		for range 1000 {
			resp, err := client.Get(site)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if took := time.Since(began); took != 100*time.Second {
			t.Errorf("1000 requests of 100ms took %v", took)
		}
	})
}

func TestRequestIsNotChanged(t *testing.T) {
	bytesQuota := heed.Policy{Name: "bytes", Quota: 1 << 20, Window: time.Minute, Unit: heed.UnitContentBytes}
	for name, c := range map[string]struct {
		answers []string
		limits  heed.Limits
		ctx     func(context.Context) context.Context
	}{
		"sent":             {answers: []string{"200"}},
		"tried again":      {answers: []string{"429 Retry-After: 1", "503", "200"}},
		"failed":           {answers: []string{"error"}},
		"bytes and slots":  {answers: []string{"429", "200"}, limits: heed.Limits{MaxConcurrent: 1, Policies: []heed.Policy{bytesQuota}}},
		"not sent":         {answers: []string{"200"}, limits: heed.Limits{MinInterval: time.Hour}, ctx: heed.NoWait},
		"passed untouched": {answers: []string{"200"}, ctx: heed.Bypass},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := quiet(t, &script{answers: c.answers}, c.limits)
				if c.limits.MinInterval > 0 {
					sendOne(t, tr, get(t.Context(), site))
				}
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, site+"/a?b=c", strings.NewReader("content"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header["X-Many"] = []string{"one", "two"}
				before, header, u := *req, req.Header.Clone(), *req.URL
				resp, err := tr.RoundTrip(req)
				if err == nil {
					if c.ctx == nil && resp.Request != req {
						t.Error("the response's request is another one")
					}
					resp.Body.Close()
				}
				if reflect.ValueOf(req.GetBody).Pointer() != reflect.ValueOf(before.GetBody).Pointer() {
					t.Error("GetBody was replaced")
				}
				after := *req
				before.GetBody, after.GetBody = nil, nil
				if !reflect.DeepEqual(before, after) || !reflect.DeepEqual(header, req.Header) || u != *req.URL || req.Context() != ctx {
					t.Errorf("before %+v\nafter  %+v", before, after)
				}
			})
		})
	}
}

// sendOne sends a request and reads its answer.
func sendOne(t *testing.T, rt http.RoundTripper, req *http.Request) (status int, body string) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A watched is a body that counts how often it is closed.
type watched struct {
	io.Reader
	closed atomic.Int64
}

func watch(content string) *watched    { return &watched{Reader: strings.NewReader(content)} }
func (w *watched) Close() (none error) { w.closed.Add(1); return nil }

func TestRequestBodyIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		base     http.RoundTripper
		limits   heed.Limits
		opts     func(context.Context) context.Context
		cancelIn time.Duration // negative: before
		closed   bool          // the registry
		wantErr  error
	}{
		"sent":                      {base: &script{answers: []string{"200"}}},
		"tried again":               {base: &script{answers: []string{"429", "200"}}},
		"failed":                    {base: &script{answers: []string{"error"}}, wantErr: errAny},
		"refused to wait":           {base: &script{answers: []string{"200"}}, limits: heed.Limits{MinInterval: time.Hour}, opts: heed.NoWait, wantErr: heed.ErrLimited},
		"cancelled before":          {base: &script{answers: []string{"200"}}, cancelIn: -1, wantErr: errCancelled},
		"cancelled while it waits":  {base: &script{answers: []string{"200"}}, limits: heed.Limits{MinInterval: time.Hour}, cancelIn: time.Second, wantErr: errCancelled},
		"cancelled before it again": {base: &script{answers: []string{"429 Retry-After: 60"}}, cancelIn: time.Second, wantErr: errCancelled},
		"waited too long":           {base: &script{answers: []string{"200"}}, limits: heed.Limits{MinInterval: time.Hour, MaxWait: time.Minute}, wantErr: heed.ErrLimited},
		"registry closed":           {base: &script{answers: []string{"200"}}, closed: true, wantErr: heed.ErrClosed},
		"passed untouched":          {base: &script{answers: []string{"200"}}, opts: heed.Bypass},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := quiet(t, c.base, c.limits)
				if c.limits.MinInterval > 0 {
					sendOne(t, tr, get(t.Context(), site))
				}
				if c.closed {
					tr.Registry.Close()
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				switch {
				case c.cancelIn < 0:
					cancel(errCancelled)
				case c.cancelIn > 0:
					defer time.AfterFunc(c.cancelIn, func() { cancel(errCancelled) }).Stop()
				}
				var parent context.Context = ctx
				if c.opts != nil {
					parent = c.opts(parent)
				}
				first := watch("content")
				bodies := []*watched{first}
				req, _ := http.NewRequestWithContext(parent, http.MethodPut, site, first)
				req.GetBody = func() (io.ReadCloser, error) {
					bodies = append(bodies, watch("content"))
					return bodies[len(bodies)-1], nil
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				if c.wantErr == errAny {
					if err == nil {
						t.Error("no error")
					}
				} else if !errors.Is(err, c.wantErr) {
					t.Errorf("error %v, want %v", err, c.wantErr)
				}
				for i, b := range bodies {
					if b.closed.Load() != 1 {
						t.Errorf("body %d of %d closed %d times", i+1, len(bodies), b.closed.Load())
					}
				}
			})
		})
	}
}

var (
	errAny       = errors.New("some error")
	errCancelled = errors.New("cancelled by the test")
)

func TestExactlyOneOfResponseAndError(t *testing.T) {
	body := watch("both")
	both := reply(200, "")
	both.Body = body
	for name, c := range map[string]struct {
		resp *http.Response
		err  error
	}{
		"both":    {both, errAny},
		"neither": {},
	} {
		t.Run(name, func(t *testing.T) {
			tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) { return c.resp, c.err }), heed.Limits{})
			resp, err := tr.RoundTrip(get(t.Context(), site))
			if resp != nil || err == nil {
				t.Errorf("response %v, error %v", resp, err)
			}
			if n := tr.Registry.Snapshot()[0].InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
		})
	}
	if body.closed.Load() != 1 {
		t.Errorf("the response's body was closed %d times", body.closed.Load())
	}
}

func TestRedirectsAreTheOuterClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := respond(func(req *http.Request) *http.Response {
			switch req.URL.Host + req.URL.Path {
			case "a.example.org/":
				return reply(302, "", "Location: https://b.example.org/next", "Set-Cookie: seen=a; Domain=example.org")
			case "b.example.org/next":
				return reply(307, "", "Location: /end")
			}
			return reply(200, req.Header.Get("Cookie"))
		})
		tr := quiet(t, base, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Hour}}})
		jar, _ := cookiejar.New(nil)
		var hops []string
		client := &http.Client{Transport: tr, Jar: jar, CheckRedirect: func(req *http.Request, via []*http.Request) error {
			hops = append(hops, fmt.Sprint(req.URL, " after ", len(via)))
			return nil
		}}
		resp, err := client.Get("https://a.example.org/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if string(body) != "seen=a" {
			t.Errorf("cookie %q", body)
		}
		if want := []string{"https://b.example.org/next after 1", "https://b.example.org/end after 2"}; !slices.Equal(hops, want) {
			t.Errorf("CheckRedirect saw %q", hops)
		}
		if used := usedBy(tr.Registry); used != "https://a.example.org 1, https://b.example.org 2" {
			t.Errorf("charged: %s", used)
		}
	})
}

// usedBy lists what is used of each origin's first policy.
func usedBy(r *heed.Registry) string {
	var used []string
	for _, o := range r.Snapshot() {
		used = append(used, fmt.Sprint(o.Origin, " ", o.Partitions[0].Policies[0].Used))
	}
	return strings.Join(used, ", ")
}

func TestRedirectReplaysTheBody(t *testing.T) {
	for _, status := range []int{307, 308} {
		synctest.Test(t, func(t *testing.T) {
			var bodies []string
			base := baseFunc(func(req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				bodies = append(bodies, req.Method+" "+req.URL.Path+" "+string(body))
				req.Body.Close()
				switch {
				case err != nil:
					return nil, err
				case len(bodies) == 2: // the second hop is refused once
					return reply(429, "", "Retry-After: 1"), nil
				case req.URL.Path == "/":
					return reply(status, "", "Location: /end"), nil
				}
				return reply(200, ""), nil
			})
			resp, err := quiet(t, base, heed.Limits{}).Client().Post(site+"/", "text/plain", strings.NewReader("content"))
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"POST / content", "POST /end content", "POST /end content"}; !slices.Equal(bodies, want) || resp.StatusCode != 200 {
				t.Errorf("%d: status %d, sent %q", status, resp.StatusCode, bodies)
			}
		})
	}
}

func TestRedirectAfterARetryIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 1", "302 Location: https://other.example.org/"}}
		resp, err := quiet(t, base, heed.Limits{}).RoundTrip(get(t.Context(), site))
		if err != nil || resp.StatusCode != 302 || len(base.starts) != 2 {
			t.Errorf("%v, %v after %d requests", resp, err, len(base.starts))
		}
	})
}

// The transport below replays a request itself where an HTTP/2 connection is
// shut down under it. It needs GetBody for that.
func TestBaseCanReplayTheBody(t *testing.T) {
	for name, policies := range map[string][]heed.Policy{
		"plain":         nil,
		"bytes counted": {{Name: "bytes", Quota: 1 << 20, Window: time.Minute, Unit: heed.UnitContentBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			base := baseFunc(func(req *http.Request) (*http.Response, error) {
				req.Body.Close()
				again, err := req.GetBody()
				if err != nil {
					return nil, err
				}
				content, _ := io.ReadAll(again)
				return reply(200, string(content)), again.Close()
			})
			tr := quiet(t, base, heed.Limits{Policies: policies})
			req, _ := http.NewRequest(http.MethodPost, site, strings.NewReader("content"))
			if _, body := sendOne(t, tr, req); body != "content" {
				t.Errorf("replayed %q", body)
			}
			if used := usedBy; policies != nil && used(tr.Registry) != site+" 14" {
				t.Errorf("bytes used: %s", used(tr.Registry))
			}
		})
	}
}

func TestClientTimeoutHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := respond(func(req *http.Request) *http.Response { return reply(200, "") })
		client := quiet(t, base, heed.Limits{MinInterval: time.Minute}).Client()
		client.Timeout = 30 * time.Second
		resp, err := client.Get(site)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		began := time.Now()
		_, err = client.Get(site)
		var timeout interface{ Timeout() bool }
		if !errors.Is(err, heed.ErrLimited) || !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(began) != 0 {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		client.Timeout = 2 * time.Minute
		if resp, err = client.Get(site); err != nil || time.Since(began) != time.Minute {
			t.Fatalf("error %v after %v", err, time.Since(began))
		}
		resp.Body.Close()
	})
}

func TestClientTimeoutEndsARequestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}), heed.Limits{})
		client := &http.Client{Transport: tr, Timeout: time.Second}
		began := time.Now()
		if _, err := client.Get(site); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// An idler counts calls of CloseIdleConnections.
type idler struct {
	http.RoundTripper
	calls int
}

func (i *idler) CloseIdleConnections() { i.calls++ }

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	base := &idler{RoundTripper: &script{answers: []string{"200"}}}
	client := quiet(t, base, heed.Limits{}).Client()
	client.CloseIdleConnections()
	if base.calls != 1 {
		t.Errorf("called %d times", base.calls)
	}
	quiet(t, base.RoundTripper, heed.Limits{}).CloseIdleConnections() // has no such method
}

func TestCancelledWaitEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		tr := quiet(t, base, heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		began := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := make(chan error)
		go func() {
			_, err := tr.RoundTrip(get(ctx, site))
			gone <- err
		}()
		synctest.Wait()
		var next time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			sendOne(t, tr, get(t.Context(), site))
			next = time.Since(began)
		}()
		time.Sleep(10 * time.Second)
		cancel(errCancelled)
		if err := <-gone; err != errCancelled || time.Since(began) != 10*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		<-done
		if next != time.Minute {
			t.Errorf("the next one went after %v, as if the cancelled one had gone", next)
		}
	})
}

func TestCancelledWaitForASlotWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			select {
			case <-req.Context().Done():
				return nil, req.Context().Err()
			case <-time.After(time.Hour):
				return reply(200, ""), nil
			}
		})
		tr := quiet(t, base, heed.Limits{MaxConcurrent: 1})
		holder, cancel := context.WithCancel(t.Context())
		go tr.RoundTrip(get(holder, site))
		synctest.Wait()
		var began = time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			sendOne(t, tr, get(t.Context(), site))
		}()
		time.Sleep(time.Second)
		cancel()
		<-done
		if took := time.Since(began); took != time.Hour+time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Granted and cancelled at one instant, a request gives back what it was granted.
func TestCancelledAtTheInstantItMayGo(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []string{"200"}}
			tr := quiet(t, base, heed.Limits{MinInterval: time.Minute, Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Hour}}})
			sendOne(t, tr, get(t.Context(), site))
			ctx, cancel := context.WithCancel(t.Context())
			defer time.AfterFunc(time.Minute, cancel).Stop()
			if resp, err := tr.RoundTrip(get(ctx, site)); err == nil {
				resp.Body.Close()
			}
			if used, want := usedBy(tr.Registry), fmt.Sprint(site, " ", len(base.starts)); used != want || tr.Registry.Snapshot()[0].InFlight != 0 {
				t.Errorf("used: %s, want %s", used, want)
			}
		})
	}
}

func TestDeadlineOutOfReachIsRefusedAtOnce(t *testing.T) {
	pausedFor := func(d time.Duration) func(*heed.Registry) {
		return func(r *heed.Registry) { r.Pause(site, d) }
	}
	for name, c := range map[string]struct {
		limits  heed.Limits
		prepare func(*heed.Registry)
		timeout time.Duration
		want    heed.LimitError
	}{
		"interval": {limits: heed.Limits{MinInterval: time.Minute}, timeout: 59 * time.Second,
			want: heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
		"to the instant": {limits: heed.Limits{MinInterval: time.Minute}, timeout: time.Minute,
			want: heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
		"policy": {limits: heed.Limits{Policies: []heed.Policy{{Name: "one an hour", Quota: 1, Window: time.Hour}}}, timeout: time.Minute,
			want: heed.LimitError{Wait: time.Hour, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy, Policy: "one an hour"}},
		"pause": {prepare: pausedFor(time.Hour), timeout: time.Minute,
			want: heed.LimitError{Wait: time.Hour, Reason: heed.ReasonDeadline, Cause: heed.CausePause}},
		"longest wait": {limits: heed.Limits{MaxWait: time.Second, MinInterval: time.Minute}, timeout: time.Hour,
			want: heed.LimitError{Wait: time.Minute, Reason: heed.ReasonMaxWait, Cause: heed.CauseInterval}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{answers: []string{"200"}}
				tr := quiet(t, base, c.limits)
				sendOne(t, tr, get(t.Context(), site))
				if c.prepare != nil {
					c.prepare(tr.Registry)
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				began := time.Now()
				_, err := tr.Client().Do(get(ctx, site))
				var limit *heed.LimitError
				if !errors.As(err, &limit) {
					t.Fatalf("error %v", err)
				}
				c.want.Origin = site
				if *limit != c.want || time.Since(began) != 0 || len(base.starts) != 1 {
					t.Errorf("%+v after %v, want %+v", *limit, time.Since(began), c.want)
				}
				deadline := c.want.Reason == heed.ReasonDeadline
				if !errors.Is(err, heed.ErrLimited) || errors.Is(err, context.DeadlineExceeded) != deadline || !limit.Timeout() {
					t.Errorf("%v is not what it should be", err)
				}
			})
		})
	}
}

func TestPauseRefusesThoseWaitingWhoseDeadlineItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, &script{answers: []string{"200"}}, heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		began := time.Now()
		time.AfterFunc(10*time.Second, func() { tr.Registry.Pause(site, time.Hour) })
		_, err := tr.RoundTrip(get(ctx, site))
		var limit *heed.LimitError
		if !errors.As(err, &limit) || time.Since(began) != 10*time.Second {
			t.Fatalf("error %v after %v", err, time.Since(began))
		}
		if want := (heed.LimitError{Origin: site, Wait: time.Hour, Reason: heed.ReasonDeadline, Cause: heed.CausePause}); *limit != want {
			t.Errorf("%+v, want %+v", *limit, want)
		}
	})
}

// MaxWait and the instant at which the request may go are one: it goes.
func TestLongestWaitIncludesItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, &script{answers: []string{"200"}}, heed.Limits{MinInterval: time.Minute, MaxWait: time.Minute})
		for range 20 {
			sendOne(t, tr, get(t.Context(), site))
		}
	})
}

func TestWaitingRequestRunsIntoItsDeadline(t *testing.T) {
	for reason, end := range map[heed.Reason]string{
		heed.ReasonDeadline: "it had waited 1m0s when its deadline came",
		heed.ReasonMaxWait:  "it had waited 1m0s when MaxWait was over",
	} {
		synctest.Test(t, func(t *testing.T) {
			hang := baseFunc(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			limits, timeout := heed.Limits{MaxConcurrent: 1}, time.Minute
			if reason == heed.ReasonMaxWait {
				limits.MaxWait, timeout = time.Minute, time.Hour
			}
			tr := quiet(t, hang, limits)
			holder, cancel := context.WithCancel(t.Context())
			defer cancel()
			go tr.RoundTrip(get(holder, site))
			synctest.Wait()
			ctx, stop := context.WithTimeout(t.Context(), timeout)
			defer stop()
			began := time.Now()
			_, err := tr.RoundTrip(get(ctx, site))
			var limit *heed.LimitError
			if !errors.As(err, &limit) || limit.Reason != reason || limit.Cause != heed.CauseConcurrency || time.Since(began) != time.Minute {
				t.Errorf("error %v after %v", err, time.Since(began))
			} else if !strings.HasSuffix(err.Error(), end) {
				t.Errorf("error is %q", err)
			}
		})
	}
}

func TestTraceTellsWhatARequestWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 60", "302 Location: /next", "200"}}
		tr := quiet(t, base, heed.Limits{MinInterval: time.Second})
		for _, c := range []struct {
			want  heed.Trace
			waits time.Duration // at most
			pause time.Duration // afterwards
		}{
			{want: heed.Trace{Attempts: 3, Waited: 61 * time.Second, Cause: heed.CausePause}, waits: 62 * time.Second},
			{want: heed.Trace{Attempts: 1, Waited: time.Second, Cause: heed.CauseInterval}, waits: time.Second, pause: time.Second},
			{want: heed.Trace{Attempts: 1}},
		} {
			var trace heed.Trace
			resp, err := tr.Client().Do(get(heed.WithTrace(t.Context(), &trace), site))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if trace.Waited < c.want.Waited || trace.Waited > c.waits ||
				trace.Attempts != c.want.Attempts || trace.Cause != c.want.Cause || trace.Policy != c.want.Policy {
				t.Errorf("%+v, want %+v", trace, c.want)
			}
			time.Sleep(c.pause)
		}
		var trace heed.Trace
		if _, err := tr.RoundTrip(get(heed.NoWait(heed.WithTrace(t.Context(), &trace)), site)); err == nil || trace != (heed.Trace{}) {
			t.Errorf("error %v, trace %+v", err, trace)
		}
	})
}

func TestTraceTellsTheLatestCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, &script{answers: []string{"200"}}, heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		time.AfterFunc(time.Second, func() { tr.Registry.Pause(site, time.Hour) })
		var trace heed.Trace
		sendOne(t, tr, get(heed.WithTrace(t.Context(), &trace), site))
		if trace.Cause != heed.CausePause || trace.Waited != time.Hour+time.Second {
			t.Errorf("%+v", trace)
		}
	})
}

func TestCostIsChargedOnTheFirstOriginOnly(t *testing.T) {
	for path, want := range map[string]string{
		"/other":  "https://api.example.org 5, https://other.example.org 1",
		"/same":   "https://api.example.org 10",
		"/return": "https://api.example.org 10, https://other.example.org 1",
	} {
		synctest.Test(t, func(t *testing.T) {
			base := respond(func(req *http.Request) *http.Response {
				switch req.URL.Path {
				case "/other":
					return reply(302, "", "Location: https://other.example.org/")
				case "/same":
					return reply(302, "", "Location: /")
				case "/return":
					return reply(302, "", "Location: https://other.example.org/back")
				case "/back":
					return reply(302, "", "Location: https://api.example.org/")
				}
				return reply(200, "")
			})
			tr := quiet(t, base, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Hour}}})
			resp, err := tr.Client().Do(get(heed.WithCost(t.Context(), heed.UnitRequests, 5), site+path))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if used := usedBy(tr.Registry); used != want {
				t.Errorf("%s: charged %s, want %s", path, used, want)
			}
		})
	}
}

func TestPriorityGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		base := respond(func(req *http.Request) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, req.URL.Path)
			return reply(200, "")
		})
		tr := quiet(t, base, heed.Limits{MinInterval: time.Second})
		sendOne(t, tr, get(t.Context(), site+"/first"))
		var all sync.WaitGroup
		for _, r := range []struct {
			path     string
			priority heed.Priority
		}{{"/low", heed.PriorityLow}, {"/normal", heed.PriorityNormal}, {"/normal2", heed.PriorityNormal}, {"/high", heed.PriorityHigh}} {
			all.Go(func() { sendOne(t, tr, get(heed.WithPriority(t.Context(), r.priority), site+r.path)) })
			synctest.Wait()
		}
		all.Wait()
		if want := []string{"/first", "/high", "/normal", "/normal2", "/low"}; !slices.Equal(order, want) {
			t.Errorf("order %q", order)
		}
	})
}

func TestRequestCanAskForALongerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		tr := quiet(t, base, heed.Limits{MinInterval: 2 * time.Second})
		for _, d := range []time.Duration{0, 10 * time.Second, time.Second, 0} {
			sendOne(t, tr, get(heed.WithMinInterval(t.Context(), d), site))
		}
		if want := []time.Duration{10 * time.Second, 2 * time.Second, 2 * time.Second}; !slices.Equal(base.gaps(), want) {
			t.Errorf("intervals %v, want %v", base.gaps(), want)
		}
	})
}

// A request that never left gives back its place in the interval.
func TestIntervalIsFromTheLastRequestSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		unreachable := false
		tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
			if unreachable {
				return nil, &net.OpError{Op: "dial", Err: errAny}
			}
			return base.RoundTrip(req)
		}), heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		time.Sleep(90 * time.Second)
		unreachable = true
		tr.RoundTrip(get(t.Context(), site))
		unreachable = false
		sendOne(t, tr, get(t.Context(), site))
		if want := []time.Duration{90 * time.Second}; !slices.Equal(base.gaps(), want) {
			t.Errorf("intervals %v", base.gaps())
		}
	})
}

func TestBypassPassesUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200", "429 Retry-After: 60"}}
		tr := quiet(t, base, heed.Limits{MinInterval: time.Hour})
		sendOne(t, tr, get(t.Context(), site))
		before := fmt.Sprint(tr.Registry.Snapshot())
		began := time.Now()
		if status, _ := sendOne(t, tr, get(heed.Bypass(t.Context()), site)); status != 429 || time.Since(began) != 0 {
			t.Errorf("status %d after %v", status, time.Since(began))
		}
		if after := fmt.Sprint(tr.Registry.Snapshot()); after != before {
			t.Errorf("before %s\nafter  %s", before, after)
		}
		if d := tr.Registry.Check(get(heed.Bypass(t.Context()), site)); !d.Allowed || d.Wait != 0 {
			t.Errorf("Check: %+v", d)
		}
		pm, err := tr.Registry.Acquire(heed.Bypass(t.Context()), get(t.Context(), site))
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("Acquire: %v after %v", err, time.Since(began))
		}
		pm.Observe(answer(429, "Retry-After", "60"))
		pm.Release()
		if after := fmt.Sprint(tr.Registry.Snapshot()); after != before {
			t.Errorf("a permit that bypasses: before %s\nafter  %s", before, after)
		}
	})
}

func TestUnlimitedOriginIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 60"}}
		tr := quiet(t, base, heed.Limits{Unlimited: true})
		for range 3 {
			if status, body := sendOne(t, tr, get(t.Context(), site)); status != 429 || body == "" {
				t.Errorf("status %d, body %q", status, body)
			}
		}
		if want := []time.Duration{0, 0}; !slices.Equal(base.gaps(), want) {
			t.Errorf("intervals %v", base.gaps())
		}
	})
}

// Where heed steps aside nobody waits for the body of a refusal either, and it stays what the base gave.
func TestNobodyWaitsForABodyWhereHeedStepsAside(t *testing.T) {
	for name, c := range map[string]struct {
		options func(context.Context) context.Context
		limits  heed.Limits
	}{
		"unlimited": {func(ctx context.Context) context.Context { return ctx }, heed.Limits{Unlimited: true}},
		"bypass":    {heed.Bypass, heed.Limits{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			body := newStalling("{")
			refusal := func() *http.Response {
				resp := reply(429, "", "Content-Type: application/problem+json")
				resp.Body = body
				return resp
			}
			tr := quiet(t, respond(func(*http.Request) *http.Response { return refusal() }), c.limits)
			ctx, began := c.options(t.Context()), time.Now()
			resp, err := tr.RoundTrip(get(ctx, site))
			if err != nil || time.Since(began) != 0 || resp.Body != body {
				t.Errorf("%s: %v after %v, body %T", name, err, time.Since(began), resp.Body)
			}
			pm, err := tr.Registry.Acquire(ctx, get(ctx, site))
			if err != nil {
				t.Fatal(err)
			}
			if a := pm.Observe(refusal()); !a.Refused || time.Since(began) > time.Second {
				t.Errorf("%s: observed %+v after %v", name, a, time.Since(began))
			}
			pm.Release()
			body.Close()
		})
	}
}

// authorized gets a token through its client, as oauth2.Transport does.
type authorized struct {
	base   http.RoundTripper
	tokens *http.Client
	token  atomic.Pointer[string]
	ctx    func(*http.Request) context.Context // of the token's request; nil: one of its own
}

func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	token := a.token.Load()
	if token == nil {
		ctx := context.Background()
		if a.ctx != nil {
			ctx = a.ctx(req)
		}
		resp, err := a.tokens.Do(get(ctx, site+"/token"))
		if err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, err
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		s := string(b)
		token = &s
		a.token.Store(token)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+*token)
	return a.base.RoundTrip(req)
}

func TestAuthenticationOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		tr := quiet(t, base, heed.Limits{MaxConcurrent: 1})
		client := &http.Client{Transport: &authorized{base: tr, tokens: tr.Client()}}
		began := time.Now()
		for range 3 {
			resp, err := client.Get(site)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if time.Since(began) != 0 || len(base.starts) != 4 {
			t.Errorf("%d requests in %v", len(base.starts), time.Since(began))
		}
	})
}

// A request made by the base, through heed again, is delayed by the scout or
// probe that the first one is; it is not stopped by it.
func TestAuthenticationInsideIsDelayedButNotStopped(t *testing.T) {
	for name, prepare := range map[string]func(*heed.Registry){
		"first contact": func(*heed.Registry) {},
		"after a pause": func(r *heed.Registry) { r.Pause(site, time.Minute); time.Sleep(time.Hour) },
		"after a reset": func(r *heed.Registry) { r.Reset(site) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &authorized{base: &script{answers: []string{"200"}}}
				tr := quiet(t, inner, heed.Limits{})
				inner.tokens = &http.Client{Transport: &heed.Transport{Base: inner.base, Registry: tr.Registry}}
				prepare(tr.Registry)
				began := time.Now()
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() { sendOne(t, tr, get(t.Context(), site)) })
				}
				all.Wait()
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestSlotHeldByTheOneWhoWaitsForItIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := warned(t, heed.Limits{MaxConcurrent: 1}, &log)
		inner := &authorized{base: &script{answers: []string{"200"}}, ctx: (*http.Request).Context}
		tr := &heed.Transport{Base: inner, Registry: r}
		inner.tokens = &http.Client{Transport: &heed.Transport{Base: inner.base, Registry: r}}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := tr.RoundTrip(get(ctx, site))
			cancel()
			var limit *heed.LimitError
			if !errors.As(err, &limit) || limit.Reason != heed.ReasonDeadline || limit.Cause != heed.CauseConcurrency {
				t.Errorf("error %v", err)
			}
		}
		if n := strings.Count(log.String(), "slot"); n != 1 {
			t.Errorf("reported %d times: %s", n, log.String())
		}
		log.Reset()
		var token = "known"
		inner.token.Store(&token)
		sendOne(t, tr, get(t.Context(), site))
		if log.Len() > 0 {
			t.Error(log.String())
		}
	})
}

func TestSlotOfAnotherOriginIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := warned(t, heed.Limits{MaxConcurrent: 1}, &log)
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Second)
			return reply(200, ""), nil
		})
		inner := &authorized{base: base, ctx: (*http.Request).Context, tokens: &http.Client{Transport: &heed.Transport{Base: base, Registry: r}}}
		var all sync.WaitGroup
		all.Go(func() { sendOne(t, inner.tokens.Transport, get(t.Context(), site)) })
		synctest.Wait()
		began := time.Now()
		sendOne(t, &heed.Transport{Base: inner, Registry: r}, get(t.Context(), "https://other.example.org"))
		all.Wait()
		if log.Len() > 0 || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %s", time.Since(began), &log)
		}
	})
}

func TestEventsAreToldOnTheRequestsGoroutineWithNoLockHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var kinds []string
		var r *heed.Registry
		deep := false
		r = listening(t, heed.Limits{MinInterval: time.Second}, func(e heed.Event) {
			if !mu.TryLock() || deep {
				return // of the calls below
			}
			defer mu.Unlock()
			deep = true
			defer func() { deep = false }()
			kinds = append(kinds, e.Kind.String())
			stack := make([]byte, 16<<10)
			stack = stack[:runtime.Stack(stack, false)]
			if !bytes.Contains(stack, []byte("TestEventsAreTold")) {
				t.Errorf("%v was told elsewhere: %s", e.Kind, stack)
			}
			if e.Origin != site {
				t.Errorf("%+v", e)
			}
			r.Check(get(t.Context(), site))
			r.Snapshot()
			r.SetLimits("https://other.example.org", heed.Limits{})
			r.Pause("https://other.example.org", time.Second)
			r.Reset("https://other.example.org")
		})
		tr := &heed.Transport{Base: &script{answers: []string{"429 Retry-After: 5", "200"}}, Registry: r}
		sendOne(t, tr, get(t.Context(), site))
		want := []string{"admitted", "paused", "refused", "waiting", "resumed", "retried", "admitted", "answered"}
		if !slices.Equal(kinds, want) {
			t.Errorf("told %q\nwant %q", kinds, want)
		}
	})
}

func TestPanicLeaksNothing(t *testing.T) {
	for _, kind := range []heed.Kind{
		heed.EventWaiting, heed.EventAdmitted, heed.EventAnswered, heed.EventRefused, heed.EventPaused, heed.EventResumed, heed.EventRetried,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			panicOnce(t, func(tr *heed.Transport, armed *atomic.Bool) {}, func(e heed.Event, armed *atomic.Bool) {
				if e.Kind == kind && armed.CompareAndSwap(true, false) {
					panic(kind)
				}
			})
		})
	}
	t.Run("waiting, second time", func(t *testing.T) {
		n := 0
		panicOnce(t, func(*heed.Transport, *atomic.Bool) {}, func(e heed.Event, _ *atomic.Bool) {
			if e.Kind == heed.EventWaiting {
				if n++; n == 2 {
					panic("waiting")
				}
			}
		})
	})
	t.Run("base", func(t *testing.T) {
		panicOnce(t, func(tr *heed.Transport, armed *atomic.Bool) {
			base := tr.Base
			tr.Base = baseFunc(func(req *http.Request) (*http.Response, error) {
				if armed.CompareAndSwap(true, false) {
					req.Body.Close()
					panic("base")
				}
				return base.RoundTrip(req)
			})
		}, nil)
	})
	t.Run("base, second time", func(t *testing.T) {
		panicOnce(t, func(tr *heed.Transport, armed *atomic.Bool) {
			base, n := tr.Base, 0
			tr.Base = baseFunc(func(req *http.Request) (*http.Response, error) {
				if n++; n == 3 {
					req.Body.Close()
					panic("base")
				}
				return base.RoundTrip(req)
			})
		}, nil)
	})
	t.Run("check", func(t *testing.T) {
		panicOnce(t, func(tr *heed.Transport, armed *atomic.Bool) {
			tr.Retry.Check = func(*http.Request, *http.Response, error) bool {
				if armed.CompareAndSwap(true, false) {
					panic("check")
				}
				return false
			}
		}, nil)
	})
}

// panicOnce sends one request that waits, is refused, waits and succeeds,
// through a transport that setup or onEvent make panic once armed, and sees to
// it that nothing is left of it.
func panicOnce(t *testing.T, setup func(*heed.Transport, *atomic.Bool), onEvent func(heed.Event, *atomic.Bool)) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		var bodies []*watched
		opened := func() *watched {
			bodies = append(bodies, watch("content"))
			return bodies[len(bodies)-1]
		}
		answers := []string{"200", "429 Retry-After: 60", "200"}
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			if req.Body != nil {
				req.Body.Close()
			}
			resp := reply(200, "", "Content-Type: text/plain")
			fmt.Sscan(answers[0], &resp.StatusCode)
			if resp.StatusCode == 429 {
				resp.Header.Set("Retry-After", "60")
			}
			if len(answers) > 1 {
				answers = answers[1:]
			}
			resp.Body = opened()
			return resp, nil
		})
		r := listening(t, heed.Limits{MinInterval: time.Second, MaxConcurrent: 1}, func(e heed.Event) {
			if onEvent != nil {
				onEvent(e, &armed)
			}
		})
		tr := &heed.Transport{Base: base, Registry: r}
		setup(tr, &armed)
		sendOne(t, tr, get(t.Context(), site))
		armed.Store(true)
		first := opened()
		req, _ := http.NewRequest(http.MethodPut, site, first)
		req.GetBody = func() (io.ReadCloser, error) { return opened(), nil }
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic came through")
				}
			}()
			resp, err := tr.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
		}()
		armed.Store(false)
		if o := r.Snapshot()[0]; o.InFlight != 0 || o.Waiting != 0 {
			t.Errorf("%d in flight, %d waiting", o.InFlight, o.Waiting)
		}
		for i, b := range bodies {
			if b.closed.Load() == 0 {
				t.Errorf("body %d of %d was left open", i+1, len(bodies))
			}
		}
		sendOne(t, tr, get(t.Context(), site))
	})
}

func TestRefusedThenAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := httpmock.NewMockTransport()
		mock.RegisterResponder(http.MethodGet, site+"/things", httpmock.NewStringResponder(429, "later").HeaderSet(http.Header{"Retry-After": {"7"}}).
			Then(httpmock.NewStringResponder(200, "things")))
		began := time.Now()
		resp, err := quiet(t, mock, heed.Limits{}).Client().Get(site + "/things")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if took := time.Since(began); string(body) != "things" || took < 7*time.Second || took > 8*time.Second {
			t.Errorf("%q after %v", body, took)
		}
	})
}

// A crowd that cancels, runs into deadlines, is refused, paused and given other
// limits leaves nothing behind, and what the origin accepted is what is used.
func TestCrowdLeavesNothingBehind(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			var accepted, requests, opened atomic.Int64
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 0))
			roll := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			base := baseFunc(func(req *http.Request) (*http.Response, error) {
				requests.Add(1)
				if req.Body != nil {
					io.Copy(io.Discard, req.Body)
					req.Body.Close()
				}
				select {
				case <-time.After(time.Duration(roll(2000)) * time.Millisecond):
				case <-req.Context().Done():
					accepted.Add(1) // or not, who knows
					return nil, context.Cause(req.Context())
				}
				switch n := roll(100); {
				case n < 2:
					return nil, &net.OpError{Op: "dial", Err: errAny}
				case n < 4:
					accepted.Add(1)
					return nil, errAny
				case n < 8:
					accepted.Add(1)
					return reply(429, strings.Repeat("later ", roll(5000)), fmt.Sprint("Retry-After: ", roll(5))), nil
				case n < 10:
					accepted.Add(1)
					return reply(503, "sick"), nil
				}
				accepted.Add(1)
				opened.Add(1)
				resp := reply(200, "")
				resp.Body = &ending{strings.NewReader("content"), sync.OnceFunc(func() { opened.Add(-1) })}
				return resp, nil
			})
			limits := heed.Limits{MaxConcurrent: 50, MaxQueue: 900, Policies: []heed.Policy{{Name: "p", Quota: 1 << 20, Window: 1000 * time.Hour}}}
			tr := quiet(t, base, limits)
			ctx, cancel := context.WithCancel(t.Context())
			var all, others sync.WaitGroup
			others.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(time.Duration(roll(3000)) * time.Millisecond)
					switch roll(3) {
					case 0:
						tr.Registry.Pause(site, time.Duration(roll(3000)-500)*time.Millisecond)
					case 1:
						l := limits
						l.MaxConcurrent, l.MinInterval = 1+roll(200), time.Duration(roll(5))*time.Millisecond
						tr.Registry.SetLimits(site, l)
					case 2:
						tr.Registry.Check(get(ctx, site))
						tr.Registry.Snapshot()
					}
				}
			})
			for i := range 1000 {
				all.Go(func() {
					time.Sleep(time.Duration(roll(5000)) * time.Millisecond)
					ctx := heed.WithPriority(t.Context(), heed.Priority(roll(3)-1))
					var stop context.CancelFunc
					switch roll(3) {
					case 0:
						ctx, stop = context.WithTimeout(ctx, time.Duration(roll(60000))*time.Millisecond)
						defer stop()
					case 1:
						ctx, stop = context.WithCancel(ctx)
						defer time.AfterFunc(time.Duration(roll(60000))*time.Millisecond, stop).Stop()
						defer stop()
					}
					var body io.Reader
					if roll(2) == 0 {
						body = strings.NewReader("content")
					}
					req, _ := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprint(site, "/", i%7), body)
					req.Header.Set("Authorization", fmt.Sprint("Bearer ", i%2))
					resp, err := tr.RoundTrip(req)
					if (resp == nil) == (err == nil) {
						t.Errorf("%v, %v", resp, err)
					}
					if err != nil {
						return
					}
					time.Sleep(time.Duration(roll(500)) * time.Millisecond)
					if roll(2) == 0 {
						io.Copy(io.Discard, resp.Body)
					}
					resp.Body.Close()
				})
			}
			all.Wait()
			cancel()
			others.Wait()
			o := tr.Registry.Snapshot()[0]
			var used int64
			for _, p := range o.Partitions {
				for _, s := range p.Policies {
					if s.Name == "p" {
						used += s.Used
					}
				}
			}
			if o.InFlight != 0 || o.Waiting != 0 || used != accepted.Load() || opened.Load() != 0 {
				t.Errorf("%d in flight, %d waiting, %d used of %d accepted of %d sent, %d bodies open",
					o.InFlight, o.Waiting, used, accepted.Load(), requests.Load(), opened.Load())
			}
		})
	}
}

// An ending is a body that tells when it is closed.
type ending struct {
	io.Reader
	end func()
}

func (e *ending) Close() error { e.end(); return nil }

// As without heed: the request that was sent is the caller's, unless the base has sent one of its own.
func TestResponseNamesTheRequestItAnswers(t *testing.T) {
	own := request("https://mirror.example.org/")
	for _, limits := range []heed.Limits{{}, {MaxConcurrent: 1}} {
		for _, tries := range []int{1, 2} {
			for name, of := range map[string]func(req *http.Request) *http.Request{
				"none":       func(*http.Request) *http.Request { return nil },
				"as sent":    func(req *http.Request) *http.Request { return req },
				"the base's": func(*http.Request) *http.Request { return own },
			} {
				t.Run(fmt.Sprint(name, ", slots ", limits.MaxConcurrent, ", tries ", tries), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						sent := 0
						tr := &heed.Transport{Registry: newRegistry(t, heed.Config{Default: limits}), Base: baseFunc(func(req *http.Request) (*http.Response, error) {
							sent++
							resp := answer(200)
							if sent < tries {
								resp = answer(429, "Retry-After", "1")
							}
							req.Body.Close()
							resp.Request = of(req)
							return resp, nil
						})}
						req, err := http.NewRequest("PUT", example, strings.NewReader("body"))
						if err != nil {
							t.Fatal(err)
						}
						resp, err := tr.RoundTrip(req)
						if err != nil {
							t.Fatal(err)
						}
						want := req
						if name == "the base's" {
							want = own
						}
						if resp.Request != want || sent != tries {
							t.Errorf("sent %d times, the answer is to %p, want %p", sent, resp.Request, want)
						}
					})
				})
			}
		}
	}
}
