package heed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// done gives a permit an answer and ends it.
func done(pm *heed.Permit) {
	pm.Observe(answer(200))
	pm.Release()
}

// order starts requests one after the other while the origin is paused and
// returns the order in which they go, one a second.
func order(t *testing.T, l heed.Limits, asks []func(context.Context) context.Context, meanwhile func(r *heed.Registry, cancel []context.CancelFunc)) []int {
	var got []int
	var mu sync.Mutex
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: l})
		r.Pause(example, time.Minute)
		cancels := make([]context.CancelFunc, len(asks))
		for i, ask := range asks {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			if ask != nil {
				ctx = ask(ctx)
			}
			go func() {
				pm, err := r.Acquire(ctx, request(example, "Authorization", fmt.Sprint("Bearer ", i%2*l.MaxConcurrent)))
				if err != nil {
					return
				}
				mu.Lock()
				got = append(got, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				done(pm)
			}()
			synctest.Wait()
		}
		if meanwhile != nil {
			meanwhile(r, cancels)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, cancel := range cancels {
			cancel()
		}
	})
	return got
}

func TestFirstComeFirstServedWithinAPriority(t *testing.T) {
	priority := func(p heed.Priority) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return heed.WithPriority(ctx, p) }
	}
	low, high := priority(heed.PriorityLow), priority(heed.PriorityHigh)
	ask := func(asks ...func(context.Context) context.Context) []func(context.Context) context.Context {
		return asks
	}
	for name, l := range map[string]heed.Limits{
		"interval":     {MinInterval: time.Second},
		"quota":        quota(1, time.Second),
		"bucket":       {Policies: []heed.Policy{{Quota: 1, Window: time.Second, Burst: 1}}},
		"concurrency":  {MaxConcurrent: 1}, // over two partitions
		"minimum wait": {MinPause: time.Second},
	} {
		for _, tc := range []struct {
			name      string
			asks      []func(context.Context) context.Context
			meanwhile func(r *heed.Registry, cancel []context.CancelFunc)
			want      []int
		}{
			{"in order", ask(nil, nil, nil, nil), nil, []int{0, 1, 2, 3}},
			{"by priority", ask(low, nil, high, low, nil, high), nil, []int{2, 5, 1, 4, 0, 3}},
			{"priorities beyond", ask(priority(-100), priority(-1), priority(100), priority(1)), nil, []int{2, 3, 0, 1}},
			{"first gives up", ask(nil, nil, nil), func(_ *heed.Registry, cancel []context.CancelFunc) { cancel[0]() }, []int{1, 2}},
			{"one gives up", ask(nil, nil, nil, high), func(_ *heed.Registry, cancel []context.CancelFunc) { cancel[1](); cancel[3]() }, []int{0, 2}},
			{"resumed by hand", ask(nil, low, nil), func(r *heed.Registry, _ []context.CancelFunc) { r.Pause(example, 0) }, []int{0, 2, 1}},
			{"paused for longer", ask(nil, low, nil), func(r *heed.Registry, _ []context.CancelFunc) { r.Pause(example, 2*time.Minute) }, []int{0, 2, 1}},
			{"reset", ask(nil, low, nil), func(r *heed.Registry, _ []context.CancelFunc) { r.Reset(example) }, []int{0, 2, 1}},
		} {
			t.Run(name+"/"+tc.name, func(t *testing.T) {
				if got := order(t, l, tc.asks, tc.meanwhile); !slices.Equal(got, tc.want) {
					t.Errorf("they went in the order %v, want %v", got, tc.want)
				}
			})
		}
	}
}

func TestCancelledWaitReturnsItsCauseAtOnceAndWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota(3, time.Hour)
		r := newRegistry(t, heed.Config{Default: l})
		done(acquire(t, r, request(example)))
		// The first asks for more than is left, the second for what is.
		ctx, cancel := context.WithCancelCause(t.Context())
		first := start(heed.WithCost(ctx, "", 3), r, request(example))
		second := start(heed.WithCost(t.Context(), "", 2), r, request(example))
		if first.done() || second.done() {
			t.Fatal("they do not wait")
		}
		cause := errors.New("enough")
		cancel(cause)
		synctest.Wait()
		if first.err != cause || first.at != 0 {
			t.Errorf("the first ended with %v after %v", first.err, first.at)
		}
		if !second.done() || second.err != nil {
			t.Errorf("the second was not woken")
		}
		if s := r.Snapshot()[0]; s.Waiting != 0 || s.Partitions[0].Policies[0].Used != 3 {
			t.Errorf("Snapshot() = %+v", s)
		}
		second.permit.Release()
	})
}

