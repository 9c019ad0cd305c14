package heed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// named are limits that can be told by the name of their policy.
func named(name string) heed.Limits {
	return heed.Limits{Policies: []heed.Policy{{Name: name, Quota: 1, Window: time.Hour}}}
}

// limitsOf is the name of the policy that limits an origin.
func limitsOf(r *heed.Registry, url string) string {
	r.Check(request(url))
	for _, o := range r.Snapshot() {
		if o.Origin == heed.OriginOf(request(url).URL) {
			if ps := o.Partitions[0].Policies; len(ps) > 0 {
				return ps[0].Name
			}
		}
	}
	return ""
}

// A crawler sets limits for each of its many hosts: that touches no other host, nor what is set for it.
func TestLimitsOfOneHostTouchNoOther(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	set := func(from, to int) {
		for i := from; i < to; i++ {
			r.SetLimits(host(fmt.Sprint(i)), heed.Limits{MinInterval: time.Second})
			done(acquire(t, r, request(host(fmt.Sprint(i)))))
		}
	}
	set(0, 2000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	set(2000, 2100)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100*10<<10 {
		t.Errorf("%d bytes for the limits of each", allocated/100)
	}
}

func TestMostSpecificOverrideWins(t *testing.T) {
	r := newRegistry(t, heed.Config{
		Default: named("default"),
		Origins: map[string]heed.Limits{
			"https://*.example.org":          named("domain"),
			"https://*.api.example.org/":     named("subdomain"),
			"HTTPS://V1.api.example.org:443": named("host"),
			"https://*.example.org:8443":     named("port"),
			"http://[2001:DB8::1]":           named("v6"),
			"https://*.bücher.example":       named("punycode"),
			"http://127.0.0.1:8080":          named("v4"),
			"unknown":                        named("unknown"),
		},
	})
	for url, want := range map[string]string{
		"https://v1.api.example.org/x":       "host",
		"https://v1.api.example.org:8443/":   "port",
		"https://v2.api.example.org/":        "subdomain",
		"https://a.b.api.example.org/":       "subdomain",
		"https://api.example.org/":           "domain",
		"https://www.example.org/":           "domain",
		"https://example.org/":               "default", // not under itself
		"https://wwwexample.org/":            "default",
		"http://www.example.org/":            "default", // another scheme
		"https://www.example.com/":           "default",
		"http://[2001:db8:0::1]/":            "v6",
		"https://www.xn--bcher-kva.example/": "punycode",
		"http://127.0.0.1:8080/":             "v4",
		"http://127.0.0.1/":                  "default",
		"https:///x":                         "unknown",
	} {
		if got := limitsOf(r, url); got != want {
			t.Errorf("limits of %s are %q, want %q", url, got, want)
		}
	}

	r.ClearLimits("https://*.API.example.org")
	r.ClearLimits("*")
	r.ClearLimits("not an origin")
	for url, want := range map[string]string{
		"https://v1.api.example.org/": "host",
		"https://v2.api.example.org/": "domain",
		"https://www.example.com/":    "",
	} {
		if got := limitsOf(r, url); got != want {
			t.Errorf("after ClearLimits limits of %s are %q, want %q", url, got, want)
		}
	}

	if err := r.SetAllLimits(named("new"), map[string]heed.Limits{"https://v2.api.example.org": named("v2")}); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"https://v1.api.example.org/": "new",
		"https://v2.api.example.org/": "v2",
		"https://www.example.com/":    "new",
	} {
		if got := limitsOf(r, url); got != want {
			t.Errorf("after SetAllLimits limits of %s are %q, want %q", url, got, want)
		}
	}
}

// A request that waits to be tried again keeps to a MaxWait that is set meanwhile, and
// its refusal goes back as soon as that is known to be too short.
func TestChangedMaxWaitHoldsForRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []string{"429"}}
		tr := quiet(t, s, heed.Limits{})
		began := time.Now()
		time.AfterFunc(time.Second, func() { tr.Registry.SetLimits("*", heed.Limits{MaxWait: 3 * time.Second}) })
		status, _ := sendOne(t, tr, get(t.Context(), site))
		if d := time.Since(began); status != 429 || d != time.Second || len(s.starts) != 1 {
			t.Errorf("status %d after %v and %d tries", status, d, len(s.starts))
		}
	})
}

