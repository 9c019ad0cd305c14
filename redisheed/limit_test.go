package redisheed

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

var fourASecond = heed.Policy{Name: "four", Quota: 4, Window: time.Second}

// near fails the test unless d is want, or later by no more than late.
func near(t testing.TB, what string, d, want, late time.Duration) {
	t.Helper()
	if d < want || d > want+late {
		t.Errorf("%s took %v, want %v to %v", what, d, want, want+late)
	}
}

// atOnce is by when a test on a busy machine must have seen what happens at
// once: long before anything would happen by itself.
const atOnce = 3 * time.Second

// quickest runs f a few times, which returns how much later than it must
// something was, and fails the test unless that was a little once: the machine
// may be late every now and then, the ledger never.
func quickest(t *testing.T, what string, f func() time.Duration) {
	t.Helper()
	const little = 50 * time.Millisecond
	least := time.Hour
	for i := 0; i < 5 && least > little && !t.Failed(); i++ {
		least = min(least, f())
	}
	if least > little {
		t.Errorf("%s was %v late", what, least)
	}
}

func TestFourAtOnceAndTheFifthAfterTheWindow(t *testing.T) {
	for name, processes := range map[string]int{"one process": 1, "two processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := anyServer(t)
			quickest(t, "the fifth", func() time.Duration {
				var limits []*Limit
				key := rand.Text()
				for range processes {
					limits = append(limits, newLedger(t, c, Options{}).Limit(key, fourASecond))
				}
				began := time.Now()
				for i := range 4 {
					left, err := limits[i%processes].Acquire(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if left != int64(3-i) {
						t.Errorf("after %d of 4, %d remain", i+1, left)
					}
				}
				first := time.Since(began)
				near(t, "acquiring four", first, 0, fourASecond.Window)
				if _, err := limits[4%processes].Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
				fifth := time.Since(began)
				near(t, "acquiring the fifth", fifth, fourASecond.Window, atOnce)
				return fifth - fourASecond.Window
			})
		})
	}
}

