package redisheed

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// inVirtualTime has f play in a bubble, with a Redis of its own.
func inVirtualTime(t *testing.T, f func(t *testing.T, m *miniredis.Miniredis)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		f(t, m)
		m.Close()
		time.Sleep(2 * time.Minute) // the client's goroutines end
	})
}

// registry returns a registry that asks m by way of far, and what ends it.
func (f *farRedis) registry(t *testing.T, m *miniredis.Miniredis, o Options, l heed.Limits) (*heed.Registry, func()) {
	o.Seed = []byte("seed")
	l.Smoothing.Off = true
	rc := f.in(m)
	ledger := New(rc, quiet(o))
	r, err := heed.NewRegistry(heed.Config{Ledger: ledger, Logger: ledger.o.Logger, Default: l})
	if err != nil {
		t.Fatal(err)
	}
	return r, func() { r.Close(); ledger.Close(); rc.Close() }
}

func TestWhatAnAnswerGrantedThatNeverArrivedComesBack(t *testing.T) {
	const quota = 1000
	for name, c := range map[string]struct {
		policy heed.Policy
		fate   fate
	}{
		"a window, no answer":   {heed.Policy{Name: "p", Quota: quota, Window: 24 * time.Hour}, unanswered},
		"a window, asked twice": {heed.Policy{Name: "p", Quota: quota, Window: 24 * time.Hour}, repeated},
		"a bucket, no answer":   {heed.Policy{Name: "p", Quota: 1, Burst: quota, Window: 24 * time.Hour}, unanswered},
		"bytes, no answer":      {heed.Policy{Name: "p", Quota: quota, Window: 24 * time.Hour, Unit: heed.UnitContentBytes}, unanswered},
		"bytes, asked twice":    {heed.Policy{Name: "p", Quota: quota, Window: 24 * time.Hour, Unit: heed.UnitContentBytes}, repeated},
		"slots, no answer":      {heed.Policy{Name: "p", Quota: quota, Unit: heed.UnitConcurrentRequests}, unanswered},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				var asked, granted atomic.Int64
				far := &farRedis{fate: func() fate {
					if asked.Add(1)%3 == 0 {
						return c.fate
					}
					return answered
				}}
				r, end := far.registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{c.policy}})
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for range 12 {
							pm, err := r.Acquire(heed.WithCost(t.Context(), heed.UnitContentBytes, 1), request())
							if err != nil {
								time.Sleep(50 * time.Millisecond)
								continue
							}
							granted.Add(1)
							answer(pm, 200)
							pm.Release()
						}
					})
				}
				wg.Wait()
				time.Sleep(2 * time.Second)
				end()
				want := quota - granted.Load()
				if c.policy.Unit == heed.UnitConcurrentRequests {
					want = quota
				}
				r, end = (&farRedis{}).registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{c.policy}})
				defer end()
				if c.policy.Unit == heed.UnitContentBytes {
					if _, err := r.Acquire(heed.NoWait(heed.WithCost(t.Context(), heed.UnitContentBytes, want)), request()); err != nil {
						t.Errorf("%v: not all %d bytes are left", err, want)
					}
					return
				}
				if d := r.Check(request()); d.Remaining != want || d.Err != nil {
					t.Errorf("%d left after %d were granted, want %d (%v)", d.Remaining, granted.Load(), want, d.Err)
				}
			})
		})
	}
}

// A process that has forgotten a partition does not take what it was granted there for unheard.
func TestWhatAForgottenPartitionUsedDoesNotComeBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		limits := heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 1, Burst: 10, Window: 24 * time.Hour}}}
		r, end := (&farRedis{}).registry(t, m, Options{}, limits)
		defer end()
		const used = 5
		for i := range used {
			acquire(t, r).Release()
			time.Sleep(11 * time.Minute)
			req := request() // another partition: those that are idle are forgotten
			req.Header.Set("Authorization", fmt.Sprint("Bearer ", i))
			r.Check(req)
		}
		other, end := (&farRedis{}).registry(t, m, Options{}, limits)
		defer end()
		if d := other.Check(request()); d.Remaining != 10-used || d.Err != nil {
			t.Errorf("%d of 10 left after %d in an hour (%v)", d.Remaining, used, d.Err)
		}
	})
}

func TestAnAnswerThatIsGivenTwiceSaysWhatIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		rc := (&farRedis{fate: func() fate { return repeated }}).in(m)
		l := New(rc, quiet(Options{}))
		defer func() { l.Close(); rc.Close() }()
		for want := int64(9); want > 5; want-- {
			left, err := l.Limit("key", heed.Policy{Quota: 10, Window: time.Minute}).Acquire(t.Context())
			if err != nil || left != want {
				t.Errorf("%d left (%v), want %d", left, err, want)
			}
		}
	})
}

