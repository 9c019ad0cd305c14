package heed_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// twoRoutes is an origin, of which some goroutines ask for /limited and as many for /free all the time.
type twoRoutes struct {
	accepts       func(path string, now time.Time, h http.Header) bool
	goroutines    int                 // 0: 16
	lasts         time.Duration       // 0: a minute
	timeout       time.Duration       // of each request; 0: none
	asks          func(i, k int) bool // whether the i-th goroutine's k-th request is for /limited; nil: that of every second one
	limited, free int                 // accepted
	refused       int
}

// play has them ask. Then it calls after, with all answered.
func (o *twoRoutes) play(t *testing.T, seed uint64, after func(r *heed.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{way: 25 * time.Millisecond, uneven: rand.New(rand.NewPCG(seed, 0)), accepts: func(r *http.Request, now time.Time, h http.Header) bool {
			switch ok := o.accepts(r.URL.Path, now, h); {
			case !ok:
				o.refused++
				return false
			case r.URL.Path == "/limited":
				o.limited++
			default:
				o.free++
			}
			return true
		}}
		tr := quiet(t, l, heed.Limits{})
		if o.goroutines == 0 {
			o.goroutines = 16
		}
		if o.lasts == 0 {
			o.lasts = time.Minute
		}
		if o.asks == nil {
			o.asks = func(i, _ int) bool { return i%2 == 0 }
		}
		c := tr.Client()
		c.Timeout = o.timeout
		end := time.Now().Add(o.lasts)
		var busy sync.WaitGroup
		for i := range o.goroutines {
			busy.Go(func() {
				for k := 0; time.Now().Before(end); k++ {
					path := "/free"
					if o.asks(i, k) {
						path = "/limited"
					}
					resp, err := c.Get(example + path)
					switch {
					case err == nil:
						resp.Body.Close()
					case o.timeout > 0:
						time.Sleep(time.Second)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		busy.Wait()
		after(tr.Registry)
		tr.Registry.Close()
	})
}

// routes returns what an origin's partitions are for.
func routes(r *heed.Registry) (all []string) {
	for _, p := range r.Snapshot()[0].Partitions {
		all = append(all, p.Route)
	}
	slices.Sort(all)
	return all
}

// toSecond is how long it is until an instant, rounded up.
func toSecond(now, at time.Time) string {
	return strconv.Itoa(int((at.Sub(now) + time.Second - 1) / time.Second))
}

func TestRouteThatAloneIsRefusedHoldsNoOther(t *testing.T) {
	manyRequests(t)
	for _, hint := range []bool{false, true} {
		limited, free, refused := 0, 0, 0
		const seeds = 4
		play := func(seed uint64) (o *twoRoutes, partitions []string) {
			w := window{quota: 50, length: 5 * time.Second}
			o = &twoRoutes{accepts: func(path string, now time.Time, h http.Header) bool {
				if path == "/free" || w.take(now) {
					return true
				}
				if hint {
					h.Set("Retry-After", toSecond(now, w.end))
				}
				return false
			}}
			o.play(t, seed, func(r *heed.Registry) { partitions = routes(r) })
			return o, partitions
		}
		apart := []string{"", "GET /limited"}
		for seed := range uint64(seeds) {
			o, got := play(seed)
			if !slices.Equal(got, apart) { // by chance, once in some fifty plays, a minute is too short: two of three tell
				for range 2 {
					if o, got = play(seed); !slices.Equal(got, apart) {
						t.Errorf("hint %v, seed %d: partitions for %q, twice in three plays", hint, seed, got)
					}
				}
			}
			limited, free, refused = limited+o.limited, free+o.free, refused+o.refused
		}
		t.Logf("hint %v: %d of the limited route accepted of %d, %d of the free one of %d, %d refused", hint, limited, 600*seeds, free, 9600*seeds, refused)
		if limited < 480*seeds || free < 8000*seeds || refused > 30*seeds {
			t.Errorf("hint %v: %d of the limited route accepted of %d, %d of the free one of %d, %d refused", hint, limited, 600*seeds, free, 9600*seeds, refused)
		}
	}
}

// Where a route has a hidden limit and there are never more than a few requests in flight, or the origin announces a
// limit on all routes as well, that on one of them holds no other either, once it was met some times.
func TestRouteThatAloneIsRefusedHoldsNoOtherThoughRequestsAreFew(t *testing.T) {
	manyRequests(t)
	for _, test := range []struct {
		hint, announced bool
		free            int // at least
	}{
		{false, false, 15000}, // of the 18,000 that one goroutine can ask for
		{true, false, 5000},   // for it is all held for nearly a minute by each of the first refusals
		{false, true, 8000},   // of 9,000 announced
		{true, true, 4000},
	} {
		for seed := range uint64(2) {
			own, all := window{quota: 30, length: time.Minute}, window{quota: 600, length: time.Minute}
			beyond := 0
			o := &twoRoutes{goroutines: 2, lasts: 15 * time.Minute, accepts: func(path string, now time.Time, h http.Header) bool {
				if path == "/limited" && !own.take(now) {
					if test.hint {
						h.Set("Retry-After", toSecond(now, own.end))
					}
					return false
				}
				if !test.announced {
					return true
				}
				ok := all.take(now)
				all.announce(h)
				if !ok {
					beyond++
				}
				return ok
			}}
			var apart []string
			o.play(t, seed, func(r *heed.Registry) { apart = routes(r) })
			t.Logf("hint %v, announced %v: %d of the limited route accepted of 450, %d of the free one, %d refused, %d of those as announced",
				test.hint, test.announced, o.limited, o.free, o.refused, beyond)
			if o.free < test.free || o.limited < 330 || o.refused > 60 || beyond > 2 || !slices.Equal(apart, []string{"", "GET /limited"}) {
				t.Errorf("hint %v, announced %v: %d of the limited route accepted of 450, %d of the free one, at least %d expected, %d refused, %d of those as announced; partitions for %q",
					test.hint, test.announced, o.limited, o.free, test.free, o.refused, beyond, apart)
			}
		}
	}
}

// One that never lets anything through, as where a plan does not include it, holds no other for long, either.
func TestRouteThatIsNeverAcceptedHoldsNoOther(t *testing.T) {
	manyRequests(t)
	for seed := range uint64(2) {
		o := &twoRoutes{goroutines: 4, lasts: 20 * time.Minute, asks: func(i, _ int) bool { return i == 0 },
			accepts: func(path string, _ time.Time, h http.Header) bool {
				h.Set("Retry-After", "30")
				return path == "/free"
			}}
		var apart []string
		o.play(t, seed, func(r *heed.Registry) { apart = routes(r) })
		t.Logf("%d of the free route accepted, %d refused", o.free, o.refused)
		if o.free < 40000 || !slices.Equal(apart, []string{"", "GET /limited"}) {
			t.Errorf("%d of the free route accepted, %d refused; partitions for %q", o.free, o.refused, apart)
		}
	}
}

// That programs give requests little time is no reason not to find it out.
func TestRouteThatAloneIsRefusedHoldsNoOtherThoughRequestsHaveDeadlines(t *testing.T) {
	manyRequests(t)
	const seeds = 4
	free := 0
	for seed := range uint64(seeds) {
		own := window{quota: 30, length: time.Minute}
		o := &twoRoutes{goroutines: 12, lasts: 20 * time.Minute, timeout: 10 * time.Second, asks: func(i, _ int) bool { return i%4 == 0 },
			accepts: func(path string, now time.Time, h http.Header) bool {
				if path == "/free" || own.take(now) {
					return true
				}
				h.Set("Retry-After", toSecond(now, own.end))
				return false
			}}
		o.play(t, seed, func(*heed.Registry) {})
		t.Logf("%d of the limited route accepted of 600, %d of the free one, %d refused", o.limited, o.free, o.refused)
		free += o.free
	}
	if free < 20000*seeds {
		t.Errorf("%d of the free route accepted in the mean", free/seeds)
	}
}

// However regularly programs ask for two routes, a limit on both is not taken for that of one.
func TestHiddenLimitOnAllRoutesIsNotTakenForThatOfOneThoughRequestsAreFew(t *testing.T) {
	manyRequests(t)
	limits := map[string]func() func(now time.Time) bool{
		"window": func() func(time.Time) bool {
			w := window{quota: 50, length: 5 * time.Second}
			return w.take
		},
		"bucket": func() func(time.Time) bool {
			b := tokenBucket{rate: 10, burst: 20}
			return b.take
		},
		"strict": func() func(time.Time) bool {
			b := tokenBucket{rate: 10, burst: 1}
			return b.take
		},
	}
	patterns := map[string]func(i, k int) bool{
		"a goroutine for each":        nil,
		"all in turn":                 func(_, k int) bool { return k%2 == 0 },
		"one in eight":                func(i, k int) bool { return (i+k)%8 == 0 },
		"ten of one, then of another": func(_, k int) bool { return k/10%2 == 0 },
	}
	for limit, limited := range limits {
		for pattern, asks := range patterns {
			for _, hint := range []bool{false, true} {
				split := func(seed uint64) (apart bool) {
					takes := limited()
					o := &twoRoutes{goroutines: 4, lasts: 10 * time.Minute, asks: asks, accepts: func(_ string, now time.Time, h http.Header) bool {
						ok := takes(now)
						if !ok && hint {
							h.Set("Retry-After", "1")
						}
						return ok
					}}
					o.play(t, seed, func(r *heed.Registry) { apart = len(routes(r)) > 1 })
					return apart
				}
				if split(1) && (split(2) || split(3)) { // it may be by chance, in one of some hundred plays
					t.Errorf("%s, %s, hint %v: taken for the limit of one route, twice in three plays", limit, pattern, hint)
				}
			}
		}
	}
}

func TestHiddenLimitOnAllRoutesHoldsAll(t *testing.T) {
	sideBySide(t)
	for _, hint := range []bool{false, true} {
		for seed := range uint64(4) {
			w := window{quota: 50, length: 5 * time.Second}
			o := &twoRoutes{accepts: func(_ string, now time.Time, h http.Header) bool {
				ok := w.take(now)
				if !ok && hint {
					h.Set("Retry-After", toSecond(now, w.end))
				}
				return ok
			}}
			o.play(t, seed, func(r *heed.Registry) {
				if got := routes(r); len(got) != 1 {
					t.Errorf("hint %v, seed %d: partitions for %q", hint, seed, got)
				}
			})
		}
	}
}

// A program that asks for all of one route and then for all of another one meets a limit on both with
// the latter each time.
func TestHiddenLimitMetWithTheRouteThatComesLastHoldsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := window{quota: 50, length: 5 * time.Second}
		l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, _ http.Header) bool { return w.take(now) }}
		tr := quiet(t, l, heed.Limits{})
		defer tr.Registry.Close()
		for range 3 {
			var batch sync.WaitGroup
			for i := range 80 {
				batch.Go(func() {
					time.Sleep(time.Duration(i) * time.Microsecond)
					resp, err := tr.Client().Get(example + []string{"/list", "/detail"}[i/40])
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
			}
			batch.Wait()
			time.Sleep(10 * time.Second)
		}
		if got := routes(tr.Registry); l.refused == 0 || len(got) != 1 {
			t.Errorf("partitions for %q after %d refusals", got, l.refused)
		}
	})
}

// What is announced or configured later holds for all routes again, and so it is after a reset.
func TestRouteWithALimitOfItsOwnIsCountedWithTheOthersAgain(t *testing.T) {
	manyRequests(t)
	for name, again := range map[string]func(r *heed.Registry) error{
		"announced": func(r *heed.Registry) error {
			pm, err := r.Acquire(t.Context(), request(example+"/free"))
			if err == nil {
				pm.Observe(answer(http.StatusOK, "RateLimit-Policy", `"all";q=10;w=60`, "RateLimit", `"all";r=1;t=60`))
				pm.Release()
			}
			return err
		},
		"configured": func(r *heed.Registry) error {
			return r.SetLimits(example, heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Minute}}})
		},
	} {
		w := window{quota: 50, length: 5 * time.Second}
		o := &twoRoutes{accepts: func(path string, now time.Time, _ http.Header) bool { return path == "/free" || w.take(now) }}
		o.play(t, 1, func(r *heed.Registry) {
			if got := routes(r); len(got) != 2 {
				t.Fatalf("%s: partitions for %q", name, got)
			}
			if err := again(r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			pm, err := r.Acquire(t.Context(), request(example+"/free"))
			if err != nil {
				t.Fatal(err)
			}
			defer pm.Release()
			if r.Check(request(example + "/limited")).Allowed {
				t.Errorf("%s: /limited goes though nothing is left for all routes", name)
			}
		})
	}
}

