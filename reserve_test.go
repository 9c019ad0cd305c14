package heed_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Where more is asked for than goes, everyone waits for nearly as long as it can: what goes then has to be answered yet.
func TestRequestsWithDeadlinesAreAnsweredAlthoughMoreIsAskedForThanGoes(t *testing.T) {
	sideBySide(t)
	const half = 3 * time.Minute
	bucket := func(d heedtest.Dialect) heedtest.Config {
		return heedtest.Config{Algorithm: heedtest.TokenBucket, Dialect: d, Policies: []heedtest.Policy{{Quota: 100, Window: 10 * time.Second}}}
	}
	for _, c := range []struct {
		name   string
		origin heedtest.Config
		limits heed.Limits
		trip   time.Duration
		goes   float64 // a second
		least  float64 // the share of what goes that is answered in time
	}{
		{"a configured limit", heedtest.Config{Dialect: heedtest.Silent}, quota(10, time.Second), 100 * time.Millisecond, 10, 0.85},
		{"an announced one", bucket(heedtest.IETF11), heed.Limits{}, 100 * time.Millisecond, 10, 0.95},
		{"an announced one, far away", bucket(heedtest.IETF11), heed.Limits{}, 800 * time.Millisecond, 10, 0.9},
		{"a learned one", bucket(heedtest.Silent), heed.Limits{}, 100 * time.Millisecond, 10, 0.9},
		{"one in flight", heedtest.Config{Algorithm: heedtest.Concurrency, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 1}}}, heed.Limits{}, 200 * time.Millisecond, 5, 0.85},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.origin.Latency = heedtest.HeavyTail(c.trip, 0.2, time.Second, 1)
				r := newRegistry(t, heed.Config{Default: c.limits})
				client := &http.Client{Transport: &heed.Transport{Base: heedtest.NewOrigin(c.origin), Registry: r}, Timeout: 2 * time.Second}
				rng := rand.New(rand.NewPCG(1, 2))
				began := time.Now()
				var mu sync.Mutex
				answered := 0 // in the second half
				var wg sync.WaitGroup
				for time.Since(began) < 2*half {
					wg.Go(func() {
						resp, err := client.Get(example)
						if err != nil {
							return
						}
						resp.Body.Close()
						mu.Lock()
						defer mu.Unlock()
						if resp.StatusCode == 200 && time.Since(began) > half {
							answered++
						}
					})
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / 25))
				}
				wg.Wait()
				share := float64(answered) / (c.goes * half.Seconds())
				t.Logf("%.3f of what goes was answered", share)
				if share < c.least {
					t.Errorf("%.3f of what goes was answered in time, at least %.2f wanted", share, c.least)
				}
			})
		})
	}
}

// A lapsing origin takes a request a second, and so long over each.
type lapsing struct {
	t        *testing.T
	registry *heed.Registry
	client   http.Client
}

func newLapsing(t *testing.T, trip time.Duration, body func(ctx context.Context) io.ReadCloser) *lapsing {
	base := baseFunc(func(req *http.Request) (*http.Response, error) {
		if body != nil {
			resp := answer(200)
			resp.Body, resp.Request = body(req.Context()), req
			return resp, nil
		}
		if err := sleep(req.Context(), trip); err != nil {
			return nil, err
		}
		return answer(200), nil
	})
	r := newRegistry(t, heed.Config{Default: heed.Limits{MinInterval: time.Second}})
	return &lapsing{t, r, http.Client{Transport: &heed.Transport{Base: base, Registry: r}}}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// get asks with a deadline, and returns after how long it came to what end.
func (l *lapsing) get(deadline time.Duration) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.t.Context(), deadline)
	defer cancel()
	req := request(example).WithContext(ctx)
	resp, err := l.client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return time.Since(began), err
}

