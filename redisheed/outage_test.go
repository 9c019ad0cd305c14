package redisheed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// A recorder notes when units were used.
type recorder struct {
	mu   sync.Mutex
	at   []time.Time
	errs []error
	slow time.Duration // the longest call
}

func (r *recorder) note(began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.slow = max(r.slow, now.Sub(began))
	if err != nil {
		r.errs = append(r.errs, err)
	} else {
		r.at = append(r.at, now)
	}
}

// peak is the most units used within any stretch of a window's length.
func (r *recorder) peak(window time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.at, time.Time.Compare)
	most, first := 0, 0
	for i, t := range r.at {
		for t.Sub(r.at[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// since is how many units were used from one instant until another.
func (r *recorder) between(from, to time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.at {
		if !t.Before(from) && t.Before(to) {
			n++
		}
	}
	return n
}

// drive acquires from a limit with n goroutines until the function it returns
// is called.
func (r *recorder) drive(l *Limit, n int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, err := l.Acquire(ctx)
				if ctx.Err() != nil {
					return
				}
				r.note(began, err)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// quick is a client that does not try again for long.
func (s *server) quick(t testing.TB) redis.UniversalClient {
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() { c.Close() })
	return c
}

const (
	lostQuota  = 40
	lostWindow = 2 * time.Second
)

var lostPolicy = heed.Policy{Name: "p", Quota: lostQuota, Window: lostWindow}

// two drives one limit from two ledgers, as from two processes.
func two(t *testing.T, s *server, o Options) (r *recorder, stop func()) {
	r = &recorder{}
	var stops []func()
	for range 2 {
		stops = append(stops, r.drive(newLedger(t, s.quick(t), o).Limit("key", lostPolicy), 4))
	}
	return r, func() {
		for _, f := range stops {
			f()
		}
	}
}

// fullRate fails the test unless at least most of a quota is used in the
// window after recovery and 2 s.
func fullRate(t *testing.T, r *recorder, recovered time.Time) {
	t.Helper()
	from := recovered.Add(2 * time.Second)
	time.Sleep(time.Until(from.Add(lostWindow)))
	if n := r.between(from, from.Add(lostWindow)); n < lostQuota*9/10 {
		t.Errorf("%d units in the window that begins 2 s after recovery, want about %d", n, lostQuota)
	}
}

func TestRedisRestartedEmpty(t *testing.T) {
	s := startServer(t)
	r, stop := two(t, s, Options{})
	defer stop()
	time.Sleep(lostWindow + lostWindow/4)
	s.stop()
	time.Sleep(300 * time.Millisecond)
	r.mu.Lock()
	for _, err := range r.errs {
		var op *net.OpError
		if !errors.As(err, &op) && !strings.Contains(err.Error(), "EOF") || !strings.HasPrefix(err.Error(), "redisheed: limit") {
			t.Errorf("%T: %v", err, err)
			break
		}
	}
	r.mu.Unlock()
	s.start()
	fullRate(t, r, time.Now())
	if n := r.peak(lostWindow); n > lostQuota {
		t.Errorf("%d in one window, want %d at most: what was used before must not be forgotten", n, lostQuota)
	}
	if r.slow > lostWindow+time.Second {
		t.Errorf("a call took %v", r.slow)
	}
}

func TestRedisPausedForThreeSeconds(t *testing.T) {
	s := startServer(t)
	r, stop := two(t, s, Options{Timeout: 500 * time.Millisecond})
	defer stop()
	time.Sleep(lostWindow / 2)
	paused := time.Now()
	s.do("CLIENT", "PAUSE", "3000", "ALL")
	time.Sleep(3 * time.Second)
	recovered := time.Now()
	fullRate(t, r, recovered)
	if n := r.peak(lostWindow); n > lostQuota {
		t.Errorf("%d in one window, want %d at most", n, lostQuota)
	}
	if r.slow > 2*time.Second+500*time.Millisecond {
		t.Errorf("a call took %v", r.slow)
	}
	for _, err := range r.errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
			break
		}
	}
	if n := r.between(paused.Add(time.Second), recovered); n > 0 {
		t.Errorf("%d units while Redis was paused", n)
	}
	stop()
	// What Redis granted to questions nobody waited for any more is given back.
	l := newLedger(t, s.quick(t), Options{}).Limit("key", lostPolicy)
	time.Sleep(lostWindow)
	if st, err := l.Stats(t.Context()); err != nil || st.Used != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestScriptFlushedAndStateLost(t *testing.T) {
	s := startServer(t)
	r, stop := two(t, s, Options{})
	time.Sleep(lostWindow / 2)
	s.do("SCRIPT", "FLUSH")
	time.Sleep(lostWindow)
	s.do("FLUSHALL") // as a restart, with the connections kept
	fullRate(t, r, time.Now())
	stop()
	if len(r.errs) > 0 {
		t.Errorf("%v", r.errs[0])
	}
	if n := r.peak(lostWindow); n > lostQuota {
		t.Errorf("%d in one window, want %d at most", n, lostQuota)
	}
}

func TestFailoverThatLosesWritesOvershootsByNoMore(t *testing.T) {
	s := startServer(t)
	c := s.quick(t)
	one := newLedger(t, c, Options{Lease: -1}).Limit("key", lostPolicy)
	acquire := func(n int) (got int) {
		for range n {
			if _, err := one.Acquire(heed.NoWait(t.Context())); err == nil {
				got++
			} else if !errors.Is(err, heed.ErrLimited) {
				t.Fatal(err)
			}
		}
		return got
	}
	acquire(10)
	keys, err := c.Keys(t.Context(), "*limit").Result()
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	replica, err := c.Dump(t.Context(), keys[0]).Result()
	if err != nil {
		t.Fatal(err)
	}
	const lost = 7
	acquire(lost)
	if err := c.RestoreReplace(t.Context(), keys[0], time.Minute, replica).Err(); err != nil {
		t.Fatal(err)
	}
	if n := 10 + lost + acquire(100); n > lostQuota+lost {
		t.Errorf("%d units in one window, want at most the quota of %d and the %d that were lost", n, lostQuota, lost)
	}
}

func TestGoingAloneKeepsToAShareAndComesBack(t *testing.T) {
	s := startServer(t)
	r, stop := two(t, s, Options{OnOutage: GoAlone, Timeout: 300 * time.Millisecond})
	defer stop()
	time.Sleep(lostWindow + lostWindow/4)
	s.stop()
	lost := time.Now()
	time.Sleep(3 * lostWindow)
	s.start()
	recovered := time.Now()
	fullRate(t, r, recovered)
	if len(r.errs) > 0 {
		t.Errorf("%d errors: %v", len(r.errs), r.errs[0])
	}
	if n := r.peak(lostWindow); n > lostQuota {
		t.Errorf("%d in one window, want %d at most", n, lostQuota)
	}
	if n := r.between(lost.Add(lostWindow), lost.Add(3*lostWindow)); n < lostQuota*9/10*2 {
		t.Errorf("%d units in two windows alone, want about %d", n, 2*lostQuota)
	}
}

func TestGoingAloneIsSeen(t *testing.T) {
	s := startServer(t)
	var mu sync.Mutex
	var events []heed.Event
	l := newLedger(t, s.quick(t), Options{OnOutage: GoAlone, Seed: []byte("seed"), Timeout: 300 * time.Millisecond})
	r, err := heed.NewRegistry(heed.Config{Ledger: l, Default: heed.Limits{Policies: []heed.Policy{lostPolicy}}, OnEvent: func(e heed.Event) {
		if e.Kind == heed.EventDegraded {
			mu.Lock()
			events = append(events, e)
			mu.Unlock()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest("GET", "https://api.example/", nil)
	send := func() {
		t.Helper()
		pm, err := r.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pm.Observe(&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody})
		pm.Release()
	}
	send()
	s.stop()
	send()
	if !r.Snapshot()[0].Partitions[0].Degraded {
		t.Error("the snapshot does not say degraded")
	}
	s.start()
	eventually(t, 2*time.Second, "it is back", func() bool { send(); return !r.Snapshot()[0].Partitions[0].Degraded })
	mu.Lock()
	defer mu.Unlock()
	if len(events) != 2 || events[0].Err == nil || events[1].Err != nil {
		t.Errorf("%+v", events)
	}
}

func TestFailingIsAtOnce(t *testing.T) {
	s := startServer(t)
	l := newLedger(t, s.quick(t), Options{})
	r, err := heed.NewRegistry(heed.Config{Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest("GET", "https://api.example/", nil)
	pm, err := r.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	pm.Release()
	s.stop()
	began := time.Now()
	for range 50 {
		_, err := r.Acquire(t.Context(), req)
		var op *net.OpError
		if !errors.As(err, &op) || !strings.HasPrefix(err.Error(), "heed: shared ledger: ") {
			t.Fatalf("%v", err)
		}
	}
	near(t, "50 failures", time.Since(began), 0, 500*time.Millisecond)
	if d := r.Check(req); d.Err == nil {
		t.Errorf("Check: %+v", d)
	}
	if err := r.Pause("https://api.example", time.Second); err == nil {
		t.Error("Pause is no error")
	}
	if err := r.Reset("https://api.example"); err == nil {
		t.Error("Reset is no error")
	}
}

func TestAClientsClockDoesNotMatter(t *testing.T) {
	was := wallClock
	defer func() { wallClock = was }()
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			wallClock = func(t time.Time) int64 { return t.Add(off).UnixMicro() }
			s := startServer(t)
			r := &recorder{}
			policy := lostPolicy
			one := newLedger(t, s.quick(t), Options{OnOutage: GoAlone, Timeout: 300 * time.Millisecond, Seed: []byte("seed")}).Limit("key", policy)
			s.stop()
			stop := r.drive(one, 2) // alone, and with no idea of Redis's clock
			time.Sleep(lostWindow / 2)
			s.start()
			stop2 := r.drive(newLedger(t, s.quick(t), Options{}).Limit("key", policy), 2)
			time.Sleep(3 * lostWindow)
			stop()
			stop2()
			// The other cannot know before it is told, within a try or two.
			if n := r.peak(lostWindow); n > lostQuota*2 {
				t.Errorf("%d in one window", n)
			}
			r.at = slices.DeleteFunc(r.at, func(at time.Time) bool { return time.Since(at) > 2*lostWindow })
			if n := r.peak(lostWindow); n > lostQuota || n < lostQuota*9/10 {
				t.Errorf("%d in one window, want %d", n, lostQuota)
			}
		})
	}
}
