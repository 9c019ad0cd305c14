package heed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
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

func TestRefusedAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		want   heed.LimitError
	}{
		{"deadline", quota(1, time.Minute), timeout(59 * time.Second), heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy}},
		{"deadline at that very instant", quota(1, time.Minute), timeout(time.Minute), heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy}},
		{"no wait", quota(1, time.Minute), noWait, heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonNoWait, Cause: heed.CausePolicy}},
		{"max wait", withMaxWait(quota(1, time.Minute), time.Minute-1), nil, heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonMaxWait, Cause: heed.CausePolicy}},
		{"max wait before the deadline", withMaxWait(quota(1, time.Minute), time.Second), timeout(2 * time.Second),
			heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonMaxWait, Cause: heed.CausePolicy}},
		{"deadline before max wait", withMaxWait(quota(1, time.Minute), 2*time.Second), timeout(time.Second),
			heed.LimitError{Policy: "p", Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy}},
		{"an interval", heed.Limits{MinInterval: time.Minute}, timeout(time.Second), heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
		{"a pause between requests", heed.Limits{MinPause: time.Minute}, timeout(time.Second), heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: tc.limits})
				done(acquire(t, r, request(example)))
				ctx := t.Context()
				if tc.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tc.ctx(ctx)
					defer cancel()
				}
				w := start(ctx, r, request(example))
				if !w.done() || w.at != 0 {
					t.Fatal("not refused at once")
				}
				tc.want.Origin = example
				if le := limitErr(t, w.err); *le != tc.want {
					t.Errorf("refused with %#v, want %#v", *le, tc.want)
				}
				if s := r.Snapshot()[0]; s.Waiting != 0 {
					t.Errorf("%d still wait", s.Waiting)
				}
			})
		})
	}
}

func timeout(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

func noWait(ctx context.Context) (context.Context, context.CancelFunc) {
	return heed.NoWait(ctx), func() {}
}

func withMaxWait(l heed.Limits, d time.Duration) heed.Limits {
	l.MaxWait = d
	return l
}

func TestMaxQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota(1, time.Hour)
		l.MaxQueue = 2
		r := newRegistry(t, heed.Config{Default: l})
		defer r.Close()
		for _, key := range []string{"a", "b"} { // MaxQueue is over all partitions
			done(acquire(t, r, request(example, "X-Api-Key", key)))
			if w := start(t.Context(), r, request(example, "X-Api-Key", key)); w.done() {
				t.Fatalf("refused: %v", w.err)
			}
		}
		w := start(t.Context(), r, request(example, "X-Api-Key", "b"))
		if le := limitErr(t, w.err); le.Reason != heed.ReasonQueueFull || le.Timeout() || le.Wait < time.Hour {
			t.Errorf("refused with %#v", le)
		}
		if pm, err := r.Acquire(t.Context(), request(example, "X-Api-Key", "c")); err != nil {
			t.Errorf("one that need not wait is refused: %v", err)
		} else {
			pm.Release()
		}
	})
}

// MaxWait ends waits whose end nobody could tell, too.
func TestMaxWaitEndsAWaitOfUnknownLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1, MaxWait: time.Minute}})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		w := start(t.Context(), r, request(example))
		time.Sleep(time.Minute)
		synctest.Wait()
		if le := limitErr(t, w.err); le.Reason != heed.ReasonMaxWait || le.Cause != heed.CauseConcurrency || le.Wait != time.Minute || w.at != time.Minute {
			t.Errorf("refused after %v with %#v", w.at, le)
		}
		// At the very instant MaxWait is over it may still go.
		for range 100 {
			w := start(t.Context(), r, request(example))
			release := pm
			time.AfterFunc(time.Minute, release.Release)
			time.Sleep(time.Minute)
			synctest.Wait()
			if !w.done() || (w.permit == nil) == (w.err == nil) {
				t.Fatalf("neither one nor the other: %+v", w)
			}
			if w.permit == nil {
				w.permit = acquire(t, r, request(example))
			}
			pm = w.permit
		}
		pm.Release()
		l := quota(1, time.Minute)
		l.MaxWait = time.Minute
		r.SetLimits(example, l)
		time.Sleep(time.Minute)
		done(acquire(t, r, request(example)))
		for range 100 {
			w := start(t.Context(), r, request(example))
			time.Sleep(time.Minute)
			synctest.Wait()
			if w.err != nil {
				t.Fatalf("refused although a wait may be as long: %v", w.err)
			}
			done(w.permit)
		}
	})
}

