package heed_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// stream keeps the events of a registry, in a few words each.
type stream struct {
	mu   sync.Mutex
	said []string
}

func (s *stream) hear(e heed.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprint(e.Kind)
	switch e.Kind {
	case heed.EventWaiting:
		text += fmt.Sprintf(" %v %v %v queue %d", e.Cause, e.Policy, e.Wait, e.Queue)
	case heed.EventAdmitted:
		text += fmt.Sprintf(" after %v, %v in all", e.Wait, e.Total)
	case heed.EventAnswered, heed.EventRefused:
		text += fmt.Sprintf(" %d in %v, %d left", e.Status, e.Latency, e.Remaining)
	case heed.EventPaused:
		text += fmt.Sprintf(" %v %v timed %v manual %v whole %v capped %v", e.Cause, e.Wait.Truncate(time.Second), e.Timed, e.Manual, e.Whole, e.Capped)
	case heed.EventResumed:
		text += fmt.Sprintf(" manual %v whole %v", e.Manual, e.Whole)
	case heed.EventLearned:
		text += fmt.Sprintf(" %s %d %v", e.Policy, e.Quota, e.Window)
	}
	if e.Partition > 0 {
		text += fmt.Sprint(" #", e.Partition)
	}
	s.said = append(s.said, text)
}

func (s *stream) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.said
	s.said = nil
	return said
}

func TestEventsTellWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		r := newRegistry(t, heed.Config{OnEvent: s.hear, Origins: map[string]heed.Limits{example: quota(1, time.Minute)}})
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := s.take(); !slices.Equal(got, want) {
				t.Errorf("events are\n%q, want\n%q", got, want)
			}
		}
		pm := acquire(t, r, request(example))
		expect("admitted after 0s, 0s in all")
		time.Sleep(time.Second)
		pm.Observe(answer(200, "RateLimit-Policy", `"q";q=10;w=60`, "RateLimit", `"q";r=9;t=60`))
		expect("learned q 10 1m0s", "answered 200 in 1s, 0 left")
		pm.Observe(answer(200))
		pm.Release()
		expect()
		w := start(t.Context(), r, request(example))
		expect("waiting policy p 1m0s queue 1")
		time.Sleep(time.Minute)
		expect("admitted after 1m0s, 1m0s in all")
		w.permit.Observe(answer(429, "Retry-After", "10"))
		w.permit.Release()
		expect("paused pause 10s timed true manual false whole false capped false", "refused 429 in 0s, 0 left")
		w = start(t.Context(), r, request(example, "X-Api-Key", "b"))
		expect("admitted after 0s, 1m0s in all #1")
		w.permit.Cancel()
		expect()
		r.Pause(example, 70*time.Second)
		expect("paused pause 1m10s timed true manual true whole true capped false")
		w = start(t.Context(), r, request(example))
		expect("waiting pause  1m10s queue 1")
		time.Sleep(70 * time.Second)
		expect("resumed manual false whole false", "resumed manual true whole true", "admitted after 1m10s, 2m10s in all")
		w.permit.Release()
		r.Pause(example, time.Hour)
		r.Pause(example, 0)
		r.Pause(example, 0)
		expect("paused pause 1h0m0s timed true manual true whole true capped false", "resumed manual true whole true")
		r.Pause(example, time.Hour)
		r.Reset(example)
		expect("paused pause 1h0m0s timed true manual true whole true capped false", "resumed manual true whole true")
		r.Check(request(example))
		r.Snapshot()
		expect()
		time.Sleep(10 * time.Hour)
		r.Snapshot()
		expect("forgotten")
	})
}

