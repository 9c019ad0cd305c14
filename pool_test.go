package heed_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A tokened is an origin with a quota for each token, which it takes from a
// field or the query.
type tokened struct {
	quota   map[string]int // left of each token; it is not valid where there is none
	reset   time.Duration
	mu      sync.Mutex
	used    map[string]int
	refused int
	bodies  []string
}

func (s *tokened) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		b, _ := io.ReadAll(req.Body)
		req.Body.Close()
		body = string(b)
	}
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if token == "" {
		token = req.URL.Query().Get("key")
	}
	if s.used == nil {
		s.used = map[string]int{}
	}
	s.bodies = append(s.bodies, body)
	left, ok := s.quota[token]
	resp := answer(200)
	switch {
	case !ok:
		s.used[token]++
		return answer(401), nil
	case left == 0:
		s.refused++
		resp = answer(429)
	default:
		left--
		s.quota[token] = left
		s.used[token]++
	}
	resp.Header.Set("RateLimit-Policy", `"p";q=10;w=`+strconv.Itoa(int(s.reset.Seconds())))
	resp.Header.Set("RateLimit", `"p";r=`+strconv.Itoa(left)+`;t=`+strconv.Itoa(int(s.reset.Seconds())))
	return resp, nil
}

func tokens(names ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return names, nil }
}

func TestPoolSendsWithTheTokenThatHasMostRoom(t *testing.T) {
	for _, tc := range []struct {
		name  string
		apply func(*http.Request, string)
	}{
		{"in Authorization", nil},
		{"of a scheme that is not known", func(req *http.Request, token string) { req.Header.Set("Authorization", "token "+token) }},
		{"in the query", func(req *http.Request, token string) {
			q := req.URL.Query()
			q.Set("key", token)
			req.URL.RawQuery = q.Encode()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &tokened{quota: map[string]int{"a": 10, "b": 4, "c": 10}, reset: time.Hour}
				tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{Default: unsmoothed})}
				pool := &heed.Pool{Transport: tr, Tokens: tokens("a", "b", "c"), Apply: tc.apply}
				for range 18 {
					if status, _ := fetch(t, pool, example); status != 200 {
						t.Fatalf("got %d", status)
					}
				}
				for name, left := range s.quota {
					if left != 2 {
						t.Errorf("%d left of %s, want 2 of each: what is left is %v", left, name, s.quota)
					}
				}
				for range 6 {
					fetch(t, pool, example)
				}
				if s.refused > 0 {
					t.Errorf("%d refused", s.refused)
				}
				_, err := pool.RoundTrip(request(example).WithContext(heed.NoWait(t.Context())))
				if le := limitErr(t, err); le.Wait < 59*time.Minute {
					t.Errorf("with nothing left of any, %v", err)
				}
			})
		})
	}
}

// What an origin refuses with one token goes on with another at once.
func TestPoolGoesOnWithAnotherTokenAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{quota: map[string]int{"a": 0, "b": 10}, reset: time.Hour}
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{Default: unsmoothed})}, Tokens: tokens("a", "b")}
		began := time.Now()
		for range 5 {
			req, _ := http.NewRequest("POST", example, strings.NewReader("body"))
			resp, err := pool.RoundTrip(req)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			if resp.Request != req || req.Header.Get("Authorization") != "" {
				t.Error("the caller's request was changed, or is not the one answered")
			}
		}
		if took := time.Since(began); took > time.Second || s.refused > 1 {
			t.Errorf("took %v, with %d refused", took, s.refused)
		}
		for _, body := range s.bodies {
			if body != "body" {
				t.Errorf("sent the body %q", body)
			}
		}
	})
}

// Where the origin allows one request at a time, a refusal whose body nobody has read
// leaves its slot to the next token's.
func TestPoolTriesAnotherTokenThoughOneRequestMayBeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{quota: map[string]int{"a": 0, "b": 10}, reset: time.Hour}
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := s.RoundTrip(req)
			resp.Body = io.NopCloser(strings.NewReader("said"))
			return resp, err
		})
		pool := &heed.Pool{Transport: &heed.Transport{Base: base, Registry: newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})}, Tokens: tokens("a", "b")}
		began := time.Now()
		if status, _ := fetch(t, pool, example); status != 200 || s.refused != 1 || time.Since(began) > time.Second {
			t.Errorf("got %d after %v and %d refusals", status, time.Since(began), s.refused)
		}
	})
}

func TestPoolWaitsInSixteenLinesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 20 {
			names = append(names, strconv.Itoa(i))
		}
		r := newRegistry(t, heed.Config{Default: quota(1, time.Minute)})
		pool := &heed.Pool{Transport: &heed.Transport{Base: respond(func(*http.Request) *http.Response { return reply(200, "") }), Registry: r}, Tokens: tokens(names...)}
		for range names {
			fetch(t, pool, example)
		}
		var waiting atomic.Int64
		time.AfterFunc(time.Second, func() { waiting.Store(int64(r.Snapshot()[0].Waiting)) })
		if status, _ := fetch(t, pool, example); status != 200 || waiting.Load() != 16 {
			t.Errorf("got %d, after it had waited in %d lines", status, waiting.Load())
		}
	})
}

func TestTokenThatIsNotAcceptedIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{quota: map[string]int{"good": 10}, reset: time.Hour}
		var log bytes.Buffer
		var events []heed.Event
		r := newRegistry(t, heed.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			OnEvent: func(e heed.Event) {
				if e.Kind == heed.EventSetAside {
					events = append(events, e)
				}
			},
		})
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: r}, Tokens: tokens("secret", "good")}
		for range 4 {
			if status, _ := fetch(t, pool, example); status != 200 {
				t.Errorf("got %d", status)
			}
		}
		if s.used["secret"] != 1 || len(events) != 1 || events[0].Status != 401 || events[0].Origin != example {
			t.Errorf("%d requests with what is not accepted, told of as %+v, want one of each", s.used["secret"], events)
		}
		if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "set aside") {
			t.Errorf("logged:\n%s", log.String())
		}
		pool.Tokens = tokens("secret")
		if _, err := pool.RoundTrip(request(example)); !errors.Is(err, heed.ErrNoToken) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with none left: %v", err)
		}
	})
}

// Tokens that change every hour do not pile up where they are remembered as set aside: the
// first of very many is found out again.
func TestTokensSetAsideAreNotAllRemembered(t *testing.T) {
	sent := map[string]int{}
	base := baseFunc(func(req *http.Request) (*http.Response, error) {
		sent[req.Header.Get("Authorization")]++
		return answer(401), nil
	})
	token := ""
	pool := &heed.Pool{
		Transport: &heed.Transport{Base: base, Registry: newRegistry(t, heed.Config{Default: heed.Limits{Unlimited: true}})},
		Tokens:    func(context.Context) ([]string, error) { return []string{token}, nil },
	}
	for i := range 5000 {
		token = strconv.Itoa(i)
		fetch(t, pool, example)
	}
	token = "4999"
	if _, err := pool.RoundTrip(request(example)); !errors.Is(err, heed.ErrNoToken) {
		t.Errorf("the latest: %v", err)
	}
	token = "0"
	if status, _ := fetch(t, pool, example); status != 401 || sent["Bearer 0"] != 2 {
		t.Errorf("the first: sent %d times", sent["Bearer 0"])
	}
}

func TestTokenIsSetAsideWhereHeedStepsAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{quota: map[string]int{"good": 10}, reset: time.Hour}
		r := newRegistry(t, heed.Config{Default: heed.Limits{Unlimited: true}})
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: r}, Tokens: tokens("bad", "good")}
		for range 4 {
			if status, _ := fetch(t, pool, example); status != 200 {
				t.Errorf("got %d", status)
			}
		}
		if s.used["bad"] != 1 {
			t.Errorf("%d requests with what is not accepted, want one", s.used["bad"])
		}
	})
}

