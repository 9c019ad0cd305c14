package heed_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// paths is a base that answers each path with a script of its own.
func paths(scripts map[string]*script) baseFunc {
	return func(req *http.Request) (*http.Response, error) {
		if s := scripts[req.URL.Path]; s != nil {
			return s.RoundTrip(req)
		}
		return reply(200, ""), nil
	}
}

func TestSickEndpointDoesNotStopAHealthyOne(t *testing.T) {
	for _, answer := range []string{"503", "429"} {
		t.Run(answer+" beside", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := &script{answers: []string{answer}}
				tr := quiet(t, paths(map[string]*script{"/bad": bad}), heed.Limits{})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var all sync.WaitGroup
				for range 2 {
					all.Go(func() {
						for ctx.Err() == nil {
							if resp, err := tr.RoundTrip(get(ctx, site+"/bad")); err == nil {
								resp.Body.Close()
							}
							time.Sleep(time.Second)
						}
					})
				}
				var longest time.Duration
				good := 0
				for ctx.Err() == nil {
					began := time.Now()
					if resp, err := tr.RoundTrip(get(ctx, site+"/good")); err == nil {
						resp.Body.Close()
						good++
					}
					longest = max(longest, time.Since(began))
					time.Sleep(100 * time.Millisecond)
				}
				all.Wait()
				if good < 2500 || longest > 6*time.Second {
					t.Errorf("%d of 3000 good ones, the slowest after %v", good, longest)
				}
			})
		})
		t.Run(answer+" in turn", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := &script{answers: []string{answer}}
				tr := quiet(t, paths(map[string]*script{"/bad": bad}), heed.Limits{})
				began := time.Now()
				for range 50 {
					sendOne(t, tr, get(heed.NoRetry(t.Context()), site+"/bad"))
					sendOne(t, tr, get(t.Context(), site+"/good"))
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("50 rounds took %v", took)
				}
			})
		})
	}
}

// A refusal holds what shares the refused quota: a 503 all of the origin, a 429
// the credential's partition.
func TestWhatARefusalHolds(t *testing.T) {
	for answer, c := range map[string]struct{ same, others time.Duration }{
		"503 Retry-After: 60":                     {time.Minute, time.Minute},
		"429 Retry-After: 60":                     {time.Minute, 0},
		`429 Ratelimit: "default";r=0;t=60`:       {time.Minute, 0},
		"403 Retry-After: 60":                     {time.Minute, 0},
		"429":                                     {5 * time.Second, 0},
		"429 Retry-After: -5":                     {5 * time.Second, 0},
		"500 Retry-After: 60":                     {0, 0},
		`429 Retry-After: Sat, 01 Jan 2000 00:01`: {5 * time.Second, 0},
	} {
		t.Run(answer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := false
				s := &script{answers: []string{answer}}
				base := baseFunc(func(req *http.Request) (*http.Response, error) {
					if refused {
						return reply(200, ""), nil
					}
					refused = true
					return s.RoundTrip(req)
				})
				tr := quiet(t, base, heed.Limits{})
				as := func(who string, opts func(context.Context) context.Context) *http.Request {
					req := get(opts(t.Context()), site)
					req.Header.Set("Authorization", "Bearer "+who)
					return req
				}
				plain := func(ctx context.Context) context.Context { return ctx }
				sendOne(t, tr, as("one", heed.NoRetry))
				began := time.Now()
				var same, others time.Duration
				var all sync.WaitGroup
				all.Go(func() { sendOne(t, tr, as("one", plain)); same = time.Since(began) })
				all.Go(func() { sendOne(t, tr, as("two", plain)); others = time.Since(began) })
				all.Wait()
				for _, w := range []struct {
					who       string
					got, want time.Duration
				}{{"the same", same, c.same}, {"another", others, c.others}} {
					if w.got < w.want || w.got > w.want+min(w.want/10, time.Second) {
						t.Errorf("%s waited %v, want %v", w.who, w.got, w.want)
					}
				}
			})
		})
	}
}