// With a deadline of its context a wait of unknown length ends in a
// LimitError as well, that is a DeadlineExceeded.
func TestDeadlineEndsAWaitOfUnknownLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := start(ctx, r, request(example))
		time.Sleep(time.Minute)
		synctest.Wait()
		if le := limitErr(t, w.err); le.Reason != heed.ReasonDeadline || !errors.Is(le, context.DeadlineExceeded) || le.Wait != time.Minute {
			t.Errorf("refused with %#v", le)
		}
		pm.Release()
	})
}

// A scout may be answered any moment: who waits for it is not refused for the
// time after which another one goes.
func TestScoutIsNoReasonToRefuseADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		scout := acquire(t, r, request(example))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		w := start(ctx, r, request(example))
		time.Sleep(100 * time.Millisecond)
		done(scout)
		synctest.Wait()
		if !w.done() || w.err != nil {
			t.Fatalf("refused: %v", w.err)
		}
		done(w.permit)
	})
}

// deadlines starts n requests with a deadline each and returns which of them
// went, were refused at once, and failed only later. Answers take latency.
func deadlines(t *testing.T, r *heed.Registry, n int, within, latency time.Duration, keys int) (went, atOnce, later []int) {
	ws := make([]*waiting, n)
	for i := range ws {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		w := &waiting{}
		ws[i] = w
		began := time.Now()
		go func() {
			w.permit, w.err = r.Acquire(ctx, request(example, "X-Api-Key", fmt.Sprint(i%keys)))
			w.at = time.Since(began)
			if w.err == nil {
				time.Sleep(latency)
				done(w.permit)
			}
		}()
		synctest.Wait()
	}
	time.Sleep(within + time.Minute)
	synctest.Wait()
	for i, w := range ws {
		switch {
		case w.err == nil:
			went = append(went, i)
		case w.at == 0:
			atOnce = append(atOnce, i)
		default:
			later = append(later, i)
		}
	}
	return went, atOnce, later
}

func upTo(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// Exactly those that cannot make it are refused, and at once.
func TestDeadlinesAreJudgedFromThePlaceInLine(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		n      int
		within time.Duration
		keys   int
		want   int           // how many go
		pause  time.Duration // before them
	}{
		{"quota", quota(10, time.Second), 25, 2 * time.Second, 1, 20, 0},
		{"quota, a little longer", quota(10, time.Second), 25, 2*time.Second + 100*ms, 1, 25, 0},
		{"quota, shorter than the window", quota(10, time.Second), 25, 900 * ms, 1, 10, 0},
		{"quota, per credential", quota(10, time.Second), 50, 2 * time.Second, 2, 40, 0},
		{"quotas", heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{{Quota: 10, Window: time.Second}, {Quota: 15, Window: time.Minute}}},
			25, 3 * time.Second, 1, 15, 0},
		{"bucket", heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{{Quota: 10, Window: time.Second, Burst: 5}}}, 30, 2 * time.Second, 1, 24, 0},
		{"interval", heed.Limits{MinInterval: 100 * ms}, 30, 2 * time.Second, 1, 20, 0},
		{"interval over credentials", heed.Limits{MinInterval: 100 * ms}, 30, 2 * time.Second, 3, 20, 0},
		{"pause between", heed.Limits{MinPause: 100 * ms}, 30, 2 * time.Second, 1, 20, 0},
		{"quota, after a pause", quota(10, time.Second), 25, 6500 * ms, 1, 20, 5 * time.Second},
		{"bucket, after a pause", heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{{Quota: 10, Window: time.Second, Burst: 5}}}, 30, 7 * time.Second, 1, 24, 5 * time.Second},
		{"interval, after a pause", heed.Limits{MinInterval: 100 * ms}, 30, 7 * time.Second, 1, 20, 5 * time.Second},
		{"pause between, after a pause", heed.Limits{MinPause: 100 * ms}, 30, 7 * time.Second, 3, 20, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: tc.limits})
				// Met beforehand, so that nobody has to scout.
				r.SetLimits("*", heed.Limits{Smoothing: heed.Smoothing{Off: true}})
				for i := range tc.keys {
					for range 12 {
						done(acquire(t, r, request(example, "X-Api-Key", fmt.Sprint(i))))
					}
				}
				r.SetLimits("*", tc.limits)
				time.Sleep(time.Hour / 2)
				r.Pause(example, tc.pause)
				latency := ms / 10
				went, atOnce, later := deadlines(t, r, tc.n, tc.within, latency, tc.keys)
				if len(went) != tc.want || len(later) > 0 {
					t.Errorf("%d went: %v\nrefused at once: %v\nlater: %v\nwant %d to go, the rest refused at once", len(went), went, atOnce, later, tc.want)
				}
				if !slices.Equal(went, upTo(0, len(went))) {
					t.Errorf("those who came first did not go first: %v", went)
				}
			})
		})
	}
}

