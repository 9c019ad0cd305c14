package heed_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// counts keeps the counts of an origin's budgets in one window, and tells a
// registry of them.
type counts struct {
	t    *testing.T
	r    *heed.Registry
	used map[string]int
	end  time.Time
}

func newCounts(t *testing.T) *counts {
	r := newRegistry(t, heed.Config{Default: unsmoothed})
	t.Cleanup(func() { r.Close() })
	return &counts{t, r, map[string]int{}, time.Now().Add(15 * time.Minute)}
}

// ask has a request to a path counted in a budget.
func (c *counts) ask(path, budget string, quota int) {
	c.t.Helper()
	c.used[budget]++
	c.tell(path, http.StatusOK, quota, quota-c.used[budget])
}

func (c *counts) tell(path string, status, quota, left int) {
	c.t.Helper()
	pm := acquire(c.t, c.r, request(example+path))
	time.Sleep(100 * time.Millisecond)
	pm.Observe(answer(status, "X-Rate-Limit-Limit", strconv.Itoa(quota), "X-Rate-Limit-Remaining", strconv.Itoa(left),
		"X-Rate-Limit-Reset", strconv.Itoa(int((time.Until(c.end)+time.Second-1)/time.Second))))
	pm.Release()
}

// goes reports whether a request to a path would go.
func (c *counts) goes(path string) bool { return c.r.Check(request(example + path)).Allowed }

// apart returns the budgets that are told apart.
func (c *counts) apart() (buckets []string) {
	for _, p := range c.r.Snapshot()[0].Partitions[0].Policies {
		if p.Bucket != "" {
			buckets = append(buckets, p.Bucket)
		}
	}
	return buckets
}

func TestRoutesAreToldApartByTheSizesOfTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		for range 100 {
			c.ask("/search", "search", 450)
			c.ask("/lookup", "lookup", 900)
			c.ask("/users", "lookup", 900)
		}
		if got := fmt.Sprint(c.apart()); got != "[other routes 450]" && got != "[other routes 900]" {
			t.Errorf("told apart: %v", got)
		}
		c.tell("/search", http.StatusOK, 450, 0)
		if c.goes("/search") || !c.goes("/lookup") || !c.goes("/users") {
			t.Errorf("with nothing left for /search it goes: %v, /lookup: %v, /users: %v", c.goes("/search"), c.goes("/lookup"), c.goes("/users"))
		}
		c.tell("/lookup", http.StatusOK, 900, 0)
		if c.goes("/users") {
			t.Error("/users goes with nothing left of the limit that it has together with /lookup")
		}
	})
}

func TestRoutesAreToldApartByTheirCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		for i := range 200 {
			c.ask("/tweets", "tweets", 900)
			if i%3 == 0 {
				c.ask("/users", "users", 900)
			}
		}
		if n := len(c.apart()); n != 2 {
			t.Errorf("told apart: %v", c.apart())
		}
		c.tell("/tweets", http.StatusOK, 900, 0)
		if c.goes("/tweets") || !c.goes("/users") {
			t.Errorf("with nothing left for /tweets it goes: %v, /users: %v", c.goes("/tweets"), c.goes("/users"))
		}
	})
}

// What a route has together with one of several others stays so, whatever tells it from the rest.
func TestRoutesWithOneCountAreNotToldApart(t *testing.T) {
	for _, together := range []int{1, 4} { // requests to those with one count, where there are three to the other
		synctest.Test(t, func(t *testing.T) {
			c := newCounts(t)
			for range 100 {
				for range together {
					c.ask("/read", "one", 900)
					c.ask("/list", "one", 900)
				}
				for range 3 {
					c.ask("/write", "another", 900)
				}
			}
			c.tell("/read", http.StatusOK, 900, 0)
			if c.goes("/list") || together > 1 && !c.goes("/write") { // else it has less left than they
				t.Errorf("with nothing left for /read, /list goes: %v, /write: %v; told apart: %v", c.goes("/list"), c.goes("/write"), c.apart())
			}
		})
	}
}