// A problem document names the policy that a request was too much for, though
// something is left of it.
func TestViolatedPolicyIsHeldUntilItsReset(t *testing.T) {
	const policies = `"few";q=100;w=60, "many";q=1000;w=60`
	for left, want := range map[string]time.Duration{
		`"few";r=7;t=20, "many";r=900;t=50`: 20 * time.Second,
		`"few";t=20, "many";r=900;t=50`:     20 * time.Second,
		`"few";r=0;t=20, "many";r=900;t=50`: 20 * time.Second,
		`"many";r=900;t=50`:                 0, // nobody knows until when
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200, "RateLimit-Policy", policies))
			pm.Release()
			pm = acquire(t, r, request(example))
			resp := answer(429, "RateLimit-Policy", policies, "RateLimit", left, "Content-Type", "application/problem+json")
			resp.Body = io.NopCloser(strings.NewReader(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["few"]}`))
			pm.Observe(resp)
			pm.Release()
			began := time.Now()
			acquire(t, r, request(example)).Release()
			if waited := time.Since(began); waited != want {
				t.Errorf("%s: waited %v, want %v", left, waited, want)
			}
		})
	}
}

// Many answers of one refusal are one event, and an accepted answer starts
// the backoff over.
func TestBackoffCountsEventsAndStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var pauses []time.Duration
		r := listening(t, heed.Limits{}, func(e heed.Event) {
			if e.Kind == heed.EventPaused {
				mu.Lock()
				pauses = append(pauses, e.Wait)
				mu.Unlock()
			}
		})
		healthy := false
		base := baseFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			if healthy {
				return reply(200, ""), nil
			}
			return reply(503, ""), nil
		})
		tr := &heed.Transport{Base: base, Registry: r}
		outage := func(requests int, retries int) {
			tr := &heed.Transport{Base: base, Registry: r, Retry: heed.Retry{Max: retries}}
			var all sync.WaitGroup
			for range requests {
				all.Go(func() { sendOne(t, tr, get(t.Context(), site)) })
			}
			all.Wait()
		}
		outage(1, 3)
		if want := []time.Duration{5, 10, 20}; len(pauses) < 3 || !slices.EqualFunc(pauses[:3], want, func(a, b time.Duration) bool { return within(a, b*time.Second) }) {
			t.Errorf("pauses %v", pauses)
		}
		healthy = true
		time.Sleep(10 * time.Minute)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { sendOne(t, tr, get(t.Context(), site)) })
		}
		all.Wait()
		healthy, pauses = false, nil
		outage(32, -1)
		if len(pauses) != 1 || !within(pauses[0], 5*time.Second) {
			t.Errorf("pauses %v by 32 answers at once", pauses)
		}
	})
}

func TestBackoffEndsAtItsLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"503"}}
		tr := quiet(t, base, heed.Limits{MinBackoff: time.Second, MaxBackoff: 3 * time.Second})
		sendOne(t, tr, get(t.Context(), site))
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			if gap := base.gaps()[i]; !within(gap, want) {
				t.Errorf("waited %v", base.gaps())
			}
		}
	})
}

// Where MaxBackoff alone is set it holds for the first wait, too.
func TestMaxBackoffIsKeptToByTheFirstWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429", "200"}}
		sendOne(t, quiet(t, base, heed.Limits{MaxBackoff: time.Second}), get(t.Context(), site))
		if gaps := base.gaps(); len(gaps) != 1 || !within(gaps[0], time.Second) {
			t.Errorf("waited %v", gaps)
		}
	})
}

// The longest backoff there is, and its jitter, is none that has passed already.
func TestLongestBackoffThereIsHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429"}}
		tr := quiet(t, base, heed.Limits{MinBackoff: math.MaxInt64})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if status, _ := sendOne(t, tr, get(ctx, site)); status != 429 || len(base.gaps()) > 0 {
			t.Errorf("status %d, tried again after %v", status, base.gaps())
		}
		if _, err := tr.RoundTrip(get(heed.NoWait(ctx), site)); err == nil {
			t.Error("the partition is not held")
		} else if le := limitErr(t, err); le.Cause != heed.CausePause || le.Wait < time.Hour {
			t.Errorf("refused with %#v", le)
		}
	})
}

// The score of a crowd at an origin that enforces and announces a quota.
func TestCrowdIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Policies: []heedtest.Policy{{Name: "default", Quota: 50, Window: 5 * time.Second}},
			Latency:  heedtest.RoundTrip(40 * time.Millisecond),
		})
		client := quiet(t, o, heed.Limits{}).Client()
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for {
					resp, err := client.Do(get(ctx, site))
					if err != nil {
						return
					}
					resp.Body.Close()
				}
			})
		}
		all.Wait()
		if tally := o.Tally(); tally.Refused > 0 || tally.Early > 0 || tally.Accepted < 500 {
			t.Errorf("%d accepted, %d refused, %d early", tally.Accepted, tally.Refused, tally.Early)
		}
	})
}

// What its refusal names is waited for, whatever a request was said to cost.
func TestRefusedRequestWaitsWhateverItCosts(t *testing.T) {
	const policies = "RateLimit-Policy: \"a\";q=10;w=60"
	for name, answer := range map[string]func() *http.Response{
		"a limit used up": func() *http.Response {
			return reply(429, "", policies, `RateLimit: "a";r=0;t=10`)
		},
		"a policy violated": func() *http.Response {
			return reply(429, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["a"]}`,
				policies, `RateLimit: "a";r=0;t=10`, "Retry-After: 10", "Content-Type: application/problem+json")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var starts []time.Time
				tr := quiet(t, respond(func(*http.Request) *http.Response {
					if starts = append(starts, time.Now()); len(starts) == 1 {
						return answer()
					}
					return reply(200, "", policies, `RateLimit: "a";r=9;t=60`)
				}), heed.Limits{})
				sendOne(t, tr, get(heed.WithCost(t.Context(), heed.UnitRequests, 0), site))
				if d := starts[1].Sub(starts[0]); !within(d, 10*time.Second) {
					t.Errorf("tried again after %v", d)
				}
			})
		})
	}
}

