package heed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Paced strictly, a quota lasts for its window divided by the velocity.
func TestQuotaLastsAsLongAsTheVelocitySays(t *testing.T) {
	const quota, window = 600, time.Minute
	for _, v := range []float64{0.5, 1, 1.5, 2} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var mu sync.Mutex
				var starts []time.Duration
				tr := &heed.Transport{
					Registry: newRegistry(t, heed.Config{Default: heed.Limits{
						Policies:  []heed.Policy{{Quota: quota, Window: window}},
						Smoothing: heed.Smoothing{Velocity: v, Strict: true},
					}}),
					Base: respond(func(*http.Request) *http.Response {
						mu.Lock()
						starts = append(starts, time.Since(began))
						mu.Unlock()
						time.Sleep(2 * time.Millisecond)
						return reply(200, "")
					}),
				}
				ctx, cancel := context.WithTimeout(t.Context(), window)
				defer cancel()
				var wg sync.WaitGroup
				for range quota {
					wg.Go(func() { tr.RoundTrip(request(example).WithContext(ctx)) })
				}
				wg.Wait()
				want := min(int(v*quota), quota)
				if n := len(starts); n < want-want/50 || n > want+want/50 {
					t.Errorf("%d requests in a window, want %d", n, want)
				}
				lasts, most := time.Duration(float64(window)/max(v, 1)), window/50
				if last := starts[len(starts)-1]; (last - lasts).Abs() > most {
					t.Errorf("the last one after %v, want %v", last, lasts)
				}
			})
		})
	}
}

// All of a quota is there in the last second of a window that has just been met, and none of
// it is in the next: it is used up, in bunches no larger than at any other time. A reset so
// near may be when a bucket is full, but that is no reason to wait.
func TestQuotaThatIsMetLateInItsWindowIsUsedUp(t *testing.T) {
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindowByClock, heedtest.SlidingCounter} {
		policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
		var bunch, first int64
		tally, _ := load{heedtest.Config{
			Algorithm: algorithm, Policies: []heedtest.Policy{policy}, Phase: time.Second, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		}, 64, 4, func(o *heedtest.Origin, _ *heed.Registry) {
			time.Sleep(99 * time.Millisecond) // the scout, and what goes when its answer is there
			bunch = o.Tally().Accepted
			time.Sleep(900 * time.Millisecond)
			first = o.Tally().Accepted
		}}.play(t)
		if bunch > policy.Quota/5 || first < policy.Quota*9/10 || tally.Refused > 0 {
			t.Errorf("%v: %d accepted at once and %d in the second that was left, %d refused", algorithm, bunch, first, tally.Refused)
		}
	}
}

// However sure it is that nobody else uses a window that was met late, no bunch is larger than what goes in a tenth of the
// whole window: of one second here, so that three seconds of it are not used up in the first one. Where every request is
// to be paced there is none at all.
func TestNoBunchIsMoreThanATenthOfTheWindow(t *testing.T) {
	const quota, window, left = 1000, 10 * time.Second, 3 * time.Second
	for _, c := range []struct {
		strict bool
		most   float64 // seconds that half a second may use up: a bunch, and more where the pace rises as less is left
	}{{false, 1.7}, {true, 0.6}} {
		synctest.Test(t, func(t *testing.T) {
			end := time.Now().Add(left)
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: window}},
				Phase: time.Duration(end.UnixNano()) % window, Latency: heedtest.RoundTrip(5 * time.Millisecond),
			})
			tr := quiet(t, o, heed.Limits{Smoothing: heed.Smoothing{Interval: window, Strict: c.strict}})
			var soon int64
			time.AfterFunc(500*time.Millisecond, func() { soon = o.Tally().Accepted })
			crowd(end, []*heed.Transport{tr})
			pace := 1.5 * quota / left.Seconds() // at the default velocity
			if most := int64(c.most * pace); soon > most {
				t.Errorf("strict %v: %d accepted in half a second at %v per second, want at most %d", c.strict, soon, pace, most)
			}
			if all := o.Tally().Accepted; all < quota-1 {
				t.Errorf("%d accepted in what was left of the window, want all %d", all, quota)
			}
		})
	}
}

