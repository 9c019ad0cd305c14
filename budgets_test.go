package heed_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A budget is a fixed window that a service enforces, begun by its first
// request.
type budget struct {
	name   string
	quota  int
	window time.Duration
	used   int
	ends   time.Time
}

func (b *budget) left() int { return b.quota - b.used }

// A service has several budgets, which it enforces and announces as one
// service does.
type service struct {
	budgetOf func(*http.Request) *budget
	announce func(h http.Header, b *budget, refused bool)
	refuse   int
	latency  time.Duration

	mu      sync.Mutex
	began   time.Time
	starts  map[string][]time.Duration // of those accepted, by path
	refused []string                   // paths
	instead func(*http.Request) *http.Response
}

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(s.latency)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instead != nil {
		if resp := s.instead(req); resp != nil {
			s.refused = append(s.refused, req.URL.Path)
			return resp, nil
		}
	}
	b, now := s.budgetOf(req), time.Now()
	if !now.Before(b.ends) {
		b.used, b.ends = 0, now.Add(b.window)
	}
	resp := answer(200)
	if b.left() > 0 {
		b.used++
		s.starts[req.URL.Path] = append(s.starts[req.URL.Path], now.Sub(s.began)-s.latency)
	} else {
		resp = answer(s.refuse)
		s.refused = append(s.refused, req.URL.Path)
	}
	s.announce(resp.Header, b, resp.StatusCode != 200)
	return resp, nil
}

func (s *service) serve(budgetOf func(*http.Request) *budget, announce func(http.Header, *budget, bool), refuse int) *service {
	s.budgetOf, s.announce, s.refuse = budgetOf, announce, refuse
	s.began, s.starts, s.latency = time.Now(), map[string][]time.Duration{}, 10*time.Millisecond
	return s
}

// send sends n requests at once, each on a goroutine of its own.
func send(t testing.TB, tr http.RoundTripper, all *sync.WaitGroup, n int, url string) {
	for range n {
		all.Go(func() {
			resp, err := tr.RoundTrip(request(url).WithContext(t.Context()))
			if err != nil {
				t.Errorf("%s: %v", url, err)
				return
			}
			if resp.StatusCode != 200 {
				t.Errorf("%s: %d", url, resp.StatusCode)
			}
			resp.Body.Close()
		})
	}
}

// gitHub is a service as GitHub is, with budgets for search and for the rest.
func gitHub() (s *service, search, core *budget) {
	search = &budget{name: "search", quota: 30, window: time.Minute}
	core = &budget{name: "core", quota: 5000, window: time.Hour}
	s = new(service).serve(func(req *http.Request) *budget {
		if strings.HasPrefix(req.URL.Path, "/search/") {
			return search
		}
		return core
	}, func(h http.Header, b *budget, _ bool) {
		h.Set("X-Ratelimit-Limit", strconv.Itoa(b.quota))
		h.Set("X-Ratelimit-Remaining", strconv.Itoa(b.left()))
		h.Set("X-Ratelimit-Used", strconv.Itoa(b.used))
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(b.ends.Add(time.Second-1).Unix(), 10))
		h.Set("X-Ratelimit-Resource", b.name)
	}, 403)
	return s, search, core
}

var unsmoothed = heed.Limits{Smoothing: heed.Smoothing{Off: true}}

const github = "https://api.github.com"