// A Reset also ends a request's own wait before it is tried again.
func TestResetHasARefusedRequestTriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []string{"429", "200"}}
		tr := quiet(t, s, heed.Limits{})
		time.AfterFunc(time.Second, func() { tr.Registry.Reset(site) })
		if status, _ := sendOne(t, tr, get(t.Context(), site)); status != 200 || !slices.Equal(s.gaps(), []time.Duration{time.Second}) {
			t.Errorf("status %d, intervals %v", status, s.gaps())
		}
	})
}

func TestBadLimitsAreErrorsAndChangeNothing(t *testing.T) {
	policy := func(p heed.Policy) heed.Limits { return heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: 1}, p}} }
	bad := map[string]heed.Limits{
		"MinInterval":                 {MinInterval: -1},
		"MinPause":                    {MinPause: -1},
		"MaxConcurrent":               {MaxConcurrent: -1},
		"MaxRetryAfter":               {MaxRetryAfter: -1},
		"MaxWait":                     {MaxWait: -1},
		"MaxQueue":                    {MaxQueue: -1},
		"MinBackoff":                  {MinBackoff: -1},
		"MaxBackoff":                  {MaxBackoff: -1},
		"Smoothing.Interval":          {Smoothing: heed.Smoothing{Interval: -1}},
		"Smoothing.Velocity":          {Smoothing: heed.Smoothing{Velocity: -1}},
		"velocity, no number":         {Smoothing: heed.Smoothing{Velocity: math.NaN()}},
		"velocity, infinite":          {Smoothing: heed.Smoothing{Velocity: math.Inf(1)}},
		"quota 0":                     policy(heed.Policy{Window: 1}),
		"quota below 0":               policy(heed.Policy{Quota: -1, Window: 1}),
		"no window":                   policy(heed.Policy{Quota: 1}),
		"no window, bytes":            policy(heed.Policy{Quota: 1, Unit: heed.UnitContentBytes}),
		"no window, other":            policy(heed.Policy{Quota: 1, Unit: "points"}),
		"window below 0":              policy(heed.Policy{Quota: 1, Window: -1}),
		"window below 0, concurrency": policy(heed.Policy{Quota: 1, Window: -1, Unit: heed.UnitConcurrentRequests}),
		"burst below 0":               policy(heed.Policy{Quota: 1, Window: 1, Burst: -1}),
	}
	badOrigins := []string{"", "api.example.org", "https://", "://api.example.org", "https:/api.example.org", "https://api.example.org/v1", "https://api.example.org?x",
		"https://api.example.org#x", "https://u@api.example.org", "https://*", "https://*.", "https://a.*.example.org", "https://*.*.example.org", "**", "https://a b"}

	good := map[string]heed.Limits{example: named("host"), "https://*.example.org": named("domain")}
	r := newRegistry(t, heed.Config{Default: named("default"), Origins: good})
	check := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		for url, want := range map[string]string{example: "host", "https://www.example.org": "domain", "https://example.com": "default"} {
			if got := limitsOf(r, url); got != want {
				t.Fatalf("%s: limits of %s have become %q", what, url, got)
			}
		}
	}
	for what, l := range bad {
		check(what, r.SetLimits("*", l))
		check(what, r.SetLimits(example, l))
		check(what+" for all", r.SetAllLimits(l, nil))
		check(what+" among all", r.SetAllLimits(named("x"), map[string]heed.Limits{"https://a.example": named("x"), "https://b.example": l}))
		_, err := heed.NewRegistry(heed.Config{Default: l, Logger: discard})
		check(what+" in Config.Default", err)
		_, err = heed.NewRegistry(heed.Config{Origins: map[string]heed.Limits{example: l}, Logger: discard})
		check(what+" in Config.Origins", err)
	}
	for _, origin := range badOrigins {
		check(origin, r.SetLimits(origin, named("x")))
		check(origin+" among all", r.SetAllLimits(named("x"), map[string]heed.Limits{origin: named("x")}))
		_, err := heed.NewRegistry(heed.Config{Origins: map[string]heed.Limits{origin: named("x")}, Logger: discard})
		check(origin+" in Config.Origins", err)
		r.ClearLimits(origin)
	}
	check("one origin twice", r.SetAllLimits(named("x"), map[string]heed.Limits{"https://a.example": named("x"), "https://A.example:443": named("x")}))
	check("the default twice", r.SetAllLimits(named("x"), map[string]heed.Limits{"*": named("y")}))
	for _, origin := range append(badOrigins, "*", "https://*.example.org") {
		check("Pause "+origin, r.Pause(origin, time.Hour))
		check("Reset "+origin, r.Reset(origin))
	}
	for _, c := range []heed.Config{{IdleAfter: -1}, {MaxOrigins: -1}} {
		_, err := heed.NewRegistry(c)
		check(fmt.Sprintf("%+v", c), err)
	}
	for _, l := range []heed.Limits{{}, {Policies: []heed.Policy{{Quota: 1, Unit: heed.UnitConcurrentRequests}}}, {Smoothing: heed.Smoothing{Velocity: 0.1}}} {
		if err := r.SetLimits(example, l); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// What is taken for an origin may be a whole URL, and errors are logged.
func TestErrorsShowNothingSecretOfWhatIsNoOrigin(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	for _, name := range []string{
		"https://user:secret@api.example.org", "https://secret@api.example.org", "//user:secret@api.example.org/path", "user:secret@api.example.org",
		"https://user:secret@api.example.org:port", "https://user:secret%zz@api.example.org", "https://user:p@secret@api.example.org",
		"https://user:secret@*.api.example.org", "https://api.example.org/?key=secret", "https://api.example.org:port?key=secret@",
		"https://api.example.org/#access_token=secret",
	} {
		for call, err := range map[string]error{
			"SetLimits": r.SetLimits(name, heed.Limits{}), "SetAllLimits": r.SetAllLimits(heed.Limits{}, map[string]heed.Limits{name: {}}),
			"Pause": r.Pause(name, time.Second), "Reset": r.Reset(name),
		} {
			if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "api.example.org") {
				t.Errorf("%s(%q) = %v", call, name, err)
			}
		}
	}
}

