package heed_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// channels is Discord with a bucket of one name, of which every channel has a
// count of its own.
func channels(quota int) *service {
	all := map[string]*budget{}
	return discord(func(req *http.Request) *budget {
		channel := strings.Split(req.URL.Path, "/")[4]
		if all[channel] == nil {
			all[channel] = &budget{name: "abcd1234", quota: quota, window: 5 * time.Second}
		}
		return all[channel]
	})
}

func TestChannelsOfOneBucketAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := channels(5)
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		tr := &heed.Transport{Base: s, Registry: r}
		const one, two, three = discordAPI + "/channels/1/messages", discordAPI + "/channels/2/messages", discordAPI + "/channels/3/messages"
		for range 5 {
			fetch(t, tr, one)
		}
		if d := r.Check(request(one)); d.Allowed || d.Remaining != 0 {
			t.Errorf("Check of an exhausted channel = %+v, want that it waits", d)
		}
		for range 3 {
			fetch(t, tr, two)
		}
		if d := r.Check(request(one)); d.Allowed || d.Remaining != 0 {
			t.Errorf("Check after another channel's answers = %+v, want that it still waits", d)
		}
		if d := r.Check(request(two)); !d.Allowed || d.Remaining != 2 {
			t.Errorf("Check of another channel = %+v, want that it goes, 2 left", d)
		}
		if d := r.Check(request(three)); !d.Allowed {
			t.Errorf("Check of a channel not met = %+v, want that it goes", d)
		}
		left := map[string]int64{}
		for _, pol := range r.Snapshot()[0].Partitions[0].Policies {
			left[pol.Bucket] = pol.Remaining
		}
		if want := map[string]int64{"abcd1234 channels/1": 0, "abcd1234 channels/2": 2}; !maps.Equal(left, want) {
			t.Errorf("Snapshot has %v, want %v", left, want)
		}
		var all sync.WaitGroup
		for _, url := range []string{one, two, three} {
			send(t, tr, &all, 20, url)
		}
		all.Wait()
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
		if got := time.Since(s.began); got > 25*time.Second {
			t.Errorf("it took %v, want that they go side by side", got)
		}
	})
}

// What has been used up of a channel that is new to us is not known: one
// request finds out, although the bucket's name is known.
func TestNewChannelOfAKnownBucketIsScouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := channels(5)
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{Default: unsmoothed})}
		fetch(t, tr, discordAPI+"/channels/1/messages")
		var all sync.WaitGroup
		send(t, tr, &all, 20, discordAPI+"/channels/2/messages")
		all.Wait()
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
	})
}

// More channels than a partition remembers at once.
func TestManyChannelsOneAfterAnother(t *testing.T) {
	sideBySide(t)
	synctest.Test(t, func(t *testing.T) {
		s := channels(5)
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		tr := &heed.Transport{Base: s, Registry: r}
		for i := range 600 {
			var all sync.WaitGroup
			send(t, tr, &all, 7, fmt.Sprintf("%s/channels/%d/messages", discordAPI, i))
			all.Wait()
		}
		if len(s.refused) > 0 {
			t.Errorf("%d refused", len(s.refused))
		}
		if n := len(r.Snapshot()[0].Partitions[0].Policies); n > 256 {
			t.Errorf("%d policies are remembered", n)
		}
	})
}

// endpoints is X, where every endpoint has a quota of its own, without a name.
func endpoints(quotas map[string]int) *service {
	all := map[string]*budget{}
	for path, n := range quotas {
		all[path] = &budget{quota: n, window: 15 * time.Minute}
	}
	return new(service).serve(func(req *http.Request) *budget { return all[req.URL.Path] }, func(h http.Header, b *budget, _ bool) {
		h.Set("X-Rate-Limit-Limit", strconv.Itoa(b.quota))
		h.Set("X-Rate-Limit-Remaining", strconv.Itoa(b.left()))
		h.Set("X-Rate-Limit-Reset", strconv.FormatInt(b.ends.Add(time.Second-1).Unix(), 10))
	}, 429)
}

func TestEveryEndpointHasItsQuotaWhereTheDialectSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := endpoints(map[string]int{"/2/users/me": 2, "/2/tweets": 450})
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		tr := &heed.Transport{Base: s, Registry: r}
		const me, tweets = "https://api.x.com/2/users/me", "https://api.x.com/2/tweets"
		fetch(t, tr, me)
		fetch(t, tr, tweets)
		fetch(t, tr, me)
		if d := r.Check(request(me)); d.Allowed || d.Remaining != 0 {
			t.Errorf("Check of an exhausted endpoint = %+v, want that it waits", d)
		}
		if d := r.Check(request(tweets)); !d.Allowed || d.Remaining != 449 {
			t.Errorf("Check of another endpoint = %+v, want that it goes, 449 left", d)
		}
		var all sync.WaitGroup
		send(t, tr, &all, 1, me)
		send(t, tr, &all, 100, tweets)
		all.Wait()
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
		if last := slices.Max(s.starts["/2/tweets"]); last > time.Minute {
			t.Errorf("the other endpoint's last went at %v", last)
		}
	})
}