// No unit is taken of one limit while another refuses.
func TestAdmissionIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{
			{Name: "second", Quota: 2, Window: time.Second},
			{Name: "minute", Quota: 3, Window: time.Minute},
			{Name: "bucket", Quota: 60, Window: time.Minute, Burst: 100},
			{Name: "slots", Quota: 10, Unit: heed.UnitConcurrentRequests},
		}}})
		for range 2 {
			done(acquire(t, r, request(example)))
		}
		used := func() (all []int64) {
			for _, p := range r.Snapshot()[0].Partitions[0].Policies {
				all = append(all, p.Remaining)
			}
			return all
		}
		before := used()
		_, err := r.Acquire(heed.NoWait(t.Context()), request(example))
		if le := limitErr(t, err); le.Policy != "second" {
			t.Errorf("held by %q", le.Policy)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = r.Acquire(heed.WithCost(ctx, "", 2), request(example))
		if le := limitErr(t, err); le.Policy != "minute" {
			t.Errorf("held by %q", le.Policy)
		}
		ctx, cancel = context.WithCancel(t.Context())
		w := start(ctx, r, request(example))
		if after := used(); !slices.Equal(after, before) {
			t.Errorf("left are %v, were %v", after, before)
		}
		cancel()
		synctest.Wait()
		if after := used(); w.err == nil || !slices.Equal(after, before) {
			t.Errorf("left are %v, were %v (%v)", after, before, w.err)
		}
	})
}

func TestCosts(t *testing.T) {
	cost := func(u heed.Unit, n int64) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return heed.WithCost(ctx, u, n) }
	}
	two := heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{
		{Name: "r", Quota: 10, Window: time.Minute}, {Name: "b", Quota: 1000, Window: time.Minute, Unit: heed.UnitContentBytes},
		{Name: "c", Quota: 4, Unit: heed.UnitConcurrentRequests}, {Name: "x", Quota: 1, Window: time.Minute, Unit: "points"},
	}}
	for _, tc := range []struct {
		name string
		with []func(context.Context) context.Context
		left []int64 // of r, b and c
		err  heed.Reason
	}{
		{"as usual", nil, []int64{9, 1000, 3}, 0},
		{"several", append([]func(context.Context) context.Context{}, cost("", 3)), []int64{7, 1000, 3}, 0},
		{"of bytes", []func(context.Context) context.Context{cost(heed.UnitContentBytes, 400)}, []int64{9, 600, 3}, 0},
		{"of slots", []func(context.Context) context.Context{cost(heed.UnitConcurrentRequests, 4)}, []int64{9, 1000, 0}, 0},
		{"of all units", []func(context.Context) context.Context{cost(heed.UnitRequests, 2), cost(heed.UnitContentBytes, 1), cost(heed.UnitConcurrentRequests, 3)}, []int64{8, 999, 1}, 0},
		{"the last one counts", []func(context.Context) context.Context{cost(heed.UnitRequests, 2), cost("", 5)}, []int64{5, 1000, 3}, 0},
		{"free", []func(context.Context) context.Context{cost("", 0), cost(heed.UnitConcurrentRequests, 0)}, []int64{10, 1000, 4}, 0},
		{"below nothing is free", []func(context.Context) context.Context{cost("", -5)}, []int64{10, 1000, 3}, 0},
		{"above the quota takes all", []func(context.Context) context.Context{cost("", 11), cost(heed.UnitContentBytes, 1<<40)}, []int64{0, 0, 3}, 0},
		{"of a unit nobody counts", []func(context.Context) context.Context{cost("points", 100)}, []int64{9, 1000, 3}, 0},
		{"above a concurrency limit", []func(context.Context) context.Context{cost(heed.UnitConcurrentRequests, 5)}, []int64{10, 1000, 4}, heed.ReasonCost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: two})
				ctx := t.Context()
				for _, w := range tc.with {
					ctx = w(ctx)
				}
				pm, err := r.Acquire(ctx, request(example))
				if tc.err != 0 {
					if le := limitErr(t, err); le.Reason != tc.err || le.Policy != "c" {
						t.Errorf("error is %#v", le)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				r.Check(request(example))
				for i, p := range r.Snapshot()[0].Partitions[0].Policies[:3] {
					if p.Remaining != tc.left[i] {
						t.Errorf("%d of %s left, want %d", p.Remaining, p.Name, tc.left[i])
					}
				}
				if pm != nil {
					pm.Cancel()
				}
				for i, p := range r.Snapshot()[0].Partitions[0].Policies[:3] {
					if p.Remaining != p.Quota {
						t.Errorf("%d of %s left after Cancel, want %d", p.Remaining, p.Name, []int64{10, 1000, 4}[i])
					}
				}
			})
		})
	}
}

