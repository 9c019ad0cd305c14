package redisheed

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/heedhttp/heed"
)

var fourASecond = heed.Policy{Name: "four", Quota: 4, Window: time.Second}

// near fails the test unless d is want, or later by no more than late.
func near(t *testing.T, what string, d, want, late time.Duration) {
	t.Helper()
	if !realTime { // others have the machine too: early is wrong, late is not
		late += 10 * time.Second
	}
	if d < want || d > want+late {
		t.Errorf("%s took %v, want %v to %v", what, d, want, want+late)
	}
}

// late is how much later than it must a test on a busy machine may see
// something happen.
const late = 150 * time.Millisecond

func TestFourAtOnceAndTheFifthAfterTheWindow(t *testing.T) {
	for name, processes := range map[string]int{"one process": 1, "two processes": 2} {
		t.Run(name, func(t *testing.T) {
			c := anyServer(t)
			var limits []*Limit
			for range processes {
				limits = append(limits, newLedger(t, c, Options{}).Limit("key", fourASecond))
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
			near(t, "acquiring four", first, 0, late)
			if _, err := limits[4%processes].Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			near(t, "acquiring the fifth", time.Since(began), time.Second, first+late)
		})
	}
}

func TestImmediateModeSaysTheExactWait(t *testing.T) {
	c := anyServer(t)
	one, two := newLedger(t, c, Options{}).Limit("key", fourASecond), newLedger(t, c, Options{}).Limit("key", fourASecond)
	began := time.Now()
	for range 4 {
		if _, err := one.Acquire(heed.NoWait(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	time.Sleep(300 * time.Millisecond)
	for i, l := range []*Limit{two, one, one} { // the last without asking Redis
		asked := time.Since(began)
		_, err := l.Acquire(heed.NoWait(t.Context()))
		var limit *heed.LimitError
		if !errors.As(err, &limit) || !errors.Is(err, heed.ErrLimited) {
			t.Fatalf("%d: %v", i, err)
		}
		if limit.Origin != "key" || limit.Policy != "four" || limit.Reason != heed.ReasonNoWait || limit.Cause != heed.CausePolicy {
			t.Errorf("%d: %+v", i, limit)
		}
		answered := time.Since(began)
		if limit.Wait < time.Second-answered || limit.Wait > time.Second-asked+took+10*time.Millisecond {
			t.Errorf("%d: after %v it says to wait %v", i, asked, limit.Wait)
		}
	}
}

func TestCheckLeavesTheCountAsItWas(t *testing.T) {
	c := anyServer(t)
	l := newLedger(t, c, Options{}).Limit("key", fourASecond)
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
	c := anyServer(t)
	l := newLedger(t, c, Options{}).Limit("key", fourASecond)
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
	acquire()
	time.Sleep(600 * time.Millisecond)
	acquire()
	acquire()
	if s := stats(); s.Used != 3 || s.Remaining != 1 || s.Quota != 4 || s.Next != 0 || s.Processes != 1 {
		t.Errorf("%+v", s)
	}
	acquire()
	if s := stats(); s.Used != 4 || s.Next <= 0 || s.Next > 400*time.Millisecond {
		t.Errorf("%+v", s)
	}
	time.Sleep(500 * time.Millisecond)
	if s := stats(); s.Used != 3 || s.Remaining != 1 {
		t.Errorf("%+v", s)
	}
}

func TestResetFreesThoseWhoWaitInAllProcesses(t *testing.T) {
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
	near(t, "the reset", time.Since(reset), 0, late)
}

func TestADeadlineThatCannotBeKeptIsRefusedAtOnce(t *testing.T) {
	c := anyServer(t)
	l := newLedger(t, c, Options{}).Limit("key", heed.Policy{Name: "one", Quota: 1, Window: 10 * time.Second})
	if _, err := l.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, err := l.Acquire(ctx)
	var limit *heed.LimitError
	if !errors.As(err, &limit) || !errors.Is(err, context.DeadlineExceeded) || limit.Wait < 9*time.Second || limit.Origin != "key" {
		t.Errorf("%v", err)
	}
	near(t, "refusing it", time.Since(began), 0, late)
	ctx2, cancel2 := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	time.AfterFunc(50*time.Millisecond, func() { cancel2(gaveUp) })
	if _, err := l.Acquire(ctx2); err != gaveUp {
		t.Errorf("%v", err)
	}
}

func TestABucketGivesItsBurstAndThenItsRate(t *testing.T) {
	c := anyServer(t)
	l := newLedger(t, c, Options{}).Limit("key", heed.Policy{Quota: 20, Window: time.Second, Burst: 5})
	began := time.Now()
	for range 15 {
		if _, err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	near(t, "15 units of a bucket of 5 refilled at 20 a second", time.Since(began), 500*time.Millisecond, late)
}

func TestACostAboveTheQuotaTakesItAll(t *testing.T) {
	c := anyServer(t)
	one, two := newLedger(t, c, Options{}).Limit("key", fourASecond), newLedger(t, c, Options{}).Limit("key", fourASecond)
	if _, err := one.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if left, err := two.Acquire(heed.WithCost(t.Context(), heed.UnitRequests, 9)); err != nil || left != 0 {
		t.Fatal(left, err)
	}
	near(t, "the whole quota", time.Since(began), time.Second-50*time.Millisecond, late)
	if left, err := one.Acquire(heed.WithCost(t.Context(), heed.UnitRequests, 0)); err != nil || left != 0 {
		t.Error("what costs nothing: ", left, err)
	}
}

func TestBadPoliciesAreErrors(t *testing.T) {
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