// What is used of a configured quota comes back within its window: who comes every hour for less than that allows,
// however little is left just then, never uses it up, and is not paced.
func TestBurstsThatAConfiguredQuotaCanAffordForGoodAreNotPaced(t *testing.T) {
	for _, c := range []struct {
		policy heed.Policy
		batch  int
		every  time.Duration
	}{
		{heed.Policy{Quota: 1000, Window: 24 * time.Hour}, 30, time.Hour},
		{heed.Policy{Quota: 1000, Window: time.Hour}, 105, 11 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &heed.Transport{
				Registry: newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{c.policy}}}),
				Base: respond(func(*http.Request) *http.Response {
					time.Sleep(100 * time.Millisecond)
					return reply(200, "")
				}),
			}
			for n := range 72 {
				began := time.Now()
				var wg sync.WaitGroup
				for range c.batch {
					wg.Go(func() { tr.RoundTrip(request(example)) })
				}
				wg.Wait()
				if took := time.Since(began); took > time.Second {
					t.Errorf("%d requests, every %v, took %v the %d. time, at %d per %v", c.batch, c.every, took, n+1, c.policy.Quota, c.policy.Window)
					return
				}
				time.Sleep(time.Until(began.Add(c.every)))
			}
		})
	}
}

// A batch that the quota plainly affords goes as it comes, be it the first that a process sends: it takes as long as its answers.
// What was known to be this process's alone is not forgotten between two of them.
func TestBatchThatTheQuotaAffordsIsNotSlowed(t *testing.T) {
	manyRequests(t)
	const trip, workers = 100 * time.Millisecond, 20
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindowByClock, heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.GCRA} {
		for _, c := range []struct {
			quota  int64
			window time.Duration
			known  bool // from requests of long ago
			batch  int
		}{
			{60, time.Minute, true, 25},
			{1000, time.Minute, true, 400},
			{1000, time.Minute, false, 300},
			{5000, time.Hour, true, 2000},
			{5000, time.Hour, false, 1500},
		} {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: c.quota, Window: c.window}}, Latency: heedtest.RoundTrip(trip),
				})
				tr := quiet(t, o, heed.Limits{})
				defer tr.Registry.Close()
				get := func() {
					if resp, err := tr.Client().Get(example); err != nil {
						t.Error(err)
					} else {
						resp.Body.Close()
					}
				}
				if c.known {
					get()
					time.Sleep(c.window * 8 / 7)
					get()
					time.Sleep(c.window / 50)
				}
				began := time.Now()
				each(c.batch, workers, get)
				most := time.Duration(c.batch/workers+1)*trip + 10*trip // the scout, and what goes while nothing is known
				if took := time.Since(began); took > most || o.Tally().Refused > 0 {
					t.Errorf("%v, %d of %d per %v, known %v: took %v, want at most %v; %d refused",
						algorithm, c.batch, c.quota, c.window, c.known, took, most, o.Tally().Refused)
				}
			})
		}
	}
}

// Nobody is seen in the half hour between two batches. That others were in those before is not forgotten: they have not gone.
func TestBatchesOfSeveralProcessesKnowOfOneAnother(t *testing.T) {
	for _, c := range []struct{ quota, processes, batch int }{{60, 8, 10}, {100, 4, 40}} {
		synctest.Test(t, func(t *testing.T) {
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.GCRA, Policies: []heedtest.Policy{{Quota: int64(c.quota), Window: time.Minute}}, Latency: heedtest.RoundTrip(100 * time.Millisecond),
			})
			trs := make([]*heed.Transport, c.processes)
			for i := range trs {
				trs[i] = quiet(t, o, heed.Limits{})
				defer trs[i].Registry.Close()
			}
			for round := range 6 {
				var busy sync.WaitGroup
				for _, tr := range trs {
					for range c.batch {
						busy.Go(func() {
							if resp, err := tr.RoundTrip(request(example)); err == nil {
								resp.Body.Close()
							}
						})
					}
				}
				busy.Wait()
				if refused := o.Tally().Refused; round > 0 && refused > 0 { // those of the first knew of nobody
					t.Errorf("%d processes, %d requests each, %d per minute: %d refused in round %d", c.processes, c.batch, c.quota, refused, round)
				}
				o.ResetTally()
				time.Sleep(30 * time.Minute)
			}
		})
	}
}