// lapse has a request go too late to be answered.
func (l *lapsing) lapse() {
	l.t.Helper()
	if _, err := l.get(time.Minute); err != nil {
		l.t.Fatal(err)
	}
	took, err := l.get(700 * time.Millisecond) // of which it waits 600 ms
	if errors.Is(err, heed.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || took != 700*time.Millisecond {
		l.t.Fatalf("after %v: %v, want a request given up at its deadline", took, err)
	}
}

func TestTimeIsKeptForAnswersOnceOneCameTooLate(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(ctx context.Context) io.ReadCloser
	}{
		{"the answer", nil},
		{"its body", func(ctx context.Context) io.ReadCloser { return io.NopCloser(&slowBody{ctx: ctx}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLapsing(t, 400*time.Millisecond, c.body)
				l.lapse()
				took, err := l.get(1100 * time.Millisecond) // to go in 900 ms, and to be answered in 1300
				if le := limitErr(t, err); took != 0 || le.Reason != heed.ReasonDeadline || !strings.Contains(le.Error(), "too late for an answer before its deadline") {
					t.Errorf("after %v: %v, want a refusal at once", took, err)
				}
				if took, err = l.get(1400 * time.Millisecond); err != nil {
					t.Errorf("after %v: %v, although there was time", took, err)
				}
			})
		})
	}
}

// What answers take was not known when those in line came.
func TestThoseInLineMakeWayForOthersOnceAnAnswerCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLapsing(t, 400*time.Millisecond, nil)
		if _, err := l.get(time.Minute); err != nil {
			t.Fatal(err)
		}
		go l.get(700 * time.Millisecond) // goes after 600 ms
		synctest.Wait()
		var took time.Duration
		var err error
		go func() { took, err = l.get(1700 * time.Millisecond) }() // would go after 1600 ms
		synctest.Wait()
		if took, err := l.get(time.Minute); err != nil || took != 2*time.Second { // else it would take three
			t.Errorf("after %v: %v, although another made way", took, err)
		}
		if le := limitErr(t, err); took != 1600*time.Millisecond || !strings.Contains(le.Error(), "it had waited 1.6s when its deadline was too near for an answer") {
			t.Errorf("after %v: %v, want a refusal when its turn came", took, err)
		}
	})
}

// Nobody can say when a slot becomes free: a wait for one ends as soon as there is too little time.
func TestAWaitEndsWhenTooLittleTimeIsLeftForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLapsing(t, 400*time.Millisecond, nil)
		l.lapse()
		l.registry.SetLimits(example, heed.Limits{MaxConcurrent: 1})
		pm := acquire(t, l.registry, request(example))
		took, err := l.get(time.Second)
		if le := limitErr(t, err); took != 600*time.Millisecond || le.Reason != heed.ReasonDeadline {
			t.Errorf("after %v: %v, want a refusal 400 ms before the deadline", took, err)
		}
		pm.Release()
	})
}

// slowBody takes 400 ms to come.
type slowBody struct {
	ctx  context.Context
	over bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.over {
		return 0, io.EOF
	}
	b.over = true
	if err := sleep(b.ctx, 400*time.Millisecond); err != nil {
		return 0, err
	}
	return bytes.NewReader([]byte("slow")).Read(p)
}

// Nobody may be kept from going for good by what answered slowly once.
func TestTimeIsKeptForAnswersOnlyForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLapsing(t, 400*time.Millisecond, nil)
		l.lapse()
		for range 130 {
			if _, err := l.get(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		l.lapse()
	})
}

// What answers slowly may be one of many things that are asked for.
func TestAQuarterOfTheTimeIsForWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLapsing(t, 10*time.Second, nil)
		if _, err := l.get(time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			deadline time.Duration
			goes     bool
		}{{2 * time.Second, true}, {4100 * time.Millisecond, true}, {3900 * time.Millisecond, false}} { // the first is to lapse
			go l.get(time.Minute)
			synctest.Wait()
			took, err := l.get(c.deadline) // of which it waits a second
			if goes := !errors.Is(err, heed.ErrLimited); goes != c.goes {
				t.Errorf("of %v a second was to be waited: after %v: %v", c.deadline, took, err)
			}
			time.Sleep(10 * time.Second)
		}
	})
}