// Whoever is told that something is paused is told that it no longer is, also where nobody came by
// as the pause ran out: a gauge of what is paused does not stay up for good.
func TestEveryPauseIsToldToBeOver(t *testing.T) {
	pauses := map[string]func(*heed.Registry, *heed.Permit){
		"refused": func(_ *heed.Registry, pm *heed.Permit) { pm.Observe(answer(429, "Retry-After", "10")) },
		"refused by one budget": func(_ *heed.Registry, pm *heed.Permit) {
			pm.Observe(answer(429, "X-Ratelimit-Bucket", "b", "Retry-After", "10"))
		},
		"refused without a hint": func(_ *heed.Registry, pm *heed.Permit) { pm.Observe(answer(429)) },
		"out of service":         func(_ *heed.Registry, pm *heed.Permit) { pm.Observe(answer(503, "Retry-After", "10")) },
		"by the user":            func(r *heed.Registry, _ *heed.Permit) { r.Pause(example, 10*time.Second) },
		"by the user and a server": func(r *heed.Registry, pm *heed.Permit) {
			r.Pause(example, time.Second)
			pm.Observe(answer(429, "Retry-After", "10"))
		},
	}
	ends := map[string]func(*testing.T, *heed.Registry){
		"with the next request": func(t *testing.T, r *heed.Registry) { acquire(t, r, request(example, "X-Api-Key", "k")).Cancel() },
		"by Pause":              func(_ *testing.T, r *heed.Registry) { r.Pause(example, 0) },
		"by Reset":              func(_ *testing.T, r *heed.Registry) { r.Reset(example) },
		"with its partition": func(t *testing.T, r *heed.Registry) {
			for range 10 { // by another credential
				time.Sleep(10 * time.Minute)
				acquire(t, r, request(example)).Release()
			}
		},
		"with its origin": func(_ *testing.T, r *heed.Registry) {
			time.Sleep(3 * time.Hour)
			r.Snapshot()
		},
		"for want of room": func(t *testing.T, r *heed.Registry) {
			for i := range 2 {
				acquire(t, r, request(host(fmt.Sprint(i)))) // and goes on
			}
		},
	}
	for pause, begin := range pauses {
		for end, finish := range ends {
			for _, ran := range []time.Duration{0, 12 * time.Second} {
				t.Run(fmt.Sprintf("%s, over %s, after %v", pause, end, ran), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						told, paused := 0, map[string]bool{}
						r := newRegistry(t, heed.Config{MaxOrigins: 2, OnEvent: func(e heed.Event) {
							if e.Kind == heed.EventPaused || e.Kind == heed.EventResumed {
								told++
								key := fmt.Sprint(e.Whole, e.Partition, e.Bucket)
								if e.Whole {
									key = "whole"
								}
								if paused[key] == (e.Kind == heed.EventPaused) {
									t.Errorf("%v told of %q twice", e.Kind, key)
								}
								paused[key] = e.Kind == heed.EventPaused
							}
						}})
						acquire(t, r, request(example)).Release()
						pm := acquire(t, r, request(example, "X-Api-Key", "k"))
						begin(r, pm)
						pm.Release()
						time.Sleep(ran)
						finish(t, r)
						for key, still := range paused {
							if still {
								t.Errorf("nobody was told that %q is paused no more", key)
							}
						}
						if told == 0 {
							t.Error("nobody was told of a pause")
						}
					})
				})
			}
		}
	}
}

// A pause in doubt ends with the first request that succeeds, and is told.
func TestPauseInDoubtEndsWithASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		r := newRegistry(t, heed.Config{OnEvent: s.hear})
		meet(t, r, example)
		sick, well := acquire(t, r, request(example+"/sick")), acquire(t, r, request(example+"/well"))
		time.Sleep(10 * time.Minute) // no success for long
		s.take()
		sick.Observe(answer(429))
		if d := r.Check(request(example + "/sick")); d.Cause != heed.CausePause {
			t.Errorf("Check() = %+v", d)
		}
		well.Observe(answer(200))
		if d := r.Check(request(example + "/sick")); d.Cause == heed.CausePause {
			t.Errorf("Check() = %+v", d)
		}
		if got := s.take(); len(got) != 4 || got[2] != "resumed manual false whole false" {
			t.Errorf("events are %q", got)
		}
	})
}

func TestEventsEncodeToJSON(t *testing.T) {
	b, err := json.Marshal(heed.Event{Kind: heed.EventPaused, Cause: heed.CausePause, Origin: example, Err: fmt.Errorf("x")})
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(b, &back); err != nil || back["Kind"] != "paused" || back["Cause"] != "pause" {
		t.Errorf("%s, %v", b, err)
	}
	for k := heed.EventWaiting; k <= heed.EventSetAside; k++ {
		if k.String() == "unknown" {
			t.Errorf("kind %d has no name", int(k))
		}
	}
}

