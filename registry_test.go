package heed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// quota is a limit that is kept to exactly, without pacing.
func quota(n int64, window time.Duration) heed.Limits {
	return heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: n, Window: window}}, Smoothing: heed.Smoothing{Off: true}}
}

// What is learned from a body holds as if a field had said it.
func TestLearnedFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		pm.Learn(heed.Announcement{
			Policies: []heed.Policy{{Name: "points", Quota: 5, Window: time.Minute}},
			Limits:   []heed.ServiceLimit{{Policy: "points", Remaining: 0, Reset: 30 * time.Second}},
		})
		pm.Release()
		if d := r.Check(request(example)); d.Allowed || d.Policy != "points" || d.Wait < 30*time.Second || d.Cause != heed.CausePolicy {
			t.Errorf("Check() = %+v", d)
		}
		pm2 := acquire(t, r, request(host("other")))
		pm2.Learn(heed.Announcement{Refused: true, RetryAfter: 10 * time.Second})
		pm2.Release()
		if d := r.Check(request(host("other"))); d.Allowed || d.Cause != heed.CausePause || d.Wait < 10*time.Second {
			t.Errorf("Check() = %+v", d)
		}
	})
}

func TestCheckTellsWhatHolds(t *testing.T) {
	hold := func(t *testing.T, r *heed.Registry) { acquire(t, r, request(example)).Observe(answer(200)) }
	spend := func(t *testing.T, r *heed.Registry) {
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		pm.Release()
	}
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		before func(*testing.T, *heed.Registry)
		ctx    func(context.Context) context.Context
		want   heed.Decision
	}{
		{"nothing", heed.Limits{}, func(*testing.T, *heed.Registry) {}, nil, heed.Decision{Allowed: true, Remaining: -1}},
		{"something left", quota(3, time.Minute), spend, nil, heed.Decision{Allowed: true, Remaining: 2}},
		{"a policy", quota(1, time.Minute), spend, nil, heed.Decision{Cause: heed.CausePolicy, Policy: "p", Wait: time.Minute}},
		{"a policy, all in flight", quota(1, time.Minute), hold, nil, heed.Decision{Cause: heed.CausePolicy, Policy: "p", Wait: time.Minute}},
		{"a cost", quota(3, time.Minute), spend, func(ctx context.Context) context.Context { return heed.WithCost(ctx, heed.UnitRequests, 3) },
			heed.Decision{Cause: heed.CausePolicy, Policy: "p", Wait: time.Minute, Remaining: 2}},
		{"a cost of nothing", quota(1, time.Minute), spend, func(ctx context.Context) context.Context { return heed.WithCost(ctx, "", 0) },
			heed.Decision{Allowed: true, Remaining: 0}},
		{"a bucket", heed.Limits{Policies: []heed.Policy{{Name: "b", Quota: 60, Window: time.Minute, Burst: 1}}}, spend, nil,
			heed.Decision{Cause: heed.CausePolicy, Policy: "b", Wait: time.Second + 1}},
		{"a pause", heed.Limits{}, func(t *testing.T, r *heed.Registry) { spend(t, r); r.Pause(example, time.Minute) }, nil,
			heed.Decision{Cause: heed.CausePause, Wait: time.Minute, Remaining: -1}},
		{"an interval", heed.Limits{MinInterval: time.Minute}, spend, nil, heed.Decision{Cause: heed.CauseInterval, Wait: time.Minute, Remaining: -1}},
		{"an interval asked for", heed.Limits{}, spend, func(ctx context.Context) context.Context { return heed.WithMinInterval(ctx, time.Minute) },
			heed.Decision{Cause: heed.CauseInterval, Wait: time.Minute, Remaining: -1}},
		{"a pause between requests", heed.Limits{MinPause: time.Minute}, spend, nil, heed.Decision{Cause: heed.CauseInterval, Wait: time.Minute, Remaining: -1}},
		{"a request before the pause", heed.Limits{MinPause: time.Minute}, hold, nil, heed.Decision{Cause: heed.CauseInterval, Wait: time.Minute, Remaining: -1}},
		{"concurrency", heed.Limits{MaxConcurrent: 1}, hold, nil, heed.Decision{Cause: heed.CauseConcurrency, Remaining: -1}},
		{"a concurrency policy", heed.Limits{Policies: []heed.Policy{{Name: "c", Quota: 1, Unit: heed.UnitConcurrentRequests}}}, hold, nil,
			heed.Decision{Cause: heed.CausePolicy, Policy: "c"}},
		{"too dear for a concurrency policy", heed.Limits{Policies: []heed.Policy{{Name: "c", Quota: 2, Unit: heed.UnitConcurrentRequests}}}, spend,
			func(ctx context.Context) context.Context { return heed.WithCost(ctx, heed.UnitConcurrentRequests, 3) },
			heed.Decision{Cause: heed.CausePolicy, Policy: "c", Remaining: 2}},
		{"a scout", heed.Limits{}, func(t *testing.T, r *heed.Registry) { acquire(t, r, request(example)) }, nil,
			heed.Decision{Cause: heed.CauseScout, Remaining: -1}},
		{"others", heed.Limits{Smoothing: heed.Smoothing{Off: true}, Policies: []heed.Policy{{Name: "p", Quota: 2, Window: time.Minute}}},
			func(t *testing.T, r *heed.Registry) {
				spend(t, r)
				start(heed.WithCost(t.Context(), "", 2), r, request(example))
			}, nil, heed.Decision{Cause: heed.CausePolicy, Policy: "p", Wait: time.Minute, Remaining: 1}},
		{"others, and I am free", quota(1, time.Minute), func(t *testing.T, r *heed.Registry) {
			spend(t, r)
			start(t.Context(), r, request(example))
		}, func(ctx context.Context) context.Context { return heed.WithCost(ctx, "", 0) },
			heed.Decision{Cause: heed.CausePolicy, Policy: "p", Wait: time.Minute}},
		{"nothing, ahead of others", quota(2, time.Minute), func(t *testing.T, r *heed.Registry) {
			spend(t, r)
			start(heed.WithCost(t.Context(), "", 2), r, request(example))
		}, func(ctx context.Context) context.Context { return heed.WithPriority(ctx, heed.PriorityHigh) }, heed.Decision{Allowed: true, Remaining: 1}},
		{"the smoother", heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 60, Window: time.Minute}}, Smoothing: heed.Smoothing{Strict: true, Velocity: 1, Interval: 1}},
			spend, nil, heed.Decision{Cause: heed.CauseSmoother, Policy: "p", Wait: time.Second + 1, Remaining: 59}},
		{"heed steps aside", heed.Limits{Unlimited: true}, func(t *testing.T, r *heed.Registry) { r.Pause(example, time.Hour) }, nil,
			heed.Decision{Allowed: true, Remaining: -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Origins: map[string]heed.Limits{example: tc.limits}})
				defer r.Close()
				tc.before(t, r)
				req := request(example)
				if tc.ctx != nil {
					req = req.WithContext(tc.ctx(t.Context()))
				}
				for range 3 { // it takes nothing
					if got := r.Check(req); got != tc.want {
						t.Errorf("Check() = %+v, want %+v", got, tc.want)
					}
				}
				if pm, err := r.Acquire(heed.NoWait(req.Context()), req); err == nil != tc.want.Allowed {
					t.Errorf("Acquire() = %v, %v", pm, err)
				} else if err != nil {
					if le := limitErr(t, err); le.Cause != tc.want.Cause || le.Policy != tc.want.Policy || le.Wait != tc.want.Wait || le.Origin != example {
						t.Errorf("Acquire() = %#v, Check found %+v", le, tc.want)
					}
				}
			})
		})
	}
}

