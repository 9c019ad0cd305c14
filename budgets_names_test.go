package heed_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// Policies that some answers list and others do not hold the routes for which
// they are listed.
func TestNamesOfPoliciesTellBudgets(t *testing.T) {
	type answered struct {
		path   string
		fields []string
	}
	const azure, zendesk, hub = "https://management.azure.com", "https://acme.zendesk.com", "https://huggingface.co"
	policy := func(list, limits string) []string {
		return []string{"RateLimit-Policy", list, "RateLimit", limits}
	}
	for _, tt := range []struct {
		name    string
		origin  string
		answers []answered
		may     map[string]bool // another request to these paths goes
	}{
		{"lists that have nothing in common", example, []answered{
			{"/search/a", policy(`"search";q=10;w=60`, `"search";r=0;t=60`)},
			{"/user", policy(`"core";q=100;w=60`, `"core";r=50;t=60`)},
		}, map[string]bool{"/search/a": false, "/user": true, "/new": true}},
		{"in the other order", example, []answered{
			{"/user", policy(`"core";q=100;w=60`, `"core";r=50;t=60`)},
			{"/search/a", policy(`"search";q=10;w=60`, `"search";r=0;t=60`)},
		}, map[string]bool{"/search/a": false, "/user": true, "/new": true}},
		{"one that all lists have", example, []answered{
			{"/search/a", policy(`"search";q=10;w=60, "all";q=500;w=60`, `"search";r=5;t=60, "all";r=0;t=60`)},
			{"/user", policy(`"core";q=100;w=60, "all";q=500;w=60`, `"core";r=50;t=60`)},
		}, map[string]bool{"/search/a": false, "/user": false}},
		{"lists that have all", example, []answered{
			{"/a", policy(`"hour";q=10;w=60, "day";q=100;w=86400`, `"hour";r=5;t=60`)},
			{"/b", policy(`"hour";q=10;w=60, "day";q=100;w=86400`, `"day";r=0;t=60`)},
		}, map[string]bool{"/a": false, "/b": false, "/new": false}},
		{"what is left, without a list", example, []answered{
			{"/a", []string{"RateLimit", `"hour";r=5;t=60`}},
			{"/b", []string{"RateLimit", `"day";r=0;t=60`}},
			{"/a", []string{"RateLimit", `"hour";r=5;t=60`}},
		}, map[string]bool{"/a": false, "/b": false, "/new": false}},
		{"a route that lists another one now", example, []answered{
			{"/a", policy(`"old";q=10;w=60`, `"old";r=0;t=60`)},
			{"/a", policy(`"new";q=10;w=60`, `"new";r=5;t=60`)},
		}, map[string]bool{"/a": false, "/b": false}},
		{"a route that lists another one, and others", example, []answered{
			{"/a", policy(`"old";q=10;w=60`, `"old";r=0;t=60`)},
			{"/a", policy(`"new";q=10;w=60`, `"new";r=5;t=60`)},
			{"/b", policy(`"b";q=10;w=60`, `"b";r=5;t=60`)},
		}, map[string]bool{"/a": false, "/b": true}},
		{"a route that lists another one later", example, []answered{
			{"/a", policy(`"old";q=10;w=60`, `"old";r=0;t=60`)},
			{"/b", policy(`"b";q=10;w=60`, `"b";r=5;t=60`)},
			{"/a", policy(`"new";q=10;w=60`, `"new";r=5;t=60`)},
		}, map[string]bool{"/a": false, "/b": true}},
		{"lists with a partition key that is the same for all", example, []answered{
			{"/search/a", policy(`"search";q=10;w=60;pk=:QQ==:`, `"search";r=0;t=60`)},
			{"/user", policy(`"core";q=100;w=60;pk=:QQ==:`, `"core";r=50;t=60;pk=:QQ==:`)},
		}, map[string]bool{"/search/a": false, "/user": true, "/new": true}},
		{"lists with a partition key that differs", example, []answered{
			{"/search/a", policy(`"search";q=10;w=60;pk=:QQ==:`, `"search";r=5;t=60;pk=:QQ==:`)},
			{"/user", policy(`"core";q=100;w=60;pk=:QQ==:`, `"core";r=50;t=60;pk=:QQ==:`)},
			{"/search/b", policy(`"search";q=10;w=60;pk=:Qg==:`, `"search";r=0;t=60;pk=:Qg==:`)},
		}, map[string]bool{"/search/a": true, "/search/b": false, "/user": true}},
		{"lists of draft 07", example, []answered{
			{"/search/a", policy("10;w=60", "limit=10, remaining=0, reset=60")},
			{"/user", policy("100;w=60", "limit=100, remaining=50, reset=60")},
		}, map[string]bool{"/search/a": false, "/user": true, "/new": true}},
		{"lists of draft 06", example, []answered{
			{"/search/a", []string{"RateLimit-Policy", "10;w=60", "RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", "60"}},
			{"/user", []string{"RateLimit-Policy", "100;w=60", "RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "60"}},
		}, map[string]bool{"/search/a": false, "/user": true, "/new": true}},
		{"lists of draft 06 that have all", example, []answered{
			{"/a", []string{"RateLimit-Policy", "10;w=60, 100;w=86400", "RateLimit-Limit", "10", "RateLimit-Remaining", "5", "RateLimit-Reset", "60"}},
			{"/b", []string{"RateLimit-Policy", "10;w=60, 100;w=86400", "RateLimit-Limit", "100", "RateLimit-Remaining", "0", "RateLimit-Reset", "60"}},
		}, map[string]bool{"/a": false, "/b": false, "/new": false}},
		{"fields of draft 06 without a list", example, []answered{
			{"/a", []string{"RateLimit-Limit", "100", "RateLimit-Remaining", "5", "RateLimit-Reset", "60"}},
			{"/b", []string{"RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", "60"}},
		}, map[string]bool{"/a": false, "/b": false}},
		{"a quota in other fields is in no list", example, []answered{
			{"/a", []string{"X-RateLimit-Limit-Hour", "100", "X-RateLimit-Remaining-Hour", "50"}},
			{"/b", policy(`"p";q=10;w=60`, `"p";r=0;t=60`)},
		}, map[string]bool{"/a": false, "/b": false}},
		{"Azure's reads and writes", azure, []answered{
			{"/reads", []string{"X-Ms-Ratelimit-Remaining-Subscription-Reads", "100"}},
			{"/writes", []string{"X-Ms-Ratelimit-Remaining-Subscription-Writes", "0"}},
		}, map[string]bool{"/reads": true, "/writes": false}},
		{"Zendesk's endpoints", zendesk, []answered{
			{"/api/v2/tickets.json", []string{"Ratelimit-Limit", "700", "Ratelimit-Remaining", "699", "Ratelimit-Reset", "41",
				"Zendesk-Ratelimit-Tickets-Index", "total=100; remaining=0; resets=41"}},
			{"/api/v2/users.json", []string{"Ratelimit-Limit", "700", "Ratelimit-Remaining", "698", "Ratelimit-Reset", "41"}},
		}, map[string]bool{"/api/v2/tickets.json": false, "/api/v2/users.json": true}},
		{"Zendesk's account", zendesk, []answered{
			{"/api/v2/tickets.json", []string{"Ratelimit-Limit", "700", "Ratelimit-Remaining", "1", "Ratelimit-Reset", "41",
				"Zendesk-Ratelimit-Tickets-Index", "total=100; remaining=10; resets=41"}},
			{"/api/v2/users.json", []string{"Ratelimit-Limit", "700", "Ratelimit-Remaining", "0", "Ratelimit-Reset", "41"}},
		}, map[string]bool{"/api/v2/tickets.json": false, "/api/v2/users.json": false}},
		{"Hugging Face", hub, []answered{
			{"/api/models", []string{"RateLimit", `"api";r=499;t=293`}},
			{"/gpt2/resolve/main/config.json", []string{"RateLimit", `"resolvers";r=0;t=293`}},
		}, map[string]bool{"/api/models": true, "/gpt2/resolve/main/config.json": false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: unsmoothed})
				var permits []*heed.Permit
				for _, a := range tt.answers { // all are under way at once
					pm := acquire(t, r, request(tt.origin+a.path))
					permits = append(permits, pm)
					if len(permits) == 1 {
						time.Sleep(time.Second + 1) // for the next one not to wait for the first
					}
					time.Sleep(2 * time.Second)
				}
				for i, a := range tt.answers {
					permits[i].Observe(answer(200, a.fields...))
					permits[i].Release()
				}
				for path, want := range tt.may {
					if d := r.Check(request(tt.origin + path)); d.Allowed != want {
						t.Errorf("Check of %s = %+v, want %v", path, d, want)
					}
				}
			})
		})
	}
}

