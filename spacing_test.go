package heed_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Starts on an origin over its partitions.
func TestSpacing(t *testing.T) {
	const ms = time.Millisecond
	slow := 30 * ms
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		ctx    func(context.Context) context.Context
		want   []time.Duration
	}{
		{"MinInterval", heed.Limits{MinInterval: 100 * ms}, nil, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"MinPause", heed.Limits{MinPause: 100 * ms}, nil, []time.Duration{0, 130 * ms, 260 * ms, 390 * ms}},
		{"both", heed.Limits{MinPause: 10 * ms, MinInterval: 100 * ms}, nil, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"MaxConcurrent", heed.Limits{MaxConcurrent: 1}, nil, []time.Duration{0, 30 * ms, 60 * ms, 90 * ms}},
		{"MaxConcurrent 2", heed.Limits{MaxConcurrent: 2}, nil, []time.Duration{0, 0, 30 * ms, 30 * ms}},
		{"WithMinInterval", heed.Limits{}, func(ctx context.Context) context.Context { return heed.WithMinInterval(ctx, 100*ms) },
			[]time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"WithMinInterval, longer", heed.Limits{MinInterval: 50 * ms}, func(ctx context.Context) context.Context { return heed.WithMinInterval(ctx, 100*ms) },
			[]time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"WithMinInterval, shorter", heed.Limits{MinInterval: 100 * ms}, func(ctx context.Context) context.Context { return heed.WithMinInterval(ctx, 50*ms) },
			[]time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"WithMinInterval, below 0", heed.Limits{MaxConcurrent: 1}, func(ctx context.Context) context.Context { return heed.WithMinInterval(ctx, -time.Hour) },
			[]time.Duration{0, 30 * ms, 60 * ms, 90 * ms}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: tc.limits})
				ctx := t.Context()
				if tc.ctx != nil {
					ctx = tc.ctx(ctx)
				}
				began := time.Now()
				var got []time.Duration
				var mu sync.Mutex
				for i := range 4 {
					go func() {
						pm, err := r.Acquire(ctx, request(example, "X-Api-Key", fmt.Sprint(i%2)))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						got = append(got, time.Since(began))
						mu.Unlock()
						time.Sleep(slow)
						done(pm)
					}()
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !slices.Equal(got, tc.want) {
					t.Errorf("they started at %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// One that asks for a longer interval gets its turn, whatever others send meanwhile who wait
// in other lines.
func TestLongerIntervalGetsItsTurn(t *testing.T) {
	const interval = 10 * time.Second
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		other  string // path that the others ask for
		key    string // … and with what credential
		ctx    func(context.Context) context.Context
	}{
		{"among other credentials", heed.Limits{}, "", "other", nil},
		{"among other credentials, spaced too", heed.Limits{MinInterval: 900 * time.Millisecond}, "", "other", nil},
		{"among those who do not wait", heed.Limits{}, "", "other", heed.NoWait},
		{"among other budgets", heed.Limits{}, "/search", "", nil},
		{"where it is refused to wait for it", heed.Limits{MaxQueue: 1}, "", "other", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				send := func(ctx context.Context, path, key string) (sent bool) {
					pm, err := r.Acquire(ctx, request(example+path, "X-Api-Key", key))
					if err != nil {
						limitErr(t, err)
						return false
					}
					bucket := "core"
					if path == "/search" {
						bucket = "search"
					}
					pm.Observe(answer(200, "X-RateLimit-Resource", bucket, "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4900", "X-RateLimit-Reset", "3600"))
					pm.Release()
					return true
				}
				for range 3 {
					send(t.Context(), tc.other, tc.key)
					send(t.Context(), "", "")
				}
				r.SetLimits("*", tc.limits)
				ctx := t.Context()
				if tc.ctx != nil {
					ctx = tc.ctx(ctx)
				}
				w := start(heed.WithMinInterval(t.Context(), interval), r, request(example))
				before, after := 0, 0
				for range 60 {
					time.Sleep(time.Second)
					synctest.Wait()
					if done := w.done(); !send(ctx, tc.other, tc.key) {
					} else if !done && !w.done() {
						before++
					} else {
						after++
					}
				}
				if !w.done() || w.at < interval || w.at > 2*interval {
					t.Fatalf("it went after %v (%v), want at most twice its interval of %v", w.at, w.done(), interval)
				}
				if before < 5 || after < 35 {
					t.Errorf("%d others went before, and %d after", before, after)
				}
			})
		})
	}
}