// The race detector sees to it.
func TestCheckMayMeetAPolicyThatChanges(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	pm := acquire(t, r, request(example))
	defer pm.Release()
	announce := func(quota int64) {
		pm.Learn(heed.Announcement{Policies: []heed.Policy{{Name: "slots", Unit: heed.UnitConcurrentRequests, Quota: quota}}})
	}
	announce(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(100) {
			announce(1 + i%2)
		}
	}()
	dear := request(example)
	dear = dear.WithContext(heed.WithCost(dear.Context(), heed.UnitConcurrentRequests, 3))
	for range 100 {
		if d := r.Check(dear); d.Allowed || d.Policy != "slots" {
			t.Fatalf("%+v, want it held by the slots it never fits into", d)
		}
	}
	<-done
}

func TestSnapshotIsPlainData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Origins: map[string]heed.Limits{host("b"): {
			Policies: []heed.Policy{{Name: "own", Quota: 5, Window: time.Minute, Burst: 7}}, MaxConcurrent: 1,
		}}})
		defer r.Close()
		pm := acquire(t, r, request(host("b")+"/slow?secret=1"))
		pm.Observe(answer(200, "RateLimit-Policy", `"p";q=10;w=60, "odd";q=3;w=60;qu="points"`, "RateLimit", `"p";r=2;t=30`))
		time.Sleep(time.Second)
		start(t.Context(), r, request(host("b")))
		r.Pause(host("a"), time.Minute)
		time.Sleep(time.Second)
		got := r.Snapshot()
		want := []heed.OriginState{
			{Origin: host("a"), Paused: 59 * time.Second, PauseCause: "manual", LastUsedAgo: time.Second,
				Partitions: []heed.PartitionState{{Policies: []heed.PolicyState{}, Opening: 1}}},
			{Origin: host("b"), InFlight: 1, Waiting: 1, Held: 2 * time.Second, HeldBy: "/slow", LastUsedAgo: time.Second,
				Partitions: []heed.PartitionState{{InFlight: 1, Waiting: 1, Policies: []heed.PolicyState{
					{Name: "own", Source: heed.SourceConfigured, Unit: heed.UnitRequests, Quota: 5, Window: time.Minute, Burst: 7, Used: 1, Remaining: 6},
					{Name: "p", Source: heed.SourceAnnounced, Unit: heed.UnitRequests, Quota: 10, Window: time.Minute, Used: 8, Remaining: 2, Reset: 28 * time.Second},
					{Name: "odd", Source: heed.SourceAnnounced, Unit: "points", Quota: 3, Window: time.Minute, Remaining: -1},
				}}}},
		}
		text := func(v any) string {
			b, err := json.MarshalIndent(v, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if text(got) != text(want) {
			t.Errorf("Snapshot() is\n%s\nwant\n%s", text(got), text(want))
		}
		var back []heed.OriginState
		if err := json.Unmarshal([]byte(text(got)), &back); err != nil || text(back) != text(got) {
			t.Errorf("decoded it is %+v, %v", back, err)
		}
		if empty := newRegistry(t, heed.Config{}).Snapshot(); text(empty) != "[]" {
			t.Errorf("without origins it is %s", text(empty))
		}
	})
}