// Whatever OnEvent panics with, nothing is left in any token's line, or in flight.
func TestPanicOfOnEventLeavesNothingOfAPoolBehind(t *testing.T) {
	for _, kind := range []heed.Kind{heed.EventWaiting, heed.EventAdmitted, heed.EventSetAside} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &tokened{quota: map[string]int{"a": 10, "b": 10, "c": 10}, reset: time.Hour}
				armed := false
				r := newRegistry(t, heed.Config{Default: quota(1, time.Minute), OnEvent: func(e heed.Event) {
					if armed && e.Kind == kind {
						panic(kind)
					}
				}})
				defer r.Close()
				pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: r}, Tokens: tokens("a", "b", "c")}
				for range 3 {
					fetch(t, pool, example)
				}
				if kind == heed.EventSetAside {
					clear(s.quota)
				}
				armed = true
				func() {
					defer func() {
						if e := recover(); e != kind {
							t.Errorf("recovered %v", e)
						}
					}()
					fetch(t, pool, example)
				}()
				armed = false
				time.Sleep(10 * time.Minute)
				if o := r.Snapshot()[0]; o.InFlight != 0 || o.Waiting != 0 {
					t.Errorf("%d in flight, %d waiting", o.InFlight, o.Waiting)
				}
			})
		})
	}
}

func TestLastTokensRejectionComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{reset: time.Hour}
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}, Tokens: tokens("a", "b")}
		if status, _ := fetch(t, pool, example); status != 401 || s.used["a"] != 1 || s.used["b"] != 1 {
			t.Errorf("got %d after %v, want the 401 of the last one", status, s.used)
		}
	})
}

// A token that Tokens stopped to return is tried anew when it is there again: not at once, for
// Tokens may return others to other requests.
func TestTokenIsNotSetAsideForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{quota: map[string]int{"good": 1000}, reset: time.Hour}
		names := []string{"bad", "good"}
		pool := &heed.Pool{
			Transport: &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})},
			Tokens:    func(context.Context) ([]string, error) { return names, nil },
		}
		for range 200 {
			fetch(t, pool, example)
			time.Sleep(time.Minute)
		}
		names = []string{"good"}
		for range 10 {
			fetch(t, pool, example)
		}
		names = []string{"bad", "good"}
		for range 10 {
			fetch(t, pool, example)
		}
		if s.used["bad"] != 1 {
			t.Errorf("%d requests with what is not accepted, want one", s.used["bad"])
		}
		names = []string{"good"}
		time.Sleep(time.Hour)
		s.quota["bad"] = 1000
		names = []string{"bad", "good"}
		for range 10 {
			fetch(t, pool, example)
		}
		if s.used["bad"] < 2 {
			t.Error("it is set aside for good")
		}
	})
}

func TestPoolMakesAHeaderWhereThereIsNone(t *testing.T) {
	s := &tokened{quota: map[string]int{"a": 10}, reset: time.Hour}
	pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}, Tokens: tokens("a")}
	req := request(example)
	req.Header = nil
	if resp, err := pool.RoundTrip(req); err != nil || resp.StatusCode != 200 || req.Header != nil {
		t.Errorf("%v, %v; header %v", resp, err, req.Header)
	}
}

func TestTokenGivenTwiceCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{reset: time.Hour}
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxQueue: 1}})
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: r}, Tokens: tokens("a", "a", "a")}
		if status, _ := fetch(t, pool, example); status != 401 || s.used["a"] != 1 {
			t.Errorf("got %d after %v, want the 401 after one request", status, s.used)
		}
		_, err := pool.RoundTrip(request(example))
		if !errors.Is(err, heed.ErrNoToken) || !strings.Contains(err.Error(), "all 1 are set aside") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestPoolWaitsWhereNoTokenHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{quota: map[string]int{"a": 1, "b": 1}, reset: time.Minute}
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}, Tokens: tokens("a", "b")}
		began := time.Now()
		fetch(t, pool, example)
		fetch(t, pool, example)
		time.AfterFunc(50*time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.quota["a"], s.quota["b"] = 10, 10
		})
		if status, _ := fetch(t, pool, example); status != 200 || time.Since(began) < time.Minute || time.Since(began) > 2*time.Minute {
			t.Errorf("got %d after %v, want a wait of a minute", status, time.Since(began))
		}
		if s.refused > 0 {
			t.Errorf("%d refused", s.refused)
		}
	})
}