func TestOwnNamesOfOriginsCanHaveLimits(t *testing.T) {
	r := newRegistry(t, heed.Config{
		Origin:  func(*http.Request) string { return "shop" },
		Origins: map[string]heed.Limits{"shop": named("shop")},
	})
	if d := r.Check(request(example)); d.Remaining != 1 {
		t.Errorf("Check = %+v, want one left", d)
	}
	if err := r.Pause("shop", time.Hour); err != nil {
		t.Error(err)
	}
	if d := r.Check(request(example)); d.Cause != heed.CausePause {
		t.Errorf("Check = %+v, want paused", d)
	}
}

// Names of the user's own that are origins are written in many ways, as origins are.
func TestOwnNamesMeanTheSameToRequestsAndToWhoeverSetsLimits(t *testing.T) {
	for _, name := range []string{"https://api.example.org:443", "HTTPS://Api.Example.org./", "https://*.example.org", "//shop", "shop", "unknown", "https://api.example.org/v1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{
					Origin:  func(*http.Request) string { return name },
					Origins: map[string]heed.Limits{name: {MinInterval: time.Minute}},
				})
				wants := func(what string, cause heed.Cause) {
					t.Helper()
					if d := r.Check(request(example)); d.Cause != cause {
						t.Errorf("%s: Check() = %+v, want %v", what, d, cause)
					}
				}
				exchange(t, r)
				wants("limits set", heed.CauseInterval)
				r.ClearLimits(name)
				wants("limits cleared", heed.CauseNone)
				if err := r.Pause(name, time.Minute); err != nil {
					t.Error(err)
				}
				wants("paused", heed.CausePause)
				if err := r.Reset(name); err != nil {
					t.Error(err)
				}
				wants("reset", heed.CauseNone)
				if all := r.Snapshot(); len(all) != 1 {
					t.Errorf("Snapshot() = %+v", all)
				}
			})
		})
	}
}

// Limits are copied: what the caller does with its own later changes nothing.
func TestLimitsAreCopied(t *testing.T) {
	l := named("p")
	r := newRegistry(t, heed.Config{Default: l})
	l.Policies[0] = heed.Policy{}
	if got := limitsOf(r, example); got != "p" {
		t.Errorf("limits are %q", got)
	}
}

