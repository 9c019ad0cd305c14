package redisheed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/redis/go-redis/v9"
)

const testOrigin = "https://api.example"

func request() *http.Request {
	req, _ := http.NewRequest("GET", testOrigin+"/path", nil)
	req.Header.Set("Authorization", "Bearer secret")
	return req
}

// newRegistry returns a registry with a ledger of its own, as in a process of
// its own.
func newRegistry(t testing.TB, c redis.UniversalClient, o Options, l heed.Limits) *heed.Registry {
	l.Smoothing.Off = true
	r, err := heed.NewRegistry(heed.Config{Default: l, Ledger: newLedger(t, c, o), Logger: quiet(o).Logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func acquire(t testing.TB, r *heed.Registry) *heed.Permit {
	t.Helper()
	pm, err := r.Acquire(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	return pm
}

// answer has pm's request answered with a status and fields.
func answer(pm *heed.Permit, status int, fields ...string) {
	h := http.Header{}
	for i := 0; i+1 < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	pm.Observe(&http.Response{StatusCode: status, Header: h, Body: http.NoBody})
}

func TestARefusalInOneProcessHoldsAll(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503} {
		c := anyServer(t)
		a, b := newRegistry(t, c, Options{}, heed.Limits{}), newRegistry(t, c, Options{}, heed.Limits{})
		for _, r := range []*heed.Registry{a, b} {
			pm := acquire(t, r)
			answer(pm, 200)
			pm.Release()
		}
		pm := acquire(t, a)
		refused := time.Now()
		answer(pm, status, "Retry-After", "1")
		pm.Release()
		eventually(t, atOnce, "the other process holds too", func() bool {
			d := b.Check(request())
			if d.Wait > 1100*time.Millisecond {
				t.Errorf("%+v: the pause was of a second, and a tenth at most", d)
			}
			return !d.Allowed && d.Cause == heed.CausePause
		})
		pm = acquire(t, b)
		near(t, "waiting after the refusal", time.Since(refused), time.Second, atOnce)
		pm.Release()
	}
}

func TestAPauseIsFoundThoughItsMessageIsLost(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	deaf := newLedger(t, c, Options{})
	r, err := heed.NewRegistry(heed.Config{Ledger: deaf, Logger: deaf.o.Logger})
	if err != nil {
		t.Fatal(err)
	}
	pm := acquire(t, r)
	answer(pm, 200)
	pm.Release()
	deaf.stop()
	<-deaf.stopped
	other := newRegistry(t, c, Options{}, heed.Limits{})
	pm = acquire(t, other)
	answer(pm, 429, "Retry-After", "30")
	pm.Release()
	eventually(t, atOnce, "it finds the partition paused", func() bool {
		pm, err := r.Acquire(heed.NoWait(t.Context()), request())
		if err == nil {
			pm.Cancel()
		}
		return err != nil
	})
	if s := r.Snapshot()[0].Partitions[0]; s.Paused < 29*time.Second {
		t.Errorf("%+v", s)
	}
}

func TestSeveralLimitsAreTakenAllOrNothing(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	r := newRegistry(t, c, Options{}, heed.Limits{Policies: []heed.Policy{{Name: "a", Quota: 10, Window: time.Hour}, {Name: "b", Quota: 2, Window: time.Hour}}})
	for range 2 {
		pm := acquire(t, r)
		answer(pm, 200)
		pm.Release()
	}
	for range 5 {
		if _, err := r.Acquire(heed.NoWait(t.Context()), request()); err == nil {
			t.Fatal("a third one went")
		}
	}
	other := newRegistry(t, c, Options{}, heed.Limits{Policies: []heed.Policy{{Name: "a", Quota: 10, Window: time.Hour}}})
	if d := other.Check(request()); d.Remaining != 8 && d.Remaining != -1 {
		t.Errorf("%+v", d)
	}
	if d := other.Check(request()); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestPartitionsAreKeptApart(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	one := heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Hour}}}
	a, b := newRegistry(t, c, Options{}, one), newRegistry(t, c, Options{}, one)
	ask := func(r *heed.Registry, credential string) error {
		req := request()
		req.Header.Set("Authorization", "Bearer "+credential)
		pm, err := r.Acquire(heed.NoWait(t.Context()), req)
		if err == nil {
			answer(pm, 200)
			pm.Release()
		}
		return err
	}
	if err := ask(a, "x"); err != nil {
		t.Fatal(err)
	}
	if err := ask(b, "y"); err != nil {
		t.Error("another credential: ", err)
	}
	if err := ask(b, "x"); err == nil {
		t.Error("the same credential went in another process")
	}
	other := newRegistry(t, c, Options{Prefix: "other"}, one)
	if err := ask(other, "x"); err != nil {
		t.Error("another application: ", err)
	}
}

func TestIntervalsAndSlotsHoldOverProcessesAndPartitions(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := heed.Limits{MinInterval: 100 * time.Millisecond}
	a, b := newRegistry(t, c, Options{}, l), newRegistry(t, c, Options{}, l)
	var mu sync.Mutex
	var starts []time.Time
	var wg sync.WaitGroup
	began := time.Now()
	for i, r := range []*heed.Registry{a, b, a, b, a, b} {
		wg.Go(func() {
			req := request()
			if i > 3 {
				req.Header.Set("Authorization", "Bearer other")
			}
			pm, err := r.Acquire(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			starts = append(starts, time.Now())
			mu.Unlock()
			answer(pm, 200)
			pm.Release()
		})
	}
	wg.Wait()
	slices.SortFunc(starts, time.Time.Compare)
	for i, at := range starts {
		near(t, fmt.Sprintf("start %d", i), at.Sub(began), time.Duration(i)*l.MinInterval, atOnce)
	}
}

func TestSlotsAreSharedAndSeenAtOnce(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := heed.Limits{MaxConcurrent: 2}
	a, b := newRegistry(t, c, Options{}, l), newRegistry(t, c, Options{}, l)
	first, second := acquire(t, a), acquire(t, b)
	answer(first, 200)
	answer(second, 200)
	for _, r := range []*heed.Registry{a, b} {
		if d := r.Check(request()); d.Allowed || d.Cause != heed.CauseConcurrency {
			t.Errorf("with both slots taken: %+v", d)
		}
	}
	quickest(t, "the other process's slot", func() time.Duration {
		var freed time.Time
		time.AfterFunc(100*time.Millisecond, func() {
			freed = time.Now()
			second.Release()
		})
		third := acquire(t, a)
		d := time.Since(freed)
		third.Release()
		second = acquire(t, b)
		return d
	})
	first.Release()
	second.Release()
}

func TestAKilledProcessGivesBackItsSlotsAndKeepsItsUnitsSpent(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	o, url := origin(t, heedtest.Config{Service: time.Hour})
	dead := startWorker(t, job{Redis: []string{s.addr}, Origin: url, Goroutines: 3, InFlight: 3,
		Policies: []heed.Policy{{Name: "p", Quota: 5, Window: 20 * time.Second}}, Options: Options{SlotLease: time.Second, Seed: []byte("seed")}})
	dead.begin()
	// One goes ahead; it has no answer, so another follows, and another.
	eventually(t, 8*time.Second, "its requests are in flight", func() bool { return o.Tally().InFlight == 3 })
	time.Sleep(1500 * time.Millisecond) // longer than the lease, which it renews
	c := s.client()
	defer c.Close()
	r := newRegistry(t, c, Options{SlotLease: time.Second, Seed: []byte("seed")}, heed.Limits{MaxConcurrent: 3, Policies: []heed.Policy{{Name: "p", Quota: 5, Window: 20 * time.Second}}})
	req, _ := http.NewRequest("GET", url, nil)
	req.Header.Set("Authorization", "Bearer shared")
	if d := r.Check(req); d.Allowed || d.Cause != heed.CauseConcurrency {
		t.Errorf("with all slots taken: %+v", d)
	}
	dead.kill()
	killed := time.Now()
	pm, err := r.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "getting a dead process's slot", time.Since(killed), 0, atOnce)
	answer(pm, 200)
	pm.Release()
	if d := r.Check(req); d.Remaining > 2 {
		t.Errorf("%+v: the dead process's units are not spent", d)
	}
}

func TestNewProcessesKnowWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	a, b := newRegistry(t, c, Options{}, heed.Limits{}), newRegistry(t, c, Options{}, heed.Limits{})
	pm := acquire(t, a)
	answer(pm, 200, "RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=3;t=50`)
	pm.Release()
	a.Check(request()) // Redis knows by now
	pm = acquire(t, b)
	if n := pm.Remaining(); n != 2 {
		t.Errorf("%d remain, want 2", n)
	}
	s := b.Snapshot()[0].Partitions[0]
	if len(s.Policies) != 1 || s.Policies[0].Quota != 10 || s.Policies[0].Window != time.Minute {
		t.Errorf("%+v", s)
	}
	pm.Release()
}

func TestAnswersAreToldThoughNothingMoreIsAsked(t *testing.T) {
	const window = 2 * time.Second
	limits := func(quota int64) heed.Limits {
		return heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: quota, Window: window}}}
	}
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		c := anyServer(t)
		a, b := newRegistry(t, c, Options{}, limits(1)), newRegistry(t, c, Options{}, limits(1))
		pm := acquire(t, a)
		time.Sleep(window / 5)
		answered := time.Now()
		answer(pm, 200)
		pm.Release()
		pm = acquire(t, b)
		near(t, "waiting since the answer", time.Since(answered), window, atOnce)
		pm.Release()
	})
	t.Run("early", func(t *testing.T) {
		t.Parallel()
		c := anyServer(t)
		a, b := newRegistry(t, c, Options{}, limits(2)), newRegistry(t, c, Options{}, limits(2))
		acquire(t, b).Cancel() // it is known to be there
		pm := acquire(t, a)
		time.Sleep(window * 3 / 4)
		answer(pm, 200) // so the next answer is expected to be as slow …
		pm.Release()
		pm = acquire(t, a)
		answer(pm, 200) // … and is not
		answered := time.Now()
		pm.Release()
		for range 2 {
			pm = acquire(t, b)
			answer(pm, 200)
			pm.Release()
		}
		if d := time.Since(answered); d > window+window/2+5*stoodStill(answered) {
			t.Errorf("the second unit was back after %v, want about %v", d, window)
		}
	})
}