// A refusal that names a budget pauses that one alone.
func TestSnapshotShowsWhichBudgetsArePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		use := func(path, budget string, status int, header ...string) {
			pm := acquire(t, r, request(example+path))
			pm.Observe(answer(status, append(header, "X-RateLimit-Resource", budget, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "50",
				"X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10))...))
			pm.Release()
		}
		buckets := func() []heed.BucketState { return r.Snapshot()[0].Partitions[0].Buckets }
		use("/core", "core", 200)
		use("/search", "search", 200)
		if got := buckets(); got != nil {
			t.Errorf("nothing waits, and the snapshot has %+v", got)
		}
		use("/search", "search", 429, "Retry-After", "30")
		time.Sleep(time.Second)
		first, second := start(t.Context(), r, request(example+"/search")), start(t.Context(), r, request(example+"/search"))
		want := []heed.BucketState{{Bucket: "search", Waiting: 2, Paused: r.Check(request(example + "/search")).Wait, PauseCause: "refused"}}
		if got := buckets(); !slices.Equal(got, want) || want[0].Paused < 29*time.Second {
			t.Errorf("buckets are %+v, want %+v", got, want)
		}
		text, err := json.Marshal(buckets())
		var back []heed.BucketState
		if err != nil || json.Unmarshal(text, &back) != nil || !slices.Equal(back, want) {
			t.Errorf("as JSON it is %s, %v", text, err)
		}
		if p := r.Snapshot()[0].Partitions[0]; p.Paused > 0 || r.Snapshot()[0].Paused > 0 || !r.Check(request(example+"/core")).Allowed {
			t.Errorf("others are held, too: %+v", p)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := buckets(); got != nil || !first.done() || first.err != nil {
			t.Errorf("once the pause is over it is %+v; %v", got, first.err)
		}
		first.permit.Release()
		synctest.Wait()
		if second.done() {
			second.permit.Release()
		}
	})
}

// What was left of a window that is over says nothing of the one to come.
func TestWhatIsLeftIsShownAsTheNextRequestWillFindIt(t *testing.T) {
	for name, fields := range map[string][]string{
		"reset":    {"RateLimit-Policy", `"q";q=10;w=5`, "RateLimit", `"q";r=1;t=3`},
		"no reset": {"RateLimit-Policy", `"q";q=10;w=5`, "RateLimit", `"q";r=1`},
		"no more":  {"RateLimit-Policy", `"q";q=10;w=5`, "RateLimit", `"q";r=0;t=3`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				pm := acquire(t, r, request(example))
				pm.Observe(answer(200, fields...))
				pm.Release()
				if left := policies(r)["q"].Remaining; left > 1 {
					t.Errorf("%d of 10 are shown as left, want what was said", left)
				}
				time.Sleep(time.Minute)
				for range 2 {
					if p := policies(r)["q"]; p.Remaining != 10 || p.Used != 0 {
						t.Errorf("Snapshot() = %+v", p)
					}
					if left := pm.Remaining(); left != 10 {
						t.Errorf("Remaining() = %d", left)
					}
					if d := r.Check(request(example)); !d.Allowed || d.Remaining != 10 {
						t.Errorf("Check() = %+v", d)
					}
				}
			})
		})
	}
}