// More than half of what is left is spread, and so is what keeps coming: the rest of the window is not without a request. That somebody asks
// whether there is room is no request.
func TestMoreThanABatchIsSpread(t *testing.T) {
	const quota, window, trip = 600, time.Hour, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{Policies: []heedtest.Policy{{Quota: quota, Window: window}}, Latency: heedtest.RoundTrip(trip)})
		tr := quiet(t, o, heed.Limits{})
		defer tr.Registry.Close()
		client, began := tr.Client(), time.Now().Add(window/4)
		if resp, err := client.Get(example); err == nil {
			resp.Body.Close()
		}
		end := began.Add(window / 4)
		var busy sync.WaitGroup
		busy.Go(func() { // a page that shows whether there is room
			for ; time.Now().Before(end); time.Sleep(time.Second) {
				tr.Registry.Check(request(example))
			}
		})
		time.Sleep(time.Until(began))
		all := asking(8, end, func(int) (*http.Response, error) { return client.Get(example) })
		time.Sleep(time.Minute)
		soon := o.Tally().Accepted
		if soon < quota/3 || soon > quota*6/10 {
			t.Errorf("%d of %d went in a minute, want about half", soon, quota)
		}
		all.Wait()
		busy.Wait()
		if later := o.Tally().Accepted; later-soon < quota/8 || later > quota*9/10 {
			t.Errorf("%d of %d went in a quarter of an hour, %d of them in its first minute", later, quota, soon)
		}
	})
}

// each has workers do so many things, one after the other each.
func each(things, workers int, do func()) {
	todo := make(chan struct{}, things)
	for range things {
		todo <- struct{}{}
	}
	close(todo)
	var busy sync.WaitGroup
	for range workers {
		busy.Go(func() {
			for range todo {
				do()
			}
		})
	}
	busy.Wait()
}

// A job that comes again and again, and each time is over before the quota is, goes as it comes once that was seen to be so: that the first
// two of its runs came so soon one after the other, or nearly used up the quota, says no more of what is to come.
func TestRecurringBatchesThatTheQuotaAffordsAreNotSlowed(t *testing.T) {
	manyRequests(t)
	const trip, workers = 100 * time.Millisecond, 20
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindowByClock, heedtest.FixedWindow} {
		for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimitEpoch} {
			for _, c := range []struct {
				quota  int64
				window time.Duration
				batch  int
				every  time.Duration
			}{
				{1000, time.Hour, 950, time.Hour},
				{1000, 24 * time.Hour, 38, time.Hour},
				{500, time.Minute, 450, 5 * time.Minute},
				{100, time.Minute, 45, 30 * time.Second},
			} {
				synctest.Test(t, func(t *testing.T) {
					o := heedtest.NewOrigin(heedtest.Config{
						Algorithm: algorithm, Dialect: dialect, Policies: []heedtest.Policy{{Quota: c.quota, Window: c.window}}, Latency: heedtest.RoundTrip(trip),
					})
					tr := quiet(t, o, heed.Limits{})
					defer tr.Registry.Close()
					for round := range 30 {
						began := time.Now()
						each(c.batch, workers, func() {
							if resp, err := tr.Client().Get(example); err == nil {
								resp.Body.Close()
							}
						})
						took := time.Since(began)
						if most := time.Duration(c.batch/workers+1)*trip + time.Second; round > 2 && took > most {
							t.Errorf("%v, %v, %d of %d per %v, every %v: took %v the %d. time, want at most %v", algorithm, dialect, c.batch, c.quota, c.window, c.every, took, round+1, most)
							break
						}
						time.Sleep(time.Until(began.Add(c.every)))
					}
					if refused := o.Tally().Refused; refused > 0 {
						t.Errorf("%v, %v, %d of %d per %v, every %v: %d refused", algorithm, dialect, c.batch, c.quota, c.window, c.every, refused)
					}
				})
			}
		}
	}
}