func TestChangedLimitsJudgeThoseWaitingAtOnce(t *testing.T) {
	off := heed.Smoothing{Off: true}
	hour := heed.Limits{Policies: []heed.Policy{{Name: "hour", Quota: 1, Window: time.Hour}}, Smoothing: off}
	for _, tc := range []struct {
		name   string
		limits heed.Limits // in force while two wait
		change func(r *heed.Registry) error
		want   []error // what becomes of them at once; context.Canceled: they go on waiting
	}{
		{"a quota grows", hour, func(r *heed.Registry) error {
			return r.SetLimits("*", heed.Limits{Policies: []heed.Policy{{Name: "hour", Quota: 2, Window: time.Hour}}, Smoothing: off})
		}, []error{nil, context.Canceled}},
		{"a quota goes", hour, func(r *heed.Registry) error { return r.SetLimits(example, heed.Limits{}) }, []error{nil, nil}},
		{"a window shrinks", hour, func(r *heed.Registry) error {
			return r.SetLimits(example, heed.Limits{Policies: []heed.Policy{{Name: "hour", Quota: 1, Window: time.Millisecond}}, Smoothing: off})
		}, []error{nil, context.Canceled}},
		{"all are replaced", hour, func(r *heed.Registry) error { return r.SetAllLimits(heed.Limits{}, nil) }, []error{nil, nil}},
		{"they are cleared", hour, func(r *heed.Registry) error { r.ClearLimits("*"); return nil }, []error{nil, nil}},
		{"heed steps aside", hour, func(r *heed.Registry) error { return r.SetLimits("*", heed.Limits{Unlimited: true}) }, []error{nil, nil}},
		{"heed steps aside from a pause", hour, func(r *heed.Registry) error {
			return errors.Join(r.Pause(example, time.Hour), r.SetLimits("*", heed.Limits{Unlimited: true}))
		}, []error{nil, nil}},
		{"another origin's change", hour, func(r *heed.Registry) error { return r.SetLimits("https://a.example", heed.Limits{}) },
			[]error{context.Canceled, context.Canceled}},
		{"an interval goes", heed.Limits{MinInterval: time.Hour}, func(r *heed.Registry) error { return r.SetLimits("*", heed.Limits{}) }, []error{nil, nil}},
		{"an interval shrinks", heed.Limits{MinInterval: time.Hour}, func(r *heed.Registry) error {
			return r.SetLimits("*", heed.Limits{MinInterval: time.Minute})
		}, []error{nil, context.Canceled}},
		{"more at once", heed.Limits{MaxConcurrent: 1}, func(r *heed.Registry) error { return r.SetLimits("*", heed.Limits{MaxConcurrent: 2}) },
			[]error{nil, context.Canceled}},
		{"MaxWait appears and has passed", hour, func(r *heed.Registry) error {
			l := hour
			l.MaxWait = time.Minute
			return r.SetLimits("*", l)
		}, []error{heed.ErrLimited, heed.ErrLimited}},
		{"MaxWait appears and cannot be kept", hour, func(r *heed.Registry) error {
			l := hour
			l.MaxWait = 59 * time.Minute
			return r.SetLimits("*", l)
		}, []error{heed.ErrLimited, heed.ErrLimited}},
		{"MaxWait appears and can be kept by one", hour, func(r *heed.Registry) error {
			l := hour
			l.MaxWait = 61 * time.Minute
			return r.SetLimits("*", l)
		}, []error{context.Canceled, heed.ErrLimited}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}})
				meet(t, r, example)
				if err := r.SetLimits("*", tc.limits); err != nil {
					t.Fatal(err)
				}
				first := acquire(t, r, request(example))
				if tc.limits.MaxConcurrent == 0 {
					first.Observe(answer(200))
					first.Release()
				}
				ctx, cancel := context.WithCancel(t.Context())
				ws := []*waiting{start(ctx, r, request(example)), start(ctx, r, request(example))}
				time.Sleep(2 * time.Minute)
				if ws[0].done() || ws[1].done() {
					t.Fatal("they do not wait")
				}
				if err := tc.change(r); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for i, w := range ws {
					switch want := tc.want[i]; {
					case want == context.Canceled:
						if w.done() {
							t.Errorf("request %d no longer waits: %v", i, w.err)
						}
					case !w.done():
						t.Errorf("request %d still waits, want %v", i, want)
					case want == nil && w.err != nil, want != nil && w.err == nil:
						t.Errorf("request %d: %v, want %v", i, w.err, want)
					}
				}
				cancel()
			})
		})
	}
}