// Several limiters of an application, each for its part.
func TestLimitersOfAnApplicationHoldTheirOwnPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := &budget{name: "5-in-1min", quota: 5, window: time.Minute}
		api := &budget{name: "500-in-1min", quota: 500, window: time.Minute}
		s := new(service).serve(func(req *http.Request) *budget {
			if req.URL.Path == "/login" {
				return login
			}
			return api
		}, func(h http.Header, b *budget, _ bool) {
			left := (time.Until(b.ends) + time.Second - 1) / time.Second
			h.Set("RateLimit-Policy", `"`+b.name+`"; q=`+strconv.Itoa(b.quota)+`; w=60`)
			h.Set("RateLimit", `"`+b.name+`"; r=`+strconv.Itoa(b.left())+`; t=`+strconv.Itoa(int(left)))
		}, 429)
		tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{Default: unsmoothed})}
		fetch(t, tr, example+"/items")
		fetch(t, tr, example+"/login")
		var all sync.WaitGroup
		send(t, tr, &all, 12, example+"/login")
		time.Sleep(time.Second)
		for range 100 {
			send(t, tr, &all, 1, example+"/items")
		}
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		if n := len(s.starts["/items"]); n != 101 {
			t.Errorf("%d items while logins wait, want all 101", n)
		}
		if n := len(s.starts["/login"]); n != 5 {
			t.Errorf("%d logins, want the 5 there are", n)
		}
		s.mu.Unlock()
		all.Wait()
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
	})
}

// A policy may name a partition key where the limit beside it does not.
func TestLimitWithoutAPartitionKeyIsOfThePolicyBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: unsmoothed})
		defer r.Close()
		for range 3 {
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200, "RateLimit-Policy", `"p";q=50;w=5;pk=:MTJj:`, "RateLimit", `"p";r=49;t=5`))
			pm.Release()
		}
		if p := r.Snapshot()[0].Partitions[0].Policies; len(p) != 1 || p[0].Remaining != 49 {
			t.Errorf("%+v, want one policy with 49 left", p)
		}
	})
}