func TestResetReachesAllProcesses(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Hour}}}
	a, b := newRegistry(t, c, Options{}, l), newRegistry(t, c, Options{}, l)
	pm := acquire(t, a)
	answer(pm, 200)
	pm.Release()
	went := make(chan time.Time)
	go func() {
		acquire(t, b).Release()
		went <- time.Now()
	}()
	time.Sleep(100 * time.Millisecond)
	reset := time.Now()
	if err := a.Reset(testOrigin); err != nil {
		t.Fatal(err)
	}
	near(t, "the reset", (<-went).Sub(reset), 0, atOnce)
}

func TestManualPausesReachAllProcesses(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	a, b := newRegistry(t, c, Options{}, heed.Limits{}), newRegistry(t, c, Options{}, heed.Limits{})
	acquire(t, a).Release()
	acquire(t, b).Release()
	eventually(t, atOnce, "the pause is seen", func() bool {
		if err := a.Pause(testOrigin, time.Hour); err != nil { // again, as long as b may not have been listening
			t.Fatal(err)
		}
		return b.Snapshot()[0].PauseCause == "manual"
	})
	fresh := newRegistry(t, c, Options{}, heed.Limits{})
	if _, err := fresh.Acquire(heed.NoWait(t.Context()), request()); err == nil {
		t.Error("a new process does not know of the pause")
	}
	went := make(chan time.Time)
	go func() {
		acquire(t, b).Release()
		went <- time.Now()
	}()
	time.Sleep(50 * time.Millisecond)
	ended := time.Now()
	if err := a.Pause(testOrigin, 0); err != nil {
		t.Fatal(err)
	}
	near(t, "ending the pause", (<-went).Sub(ended), 0, atOnce)
}