// underWay returns requests of /limited and of /free that are in flight, 9 of each.
func underWay(t *testing.T, r *heed.Registry) (limited, free []*heed.Permit) {
	t.Helper()
	meet(t, r, example+"/free")
	meet(t, r, example+"/limited")
	for range 9 {
		limited = append(limited, acquire(t, r, request(example+"/limited")))
		free = append(free, acquire(t, r, request(example+"/free")))
		time.Sleep(time.Microsecond)
	}
	time.Sleep(10 * time.Millisecond)
	return limited, free
}

// tellApart has /limited get a partition of its own: 7 requests of each route are answered, and only
// those of /limited refused. It returns those that are still in flight.
func tellApart(t *testing.T, r *heed.Registry, limited, free []*heed.Permit) ([]*heed.Permit, []*heed.Permit) {
	t.Helper()
	for i := range 7 {
		limited[i].Observe(answer(http.StatusTooManyRequests))
		free[i].Observe(answer(http.StatusOK))
		limited[i].Release()
		free[i].Release()
	}
	if got := routes(r); !slices.Contains(got, "GET /limited") {
		t.Fatalf("partitions for %q", got)
	}
	return limited[7:], free[7:]
}

// splitRoute is both.
func splitRoute(t *testing.T, r *heed.Registry) (limited, free []*heed.Permit) {
	t.Helper()
	limited, free = underWay(t, r)
	return tellApart(t, r, limited, free)
}

