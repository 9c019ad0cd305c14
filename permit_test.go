package heed_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

func TestPermitsCanBeEndedTwice(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  []func(*heed.Permit)
		left int64 // of 10
	}{
		{"released", []func(*heed.Permit){(*heed.Permit).Release, (*heed.Permit).Release}, 9},
		{"cancelled", []func(*heed.Permit){(*heed.Permit).Cancel, (*heed.Permit).Cancel}, 10},
		{"released, then cancelled", []func(*heed.Permit){(*heed.Permit).Release, (*heed.Permit).Cancel}, 9},
		{"cancelled, then released", []func(*heed.Permit){(*heed.Permit).Cancel, (*heed.Permit).Release}, 10},
		{"answered, then cancelled", []func(*heed.Permit){observe(200), (*heed.Permit).Cancel, (*heed.Permit).Cancel}, 9},
		{"answered twice", []func(*heed.Permit){observe(200), observe(200), (*heed.Permit).Release, observe(200)}, 9},
		{"answered late", []func(*heed.Permit){(*heed.Permit).Release, observe(200)}, 9},
		{"answered late, cancelled", []func(*heed.Permit){(*heed.Permit).Cancel, observe(200)}, 10},
		{"answered from a cache", []func(*heed.Permit){func(pm *heed.Permit) { pm.Observe(answer(200, "Age", "7")) }, (*heed.Permit).Release, (*heed.Permit).Cancel}, 10},
		{"taught", []func(*heed.Permit){learn, (*heed.Permit).Release, learn}, 9},
	} {
		for _, l := range []heed.Limits{
			quota(10, time.Minute),
			{Policies: []heed.Policy{{Name: "p", Quota: 10, Window: time.Minute, Burst: 10}}},
		} {
			t.Run(fmt.Sprint(tc.name, " ", l.Policies[0].Burst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRegistry(t, heed.Config{Default: l})
					pm := acquire(t, r, request(example))
					if d := r.Check(request(example)); d.Remaining != 9 {
						t.Errorf("%d left with one in flight", d.Remaining)
					}
					for _, end := range tc.end {
						end(pm)
					}
					if d := r.Check(request(example)); d.Remaining != tc.left || pm.Remaining() != tc.left {
						t.Errorf("%d left, want %d", d.Remaining, tc.left)
					}
					if s := r.Snapshot()[0]; s.InFlight != 0 || s.Partitions[0].InFlight != 0 {
						t.Errorf("in flight: %+v", s)
					}
				})
			})
		}
	}
}

func observe(status int, header ...string) func(*heed.Permit) {
	return func(pm *heed.Permit) { pm.Observe(answer(status, header...)) }
}

func learn(pm *heed.Permit) {
	pm.Learn(heed.Announcement{Policies: []heed.Policy{{Name: "q", Quota: 100, Window: time.Hour}}})
}

func TestObserveReportsWhatTheAnswerSays(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	pm := acquire(t, r, request(example))
	a := pm.Observe(answer(200, "RateLimit-Policy", `"q";q=100;w=60`, "RateLimit", `"q";r=42;t=30`))
	if a.Dialect != "ietf-11" || len(a.Policies) != 1 || len(a.Limits) != 1 || a.Limits[0].Remaining != 42 {
		t.Errorf("Observe() = %+v", a)
	}
	if pm.Remaining() != 42 {
		t.Errorf("Remaining() = %d", pm.Remaining())
	}
	if pm := acquire(t, r, request(host("other"))); pm.Remaining() != -1 {
		t.Errorf("Remaining() = %d where nothing is known", pm.Remaining())
	}
}

func TestSecondAnswerTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		if a := pm.Observe(answer(429, "Retry-After", "60")); !a.Refused {
			t.Errorf("Observe() = %+v", a)
		}
		if d := r.Check(request(example)); !d.Allowed {
			t.Errorf("Check() = %+v", d)
		}
		if n := r.Snapshot()[0].Refusals; n != 0 {
			t.Errorf("%d refusals", n)
		}
	})
}

// After Observe, Cancel is Release.
func TestCancelAfterAnAnswerKeepsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{MinInterval: time.Minute}})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		pm.Cancel()
		if d := r.Check(request(example)); d.Cause != heed.CauseInterval || d.Wait != time.Minute {
			t.Errorf("Check() = %+v", d)
		}
	})
}

// A request that was not sent leaves its turn to the next.
func TestCancelGivesBackItsTurnUnderAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{
			Policies:  []heed.Policy{{Name: "p", Quota: 60, Window: time.Minute}},
			Smoothing: heed.Smoothing{Strict: true},
		}})
		meet(t, r, example)
		pm := acquire(t, r, request(example))
		if d := r.Check(request(example)); d.Cause != heed.CauseSmoother {
			t.Fatalf("Check() = %+v", d)
		}
		pm.Cancel()
		if d := r.Check(request(example)); !d.Allowed {
			t.Errorf("Check() = %+v", d)
		}
	})
}

// One that did not wait for its turn has none to give back.
func TestCancelledRequestThatDidNotWaitBringsOthersNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 60, Window: time.Minute}}}})
		before := r.Check(request(example))
		for range 60 {
			if before.Cause == heed.CauseSmoother {
				break
			}
			exchange(t, r)
			before = r.Check(request(example))
		}
		if before.Cause != heed.CauseSmoother {
			t.Fatalf("Check() = %+v", before)
		}
		pm, err := r.Acquire(heed.NoWait(t.Context()), request(example))
		if err != nil {
			t.Fatal(err)
		}
		pm.Cancel()
		if after := r.Check(request(example)); after != before {
			t.Errorf("Check() = %+v, was %+v", after, before)
		}
	})
}

// Where there is no answer, whoever observes it all the same changes nothing.
// All methods of a permit may be called from any goroutine, and twice.
func TestObserveTwiceAtOnceHoldsNobodyForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		defer r.Close()
		meet(t, r, example)
		pm := acquire(t, r, request(example))
		for range 2 {
			body, document := io.Pipe()
			go func() {
				time.Sleep(100 * time.Millisecond)
				io.WriteString(document, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded"}`)
				document.Close()
			}()
			go func() {
				resp := answer(429, "Content-Type", "application/problem+json", "Retry-After", "2")
				resp.Body = body
				pm.Observe(resp)
			}()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		pm.Release()
		goesWithin(t, r, 5*time.Second)
	})
}

func TestObserveOfNoAnswer(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	pm := acquire(t, r, request(example))
	if a := pm.Observe(nil); a.Refused || a.Policies != nil {
		t.Errorf("got %+v", a)
	}
	if a := pm.Observe(answer(429)); !a.Refused {
		t.Errorf("then got %+v", a)
	}
	pm.Release()
	if o := r.Snapshot()[0]; o.InFlight != 0 || o.Refusals != 1 {
		t.Errorf("%d in flight, %d refusals", o.InFlight, o.Refusals)
	}
}