// A request that waits in the lines of several tokens goes once: who comes after it has as long to wait as that.
func TestRequestInSeveralLinesPutsOthersOffOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		base := baseFunc(func(*http.Request) (*http.Response, error) { return answer(200), nil })
		pool := &heed.Pool{Transport: &heed.Transport{Base: base, Registry: r}, Tokens: tokens("a", "b")}
		for range 40 {
			fetch(t, pool, example)
			done(acquire(t, r, request(example)))
		}
		if err := r.SetLimits("*", heed.Limits{MinInterval: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		done(acquire(t, r, request(example)))
		go pool.RoundTrip(request(example))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		d := r.Check(request(example).WithContext(ctx))
		began := time.Now()
		pm, err := r.Acquire(ctx, request(example))
		if err != nil || d.Wait != 20*time.Second || time.Since(began) != d.Wait {
			t.Errorf("after %v: %v; Check() = %+v", time.Since(began), err, d)
		}
		if err == nil {
			done(pm)
		}
	})
}

// A request that waits in several lines goes from one of them: it takes from each no more than its share, and who is behind
// it is refused only where no line could let it go in time.
func TestPoolJudgesDeadlinesByWhatAllLinesLetGo(t *testing.T) {
	for _, tc := range []struct {
		name    string
		limits  heed.Limits
		tokens  []string
		first   int // that ask without a deadline, before …
		n       int // … those that have one
		within  time.Duration
		maxWait bool // set for all of them, and no deadline
		cost    int64
		refused []string // the tokens that are, for an hour
		want    int      // of the n
	}{
		{"one each, one waits", quota(1, 10*time.Second), []string{"a", "b"}, 3, 1, 10500 * time.Millisecond, false, 1, nil, 1},
		{"the same, MaxWait", quota(1, 10*time.Second), []string{"a", "b"}, 3, 1, 10500 * time.Millisecond, true, 1, nil, 1},
		{"one too many", quota(1, 10*time.Second), []string{"a", "b"}, 3, 2, 10500 * time.Millisecond, false, 1, nil, 1},
		{"one window", quota(10, 10*time.Second), []string{"a", "b", "c"}, 0, 40, 5 * time.Second, false, 1, nil, 30},
		{"one window, MaxWait", quota(10, 10*time.Second), []string{"a", "b", "c"}, 0, 40, 5 * time.Second, true, 1, nil, 30},
		{"two windows", quota(10, 10*time.Second), []string{"a", "b", "c"}, 0, 80, 12 * time.Second, false, 1, nil, 60},
		{"two windows, cost 2", quota(10, 10*time.Second), []string{"a", "b", "c"}, 0, 40, 12 * time.Second, false, 2, nil, 30},
		{"a token that was refused", quota(10, 10*time.Second), []string{"a", "b", "c"}, 0, 50, 12 * time.Second, false, 1, []string{"b"}, 40},
		{"tokens that were all refused", quota(10, 10*time.Second), []string{"a", "b", "c"}, 0, 5, 12 * time.Second, false, 1, []string{"a", "b", "c"}, 0},
		{"an interval for all", heed.Limits{MinInterval: time.Second}, []string{"a", "b"}, 0, 10, 4500 * time.Millisecond, false, 1, nil, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				base := baseFunc(func(*http.Request) (*http.Response, error) { return answer(200), nil })
				pool := &heed.Pool{Transport: &heed.Transport{Base: base, Registry: r}, Tokens: tokens(tc.tokens...)}
				for range 20 * len(tc.tokens) { // met beforehand, so that nobody has to scout
					fetch(t, pool, example)
				}
				if tc.maxWait {
					tc.limits.MaxWait = tc.within
				}
				r.SetLimits("*", tc.limits)
				time.Sleep(time.Hour)
				for _, token := range tc.refused {
					pm := acquire(t, r, request(example, "Authorization", "Bearer "+token))
					pm.Observe(answer(429, "Retry-After", "3600"))
					pm.Release()
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cost > 1 {
					ctx = heed.WithCost(ctx, heed.UnitRequests, tc.cost)
				}
				for range tc.first {
					go pool.RoundTrip(request(example).WithContext(ctx))
					synctest.Wait()
				}
				var went, late atomic.Int32
				began := time.Now()
				for range tc.n {
					go func() {
						ctx := ctx
						if !tc.maxWait {
							var done context.CancelFunc
							ctx, done = context.WithTimeout(ctx, tc.within)
							defer done()
						}
						if _, err := pool.RoundTrip(request(example).WithContext(ctx)); err == nil {
							went.Add(1)
						} else if !errors.Is(err, heed.ErrLimited) || time.Since(began) > 0 {
							late.Add(1)
						}
					}()
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if int(went.Load()) != tc.want || late.Load() > 0 {
					t.Errorf("%d went, want %d; %d were not refused at once", went.Load(), tc.want, late.Load())
				}
			})
		})
	}
}