func TestExhaustedBucketHoldsOnlyItsOwnRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, core := gitHub()
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		tr := &heed.Transport{Base: s, Registry: r}
		var searches, rest sync.WaitGroup
		send(t, tr, &searches, 40, github+"/search/issues")
		time.Sleep(10 * time.Second)
		for i := range 200 {
			send(t, tr, &rest, 1, fmt.Sprintf("%s/repositories/%d/issues", github, i))
			send(t, tr, &rest, 1, github+"/user")
		}
		rest.Wait()
		if at := time.Since(s.began); at > 12*time.Second {
			t.Errorf("the rest was held until %v", at)
		}
		s.mu.Lock()
		n, left := len(s.starts["/search/issues"]), core.left()
		s.mu.Unlock()
		if n > 30 {
			t.Errorf("%d searches, want at most the 30 there are", n)
		}
		waiting, named := 0, map[string]int64{}
		for _, p := range r.Snapshot()[0].Partitions {
			waiting += p.Waiting
			for _, pol := range p.Policies {
				named[pol.Bucket] = pol.Remaining
			}
		}
		if waiting != 10 || len(named) != 2 || named["core"] != int64(left) || named["search"] != 0 {
			t.Errorf("%d wait, left is %v, want 10, and nothing of search and %d of core", waiting, named, left)
		}
		if d := r.Check(request(github + "/search/code")); d.Allowed != true {
			t.Errorf("Check of a route that is not known = %+v, want that it may be tried", d)
		}
		if d := r.Check(request(github + "/search/issues")); d.Allowed || d.Remaining != 0 {
			t.Errorf("Check of another search = %+v, want that it waits", d)
		}
		searches.Wait()
		late := s.starts["/search/issues"][30:]
		if late[0] < time.Minute || late[0] > time.Minute+3*time.Second {
			t.Errorf("the next search went at %v, want once the minute is over", late[0])
		}
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
	})
}

// Searches are spread over the minute; nothing else is.
func TestPacedBucketDoesNotSlowOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := gitHub()
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}
		var searches, rest sync.WaitGroup
		send(t, tr, &searches, 40, github+"/search/issues")
		time.Sleep(5 * time.Second)
		send(t, tr, &rest, 100, github+"/user")
		rest.Wait()
		if at := time.Since(s.began); at > 6*time.Second {
			t.Errorf("the rest was held until %v", at)
		}
		s.mu.Lock()
		n := len(s.starts["/search/issues"])
		s.mu.Unlock()
		if n > 15 {
			t.Errorf("%d searches in five seconds", n)
		}
		searches.Wait()
	})
}

// Many ask for what has not been asked for before: one of them finds out which
// budget it is.
func TestUnknownRouteIsScouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, search, _ := gitHub()
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}
		var all sync.WaitGroup
		send(t, tr, &all, 1, github+"/user")
		all.Wait()
		send(t, tr, &all, search.quota+20, github+"/search/issues")
		all.Wait()
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
	})
}

// A route that is new belongs, until it shows otherwise, where all others have
// belonged whose paths begin as its own does.
func TestRoutesAlikeShareABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, search, _ := gitHub()
		search.quota = 4
		r := newRegistry(t, heed.Config{})
		tr := &heed.Transport{Base: s, Registry: r}
		for _, path := range []string{"/user", "/search/issues", "/search/code", "/search/users", "/search/users"} {
			fetch(t, tr, github+path)
		}
		if d := r.Check(request(github + "/search/topics")); d.Allowed {
			t.Errorf("Check of a fourth kind of search = %+v, want that it waits as the others", d)
		}
		if d := r.Check(request(github + "/orgs")); !d.Allowed {
			t.Errorf("Check of what is no search = %+v, want that it may go", d)
		}
	})
}

func TestSecondaryLimitPausesAll(t *testing.T) {
	for _, tc := range []struct {
		name string
		body string
		from time.Duration
	}{
		{"with Retry-After", "", 30 * time.Second},
		{"in words alone", `{"message":"You have exceeded a secondary rate limit."}`, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, _ := gitHub()
				tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}
				for _, path := range []string{"/user", "/search/issues"} {
					fetch(t, tr, github+path)
				}
				at := time.Now()
				s.instead = func(*http.Request) *http.Response {
					if time.Since(at) > 20*time.Second {
						return nil
					}
					resp := saying(403, tc.body, "X-Ratelimit-Limit", "5000", "X-Ratelimit-Remaining", "4000",
						"X-Ratelimit-Reset", strconv.FormatInt(at.Add(time.Hour).Unix(), 10), "X-Ratelimit-Resource", "core")()
					if tc.body == "" {
						resp.Header.Set("Retry-After", "30")
					}
					return resp
				}
				var all sync.WaitGroup
				send(t, tr, &all, 1, github+"/user")
				time.Sleep(time.Second)
				send(t, tr, &all, 1, github+"/search/issues")
				send(t, tr, &all, 1, github+"/events")
				all.Wait()
				if len(s.refused) != 1 {
					t.Errorf("refused: %v, want the first alone", s.refused)
				}
				for path, n := range map[string]int{"/user": 1, "/search/issues": 1, "/events": 0} {
					if later := s.starts[path][n] - at.Sub(s.began); later < tc.from || later > tc.from+4*time.Second {
						t.Errorf("%s went %v later, want %v", path, later, tc.from)
					}
				}
			})
		})
	}
}