// Redis refuses for want of a slot, that answer is lost, and the client asks once more, as go-redis does by itself.
func TestARefusedQuestionThatIsAskedTwiceIsRefusedTwice(t *testing.T) {
	for name, limits := range map[string]heed.Limits{
		"MaxConcurrent": {MaxConcurrent: 1},
		"MinPause":      {MinPause: time.Millisecond},
		"a policy":      {Policies: []heed.Policy{{Quota: 1, Unit: heed.UnitConcurrentRequests}}},
	} {
		for range 5 { // it is not always the first question that Redis refuses
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				now := answered
				a, end := (&farRedis{}).registry(t, m, Options{}, limits)
				defer end()
				b, end := (&farRedis{fate: func() fate { return now }}).registry(t, m, Options{}, limits)
				defer end()
				for _, r := range []*heed.Registry{a, b} { // both are known, and so is the script
					pm := acquire(t, r)
					answer(pm, 200)
					pm.Release()
					time.Sleep(time.Second)
				}
				only := acquire(t, a)
				now = repeated
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				if pm, err := b.Acquire(ctx, request()); err == nil {
					t.Errorf("%s: two processes hold the only slot", name)
					pm.Release()
				}
				only.Release()
				now = answered
				time.Sleep(time.Minute)
			})
		}
	}
}

// awayWhile is a Redis that cannot be reached while lost is set.
func awayWhile(lost *atomic.Bool) *farRedis {
	return &farRedis{fate: func() fate {
		if lost.Load() {
			return unsent
		}
		return answered
	}}
}

func TestAPauseToldLateIsNotLonger(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		var lost atomic.Bool
		far := awayWhile(&lost)
		a, end := far.registry(t, m, Options{}, heed.Limits{})
		defer end()
		b, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{})
		defer end()
		pm := acquire(t, b)
		answer(pm, 200)
		pm.Release()
		pm = acquire(t, a)
		lost.Store(true)
		refused := time.Now()
		answer(pm, 429, "Retry-After", "60")
		pm.Release()
		time.Sleep(40 * time.Second)
		lost.Store(false)
		time.Sleep(5 * time.Second)
		if d := b.Check(request()); d.Allowed || d.Wait > 16*time.Second {
			t.Errorf("45 s into a pause of 60 s: %+v", d)
		}
		pm = acquire(t, b)
		pm.Release()
		if d := time.Since(refused); d < 60*time.Second || d > 62*time.Second {
			t.Errorf("went on %v after the refusal, want 60 s and a second at most", d)
		}
	})
}

func TestCheckDoesNotWaitForABusyProcessToRest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		const trip = 10 * time.Millisecond
		far := &farRedis{trip: func() time.Duration { return trip }}
		rc := far.in(m)
		defer rc.Close()
		l := New(rc, quiet(Options{Lease: -1}))
		limit := l.Limit("key", heed.Policy{Name: "p", Quota: 1 << 30, Window: time.Minute})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					limit.Acquire(ctx)
				}
			})
		}
		time.Sleep(10 * trip)
		asked := time.Now()
		patient, cancel := context.WithTimeout(ctx, time.Second)
		_, err := limit.Check(patient)
		cancel()
		if d := time.Since(asked); err != nil || d > 4*trip {
			t.Errorf("Check took %v where a question takes %v: %v", d, trip, err)
		}
		stop()
		wg.Wait()
		l.Close()
	})
}

// A heardConn notes that it is the one that subscribes.
type heardConn struct {
	net.Conn
	subscription *atomic.Pointer[heardConn]
}

func (c *heardConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) {
		c.subscription.Store(c)
	}
	return c.Conn.Write(b)
}

// Who was cut off from what others publish asks once it is there again.
func TestAResetIsSeenThoughTheSubscriptionBroke(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		limits := heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 1, Window: time.Hour}}}
		a, end := (&farRedis{}).registry(t, m, Options{}, limits)
		defer end()
		var cut atomic.Bool
		var subscription atomic.Pointer[heardConn]
		rc := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
			if cut.Load() {
				return nil, errBroken
			}
			conn, err := m.Dial()
			return &heardConn{conn, &subscription}, err
		}})
		defer rc.Close()
		l := New(rc, quiet(Options{}))
		defer l.Close()
		policy := heed.Policy{Name: "p", Quota: 1, Window: time.Hour}
		limit := l.Limit("key", policy)
		b, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger, Default: limits})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		pm := acquire(t, a)
		answer(pm, 200)
		pm.Release()
		if _, err := limit.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		went := make(chan error, 2)
		go func() {
			pm, err := b.Acquire(t.Context(), request())
			if err == nil {
				pm.Release()
			}
			went <- err
		}()
		go func() {
			_, err := limit.Acquire(t.Context())
			went <- err
		}()
		time.Sleep(time.Second)
		cut.Store(true)
		subscription.Load().Close()
		time.Sleep(time.Second)
		other := (&farRedis{}).in(m)
		defer other.Close()
		o := New(other, quiet(Options{}))
		defer o.Close()
		if err := o.Limit("key", policy).Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.Reset(testOrigin); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cut.Store(false)
		back := time.Now()
		for range 2 {
			if err := <-went; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(back); d > 10*time.Second {
			t.Errorf("the reset was seen %v after the connection was back", d)
		}
	})
}