// Those that the lines together no longer let go in time are refused in all of them as soon as that is certain.
func TestPoolJudgesDeadlinesAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*heed.Registry, *heed.Pool)
		want   int
	}{
		{"nothing happens", func(*heed.Registry, *heed.Pool) {}, 20},
		{"a lower limit", func(r *heed.Registry, _ *heed.Pool) { r.SetLimits("*", quota(4, 10*time.Second)) }, 8},
		{"others push in", func(_ *heed.Registry, pool *heed.Pool) {
			for range 12 {
				ctx := heed.WithPriority(context.Background(), heed.PriorityHigh)
				go pool.RoundTrip(request(example).WithContext(ctx))
				synctest.Wait()
			}
		}, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				base := baseFunc(func(*http.Request) (*http.Response, error) { return answer(200), nil })
				pool := &heed.Pool{Transport: &heed.Transport{Base: base, Registry: r}, Tokens: tokens("a", "b")}
				for range 40 {
					fetch(t, pool, example)
				}
				r.SetLimits("*", quota(10, 10*time.Second))
				time.Sleep(time.Hour)
				for range 20 { // all there is
					fetch(t, pool, example)
				}
				var went, late atomic.Int32
				began := time.Now()
				for range 20 {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
						defer cancel()
						if _, err := pool.RoundTrip(request(example).WithContext(ctx)); err == nil {
							went.Add(1)
						} else if !errors.Is(err, heed.ErrLimited) || time.Since(began) > time.Second {
							late.Add(1)
						}
					}()
					synctest.Wait()
				}
				time.Sleep(time.Second)
				tc.change(r, pool)
				time.Sleep(time.Minute)
				synctest.Wait()
				if int(went.Load()) != tc.want || late.Load() > 0 {
					t.Errorf("%d went, want %d; %d were not refused at once", went.Load(), tc.want, late.Load())
				}
			})
		})
	}
}

// Where an interval holds for all tokens, too, who waits in several lines is counted once, in whatever line.
func TestPoolStaysInAllLinesThatWouldLetARequestGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		base := baseFunc(func(*http.Request) (*http.Response, error) { return answer(200), nil })
		pool := &heed.Pool{Transport: &heed.Transport{Base: base, Registry: r}, Tokens: tokens("a", "b")}
		for range 40 {
			fetch(t, pool, example)
		}
		if err := r.SetLimits("*", heed.Limits{MinInterval: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		inFlight := acquire(t, r, request(example, "Authorization", "Bearer a"))
		go pool.RoundTrip(request(example))
		synctest.Wait()
		time.AfterFunc(time.Second, func() { inFlight.Observe(answer(429, "Retry-After", "60")) })
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := pool.RoundTrip(request(example).WithContext(ctx)); err != nil || time.Since(began) != 20*time.Second {
			t.Errorf("after %v: %v, want it to go with the other token after 20 s", time.Since(began), err)
		}
		inFlight.Release()
	})
}