// A method limit holds whatever its paths name, in Riot's ways to do so.
func TestMethodIsToldByTheShapeOfItsPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		const riot = "https://euw1.api.riotgames.com"
		id := func(c string) string { return strings.Repeat(c+"X-9q_", 13) }
		for _, path := range []string{"/lol/match/v5/matches/EUW1_7123456789", "/lol/match/v5/matches/by-puuid/" + id("a") + "/ids"} {
			pm := acquire(t, r, request(riot+path))
			pm.Observe(answer(200, "X-App-Rate-Limit", "100:120", "X-App-Rate-Limit-Count", "2:120", "X-Method-Rate-Limit", "20:10", "X-Method-Rate-Limit-Count", "20:10"))
			pm.Release()
		}
		for path, want := range map[string]bool{
			"/lol/match/v5/matches/EUW1_7999999999":                false,
			"/lol/match/v5/matches/by-puuid/" + id("b") + "/ids":   false,
			"/lol/summoner/v4/summoners/by-puuid/" + id("b"):       true,
			"/lol/match/v5/matches/EUW1_7123456789/timeline":       true,
			"/lol/league/v4/entries/RANKED_SOLO_5x5/DIAMOND/I":     true,
			"/lol/status/v4/platform-data":                         true,
			"/lol/champion-mastery/v4/scores/by-puuid/" + id("a"):  true,
			"/lol/match/v5/matches/by-puuid/" + id("b") + "/other": true,
		} {
			if d := r.Check(request(riot + path)); d.Allowed != want {
				t.Errorf("Check of %s = %+v, want %v", path, d, want)
			}
		}
	})
}

func TestRefusalForOneRouteHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		const riot = "https://euw1.api.riotgames.com/lol/"
		for _, path := range []string{"match/1", "summoner/1"} {
			pm := acquire(t, r, request(riot+path))
			pm.Observe(answer(200, "X-App-Rate-Limit", "100:120", "X-App-Rate-Limit-Count", "2:120", "X-Method-Rate-Limit", "20:10", "X-Method-Rate-Limit-Count", "2:10"))
			pm.Release()
		}
		pm := acquire(t, r, request(riot+"match/2"))
		pm.Observe(answer(429, "X-Rate-Limit-Type", "service", "Retry-After", "7"))
		pm.Release()
		if d := r.Check(request(riot + "match/3")); d.Allowed || d.Wait < 7*time.Second {
			t.Errorf("Check of the refused method = %+v, want a wait of 7s", d)
		}
		if d := r.Check(request(riot + "summoner/3")); !d.Allowed {
			t.Errorf("Check of another method = %+v, want that it goes", d)
		}
		pm = acquire(t, r, request(riot+"summoner/2"))
		pm.Observe(answer(429, "X-Rate-Limit-Type", "application", "Retry-After", "7"))
		pm.Release()
		if d := r.Check(request(riot + "champion/3")); d.Allowed || d.Wait < 7*time.Second {
			t.Errorf("Check of a method once the application is refused = %+v, want a wait of 7s", d)
		}
	})
}

// A secondary limit stops everything until the reset, where nothing is left
// either and no other time is named.
func TestSecondaryLimitOfAnExhaustedBucketPausesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		for _, path := range []string{"/user", "/search/issues"} {
			pm := acquire(t, r, request(github+path))
			pm.Observe(answer(200, "X-Ratelimit-Limit", "5000", "X-Ratelimit-Remaining", "4000", "X-Ratelimit-Reset", "3600",
				"X-Ratelimit-Resource", path))
			pm.Release()
		}
		req := request(github + "/user")
		pm := acquire(t, r, req)
		resp := saying(403, `{"message":"You have exceeded a secondary rate limit."}`, "X-Ratelimit-Limit", "5000", "X-Ratelimit-Remaining", "0",
			"X-Ratelimit-Reset", "100", "X-Ratelimit-Resource", "/user")()
		resp.Request = req
		pm.Observe(resp)
		pm.Release()
		for _, path := range []string{"/user", "/search/issues"} {
			if d := r.Check(request(github + path)); d.Allowed || d.Wait < 100*time.Second || d.Wait > 102*time.Second {
				t.Errorf("Check of %s = %+v, want a wait of 100s", path, d)
			}
		}
	})
}

