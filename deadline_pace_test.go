package heed_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A batch that the quota has room for is answered, though its requests have less time than it takes to spread them over the
// window; also where those that reached the origin last are answered first and last: what they say is left of a bucket
// tells little of how fast it fills.
func TestBatchWithTimeoutsIsNotRefusedForThePace(t *testing.T) {
	const quota, batches, timeout = 100, 8, 10 * time.Second
	outOfOrder := func(n int64) (up, down time.Duration) {
		up, down = 25*time.Millisecond+time.Duration(n%40)*time.Microsecond, 25*time.Millisecond
		switch n % 40 {
		case 39:
			down -= 100 * time.Microsecond
		case 33:
			down += 100 * time.Microsecond
		}
		return up, down
	}
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow, heedtest.TokenBucket} {
		for _, batch := range []int{40, 80} {
			for _, latency := range []heedtest.Latency{heedtest.RoundTrip(50 * time.Millisecond), outOfOrder} {
				synctest.Test(t, func(t *testing.T) {
					o := heedtest.NewOrigin(heedtest.Config{
						Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: time.Minute}}, Latency: latency,
					})
					tr := quiet(t, o, heed.Limits{})
					defer tr.Registry.Close()
					client := tr.Client()
					client.Timeout = timeout
					var failed atomic.Int64
					for range batches {
						each(batch, batch, func() {
							if resp, err := client.Get(example); err != nil {
								failed.Add(1)
							} else {
								resp.Body.Close()
							}
						})
						time.Sleep(time.Minute)
					}
					if tally := o.Tally(); failed.Load() > 0 || tally.Refused > 0 {
						t.Errorf("%s, %d at once: %d of %d failed, the origin refused %d", algorithm, batch, failed.Load(), batches*batch, tally.Refused)
					}
				})
			}
		}
	}
}

// Those that are spread over the window make way for one with little time that comes behind them: there is room for it, too.
// Only who asks for a pace has it kept to.
func TestDeadlineBehindAPaceIsKeptWhereThereIsRoom(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: heed.Limits{
				Policies: []heed.Policy{{Quota: 60, Window: time.Minute}}, Smoothing: heed.Smoothing{Strict: strict},
			}})
			meet(t, r, example)
			time.Sleep(time.Hour / 2)
			crowd, leave := context.WithCancel(t.Context())
			for range 30 {
				go func() {
					if pm, err := r.Acquire(crowd, request(example)); err == nil {
						done(pm)
					}
				}()
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			began := time.Now()
			pm, err := r.Acquire(ctx, request(example))
			switch {
			case !strict && err != nil:
				t.Errorf("refused after %v: %v", time.Since(began), err)
			case strict && !errors.Is(err, heed.ErrLimited):
				t.Errorf("err = %v, want a *LimitError", err)
			case err == nil:
				done(pm)
			}
			leave()
			synctest.Wait()
		})
	}
}

// So goes one that may not wait: it takes nothing from those that wait for nothing but their pace.
func TestOneThatMayNotWaitGoesBesideThoseThatAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 60, Window: time.Minute}}}})
		meet(t, r, example)
		time.Sleep(time.Hour / 2)
		for range 30 {
			go func() { done(acquire(t, r, request(example))) }()
		}
		synctest.Wait()
		for i := range 30 { // what is left beside those
			req := request(example).WithContext(heed.NoWait(t.Context()))
			if d := r.Check(req); !d.Allowed {
				t.Errorf("the %d. is not allowed: %+v", i+1, d)
			}
			pm, err := r.Acquire(req.Context(), req)
			if err != nil {
				t.Fatalf("the %d.: %v", i+1, err)
			}
			done(pm)
		}
		req := request(example).WithContext(heed.NoWait(t.Context()))
		if _, err := r.Acquire(req.Context(), req); !errors.Is(err, heed.ErrLimited) {
			t.Errorf("err = %v, want a *LimitError: all that is left is for those that wait", err)
		}
		time.Sleep(time.Minute)
	})
}

// Where requests keep coming, more than go, a pace is kept to though deadlines pass: as many go in a window, and there is no long
// time in which none does.
func TestPaceIsKeptToWhereRequestsKeepComing(t *testing.T) {
	manyRequests(t)
	const minutes, timeout = 10, 4 * time.Second
	for _, every := range []time.Duration{300 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			tr := quiet(t, heedtest.NewOrigin(heedtest.Config{
				Policies: []heedtest.Policy{{Quota: 60, Window: time.Minute}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			}), heed.Limits{})
			client := tr.Client()
			client.Timeout = timeout
			var mu sync.Mutex
			answered, last, longest := 0, time.Now(), time.Duration(0)
			var busy sync.WaitGroup
			for range int(minutes * time.Minute / every) {
				busy.Go(func() {
					resp, err := client.Get(example)
					if err != nil {
						return
					}
					resp.Body.Close()
					mu.Lock()
					defer mu.Unlock()
					answered++
					longest, last = max(longest, time.Since(last)), time.Now()
				})
				time.Sleep(every)
			}
			busy.Wait()
			tr.Registry.Close()
			if answered < minutes*60*95/100 || longest > 30*time.Second {
				t.Errorf("one every %v: %d answered of %d, none for %v", every, answered, minutes*60, longest)
			}
		})
	}
}