// Nothing is kept free for one that asks for a longer interval while its own quota holds it.
func TestLongerIntervalHoldsNobodyWhereAQuotaHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MinInterval: time.Second}})
		defer r.Close()
		other := func() *http.Request { return request(example, "X-Api-Key", "other") }
		empty := acquire(t, r, request(example))
		empty.Observe(answer(200, "RateLimit-Policy", `"hour";q=1000;w=3600`, "RateLimit", `"hour";r=0;t=3600`))
		empty.Release()
		w := start(heed.WithMinInterval(t.Context(), 10*time.Second), r, request(example))
		for range 20 {
			time.Sleep(time.Second)
			done(acquire(t, r, other()))
		}
		second := start(t.Context(), r, other())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		third := start(ctx, r, other())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w.done() || !second.done() || !third.done() || third.err != nil || third.at != 2*time.Second {
			t.Errorf("it is sent: %v; two of others after %v and %v (%v), want after 1s and 2s", w.done(), second.at, third.at, third.err)
		}
	})
}

// A request that was never sent does not count as a start, nor as an end.
func TestCancelledPermitLeavesNoInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MinInterval: time.Hour, MinPause: time.Hour}})
		acquire(t, r, request(example)).Cancel()
		acquire(t, r, request(example)).Cancel()
		acquire(t, r, request(example)).Release()
		if d := r.Check(request(example)); d.Wait != time.Hour {
			t.Errorf("Check() = %+v", d)
		}
	})
}

// 2500 requests that cost nothing of a quota of 1000 an hour, each over after 10 ms.
func TestWhatCostsNothingIsNotSpread(t *testing.T) {
	sideBySide(t)
	for name, end := range map[string]func(*heed.Permit){
		"answered from a cache": func(pm *heed.Permit) {
			pm.Observe(answer(200, "Age", "5"))
			pm.Release()
		},
		"never sent": (*heed.Permit).Cancel,
	} {
		for _, strict := range []bool{false, true} {
			for _, goroutines := range []int{1, 10} {
				t.Run(fmt.Sprintf("%s, strict %v, %d at once", name, strict, goroutines), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRegistry(t, heed.Config{Default: heed.Limits{
							Policies: []heed.Policy{{Quota: 1000, Window: time.Hour}}, Smoothing: heed.Smoothing{Strict: strict},
						}})
						meet(t, r, example)
						began := time.Now()
						var wg sync.WaitGroup
						for range goroutines {
							wg.Go(func() {
								for range 2500 / goroutines {
									pm := acquire(t, r, request(example))
									time.Sleep(10 * time.Millisecond)
									end(pm)
								}
							})
						}
						wg.Wait()
						want := 25 * time.Second // one at a time, where every one is spread
						if !strict {
							want /= time.Duration(goroutines)
						}
						if took := time.Since(began); took > want*6/5 {
							t.Errorf("took %v, want %v", took, want)
						}
					})
				})
			}
		}
	}
}

// In every window of its length, as the origin sees arrivals.
func TestConfiguredPolicyHoldsInEveryWindow(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				policies := []heed.Policy{
					{Name: "short", Quota: 1 + rnd.Int64N(20), Window: time.Second},
					{Name: "long", Quota: 20 + rnd.Int64N(300), Window: 10 * time.Second},
				}
				var at []heedtest.Policy
				for _, p := range policies {
					at = append(at, heedtest.Policy{Name: p.Name, Quota: p.Quota, Window: p.Window})
				}
				var latency [4096][2]time.Duration
				for i := range latency {
					latency[i] = [2]time.Duration{time.Duration(rnd.ExpFloat64() * 5e7), time.Duration(rnd.ExpFloat64() * 5e7)}
				}
				origin := heedtest.NewOrigin(heedtest.Config{
					Policies: at, Algorithm: heedtest.SlidingWindow, Dialect: heedtest.Silent,
					Latency: func(n int64) (up, down time.Duration) { l := latency[n%4096]; return l[0], l[1] },
				})
				r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: policies}})
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				for range 32 {
					go func() {
						for {
							pm, err := r.Acquire(ctx, request(example))
							if err != nil {
								return
							}
							resp, err := origin.RoundTrip(request(example))
							if err != nil {
								t.Error(err)
								return
							}
							pm.Observe(resp)
							pm.Release()
						}
					}()
				}
				<-ctx.Done()
				time.Sleep(time.Second)
				if tally := origin.Tally(); tally.Refused > 0 || tally.Accepted < 50 {
					t.Errorf("accepted %d, refused %d", tally.Accepted, tally.Refused)
				}
			})
		})
	}
}

func TestTokenBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Name: "b", Quota: 10, Window: time.Second, Burst: 3}}}})
		meet(t, r, example)
		time.Sleep(time.Minute)
		began := time.Now()
		for i := range 10 {
			done(acquire(t, r, request(example)))
			if got, want := time.Since(began), time.Duration(max(i-2, 0))*100*time.Millisecond; got < want || got > want+100 {
				t.Errorf("request %d started after %v, want %v", i, got, want)
			}
		}
		time.Sleep(200 * time.Millisecond)
		if d := r.Check(request(example)); d.Remaining != 2 {
			t.Errorf("%d left", d.Remaining)
		}
	})
}

func TestConcurrencyPolicyCountsUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Name: "c", Quota: 2, Unit: heed.UnitConcurrentRequests}}}})
		meet(t, r, example)
		a, b := acquire(t, r, request(example)), acquire(t, r, request(example))
		w := start(t.Context(), r, request(example))
		a.Observe(answer(200))
		time.Sleep(time.Hour)
		if w.done() {
			t.Error("an answer alone frees a slot")
		}
		a.Release()
		synctest.Wait()
		if !w.done() {
			t.Error("the end of a request frees no slot")
		}
		b.Cancel()
		w.permit.Release()
		if d := r.Check(request(example)); d.Remaining != 2 {
			t.Errorf("%d left", d.Remaining)
		}
	})
}

// Any number of waits are over at the instant their units are back.
func TestNobodyWaitsLongerThanTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: quota(5, time.Second)})
		meet(t, r, example)
		time.Sleep(time.Minute)
		began := time.Now()
		for i := range 50 {
			done(acquire(t, r, request(example)))
			if got, want := time.Since(began), time.Duration(i/5)*time.Second; got != want {
				t.Fatalf("request %d started after %v, want %v", i, got, want)
			}
		}
	})
}

// Bytes come in large numbers.
func TestLargeBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 1 << 40
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: burst, Window: time.Second, Burst: burst, Unit: heed.UnitContentBytes}}}})
		for i := range 3 {
			began := time.Now()
			pm, err := r.Acquire(heed.WithCost(t.Context(), heed.UnitContentBytes, burst), request(example))
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began).Round(time.Millisecond); got != time.Duration(min(i, 1))*time.Second {
				t.Errorf("request %d waited %v", i, got)
			}
			done(pm)
		}
	})
}

// A burst that means none at all is not shown as used up.
func TestLargestBucketThereIsIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 10, Window: time.Second, Burst: math.MaxInt64}}}})
		meet(t, r, example)
		if got := r.Snapshot()[0].Partitions[0].Policies[0]; got.Used != 0 || got.Remaining != math.MaxInt64 {
			t.Errorf("%d are used and %d left of %d", got.Used, got.Remaining, got.Burst)
		}
	})
}

func TestChangedBucketIsNotFilledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := func(quota int64) heed.Limits {
			return heed.Limits{Policies: []heed.Policy{{Name: "b", Quota: quota, Window: time.Minute, Burst: 5}}}
		}
		r := newRegistry(t, heed.Config{Default: l(5)})
		meet(t, r, example)
		for r.Check(request(example)).Allowed {
			done(acquire(t, r, request(example)))
		}
		r.SetLimits("*", l(6))
		if d := r.Check(request(example)); d.Remaining != 0 {
			t.Errorf("%d left of a bucket that was empty", d.Remaining)
		}
	})
}

// Nor does one go before it that comes at the very instant at which it may go.
func TestLongerIntervalGoesBeforeWhoComesAtThatInstant(t *testing.T) {
	for range 10 { // which of the two is first is for the scheduler to say
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			defer r.Close()
			meet(t, r, example)
			var wg sync.WaitGroup
			for i := range 60 {
				wg.Go(func() {
					time.Sleep(time.Duration(i+1) * time.Second)
					if pm, err := r.Acquire(heed.NoWait(t.Context()), request(example, "X-Api-Key", "other")); err == nil {
						done(pm)
					}
				})
			}
			w := start(heed.WithMinInterval(t.Context(), 10*time.Second), r, request(example))
			wg.Wait()
			if !w.done() || w.at > 20*time.Second {
				t.Errorf("it went after %v (%v)", w.at, w.done())
			}
		})
	}
}