// held reports that a request may not go before the time that its origin asked for, which is now and d.
func held(t *testing.T, r *heed.Registry, req *http.Request, d time.Duration) {
	t.Helper()
	if got := r.Check(req); got.Allowed || got.Wait < d {
		t.Errorf("%s goes after %v (%v), want %v: so long it was asked to wait", req.URL.Path, got.Wait, got.Cause, d)
	}
}

// Requests are in flight, and wait, when routes turn out to have limits of their own, and when they are
// counted together again. What is said to them holds those that go on with them.
func TestRequestsGoOnWithTheirLikeWhereARouteGetsALimitOfItsOwn(t *testing.T) {
	const wait = time.Minute
	refused := func() *http.Response { return answer(http.StatusTooManyRequests, "Retry-After", "60") }
	limits := heed.Limits{Policies: []heed.Policy{{Name: "all", Quota: 10, Window: time.Hour}}}
	forEach := func(name string, f func(t *testing.T, r *heed.Registry)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				f(t, r)
			})
		})
	}
	forEach("another route is refused that was in flight", func(t *testing.T, r *heed.Registry) {
		_, free := splitRoute(t, r)
		free[0].Observe(refused())
		held(t, r, request(example+"/free"), wait)
		if d := r.Check(request(example + "/limited")); d.Wait >= wait {
			t.Errorf("/limited waits for %v, as /free was asked to", d.Wait)
		}
	})
	forEach("another route had been refused before", func(t *testing.T, r *heed.Registry) {
		limited, free := underWay(t, r)
		pm := free[8]
		pm.Observe(refused())
		for i := range limited {
			limited[i].Observe(answer(http.StatusTooManyRequests, "Retry-After", "2"))
			free[i].Observe(answer(http.StatusOK)) // of which the last teaches nothing
		}
		if got := routes(r); !slices.Equal(got, []string{"", "GET /limited"}) {
			t.Errorf("partitions for %q", got)
		}
		held(t, r, request(example+"/free"), wait)
		held(t, r, request(example+"/limited"), 2*time.Second)
	})
	forEach("another credential is refused", func(t *testing.T, r *heed.Registry) {
		limited, free := request(example+"/limited", "X-Api-Key", "b"), request(example+"/free", "X-Api-Key", "b")
		for range 12 {
			pm := acquire(t, r, limited)
			pm.Observe(answer(http.StatusOK))
			pm.Release()
		}
		pm := acquire(t, r, limited)
		splitRoute(t, r)
		pm.Observe(refused())
		held(t, r, limited, wait)
		if d := r.Check(free); !d.Allowed {
			t.Errorf("/free waits for %v", d.Wait)
		}
		if got, want := routes(r), []string{"", "", "GET /limited", "GET /limited"}; !slices.Equal(got, want) {
			t.Errorf("partitions for %q, want %q", got, want)
		}
	})
	forEach("all were asked to wait before", func(t *testing.T, r *heed.Registry) {
		limited, free := underWay(t, r)
		limited[8].Observe(answer(http.StatusTooManyRequests))
		limited[8].Learn(heed.Announcement{RetryAfter: wait, Global: true})
		tellApart(t, r, limited, free)
		held(t, r, request(example+"/free"), wait)
		held(t, r, request(example+"/limited"), wait)
	})
	forEach("another credential had been refused before", func(t *testing.T, r *heed.Registry) {
		limited := request(example+"/limited", "X-Api-Key", "b")
		pm := acquire(t, r, limited)
		pm.Observe(refused())
		pm.Release()
		splitRoute(t, r)
		held(t, r, limited, wait-time.Second)
	})
	forEach("a refusal holds for all", func(t *testing.T, r *heed.Registry) {
		limited, _ := splitRoute(t, r)
		limited[0].Learn(heed.Announcement{Refused: true, RetryAfter: wait, Global: true})
		held(t, r, request(example+"/free"), wait)
		held(t, r, request(example+"/limited"), wait)
	})
	forEach("all are asked to wait", func(t *testing.T, r *heed.Registry) {
		limited, _ := splitRoute(t, r)
		limited[0].Learn(heed.Announcement{RetryAfter: wait, Global: true})
		held(t, r, request(example+"/free"), wait)
		held(t, r, request(example+"/limited"), wait)
	})
	forEach("it is paused when all are limited", func(t *testing.T, r *heed.Registry) {
		limited, _ := splitRoute(t, r)
		limited[0].Observe(refused())
		if err := r.SetLimits(example, limits); err != nil {
			t.Fatal(err)
		}
		held(t, r, request(example+"/limited"), wait)
	})
	forEach("it is refused when all were reset", func(t *testing.T, r *heed.Registry) {
		limited, _ := splitRoute(t, r)
		if err := r.Reset(example); err != nil {
			t.Fatal(err)
		}
		if got := routes(r); !slices.Equal(got, []string{""}) {
			t.Errorf("partitions for %q after a reset", got)
		}
		limited[0].Observe(refused())
		held(t, r, request(example+"/limited"), wait)
	})
	forEach("its answer announces a limit on all", func(t *testing.T, r *heed.Registry) {
		limited, _ := splitRoute(t, r)
		limited[0].Observe(answer(http.StatusOK, "RateLimit-Policy", `"all";q=10;w=60`, "RateLimit", `"all";r=0;t=60`))
		held(t, r, request(example+"/limited"), wait)
		held(t, r, request(example+"/free"), wait)
	})
	forEach("both wait when all are limited", func(t *testing.T, r *heed.Registry) {
		splitRoute(t, r) // 4 are in flight
		if err := r.Pause(example, time.Minute); err != nil {
			t.Fatal(err)
		}
		var all []*waiting
		for range 20 {
			all = append(all, start(t.Context(), r, request(example+"/limited")), start(t.Context(), r, request(example+"/free")))
		}
		if err := r.SetLimits(example, limits); err != nil {
			t.Fatal(err)
		}
		admitted := 0
		for range 50 * 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			all = slices.DeleteFunc(all, func(w *waiting) bool {
				if w.done() {
					admitted++
					w.permit.Observe(answer(http.StatusOK))
					w.permit.Release()
				}
				return w.done()
			})
		}
		if admitted != 6 {
			t.Errorf("%d go in an hour in which 4 of 10 had gone already, want 6", admitted)
		}
	})
}