// A request that is one of many may have to wait where one by itself would not, and the other way round.
func TestCheckTakesTheRequestForOneMoreOfThoseThatCame(t *testing.T) {
	for _, gap := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			for left := 2; left > 0; left-- {
				exchange(t, r, "RateLimit-Policy", `"q";q=10;w=5`, "RateLimit", fmt.Sprintf(`"q";r=%d;t=2`, left))
				time.Sleep(gap)
			}
			d := r.Check(request(example))
			began := time.Now()
			exchange(t, r)
			if waited := time.Since(began); waited != d.Wait {
				t.Errorf("%v after the one before it waited for %v, Check() = %+v", gap, waited, d)
			}
		})
	}
}

func TestSnapshotShowsNoTokenOfAPath(t *testing.T) {
	for path, shown := range map[string]string{
		"/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getUpdates": "/*/getUpdates",
		"/services/T00000000/B00000000/1vGWJxfSeofSAs0K5PALDsaw":      "/services/T00000000/B00000000/*",
		"/repos/golang/go/issues/4242":                                "/repos/golang/go/issues/4242",
		"/a-report-with-a-name-in-words/":                             "/a-report-with-a-name-in-words/",
	} {
		r := newRegistry(t, heed.Config{})
		acquire(t, r, request(example+path))
		if got := r.Snapshot()[0].HeldBy; got != shown {
			t.Errorf("%s is shown as %q, want %q", path, got, shown)
		}
	}
}