// Of two who start at one instant, one is not sent in the end: the other one's interval is kept to.
func TestStartThatIsTakenBackLeavesTheIntervalOfOneAtThatInstant(t *testing.T) {
	for first := range 2 {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			defer r.Close()
			for range 12 {
				done(acquire(t, r, request(example)))
			}
			time.Sleep(time.Minute)
			two := []*heed.Permit{acquire(t, r, request(example)), acquire(t, r, request(example))}
			spaced := request(example)
			spaced = spaced.WithContext(heed.WithMinInterval(spaced.Context(), 10*time.Second))
			two[first].Cancel()
			if d := r.Check(spaced); d.Wait != 10*time.Second {
				t.Errorf("Check() = %+v", d)
			}
			two[1-first].Cancel()
			if d := r.Check(spaced); !d.Allowed {
				t.Errorf("nobody was sent: %+v", d)
			}
		})
	}
}

// A start that is taken back holds nobody who asks for a longer interval, of whatever credential.
func TestIntervalIsNotCountedFromAStartThatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		for i := range 2 {
			for range 12 {
				done(acquire(t, r, credential(i)))
			}
		}
		time.Sleep(time.Minute)
		pm := acquire(t, r, credential(0))
		w := start(heed.WithMinInterval(t.Context(), 10*time.Second), r, credential(1))
		time.Sleep(time.Second)
		if w.done() {
			t.Fatalf("it went after %v: %v", w.at, w.err)
		}
		pm.Cancel()
		synctest.Wait()
		if !w.done() || w.at != time.Second {
			t.Errorf("it went after %v, want a second", w.at)
		}
	})
}

// What tells whose quota a request is of may take its time. It starts when it is let go, not when it
// came: nobody after it goes too early for that, and events are told in the order of their times.
func TestRequestsStartWhenTheyAreLetGo(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		before bool          // another one goes a millisecond before the one that took a second
		want   time.Duration // after which the next one goes
	}{
		{"interval", heed.Limits{MinInterval: 2 * time.Second}, false, 2 * time.Second},
		{"bucket", heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Second, Burst: 2}}}, true, 999 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var last time.Time
				r := newRegistry(t, heed.Config{
					Default: tc.limits,
					Partition: func(req *http.Request) string {
						if req.Header.Get("X-Slow") != "" {
							time.Sleep(time.Second)
						}
						return ""
					},
					OnEvent: func(e heed.Event) {
						mu.Lock()
						defer mu.Unlock()
						if e.Time.Before(last) {
							t.Errorf("%v is dated %v before what was told before it", e.Kind, last.Sub(e.Time))
						}
						last = e.Time
					},
				})
				send := func(header ...string) (waited time.Duration) {
					began := time.Now()
					pm := acquire(t, r, request(example, header...))
					waited = time.Since(began)
					pm.Observe(answer(200))
					pm.Release()
					return waited
				}
				if tc.before {
					time.AfterFunc(999*time.Millisecond, func() { send() })
				}
				if waited := send("X-Slow", "yes"); waited != time.Second {
					t.Errorf("it waited %v", waited)
				}
				if waited := send(); waited < tc.want || waited > tc.want+time.Millisecond {
					t.Errorf("the next one waited %v, want %v", waited, tc.want)
				}
			})
		})
	}
}

// Who is told that a request may go can take time over it, and the request is sent only then. The next
// one keeps its interval from that instant on.
func TestIntervalIsBetweenRequestsAsTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := true
		c := heed.Config{Default: heed.Limits{MinInterval: time.Second}, OnEvent: func(e heed.Event) {
			if e.Kind == heed.EventAdmitted && slow {
				slow = false
				time.Sleep(700 * time.Millisecond)
			}
		}}
		var sent []time.Duration
		began := time.Now()
		client := (&heed.Transport{Registry: newRegistry(t, c), Base: baseFunc(func(*http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(began))
			return answer(200), nil
		})}).Client()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				resp, err := client.Get(example)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
			synctest.Wait()
		}
		all.Wait()
		if want := []time.Duration{700 * time.Millisecond, 1700 * time.Millisecond, 2700 * time.Millisecond}; !slices.Equal(sent, want) {
			t.Errorf("they were sent at %v, want %v", sent, want)
		}
	})
}
