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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Where more is asked for than goes, everyone waits for nearly as long as it can: what goes then has to be answered yet.
func TestRequestsWithDeadlinesAreAnsweredAlthoughMoreIsAskedForThanGoes(t *testing.T) {
	manyRequests(t)
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

// behind has one ask with so long a deadline and another, behind it, with a minute: nobody else is in line then. It returns
// what became of the former.
func (l *lapsing) behind(deadline time.Duration) (took time.Duration, err error) {
	l.t.Helper()
	if _, err := l.get(time.Minute); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan bool)
	go func() { took, err = l.get(deadline); close(ended) }()
	synctest.Wait()
	if _, err := l.get(time.Minute); err != nil {
		l.t.Error(err)
	}
	<-ended
	return took, err
}

// tooNear reports whether a request was refused when its turn came, after so long, for others to be answered.
func tooNear(took time.Duration, err error, turn time.Duration) bool {
	var le *heed.LimitError
	return errors.As(err, &le) && took == turn && le.Reason == heed.ReasonDeadline && errors.Is(err, context.DeadlineExceeded) &&
		strings.HasSuffix(le.Error(), "when its deadline was too near for an answer")
}

func TestWhoCannotBeAnsweredInTimeMakesWay(t *testing.T) {
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
				if took, err := l.behind(700 * time.Millisecond); took != 700*time.Millisecond || errors.Is(err, heed.ErrLimited) {
					t.Errorf("after %v: %v, although nobody is known to be answered too late", took, err)
				}
				if took, err := l.behind(700 * time.Millisecond); !tooNear(took, err, 600*time.Millisecond) {
					t.Errorf("after %v: %v, want a refusal when its turn came", took, err)
				}
				if took, err := l.behind(1100 * time.Millisecond); err != nil {
					t.Errorf("after %v: %v, although there was time", took, err)
				}
			})
		})
	}
}

// What makes way gives what it would have had to another: at the end of a line there is none.
func TestNobodyMakesWayForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLapsing(t, 400*time.Millisecond, nil)
		l.lapse()
		if took, err := l.get(time.Second); took != time.Second || errors.Is(err, heed.ErrLimited) { // it goes after 900 ms
			t.Errorf("after %v: %v, although nobody is behind it", took, err)
		}
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

// What answered slowly once counts for a while, be there many answers since or none.
func TestNobodyMakesWayForLong(t *testing.T) {
	for _, answers := range []int{130, 0} {
		synctest.Test(t, func(t *testing.T) {
			l := newLapsing(t, 400*time.Millisecond, nil)
			l.lapse()
			l.registry.SetLimits(example, heed.Limits{})
			for range answers { // in less than a minute
				l.get(time.Minute)
			}
			l.registry.SetLimits(example, heed.Limits{MinInterval: time.Second})
			if answers == 0 {
				time.Sleep(2 * time.Minute)
			}
			if took, err := l.behind(700 * time.Millisecond); took != 700*time.Millisecond || errors.Is(err, heed.ErrLimited) {
				t.Errorf("%d answers later: after %v: %v", answers, took, err)
			}
		})
	}
}

// What answers slowly may be one of many things that are asked for: a quarter of its time is for everyone to wait.
func TestNobodyMakesWayInTheFirstQuarterOfItsTime(t *testing.T) {
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
			var took time.Duration
			var err error
			ended := make(chan bool)
			go func() { took, err = l.get(c.deadline); close(ended) }() // of which it waits a second
			synctest.Wait()
			l.get(time.Minute)
			<-ended
			if goes := !tooNear(took, err, time.Second); goes != c.goes {
				t.Errorf("of %v a second was to be waited: after %v: %v", c.deadline, took, err)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// Neither what has no deadline nor what hangs tells how long others take.
func TestStreamsAndHangsSayNothingOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const usual = 100 * time.Millisecond
		var trip atomic.Int64
		trip.Store(int64(usual))
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			if err := sleep(req.Context(), time.Duration(trip.Load())); err != nil {
				return nil, err
			}
			return answer(200), nil
		})
		r := newRegistry(t, heed.Config{Default: heed.Limits{MinInterval: time.Second}})
		l := &lapsing{t, r, http.Client{Transport: &heed.Transport{Base: base, Registry: r}}}
		l.get(time.Minute)
		trip.Store(int64(time.Hour))
		for range 20 {
			go l.client.Get(example)
		}
		time.Sleep(2 * time.Hour)
		trip.Store(int64(usual))
		l.behind(950 * time.Millisecond) // goes after 900 ms
		if took, err := l.behind(1400 * time.Millisecond); err != nil {
			t.Errorf("after %v: %v, for streams", took, err)
		}
		time.Sleep(2 * time.Minute)
		trip.Store(int64(time.Hour))
		go l.get(2 * time.Second)
		synctest.Wait()
		l.get(2 * time.Second) // goes after one
		trip.Store(int64(usual))
		if took, err := l.behind(950 * time.Millisecond); took != 950*time.Millisecond {
			t.Errorf("after %v: %v, for one that hung", took, err)
		}
	})
}

// So it is where requests go further apart than any of them can wait: what answers take is not forgotten until the next one goes.
func TestRequestsWithDeadlinesAreAnsweredThoughTheyGoMinutesApart(t *testing.T) {
	manyRequests(t)
	synctest.Test(t, func(t *testing.T) {
		const quota, windows, goroutines = 20, 4, 16
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Dialect: heedtest.XRateLimit, Policies: []heedtest.Policy{{Quota: quota, Window: time.Hour}}, Latency: heedtest.HeavyTail(200*time.Millisecond, 0.2, time.Second, 1),
		})
		r := newRegistry(t, heed.Config{})
		client := &http.Client{Transport: &heed.Transport{Base: o, Registry: r}, Timeout: 30 * time.Second}
		var answered atomic.Int64
		end := time.Now().Add(windows * time.Hour)
		var wg sync.WaitGroup
		for g := range goroutines {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			wg.Go(func() {
				for time.Now().Before(end) {
					if resp, err := client.Get(example); err == nil {
						resp.Body.Close()
						answered.Add(1)
					}
					time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				}
			})
		}
		wg.Wait()
		t.Logf("%d answered of %d that might have been", answered.Load(), quota*windows)
		if answered.Load() < quota*windows*4/10 {
			t.Errorf("%d answered of %d that might have been", answered.Load(), quota*windows)
		}
	})
}
