package heed_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// TestEverythingIsAsWithoutHeed sends the same requests to the same server over the same
// transport, with heed and without: who sends them must not see a difference, not even where the
// first try was refused.
func TestEverythingIsAsWithoutHeed(t *testing.T) {
	flush := func(w http.ResponseWriter) { w.(http.Flusher).Flush() }
	post := func(body io.Reader) *http.Request {
		req, _ := http.NewRequest(http.MethodPost, site, body)
		return req
	}
	for _, tt := range []struct {
		name    string
		request func(ctx context.Context) *http.Request // nil: GET
		answer  http.HandlerFunc
		once    bool // its body cannot be replayed, or what comes is no answer
	}{
		{name: "trailers", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Announced")
			io.WriteString(w, "content")
			flush(w)
			w.Header().Set("Announced", "1")
			w.Header().Set(http.TrailerPrefix+"Unannounced", "2")
		}},
		{name: "trailers that nobody announced", answer: func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "content")
			flush(w)
			w.Header().Set(http.TrailerPrefix+"Unannounced", "2")
		}},
		{name: "early hints", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(199)
			w.Header().Set("Link", "</other.css>")
			io.WriteString(w, "content")
		}},
		{name: "no content", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
		{name: "HEAD", request: func(context.Context) *http.Request { req, _ := http.NewRequest(http.MethodHead, site, nil); return req },
			answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "7") }},
		{name: "compressed", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, "content")
			z.Close()
		}},
		{name: "until the connection is closed", answer: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\ncontent")
			conn.Close()
		}},
		{name: "a redirect without a location", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPermanentRedirect) }},
		{name: "Close, and another Host", request: func(context.Context) *http.Request {
			req := post(strings.NewReader("content"))
			req.Close, req.Host = true, "other.example.org"
			return req
		}},
		{name: "a body of unknown length, with trailers", once: true, request: func(context.Context) *http.Request {
			req := post(io.MultiReader(strings.NewReader("con"), strings.NewReader("tent")))
			req.Trailer = http.Header{"Checksum": {"1"}}
			return req
		}},
		{name: "a body that is asked for", request: func(context.Context) *http.Request {
			req := post(strings.NewReader("content"))
			req.Header.Set("Expect", "100-continue")
			return req
		}},
		{name: "a body that is not wanted", once: true, request: func(context.Context) *http.Request {
			req := post(io.MultiReader(strings.NewReader("content")))
			req.Header.Set("Expect", "100-continue")
			return req
		}, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusExpectationFailed)
		}},
		{name: "a body that breaks", once: true, request: func(context.Context) *http.Request {
			return post(io.MultiReader(strings.NewReader("con"), brokenReader{}))
		}},
		{name: "cut off in its header", once: true, answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "cut off in its body", once: true, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "con")
			flush(w)
			panic(http.ErrAbortHandler)
		}},
		{name: "cancelled in its stream", once: true, request: func(ctx context.Context) *http.Request {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
			return get(ctx, site)
		}, answer: func(w http.ResponseWriter, req *http.Request) {
			io.WriteString(w, "con")
			flush(w)
			<-req.Context().Done()
		}},
		{name: "no host", once: true, request: func(context.Context) *http.Request { return get(context.Background(), "http:///x") }},
		{name: "no such method", once: true, request: func(context.Context) *http.Request {
			req := post(nil)
			req.Method = "NO METHOD"
			return req
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// seen is all that who sends a request sees, and what the server does.
			seen := func(l *heed.Limits, refuse bool) (all string) {
				synctest.Test(t, func(t *testing.T) {
					var log strings.Builder
					var tries atomic.Int32
					base, _ := network(t, func(w http.ResponseWriter, req *http.Request) {
						again := tries.Add(1) > 1
						switch {
						case refuse && !again:
							if req.Header.Get("Expect") == "" { // else it is asked for twice
								io.Copy(io.Discard, req.Body)
							}
							w.Header().Set("Retry-After", "1")
							w.WriteHeader(http.StatusTooManyRequests)
						case tt.answer != nil:
							tt.answer(w, req)
						default:
							body, err := io.ReadAll(req.Body)
							fmt.Fprintf(w, "%s %s %s close %v, length %d %v: %q %v, trailers %v", req.Method, req.Host, req.URL, req.Close, req.ContentLength, req.TransferEncoding, body, err, req.Trailer)
						}
					})
					base.ExpectContinueTimeout = time.Minute
					var rt http.RoundTripper = base
					if l != nil {
						rt = quiet(t, base, *l)
					}
					ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
						Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
							fmt.Fprintln(&log, "informed", code, h)
							return nil
						},
						Got100Continue: func() { fmt.Fprintln(&log, "go on") },
					})
					req := get(ctx, site)
					if tt.request != nil {
						req = tt.request(ctx)
						req = req.WithContext(httptrace.WithClientTrace(req.Context(), httptrace.ContextClientTrace(ctx)))
					}
					req.URL.Scheme = "http"
					body := &closedBody{ReadCloser: req.Body}
					if req.Body != nil {
						req.Body = body
					}
					resp, err := rt.RoundTrip(req)
					if err != nil {
						fmt.Fprintf(&log, "error %v\n", err)
					} else {
						delete(resp.Header, "Date")
						fmt.Fprintln(&log, resp.Proto, resp.Status, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Uncompressed, resp.Trailer, resp.Request == req, resp.Body == http.NoBody)
						content, err := io.ReadAll(resp.Body)
						fmt.Fprintf(&log, "%q %v\n", content, err)
						err = resp.Body.Close()
						_, again := resp.Body.Read(make([]byte, 1))
						fmt.Fprintln(&log, err, again, resp.Trailer)
					}
					synctest.Wait()
					fmt.Fprint(&log, "body closed ", req.Body == nil || body.closed.Load())
					all = log.String()
				})
				return all
			}
			want := seen(nil, false)
			for name, l := range map[string]*heed.Limits{
				"no limits":         {},
				"slots":             {MaxConcurrent: 2},
				"bytes are counted": {Policies: []heed.Policy{{Name: "bytes", Quota: 1 << 30, Window: time.Hour, Unit: heed.UnitContentBytes}}},
			} {
				if got := seen(l, false); got != want {
					t.Errorf("%s:\n%s\nwithout heed:\n%s", name, got, want)
				}
				if tt.once {
					continue
				}
				if got := seen(l, true); got != want {
					t.Errorf("%s, refused at first:\n%s\nwithout heed:\n%s", name, got, want)
				}
			}
		})
	}
}

// A closedBody notes that it was closed.
type closedBody struct {
	io.ReadCloser
	closed atomic.Bool
}

func (b *closedBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// A brokenReader cannot be read.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }
