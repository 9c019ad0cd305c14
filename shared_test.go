package heed

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestProcessesShareAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, eachSecond(4))
		for i := range 4 {
			mustGo(t, rs[i%2]).Release()
		}
		began := time.Now()
		mustGo(t, rs[0]).Release()
		// 4 talks of 1 ms after the first unit was answered, and 1 to ask anew.
		if d := time.Since(began); d < time.Second-6*time.Millisecond || d > time.Second+2*time.Millisecond {
			t.Errorf("the fifth waited %v, want about 1s", d)
		}
	})
}

// A watchedContext, which never ends, counts who is to be told of its end.
type watchedContext struct {
	context.Context
	done chan struct{}
	told atomic.Int64
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }

func (c *watchedContext) AfterFunc(func()) (stop func() bool) {
	c.told.Add(1)
	return func() bool { return c.told.Add(-1) >= 0 }
}

// A program's one context can outlive any number of requests.
func TestQuestionsLeaveNothingBehindInTheirContext(t *testing.T) {
	for _, most := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			l := eachSecond(100)
			l.MaxWait = most
			r := share(t, &books{rtt: time.Millisecond}, 1, l)[0]
			defer r.Close()
			ctx := &watchedContext{Context: context.Background(), done: make(chan struct{})}
			for range 10 {
				pm, err := r.Acquire(ctx, sharedRequest())
				if err != nil {
					t.Fatal(err)
				}
				answer(pm, 200)
				pm.Release()
			}
			synctest.Wait()
			if n := ctx.told.Load(); n != 0 {
				t.Errorf("MaxWait %v: %d are still told of the end", most, n)
			}
		})
	}
}

// A process can listen for days to what others do, and ask for nothing.
func TestEventsOfOtherProcessesDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := share(t, &books{rtt: time.Millisecond}, 1, Limits{})[0]
		defer r.Close()
		var told []Event
		r.config.OnEvent = func(e Event) { told = append(told, e) }
		mustGo(t, r).Release()
		told = nil
		for range 5000 {
			r.hearNews(News{Origin: sharedOrigin, Pause: time.Minute})
			r.hearNews(News{Origin: sharedOrigin, Pause: -1})
		}
		mustGo(t, r).Release()
		if n := len(told); n < 500 || n > 2000 {
			t.Errorf("told of %d events, want the latest of ten thousand", n)
		}
	})
}

// Registry.Pause ends every pause of an origin, in all processes.
func TestPausesEndedByAnotherProcessAreToldToBeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := share(t, &books{rtt: time.Millisecond}, 2, Limits{})
		r := rs[0]
		defer r.Close()
		defer rs[1].Close()
		paused := 0
		r.config.OnEvent = func(e Event) {
			switch e.Kind {
			case EventPaused:
				paused++
			case EventResumed:
				paused--
			}
		}
		mustGo(t, r).Release()
		var pms []*Permit
		for range 2 {
			pm, err := r.Acquire(t.Context(), sharedRequest())
			if err != nil {
				t.Fatal(err)
			}
			pms = append(pms, pm)
		}
		answer(pms[0], 429, "Retry-After", "60", "X-Ratelimit-Bucket", "b")
		answer(pms[1], 429, "Retry-After", "60")
		if paused != 2 {
			t.Fatalf("%d pauses, want a bucket's and a partition's", paused)
		}
		rs[1].Pause(sharedOrigin, 0)
		synctest.Wait()
		for _, pm := range pms {
			pm.Release()
		}
		if paused != 0 {
			t.Errorf("%d pauses are not told to be over", paused)
		}
		for _, p := range r.Snapshot()[0].Partitions {
			if p.Paused > 0 {
				t.Errorf("still paused: %+v", p)
			}
		}
		if d := r.Check(sharedRequest()); d.Cause == CausePause {
			t.Errorf("Check() = %+v", d)
		}
	})
}

func TestWhatTheLedgerRefusesKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		r := share(t, b, 1, eachSecond(2))[0]
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				mustGo(t, r).Release()
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
			synctest.Wait()
		}
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("they went in the order %v", order)
		}
	})
}

func TestNoWaitAsksTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, eachSecond(10))
		var wg sync.WaitGroup
		var went [2]atomic.Int64
		for i := range 10 { // at once: none of them waits for anything but the ledger
			wg.Go(func() {
				pm, err := rs[i%2].Acquire(NoWait(t.Context()), sharedRequest())
				if err != nil {
					return // another one scouts
				}
				went[i%2].Add(1)
				answer(pm, 200)
				pm.Release()
			})
		}
		wg.Wait()
		if went[0].Load() == 0 || went[1].Load() == 0 {
			t.Error("not even the first one of each process went")
		}
		for range 20 {
			pm, err := rs[0].Acquire(NoWait(t.Context()), sharedRequest())
			var limit *LimitError
			switch {
			case err == nil:
				answer(pm, 200)
				pm.Release()
				continue
			case !errors.As(err, &limit):
				t.Fatal(err)
			case limit.Reason != ReasonNoWait || limit.Cause != CausePolicy || limit.Policy != "p" || limit.Wait <= 900*time.Millisecond || limit.Wait > time.Second:
				t.Errorf("%+v", limit)
			}
			return
		}
		t.Error("never refused")
	})
}

func TestDeadlinesHeedTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, eachSecond(1))
		mustGo(t, rs[0]).Release()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := rs[1].Acquire(ctx, sharedRequest())
		var limit *LimitError
		if !errors.As(err, &limit) || limit.Reason != ReasonDeadline || limit.Cause != CausePolicy {
			t.Errorf("%v, want a LimitError for the deadline", err)
		}
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("refused after %v, want at once", d)
		}
	})
}

func TestAPauseOfOneProcessHoldsAll(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			b := &books{rtt: time.Millisecond}
			rs := share(t, b, 3, Limits{})
			for _, r := range rs {
				mustGo(t, r).Release()
			}
			pm, err := rs[0].Acquire(t.Context(), sharedRequest())
			if err != nil {
				t.Fatal(err)
			}
			answer(pm, status, "Retry-After", "30")
			refused := time.Now()
			pm.Release()
			synctest.Wait()
			if d := rs[1].Check(sharedRequest()); d.Allowed || d.Cause != CausePause || d.Wait < 30*time.Second {
				t.Errorf("after a %d in another process, Check says %+v", status, d)
			}
			mustGo(t, rs[2]).Release()
			if d := time.Since(refused); d < 30*time.Second || d > 32*time.Second {
				t.Errorf("after a %d in another process, it waited %v", status, d)
			}
		})
	}
}

func TestAPauseIsFoundWhereNoNewsCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, Limits{})
		mustGo(t, rs[1]).Release()
		synctest.Wait()
		b.mu.Lock()
		b.listeners[1] = nil // it hears nothing
		b.mu.Unlock()
		pm, err := rs[0].Acquire(t.Context(), sharedRequest())
		if err != nil {
			t.Fatal(err)
		}
		answer(pm, 429, "Retry-After", "30")
		pm.Release()
		refused := time.Now()
		if _, err := rs[1].Acquire(NoWait(t.Context()), sharedRequest()); !errors.Is(err, ErrLimited) {
			t.Fatalf("%v, want it refused", err)
		}
		if s := rs[1].Snapshot()[0].Partitions[0]; s.Paused < 29*time.Second {
			t.Errorf("the snapshot does not show the pause: %+v", s)
		}
		mustGo(t, rs[1]).Release()
		if d := time.Since(refused); d < 30*time.Second {
			t.Errorf("it waited %v", d)
		}
	})
}

func TestManualPauseAndResetReachAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, eachSecond(3))
		mustGo(t, rs[0]).Release()
		mustGo(t, rs[1]).Release()
		if err := rs[0].Pause(sharedOrigin, time.Minute); err != nil {
			t.Fatal(err)
		}
		if d := rs[1].Check(sharedRequest()); d.Allowed || d.Cause != CausePause {
			t.Errorf("paused, Check says %+v", d)
		}
		went := make(chan time.Time)
		go func() {
			mustGo(t, rs[1]).Release()
			went <- time.Now()
		}()
		time.Sleep(10 * time.Second)
		ended := time.Now()
		if err := rs[0].Pause(sharedOrigin, 0); err != nil {
			t.Fatal(err)
		}
		if d := (<-went).Sub(ended); d > 5*time.Millisecond {
			t.Errorf("it went %v after the pause was ended", d)
		}
		mustGo(t, rs[0]).Release()
		mustGo(t, rs[0]).Release()
		go func() {
			mustGo(t, rs[1]).Release()
			went <- time.Now()
		}()
		time.Sleep(100 * time.Millisecond)
		reset := time.Now()
		if err := rs[0].Reset(sharedOrigin); err != nil {
			t.Fatal(err)
		}
		if d := (<-went).Sub(reset); d > 5*time.Millisecond {
			t.Errorf("it went %v after the reset", d)
		}
	})
}

