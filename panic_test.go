package heed_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A fuse is a user's function that panics when it is called for the nth time.
type fuse struct{ left int }

func (f *fuse) burn() {
	if f.left--; f.left == 0 {
		panic(f)
	}
}

// A fused handler of a log burns its fuse with every record.
type fusedLog struct {
	slog.Handler
	*fuse
}

func (h fusedLog) Enabled(context.Context, slog.Level) bool  { return true }
func (h fusedLog) Handle(context.Context, slog.Record) error { h.burn(); return nil }
func (h fusedLog) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h fusedLog) WithGroup(string) slog.Handler             { return h }

// Whichever of the user's functions panics, and whenever: bodies are closed, no permit is
// left, nobody waits, and no lock is held.
func TestPanicOfAnyOfTheUsersFunctionsLeavesNothingBehind(t *testing.T) {
	type parts struct {
		config heed.Config
		pool   heed.Pool
		retry  heed.Retry
	}
	users := map[string]func(*parts, *fuse){
		"Config.Origin": func(p *parts, f *fuse) {
			p.config.Origin = func(req *http.Request) string { f.burn(); return heed.OriginOf(req.URL) }
		},
		"Config.Partition": func(p *parts, f *fuse) {
			p.config.Partition = func(req *http.Request) string { f.burn(); return req.Header.Get("Authorization") }
		},
		"Config.Logger":  func(p *parts, f *fuse) { p.config.Logger = slog.New(fusedLog{slog.DiscardHandler, f}) },
		"Config.OnEvent": func(p *parts, f *fuse) { p.config.OnEvent = func(heed.Event) { f.burn() } },
		"Dialect.Body": func(p *parts, f *fuse) {
			p.config.Dialects = []heed.Dialect{{Name: "own", Origins: []string{"*"}, Body: func(int, http.Header, []byte) (heed.Announcement, bool) {
				f.burn()
				return heed.Announcement{RetryAfter: time.Second}, true
			}}}
		},
		"Retry.Check": func(p *parts, f *fuse) {
			p.retry.Check = func(_ *http.Request, resp *http.Response, err error) bool {
				f.burn()
				return err == nil && resp.StatusCode != 200
			}
		},
		"Pool.Tokens": func(p *parts, f *fuse) {
			p.pool.Tokens = func(context.Context) ([]string, error) { f.burn(); return []string{"a", "b"}, nil }
		},
		"Pool.Apply": func(p *parts, f *fuse) {
			p.pool.Apply = func(req *http.Request, token string) { f.burn(); req.Header.Set("Authorization", token) }
		},
		"Request.GetBody": func(*parts, *fuse) {}, // see below
	}
	for name, use := range users {
		for _, pooled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/pool=%t", name, pooled), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					burnt := 0
					for n := 1; n <= 60; n++ {
						f := &fuse{}
						p := parts{config: heed.Config{Logger: discard, Default: heed.Limits{MaxConcurrent: 1, MinInterval: time.Second}}}
						p.pool.Tokens = tokens("a", "b")
						use(&p, f)
						var bodies []*watched
						opened := func() *watched {
							bodies = append(bodies, watch("content"))
							return bodies[len(bodies)-1]
						}
						statuses := []int{200, 429, 503, 401, 200}
						base := baseFunc(func(req *http.Request) (*http.Response, error) {
							io.Copy(io.Discard, req.Body)
							req.Body.Close()
							resp := answer(statuses[0])
							if statuses[0] == 429 || statuses[0] == 503 {
								resp.Header.Set("Retry-After", "3")
							}
							statuses = append(statuses[1:], 200)
							resp.Body = opened()
							return resp, nil
						})
						r, err := heed.NewRegistry(p.config)
						if err != nil {
							t.Fatal(err)
						}
						tr := &heed.Transport{Base: base, Registry: r, Retry: p.retry}
						var rt http.RoundTripper = tr
						if pooled {
							p.pool.Transport = tr
							rt = &p.pool
						}
						send := func() (panicked bool) {
							body := opened()
							req, _ := http.NewRequest(http.MethodPut, site, body)
							req.GetBody = func() (io.ReadCloser, error) {
								if name == "Request.GetBody" {
									f.burn()
								}
								return opened(), nil
							}
							defer func() {
								e := recover()
								if panicked = e != nil; panicked && e != any(f) {
									panic(e)
								}
							}()
							resp, err := rt.RoundTrip(req)
							if err == nil {
								defer resp.Body.Close()
								io.CopyN(io.Discard, resp.Body, 3)
							}
							return false
						}
						f.left = n
						for range 2 {
							if send() {
								burnt++
							}
						}
						f.left = 0
						time.Sleep(time.Minute)
						for i, b := range bodies {
							if b.closed.Load() == 0 {
								t.Errorf("call %d: body %d of %d was left open", n, i+1, len(bodies))
							}
						}
						for _, o := range r.Snapshot() {
							if o.InFlight != 0 || o.Waiting != 0 {
								t.Errorf("call %d: %d in flight, %d waiting", n, o.InFlight, o.Waiting)
							}
						}
						statuses = []int{200}
						if send() {
							t.Errorf("call %d: panicked again", n)
						}
						if err := r.Close(); err != nil {
							t.Error(err)
						}
					}
					if burnt == 0 && (pooled || name != "Pool.Tokens" && name != "Pool.Apply") {
						t.Error("nothing panicked")
					}
					t.Logf("%d panics", burnt)
				})
			})
		}
	}
}