func TestPoolDoesNotTakeTokensToOtherOrigins(t *testing.T) {
	seen := map[string]string{}
	base := baseFunc(func(req *http.Request) (*http.Response, error) {
		seen[req.URL.Host] = req.Header.Get("Authorization")
		if req.URL.Host == "api.example.org" {
			return answer(302, "Location", "https://elsewhere.example.net/"), nil
		}
		return answer(200), nil
	})
	pool := &heed.Pool{Transport: &heed.Transport{Base: base, Registry: newRegistry(t, heed.Config{})}, Tokens: tokens("a")}
	if _, err := pool.Client().Get(example); err != nil {
		t.Fatal(err)
	}
	if seen["api.example.org"] != "Bearer a" || seen["elsewhere.example.net"] != "" {
		t.Errorf("sent %v", seen)
	}
}

func TestPoolWithoutTokensClosesTheBody(t *testing.T) {
	failed := errors.New("vault is shut")
	for _, tc := range []struct {
		tokens func(context.Context) ([]string, error)
		want   error
	}{
		{tokens(), heed.ErrNoToken},
		{func(context.Context) ([]string, error) { return nil, failed }, failed},
	} {
		closed := false
		req, _ := http.NewRequest("POST", example, closing{strings.NewReader("x"), func() { closed = true }})
		pool := &heed.Pool{Tokens: tc.tokens}
		if _, err := pool.RoundTrip(req); !errors.Is(err, tc.want) || !closed {
			t.Errorf("error is %v, body closed: %v; want %v", err, closed, tc.want)
		}
	}
}

type closing struct {
	io.Reader
	f func()
}

func (c closing) Close() error { c.f(); return nil }

// A windowed is an origin with a fixed window for each token, begun by its first
// request.
type windowed struct {
	quota   int
	window  time.Duration
	mu      sync.Mutex
	used    map[string]int
	ends    map[string]time.Time
	refused int
}

func (s *windowed) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	token, now, status := req.Header.Get("Authorization"), time.Now(), 200
	if !now.Before(s.ends[token]) {
		s.used[token], s.ends[token] = 0, now.Add(s.window)
	}
	if s.used[token] >= s.quota {
		status = 429
		s.refused++
	} else {
		s.used[token]++
	}
	left := (s.ends[token].Sub(now) + time.Second - 1) / time.Second
	return answer(status, "RateLimit-Policy", `"p";q=`+strconv.Itoa(s.quota)+`;w=`+strconv.Itoa(int(s.window.Seconds())),
		"RateLimit", `"p";r=`+strconv.Itoa(s.quota-s.used[token])+`;t=`+strconv.Itoa(int(left))), nil
}

// Those that wait go with whatever token has room, not only with the one that
// was to have it first when they came.
func TestCrowdUsesAllTokensOfThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &windowed{quota: 10, window: time.Minute, used: map[string]int{}, ends: map[string]time.Time{}}
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: r}, Tokens: tokens("a", "b", "c")}
		began := time.Now()
		var all sync.WaitGroup
		send(t, pool, &all, 90, example) // of 30 a minute
		all.Wait()
		if took := time.Since(began); took > 2*time.Minute+10*time.Second {
			t.Errorf("90 at 30 a minute took %v", took)
		}
		if s.refused > 0 {
			t.Errorf("%d refused", s.refused)
		}
		for _, o := range r.Snapshot() {
			if o.Waiting != 0 || o.InFlight != 0 {
				t.Errorf("%d wait and %d are in flight after the last", o.Waiting, o.InFlight)
			}
		}
	})
}

func TestPoolLeavesAllLinesWhenARequestIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokened{quota: map[string]int{"a": 1, "b": 1}, reset: time.Hour}
		r := newRegistry(t, heed.Config{})
		pool := &heed.Pool{Transport: &heed.Transport{Base: s, Registry: r}, Tokens: tokens("a", "b")}
		fetch(t, pool, example)
		fetch(t, pool, example)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		began := time.Now()
		if _, err := pool.RoundTrip(request(example).WithContext(ctx)); err != why || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v, want the cause at once", err, time.Since(began))
		}
		if o := r.Snapshot()[0]; o.Waiting != 0 {
			t.Errorf("%d still wait", o.Waiting)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err := pool.RoundTrip(request(example).WithContext(soon))
		if e := limitErr(t, err); e.Reason != heed.ReasonDeadline || e.Wait > time.Hour {
			t.Errorf("past its deadline: %+v", e)
		}
	})
}