func TestWhatAnIdleProcessUsedIsKnownToARedisThatForgot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		limits := heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 10, Window: time.Minute}}}
		busy, end := (&farRedis{}).registry(t, m, Options{}, limits)
		defer end()
		idle, end := (&farRedis{}).registry(t, m, Options{}, limits)
		defer end()
		once := func(r *heed.Registry) {
			pm := acquire(t, r)
			answer(pm, 200)
			pm.Release()
		}
		once(busy)
		for range 9 {
			once(idle)
		}
		time.Sleep(5 * time.Second)
		m.FlushAll()
		for range 20 {
			if pm, err := busy.Acquire(heed.NoWait(t.Context()), request()); err == nil {
				t.Error("more was granted than the quota")
				pm.Cancel()
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func TestSlotsHoldOverAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		away   time.Duration
		forgot bool
	}{
		"Redis forgets":                         {0, true},
		"away for longer than slots are leased": {6 * time.Second, false},
		"away until the keys have expired":      {20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				var lost atomic.Bool
				far := awayWhile(&lost)
				a, end := far.registry(t, m, Options{}, heed.Limits{MaxConcurrent: 2})
				defer end()
				b, end := far.registry(t, m, Options{}, heed.Limits{MaxConcurrent: 2})
				defer end()
				pa, pb := acquire(t, a), acquire(t, b)
				time.Sleep(5 * time.Second)
				lost.Store(true)
				time.Sleep(c.away)
				if c.forgot {
					m.FlushAll()
				}
				lost.Store(false)
				for range 500 {
					if pm, err := a.Acquire(heed.NoWait(t.Context()), request()); err == nil {
						t.Error("a third request went where two may be in flight")
						pm.Cancel()
					}
					time.Sleep(10 * time.Millisecond)
				}
				pb.Release()
				time.Sleep(time.Second)
				pm, err := a.Acquire(heed.NoWait(t.Context()), request())
				if err != nil {
					t.Fatal("the slot that came back: ", err)
				}
				pm.Release()
				pa.Release()
			})
		})
	}
}

// What is known of a partition's requests in flight outlasts an outage, although all of its
// other units are back and another partition keeps the origin's key.
func TestSlotsOfAPartitionHoldOverAnOutage(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		var lost atomic.Bool
		far := awayWhile(&lost)
		one := heed.Limits{Policies: []heed.Policy{{Name: "c", Quota: 1, Unit: heed.UnitConcurrentRequests}}}
		a, end := far.registry(t, m, Options{}, one)
		defer end()
		b, end := far.registry(t, m, Options{}, one)
		defer end()
		other, end := far.registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 5, Window: time.Hour}}})
		defer end()
		req := request()
		req.Header.Set("Authorization", "Bearer other")
		pm, err := other.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pm.Release()
		held := acquire(t, b)
		time.Sleep(time.Second)
		lost.Store(true)
		time.Sleep(20 * time.Second)
		if _, err := a.Acquire(t.Context(), request()); err == nil {
			t.Fatal("Redis is not away")
		}
		lost.Store(false)
		for range 50 {
			if pm, err := a.Acquire(heed.NoWait(t.Context()), request()); err == nil {
				pm.Cancel()
				t.Fatal("a second request went where one may be in flight")
			}
			time.Sleep(10 * time.Millisecond)
		}
		held.Release()
	})
}

func TestAQuotaRaisedInOneProcessIsUsedByThoseWhoWaitInOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		a, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{})
		defer end()
		b, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{})
		defer end()
		for left := 4; left > 0; left-- {
			pm := acquire(t, a)
			answer(pm, 200, "RateLimit-Policy", `"p";q=5;w=60`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=60`, left))
			pm.Release()
		}
		last := acquire(t, a)
		went := make(chan time.Time, 1)
		go func() {
			pm, err := b.Acquire(t.Context(), request())
			if err != nil {
				t.Error(err)
			} else {
				pm.Release()
			}
			went <- time.Now()
		}()
		time.Sleep(time.Second)
		raised := time.Now()
		answer(last, 200, "RateLimit-Policy", `"p";q=50;w=60`, "RateLimit", `"p";r=45;t=60`)
		last.Release()
		if d := (<-went).Sub(raised); d > time.Second {
			t.Errorf("it waited for another %v", d)
		}
	})
}
