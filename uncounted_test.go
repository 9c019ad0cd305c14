package heed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Requests that are given up, get no answer, or get one from a gateway before the origin may never have been counted. That
// more is left than if they had been does not show that a quota comes back in another way than it does.
func TestRequestsThatMayNotHaveBeenCountedHideNoWindow(t *testing.T) {
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