func TestOneQuotaOfAllRoutesIsNotToldApart(t *testing.T) {
	manyRequests(t)
	paths := []string{"/one", "/two", "/three"}
	for _, tc := range []struct {
		name string
		next func(c *counts, n int, chance *rand.Rand) (path string, quota, left int)
	}{
		{"used unevenly", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			c.used[""]++
			return paths[chance.IntN(1+chance.IntN(3))], 5000, 5000 - c.used[""]
		}},
		{"one route costs more", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			i := chance.IntN(3)
			c.used[""] += 1 + 4*i
			return paths[i], 20000, 20000 - c.used[""]
		}},
		{"others use it, and it comes back", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			return paths[n%3], 5000, 2500 + chance.IntN(40)
		}},
		{"it comes back steadily, and routes take turns", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			path := "/two"
			switch n % 7 {
			case 0:
				time.Sleep(1200 * time.Millisecond) // 1.9 s a turn, in which 9.5 units come back
				c.used[""] -= 9 - n/7%2
			case 6:
				path = "/one"
			}
			c.used[""] = max(c.used[""]+1, 20) // of which 7 are used
			if n < 7 {
				c.used[""] = 290
			}
			c.end = time.Now().Add(time.Duration(c.used[""]) * time.Second / 5)
			return path, 300, 300 - c.used[""]
		}},
		{"it changes all the time", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			c.used[""]++
			quota := 5000 + 1000*(n/7%2)
			return paths[n%3], quota, quota - c.used[""]
		}},
		{"each server has one", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			server := strconv.Itoa(chance.IntN(3) * chance.IntN(2))
			c.used[server]++
			return paths[chance.IntN(3)], 5000, 5000 - c.used[server]
		}},
		{"servers do not agree", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			c.used[""]++
			quota := 5000 + 1000*chance.IntN(2)
			return paths[chance.IntN(3)], quota, quota - c.used[""]
		}},
		{"the count is not exact", func(c *counts, n int, chance *rand.Rand) (string, int, int) {
			c.used[""]++
			return paths[n%3], 5000, 4980 - c.used[""] + chance.IntN(20)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(3) {
				synctest.Test(t, func(t *testing.T) {
					c, chance := newCounts(t), rand.New(rand.NewPCG(seed, 1))
					for n := range 2000 {
						path, quota, left := tc.next(c, n, chance)
						c.tell(path, http.StatusOK, quota, left)
						if n%10 == 9 && len(c.apart()) > 0 {
							t.Fatalf("seed %d: told apart after %d answers: %v", seed, n+1, c.apart())
						}
					}
				})
			}
		})
	}
}

// A refusal though much is left shows that others are counted in the same budget.
func TestRoutesAreJoinedByARefusalThoughMuchIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		use := func(n int) {
			for range n {
				c.ask("/search", "search", 450)
				c.ask("/lookup", "lookup", 900)
			}
		}
		use(30)
		if len(c.apart()) == 0 {
			t.Fatal("not told apart")
		}
		path, quota := "/search", 450
		if slices.Contains(c.apart(), "900") {
			path, quota = "/lookup", 900
		}
		c.tell(path, http.StatusTooManyRequests, quota, 0)
		if len(c.apart()) > 0 {
			t.Fatalf("still told apart: %v", c.apart())
		}
		if c.goes("/search") || c.goes("/lookup") {
			t.Error("one goes with nothing left of all")
		}
		time.Sleep(time.Until(c.end) + 2*time.Second)
		c.end, c.used = time.Now().Add(15*time.Minute), map[string]int{}
		use(30)
		if len(c.apart()) > 0 {
			t.Error("told apart again by as much as the first time")
		}
		use(30)
		if len(c.apart()) == 0 {
			t.Error("not told apart again")
		}
	})
}

// Two servers that do not agree, of which one got all requests to one route for a while.
func TestRoutesAreJoinedWhenTheirLimitsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		for range 50 {
			c.ask("/one", "first server", 600)
			c.ask("/two", "second server", 400)
		}
		if len(c.apart()) == 0 {
			t.Fatal("not told apart")
		}
		for i := range 100 {
			quota := 400 + 200*(i/2%2)
			c.ask([]string{"/one", "/two"}[i%2], fmt.Sprint(quota), quota)
		}
		if len(c.apart()) > 0 {
			t.Errorf("still told apart: %v", c.apart())
		}
	})
}

// What was said to one of them holds all then.
func TestRoutesThatAreJoinedWaitForWhatWasNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		for range 50 {
			c.ask("/one", "one", 600)
			c.ask("/two", "two", 400)
		}
		path, quota, other, others := "/one", 600, "/two", 400
		if slices.Contains(c.apart(), "400") { // this one is called by its size
			path, quota, other, others = other, others, path, quota
		}
		c.tell(other, http.StatusOK, others, 0)
		if c.goes(other) || !c.goes(path) {
			t.Fatalf("with nothing left for %s it goes: %v, %s: %v", other, c.goes(other), path, c.goes(path))
		}
		for i := 0; i < 50 && len(c.apart()) > 0; i++ {
			c.tell(path, http.StatusOK, quota+100*(i/2%2), 300-i)
		}
		if len(c.apart()) > 0 {
			t.Errorf("still told apart: %v", c.apart())
		}
		if c.goes(path) || c.goes(other) {
			t.Errorf("joined, %s goes: %v, %s: %v", path, c.goes(path), other, c.goes(other))
		}
	})
}