// A limit learned from all routes is forgotten where they are told apart. All that it held must not
// go at once.
func TestThoseHeldByALimitThatIsForgottenDoNotGoAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := window{quota: 50, length: 5 * time.Second}
		l := &limiter{way: 25 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, _ http.Header) bool { return w.take(now) }}
		tr := quiet(t, l, heed.Limits{})
		defer tr.Registry.Close()
		refused := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.refused
		}
		end := time.Now().Add(50 * time.Second)
		var busy sync.WaitGroup
		for range 200 {
			busy.Go(func() {
				for time.Now().Before(end) {
					resp, err := tr.Client().Do(request(example+"/limited", "X-Api-Key", "b"))
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				}
			})
		}
		time.Sleep(40 * time.Second)
		before := refused()
		splitRoute(t, tr.Registry) // of another credential
		time.Sleep(4 * time.Second)
		after := refused() - before
		t.Logf("%d refused until then, %d after", before, after)
		if after > 80 {
			t.Errorf("%d refused after another credential's routes were told apart, %d before", after, before)
		}
		busy.Wait()
	})
}

// What is told of pauses fits what Snapshot shows, and a cap on requests in flight goes on to hold.
func TestWhatHoldsARouteHoldsAllOnceTheyAreCountedTogetherAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused := map[int]int{}
		inARow := 0
		r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
			switch e.Kind {
			case heed.EventPaused:
				paused[e.Partition]++
				inARow = e.InARow
			case heed.EventResumed:
				delete(paused, e.Partition)
			}
		}})
		defer r.Close()
		limited, _ := splitRoute(t, r)
		limited[0].Learn(heed.Announcement{Refused: true, Reduced: true, RetryAfter: time.Minute})
		if err := r.SetLimits(example, heed.Limits{Policies: []heed.Policy{{Quota: 100, Window: time.Minute}}}); err != nil {
			t.Fatal(err)
		}
		all := r.Snapshot()[0].Partitions
		if len(all) != 1 || all[0].Cap == 0 || all[0].Paused == 0 || len(paused) != 1 || paused[all[0].Partition] == 0 {
			t.Errorf("%+v; told of pauses of %v", all, paused)
		}
		time.Sleep(2 * time.Minute)
		pm := acquire(t, r, request(example+"/limited"))
		if len(paused) != 0 {
			t.Errorf("told of pauses of %v that are over", paused)
		}
		pm.Observe(answer(http.StatusTooManyRequests, "Retry-After", "60"))
		if inARow != 2 {
			t.Errorf("told of %d refusals in a row, want 2", inARow)
		}
	})
}