func TestBytesAreSharedAndSettled(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := heed.Limits{Policies: []heed.Policy{{Name: "bytes", Quota: 1000, Window: time.Hour, Unit: heed.UnitContentBytes}}}
	a, b := newRegistry(t, c, Options{}, l), newRegistry(t, c, Options{}, l)
	ctx := heed.WithCost(t.Context(), heed.UnitContentBytes, 800)
	pm, err := a.Acquire(ctx, request())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(heed.NoWait(ctx), request()); err == nil {
		t.Error("two requests of 800 bytes of 1000")
	}
	answer(pm, 200)
	pm.Cancel() // after Observe it is Release
	if _, err := b.Acquire(heed.NoWait(ctx), request()); err == nil {
		t.Error("two requests of 800 bytes of 1000, the first over")
	}
}

func TestReplyOfSomethingElseIsAnError(t *testing.T) {
	for _, v := range []any{nil, "OK", []any{}, []any{int64(1)}, []any{int64(1), "g", "x"}} {
		if r, err := readReply(v); err == nil {
			t.Errorf("%v: %+v", v, r)
		}
	}
	if _, err := json.Marshal(&question{Limits: []limit{{"\xff\"\n", 'r', 1, 2, 3}}}); err != nil {
		t.Error(err)
	}
}

