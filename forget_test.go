package heed_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// known are the origins a registry knows, by the first label of their hosts.
func known(r *heed.Registry) []string {
	names := []string{}
	for _, o := range r.Snapshot() {
		name, _, _ := strings.Cut(strings.TrimPrefix(o.Origin, "https://"), ".")
		names = append(names, name)
	}
	return names
}

func host(name string) string { return "https://" + name + ".example" }

// visit sends a request that is answered.
func visit(t *testing.T, r *heed.Registry, name string, header ...string) {
	t.Helper()
	pm := acquire(t, r, request(host(name)))
	pm.Observe(answer(200, header...))
	pm.Release()
}

func TestIdleOriginsAreForgotten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		use    func(t *testing.T, r *heed.Registry) // of the origin "a"
		kept   time.Duration                        // past which it is forgotten
	}{
		{"used", heed.Limits{}, func(t *testing.T, r *heed.Registry) { visit(t, r, "a") }, time.Hour},
		{"checked", heed.Limits{}, func(t *testing.T, r *heed.Registry) { r.Check(request(host("a"))) }, time.Hour},
		{"paused", heed.Limits{}, func(t *testing.T, r *heed.Registry) { r.Pause(host("a"), 5*time.Hour) }, 5 * time.Hour},
		{"paused, with several credentials", heed.Limits{}, func(t *testing.T, r *heed.Registry) {
			acquire(t, r, request(host("a"), "Authorization", "Bearer a")).Release()
			acquire(t, r, request(host("a"), "Authorization", "Bearer b")).Release()
			r.Pause(host("a"), 5*time.Hour)
		}, 5 * time.Hour},
		{"refused", heed.Limits{MaxRetryAfter: 24 * time.Hour}, func(t *testing.T, r *heed.Registry) {
			pm := acquire(t, r, request(host("a")))
			pm.Observe(answer(429, "Retry-After", "18000"))
			pm.Release()
		}, 5 * time.Hour},
		{"refused for one of its budgets", heed.Limits{MaxRetryAfter: 24 * time.Hour}, func(t *testing.T, r *heed.Registry) {
			pm := acquire(t, r, request(host("a")))
			pm.Observe(answer(429, "X-Ratelimit-Bucket", "b", "Retry-After", "18000"))
			pm.Release()
		}, 5 * time.Hour},
		{"out of service", heed.Limits{MaxRetryAfter: 24 * time.Hour}, func(t *testing.T, r *heed.Registry) {
			pm := acquire(t, r, request(host("a")))
			pm.Observe(answer(503, "Retry-After", "18000"))
			pm.Release()
		}, 5 * time.Hour},
		{"a quota not restored", heed.Limits{MaxRetryAfter: 24 * time.Hour}, func(t *testing.T, r *heed.Registry) {
			visit(t, r, "a", "RateLimit-Policy", `"p";q=10;w=18000`, "RateLimit", `"p";r=2;t=18000`)
		}, 5 * time.Hour},
		{"a configured quota not restored", heed.Limits{Policies: []heed.Policy{{Quota: 10, Window: 5 * time.Hour}}},
			func(t *testing.T, r *heed.Registry) { visit(t, r, "a") }, 5 * time.Hour},
		{"a bucket not full", heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: 5 * time.Hour, Burst: 2}}},
			func(t *testing.T, r *heed.Registry) { visit(t, r, "a") }, 5 * time.Hour},
		{"MinInterval runs", heed.Limits{MinInterval: 5 * time.Hour}, func(t *testing.T, r *heed.Registry) { visit(t, r, "a") }, 5 * time.Hour},
		{"MinPause runs", heed.Limits{MinPause: 5 * time.Hour}, func(t *testing.T, r *heed.Registry) { visit(t, r, "a") }, 5 * time.Hour},
		{"an interval asked for runs", heed.Limits{}, func(t *testing.T, r *heed.Registry) {
			pm, err := r.Acquire(heed.WithMinInterval(t.Context(), 5*time.Hour), request(host("a")))
			if err != nil {
				t.Fatal(err)
			}
			pm.Release()
		}, 5 * time.Hour},
		{"in flight", heed.Limits{}, func(t *testing.T, r *heed.Registry) {
			pm := acquire(t, r, request(host("a")))
			time.AfterFunc(5*time.Hour, pm.Release)
		}, 6 * time.Hour},
		{"waiting", heed.Limits{MaxConcurrent: 1}, func(t *testing.T, r *heed.Registry) {
			pm := acquire(t, r, request(host("a")))
			pm.Observe(answer(200))
			go func() {
				pm, err := r.Acquire(t.Context(), request(host("a"), "Authorization", "Bearer b"))
				if err != nil {
					t.Error(err)
				} else {
					pm.Release()
				}
			}()
			time.AfterFunc(5*time.Hour, pm.Release)
		}, 6 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				forgotten := 0
				r := newRegistry(t, heed.Config{Origins: map[string]heed.Limits{host("a"): tc.limits}, OnEvent: func(e heed.Event) {
					if e.Kind == heed.EventForgotten && e.Origin == host("a") {
						forgotten++
					}
				}})
				tc.use(t, r)
				for at := time.Duration(0); at < 10*time.Hour; at += 5 * time.Minute {
					time.Sleep(5 * time.Minute)
					visit(t, r, "b") // whoever comes by looks
					if kept := slices.Contains(known(r), "a"); at+5*time.Minute < tc.kept && !kept {
						t.Fatalf("forgotten after %v, want %v", at+5*time.Minute, tc.kept)
					} else if at > tc.kept+30*time.Minute && kept {
						t.Fatalf("still known after %v, want %v", at, tc.kept)
					}
				}
				synctest.Wait()
				if forgotten != 1 {
					t.Errorf("%d events tell that it was forgotten", forgotten)
				}
			})
		})
	}
}

func TestNumberOfOriginsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{MaxOrigins: 100})
		for i := range 1000 {
			visit(t, r, fmt.Sprint("host", i))
			time.Sleep(time.Second)
			if n := len(r.Snapshot()); n > 100 {
				t.Fatalf("%d origins known, want 100 at the most", n)
			}
		}
		names := known(r)
		for i := 910; i < 1000; i++ {
			if !slices.Contains(names, fmt.Sprint("host", i)) {
				t.Errorf("host%d is forgotten, and older ones are not: %v", i, names)
			}
		}
	})
}

func TestSquareOneAfterBeingForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{MaxOrigins: 1})
		visit(t, r, "a")
		visit(t, r, "b")
		visit(t, r, "a")
		if got := known(r); !slices.Equal(got, []string{"a"}) {
			t.Errorf("known are %v", got)
		}
		if got := r.Snapshot()[0].Partitions[0].Opening; got == 0 {
			t.Error("nobody scouts")
		}
	})
}

// Who goes first where there are too many: those idle, longest first, without
// a word; then those soonest restored, with a warning; never those in use.
func TestWhoIsForgottenAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log records
		r := newRegistry(t, heed.Config{MaxOrigins: 5, Logger: slog.New(&log), Default: heed.Limits{MaxRetryAfter: 24 * time.Hour}})
		expect := func(want ...string) {
			t.Helper()
			if got := known(r); !slices.Equal(got, want) {
				t.Errorf("known are %v, want %v", got, want)
			}
		}
		busy := acquire(t, r, request(host("busy")))
		visit(t, r, "late", "RateLimit-Policy", `"p";q=10;w=20000`, "RateLimit", `"p";r=2;t=20000`)
		r.Pause(host("soon"), time.Hour)
		visit(t, r, "idle1")
		time.Sleep(time.Second)
		visit(t, r, "idle2")
		time.Sleep(time.Second)
		visit(t, r, "idle1")
		expect("busy", "idle1", "idle2", "late", "soon")
		visit(t, r, "new1")
		expect("busy", "idle1", "late", "new1", "soon")
		r.Pause(host("new1"), 2*time.Hour)
		visit(t, r, "new2")
		expect("busy", "late", "new1", "new2", "soon")
		if n := log.count(slog.LevelWarn); n != 0 {
			t.Errorf("%d warnings", n)
		}
		r.Pause(host("new2"), 3*time.Hour)
		acquire(t, r, request(host("new3")))
		expect("busy", "late", "new1", "new2", "new3")
		if n := log.count(slog.LevelWarn); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		acquire(t, r, request(host("new4")))
		acquire(t, r, request(host("new5")))
		expect("busy", "late", "new3", "new4", "new5")
		acquire(t, r, request(host("new6")))
		acquire(t, r, request(host("new7")))
		expect("busy", "new3", "new4", "new5", "new6", "new7") // in use, all of them
		if n := log.count(slog.LevelWarn); n > 2 {
			t.Errorf("%d warnings within a second", n)
		}
		busy.Release()
	})
}

// A registry that is dropped, or closed, leaves nothing running: the bubble
// would not end.
func TestNothingRunsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		visit(t, r, "a")
		r.Pause(host("b"), time.Hour)
		began := time.Now()
		synctest.Wait()
		if time.Since(began) != 0 {
			t.Error("something waited")
		}
	})
}

// Nobody is told of a pause that holds nothing.
func TestPermitOfAForgottenOriginLearnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		r := newRegistry(t, heed.Config{IdleAfter: time.Second, OnEvent: func(heed.Event) { told++ }})
		pm := acquire(t, r, request(example))
		done(pm)
		time.Sleep(10 * time.Second)
		if s := r.Snapshot(); len(s) > 0 { // which forgets
			t.Fatalf("%d origins", len(s))
		}
		told = 0
		pm.Learn(heed.Announcement{Refused: true, RetryAfter: time.Minute})
		if d := r.Check(request(example)); told > 0 || !d.Allowed {
			t.Errorf("%d events told, and then %+v", told, d)
		}
	})
}
