package heed_test

import (
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

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MaxRetryAfter: time.Minute}})
		meet(t, r, example)
		check := func(want time.Duration) {
			t.Helper()
			if d := r.Check(request(example)); d.Wait != want || d.Allowed != (want == 0) {
				t.Errorf("Check() = %+v, want a wait of %v", d, want)
			}
		}
		pause := func(d time.Duration) {
			t.Helper()
			if err := r.Pause(example, d); err != nil {
				t.Fatal(err)
			}
		}
		pause(24 * time.Hour) // no cap on what the user asks for
		check(24 * time.Hour)
		pause(time.Hour) // never shortens
		check(24 * time.Hour)
		pause(25 * time.Hour)
		check(25 * time.Hour)
		w := start(t.Context(), r, request(example))
		time.Sleep(time.Hour)
		check(24 * time.Hour)
		pause(0)
		synctest.Wait()
		if !w.done() || w.err != nil {
			t.Fatalf("ending the pause lets nobody go: %+v", w)
		}
		w.permit.Release()
		pause(-1)
		pause(1<<63 - 1)
		if d := r.Check(request(example)); d.Wait < 100*365*24*time.Hour {
			t.Errorf("Check() = %+v in an endless pause", d)
		}
		pause(-1 << 63)

		// On top of what the server asked for, and ending both.
		pm := acquire(t, r, request(example))
		pm.Observe(answer(503, "Retry-After", "30"))
		pm.Release()
		pause(10 * time.Second)
		if d := r.Check(request(example)); d.Wait < 30*time.Second {
			t.Errorf("Check() = %+v, want the server's pause", d)
		}
		pause(40 * time.Second)
		check(40 * time.Second)
		pause(0)
		check(0)

		// For all credentials, those to come too.
		pause(time.Minute)
		if d := r.Check(request(example, "Authorization", "Bearer new")); d.Wait != time.Minute {
			t.Errorf("Check() = %+v for another credential", d)
		}
	})
}

// Where a refusal gave no hint, one request to another path goes to see whether that path
// alone is refused, past those in line before it.
func TestAnotherPathIsTriedPastThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		acquire(t, r, request(example+"/sick")).Observe(answer(503))
		same := start(t.Context(), r, request(example+"/sick"))
		other := start(t.Context(), r, request(example+"/well"))
		third := start(t.Context(), r, request(example+"/third"))
		if same.done() || !other.done() || third.done() {
			t.Fatalf("done: the same path %v, another %v, a third %v", same.done(), other.done(), third.done())
		}
		other.permit.Observe(answer(200))
		synctest.Wait()
		if !same.done() || !third.done() {
			t.Errorf("once it succeeded: done %v, %v", same.done(), third.done())
		}
	})
}

// After a pause one request goes first, and the rest as answers come.
func TestOneGoesFirstAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		meet(t, r, example)
		r.Pause(example, time.Minute)
		var ws []*waiting
		for range 8 {
			ws = append(ws, start(t.Context(), r, request(example)))
		}
		time.Sleep(time.Minute)
		for _, want := range []int{1, 3, 7, 8} {
			synctest.Wait()
			granted := slices.IndexFunc(ws, func(w *waiting) bool { return !w.done() })
			if granted < 0 {
				granted = len(ws)
			}
			if granted != want {
				t.Fatalf("%d went, want %d", granted, want)
			}
			time.Sleep(time.Millisecond)
			for _, w := range ws[:granted] {
				w.permit.Observe(answer(200))
				w.permit.Release()
			}
		}
	})
}

// So it is for a credential that is first seen during the pause.
func TestOneGoesFirstAfterAPauseForNewCredentialsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		meet(t, r, example)
		r.Pause(example, time.Minute)
		for range 2 {
			start(t.Context(), r, request(example, "X-Api-Key", "new"))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := r.Snapshot()[0]; s.InFlight != 1 || s.Waiting != 1 {
			t.Errorf("%d go, %d wait", s.InFlight, s.Waiting)
		}
		r.Close()
	})
}

func TestResetStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Origins: map[string]heed.Limits{example: quota(3, time.Hour)}})
		spend := func(header ...string) {
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200, header...))
			pm.Release()
		}
		spend()
		old := acquire(t, r, request(example)) // in flight across the reset
		spend("RateLimit-Policy", `"q";q=10;w=60`, "RateLimit", `"q";r=0;t=3000`)
		r.Pause(example, 2*time.Hour)
		var ws []*waiting
		for range 4 {
			ws = append(ws, start(t.Context(), r, request(example)))
		}
		time.Sleep(time.Minute)
		if err := r.Reset(example); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i, w := range ws {
			if want := i < 3; w.done() != want || w.err != nil {
				t.Errorf("request %d went: %v, want %v", i, w.done(), want)
			}
		}
		s := r.Snapshot()[0]
		if s.Paused != 0 || s.Waited != 3*time.Minute || len(s.Partitions[0].Policies) != 1 || s.Partitions[0].Opening != 0 || s.InFlight != 4 {
			t.Errorf("Snapshot() = %+v", s)
		}
		old.Observe(answer(200))
		old.Release() // neither taken back nor counted
		if d := r.Check(request(example)); d.Remaining != 0 {
			t.Errorf("%d left", d.Remaining)
		}
		ws[0].permit.Cancel()
		synctest.Wait()
		if !ws[3].done() {
			t.Error("what is given back does not go to the next")
		}
	})
}

// Requests in flight are in flight whatever is forgotten about them.
func TestResetKeepsCountOfRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 1, Unit: heed.UnitConcurrentRequests}}}})
		pm := acquire(t, r, request(example))
		r.Reset(example)
		if r.Check(request(example)).Allowed {
			t.Error("a second one may go")
		}
		pm.Release()
		if !r.Check(request(example)).Allowed {
			t.Error("the slot is not freed")
		}
	})
}

func TestCloseEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		meet(t, r, example)
		pm := acquire(t, r, request(example))
		r.Pause(example, time.Hour)
		r.Pause(host("a"), time.Hour)
		ws := []*waiting{
			start(t.Context(), r, request(example)), start(t.Context(), r, request(example, "Authorization", "Bearer b")), start(t.Context(), r, request(host("a"))),
		}
		began := time.Now()
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		for i, w := range ws {
			if !w.done() || w.err != heed.ErrClosed || time.Since(began) != 0 {
				t.Errorf("request %d: %v", i, w.err)
			}
		}
		if _, err := r.Acquire(t.Context(), request(example)); err != heed.ErrClosed {
			t.Errorf("after Close: %v", err)
		}
		if _, err := r.Acquire(t.Context(), request(host("new"))); err != heed.ErrClosed {
			t.Errorf("after Close: %v", err)
		}
		pm.Observe(answer(200))
		pm.Release()
		for _, s := range r.Snapshot() {
			if s.Waiting != 0 || s.InFlight != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// That one of the answers that bring one refusal names no wait is not another refusal.
func TestRefusalThatNamedAWaitIsNotCountedAmongThoseThatNameNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		meet(t, r, example)
		first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
		first.Observe(answer(429, "Retry-After", "1"))
		first.Release()
		second.Observe(answer(429))
		second.Release()
		probe := acquire(t, r, request(example))
		probe.Observe(answer(429))
		probe.Release()
		if wait := r.Check(request(example)).Wait; wait < 5*time.Second || wait > 6*time.Second {
			t.Errorf("holds for %v, want the first of the waits of its own", wait)
		}
	})
}

// A pause is the user's as long as it is the user who asked for the most.
func TestPauseIsWhoseWordHoldsLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var resumed []bool
		r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
			if e.Kind == heed.EventResumed {
				resumed = append(resumed, e.Manual)
			}
		}})
		defer r.Close()
		pm := acquire(t, r, request(example))
		cause := func() string { return r.Snapshot()[0].PauseCause }
		r.Pause(example, time.Minute)
		if c := cause(); c != "manual" {
			t.Errorf("paused by the user, and it is %q", c)
		}
		pm.Observe(answer(503, "Retry-After", "600"))
		pm.Release()
		if c := cause(); c != "refused" {
			t.Errorf("paused by the server for longer, and it is %q", c)
		}
		w := start(t.Context(), r, request(example))
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		done(w.permit)
		r.Pause(example, time.Minute)
		w = start(t.Context(), r, request(example))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		done(w.permit)
		if !slices.Equal(resumed, []bool{false, true}) {
			t.Errorf("it is said to end as the user's: %v", resumed)
		}
	})
}

// At a learned rate a refusal without a hint waits for the next unit alone, a moment at first. However many there were in a
// row, one that is put down to something else is the first that waits for seconds. Here it is a limit in flight that a few
// requests use up now and then, which the origin works on for long.
func TestWaitsAtALearnedRateDoNotLengthenOthers(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 1))
			o := heedtest.NewOrigin(heedtest.Config{Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(20 * time.Millisecond),
				Policies: []heedtest.Policy{{Quota: 4, Window: time.Second}}, Respond: func(w http.ResponseWriter, _ *http.Request) {
					mu.Lock()
					work := time.Duration(rng.ExpFloat64() * float64(80*time.Millisecond))
					if rng.Float64() < 0.03 {
						work = 10 * time.Second
					}
					mu.Unlock()
					time.Sleep(work)
					w.WriteHeader(http.StatusOK)
				}})
			var longest time.Duration
			r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == heed.EventPaused {
					longest = max(longest, e.Wait)
				}
			}})
			tr := &heed.Transport{Base: o, Registry: r}
			askAtOnce(tr, 8, 2*time.Minute)
			if longest > 30*time.Second {
				t.Errorf("seed %d: a pause of %v", seed, longest)
			}
		})
	}
}