// What an origin says of how long nothing is left holds in all processes as it would in one, whoever
// else used up the quota.
func TestNothingLeftIsWaitedForAsLongAsTheOriginSays(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	policy, left := []string{"RateLimit-Policy", `"p";q=10;w=600`}, []string{"RateLimit", `"p";r=0;t=30`}
	for i, x := range []struct {
		status int
		fields []string
		want   time.Duration
	}{
		{200, slices.Concat(policy, left), 30 * time.Second},
		{200, slices.Concat(policy, left, []string{"Retry-After", "20"}), 20 * time.Second},
		{200, slices.Concat(policy, left, []string{"Retry-After", "40"}), 40 * time.Second},
		{429, slices.Concat(policy, left, []string{"Retry-After", "20"}), 20 * time.Second},
		{429, slices.Concat(policy, left, []string{"Retry-After", "40"}), 40 * time.Second},
		{429, slices.Concat(policy, []string{"RateLimit", `"p";r=0`, "Retry-After", "20"}), 20 * time.Second},
		{200, []string{"RateLimit-Policy", `"p";q=65535;qu="content-bytes";w=600`, "RateLimit", `"p";r=0;t=30`}, 30 * time.Second},
		{200, []string{"RateLimit-Policy", "0;w=5", "RateLimit", "limit=0, remaining=0, reset=5"}, 0}, // which refuses nobody
	} {
		a, b := newRegistry(t, c, Options{}, heed.Limits{}), newRegistry(t, c, Options{}, heed.Limits{})
		req := func() *http.Request {
			req, _ := http.NewRequest("GET", fmt.Sprintf("https://api%d.example/", i), nil)
			return req
		}
		pm, err := a.Acquire(t.Context(), req())
		if err != nil {
			t.Fatal(err)
		}
		answer(pm, x.status, x.fields...)
		pm.Release()
		for name, r := range map[string]*heed.Registry{"it": a, "the other process": b} {
			what := fmt.Sprintf("%d %q: %s waits as long", x.status, x.fields, name)
			eventually(t, atOnce, what, func() bool {
				wait := r.Check(req()).Wait
				return wait > x.want-atOnce && wait < x.want+1100*time.Millisecond
			})
		}
	}
}

// Who else used up a quota may not use it any more when an origin says that there is more: one
// request goes to see, and the others as its answer says.
func TestOneRequestSeesWhetherOthersLeaveMore(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	a, b := newRegistry(t, c, Options{}, heed.Limits{}), newRegistry(t, c, Options{}, heed.Limits{})
	announced := []string{"RateLimit-Policy", `"p";q=10;w=600`, "RateLimit"}
	pm := acquire(t, a)
	began := time.Now()
	answer(pm, 200, append(announced, `"p";r=0;t=2`)...)
	pm.Release()
	eventually(t, atOnce, "it is told", func() bool { return !b.Check(request()).Allowed })
	pm = acquire(t, b)
	near(t, "the wait", time.Since(began), 2*time.Second, 2*atOnce)
	if d := a.Check(request()); d.Allowed {
		t.Error("two go to see")
	}
	answer(pm, 200, append(announced, `"p";r=8;t=600`)...)
	pm.Release()
	eventually(t, atOnce, "others follow", func() bool {
		return b.Check(request()).Err == nil && a.Check(request()).Allowed // what b heard is told first
	})
}

// So it does where many wait, though the last unit is kept then.
func TestOneRequestSeesWhetherOthersLeaveMoreThoughManyWait(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	for i, policy := range []string{`"p";q=200;w=20`, `"p";q=100;w=1`} { // what was sent itself is in use still, or is not
		req := func() *http.Request {
			req, _ := http.NewRequest("GET", fmt.Sprintf("https://many%d.example/", i), nil)
			return req
		}
		a, b := newRegistry(t, c, Options{}, heed.Limits{}), newRegistry(t, c, Options{}, heed.Limits{})
		pm, err := a.Acquire(t.Context(), req())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		answer(pm, 200, "RateLimit-Policy", policy, "RateLimit", `"p";r=0;t=2`)
		pm.Release()
		eventually(t, atOnce, "it is told", func() bool { return !b.Check(req()).Allowed })
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		went := make(chan time.Duration, 4)
		for i := range cap(went) {
			go func() {
				pm, err := []*heed.Registry{a, b}[i%2].Acquire(ctx, req())
				went <- time.Since(began)
				if err == nil {
					pm.Release()
				}
			}()
		}
		near(t, "the wait of the first, "+policy, <-went, 2*time.Second, 2*atOnce)
		stop()
		for range cap(went) - 1 {
			<-went
		}
	}
}