// discord is a service as Discord is. budgetOf tells budgets apart.
func discord(budgetOf func(*http.Request) *budget) *service {
	return new(service).serve(budgetOf, func(h http.Header, b *budget, refused bool) {
		h.Set("X-Ratelimit-Limit", strconv.Itoa(b.quota))
		h.Set("X-Ratelimit-Remaining", strconv.Itoa(b.left()))
		after := math.Ceil(float64(time.Until(b.ends))/1e6) / 1e3
		h.Set("X-Ratelimit-Reset-After", strconv.FormatFloat(after, 'f', 3, 64))
		h.Set("X-Ratelimit-Bucket", b.name)
		if refused {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(after))))
			h.Set("X-Ratelimit-Scope", "user")
		}
	}, 429)
}

const discordAPI = "https://discord.com/api/v10"

func TestRoutesThatTurnOutToShareABucketShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &budget{name: "abcd1234", quota: 5, window: 5 * time.Second}
		other := &budget{name: "ef56", quota: 5, window: 5 * time.Second}
		s := discord(func(req *http.Request) *budget {
			if strings.Contains(req.URL.Path, "/pins") {
				return other
			}
			return shared
		})
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		tr := &heed.Transport{Base: s, Registry: r}
		const messages, typing, pins = "/channels/41/messages", "/channels/41/typing", "/channels/41/pins"
		for _, path := range []string{messages, typing, pins} {
			fetch(t, tr, discordAPI+path)
		}
		var all sync.WaitGroup
		send(t, tr, &all, 3, discordAPI+messages) // of five, these are the last three
		all.Wait()
		if d := r.Check(request(discordAPI + typing)); d.Allowed {
			t.Errorf("Check of a route that shares an exhausted bucket = %+v, want that it waits", d)
		}
		if d := r.Check(request(discordAPI + pins)); !d.Allowed || d.Remaining != 4 {
			t.Errorf("Check of a route with a bucket of its own = %+v, want that it goes, 4 left", d)
		}
		send(t, tr, &all, 10, discordAPI+typing)
		send(t, tr, &all, 10, discordAPI+messages)
		all.Wait()
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
		if got := time.Since(s.began); got > 22*time.Second {
			t.Errorf("25 at 5 in 5 s took %v", got)
		}
	})
}

// Those that wait for a bucket which turns out not to be theirs go on.
func TestMovedRouteTakesItsWaitersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &budget{name: "first", quota: 2, window: time.Hour}
		second := &budget{name: "second", quota: 50, window: time.Hour}
		now := first
		s := discord(func(req *http.Request) *budget { return now })
		r := newRegistry(t, heed.Config{})
		tr := &heed.Transport{Base: s, Registry: r}
		fetch(t, tr, discordAPI+"/gateway")
		pm := acquire(t, r, request(discordAPI+"/gateway"))
		var all sync.WaitGroup
		send(t, tr, &all, 5, discordAPI+"/gateway")
		synctest.Wait()
		if n := r.Snapshot()[0].Waiting; n == 0 {
			t.Fatal("nobody waits")
		}
		now = second
		pm.Observe(answer(200, "X-Ratelimit-Limit", "50", "X-Ratelimit-Remaining", "49", "X-Ratelimit-Reset-After", "3600", "X-Ratelimit-Bucket", "second"))
		pm.Release()
		all.Wait()
		if got := time.Since(s.began); got > time.Minute {
			t.Errorf("they went after %v, want at once", got)
		}
	})
}

func TestGlobalRefusalStopsAllBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &budget{name: "a", quota: 50, window: time.Minute}
		b := &budget{name: "b", quota: 50, window: time.Minute}
		s := discord(func(req *http.Request) *budget {
			if strings.HasSuffix(req.URL.Path, "a") {
				return a
			}
			return b
		})
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}
		fetch(t, tr, discordAPI+"/a")
		fetch(t, tr, discordAPI+"/b")
		at := time.Since(s.began)
		s.instead = func(req *http.Request) *http.Response {
			s.instead = nil
			return answer(429, "Retry-After", "7", "X-Ratelimit-Global", "true", "X-Ratelimit-Scope", "global", "X-Ratelimit-Bucket", "a")
		}
		var all sync.WaitGroup
		send(t, tr, &all, 1, discordAPI+"/a")
		time.Sleep(time.Second)
		send(t, tr, &all, 1, discordAPI+"/b")
		all.Wait()
		for _, path := range []string{"/api/v10/a", "/api/v10/b"} {
			if later := s.starts[path][1] - at; later < 7*time.Second || later > 9*time.Second {
				t.Errorf("%s went %v later, want 7s", path, later)
			}
		}
	})
}

func TestRefusalOfOneBucketPausesItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused []heed.Event
		a := &budget{name: "a", quota: 50, window: time.Minute}
		b := &budget{name: "b", quota: 50, window: time.Minute}
		s := discord(func(req *http.Request) *budget {
			if strings.HasSuffix(req.URL.Path, "a") {
				return a
			}
			return b
		})
		r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
			if e.Kind == heed.EventPaused {
				paused = append(paused, e)
			}
		}})
		tr := &heed.Transport{Base: s, Registry: r}
		fetch(t, tr, discordAPI+"/a")
		fetch(t, tr, discordAPI+"/b")
		at := time.Since(s.began)
		s.instead = func(req *http.Request) *http.Response {
			s.instead = nil
			return answer(429, "Retry-After", "7", "X-Ratelimit-Scope", "shared", "X-Ratelimit-Bucket", "a")
		}
		var all sync.WaitGroup
		send(t, tr, &all, 1, discordAPI+"/a")
		time.Sleep(time.Second)
		send(t, tr, &all, 1, discordAPI+"/b")
		all.Wait()
		if later := s.starts["/api/v10/a"][1] - at; later < 7*time.Second || later > 9*time.Second {
			t.Errorf("the refused one went %v later, want 7s", later)
		}
		if later := s.starts["/api/v10/b"][1] - at; later > 2*time.Second {
			t.Errorf("the other bucket's went %v later, want at once", later)
		}
		if len(paused) != 1 || paused[0].Bucket != "a" {
			t.Errorf("pauses told of: %+v, want one of bucket a", paused)
		}
	})
}

func TestFractionalResetIsObeyedToTheMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAnswering(
			func() *http.Response {
				return answer(200, "X-Ratelimit-Limit", "1", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "1470173023.123",
					"X-Ratelimit-Reset-After", "1.337", "X-Ratelimit-Bucket", "abcd")
			})
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}
		for range 3 {
			fetch(t, tr, discordAPI+"/gateway")
		}
		for i := range 2 {
			if gap := s.starts[i+1] - s.starts[i]; gap < 1337*time.Millisecond || gap >= 1338*time.Millisecond {
				t.Errorf("went %v after the one before, want 1.337s", gap)
			}
		}
	})
}

func TestMethodLimitsHoldTheirOwnMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service)
		methods := map[string]*budget{}
		s.serve(func(req *http.Request) *budget {
			name := strings.Split(req.URL.Path, "/")[2]
			if methods[name] == nil {
				methods[name] = &budget{name: name, quota: 3, window: 10 * time.Second}
			}
			return methods[name]
		}, func(h http.Header, b *budget, refused bool) {
			h.Set("X-App-Rate-Limit", "100:120")
			h.Set("X-App-Rate-Limit-Count", strconv.Itoa(methods["summoner"].used)+":120")
			h.Set("X-Method-Rate-Limit", "3:10")
			h.Set("X-Method-Rate-Limit-Count", strconv.Itoa(b.used)+":10")
			if refused {
				h.Set("X-Rate-Limit-Type", "method")
				h.Set("Retry-After", "10")
			}
		}, 429)
		r := newRegistry(t, heed.Config{})
		tr := &heed.Transport{Base: s, Registry: r}
		const riot = "https://euw1.api.riotgames.com/lol"
		for i := range 3 {
			fetch(t, tr, fmt.Sprintf("%s/summoner/%d", riot, i))
		}
		fetch(t, tr, riot+"/match/4711")
		if d := r.Check(request(riot + "/summoner/99")); d.Allowed {
			t.Errorf("Check of an exhausted method = %+v, want that it waits", d)
		}
		if d := r.Check(request(riot + "/match/99")); !d.Allowed {
			t.Errorf("Check of another method = %+v, want that it goes", d)
		}
		var all sync.WaitGroup
		send(t, tr, &all, 5, riot+"/summoner/7")
		send(t, tr, &all, 2, riot+"/match/7")
		all.Wait()
		if at := s.starts["/lol/match/7"][1]; at > 5*time.Second {
			t.Errorf("the other method's went at %v", at)
		}
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
	})
}

// One policy that is seen with several partition keys is a quota for each.
func TestPartitionKeysAreBudgets(t *testing.T) {
	for name, keys := range map[string][2]string{"letters": {"QQ==", "Qg=="}, "any bytes": {"AAECAA==", "AAECAQ=="}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				for _, a := range []struct {
					path, key string
					left      int
				}{{"/a", keys[0], 5}, {"/b", keys[1], 5}, {"/a", keys[0], 0}} {
					pm := acquire(t, r, request(example+a.path))
					pm.Observe(answer(200, keyed(a.key, a.left)...))
					pm.Release()
				}
				if d := r.Check(request(example + "/a")); d.Allowed || d.Wait != 30*time.Second {
					t.Errorf("Check of what shares the exhausted key = %+v, want a wait of 30s", d)
				}
				if d := r.Check(request(example + "/b")); !d.Allowed || d.Remaining != 5 {
					t.Errorf("Check of the other = %+v, want that it goes, 5 left", d)
				}
			})
		})
	}
}

// keyed are the fields of a policy with a partition key.
func keyed(key string, left int) []string {
	return []string{"RateLimit-Policy", fmt.Sprintf(`"p";q=10;w=60;pk=:%s:`, key), "RateLimit", fmt.Sprintf(`"p";r=%d;t=30;pk=:%s:`, left, key)}
}

// What others like it are counted in meanwhile does not let a refused request
// go before its own budget does.
func TestRefusedRequestWaitsForTheBudgetThatRefusedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began, again time.Time
		tr := &heed.Transport{Registry: newRegistry(t, heed.Config{Default: unsmoothed}), Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.URL.RawQuery != "refused":
				time.Sleep(time.Second)
				return answer(200, keyed(req.URL.RawQuery, 5)...), nil
			case began.IsZero():
				began = time.Now()
				return answer(429, keyed("QQ==", 0)...), nil
			}
			again = time.Now()
			return answer(200, keyed("QQ==", 9)...), nil
		})}
		for _, key := range []string{"QQ==", "Qg=="} {
			fetch(t, tr, example+"/?"+key)
		}
		var all sync.WaitGroup
		send(t, tr, &all, 1, example+"/?Qg==") // is answered once the other has been refused
		synctest.Wait()
		send(t, tr, &all, 1, example+"/?refused")
		all.Wait()
		if wait := again.Sub(began); wait < 30*time.Second {
			t.Errorf("tried again after %v, want no sooner than 30s", wait)
		}
	})
}