func TestImmediateModeSaysTheExactWait(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	one, two := newLedger(t, c, Options{}).Limit("key", fourASecond), newLedger(t, c, Options{}).Limit("key", fourASecond)
	began := time.Now()
	for range 4 {
		if _, err := one.Acquire(heed.NoWait(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	time.Sleep(100 * time.Millisecond)
	var slowest time.Duration
	for i, l := range []*Limit{two, one, one} { // the last without asking Redis
		asked := time.Since(began)
		_, err := l.Acquire(heed.NoWait(t.Context()))
		answered := time.Since(began)
		slowest = max(slowest, answered-asked)
		var limit *heed.LimitError
		if !errors.As(err, &limit) || !errors.Is(err, heed.ErrLimited) {
			t.Fatalf("%d: %v", i, err)
		}
		if limit.Origin != "key" || limit.Policy != "four" || limit.Reason != heed.ReasonNoWait || limit.Cause != heed.CausePolicy {
			t.Errorf("%d: %+v", i, limit)
		}
		if limit.Wait < fourASecond.Window-answered || limit.Wait > fourASecond.Window-asked+took+slowest+time.Millisecond {
			t.Errorf("%d: after %v it says to wait %v", i, asked, limit.Wait)
		}
	}
}

func TestCheckLeavesTheCountAsItWas(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := newLedger(t, c, Options{}).Limit("key", heed.Policy{Quota: 4, Window: time.Hour})
	for range 3 {
		d, err := l.Check(t.Context())
		if err != nil || !d.Allowed || d.Remaining != 4 || d.Wait != 0 || d.Cause != heed.CauseNone {
			t.Errorf("%+v, %v", d, err)
		}
	}
	for want := int64(3); want >= 0; want-- {
		if left, err := l.Acquire(t.Context()); err != nil || left != want {
			t.Fatal(left, err)
		}
		if d, err := l.Check(t.Context()); err != nil || d.Remaining != want || d.Allowed != (want > 0) {
			t.Errorf("with %d left: %+v, %v", want, d, err)
		}
	}
}

func TestStatisticsLeaveOutWhatHasExpired(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	const window = 2 * time.Second
	l := newLedger(t, c, Options{}).Limit("key", heed.Policy{Quota: 4, Window: window})
	acquire := func() {
		t.Helper()
		if _, err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stats := func() Stats {
		t.Helper()
		s, err := l.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	began := time.Now()
	acquire()
	first := time.Now() // at the latest, but for what it took to ask
	slack := first.Sub(began) + 2*time.Millisecond
	time.Sleep(window / 2)
	acquire()
	acquire()
	if s := stats(); s.Used != 3 || s.Remaining != 1 || s.Quota != 4 || s.Next != 0 || s.Processes != 1 {
		t.Errorf("%+v", s)
	}
	acquire()
	asked := time.Now()
	if s := stats(); s.Used != 4 || s.Next <= 0 || s.Next > first.Add(window+slack).Sub(asked) {
		t.Errorf("%+v", s)
	}
	time.Sleep(time.Until(first.Add(window + window/50)))
	if s := stats(); s.Used != 3 || s.Remaining != 1 {
		t.Errorf("%+v", s)
	}
}

func TestResetFreesThoseWhoWaitInAllProcesses(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	hour := heed.Policy{Quota: 1, Window: time.Hour}
	one, two := newLedger(t, c, Options{}).Limit("key", hour), newLedger(t, c, Options{}).Limit("key", hour)
	if _, err := one.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := two.Check(t.Context()); err != nil || d.Allowed {
		t.Fatal(d, err)
	}
	done := make(chan error)
	go func() {
		_, err := two.Acquire(t.Context())
		done <- err
	}()
	time.Sleep(100 * time.Millisecond)
	reset := time.Now()
	if err := one.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	near(t, "the reset", time.Since(reset), 0, atOnce)
}

func TestADeadlineThatCannotBeKeptIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := newLedger(t, c, Options{}).Limit("key", heed.Policy{Name: "one", Quota: 1, Window: 10 * time.Second})
	if _, err := l.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := l.Acquire(ctx)
	if ctx.Err() != nil {
		t.Error("it was refused at its deadline")
	}
	var limit *heed.LimitError
	if !errors.As(err, &limit) || !errors.Is(err, context.DeadlineExceeded) || limit.Wait < 7*time.Second || limit.Origin != "key" {
		t.Errorf("%v", err)
	}
	ctx2, cancel2 := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	time.AfterFunc(50*time.Millisecond, func() { cancel2(gaveUp) })
	if _, err := l.Acquire(ctx2); err != gaveUp {
		t.Errorf("%v", err)
	}
}

func TestABucketGivesItsBurstAndThenItsRate(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := newLedger(t, c, Options{})
	quickest(t, "the last of 15 units of a bucket of 5 refilled at 20 a second", func() time.Duration {
		limit := l.Limit(rand.Text(), heed.Policy{Quota: 20, Window: time.Second, Burst: 5})
		began := time.Now()
		for range 15 {
			if _, err := limit.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		took := time.Since(began)
		near(t, "acquiring them", took, 500*time.Millisecond, atOnce)
		return took - 500*time.Millisecond
	})
}

func TestACostAboveTheQuotaTakesItAll(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	a, b := newLedger(t, c, Options{}), newLedger(t, c, Options{})
	quickest(t, "the whole quota", func() time.Duration {
		key := rand.Text()
		one, two := a.Limit(key, fourASecond), b.Limit(key, fourASecond)
		began := time.Now()
		if _, err := one.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := two.Acquire(heed.WithCost(t.Context(), heed.UnitRequests, 9)); err != nil || left != 0 {
			t.Fatal(left, err)
		}
		took := time.Since(began)
		near(t, "acquiring it", took, fourASecond.Window, atOnce)
		if left, err := one.Acquire(heed.WithCost(t.Context(), heed.UnitRequests, 0)); err != nil || left != 0 {
			t.Error("what costs nothing: ", left, err)
		}
		return took - fourASecond.Window
	})
}

func TestBadPoliciesAreErrors(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := newLedger(t, c, Options{})
	for _, p := range []heed.Policy{
		{}, {Quota: 1}, {Window: time.Second}, {Quota: -1, Window: time.Second}, {Quota: 1, Window: time.Second, Burst: -1},
		{Quota: 1, Window: time.Second, Unit: heed.UnitConcurrentRequests},
	} {
		m := l.Limit("key", p)
		if _, err := m.Acquire(t.Context()); err == nil {
			t.Errorf("%+v is no error", p)
		}
		if err := m.Reset(t.Context()); err == nil {
			t.Errorf("%+v is no error", p)
		}
	}
}

// What cannot be meant is an error where it is set, and of all that is asked for, and
// nothing is begun: not a request that has no time to be answered in, nor a timer that
// always rings.
func TestNegativeOptionsAreErrors(t *testing.T) {
	for name, o := range map[string]Options{
		"Timeout":   {Timeout: -1},
		"SlotLease": {SlotLease: -time.Second, OnOutage: GoAlone},
		"LeaseMax":  {LeaseMax: -1, OnOutage: GoAlone},
		"Processes": {Processes: -2},
	} {
		l := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), o)
		m := l.Limit("key", fourASecond)
		_, acquired := m.Acquire(t.Context())
		_, checked := m.Check(t.Context())
		_, counted := m.Stats(t.Context())
		_, named := l.Partition(t.Context(), "secret")
		_, taken := l.Take(t.Context(), &heed.Question{Origin: "https://api.example.org", Partition: "-"})
		_, registered := heed.NewRegistry(heed.Config{Ledger: l})
		for what, err := range map[string]error{
			"Err": l.Err(), "NewRegistry": registered, "Partition": named, "Take": taken, "Pause": l.Pause(t.Context(), "o", time.Second), "Reset": l.Reset(t.Context(), "o"),
			"Acquire": acquired, "Limit.Check": checked, "Stats": counted, "Limit.Reset": m.Reset(t.Context()),
		} {
			if err == nil || !strings.Contains(err.Error(), "Options."+name+" is negative") {
				t.Errorf("%s: the error of %s is %v", name, what, err)
			}
		}
		l.Close()
	}
	if err := New(nil, Options{Lease: -1}).Err(); err != nil { // nothing is taken in advance
		t.Error(err)
	}
}