// minutesByTheClock is an origin that allows so many requests in each minute.
func minutesByTheClock(quota int64) *heedtest.Origin {
	return heedtest.NewOrigin(heedtest.Config{
		Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: time.Minute}}, Latency: heedtest.RoundTrip(100 * time.Millisecond),
	})
}

// Who only asks whether there is room, and is told that there is none, does not divide one batch from the next.
func TestRecurringBatchesAreKnownThoughOthersAskInVain(t *testing.T) {
	const quota, batch, every = 500, 450, 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, minutesByTheClock(quota), heed.Limits{})
		defer tr.Registry.Close()
		for round := range 6 {
			began := time.Now()
			each(batch, 20, func() {
				if resp, err := tr.Client().Get(example); err == nil {
					resp.Body.Close()
				}
			})
			if took := time.Since(began); round > 2 && took > 5*time.Second {
				t.Errorf("took %v the %d. time", took, round+1)
			}
			tr.Registry.Pause(example, every/2)
			for range 10 {
				time.Sleep(10 * time.Second)
				if _, err := tr.RoundTrip(request(example).WithContext(heed.NoWait(t.Context()))); !errors.Is(err, heed.ErrLimited) {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Until(began.Add(every)))
		}
	})
}

// What takes several windows is no batch that a quota affords, however often it comes again: to its end nobody waits for longer than at
// the pace it had.
func TestRunsLongerThanAWindowArePacedToTheirEnd(t *testing.T) {
	const quota, run, most = 60, 300, 45 * time.Second
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, minutesByTheClock(quota), heed.Limits{})
		defer tr.Registry.Close()
		for i, n := range []int{run, run, run * 5 / 4, run * 5 / 4} {
			var longest atomic.Int64
			each(n, 16, func() {
				began := time.Now()
				if resp, err := tr.Client().Get(example); err == nil {
					resp.Body.Close()
				}
				for d := int64(time.Since(began)); ; {
					if l := longest.Load(); d <= l || longest.CompareAndSwap(l, d) {
						break
					}
				}
			})
			if d := time.Duration(longest.Load()); d > most {
				t.Errorf("one of the %d of run %d waited for %v, want at most %v", n, i+1, d, most)
			}
			time.Sleep(5 * time.Minute)
		}
	})
}

// Two counts look like a window that begins anew to who comes only now and then. Where that was mistaken before batches are not sent
// all at once that may not fit.
func TestRecurringBatchesAreNotRefusedWhereTheyMayNotFit(t *testing.T) {
	sideBySide(t)
	const workers = 20
	for _, c := range []struct {
		batch int
		every time.Duration
	}{{50, 100 * time.Second}, {55, 70 * time.Second}, {40, 80 * time.Second}} {
		for _, dialect := range []heedtest.Dialect{heedtest.IETF11, heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: heedtest.SlidingCounter, Dialect: dialect, Policies: []heedtest.Policy{{Quota: 60, Window: time.Minute}},
					Phase: -time.Second, Latency: scattered(1, func(rng *rand.Rand) float64 { return 0.06 + 0.08*rng.Float64() }),
				})
				tr := quiet(t, o, heed.Limits{})
				defer tr.Registry.Close()
				for range 20 {
					began := time.Now()
					each(c.batch, workers, func() {
						if resp, err := tr.Client().Get(example); err == nil {
							resp.Body.Close()
						}
					})
					time.Sleep(time.Until(began.Add(c.every)))
				}
				if refused := o.Tally().Refused; refused > 0 {
					t.Errorf("%v, %d every %v: %d refused", dialect, c.batch, c.every, refused)
				}
			})
		}
	}
}