func TestALostLedgerIsTheCallersError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []Event
		b := &books{rtt: time.Millisecond}
		r, _ := NewRegistry(Config{Default: eachSecond(100), Ledger: b.process(), Logger: slog.New(slog.DiscardHandler), OnEvent: func(e Event) {
			if e.Kind == EventDegraded {
				events = append(events, e)
			}
		}})
		mustGo(t, r).Release()
		down := errors.New("store down")
		b.down = down
		for range 2 {
			if _, err := r.Acquire(t.Context(), sharedRequest()); !errors.Is(err, down) {
				t.Errorf("Acquire: %v", err)
			}
		}
		if d := r.Check(sharedRequest()); !errors.Is(d.Err, down) {
			t.Errorf("Check: %+v", d)
		}
		if err := r.Pause(sharedOrigin, time.Second); !errors.Is(err, down) {
			t.Errorf("Pause: %v", err)
		}
		if err := r.Reset(sharedOrigin); !errors.Is(err, down) {
			t.Errorf("Reset: %v", err)
		}
		if s := r.Snapshot()[0].Partitions[0]; !s.Degraded || s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		b.down = nil
		mustGo(t, r).Release()
		if s := r.Snapshot()[0].Partitions[0]; s.Degraded {
			t.Errorf("still degraded")
		}
		if len(events) != 2 || !errors.Is(events[0].Err, down) || events[1].Err != nil {
			t.Errorf("events %+v, want one that it was lost and one that it is back", events)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Acquire(t.Context(), sharedRequest()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// The ledger is asked no longer than MaxWait allows. That is no sign of an outage.
func TestMaxWaitEndsAQuestionOfTheLedger(t *testing.T) {
	for range 50 { // whether the ledger's error or the end of the wait comes first is chance
		synctest.Test(t, func(t *testing.T) {
			b := &books{rtt: time.Minute}
			r, _ := NewRegistry(Config{Default: Limits{MaxWait: time.Second}, Ledger: b.process(), Logger: slog.New(slog.DiscardHandler), OnEvent: func(e Event) {
				if e.Kind == EventDegraded {
					t.Errorf("%+v", e)
				}
			}})
			_, err := r.Acquire(t.Context(), sharedRequest())
			var le *LimitError
			if !errors.As(err, &le) || le.Reason != ReasonMaxWait {
				t.Errorf("Acquire: %v", err)
			}
			r.Close()
			synctest.Wait()
		})
	}
}

func TestSlotsAreSharedAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, Limits{MaxConcurrent: 1})
		first, err := rs[0].Acquire(t.Context(), sharedRequest())
		if err != nil {
			t.Fatal(err)
		}
		answer(first, 200)
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := errors.New("gave up")
		time.AfterFunc(time.Minute, func() { cancel(gaveUp) })
		if _, err := rs[1].Acquire(ctx, sharedRequest()); err != gaveUp {
			t.Fatalf("with the slot taken: %v", err)
		}
		time.AfterFunc(time.Minute, first.Release)
		began := time.Now()
		second, err := rs[1].Acquire(t.Context(), sharedRequest())
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < time.Minute || d > time.Minute+5*time.Millisecond {
			t.Errorf("it waited %v", d)
		}
		second.Cancel()
		synctest.Wait()
		if a := b.account(sharedOrigin, "A"); a.inFlight != 0 || len(a.uses) != 1 {
			t.Errorf("%d in flight and %d units spent, want 0 and 1", a.inFlight, len(a.uses))
		}
	})
}

func TestAGrantNobodyCanUseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: 10 * time.Millisecond}
		r := share(t, b, 1, eachSecond(5))[0]
		mustGo(t, r).Release()
		for _, spoil := range []func(cancel func()){
			func(cancel func()) { cancel() },
			func(func()) { _ = r.SetLimits(sharedOrigin, Limits{MinInterval: time.Hour}) },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Millisecond, func() { spoil(cancel) }) // while the ledger is being asked
			time.AfterFunc(time.Second, cancel)
			if pm, err := r.Acquire(ctx, sharedRequest()); err == nil {
				t.Errorf("%+v", pm)
			}
			cancel()
			time.Sleep(time.Second)
			if a := b.account(sharedOrigin, "A"); a.inFlight != 0 || len(a.uses) != 1 {
				t.Errorf("%d in flight and %d units spent, want 0 and 1", a.inFlight, len(a.uses))
			}
		}
	})
}

func TestAnnouncedPoliciesReachOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, Limits{})
		mustGo(t, rs[1]).Release()
		mustGo(t, rs[0], "RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=9;t=60`).Release()
		synctest.Wait()
		s := rs[1].Snapshot()[0].Partitions[0]
		if len(s.Policies) != 1 || s.Policies[0].Name != "p" || s.Policies[0].Quota != 10 {
			t.Errorf("%+v", s.Policies)
		}
		if n := len(b.heard); n != 2 || len(b.heard[1].Announcement.Limits) != 1 || !b.heard[1].Answered {
			t.Errorf("the ledger heard %+v", b.heard)
		}
	})
}

func TestCloseEndsAQuestionUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Hour}
		r := share(t, b, 1, eachSecond(5))[0]
		began := time.Now()
		time.AfterFunc(time.Second, func() { r.Close() })
		if _, err := r.Acquire(t.Context(), sharedRequest()); err != ErrClosed {
			t.Errorf("%v, want ErrClosed", err)
		}
		synctest.Wait()
		if d := time.Since(began); d != time.Second || b.stopped != 1 {
			t.Errorf("after %v, with %d questions stopped", d, b.stopped)
		}
	})
}

func TestAQuestionUnderWayIsNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		l := eachSecond(4)
		l.MaxQueue = 1
		r := share(t, b, 1, l)[0]
		mustGo(t, r).Release()
		mustGo(t, r).Release()
		var full, went int
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 5 {
			wg.Go(func() {
				pm, err := r.Acquire(t.Context(), sharedRequest())
				mu.Lock()
				defer mu.Unlock()
				var limit *LimitError
				switch {
				case err == nil:
					went++
					answer(pm, 200)
					pm.Release()
				case errors.As(err, &limit) && limit.Reason == ReasonQueueFull:
					full++
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if went != 3 || full != 2 {
			t.Errorf("%d went and %d found the queue full; want two at once, one after a wait, and two turned away", went, full)
		}
	})
}

func TestOwnPauseEndAndResetForgetWhatTheLedgerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: time.Millisecond}
		rs := share(t, b, 2, eachSecond(1))
		for _, change := range []func() error{
			func() error { return rs[0].Reset(sharedOrigin) },
			func() error { b.account(sharedOrigin, "A").uses = nil; return rs[0].Pause(sharedOrigin, 0) },
		} {
			mustGo(t, rs[1]).Release()
			if _, err := rs[0].Acquire(NoWait(t.Context()), sharedRequest()); !errors.Is(err, ErrLimited) {
				t.Fatal(err)
			}
			if err := change(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			mustGo(t, rs[0]).Release()
			if d := time.Since(began); d > 5*time.Millisecond {
				t.Errorf("it went %v after", d)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestAGrantGoesToARequestOfItsCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{rtt: 10 * time.Millisecond}
		r := share(t, b, 1, eachSecond(10))[0]
		mustGo(t, r).Release()
		mustGo(t, r).Release()
		var wg sync.WaitGroup
		wg.Go(func() { mustGo(t, r).Release() })
		time.Sleep(time.Millisecond)
		wg.Go(func() { // overtakes while the ledger is asked for the other
			pm, err := r.Acquire(WithPriority(WithCost(t.Context(), UnitRequests, 4), PriorityHigh), sharedRequest())
			if err != nil {
				t.Error(err)
				return
			}
			answer(pm, 200)
			pm.Release()
		})
		wg.Wait()
		if n := len(b.account(sharedOrigin, "A").uses); n != 7 {
			t.Errorf("%d units spent, want 1+1+1+4", n)
		}
	})
}

// What the ledger said under other limits holds nobody, nor does what it is about to say.
func TestChangedLimitsAreAskedAboutAtOnce(t *testing.T) {
	for name, underWay := range map[string]bool{"after the answer": false, "before it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &books{rtt: 10 * time.Millisecond}
				hourly := func(n int64) Limits {
					return Limits{Policies: []Policy{{Name: "p", Quota: n, Window: time.Hour}}, Smoothing: Smoothing{Off: true}}
				}
				rs := share(t, b, 2, hourly(2))
				for i := range rs {
					mustGo(t, rs[i]).Release()
				}
				time.Sleep(time.Second)
				began := time.Now()
				var took atomic.Int64
				go func() {
					pm, err := rs[1].Acquire(t.Context(), sharedRequest())
					if took.Store(int64(time.Since(began))); err == nil {
						pm.Release()
					}
				}()
				if underWay {
					time.Sleep(5 * time.Millisecond)
				} else {
					time.Sleep(time.Second)
				}
				if took.Load() != 0 {
					t.Fatal("it did not wait")
				}
				rs[1].SetLimits(sharedOrigin, hourly(3))
				time.Sleep(2 * time.Hour)
				if d := time.Duration(took.Load()); d == 0 || d > 2*time.Second {
					t.Errorf("it went after %v", d)
				}
				for _, r := range rs {
					r.Close()
				}
			})
		})
	}
}
