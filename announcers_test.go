package heed_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// otherRoutes is an origin of which as many goroutines ask for each of its routes, /ax, /bx and so on, all the time.
type otherRoutes struct {
	routes   int
	inTurn   bool // each goroutine asks for one after the other instead
	lasts    time.Duration
	accepts  func(route int, since time.Duration, now time.Time, h http.Header) bool
	accepted []int
	refused  int
}

// play has them ask, and returns what budgets the announced policies are of in the end.
func (o *otherRoutes) play(t *testing.T, seed uint64) (budgets []string) {
	t.Helper()
	o.accepted = make([]int, o.routes)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &limiter{way: 25 * time.Millisecond, uneven: rand.New(rand.NewPCG(seed, 0)), accepts: func(r *http.Request, now time.Time, h http.Header) bool {
			route := int(r.URL.Path[1] - 'a')
			if !o.accepts(route, now.Sub(began), now, h) {
				o.refused++
				return false
			}
			o.accepted[route]++
			return true
		}}
		tr := quiet(t, l, heed.Limits{})
		c := tr.Client()
		turns := make([]int, o.routes)
		asking(o.routes, began.Add(o.lasts), func(i int) (*http.Response, error) {
			route := (i + turns[i]) % o.routes
			if o.inTurn {
				turns[i]++
			}
			resp, err := c.Get(example + "/" + string(rune('a'+route)) + "x")
			if err != nil {
				t.Error(err)
			}
			return resp, err
		}).Wait()
		for _, p := range tr.Registry.Snapshot()[0].Partitions {
			for _, pol := range p.Policies {
				budgets = append(budgets, pol.Bucket)
			}
		}
		tr.Registry.Close()
	})
	return budgets
}

// announcePlainly says what is left of a window, and in how many seconds it is over.
func (w *window) announcePlainly(now time.Time, h http.Header) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(w.quota))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(w.quota-w.used, 0)))
	h.Set("X-RateLimit-Reset", toSecond(now, w.end))
}

// A limiter may stand before one route alone, whose answers announce it. It holds no other.
func TestLimiterOfSomeRoutesHoldsNoOther(t *testing.T) {
	manyRequests(t)
	for _, quota := range []int{10, 50} {
		for _, others := range []int{1, 5} {
			w := window{quota: quota, length: 30 * time.Second}
			o := &otherRoutes{routes: 1 + others, lasts: 15 * time.Minute, accepts: func(route int, _ time.Duration, now time.Time, h http.Header) bool {
				if route > 0 {
					return true
				}
				ok := w.take(now)
				w.announcePlainly(now, h)
				return ok
			}}
			o.play(t, 1)
			t.Logf("%d per 30 s: %d accepted of those and of others, %d refused", quota, o.accepted, o.refused)
			if o.accepted[0] < 27*quota || o.accepted[1] < 4000 || o.refused > 0 {
				t.Errorf("%d per 30 s: %d accepted of those and of others, of 15 minutes each, %d refused", quota, o.accepted, o.refused)
			}
		}
	}
}

// Answers to some routes alone may announce a limit on all. What is left falls by all requests then.
func TestLimitOnAllRoutesIsKeptToThoughOnlySomeAnnounceIt(t *testing.T) {
	manyRequests(t)
	for _, inTurn := range []bool{false, true} {
		w := window{quota: 50, length: 5 * time.Second}
		o := &otherRoutes{routes: 4, inTurn: inTurn, lasts: 10 * time.Minute, accepts: func(route int, _ time.Duration, now time.Time, h http.Header) bool {
			ok := w.take(now)
			if route == 0 {
				w.announcePlainly(now, h)
			}
			return ok
		}}
		for _, b := range o.play(t, 1) {
			if b != "" {
				t.Errorf("in turn %v: taken for a budget of some routes", inTurn)
			}
		}
		if sum := o.accepted[0] + o.accepted[1] + o.accepted[2] + o.accepted[3]; o.refused > 0 || sum < 5800 {
			t.Errorf("in turn %v: %d accepted of 6000, %d refused", inTurn, sum, o.refused)
		}
	}
}

// If all routes are counted from some time on, a refusal tells, and they are kept to as one again.
func TestRoutesThatAreCountedAfterAllAreHeldAgain(t *testing.T) {
	manyRequests(t)
	w := window{quota: 50, length: 5 * time.Second}
	o := &otherRoutes{routes: 4, lasts: 20 * time.Minute, accepts: func(route int, since time.Duration, now time.Time, h http.Header) bool {
		if all := since > 5*time.Minute; route > 0 && !all {
			return true
		}
		ok := w.take(now)
		if route == 0 || !ok {
			w.announcePlainly(now, h)
		}
		return ok
	}}
	budgets := o.play(t, 1)
	t.Logf("%d accepted, %d refused; budgets %q", o.accepted, o.refused, budgets)
	if o.refused > 12 || o.accepted[0] < 2500 {
		t.Errorf("%d accepted, %d refused; budgets %q", o.accepted, o.refused, budgets)
	}
}