func TestCheckTellsWhatIsLeftInTheWindowThatTheRequestBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		exchange(t, r, "RateLimit-Policy", `"p";q=10;w=10`, "RateLimit", `"p";r=3;t=10`)
		acquire(t, r, request(example)) // is not over when the window is
		time.Sleep(10 * time.Second)
		req := request(example)
		req = req.WithContext(heed.WithCost(req.Context(), heed.UnitRequests, 5)) // more than was left
		if first, second := r.Check(req), r.Check(req); !first.Allowed || first != second {
			t.Errorf("Check() = %+v, and again: %+v", first, second)
		}
	})
}

// No velocity makes a number that JSON does not have.
func TestSnapshotOfAnAbsurdPaceEncodesToJSON(t *testing.T) {
	l := quota(100, time.Second)
	l.Smoothing = heed.Smoothing{Strict: true, Velocity: math.MaxFloat64}
	r := newRegistry(t, heed.Config{Default: l})
	meet(t, r, example)
	if _, err := json.Marshal(r.Snapshot()); err != nil {
		t.Error(err)
	}
}

// One origin's trouble is not another's.
func TestOriginsNeverWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enter := make(chan struct{})
		r := newRegistry(t, heed.Config{
			Default: quota(1, time.Hour),
			OnEvent: func(e heed.Event) {
				if e.Origin == host("slow") && e.Kind == heed.EventAnswered {
					<-enter // whoever is told of this one's events takes long
				}
			},
		})
		defer r.Close()
		acquire(t, r, request(host("spent"))).Release()
		w := start(t.Context(), r, request(host("spent")))
		go visit(t, r, "slow")
		synctest.Wait()
		for i := range 100 {
			visit(t, r, fmt.Sprint("host", i))
		}
		r.Snapshot()
		if r.Check(request(host("slow"))).Allowed { // not even its own events hold it up
			t.Error("a second request may go")
		}
		if w.done() {
			t.Error("the spent origin lets one go")
		}
		close(enter)
	})
}

// What a request would wait for that went after others of another credential is not what holds it now.
func TestCheckSaysWhatNoWaitMeets(t *testing.T) {
	const other = "Bearer another"
	for name, c := range map[string]struct {
		limits heed.Limits
		before func(*testing.T, *heed.Registry)
		goes   bool
	}{
		"others are held by a limit of their own": {
			heed.Limits{MinInterval: time.Second, Policies: []heed.Policy{{Quota: 1, Unit: heed.UnitConcurrentRequests}}},
			func(t *testing.T, r *heed.Registry) {
				acquire(t, r, request(example, "Authorization", other))
				start(heed.WithCost(t.Context(), heed.UnitRequests, 0), r, request(example, "Authorization", other))
				time.Sleep(time.Second)
			}, true,
		},
		"another has waited for its longer interval": {
			heed.Limits{},
			func(t *testing.T, r *heed.Registry) {
				acquire(t, r, request(example)).Release()
				start(heed.WithMinInterval(t.Context(), time.Second), r, request(example, "Authorization", other))
				time.Sleep(900 * time.Millisecond)
				acquire(t, r, request(example)).Release()
				time.Sleep(700 * time.Millisecond)
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: c.limits})
				meet(t, r, example)
				time.Sleep(time.Minute)
				c.before(t, r)
				synctest.Wait()
				req := request(example).WithContext(heed.NoWait(t.Context()))
				d := r.Check(req)
				_, err := r.Acquire(req.Context(), req)
				if d.Allowed != c.goes || (err == nil) != c.goes {
					t.Errorf("Check says %+v, NoWait gets %v", d, err)
				}
				r.Close()
			})
		})
	}
}