// A cost above the quota waits for the whole quota, and those behind it wait
// for that quota once, not as often as it would fit.
func TestCostAboveTheQuotaTakesItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: quota(10, time.Second)})
		meet(t, r, example)
		time.Sleep(time.Minute)
		done(acquire(t, r, request(example)))
		dear := start(heed.WithCost(t.Context(), "", 1000), r, request(example))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		behind := start(ctx, r, request(example))
		if dear.done() || behind.done() {
			t.Fatalf("they do not wait: %v, %v", dear.err, behind.err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !dear.done() || behind.done() {
			t.Fatal("the whole quota is not taken at once, or does not suffice")
		}
		done(dear.permit)
		time.Sleep(time.Second)
		synctest.Wait()
		if behind.err != nil || behind.at != 2*time.Second {
			t.Errorf("the one behind: %v after %v", behind.err, behind.at)
		}
	})
}

// A cap that is lowered below what a request in line costs would have it wait
// for ever, and all behind it.
func TestCapLoweredBelowTheCostOfOneInLineHoldsNobody(t *testing.T) {
	slots := func(n int64) heed.Limits {
		return heed.Limits{Policies: []heed.Policy{{Name: "c", Quota: n, Unit: heed.UnitConcurrentRequests}}}
	}
	for name, lower := range map[string]func(*heed.Registry, *heed.Permit){
		"by the user": func(r *heed.Registry, _ *heed.Permit) { r.SetLimits(example, slots(3)) },
		"by the origin": func(_ *heed.Registry, pm *heed.Permit) {
			pm.Observe(answer(200, "RateLimit-Policy", `"c";q=3;qu="concurrent-requests"`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: slots(5)})
				defer r.Close()
				meet(t, r, example)
				first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
				before := start(heed.WithCost(t.Context(), heed.UnitConcurrentRequests, 4), r, request(example))
				dear := start(heed.WithCost(t.Context(), heed.UnitConcurrentRequests, 4), r, request(example))
				behind := start(t.Context(), r, request(example))
				lower(r, first)
				synctest.Wait()
				for _, w := range []*waiting{before, dear} {
					if !w.done() {
						t.Fatal("one that costs more than the cap still waits")
					}
					if le := limitErr(t, w.err); le.Reason != heed.ReasonCost || le.Cause != heed.CausePolicy || le.Policy != "c" {
						t.Errorf("refused with %#v", le)
					}
				}
				first.Release()
				second.Release()
				synctest.Wait()
				if !behind.done() || behind.err != nil {
					t.Fatalf("the one behind them: %v", behind.err)
				}
				behind.permit.Release()
			})
		})
	}
}

// The cost that was set is for the origin the request was for, not for those
// it is redirected to.
func TestCostIsForTheFirstOrigin(t *testing.T) {
	r := newRegistry(t, heed.Config{Default: quota(10, time.Minute)})
	ctx := heed.WithCost(t.Context(), "", 5)
	first := request(host("a"))
	for i, tc := range []struct {
		url  string
		want int64
	}{{host("b"), 9}, {host("a"), 5}, {"https://A.example:443/other", 0}} {
		req := request(tc.url)
		req.Response = answer(302)
		req.Response.Request = first
		meet := i == 0 // two hops back
		if meet {
			hop := request(host("a"))
			hop.Response = answer(302)
			hop.Response.Request = first
			req.Response.Request = hop
		}
		pm, err := r.Acquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if got := pm.Remaining(); got != tc.want {
			t.Errorf("%d left at %s, want %d", got, tc.url, tc.want)
		}
		pm.Release()
	}
}