// routesApart asks for routes for 20 minutes, with a goroutine for each, the first of which are limited. It returns how many
// requests of the others were accepted, and which routes were told apart.
func routesApart(t *testing.T, seed uint64, n int, accepts func(route string, now time.Time, h http.Header) (ok, limited bool)) (others int, apart []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{way: 25 * time.Millisecond, uneven: rand.New(rand.NewPCG(seed, 0)), accepts: func(r *http.Request, now time.Time, h http.Header) bool {
			ok, limited := accepts(r.URL.Path[1:2], now, h)
			if !limited {
				others++
			}
			return ok
		}}
		tr := quiet(t, l, heed.Limits{})
		end := time.Now().Add(20 * time.Minute)
		asked := make([]int, n)
		busy := asking(n, end, func(i int) (*http.Response, error) {
			asked[i]++
			return tr.Client().Get(example + "/" + string(rune('a'+i)) + "/" + strconv.Itoa(asked[i]))
		})
		time.Sleep(time.Until(end))
		apart = routes(tr.Registry)
		tr.Registry.Close()
		busy.Wait()
	})
	return others, apart
}

// A plan may not include some of an API's routes, so that these never let anything through. They are refused in turn, and
// each would hide that the others are.
func TestRoutesThatAreNeverAcceptedHoldNoOthers(t *testing.T) {
	manyRequests(t)
	for _, test := range []struct{ routes, never int }{{6, 2}, {6, 3}} {
		want := []string{""}
		for i := range test.never {
			want = append(want, "GET /"+string(rune('a'+i))+"/*")
		}
		const plays = 5
		most := (test.routes - test.never) * 20 * 60 * 20 // at 20 a second each
		told := 0
		for seed := range uint64(plays) {
			others, apart := routesApart(t, seed, test.routes, func(route string, _ time.Time, h http.Header) (ok, limited bool) {
				if int(route[0]-'a') >= test.never {
					return true, false
				}
				h.Set("Retry-After", "30")
				return false, true
			})
			t.Logf("%d of %d never accepted: %d of the others accepted of %d; partitions for %q", test.never, test.routes, others, most, apart)
			if others >= most/3 && slices.Equal(apart, want) {
				told++
			}
		}
		if told <= plays/2 { // chance may have it take longer
			t.Errorf("%d of %d never accepted: told apart in %d plays of %d", test.never, test.routes, told, plays)
		}
	}
}