// As long as there is but one key it says whose quota it is, not what for.
func TestOnePartitionKeyHoldsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		pm := acquire(t, r, request(example+"/a"))
		pm.Observe(answer(200, "RateLimit-Policy", `"p";q=10;w=60;pk=:QQ==:`, "RateLimit", `"p";r=0;t=30;pk=:QQ==:`))
		pm.Release()
		if d := r.Check(request(example + "/b")); d.Allowed {
			t.Errorf("Check = %+v, want that it waits", d)
		}
	})
}

// What holds all requests of an origin is not for one bucket to overtake.
func TestBucketsShareConfiguredLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := gitHub()
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{Default: quota(10, time.Minute)})}
		var all sync.WaitGroup
		for range 10 {
			send(t, tr, &all, 1, github+"/search/issues")
			send(t, tr, &all, 1, github+"/user")
		}
		all.Wait()
		early := 0
		for _, starts := range s.starts {
			for _, at := range starts {
				if at < time.Minute {
					early++
				}
			}
		}
		if early != 10 || time.Since(s.began) < time.Minute {
			t.Errorf("%d went in the first minute, want the 10 configured", early)
		}
	})
}

// Nobody on this side can tell how many tokens a request takes, but that none
// are left is plain.
func TestTokensAreFollowedAsTheOriginReportsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := 150000
		s := newAnswering(func() *http.Response {
			tokens -= 50000
			reset := "20s"
			if tokens == 0 {
				reset = "42s"
			}
			return saying(200, "{}", "X-Ratelimit-Limit-Requests", "60", "X-Ratelimit-Limit-Tokens", "150000",
				"X-Ratelimit-Remaining-Requests", "50", "X-Ratelimit-Remaining-Tokens", strconv.Itoa(tokens),
				"X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Reset-Tokens", reset)()
		})
		r := newRegistry(t, heed.Config{})
		tr := &heed.Transport{Base: s, Registry: r}
		const chat = "https://api.openai.com/v1/chat/completions"
		for range 2 {
			fetch(t, tr, chat)
		}
		left := map[string]int64{}
		for _, p := range r.Snapshot()[0].Partitions[0].Policies {
			left[p.Name+" in "+string(p.Unit)] = p.Remaining
		}
		if len(left) != 2 || left["tokens in tokens"] != 50000 || left["requests in requests"] != 50 {
			t.Errorf("left: %v, want two policies, as announced", left)
		}
		fetch(t, tr, chat)
		if d := r.Check(request(chat)); d.Allowed || d.Wait != 42*time.Second || d.Policy != "tokens" {
			t.Errorf("Check with no tokens left = %+v, want a wait of 42s for tokens", d)
		}
		tokens = 200000
		fetch(t, tr, chat)
		if at := s.starts[3]; at != s.starts[2]+42*time.Second {
			t.Errorf("went at %v, want 42s after the one before", at)
		}
	})
}

func TestLeakyBucketIsPacedAtItsLeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, leak = 40, 2.0
		var mu sync.Mutex
		level, last, refused, began := 32.0, time.Now(), 0, time.Now()
		var starts []time.Duration
		base := baseFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			level = max(level-leak*now.Sub(last).Seconds(), 0)
			last = now
			resp := answer(200)
			if level+1 > size {
				refused++
				resp = answer(429, "Retry-After", "2.0")
			} else {
				level++
				starts = append(starts, now.Sub(began))
			}
			resp.Header.Set("X-Shopify-Shop-Api-Call-Limit", fmt.Sprintf("%d/%d", int(math.Ceil(level)), size))
			return resp, nil
		})
		tr := &heed.Transport{Base: base, Registry: newRegistry(t, heed.Config{})}
		var all sync.WaitGroup
		send(t, tr, &all, 400, "https://shop.myshopify.com/admin/api/2026-01/orders.json")
		all.Wait()
		if refused > 0 {
			t.Errorf("%d refused", refused)
		}
		took := starts[len(starts)-1] - starts[100]
		if rate := 299 / took.Seconds(); rate < 0.9*leak || rate > 1.05*leak {
			t.Errorf("%.2f a second, want 2", rate)
		}
	})
}
