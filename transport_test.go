package heed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

func watch(content string) *watched { return &watched{Reader: strings.NewReader(content)} }

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