// A MaxRetryAfter that is lowered holds for what servers have asked for already, from when
// they did on. What the user asked for no cap shortens.
func TestLoweredMaxRetryAfterShortensPauses(t *testing.T) {
	const asked = 2 * time.Minute // before it is lowered
	pause := func(d time.Duration) func(*heed.Registry) { return func(r *heed.Registry) { r.Pause(example, d) } }
	for _, tc := range []struct {
		name   string
		answer []string // status and fields
		also   func(*heed.Registry)
		lowers time.Duration
		want   time.Duration // from the refusal on
	}{
		{"to less than has passed", []string{"429", "Retry-After", "3000"}, nil, time.Minute, asked},
		{"to more", []string{"429", "Retry-After", "3000"}, nil, 10 * time.Minute, 10 * time.Minute},
		{"to more than is asked for", []string{"429", "Retry-After", "300"}, nil, 10 * time.Minute, 5 * time.Minute},
		{"of the whole origin", []string{"503", "Retry-After", "3000"}, nil, 10 * time.Minute, 10 * time.Minute},
		{"of a budget", []string{"429", "Retry-After", "3000", "X-RateLimit-Resource", "search"}, nil, 10 * time.Minute, 10 * time.Minute},
		{"of a policy", []string{"429", "RateLimit-Policy", `"p";q=100;w=5000`, "RateLimit", `"p";r=0;t=3000`}, nil, 10 * time.Minute, 10 * time.Minute},
		{"of units that nobody can count", []string{"200", "X-RateLimit-Limit-Tokens", "100", "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "50m"},
			nil, 10 * time.Minute, 10 * time.Minute},
		{"beside the user's", []string{"503", "Retry-After", "3000"}, pause(20 * time.Minute), 10 * time.Minute, 20 * time.Minute},
		{"of the user's that is longer", []string{"503", "Retry-After", "1200"}, pause(40 * time.Minute), 10 * time.Minute, 40 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				defer r.Close()
				for range 3 {
					done(acquire(t, r, request(example)))
				}
				pm := acquire(t, r, request(example))
				status, _ := strconv.Atoi(tc.answer[0])
				pm.Observe(answer(status, tc.answer[1:]...))
				pm.Release()
				if tc.also != nil {
					tc.also(r)
				}
				w := start(t.Context(), r, request(example))
				time.Sleep(asked)
				if w.done() {
					t.Fatal("it did not wait")
				}
				if err := r.SetLimits("*", heed.Limits{MaxRetryAfter: tc.lowers}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if w.err != nil || w.at < tc.want || w.at > tc.want+time.Second {
					t.Errorf("it went after %v (%v), want %v", w.at, w.err, tc.want)
				}
				w.permit.Release()
			})
		})
	}
}

// A policy set while requests are in flight counts them.
func TestNewPolicyCountsRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, unit := range []heed.Unit{heed.UnitRequests, heed.UnitConcurrentRequests} {
			r := newRegistry(t, heed.Config{})
			meet(t, r, example)
			pms := []*heed.Permit{acquire(t, r, request(example)), acquire(t, r, request(example))}
			if err := r.SetLimits("*", heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 3, Window: time.Minute, Unit: unit}}}); err != nil {
				t.Fatal(err)
			}
			if d := r.Check(request(example)); d.Remaining != 1 {
				t.Errorf("%s: %d left with two of three in flight", unit, d.Remaining)
			}
			pms[0].Cancel()
			pms[1].Release()
			want := int64(2) // one was sent
			if unit == heed.UnitConcurrentRequests {
				want = 3
			}
			if d := r.Check(request(example)); d.Remaining != want {
				t.Errorf("%s: %d left, want %d", unit, d.Remaining, want)
			}
		}
	})
}

