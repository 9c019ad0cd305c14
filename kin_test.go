package heed

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A routesApart is a registry at one of whose origins two routes have been met, of which /limited may have been given a limit of
// its own.
type routesApart struct {
	*Registry
	t *testing.T
}

const apartOrigin = "https://0.example"

// bothWays plays with both routes counted together, and with /limited on its own.
func bothWays(t *testing.T, l Limits, play func(a routesApart, split bool)) {
	for _, split := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, err := NewRegistry(Config{Default: l, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			a := routesApart{r, t}
			for range 12 { // nobody has to go ahead any more
				a.get("/limited")
				a.get("/free")
				time.Sleep(time.Minute)
			}
			if split {
				chaosSplit(r.known(apartOrigin), "/limited")
				for range 12 {
					a.get("/limited")
					a.get("/free")
					time.Sleep(time.Minute)
				}
				if n := len(r.known(apartOrigin).partitions); n != 2 {
					t.Fatalf("%d partitions", n)
				}
			}
			play(a, split)
		})
	}
}

// get has a request for a route answered.
func (a routesApart) get(path string, header ...string) {
	a.t.Helper()
	pm, err := a.Acquire(a.t.Context(), chaosTo(apartOrigin, "", path))
	if err != nil {
		a.t.Fatal(err)
	}
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	status := http.StatusOK
	if h.Get("Retry-After") != "" {
		status = http.StatusTooManyRequests
	}
	pm.Observe(&http.Response{StatusCode: status, Header: h, Body: http.NoBody})
	pm.Release()
}

// ask has a request for a route answered at once when it goes, and after a while more. It calls went when it does.
func (a routesApart) ask(ctx context.Context, path string, lasts time.Duration, went func()) {
	pm, err := a.Acquire(ctx, chaosTo(apartOrigin, "", path))
	if err != nil {
		return
	}
	went()
	time.Sleep(lasts)
	pm.Observe(&http.Response{StatusCode: http.StatusOK, Body: http.NoBody})
	pm.Release()
}

// keepAsking has four goroutines do so one time after the other.
func (a routesApart) keepAsking(ctx context.Context, path string, lasts time.Duration, went func()) {
	for range 4 {
		go func() {
			for ctx.Err() == nil {
				a.ask(ctx, path, lasts, went)
			}
		}()
	}
}

// costlyGoesSoon holds that a request for all of ten goes within two windows of ten seconds, whatever happens meanwhile.
func (a routesApart) costlyGoesSoon(ctx context.Context, split bool, meanwhile func()) {
	began, waited := time.Now(), time.Duration(-1)
	go a.ask(WithCost(ctx, UnitRequests, 10), "/limited", 0, func() { waited = time.Since(began) })
	meanwhile()
	synctest.Wait()
	if waited < 0 || waited > 20*time.Second {
		a.t.Errorf("split %v: it went after %v", split, waited)
	}
}

// Names of policies that turn out to be budgets have all routes counted together again. A refusal that shows it is not lost.
func TestRefusalThatTellsBudgetsApartIsKeptByARouteWithALimitOfItsOwn(t *testing.T) {
	bothWays(t, Limits{}, func(a routesApart, split bool) {
		a.get("/free", "RateLimit-Policy", `"x";q=1000;w=60`, "RateLimit", `"x";r=900;t=60`)
		a.get("/free")
		a.get("/limited")
		time.Sleep(time.Second)
		a.get("/limited", "Retry-After", "60", "RateLimit-Policy", `"y";q=50;w=60`)
		if d := a.Check(chaosTo(apartOrigin, "", "/limited")); d.Allowed || d.Wait < time.Minute {
			a.t.Errorf("split %v: after a refusal that asks for a minute: %+v", split, d)
		}
	})
}

