package heed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed"
)

// A baseFunc is a base transport.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// edited is a base whose answers are edited before they are seen.
func edited(base http.RoundTripper, edit func(*http.Response)) http.RoundTripper {
	return baseFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			edit(resp)
		}
		return resp, err
	})
}

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

func (l listener) Close() error { l.stop(); return nil }

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
