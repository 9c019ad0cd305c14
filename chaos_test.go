package heed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A thousand goroutines do all that can be done to a registry, at random, in
// virtual time. Nothing may hang, no goroutine be left, and in the end every
// unit taken has to be accounted for.
func TestBooksBalanceAfterChaos(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() { // the race detector takes as long for two as there is without it for all
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	const (
		goroutines = 1000
		rounds     = 5
	)
	var events atomic.Int64
	r, err := NewRegistry(Config{
		Logger: slog.New(slog.DiscardHandler), MaxOrigins: 12, IdleAfter: 20 * time.Second,
		OnEvent: func(Event) { events.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	meddled := make(chan struct{})
	go func() {
		defer close(meddled)
		chaosMeddle(t, r, rand.New(rand.NewPCG(seed, 1)), stop)
	}()
	var granted, refused, cancelled atomic.Int64
	done := make(chan struct{})
	for g := range goroutines {
		go func() {
			defer func() { done <- struct{}{} }()
			rnd := rand.New(rand.NewPCG(seed, uint64(g)+2))
			sleep := func(most time.Duration) { time.Sleep(chaosTime(rnd, most)) }
			for range rounds {
				sleep(10 * time.Second)
				var number uint64
				for attempt := 1; attempt <= 3; attempt++ {
					ctx, cancel := chaosContext(t.Context(), rnd)
					req := chaosRequest(rnd)
					r.Check(req.WithContext(ctx))
					a := ask{attempt: attempt, number: number}
					if attempt > 1 && rnd.IntN(2) == 0 {
						a.notBefore = time.Now().Add(chaosTime(rnd, 2*time.Second))
					}
					pm, err := r.acquire(ctx, req, a)
					dead := ctx.Err()
					cancel()
					if err != nil {
						if !errors.Is(err, ErrLimited) && err != dead {
							t.Errorf("Acquire: %v", err)
						}
						if errors.Is(err, ErrLimited) {
							refused.Add(1)
						} else {
							cancelled.Add(1)
						}
						break
					}
					granted.Add(1)
					number = pm.number
					if !chaosAnswer(pm, rnd, sleep) {
						break
					}
				}
			}
		}()
	}
	for range goroutines {
		<-done
	}
	close(stop)
	<-meddled
	synctest.Wait()
	t.Logf("granted %d, refused %d, cancelled %d, events %d", granted.Load(), refused.Load(), cancelled.Load(), events.Load())
	if granted.Load() < goroutines {
		t.Errorf("only %d requests were granted", granted.Load())
	}
	partitions := int64(0)
	for _, o := range r.all() {
		partitions += int64(len(o.partitions))
		checkBooks(t, o)
	}
	if size := r.size.Load(); size != partitions {
		t.Errorf("%d partitions are counted, %d kept", size, partitions)
	}
	// Whatever was set and learned, everyone gets through in the end.
	if err := r.SetAllLimits(Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	for _, name := range chaosOrigins {
		for range 3 {
			pm, err := r.Acquire(t.Context(), chaosTo(name, "", "/"))
			if err != nil {
				t.Fatal(err)
			}
			pm.Observe(&http.Response{StatusCode: 200})
			pm.Release()
		}
	}
	if size := r.size.Load(); size > 12 {
		t.Errorf("%d partitions are kept", size)
	}
}

// chaosLimits are all the limits there are.
var chaosLimits = []Limits{
	{},
	{Policies: []Policy{{Name: "a", Quota: 50, Window: time.Second}, {Name: "b", Quota: 400, Window: 10 * time.Second}}},
	{Policies: []Policy{{Quota: 30, Window: time.Second, Burst: 7}, {Quota: 8, Unit: UnitConcurrentRequests}}, MaxWait: 20 * time.Second},
	{Policies: []Policy{{Quota: 1 << 16, Window: time.Second, Unit: UnitContentBytes}}, MaxQueue: 100, Smoothing: Smoothing{Strict: true}},
	{MinInterval: 5 * time.Millisecond, MaxRetryAfter: 10 * time.Second},
	{MinPause: 2 * time.Millisecond, MaxWait: 5 * time.Second},
	{MaxConcurrent: 5, Smoothing: Smoothing{Off: true}},
	{IgnoreHeaders: true, MaxBackoff: 5 * time.Second, MinBackoff: time.Second},
	{Unlimited: true},
}

// chaosMeddle turns every knob of a registry.
func chaosMeddle(t *testing.T, r *Registry, rnd *rand.Rand, stop <-chan struct{}) {
	for chaosWait(stop, chaosTime(rnd, 300*time.Millisecond)) {
		if err := chaosTurn(r, rnd); err != nil && !errors.Is(err, errChaos) {
			t.Error(err)
		}
	}
}

// chaosTurn turns one of them.
func chaosTurn(r *Registry, rnd *rand.Rand) error {
	defer chaosCatch()
	origin, limits := chaosOrigin(rnd), chaosLimits
	switch rnd.IntN(11) {
	case 0, 1, 2:
		return r.SetLimits(origin, limits[rnd.IntN(len(limits))])
	case 3:
		r.ClearLimits(origin)
	case 4:
		return r.SetAllLimits(limits[rnd.IntN(len(limits)-1)], map[string]Limits{origin: limits[rnd.IntN(len(limits))]})
	case 5:
		return r.Pause(origin, chaosTime(rnd, 2*time.Second))
	case 6:
		return r.Pause(origin, 0)
	case 7:
		return r.Reset(origin)
	case 8:
		r.Snapshot()
	case 9, 10:
		chaosSplit(r.known(origin), []string{chaosPath(rnd), chaosPath(rnd)}[:1+rnd.IntN(2)]...)
	}
	return nil
}

// chaosSplit takes it that routes have limits of their own.
func chaosSplit(o *origin, paths ...string) {
	if o == nil {
		return
	}
	now := o.lock()
	for _, p := range o.partitions {
		s := &suspect{}
		for _, path := range paths {
			if s.find("GET", path) < 0 && !slices.Contains(o.own, routeOf("GET", path)) {
				s.routes = append(s.routes, accused{route: routeOf("GET", path)})
			}
		}
		if p.canSplit() && len(s.routes) > 0 {
			p.suspect = s
			p.split(now)
			break
		}
	}
	o.wakeAll(now)
	o.unlock()
}

// What a body held that nobody counted is no news for a ledger that is not told of it.
func TestBooksBalanceWhereNobodyCountsBytes(t *testing.T) {
	for name, burst := range map[string]int64{"window": 0, "bucket": 500} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := NewRegistry(Config{Default: Limits{Policies: []Policy{{Quota: 1000, Window: time.Minute, Burst: burst, Unit: UnitContentBytes}}}})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				req := chaosTo("https://0.example", "", "/")
				pm, err := r.Acquire(WithCost(t.Context(), UnitContentBytes, 100), req)
				if err != nil {
					t.Fatal(err)
				}
				pm.Release() // its body was left to others
				for _, o := range r.all() {
					checkBooks(t, o)
					for _, s := range o.partitions[0].slots {
						if left, want := s.remaining(time.Now()), s.most()-100; left != want {
							t.Errorf("%d left, want %d", left, want)
						}
					}
				}
			})
		})
	}
}