// The refusal of one token with no hint of a time is waited out, and not
// answered by the same token's next request.
func TestPoolKeepsTheRefusedTokensOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var starts []time.Duration
		began, refused := time.Now(), 0
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if req.URL.Path == "/often" && refused < 1 && len(starts) > 4 {
				refused++
				starts = append(starts, time.Since(began))
				return answer(429), nil
			}
			starts = append(starts, time.Since(began))
			return answer(200), nil
		})
		pool := &heed.Pool{Transport: &heed.Transport{Base: base, Registry: newRegistry(t, heed.Config{Default: unsmoothed})}, Tokens: tokens("a")}
		for range 5 {
			fetch(t, pool, example+"/often")
		}
		var all sync.WaitGroup
		done := make(chan struct{})
		all.Go(func() { // others succeed meanwhile
			for {
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
					fetch(t, pool, example+"/seldom")
				}
			}
		})
		time.Sleep(time.Second)
		before := time.Now()
		fetch(t, pool, example+"/often")
		if took := time.Since(before); took < 5*time.Second {
			t.Errorf("a refusal without a hint was over after %v", took)
		}
		close(done)
		all.Wait()
	})
}

// A request that heed is to leave alone goes as it is, and no token is asked for.
func TestPoolLeavesAloneWhatBypasses(t *testing.T) {
	asked := 0
	p := &heed.Pool{
		Transport: &heed.Transport{Base: respond(func(req *http.Request) *http.Response {
			return reply(http.StatusOK, "with "+req.Header.Get("Authorization"))
		})},
		Tokens: func(context.Context) ([]string, error) {
			asked++
			return []string{"a"}, nil
		},
	}
	if _, body := sendOne(t, p, get(heed.Bypass(t.Context()), site)); body != "with " || asked != 0 {
		t.Errorf("answered %q, and asked for tokens %d times", body, asked)
	}
}

func TestPoolClosesIdleConnectionsOfItsBase(t *testing.T) {
	base := &idler{}
	p := &heed.Pool{Transport: &heed.Transport{Base: base}}
	p.CloseIdleConnections()
	if base.calls != 1 {
		t.Errorf("told the base %d times", base.calls)
	}
}

// Another token is no help against what is not the token's: what Retry.Check has tried again, or a
// refusal for all tokens, waits and goes with the same one.
func TestPoolKeepsTheTokenWhereAnotherIsNoHelp(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		fields []string
		least  time.Duration
	}{
		"what Check adds":          {500, nil, 5 * time.Second},
		"a refusal for all tokens": {429, []string{"Retry-After: 7", "X-RateLimit-Global: true"}, 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var with []string
			var at []time.Time
			base := respond(func(req *http.Request) *http.Response {
				with, at = append(with, req.Header.Get("Authorization")), append(at, time.Now())
				if len(with) > 1 {
					return reply(200, "")
				}
				return reply(c.status, "", c.fields...)
			})
			p := &heed.Pool{
				Transport: &heed.Transport{Base: base, Registry: listening(t, heed.Limits{}, nil), Retry: heed.Retry{
					Check: func(_ *http.Request, resp *http.Response, _ error) bool { return resp != nil && resp.StatusCode >= 429 },
				}},
				Tokens: func(context.Context) ([]string, error) { return []string{"a", "b"}, nil },
			}
			status, _ := sendOne(t, p, get(t.Context(), "https://discord.com/api/v10/users"))
			if status != 200 || len(with) != 2 || with[0] != with[1] || at[1].Sub(at[0]) < c.least {
				t.Errorf("%s: answered %d, sent with %q at %v", name, status, with, at)
			}
		})
	}
}

// A body that does not end: it is read until it is closed.
type endless struct{ closed chan struct{} }

func (b endless) Read([]byte) (int, error) { <-b.closed; return 0, io.EOF }
func (b endless) Close() error             { close(b.closed); return nil }