// A time that only the documentation names ("wait for at least one minute … if your request continues to fail, wait for an
// exponentially increasing amount of time") doubles with every refusal in a row, as where none is named.
func TestDocumentedWaitDoublesWhereItWasNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		say := func(status int, body string) (until time.Duration) {
			req := request(github + "/user")
			pm := acquire(t, r, req)
			resp := saying(status, body, "X-Ratelimit-Limit", "5000", "X-Ratelimit-Remaining", "4000", "X-Ratelimit-Reset", "3600")()
			resp.Request = req
			pm.Observe(resp)
			pm.Release()
			return r.Check(req).Wait.Truncate(10 * time.Second)
		}
		refuse := func() time.Duration { return say(403, `{"message":"You have exceeded a secondary rate limit."}`) }
		for i, want := range []time.Duration{1, 2, 4, 5, 5} {
			if got := refuse(); got != want*time.Minute {
				t.Errorf("refusal %d in a row: wait of %v, want %v", i+1, got, want*time.Minute)
			}
		}
		say(200, "")
		if got := refuse(); got != time.Minute {
			t.Errorf("after one that was accepted: wait of %v, want 1m", got)
		}
	})
}

// Who waits for an exhausted bucket is ahead of nobody, in another partition
// neither.
func TestWaitingForABucketHoldsNoOtherPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := unsmoothed
		limits.MinInterval = time.Second
		r := newRegistry(t, heed.Config{Default: limits})
		mine := func(path string) *http.Request {
			return request(discordAPI+path, "Authorization", "Bearer one").WithContext(t.Context())
		}
		observe := func(path string, status int, fields ...string) {
			pm := acquire(t, r, mine(path))
			pm.Observe(answer(status, append(fields, "X-Ratelimit-Limit", "50", "X-Ratelimit-Remaining", "40", "X-Ratelimit-Reset-After", "60", "X-Ratelimit-Bucket", path[1:])...))
			pm.Release()
		}
		observe("/a", 200)
		observe("/b", 200)
		observe("/a", 429, "Retry-After", "60", "X-Ratelimit-Scope", "shared")
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			start(ctx, r, mine("/a"))
		}
		synctest.Wait()
		soon, stop := context.WithTimeout(t.Context(), 5*time.Second)
		pm, err := r.Acquire(soon, request(discordAPI+"/b", "Authorization", "Bearer two"))
		if err != nil {
			t.Errorf("another partition's request behind those that wait for a bucket: %v", err)
		} else {
			pm.Release()
		}
		stop()
		cancel()
		synctest.Wait()
	})
}

func TestManyChannelsAtOnce(t *testing.T) {
	sideBySide(t)
	synctest.Test(t, func(t *testing.T) {
		s := channels(5)
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{Default: unsmoothed})}
		fetch(t, tr, discordAPI+"/channels/0/messages")
		var all sync.WaitGroup
		for i := range 100 {
			send(t, tr, &all, 7, fmt.Sprintf("%s/channels/%d/messages", discordAPI, i))
		}
		all.Wait()
		if len(s.refused) > 0 {
			t.Errorf("%d refused", len(s.refused))
		}
	})
}

// Requests in line turn out to belong to another budget while no more lanes can
// be remembered and idle ones make room.
func TestBudgetIsFoundWhileNoMoreAreRemembered(t *testing.T) {
	for idle := 250; idle < 258; idle++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: unsmoothed})
			defer r.Close()
			ask := func(path string, fields ...string) {
				pm := acquire(t, r, request(example+path))
				pm.Observe(answer(200, fields...))
				pm.Release()
			}
			ask("/first", "X-RateLimit-Bucket", "one")
			early := acquire(t, r, request(example+"/early"))
			for i := range idle {
				ask(fmt.Sprint("/idle", i))
			}
			if err := r.Pause(example, time.Minute); err != nil {
				t.Fatal(err)
			}
			var all []*waiting
			for _, path := range []string{"/early", "/late", "/early", "/late"} {
				all = append(all, start(t.Context(), r, request(example+path)))
			}
			early.Observe(answer(200, "X-RateLimit-Bucket", "another"))
			early.Release()
			if err := r.Pause(example, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			for i, w := range all {
				if !w.done() || w.err != nil {
					t.Errorf("%d idle, request %d: done %v, error %v", idle, i, w.done(), w.err)
				}
			}
		})
	}
}