// checkBooks reports what is not as it should be where nothing is in flight.
func checkBooks(t *testing.T, o *origin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inFlight != 0 || o.waiting != 0 || o.timer != nil || len(o.pending) != 0 || o.listening != 0 || o.gone {
		t.Errorf("%s: %d in flight, %d waiting, %d events untold, %d bodies looked at", o.name, o.inFlight, o.waiting, len(o.pending), o.listening)
	}
	for _, p := range o.partitions {
		name := fmt.Sprintf("%s #%d", o.name, p.number)
		p.eachKin(func(q *partition) {
			if !slices.Contains(o.partitions, q) || !slices.Equal(q.commonSlots(), p.commonSlots()) {
				t.Errorf("%s keeps to %d policies, its kin to %d", name, len(p.commonSlots()), len(q.commonSlots()))
			}
		})
		if p.unanswered != 0 || p.listening != 0 || p.inFlight.len != 0 || p.inFlight.oldest != nil || p.inFlight.youngest != nil || p.opening.flying != 0 {
			t.Errorf("%s: %d unanswered, %d bodies looked at, %d in flight, %d of its opening", name, p.unanswered, p.listening, p.inFlight.len, p.opening.flying)
		}
		if p.queue != (queue{}) || p.parked.len() != 0 || p.turn != 0 || p.bell != 0 {
			t.Errorf("%s: queue %+v, %d parked, takes turns %v, has an alarm %v", name, p.queue, p.parked.len(), p.turn != 0, p.bell != 0)
		}
		for _, s := range p.slots {
			l, own := &s.ledger, &s.ledger.own
			switch b := s.books.(type) {
			case *rollingWindow:
				own = &b.own
			case *tokenBucket:
				own = &b.within.own
			}
			if s.inFlight != 0 || own.inFlight != 0 || l.sent != l.answered {
				t.Errorf("%s: policy %q (%v, %s): %d and %d in flight, %d sent, %d answered", name, s.policy.Name, s.source, s.policy.Unit,
					s.inFlight, own.inFlight, l.sent, l.answered)
			}
			var logged int64
			for _, u := range own.log {
				logged += u.n
			}
			if logged != own.logged || logged < 0 {
				t.Errorf("%s: policy %q: %d logged, %d in the log", name, s.policy.Name, own.logged, logged)
			}
		}
	}
}

// chaosTime is a span of time up to most, in steps so large that much happens
// at the same instant.
func chaosTime(rnd *rand.Rand, most time.Duration) time.Duration {
	const step = 20 * time.Millisecond
	return time.Duration(rnd.Int64N(int64(most/step))) * step
}