// Setting limits again that hold already forgets no use, whatever their names.
func TestSettingTheSameLimitsAgainKeepsTheirBooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heed.Limits{Policies: []heed.Policy{
			{Quota: 5, Window: time.Second}, {Quota: 9, Window: time.Hour}, {Quota: 7, Window: time.Minute, Burst: 8}, {Quota: 5, Unit: heed.UnitConcurrentRequests},
		}}
		r := newRegistry(t, heed.Config{Default: l})
		pm := acquire(t, r, request(example))
		before := fmt.Sprintf("%+v", r.Snapshot())
		for range 3 {
			if err := r.SetLimits("*", l); err != nil {
				t.Fatal(err)
			}
			if err := r.SetAllLimits(l, nil); err != nil {
				t.Fatal(err)
			}
		}
		if after := fmt.Sprintf("%+v", r.Snapshot()); after != before {
			t.Errorf("Snapshot is\n%s, was\n%s", after, before)
		}
		l.Policies[0], l.Policies[1] = l.Policies[1], l.Policies[0]
		l.Policies[1].Quota = 6
		if err := r.SetLimits("*", l); err != nil {
			t.Fatal(err)
		}
		ps := r.Snapshot()[0].Partitions[0].Policies
		if len(ps) != 4 || ps[0].Quota != 9 || ps[0].Used != 1 || ps[1].Quota != 6 || ps[1].Used != 1 || ps[1].Window != time.Second {
			t.Errorf("policies are %+v", ps)
		}
		l.Policies[1].Quota = 8
		if err := r.SetLimits("*", l); err != nil {
			t.Fatal(err)
		}
		ps = r.Snapshot()[0].Partitions[0].Policies
		if ps[0].Quota != 9 || ps[1].Quota != 8 || ps[0].Used != 1 || ps[1].Used != 1 {
			t.Errorf("policies are %+v", ps)
		}
		pm.Release()
	})
}

// Limits can become a bucket, and back, while requests are in flight: what they
// took of the one is not given back to the other.
func TestRequestsInFlightOutliveABucketThatBecomesAWindow(t *testing.T) {
	window := heed.Policy{Name: "p", Quota: 3, Window: 10 * time.Second}
	bucket := window
	bucket.Burst = 3
	for _, c := range []struct {
		name  string
		turns []heed.Policy
	}{
		{"window, bucket, window", []heed.Policy{window, bucket, window}},
		{"bucket, window", []heed.Policy{bucket, window}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: unsmoothed})
				defer r.Close()
				meet(t, r, example)
				var flying []*heed.Permit
				for i, p := range c.turns {
					l := unsmoothed
					l.Policies = []heed.Policy{p}
					if err := r.SetLimits(example, l); err != nil {
						t.Fatal(err)
					}
					if i < len(c.turns)-1 {
						flying = append(flying, acquire(t, r, request(example)))
					}
				}
				for _, pm := range flying {
					pm.Observe(answer(200))
					pm.Release()
				}
				time.Sleep(time.Minute)
				if d := r.Check(request(example)); d.Remaining != window.Quota {
					t.Errorf("%d left of %d once all has come back", d.Remaining, window.Quota)
				}
			})
		})
	}
}

func TestPanicOfOnEventKeepsNewLimitsFromNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		r := newRegistry(t, heed.Config{Default: quota(1, time.Hour), OnEvent: func(e heed.Event) {
			if e.Kind == heed.EventAdmitted && armed.CompareAndSwap(true, false) {
				panic(e.Kind)
			}
		}})
		defer r.Close()
		var admitted atomic.Int64
		for i := range 8 {
			url := host(fmt.Sprint("h", i))
			pm := acquire(t, r, request(url))
			pm.Observe(answer(200))
			pm.Release()
			go func() {
				defer func() { _ = recover() }() // whoever comes by tells of it
				defer admitted.Add(1)
				r.Acquire(t.Context(), request(url))
			}()
			synctest.Wait()
		}
		armed.Store(true)
		func() {
			defer func() { _ = recover() }()
			if err := r.SetLimits("*", quota(10, time.Hour)); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if n := admitted.Load(); n != 8 || armed.Load() {
			t.Errorf("%d of 8 were admitted", n)
		}
	})
}