// Who asks for much of what two partitions have in common waits for it to come together, and the other one waits behind.
func TestCostlyRequestIsNotOvertakenForGoodByOtherRoutes(t *testing.T) {
	l := Limits{Policies: []Policy{{Quota: 10, Window: 10 * time.Second}}, Smoothing: Smoothing{Off: true}}
	bothWays(t, l, func(a routesApart, split bool) {
		ctx, cancel := context.WithCancel(a.t.Context())
		a.keepAsking(ctx, "/free", 300*time.Millisecond, func() {})
		time.Sleep(5 * time.Second)
		a.costlyGoesSoon(ctx, split, func() { time.Sleep(time.Hour) })
		cancel()
		time.Sleep(2 * time.Hour)
	})
}

// Who does not wait gets nothing either that one who came before it waits for.
func TestHurriedRequestDoesNotOvertakeACostlyOneOfAnotherRoute(t *testing.T) {
	l := Limits{Policies: []Policy{{Quota: 10, Window: 10 * time.Second}}, Smoothing: Smoothing{Off: true}}
	bothWays(t, l, func(a routesApart, split bool) {
		ctx, cancel := context.WithCancel(a.t.Context())
		hurry := func() { a.ask(NoWait(ctx), "/free", 0, func() {}) }
		o := a.known(apartOrigin)
		o.mu.Lock()
		for _, p := range o.partitions { // its own limit, which holds nobody just now
			if p.route != "" {
				own := Policy{Name: learnedPolicy, Quota: 1, Window: time.Millisecond, Burst: 1000, Unit: UnitRequests}
				p.slots = append(p.slots, &slot{source: SourceLearned, policy: own, terms: own, books: newTokenBucket(1000, 1000)})
			}
		}
		o.mu.Unlock()
		for range 10 {
			hurry()
			time.Sleep(300 * time.Millisecond)
		}
		a.costlyGoesSoon(ctx, split, func() {
			for range 200 {
				time.Sleep(300 * time.Millisecond)
				hurry()
			}
		})
		cancel()
		time.Sleep(time.Second)
	})
}

// A pause of one route holds no other, whatever else one of it waits for.
func TestPausedRouteThatAlsoWaitsForWhatIsCommonHoldsNoOther(t *testing.T) {
	l := Limits{Policies: []Policy{{Quota: 4, Unit: UnitConcurrentRequests}}}
	bothWays(t, l, func(a routesApart, split bool) {
		if !split {
			return // there is one line then
		}
		a.get("/limited", "Retry-After", "3600")
		ctx, cancel := context.WithCancel(a.t.Context())
		var went atomic.Int64
		a.keepAsking(ctx, "/free", time.Second, func() { went.Add(1) })
		time.Sleep(10 * time.Second)
		go a.ask(WithCost(ctx, UnitConcurrentRequests, 4), "/limited", 0, func() {})
		time.Sleep(100 * time.Second)
		if n := went.Load(); n < 400 {
			a.t.Errorf("%d of /free went in 110 s", n)
		}
		cancel()
		time.Sleep(2 * time.Hour)
	})
}

// Those of another route who stand before it count for a deadline.
func TestDeadlineThatOthersOfAnotherRoutePutOutOfReachIsRefusedAtOnce(t *testing.T) {
	l := Limits{Policies: []Policy{{Quota: 10, Window: 10 * time.Second}}, Smoothing: Smoothing{Off: true}}
	bothWays(t, l, func(a routesApart, split bool) {
		ctx, cancel := context.WithCancel(a.t.Context())
		for range 40 {
			go a.ask(ctx, "/free", 0, func() {})
		}
		synctest.Wait()
		began := time.Now()
		soon, stop := context.WithTimeout(ctx, 15*time.Second)
		defer stop()
		if _, err := a.Acquire(soon, chaosTo(apartOrigin, "", "/limited")); !errors.Is(err, ErrLimited) || time.Since(began) > 0 {
			a.t.Errorf("split %v: after %v: %v", split, time.Since(began), err)
		}
		cancel()
		time.Sleep(time.Minute)
	})
}