// A pause of one of them is told to be over as such, and the one of all that comes in its place is told.
func TestPauseOfARouteThatIsJoinedIsToldToBeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		paused := map[string]bool{}
		r := newRegistry(t, heed.Config{Default: unsmoothed, OnEvent: func(e heed.Event) {
			if e.Kind != heed.EventPaused && e.Kind != heed.EventResumed {
				return
			}
			told = append(told, fmt.Sprintf("%v %q", e.Kind, e.Bucket))
			if e.Kind == heed.EventResumed && !paused[e.Bucket] {
				t.Errorf("%q is resumed and was not paused", e.Bucket)
			}
			paused[e.Bucket] = e.Kind == heed.EventPaused
		}})
		defer r.Close()
		c := &counts{t, r, map[string]int{}, time.Now().Add(15 * time.Minute)}
		for range 50 {
			c.ask("/one", "one", 600)
			c.ask("/two", "two", 400)
		}
		path, quota, other, others := "/one", 600, "/two", 400
		if slices.Contains(c.apart(), "400") { // this one is called by its size
			path, quota, other, others = other, others, path, quota
		}
		pm := acquire(t, r, request(example+other))
		pm.Observe(answer(429, "X-Rate-Limit-Limit", strconv.Itoa(others), "X-Rate-Limit-Remaining", "300", "Retry-After", "600"))
		pm.Release()
		if c.goes(other) || !c.goes(path) {
			t.Fatalf("paused, %s goes: %v, %s: %v; told %q", other, c.goes(other), path, c.goes(path), told)
		}
		for i := 0; i < 50 && len(c.apart()) > 0; i++ {
			c.tell(path, http.StatusOK, quota+100*(i/2%2), 300-i)
		}
		if len(c.apart()) > 0 || c.goes(path) {
			t.Errorf("joined: %v, %s goes: %v", len(c.apart()) == 0, path, c.goes(path))
		}
		time.Sleep(time.Hour)
		r.Check(request(example))
		for bucket, still := range paused {
			if still {
				t.Errorf("%q is still paused", bucket)
			}
		}
		if len(told) != 4 {
			t.Errorf("told were %q", told)
		}
	})
}

// A route that is not known yet may be any of those that have not been told apart.
func TestUnknownRouteIsHeldWithThoseNotToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		for i := range 1500 {
			c.ask("/search", "search", 4500)
			c.ask("/lookup", "lookup", 9000)
			c.ask("/"+string([]rune{rune('a' + i%26), rune('a' + i/26%26), rune('a' + i/676)}), "names", 6000)
		}
		if n := len(c.apart()); n < 2 || n > 3 {
			t.Errorf("told apart: %v", c.apart())
		}
		c.tell("/zzz", http.StatusOK, 6000, 0)
		if c.goes("/zzzz") || !c.goes("/search") {
			t.Errorf("with nothing left for names one goes: %v, /search: %v", c.goes("/zzzz"), c.goes("/search"))
		}
	})
}

func TestLimitsOfRoutesAreUsedUp(t *testing.T) {
	sideBySide(t)
	share, refused := 0.0, 0
	const phases = 5
	for phase := range phases {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*190*time.Millisecond + 37*time.Millisecond)
			many, few := window{quota: 50, length: time.Minute}, window{quota: 10, length: time.Minute}
			l := &limiter{way: 25 * time.Millisecond, accepts: func(r *http.Request, now time.Time, h http.Header) bool {
				w := &many
				if r.URL.Path == "/few" {
					w = &few
				}
				defer w.announce(h)
				return w.take(now)
			}}
			tr := quiet(t, l, heed.Limits{})
			end := time.Now().Add(20 * time.Minute)
			busy := asking(16, end, func(i int) (*http.Response, error) {
				return tr.Client().Get([]string{"http://origin.test/many", "http://origin.test/few"}[i%2])
			})
			time.Sleep(time.Until(end))
			tr.Registry.Close()
			busy.Wait()
			t.Logf("phase %d: %d accepted of 1200, %d refused", phase, l.accepted, l.refused)
			share += float64(l.accepted) / 1200 / phases
			refused += l.refused
		})
	}
	if share < 0.75 || refused > 40 {
		t.Errorf("share %.3f, %d refused", share, refused)
	}
}