// Nothing is read to its end first that the caller does not want any more.
func TestCancelledRequestOfAPoolReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := respond(func(*http.Request) *http.Response {
			resp := answer(429, "Retry-After", "60")
			resp.Body = endless{make(chan struct{})}
			return resp
		})
		pool := &heed.Pool{Transport: quiet(t, base, heed.Limits{}), Tokens: tokens("a")}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		began := time.Now()
		_, err := pool.RoundTrip(request(example).WithContext(ctx))
		if d := time.Since(began); err != context.Canceled || d != 2*time.Second {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

// What ends for all tokens at once, as the pause of an origin does, lets a request go that waits in the lines of all of
// them: from one.
func TestPoolLetsARequestGoFromOneLineOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[heed.Kind]int{}
		r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) { mu.Lock(); told[e.Kind]++; mu.Unlock() }})
		sent := 0
		p := &heed.Pool{
			Tokens: func(context.Context) ([]string, error) { return []string{"a", "b", "c"}, nil },
			Transport: &heed.Transport{Registry: r, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				if sent++; sent%2 == 1 {
					return answer(503, "Retry-After", "10"), nil
				}
				return answer(200), nil
			})},
		}
		const requests = 10
		began := time.Now()
		for range requests {
			resp, err := p.RoundTrip(request(example))
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
		}
		if sent != 2*requests || told[heed.EventAdmitted] != sent || told[heed.EventRetried] != requests {
			t.Errorf("%d sent, %d admitted, %d retried", sent, told[heed.EventAdmitted], told[heed.EventRetried])
		}
		if waited := r.Snapshot()[0].Waited; waited != time.Since(began) {
			t.Errorf("waited for %v in %v", waited, time.Since(began))
		}
	})
}

// Whatever ends a wait at the very instant at which the request may go, the error says that.
func TestPoolTellsWhyAWaitEndedWhenItsTurnCame(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			p := &heed.Pool{
				Tokens:    func(context.Context) ([]string, error) { return []string{"a", "b", "c"}, nil },
				Transport: &heed.Transport{Registry: r, Base: respond(func(*http.Request) *http.Response { return answer(200) })},
			}
			if _, err := p.RoundTrip(request(example)); err != nil {
				t.Fatal(err)
			}
			r.Pause(example, 10*time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(time.Second)
				r.Pause(example, 0)
				cancel()
			}()
			if _, err := p.RoundTrip(request(example).WithContext(ctx)); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		})
	}
}

// A trace says how long a request waited, and for what, be it that it got no leave in the end.
func TestPoolTracesWaitsThatCameToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		p := &heed.Pool{
			Tokens:    func(context.Context) ([]string, error) { return []string{"a", "b"}, nil },
			Transport: &heed.Transport{Registry: r, Base: respond(func(*http.Request) *http.Response { return answer(200) })},
		}
		if _, err := p.RoundTrip(request(example)); err != nil {
			t.Fatal(err)
		}
		r.Pause(example, time.Minute)
		for name, end := range map[string]func(cancel func()){
			"cancelled": func(cancel func()) { time.AfterFunc(5*time.Second, cancel) },
			"MaxWait": func(func()) {
				time.AfterFunc(5*time.Second, func() { r.SetLimits(example, heed.Limits{MaxWait: 5 * time.Second}) })
			},
		} {
			var trace heed.Trace
			ctx, cancel := context.WithCancel(heed.WithTrace(t.Context(), &trace))
			defer cancel()
			end(cancel)
			_, err := p.RoundTrip(request(example).WithContext(ctx))
			if err == nil || trace.Waited != 5*time.Second || trace.Cause != heed.CausePause {
				t.Errorf("%s: %v, and a trace of %+v after a wait of 5 s for a pause", name, err, trace)
			}
			r.ClearLimits(example)
		}
	})
}

// What is missing is said, rather than found out from a panic.
func TestErrorOfAPoolWithoutTokensSaysWhatIsMissing(t *testing.T) {
	for want, pool := range map[string]*heed.Pool{
		"heed: no token: Pool.Tokens is nil":        {},
		"heed: no token: Pool.Tokens returned none": {Tokens: tokens()},
	} {
		if _, err := pool.RoundTrip(request(example)); !errors.Is(err, heed.ErrNoToken) || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}
