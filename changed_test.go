package heed_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A deployed is an origin in whose place another one can be put, as by a deploy.
type deployed struct {
	now atomic.Pointer[http.RoundTripper]
}

func (d *deployed) put(rt http.RoundTripper) { d.now.Store(&rt) }

func (d *deployed) RoundTrip(req *http.Request) (*http.Response, error) {
	return (*d.now.Load()).RoundTrip(req)
}

// change asks one origin for a while, then another one in its place for as long as it may
// take to get used to it, and returns how many of so many windows that one accepts then.
func change(t *testing.T, before, after http.RoundTripper, window time.Duration, first, used, counted int, accepted func() int64) (n int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(137 * time.Millisecond)
		var origin deployed
		origin.put(before)
		tr := quiet(t, &origin, heed.Limits{})
		c := tr.Client()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for {
					resp, err := c.Get("https://origin.test/")
					if err != nil {
						return // the registry was closed
					}
					resp.Body.Close()
				}
			})
		}
		time.Sleep(time.Duration(first) * window)
		origin.put(after)
		time.Sleep(time.Duration(used) * window)
		n = -accepted()
		time.Sleep(time.Duration(counted) * window)
		n += accepted()
		tr.Registry.Close()
		wg.Wait()
	})
	return n
}

// What was left of a window is left in the next one only of the same quota.
func TestQuotaThatIsCutLeavesNothingOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
		ask := func(fields ...string) bool {
			pm, err := r.Acquire(heed.NoWait(t.Context()), request(example))
			if err != nil {
				return false
			}
			pm.Observe(answer(200, fields...))
			pm.Release()
			return true
		}
		ask("RateLimit-Policy", `"p";q=100;w=10`, "RateLimit", `"p";r=90;t=5`)
		time.Sleep(11 * time.Second)
		ask("RateLimit-Policy", `"p";q=10;w=10`)
		went := 1
		for ask() {
			went++
		}
		if went > 10 {
			t.Errorf("%d went of a quota of 10", went)
		}
	})
}

// What was found out about how an origin counts does not hold for ever.
func TestOriginThatCountsOtherwiseIsUsedUpAgain(t *testing.T) {
	manyRequests(t)
	policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
	kind := func(a heedtest.Algorithm, r heedtest.Rounding) heedtest.Config {
		return heedtest.Config{Algorithm: a, Rounding: r, Policies: []heedtest.Policy{policy}, Dialect: heedtest.XRateLimit, Latency: heedtest.RoundTrip(20 * time.Millisecond)}
	}
	for _, test := range []struct {
		name          string
		before, after heedtest.Config
		used          int
		least         int64
	}{
		{"rounds resets up after all", kind(heedtest.FixedWindow, heedtest.RoundDown), kind(heedtest.FixedWindow, ""), 70, 480},
		{"sliding, begun anew", kind(heedtest.SlidingWindow, ""), kind(heedtest.SlidingWindow, ""), 20, 470},
		{"all at once, then one by one", kind(heedtest.FixedWindow, ""), kind(heedtest.SlidingWindow, ""), 20, 470},
		{"all at once again", kind(heedtest.SlidingCounter, ""), kind(heedtest.FixedWindow, ""), 20, 480},
	} {
		t.Run(test.name, func(t *testing.T) {
			after := heedtest.NewOrigin(test.after)
			n := change(t, heedtest.NewOrigin(test.before), after, policy.Window, 20, test.used, 10, func() int64 { return after.Tally().Accepted })
			t.Logf("%d accepted", n)
			if n < test.least {
				t.Errorf("%d of 500 accepted, want at least %d", n, test.least)
			}
		})
	}
}

// An elastic quota is back a window after the last request that was accepted.
type elastic struct {
	mu       sync.Mutex
	quota    int
	window   time.Duration
	left     int
	last     time.Time
	accepted int64
}

func (e *elastic) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(10 * time.Millisecond)
	defer time.Sleep(10 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Sub(e.last) >= e.window {
		e.left = e.quota
	}
	resp := reply(429, "")
	if e.left > 0 {
		e.left, e.last = e.left-1, now
		e.accepted++
		resp = reply(200, "")
	}
	usualFields(resp.Header, e.quota, e.left, e.last.Add(e.window).Unix()+1)
	return resp, nil
}

// count is how many it has accepted.
func (e *elastic) count() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepted
}

// Requests may come to put off the return of a quota, and may cease to.
func TestQuotaWhoseReturnRequestsPutOffForATimeIsUsedUp(t *testing.T) {
	sideBySide(t)
	policy := heedtest.Policy{Quota: 50, Window: 5 * time.Second}
	windows := func() *heedtest.Origin {
		return heedtest.NewOrigin(heedtest.Config{Policies: []heedtest.Policy{policy}, Dialect: heedtest.XRateLimit, Latency: heedtest.RoundTrip(20 * time.Millisecond)})
	}
	puts := func() *elastic { return &elastic{quota: 50, window: policy.Window} }
	e := puts()
	if n := change(t, windows(), e, policy.Window, 20, 20, 10, e.count); n < 350 {
		t.Errorf("put off: %d of 400 accepted", n)
	}
	o := windows()
	if n := change(t, puts(), o, policy.Window, 20, 20, 10, func() int64 { return o.Tally().Accepted }); n < 480 {
		t.Errorf("no longer put off: %d of 500 accepted", n)
	}
}