// What holds the one that is to go by lot need not hold the one that is the first in line.
func TestLotHoldsNobodyBehindOneThatCannotGo(t *testing.T) {
	l := Limits{Policies: []Policy{{Quota: 4, Unit: UnitConcurrentRequests}}}
	bothWays(t, l, func(a routesApart, split bool) {
		if split {
			return // no lots are drawn any more
		}
		o := a.known(apartOrigin)
		now := o.lock()
		o.partitions[0].suspect = &suspect{routes: []accused{{route: routeOf("GET", "/limited")}}, lots: lots{until: now.Add(24 * time.Hour), lot: 0.99}}
		o.mu.Unlock()
		ctx, cancel := context.WithCancel(a.t.Context())
		go a.ask(ctx, "/free", time.Hour, func() {}) // a stream
		synctest.Wait()
		if err := a.Pause(apartOrigin, time.Second); err != nil {
			a.t.Fatal(err)
		}
		began, waited := time.Now(), time.Duration(-1)
		go a.ask(ctx, "/limited", 0, func() { waited = time.Since(began) })
		synctest.Wait()
		go a.ask(WithCost(ctx, UnitConcurrentRequests, 4), "/free", 0, func() {})
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if waited < 0 || waited > 2*time.Second {
			a.t.Errorf("the first in line went after %v", waited)
		}
		cancel()
		time.Sleep(2 * time.Hour)
	})
}

// A policy that holds for longer than is waited for is told to be open again once, by whichever route shows it.
func TestPolicyOfSeveralPartitionsIsToldToHoldAndToBeOpenOnce(t *testing.T) {
	var told []Kind
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRegistry(Config{Logger: slog.New(slog.DiscardHandler), Default: Limits{MaxRetryAfter: 10 * time.Minute}, OnEvent: func(e Event) {
			if e.Policy == "q" && (e.Kind == EventPaused || e.Kind == EventResumed) {
				told = append(told, e.Kind)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		a := routesApart{r, t}
		a.get("/limited")
		a.get("/free", "RateLimit-Policy", `"q";q=10;w=3600`, "RateLimit", `"q";r=9;t=3600`)
		chaosSplit(r.known(apartOrigin), "/limited")
		a.get("/limited", "RateLimit-Policy", `"q";q=10;w=3600`, "RateLimit", `"q";r=0;t=3600`)
		time.Sleep(10 * time.Minute)
		for range 3 { // one goes to see, and finds it open
			a.get("/free", "RateLimit-Policy", `"q";q=10;w=3600`, "RateLimit", `"q";r=8;t=3600`)
			time.Sleep(time.Second)
		}
	})
	if len(told) != 2 || told[0] != EventPaused || told[1] != EventResumed {
		t.Errorf("told: %v", told)
	}
}

// Where it was one limit on all routes after all, no more gets through than before, and they are counted together again; where each has
// its own, they are not.
func TestRouteWhoseLimitTurnsOutToBeThatOfAllIsCountedWithThemAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("plays very many requests, as the race detector is slow to")
	}
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, err := NewRegistry(Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var mu sync.Mutex
			free := map[string]time.Time{} // when the next one of a route is let through
			accepted := 0
			ask := func(path string) {
				pm, err := r.Acquire(t.Context(), chaosTo(apartOrigin, "", path))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(20 * time.Millisecond)
				mu.Lock()
				status, limit := http.StatusOK, "all"
				if own {
					limit = path
				}
				if now := time.Now(); now.Before(free[limit]) {
					status = http.StatusTooManyRequests
				} else {
					free[limit] = now.Add(100 * time.Millisecond)
					accepted++
				}
				mu.Unlock()
				pm.Observe(&http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody})
				pm.Release()
			}
			end := time.Now().Add(time.Hour)
			var busy sync.WaitGroup
			for i := range 4 {
				busy.Go(func() {
					for time.Now().Before(end) {
						ask([]string{"/limited", "/free"}[i%2])
					}
				})
			}
			time.Sleep(10 * time.Minute)
			chaosSplit(r.known(apartOrigin), "/limited")
			busy.Wait()
			o := r.known(apartOrigin)
			if n := len(o.partitions); n > 1 != own || o.ownFailed > 0 == own {
				t.Errorf("limits of their own %v: %d partitions, %d times on probation in vain, %d accepted", own, n, o.ownFailed, accepted)
			}
		})
	}
}
