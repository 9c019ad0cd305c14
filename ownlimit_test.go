package heed_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// twoRoutes is an origin that says nothing of its limits, of which 8 goroutines ask for /limited
// and 8 for /free all the time.
type twoRoutes struct {
	accepts       func(path string, now time.Time, h http.Header) bool
	limited, free int // accepted
	refused       int
}

// play has them ask for a minute. Then it calls after, with all answered.
func (o *twoRoutes) play(t *testing.T, seed uint64, after func(r *heed.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{way: 25 * time.Millisecond, uneven: rand.New(rand.NewPCG(seed, 0)), accepts: func(r *http.Request, now time.Time, h http.Header) bool {
			switch ok := o.accepts(r.URL.Path, now, h); {
			case !ok:
				o.refused++
				return false
			case r.URL.Path == "/limited":
				o.limited++
			default:
				o.free++
			}
			return true
		}}
		tr := quiet(t, l, heed.Limits{})
		end := time.Now().Add(time.Minute)
		var busy sync.WaitGroup
		for i := range 16 {
			busy.Go(func() {
				for time.Now().Before(end) {
					resp, err := tr.Client().Get(example + []string{"/limited", "/free"}[i%2])
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				}
			})
		}
		busy.Wait()
		after(tr.Registry)
		tr.Registry.Close()
	})
}

// routes returns what an origin's partitions are for.
func routes(r *heed.Registry) (all []string) {
	for _, p := range r.Snapshot()[0].Partitions {
		all = append(all, p.Route)
	}
	slices.Sort(all)
	return all
}

// toSecond is how long it is until an instant, rounded up.
func toSecond(now, at time.Time) string {
	return strconv.Itoa(int((at.Sub(now) + time.Second - 1) / time.Second))
}

func TestRouteThatAloneIsRefusedHoldsNoOther(t *testing.T) {
	for _, hint := range []bool{false, true} {
		limited, free, refused := 0, 0, 0
		const seeds = 4
		for seed := range uint64(seeds) {
			w := window{quota: 50, length: 5 * time.Second}
			o := &twoRoutes{accepts: func(path string, now time.Time, h http.Header) bool {
				if path == "/free" || w.take(now) {
					return true
				}
				if hint {
					h.Set("Retry-After", toSecond(now, w.end))
				}
				return false
			}}
			o.play(t, seed, func(r *heed.Registry) {
				if got := routes(r); !slices.Equal(got, []string{"", "GET /limited"}) {
					t.Errorf("hint %v, seed %d: partitions for %q", hint, seed, got)
				}
			})
			limited, free, refused = limited+o.limited, free+o.free, refused+o.refused
		}
		t.Logf("hint %v: %d of the limited route accepted of %d, %d of the free one of %d, %d refused", hint, limited, 600*seeds, free, 9600*seeds, refused)
		if limited < 480*seeds || free < 8000*seeds || refused > 30*seeds {
			t.Errorf("hint %v: %d of the limited route accepted of %d, %d of the free one of %d, %d refused", hint, limited, 600*seeds, free, 9600*seeds, refused)
		}
	}
}

func TestHiddenLimitOnAllRoutesHoldsAll(t *testing.T) {
	for _, hint := range []bool{false, true} {
		for seed := range uint64(4) {
			w := window{quota: 50, length: 5 * time.Second}
			o := &twoRoutes{accepts: func(_ string, now time.Time, h http.Header) bool {
				ok := w.take(now)
				if !ok && hint {
					h.Set("Retry-After", toSecond(now, w.end))
				}
				return ok
			}}
			o.play(t, seed, func(r *heed.Registry) {
				if got := routes(r); len(got) != 1 {
					t.Errorf("hint %v, seed %d: partitions for %q", hint, seed, got)
				}
			})
		}
	}
}

// What is announced or configured later holds for all routes again, and so it is after a reset.
func TestRouteWithALimitOfItsOwnIsCountedWithTheOthersAgain(t *testing.T) {
	for name, again := range map[string]func(r *heed.Registry) error{
		"announced": func(r *heed.Registry) error {
			pm, err := r.Acquire(t.Context(), request(example+"/free"))
			if err == nil {
				pm.Observe(answer(http.StatusOK, "RateLimit-Policy", `"all";q=10;w=60`, "RateLimit", `"all";r=1;t=60`))
				pm.Release()
			}
			return err
		},
		"configured": func(r *heed.Registry) error {
			return r.SetLimits(example, heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Minute}}})
		},
	} {
		w := window{quota: 50, length: 5 * time.Second}
		o := &twoRoutes{accepts: func(path string, now time.Time, _ http.Header) bool { return path == "/free" || w.take(now) }}
		o.play(t, 1, func(r *heed.Registry) {
			if got := routes(r); len(got) != 2 {
				t.Fatalf("%s: partitions for %q", name, got)
			}
			if err := again(r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			pm, err := r.Acquire(t.Context(), request(example+"/free"))
			if err != nil {
				t.Fatal(err)
			}
			defer pm.Release()
			if r.Check(request(example + "/limited")).Allowed {
				t.Errorf("%s: /limited goes though nothing is left for all routes", name)
			}
		})
	}
}