// What bodies hold is an estimate: one that may not wait takes no bytes that others wait for.
func TestOneThatMayNotWaitTakesNoBytesThatOthersWaitFor(t *testing.T) {
	const body, quota, crowd = 1_000, 60, 45
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, heedtest.NewOrigin(heedtest.Config{
			Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(50 * time.Millisecond),
			Respond: func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, body)) },
		}), heed.Limits{Policies: []heed.Policy{{Quota: quota * body, Window: time.Minute, Unit: heed.UnitContentBytes}}})
		client := tr.Client()
		get := func(ctx context.Context) error {
			resp, err := client.Do(request(example).WithContext(ctx))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return errors.Join(err, resp.Body.Close())
		}
		for range 20 {
			get(t.Context())
		}
		time.Sleep(3 * time.Minute)
		began := time.Now()
		var busy sync.WaitGroup
		for range crowd {
			busy.Go(func() { get(t.Context()) })
		}
		time.Sleep(time.Second)
		n := 0
		for range quota {
			if get(heed.NoWait(t.Context())) == nil {
				n++
			}
		}
		busy.Wait()
		if took := time.Since(began); n > quota-crowd || took > time.Minute {
			t.Errorf("%d went though %d were left beside those that waited, who took %v", n, quota-crowd, took)
		}
		tr.Registry.Close()
	})
}

// Where a pace puts a request off past its deadline, that is known while an interval still holds it.
func TestDeadlineBehindAPaceIsJudgedWhileAnIntervalHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Policies: []heedtest.Policy{{Quota: 60, Window: time.Hour}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
		})
		tr := quiet(t, o, heed.Limits{MinInterval: 10 * time.Second})
		for range 20 { // they go at a pace of one in 40 s
			resp, err := tr.RoundTrip(request(example))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		req := request(example).WithContext(ctx)
		if d := tr.Registry.Check(req); d.Wait < 30*time.Second || d.Cause != heed.CauseSmoother {
			t.Errorf("Check() = %+v, want what the pace holds it for", d)
		}
		began := time.Now()
		_, err := tr.RoundTrip(req)
		if le := limitErr(t, err); time.Since(began) != 0 || le.Cause != heed.CauseSmoother || le.Wait < 30*time.Second {
			t.Errorf("after %v: %v, want it refused at once for the pace", time.Since(began), err)
		}
	})
}

// What is left of a bucket is known to some units where answers are on their way, and no more than that: a deadline that the others
// put out of reach is told at once, be it behind many in line or beside those that just went, and though one request is never answered.
func TestDeadlineOutOfABucketsReachIsToldThoughAnswersAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.GCRA, Policies: []heedtest.Policy{{Quota: 10, Window: 10 * time.Second}}, Latency: heedtest.RoundTrip(100 * time.Millisecond),
		})
		var hangs atomic.Bool
		tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
			if hangs.CompareAndSwap(true, false) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return o.RoundTrip(req)
		}), heed.Limits{Smoothing: heed.Smoothing{Off: true}})
		get := func(ctx context.Context) error {
			resp, err := tr.RoundTrip(request(example).WithContext(ctx))
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		outOfReach := func(where string, deadline time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			began, err := time.Now(), get(ctx)
			if le := limitErr(t, err); time.Since(began) != 0 || le.Wait <= deadline {
				t.Errorf("%s: after %v: %v, want it refused at once", where, time.Since(began), err)
			}
		}
		for range 60 { // it is known to be a bucket then
			get(t.Context())
		}
		time.Sleep(5 * time.Second)
		crowd, leave := context.WithCancel(t.Context())
		for range 8 {
			go get(crowd)
		}
		synctest.Wait()
		outOfReach("beside those that just went", 500*time.Millisecond)
		time.Sleep(20 * time.Second)
		hangs.Store(true)
		go get(crowd)
		time.Sleep(time.Second)
		get(crowd)
		for range 40 {
			go get(crowd)
		}
		synctest.Wait()
		outOfReach("behind many", 20*time.Second)
		leave()
	})
}