// An origin whose clock is three minutes behind, and that does not say what it shows, has its refusals name a reset that is over
// for as long: a few of them are answered by when its window seems to have more, and then each waits longer than the one before. It was
// asked again every 1.3 s, and refused one request for each seven that it accepted.
func TestResetsThatStayOverAreBackedOffFrom(t *testing.T) {
	manyRequests(t)
	const quota, length, behind, windows = 300, 5 * time.Minute, 3 * time.Minute, 24
	for _, goroutines := range []int{1, 16} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var begun time.Time
			var used, accepted, refused, paused int
			base := baseFunc(func(*http.Request) (*http.Response, error) {
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				if now := time.Now(); now.Sub(begun) >= length {
					begun, used = now, 0
				}
				status := http.StatusOK
				if used == quota {
					status = http.StatusTooManyRequests
					refused++
				} else {
					used++
					accepted++
				}
				resp := answer(status, "X-RateLimit-Limit", strconv.Itoa(quota), "X-RateLimit-Remaining", strconv.Itoa(quota-used),
					"X-RateLimit-Reset", strconv.FormatInt(begun.Add(length-behind).Unix()+1, 10))
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				return resp, nil
			})
			r := listening(t, heed.Limits{}, func(e heed.Event) {
				if e.Kind == heed.EventPaused && e.Cause == heed.CausePause {
					mu.Lock()
					paused++
					mu.Unlock()
				}
			})
			tr := &heed.Transport{Base: base, Registry: r}
			end := time.Now().Add(windows * length)
			busy := asking(goroutines, end, func(int) (*http.Response, error) { return tr.Client().Get("https://origin.test/") })
			time.Sleep(time.Until(end))
			r.Close()
			busy.Wait()
			t.Logf("%d at a time: %d accepted, %d refused, %d pauses", goroutines, accepted, refused, paused)
			if accepted < windows*quota*80/100 || refused > 9*windows || paused < 2*windows {
				t.Errorf("%d at a time: %d accepted of %d, %d refused, %d pauses", goroutines, accepted, windows*quota, refused, paused)
			}
		})
	}
}

// Some pages may be refused always, each under a path of its own. Those that are tried again and again go after others then, or nobody
// would see that the others are accepted.
func TestPagesThatAreAlwaysRefusedHoldNoOthersForLong(t *testing.T) {
	manyRequests(t)
	for status, most := range map[int]time.Duration{http.StatusServiceUnavailable: 2 * time.Minute, http.StatusTooManyRequests: 30 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			o := baseFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(200 * time.Millisecond)
				if strings.HasPrefix(r.URL.Path, "/sick/") {
					return answer(status), nil
				}
				return answer(http.StatusOK), nil
			})
			tr := quiet(t, o, heed.Limits{})
			defer tr.Registry.Close()
			c := tr.Client()
			var mu sync.Mutex
			late, longest := 0, time.Duration(0)
			var busy sync.WaitGroup
			for i := range 2 * 3600 {
				busy.Go(func() {
					path, asked := "/ok/"+word(i), time.Now()
					if i%10 == 3 {
						path = "/sick/" + word(i)
					}
					resp, err := c.Get(example + path)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
					mu.Lock()
					defer mu.Unlock()
					if waited := time.Since(asked); resp.StatusCode == http.StatusOK {
						longest = max(longest, waited)
						if waited > 10*time.Minute {
							late++
						}
					}
				})
				time.Sleep(time.Second)
			}
			busy.Wait()
			t.Logf("%d: %d of 6480 others waited for more than ten minutes, the longest for %v", status, late, longest)
			if late > 650 || longest > most {
				t.Errorf("%d: %d of 6480 others waited for more than ten minutes, the longest for %v", status, late, longest)
			}
		})
	}
}

// word is a word for a number.
func word(n int) string {
	b := []byte{'w'}
	for ; n > 0; n /= 26 {
		b = append(b, byte('a'+n%26))
	}
	return string(b)
}