func TestCheckSaysWhatAClosedRegistryWould(t *testing.T) {
	r := newRegistry(t, heed.Config{Origins: map[string]heed.Limits{host("free"): {Unlimited: true}}})
	visit(t, r, "host")
	r.Close()
	for _, name := range []string{"host", "free"} {
		if d := r.Check(request(host(name))); d.Allowed || !errors.Is(d.Err, heed.ErrClosed) || d.Remaining != -1 {
			t.Errorf("%s: %+v", name, d)
		}
	}
	untouched := request(host("host"))
	if d := r.Check(untouched.WithContext(heed.Bypass(t.Context()))); !d.Allowed || d.Err != nil { // as Acquire
		t.Errorf("%+v", d)
	}
}

// A panic in the user's function leaves nothing behind: no lock, no permit,
// nobody in line.
func TestPanicInOnEventLeaksNothing(t *testing.T) {
	for _, kind := range []heed.Kind{heed.EventWaiting, heed.EventAdmitted, heed.EventAnswered, heed.EventRefused, heed.EventPaused, heed.EventResumed, heed.EventLearned, heed.EventForgotten} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				armed, panics := true, 0
				r := newRegistry(t, heed.Config{
					Default: quota(1, time.Minute), MaxOrigins: 2,
					OnEvent: func(e heed.Event) {
						if armed && e.Kind == kind {
							panics++
							panic("user's")
						}
					},
				})
				try := func(ctx context.Context, req *http.Request, header ...string) {
					var pm *heed.Permit
					defer func() {
						recover()
						if pm != nil {
							defer func() { recover() }()
							pm.Release()
						}
					}()
					var err error
					if pm, err = r.Acquire(ctx, req); err != nil {
						return
					}
					status := 200
					if len(header) > 0 {
						status = 429
					}
					pm.Observe(answer(status, header...))
				}
				for _, name := range []string{"a", "b", "a", "c", "a"} {
					try(t.Context(), request(host(name)))
					go try(t.Context(), request(host(name))) // waits
					synctest.Wait()
					try(t.Context(), request(host(name)), "Retry-After", "10", "RateLimit-Policy", `"q";q=5;w=7`)
					func() {
						defer func() { recover() }()
						r.Pause(host(name), time.Minute)
					}()
					time.Sleep(2 * time.Minute)
				}
				if panics == 0 {
					t.Error("nothing panicked")
				}
				armed = false
				for _, s := range r.Snapshot() {
					if s.InFlight != 0 || s.Waiting != 0 {
						t.Errorf("left behind: %+v", s)
					}
				}
				time.Sleep(time.Hour)
				for _, name := range []string{"a", "b", "c"} {
					visit(t, r, name)
				}
				if n := len(r.Snapshot()); n > 2 {
					t.Errorf("%d origins known, want 2", n)
				}
			})
		})
	}
}

// The user's functions may call the registry.
func TestUserFunctionsMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *heed.Registry
		peek := func() {
			if r != nil {
				r.Snapshot()
			}
		}
		inside := false
		r = newRegistry(t, heed.Config{
			MaxOrigins: 2,
			Origin:     func(req *http.Request) string { peek(); return heed.OriginOf(req.URL) },
			Partition:  func(*http.Request) string { peek(); return "" },
			OnEvent: func(e heed.Event) {
				peek()
				if !inside {
					inside = true
					r.Check(request(e.Origin))
					r.SetLimits(e.Origin, heed.Limits{})
					inside = false
				}
			},
		})
		for _, name := range []string{"a", "b", "c"} {
			visit(t, r, name)
			req := request(host("d"))
			req.Response = &http.Response{Request: request(host(name))} // a redirect
			pm, err := r.Acquire(heed.WithCost(t.Context(), "", 2), req)
			if err != nil {
				t.Fatal(err)
			}
			pm.Release()
		}
	})
}

func TestDeadContextGetsNoPermit(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := r.Acquire(ctx, request(example)); err != cause {
		t.Errorf("Acquire() = %v, want the cause", err)
	}
	if s := r.Snapshot(); len(s) != 0 {
		t.Errorf("Snapshot() = %+v", s)
	}
}