// What one panic keeps from being told is told to the next who comes by.
func TestEventsAfterAPanicAreNotLost(t *testing.T) {
	var kinds []heed.Kind
	r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
		kinds = append(kinds, e.Kind)
		if e.Kind == heed.EventLearned {
			panic("user's")
		}
	}})
	pm := acquire(t, r, request(example))
	func() {
		defer func() { recover() }()
		pm.Observe(answer(200, "RateLimit-Policy", `"p";q=10;w=60`))
	}()
	pm.Release()
	if want := []heed.Kind{heed.EventAdmitted, heed.EventLearned, heed.EventAnswered}; !slices.Equal(kinds, want) {
		t.Errorf("told were %v, want %v", kinds, want)
	}
}

// So is who is told that a policy holds for longer than is waited for, and is told so again when it does again.
func TestPolicyThatHeldForTooLongIsToldToBeOver(t *testing.T) {
	const policy = `"day";q=10;w=86400`
	hear := func(t *testing.T, r *heed.Registry, left, reset int) {
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200, "RateLimit-Policy", policy, "RateLimit", fmt.Sprintf(`"day";r=%d;t=%d`, left, reset)))
		pm.Release()
	}
	for name, end := range map[string]func(*testing.T, *heed.Registry){
		"there is more": func(t *testing.T, r *heed.Registry) {
			time.Sleep(24*time.Hour - time.Minute)
			hear(t, r, 9, 86400)
		},
		"it is silent": func(t *testing.T, r *heed.Registry) {
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200))
			pm.Release()
		},
		"it is ignored": func(_ *testing.T, r *heed.Registry) { r.SetLimits("*", heed.Limits{IgnoreHeaders: true}) },
		"all is reset":  func(_ *testing.T, r *heed.Registry) { r.Reset(example) },
		"it is forgotten": func(t *testing.T, r *heed.Registry) {
			time.Sleep(30 * time.Hour)
			r.Snapshot()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
					if e.Kind == heed.EventPaused || e.Kind == heed.EventResumed {
						told = append(told, fmt.Sprint(e.Kind, " ", e.Cause, " ", e.Policy))
					}
				}})
				var want []string
				for range 2 {
					hear(t, r, 1, 80000)
					hear(t, r, 0, 80000)
					end(t, r)
					r.Check(request(example))
					if want = append(want, "paused policy day", "resumed policy day"); !slices.Equal(told, want) {
						t.Fatalf("told were %q, want %q", told, want)
					}
					time.Sleep(48 * time.Hour)
					r.Reset(example)
					r.SetLimits("*", heed.Limits{})
				}
			})
		})
	}
}

// A million goroutines that wait make 292 years of waiting, the longest there is, in three hours.
func TestWaitsInAllNeverOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ages = 150 * 365 * 24 * time.Hour
		r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
			if e.Total < 0 {
				t.Errorf("%v in all", e.Total)
			}
		}})
		meet(t, r, example)
		r.Pause(example, ages)
		for range 3 {
			start(t.Context(), r, request(example))
		}
		time.Sleep(ages + time.Minute)
		synctest.Wait()
		if o := r.Snapshot()[0]; o.Waited != math.MaxInt64 || o.Partitions[0].Waited != o.Waited {
			t.Errorf("%v in all, %v in the partition", o.Waited, o.Partitions[0].Waited)
		}
	})
}

// A cap that an origin does not state is inferred with every answer, and told
// of once.
func TestCapThatIsNotStatedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		r := newRegistry(t, heed.Config{OnEvent: s.hear})
		for _, left := range []string{"4", "4", "2", "6"} {
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200, "RateLimit-Policy", `"c";q=0;qu="concurrent-requests"`, "RateLimit", `"c";r=`+left))
			pm.Release()
		}
		var learned []string
		for _, said := range s.take() {
			if strings.HasPrefix(said, "learned") {
				learned = append(learned, said)
			}
		}
		if len(learned) != 1 {
			t.Errorf("told of %q", learned)
		}
		for range 7 { // six beside the one that was answered
			acquire(t, r, request(example))
		}
		if d := r.Check(request(example)); d.Allowed || d.Cause != heed.CausePolicy {
			t.Errorf("%+v with seven in flight", d)
		}
	})
}
