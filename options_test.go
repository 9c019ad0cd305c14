package heed_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

func TestCostIsChargedOnTheFirstOriginOnly(t *testing.T) {
	for path, want := range map[string]string{
		"/other":  "https://api.example.org 5, https://other.example.org 1",
		"/same":   "https://api.example.org 10",
		"/return": "https://api.example.org 10, https://other.example.org 1",
	} {
		synctest.Test(t, func(t *testing.T) {
			base := respond(func(req *http.Request) *http.Response {
				switch req.URL.Path {
				case "/other":
					return reply(302, "", "Location: https://other.example.org/")
				case "/same":
					return reply(302, "", "Location: /")
				case "/return":
					return reply(302, "", "Location: https://other.example.org/back")
				case "/back":
					return reply(302, "", "Location: https://api.example.org/")
				}
				return reply(200, "")
			})
			tr := quiet(t, base, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Hour}}})
			resp, err := tr.Client().Do(get(heed.WithCost(t.Context(), heed.UnitRequests, 5), site+path))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if used := usedBy(tr.Registry); used != want {
				t.Errorf("%s: charged %s, want %s", path, used, want)
			}
		})
	}
}

func TestPriorityGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		base := respond(func(req *http.Request) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, req.URL.Path)
			return reply(200, "")
		})
		tr := quiet(t, base, heed.Limits{MinInterval: time.Second})
		sendOne(t, tr, get(t.Context(), site+"/first"))
		var all sync.WaitGroup
		for _, r := range []struct {
			path     string
			priority heed.Priority
		}{{"/low", heed.PriorityLow}, {"/normal", heed.PriorityNormal}, {"/normal2", heed.PriorityNormal}, {"/high", heed.PriorityHigh}} {
			all.Go(func() { sendOne(t, tr, get(heed.WithPriority(t.Context(), r.priority), site+r.path)) })
			synctest.Wait()
		}
		all.Wait()
		if want := []string{"/first", "/high", "/normal", "/normal2", "/low"}; !slices.Equal(order, want) {
			t.Errorf("order %q", order)
		}
	})
}

func TestRequestCanAskForALongerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		tr := quiet(t, base, heed.Limits{MinInterval: 2 * time.Second})
		for _, d := range []time.Duration{0, 10 * time.Second, time.Second, 0} {
			sendOne(t, tr, get(heed.WithMinInterval(t.Context(), d), site))
		}
		if want := []time.Duration{10 * time.Second, 2 * time.Second, 2 * time.Second}; !slices.Equal(base.gaps(), want) {
			t.Errorf("intervals %v, want %v", base.gaps(), want)
		}
	})
}

// A request that never left gives back its place in the interval.
func TestIntervalIsFromTheLastRequestSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		unreachable := false
		tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
			if unreachable {
				return nil, &net.OpError{Op: "dial", Err: errAny}
			}
			return base.RoundTrip(req)
		}), heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		time.Sleep(90 * time.Second)
		unreachable = true
		tr.RoundTrip(get(t.Context(), site))
		unreachable = false
		sendOne(t, tr, get(t.Context(), site))
		if want := []time.Duration{90 * time.Second}; !slices.Equal(base.gaps(), want) {
			t.Errorf("intervals %v", base.gaps())
		}
	})
}

func TestBypassPassesUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200", "429 Retry-After: 60"}}
		tr := quiet(t, base, heed.Limits{MinInterval: time.Hour})
		sendOne(t, tr, get(t.Context(), site))
		before := fmt.Sprint(tr.Registry.Snapshot())
		began := time.Now()
		if status, _ := sendOne(t, tr, get(heed.Bypass(t.Context()), site)); status != 429 || time.Since(began) != 0 {
			t.Errorf("status %d after %v", status, time.Since(began))
		}
		if after := fmt.Sprint(tr.Registry.Snapshot()); after != before {
			t.Errorf("before %s\nafter  %s", before, after)
		}
		if d := tr.Registry.Check(get(heed.Bypass(t.Context()), site)); !d.Allowed || d.Wait != 0 {
			t.Errorf("Check: %+v", d)
		}
		pm, err := tr.Registry.Acquire(heed.Bypass(t.Context()), get(t.Context(), site))
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("Acquire: %v after %v", err, time.Since(began))
		}
		pm.Observe(answer(429, "Retry-After", "60"))
		pm.Release()
		if after := fmt.Sprint(tr.Registry.Snapshot()); after != before {
			t.Errorf("a permit that bypasses: before %s\nafter  %s", before, after)
		}
	})
}

func TestUnlimitedOriginIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 60"}}
		tr := quiet(t, base, heed.Limits{Unlimited: true})
		for range 3 {
			if status, body := sendOne(t, tr, get(t.Context(), site)); status != 429 || body == "" {
				t.Errorf("status %d, body %q", status, body)
			}
		}
		if want := []time.Duration{0, 0}; !slices.Equal(base.gaps(), want) {
			t.Errorf("intervals %v", base.gaps())
		}
	})
}

// Where heed steps aside nobody waits for the body of a refusal either, and it stays what the base gave.
func TestNobodyWaitsForABodyWhereHeedStepsAside(t *testing.T) {
	for name, c := range map[string]struct {
		options func(context.Context) context.Context
		limits  heed.Limits
	}{
		"unlimited": {func(ctx context.Context) context.Context { return ctx }, heed.Limits{Unlimited: true}},
		"bypass":    {heed.Bypass, heed.Limits{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			body := newStalling("{")
			refusal := func() *http.Response {
				resp := reply(429, "", "Content-Type: application/problem+json")
				resp.Body = body
				return resp
			}
			tr := quiet(t, respond(func(*http.Request) *http.Response { return refusal() }), c.limits)
			ctx, began := c.options(t.Context()), time.Now()
			resp, err := tr.RoundTrip(get(ctx, site))
			if err != nil || time.Since(began) != 0 || resp.Body != body {
				t.Errorf("%s: %v after %v, body %T", name, err, time.Since(began), resp.Body)
			}
			pm, err := tr.Registry.Acquire(ctx, get(ctx, site))
			if err != nil {
				t.Fatal(err)
			}
			if a := pm.Observe(refusal()); !a.Refused || time.Since(began) > time.Second {
				t.Errorf("%s: observed %+v after %v", name, a, time.Since(began))
			}
			pm.Release()
			body.Close()
		})
	}
}