// A scout that hangs slows the others; it does not stop them.
func TestHungScoutDoesNotStopItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		scout := acquire(t, r, request(example))
		var ws []*waiting
		for range 8 {
			ws = append(ws, start(t.Context(), r, request(example)))
		}
		went := func() (n int) {
			synctest.Wait()
			for _, w := range ws {
				if w.done() {
					n++
				}
			}
			return n
		}
		if n := went(); n != 0 {
			t.Errorf("%d go beside the scout", n)
		}
		time.Sleep(time.Second - 1)
		if n := went(); n != 0 {
			t.Errorf("%d go before its patience is over", n)
		}
		time.Sleep(time.Minute)
		if n := went(); n != 8 {
			t.Errorf("%d went after a minute, want all", n)
		}
		scout.Release()
		for _, w := range ws {
			done(w.permit)
		}
	})
}

// What one waits for, how long, and what for.
func TestTraceTellsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: quota(1, time.Minute)})
		done(acquire(t, r, request(example)))
		var tr heed.Trace
		ctx := heed.WithTrace(t.Context(), &tr)
		pm, err := r.Acquire(ctx, request(example))
		if err != nil {
			t.Fatal(err)
		}
		done(pm)
		if want := (heed.Trace{Waited: time.Minute, Cause: heed.CausePolicy, Policy: "p"}); tr.Waited != want.Waited || tr.Cause != want.Cause || tr.Policy != want.Policy {
			t.Errorf("trace is %+v, want %+v", tr, want)
		}
		r.Pause(example, 90*time.Second)
		pm, err = r.Acquire(ctx, request(example))
		if err != nil {
			t.Fatal(err)
		}
		pm.Release()
		if tr.Waited != 150*time.Second || tr.Attempts != 0 || tr.Cause != heed.CausePause || tr.Policy != "" {
			t.Errorf("trace is %+v, want the longest wait's cause", tr)
		}
	})
}

// What a wait was for is what held it last.
func TestTraceTellsTheLastObstacle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1, MinInterval: time.Minute}})
		first := acquire(t, r, request(example))
		var tr heed.Trace
		w := start(heed.WithTrace(t.Context(), &tr), r, request(example))
		time.Sleep(time.Second)
		done(first)
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.err != nil || tr.Cause != heed.CauseInterval || tr.Waited != time.Minute {
			t.Errorf("trace is %+v (%v)", tr, w.err)
		}
		done(w.permit)
	})
}

// Whoever sees a pause of the origin end, all who wait are woken.
func TestEndOfAPauseWakesAllPartitions(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			keys := []string{"a", "b", "c", "d"}
			for _, key := range keys {
				for range 12 {
					done(acquire(t, r, request(example, "X-Api-Key", key)))
				}
			}
			r.Pause(example, time.Minute)
			var ws []*waiting
			for _, key := range keys[:3] {
				ws = append(ws, start(t.Context(), r, request(example, "X-Api-Key", key)))
			}
			go func() {
				time.Sleep(time.Minute) // and not a nanosecond longer
				if pm, err := r.Acquire(heed.NoWait(t.Context()), request(example, "X-Api-Key", "d")); err == nil {
					done(pm)
				}
			}()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			for i, w := range ws {
				if !w.done() {
					t.Fatalf("partition %s still waits", keys[i])
				}
				done(w.permit)
			}
		})
	}
}

// Who need not wait is not turned away because others, of another credential, do.
func TestFullQueueTurnsNobodyAwayWhoMayGo(t *testing.T) {
	for name, l := range map[string]heed.Limits{"": {MaxQueue: 1}, "with slots": {MaxQueue: 1, MaxConcurrent: 10}, "with an interval": {MaxQueue: 1, MinInterval: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: l})
				defer r.Close()
				for _, key := range []string{"paused", "free"} {
					done(acquire(t, r, request(example, "X-Api-Key", key)))
					time.Sleep(time.Second)
				}
				pm := acquire(t, r, request(example, "X-Api-Key", "paused"))
				pm.Observe(answer(429, "Retry-After", "60"))
				pm.Release()
				time.Sleep(time.Second)
				w := start(t.Context(), r, request(example, "X-Api-Key", "paused"))
				began := time.Now()
				done(acquire(t, r, request(example, "X-Api-Key", "free")))
				if d := time.Since(began); d != 0 || w.done() {
					t.Errorf("it waited %v", d)
				}
				_, err := r.Acquire(t.Context(), request(example, "X-Api-Key", "paused"))
				if le := limitErr(t, err); le.Reason != heed.ReasonQueueFull {
					t.Errorf("%v", err)
				}
				if o := r.Snapshot()[0]; o.Waiting != 1 {
					t.Errorf("%d waiting", o.Waiting)
				}
			})
		})
	}
}