func TestRoutesWithLimitsOfTheirOwnDoNotHideEachOther(t *testing.T) {
	manyRequests(t)
	const seeds, most = 4, 4 * 20 * 60 * 20
	others := 0
	for seed := range uint64(seeds) {
		windows := map[string]*window{"a": {quota: 5, length: time.Minute}, "b": {quota: 3, length: 30 * time.Second}}
		n, apart := routesApart(t, seed, 6, func(route string, now time.Time, h http.Header) (ok, limited bool) {
			w := windows[route]
			if w == nil {
				return true, false
			}
			if ok = w.take(now); !ok {
				h.Set("Retry-After", toSecond(now, w.end))
			}
			return ok, true
		})
		t.Logf("%d of the others accepted of %d; partitions for %q", n, most, apart)
		others += n
	}
	if others < seeds*most/10 { // in one play of five it takes a quarter of an hour or longer
		t.Errorf("%d of the others accepted of %d", others, seeds*most)
	}
}

// A limit on all of several routes is not taken for those of some of them, though it lets so little through that some are
// refused several times before they are accepted.
func TestHiddenLimitOnAllRoutesIsNotTakenForThoseOfSome(t *testing.T) {
	sideBySide(t)
	for n := 3; n <= 6; n++ {
		for _, hint := range []string{"", "1", "exact"} {
			split := func(seed uint64) bool {
				w := window{quota: 3, length: 30 * time.Second}
				_, apart := routesApart(t, seed, n, func(_ string, now time.Time, h http.Header) (ok, limited bool) {
					if ok = w.take(now); !ok && hint == "exact" {
						h.Set("Retry-After", toSecond(now, w.end))
					} else if !ok && hint != "" {
						h.Set("Retry-After", hint)
					}
					return ok, true
				})
				return len(apart) > 1
			}
			if split(1) && (split(2) || split(3)) { // it may be by chance, in one of some hundred plays
				t.Errorf("%d routes, hint %q: taken for limits of some, twice in three plays", n, hint)
			}
		}
	}
}
