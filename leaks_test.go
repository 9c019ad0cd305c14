package heed_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

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

// A crowd that cancels, runs into deadlines, is refused, paused and given other
// limits leaves nothing behind, and what the origin accepted is what is used.
func TestCrowdLeavesNothingBehind(t *testing.T) {
	sideBySide(t)
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