var chaosOrigins = func() (all [8]string) {
	for i := range all {
		all[i] = fmt.Sprintf("https://%d.example", i)
	}
	return all
}()

func chaosOrigin(rnd *rand.Rand) string { return chaosOrigins[rnd.IntN(len(chaosOrigins))] }

func chaosRequest(rnd *rand.Rand) *http.Request {
	return chaosTo(chaosOrigin(rnd), fmt.Sprint("Bearer ", rnd.IntN(3)), chaosPath(rnd))
}

func chaosPath(rnd *rand.Rand) string { return []string{"/a", "/b", "/c"}[rnd.IntN(3)] }

func chaosTo(origin, credential, path string) *http.Request {
	req, err := http.NewRequest("GET", origin+path, nil)
	if err != nil {
		panic(err)
	}
	if credential != "" {
		req.Header.Set("Authorization", credential)
	}
	return req
}

// chaosContext asks for anything a context can ask for.
func chaosContext(ctx context.Context, rnd *rand.Rand) (context.Context, context.CancelFunc) {
	if rnd.IntN(3) == 0 {
		ctx = WithPriority(ctx, Priority(rnd.IntN(3)-1))
	}
	if rnd.IntN(4) == 0 {
		units := []Unit{UnitRequests, UnitContentBytes, UnitConcurrentRequests, "points"}
		ctx = WithCost(ctx, units[rnd.IntN(len(units))], rnd.Int64N(12))
	}
	if rnd.IntN(8) == 0 {
		ctx = NoWait(ctx)
	}
	if rnd.IntN(8) == 0 {
		ctx = WithMinInterval(ctx, chaosTime(rnd, 40*time.Millisecond))
	}
	if rnd.IntN(4) == 0 {
		ctx = WithTrace(ctx, new(Trace))
	}
	switch d := chaosTime(rnd, 20*time.Second); rnd.IntN(3) {
	case 0:
		return context.WithTimeout(ctx, d)
	case 1:
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}
	return context.WithTimeout(ctx, 2*time.Minute) // for those in no hurry
}

// chaosAnswer has a request answered, or not, and ends its permit in any of
// the ways there are. It reports whether it is to be tried again.
func chaosAnswer(pm *Permit, rnd *rand.Rand, sleep func(time.Duration)) (again bool) {
	h := http.Header{}
	if rnd.IntN(3) > 0 {
		h.Set("RateLimit-Policy", fmt.Sprintf(`"x";q=%d;w=%d, "y";q=%d;w=1;qu="content-bytes", "z";q=%d;qu="concurrent-requests"`,
			1+rnd.IntN(100), 1+rnd.IntN(5), 1+rnd.IntN(1<<16), 1+rnd.IntN(20)))
	}
	if rnd.IntN(3) > 0 {
		h.Set("RateLimit", fmt.Sprintf(`"x";r=%d;t=%d`, rnd.IntN(100), rnd.IntN(5)))
	}
	if rnd.IntN(20) == 0 {
		h.Set("Age", "3")
	}
	if rnd.IntN(10) == 0 {
		h.Set("Retry-After", fmt.Sprint(rnd.IntN(4)))
	}
	status := 200
	switch rnd.IntN(20) {
	case 0, 1:
		status = 429
	case 2:
		status = 503
	case 3:
		status = 500
	}
	resp := &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
	pm.content.Add(rnd.Int64N(1 << 12))
	sleep(300 * time.Millisecond)
	switch rnd.IntN(8) {
	case 0:
		pm.Cancel()
		pm.Release()
		return true
	case 1:
		pm.Release()
		pm.Observe(resp)
	case 2:
		pm.Learn(Announcement{Policies: []Policy{{Name: "w", Quota: 1 + rnd.Int64N(30), Window: time.Second}}, Refused: rnd.IntN(5) == 0})
		pm.Observe(resp)
		pm.Observe(resp)
		pm.Cancel()
	case 3: // all at once
		look := func() { // at a body that comes slowly
			h := http.Header{"Content-Type": {"application/problem+json"}, "Retry-After": {"1"}}
			pm.Observe(&http.Response{StatusCode: 429, Header: h, Body: &chaosBody{left: 5}})
		}
		wait := Announcement{RetryAfter: time.Second, Bucket: "b"}
		if pm.origin == nil || pm.origin.name < chaosOrigins[4] { // else budgets tell all routes apart, and none is given a limit of its own
			wait = Announcement{}
		}
		var all sync.WaitGroup
		for _, call := range []func(){
			look, look, func() { pm.Remaining() }, func() { pm.Observe(resp) },
			func() { pm.Learn(wait) },
		} {
			all.Go(call)
		}
		all.Wait()
		pm.Release()
	default:
		pm.Observe(resp)
		sleep(100 * time.Millisecond)
		pm.Release()
		pm.Cancel()
	}
	return status == 429 || status == 503
}