// On first contact, too.
func TestDeadlinesAreJudgedWhileScouting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: quota(10, time.Second)})
		went, atOnce, later := deadlines(t, r, 25, 2*time.Second, time.Millisecond, 1)
		if !slices.Equal(went, upTo(0, 20)) || !slices.Equal(atOnce, upTo(20, 25)) {
			t.Errorf("went %v, refused at once %v, later %v", went, atOnce, later)
		}
	})
}

// News that puts deadlines out of reach has them refused then and there.
func TestDeadlinesAreJudgedAgainOnNews(t *testing.T) {
	for _, tc := range []struct {
		name  string
		news  func(r *heed.Registry, pm *heed.Permit)
		cause heed.Cause
		kept  bool
	}{
		{"a pause", func(r *heed.Registry, _ *heed.Permit) { r.Pause(example, time.Hour) }, heed.CausePause, false},
		{"a short pause", func(r *heed.Registry, _ *heed.Permit) { r.Pause(example, time.Second) }, 0, true},
		{"a refusal", func(_ *heed.Registry, pm *heed.Permit) { pm.Observe(answer(429, "Retry-After", "600")) }, heed.CausePause, false},
		{"an outage", func(_ *heed.Registry, pm *heed.Permit) { pm.Observe(answer(503, "Retry-After", "600")) }, heed.CausePause, false},
		{"an announcement", func(_ *heed.Registry, pm *heed.Permit) {
			pm.Observe(answer(200, "RateLimit-Policy", `"q";q=5;w=3600`, "RateLimit", `"q";r=0;t=600`))
		}, heed.CausePolicy, false},
		{"news from elsewhere", func(_ *heed.Registry, pm *heed.Permit) {
			pm.Learn(heed.Announcement{Refused: true, RetryAfter: time.Hour})
		}, heed.CausePause, false},
		{"a limit", func(r *heed.Registry, _ *heed.Permit) {
			r.SetLimits(example, heed.Limits{MinInterval: time.Hour})
		}, heed.CauseInterval, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})
				defer r.Close()
				pm := acquire(t, r, request(example))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				w := start(ctx, r, request(example))
				other := start(t.Context(), r, request(example, "X-Api-Key", "b"))
				time.Sleep(time.Second)
				tc.news(r, pm)
				synctest.Wait()
				if other.done() {
					t.Error("one without a deadline no longer waits")
				}
				if tc.kept {
					if w.done() {
						t.Errorf("refused: %v", w.err)
					}
					return
				}
				if le := limitErr(t, w.err); w.at != time.Second || le.Reason != heed.ReasonDeadline || le.Cause != tc.cause || le.Wait < 59*time.Second {
					t.Errorf("after %v: %#v", w.at, le)
				}
			})
		})
	}
}

// A request of higher priority takes the place of one that then is too late.
func TestDeadlinesAreJudgedAgainWhenOthersPushIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MinInterval: time.Second}})
		defer r.Close()
		done(acquire(t, r, request(example)))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		w := start(ctx, r, request(example))
		if w.done() {
			t.Fatal(w.err)
		}
		high := start(heed.WithPriority(t.Context(), heed.PriorityHigh), r, request(example))
		synctest.Wait()
		if le := limitErr(t, w.err); w.at != 0 || le.Wait != 2*time.Second {
			t.Errorf("after %v: %#v", w.at, le)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !high.done() || high.err != nil {
			t.Errorf("%+v", high)
		}
	})
}

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
