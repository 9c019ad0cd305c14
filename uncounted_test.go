package heed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Requests that are given up, get no answer, or get one from a gateway before the origin may never have been counted. That
// more is left than if they had been does not show that a quota comes back in another way than it does.
func TestRequestsThatMayNotHaveBeenCountedHideNoWindow(t *testing.T) {
	manyRequests(t)
	const quota, windows = 100, 30
	mayFail := map[string]func(*heedtest.Origin, *http.Request, *rand.Rand) (*http.Response, error){
		"given up": func(o *heedtest.Origin, req *http.Request, rng *rand.Rand) (*http.Response, error) {
			ctx, cancel := context.WithTimeout(req.Context(), time.Duration(rng.IntN(400))*time.Millisecond)
			defer cancel()
			return o.RoundTrip(req.WithContext(ctx))
		},
		"connection lost": func(*heedtest.Origin, *http.Request, *rand.Rand) (*http.Response, error) {
			time.Sleep(150 * time.Millisecond)
			return nil, errors.New("connection reset by peer")
		},
		"bad gateway": func(*heedtest.Origin, *http.Request, *rand.Rand) (*http.Response, error) {
			time.Sleep(150 * time.Millisecond)
			return answer(http.StatusBadGateway), nil
		},
	}
	for how, fail := range mayFail {
		for algorithm, least := range map[heedtest.Algorithm]float64{heedtest.FixedWindow: 0.95, heedtest.SlidingWindow: 0.92} {
			for _, reset := range []heedtest.Reset{heedtest.ResetUsual, heedtest.ResetFull} {
				t.Run(fmt.Sprint(how, "/", algorithm, "/", reset), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						o := heedtest.NewOrigin(heedtest.Config{
							Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second}}, Reset: reset,
							Latency: heedtest.RoundTrip(200 * time.Millisecond), Service: 100 * time.Millisecond,
						})
						rngs := make([]*rand.Rand, 16)
						for i := range rngs {
							rngs[i] = rand.New(rand.NewPCG(uint64(i), 1))
						}
						type asker struct{}
						tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
							if rng := req.Context().Value(asker{}).(*rand.Rand); rng.IntN(10) == 0 {
								return fail(o, req, rng)
							}
							return o.RoundTrip(req)
						}), heed.Limits{})
						asking(len(rngs), time.Now().Add(windows*10*time.Second), func(i int) (*http.Response, error) {
							resp, err := tr.RoundTrip(request(example).WithContext(context.WithValue(t.Context(), asker{}, rngs[i])))
							if err != nil { // go on
								return answer(0), nil
							}
							return resp, nil
						}).Wait()
						tally := o.Tally()
						t.Logf("%d accepted, %d refused", tally.Accepted, tally.Refused)
						if tally.Refused > 0 || float64(tally.Accepted) < least*windows*quota {
							t.Errorf("%d accepted, %d refused; want none refused, and %.0f accepted", tally.Accepted, tally.Refused, least*windows*quota)
						}
					})
				})
			}
		}
	}
}

// GitHub counts no 304 of those who say who they are, so that whoever asks for what is new is held by what there is of that
// alone. Others are counted all the same.
func TestUnchangedAnswersOfGitHubAreNotPaced(t *testing.T) {
	manyRequests(t)
	const quota, hours = 5000, 1
	for _, c := range []struct {
		every         int    // one in so many has changed
		token         string // "": none
		least, counts int    // answers, and those that are counted
	}{
		{1 << 30, "Bearer x", hours * 36_000, 0},
		{50, "Bearer x", hours * 36_000, hours * 720},
		{5, "Bearer x", hours * quota * 9 / 2, hours * quota}, // more has changed than may be asked for
		{50, "", hours * quota, hours * quota},
	} {
		t.Run(fmt.Sprint("one in ", c.every, " ", c.token), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var end time.Time
				left, asked, counted, refused := 0, 0, 0, 0
				tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
					time.Sleep(30 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					if !now.Before(end) {
						left, end = quota, now.Add(time.Hour)
					}
					resp := answer(http.StatusNotModified, "X-Ratelimit-Resource", "core", "Date", now.UTC().Format(http.TimeFormat))
					asked++
					switch changed := asked%c.every == 0; {
					case left == 0:
						refused++
						resp.StatusCode = http.StatusForbidden
					case changed || req.Header.Get("Authorization") == "":
						counted++
						left--
						if changed {
							resp.StatusCode = http.StatusOK
						}
					}
					usualFields(resp.Header, quota, left, end.Add(time.Second-1).Unix())
					resp.Request = req
					return resp, nil
				}), heed.Limits{})
				asking(4, time.Now().Add(hours*time.Hour-time.Minute), func(int) (*http.Response, error) {
					time.Sleep(370 * time.Millisecond)
					req := request("https://api.github.com/repos/o/r/issues", "If-None-Match", `"x"`)
					if c.token != "" {
						req.Header.Set("Authorization", c.token)
					}
					return tr.RoundTrip(req)
				}).Wait()
				t.Logf("%d asked, %d counted, %d refused", asked, counted, refused)
				if refused > 0 || asked < c.least*97/100 || counted < c.counts*97/100 {
					t.Errorf("%d asked, %d counted, %d refused; want at least %d, %d and none", asked, counted, refused, c.least, c.counts)
				}
			})
		})
	}
}

// Of two hosts behind one name each keeps a count of its own, or an origin does not count half of what it is asked for: more is
// left than was reckoned with. That is no quota that comes back bit by bit, for when a window ends all of it is back at once.
func TestRequestsThatUseNothingHideNoWindow(t *testing.T) {
	manyRequests(t)
	const quota, length, windows = 600, time.Minute, 10
	for what, counter := range map[string]func(asked int, rng *rand.Rand) int{
		"half free, at random":  func(_ int, rng *rand.Rand) int { return 2 * rng.IntN(2) },
		"two counts, in turn":   func(asked int, _ *rand.Rand) int { return asked % 2 },
		"two counts, at random": func(_ int, rng *rand.Rand) int { return rng.IntN(2) },
		"a tenth free, in turn": func(asked int, _ *rand.Rand) int { return 2 * (1 - min(asked%10, 1)) },
	} {
		for _, ietf := range []bool{false, true} {
			t.Run(fmt.Sprint(what, "/", ietf), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(1, 1))
					var used [3]int // by two counters, and by none
					var end time.Time
					asked, accepted := 0, 0
					l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
						if !now.Before(end) {
							used, end = [3]int{}, now.Truncate(length).Add(length)
						}
						asked++
						i := counter(asked, rng)
						ok := i == 2 || used[i] < quota
						if ok {
							used[i]++
							accepted += 1 - i/2
						}
						left := quota - used[i%2]
						if ietf {
							h.Set("RateLimit-Policy", fmt.Sprintf(`"p";q=%d;w=%d`, quota, length/time.Second))
							h.Set("RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, left, (end.Sub(now)+time.Second-1)/time.Second))
						} else {
							usualFields(h, quota, left, end.Unix())
						}
						return ok
					}, way: 25 * time.Millisecond}
					l.askedBy(t, 32, windows*length)
					counters := 1
					if used[1] > 0 {
						counters = 2
					}
					t.Logf("%d counted, %d refused", accepted, l.refused)
					if want := counters * windows * quota * 85 / 100; l.refused > 0 || accepted < want {
						t.Errorf("%d counted, %d refused; want at least %d, and none", accepted, l.refused, want)
					}
				})
			})
		}
	}
}