func TestHeadersAreIgnoredWhoeverHeardThem(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.quick(t)
	a, b := newRegistry(t, c, Options{}, heed.Limits{}), newRegistry(t, c, Options{OnOutage: GoAlone}, heed.Limits{})
	pm := acquire(t, b)
	answer(pm, 200)
	pm.Release()
	pm = acquire(t, a)
	answer(pm, 200, "RateLimit-Policy", `"p";q=2;w=600`, "RateLimit", `"p";r=0;t=600`)
	pm.Release()
	eventually(t, atOnce, "the other process holds", func() bool {
		_, err := b.Acquire(heed.NoWait(t.Context()), request())
		return err != nil
	})
	if err := b.SetLimits("*", heed.Limits{IgnoreHeaders: true}); err != nil {
		t.Fatal(err)
	}
	if n := sends(t, b); n != 100 {
		t.Errorf("%d went", n)
	}
	if d := a.Check(request()); d.Allowed {
		t.Errorf("who ignores no headers: %+v", d)
	}
	s.stop()
	if n := sends(t, b); n != 100 {
		t.Errorf("%d went without Redis", n)
	}
}

func TestAPauseOfTheServersIsNotTheUsers(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	for _, first := range []bool{false, true} { // the user's
		o := Options{Prefix: fmt.Sprint(first)}
		a := newRegistry(t, c, o, heed.Limits{})
		pm := acquire(t, a)
		if first {
			if err := a.Pause(testOrigin, 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		answer(pm, 503, "Retry-After", "60")
		pm.Release()
		eventually(t, atOnce, "Redis knows of it", func() bool {
			until, _ := c.HGet(t.Context(), "{"+o.Prefix+":"+testOrigin+"}", "pu").Int64()
			return time.UnixMicro(until).After(time.Now().Add(50 * time.Second))
		})
		if !first {
			if err := a.Pause(testOrigin, 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		b := newRegistry(t, c, o, heed.Limits{})
		if _, err := b.Acquire(heed.NoWait(t.Context()), request()); err == nil {
			t.Error("another process goes")
		}
		if s := b.Snapshot()[0]; s.Paused < 50*time.Second || s.PauseCause != "refused" {
			t.Errorf("the user paused first: %v; another process is paused for %v, %q", first, s.Paused, s.PauseCause)
		}
	}
}

// What servers ask for is bounded by the limits of who waits, not of who was told.
func TestALowerMaxRetryAfterBoundsWhatOthersWereTold(t *testing.T) {
	for what, x := range map[string]struct {
		status int
		fields []string
		user   time.Duration // pauses too
		want   time.Duration
	}{
		"a pause of the partition": {429, []string{"Retry-After", "600"}, 0, 10 * time.Second},
		"a pause of the origin":    {503, []string{"Retry-After", "600"}, 0, 10 * time.Second},
		"a pause, and the user's":  {503, []string{"Retry-After", "600"}, time.Minute, time.Minute},
		"a policy":                 {200, []string{"RateLimit-Policy", `"p";q=100;w=600`, "RateLimit", `"p";r=0;t=600`}, 0, 10 * time.Second},
		"a policy, no window":      {200, []string{"RateLimit", `"p";r=0;t=600`}, 0, 10 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				low := heed.Limits{MaxRetryAfter: 10 * time.Second, Smoothing: heed.Smoothing{Off: true}}
				a, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{})
				defer end()
				lowered, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{})
				defer end()
				lower, end := (&farRedis{}).registry(t, m, Options{}, low)
				defer end()
				for _, r := range []*heed.Registry{lower, lowered} {
					pm := acquire(t, r)
					answer(pm, 200)
					pm.Release()
				}
				pm := acquire(t, a)
				answer(pm, x.status, x.fields...)
				pm.Release()
				heard := time.Now()
				time.Sleep(time.Second)
				if x.user > 0 {
					a.Pause(testOrigin, x.user-time.Second)
				}
				lowered.SetLimits("*", low)
				for name, r := range map[string]*heed.Registry{"lower from the start": lower, "lowered": lowered} {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					pm, err := r.Acquire(ctx, request())
					cancel()
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					late := 3 * time.Second // with jitter, and the other went to see first
					if x.status == 200 {
						late += low.MaxRetryAfter
					}
					if d := time.Since(heard); d < x.want || d > x.want+late {
						t.Errorf("%s: it went after %v, want %v", name, d, x.want)
					}
					pm.Cancel()
				}
				if d := a.Check(request()); d.Wait < 500*time.Second {
					t.Errorf("who was told: %+v", d)
				}
			})
		})
	}
}