// exchange has a request to a path, with a credential, that is answered at once.
func (c *counts) exchange(path, credential string, quota, left int) {
	c.t.Helper()
	pm := acquire(c.t, c.r, request(example+path, "X-Api-Key", credential))
	pm.Observe(c.says(http.StatusOK, quota, left))
	pm.Release()
}

func (c *counts) says(status, quota, left int, header ...string) *http.Response {
	return answer(status, append(header, "X-Rate-Limit-Limit", strconv.Itoa(quota), "X-Rate-Limit-Remaining", strconv.Itoa(left),
		"X-Rate-Limit-Reset", strconv.Itoa(int((time.Until(c.end)+time.Second-1)/time.Second)))...)
}

// toldApart returns the route that is counted apart, and its quota, and another one.
func (c *counts) toldApart(quota, others int) (path string, _ int, other string, _ int) {
	c.t.Helper()
	for range 50 {
		c.ask("/one", "one", quota)
		c.ask("/two", "two", others)
	}
	switch fmt.Sprint(c.apart()) {
	case fmt.Sprintf("[other routes %d]", quota):
		return "/one", quota, "/two", others
	case fmt.Sprintf("[other routes %d]", others):
		return "/two", others, "/one", quota
	}
	c.t.Fatalf("told apart: %v", c.apart())
	return
}

// A route that another's limit is the size of by now is counted with that no longer.
func TestRouteIsToldApartByANewSizeOfItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		for range 60 {
			c.ask("/one", "one", 450)
			c.ask("/two", "two", 450)
			c.ask("/rest", "rest", 900)
			c.ask("/more", "rest", 900)
		}
		for range 60 {
			c.ask("/one", "one", 600)
			c.ask("/two", "two", 450)
			c.ask("/rest", "rest", 900)
			c.ask("/more", "rest", 900)
		}
		c.tell("/two", http.StatusOK, 450, 0)
		if !c.goes("/one") || c.goes("/two") {
			t.Errorf("with nothing left for /two, /one goes: %v, /two: %v; told apart: %v", c.goes("/one"), c.goes("/two"), c.apart())
		}
	})
}

func TestPartitionsToComeKnowAPolicyWhoseRoutesAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		path, quota, _, _ := c.toldApart(600, 400)
		c.tell(path, http.StatusTooManyRequests, quota, 0)
		if len(c.apart()) > 0 {
			t.Fatalf("still told apart: %v", c.apart())
		}
		acquire(t, c.r, request(example+"/one", "X-Api-Key", "new")).Release()
		if policies := c.r.Snapshot()[0].Partitions[1].Policies; len(policies) != 1 || policies[0].Bucket != "" {
			t.Errorf("a new partition knows %+v", policies)
		}
	})
}

// What one partition has shown holds for another as well, which knows less of what is left.
func TestRoutesToldApartByOnePartitionHoldAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		c.ask("/one", "one", 600)
		c.exchange("/one", "other", 600, 0)
		path, _, other, _ := c.toldApart(600, 400)
		for _, path := range []string{path, other} {
			if v := c.r.Check(request(example+path, "X-Api-Key", "other")); v.Allowed {
				t.Errorf("%s goes with nothing left", path)
			}
		}
	})
}

func TestRequestsOfAnotherPartitionAreNotLetGoAllAtOnceByRoutesToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		c.ask("/one", "one", 600)
		c.exchange("/one", "other", 600, 3)
		path, _, _, _ := c.toldApart(600, 400)
		went := 0
		for range 16 {
			if w := start(t.Context(), c.r, request(example+path, "X-Api-Key", "other")); w.done() {
				went++
			}
		}
		if went > 3 {
			t.Errorf("%d go with 3 left", went)
		}
	})
}

// Those that are in flight when routes are joined may be counted in what is left.
func TestRequestsInFlightAreCountedWhereRoutesAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		path, quota, other, _ := c.toldApart(600, 400)
		for range 300 {
			acquire(t, c.r, request(example+other))
		}
		for i := 0; i < 50 && len(c.apart()) > 0; i++ {
			c.tell(path, http.StatusOK, quota+100*(i/2%2), 300)
		}
		if len(c.apart()) > 0 {
			t.Fatalf("still told apart: %v", c.apart())
		}
		if left := c.r.Check(request(example + path)).Remaining; left > 250 {
			t.Errorf("%d of %d are left with 300 in flight, and 100 answered", left, quota)
		}
	})
}