// A size of a bucket says nothing of how many may be in flight.
func TestBurstOfAConcurrencyLimitMeansNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{
			Policies: []heed.Policy{{Quota: 2, Window: time.Minute, Burst: 9, Unit: heed.UnitConcurrentRequests}},
		}})
		meet(t, r, example)
		pm := acquire(t, r, request(example))
		if p := r.Snapshot()[0].Partitions[0].Policies[0]; p.Used != 1 || p.Remaining != 1 {
			t.Errorf("with one in flight: %+v", p)
		}
		err := r.SetLimits("*", heed.Limits{Policies: []heed.Policy{{Quota: 3, Unit: heed.UnitConcurrentRequests}}})
		if p := r.Snapshot()[0].Partitions[0].Policies[0]; err != nil || p.Used != 1 || p.Remaining != 2 {
			t.Errorf("with one in flight of three: %+v, %v", p, err)
		}
		pm.Release()
	})
}

// Policies without a name go on by how long their windows are: what came in the last ten seconds is not known to one of a second.
func TestPoliciesWithoutANameGoOnByTheirWindows(t *testing.T) {
	second, ten := heed.Policy{Quota: 3, Window: time.Second}, heed.Policy{Quota: 5, Window: 10 * time.Second}
	for _, tc := range []struct {
		name          string
		before, after []heed.Policy
	}{
		{"the shorter one goes", []heed.Policy{second, ten}, []heed.Policy{{Quota: 6, Window: 10 * time.Second}}},
		{"they change places and quotas", []heed.Policy{second, ten}, []heed.Policy{{Quota: 6, Window: 10 * time.Second}, {Quota: 4, Window: time.Second}}},
		{"both windows change, too", []heed.Policy{ten, second}, []heed.Policy{{Quota: 4, Window: 500 * time.Millisecond}, {Quota: 6, Window: 9 * time.Second}}},
		{"the window changes, too", []heed.Policy{second, ten}, []heed.Policy{{Quota: 6, Window: 9 * time.Second}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := func(p []heed.Policy) heed.Limits {
					return heed.Limits{Policies: p, Smoothing: heed.Smoothing{Off: true}}
				}
				r := newRegistry(t, heed.Config{Default: limits(tc.before)})
				sent := 0
				all := func() {
					for {
						pm, err := r.Acquire(heed.NoWait(t.Context()), request(example))
						if err != nil {
							return
						}
						done(pm)
						sent++
					}
				}
				all()
				time.Sleep(time.Second)
				all()
				time.Sleep(time.Second)
				if err := r.SetLimits("*", limits(tc.after)); err != nil {
					t.Fatal(err)
				}
				all()
				if sent != 6 {
					t.Errorf("%d sent in two seconds, of 6 in ten", sent)
				}
			})
		})
	}
}

// A dialect that is spoken nowhere is a mistake, and would never be noticed.
func TestOriginOfADialectThatNoneHasIsAnError(t *testing.T) {
	config := func(pattern string) heed.Config {
		return heed.Config{Logger: discard, Dialects: []heed.Dialect{{Name: "acme", Origins: []string{"api.acme.example", pattern}}}}
	}
	for _, pattern := range []string{"", "https://", "http//acme.example", "acme.example/v1", "https://acme.example/", "https://acme.example:443", "http://acme.example:80",
		"acme.example.", "u@acme.example", "a b", "büro.example", "https://*.", "*."} {
		if _, err := heed.NewRegistry(config(pattern)); err == nil || !strings.Contains(err.Error(), `dialect "acme"`) {
			t.Errorf("%q: error is %v", pattern, err)
		}
	}
	for _, pattern := range []string{"*", "https://*", "acme.example", "Acme.Example", "*.acme.example", "https://acme.example", "HTTPS://*.acme.example", "acme.example:8080",
		"acme.example:443", "https://*.acme.example:8443", "127.0.0.1", "[::1]", "[::1]:8080", "http://[::1]:8080", "localhost", "xn--bro-hoa.example"} {
		if _, err := heed.NewRegistry(config(pattern)); err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	own := config("tenant 7")
	own.Origin = func(*http.Request) string { return "tenant 7" }
	if _, err := heed.NewRegistry(own); err != nil {
		t.Errorf("with names of the user's: %v", err)
	}
}