// A route that turns out to be counted with others still waits for as long as its refusal asked.
func TestRouteToldApartWaitsForAsLongAsItsRefusalAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		_, quota, _, others := c.toldApart(600, 400)
		late := acquire(t, c.r, request(example+"/late"))
		refused := acquire(t, c.r, request(example+"/late"))
		refused.Observe(c.says(http.StatusTooManyRequests, others, 100, "Retry-After", "60"))
		refused.Release()
		at := time.Now().Add(time.Minute)
		late.Observe(c.says(http.StatusOK, quota, 100))
		late.Release()
		if v := c.r.Check(request(example + "/late")); v.Allowed || v.Wait < time.Until(at) {
			t.Errorf("it goes in %v of a minute", v.Wait)
		}
	})
}

// A refusal that holds for its route alone does not hide what the route is counted in.
func TestRouteRefusedByItselfIsStillCountedWithThoseOfTheSameSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		c.r = newRegistry(t, heed.Config{Default: unsmoothed, Dialects: []heed.Dialect{ownDialect}})
		defer c.r.Close()
		path, quota, _, _ := c.toldApart(600, 400)
		refused := acquire(t, c.r, request(example+path))
		refused.Observe(c.says(http.StatusTooManyRequests, quota, 300, "X-Scope", "route", "Retry-After", "5"))
		refused.Release()
		time.Sleep(10 * time.Second)
		c.tell(path, http.StatusOK, quota, 100)
		c.tell(path, http.StatusOK, quota, 0)
		if c.goes(path) {
			t.Errorf("%s goes with nothing left; told apart: %q", path, c.apart())
		}
	})
}

// ownDialect has a policy with a name, and one without.
var ownDialect = heed.Dialect{
	Name: "own", Origins: []string{example}, Route: []string{"X-Scope: route"},
	Quotas: []heed.QuotaFields{
		{Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Reset: "X-Rate-Limit-Reset"},
		{Policy: "writes", Limit: "X-Writes-Limit", Remaining: "X-Writes-Remaining", Reset: "X-Writes-Reset"},
	},
}

func TestPolicyOfAnotherNameStillHoldsWhereRoutesAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		c.r = newRegistry(t, heed.Config{Default: unsmoothed, Dialects: []heed.Dialect{ownDialect}})
		defer c.r.Close()
		path, quota, _, _ := c.toldApart(600, 400)
		write := acquire(t, c.r, request(example+"/write"))
		write.Observe(answer(http.StatusOK, "X-Writes-Limit", "10", "X-Writes-Remaining", "0", "X-Writes-Reset", "600"))
		write.Release()
		for i := 0; i < 50 && slices.Contains(c.apart(), strconv.Itoa(quota)); i++ {
			c.tell(path, http.StatusOK, quota+100*(i/2%2), 300-i)
		}
		if len(c.apart()) > 0 {
			t.Fatalf("still told apart: %v", c.apart())
		}
		if c.goes("/write") {
			t.Error("/write goes with nothing left")
		}
	})
}

// Of two counts the one that has less left is told from the other by its reset.
func TestRoutesAreToldApartByTheirResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		sooner, later := c.end, c.end.Add(10*time.Minute)
		c.used["tweets"] = 500
		for range 100 {
			c.end = sooner
			c.ask("/tweets", "tweets", 900)
			c.end = later
			c.ask("/users", "users", 900)
		}
		if n := len(c.apart()); n != 2 {
			t.Errorf("told apart: %v", c.apart())
		}
	})
}

// What is said late of one quota was counted before what others were told meanwhile.
func TestRouteThatAnswersSlowlyIsNotToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(t)
		type slow struct {
			pm   *heed.Permit
			left int
		}
		var flying []slow
		for range 400 {
			c.ask("/quick", "one", 5000)
			c.used["one"]++
			flying = append(flying, slow{acquire(t, c.r, request(example+"/slow")), 5000 - c.used["one"]})
			if len(flying) > 20 {
				s := flying[0]
				s.pm.Observe(c.says(http.StatusOK, 5000, s.left))
				s.pm.Release()
				flying = flying[1:]
			}
		}
		if len(c.apart()) > 0 {
			t.Errorf("told apart: %v", c.apart())
		}
	})
}

// Being told from one route over and over says nothing of the others.
func TestRouteIsNotToldApartFromOneOfItsOwnCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, chance := newCounts(t), rand.New(rand.NewPCG(1, 1))
		for range 1500 {
			switch chance.IntN(6) {
			case 0:
				c.ask("/read", "one", 5000)
			case 1:
				c.ask("/list", "one", 5000)
			default:
				c.ask("/write", "another", 5000)
			}
		}
		c.tell("/read", http.StatusOK, 5000, 0)
		if c.goes("/list") {
			t.Errorf("with nothing left for /read, /list goes; told apart: %v", c.apart())
		}
	})
}
