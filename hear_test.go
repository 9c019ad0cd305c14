package heed

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hearOf has a request answered with such fields.
func hearOf(t *testing.T, r *Registry, url, policy, limit string) {
	t.Helper()
	pm, err := r.Acquire(t.Context(), chaosTo(url, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	h := http.Header{}
	for name, value := range map[string]string{"RateLimit-Policy": policy, "RateLimit": limit} {
		if value != "" {
			h.Set(name, value)
		}
	}
	pm.Observe(&http.Response{StatusCode: 200, Header: h})
	pm.Release()
}

// A request can be in flight for days, and an origin announce another policy
// every second.
func TestRequestsInFlightKeepNoAccountOfPoliciesThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRegistry(Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		const site = "https://api.example.org"
		hearOf(t, r, site, "", "")
		long, err := r.Acquire(t.Context(), chaosTo(site, "", ""))
		if err != nil {
			t.Fatal(err)
		}
		defer long.Release()
		for i := range 500 {
			hearOf(t, r, site, fmt.Sprintf(`"p%d";q=1000;w=1`, i), fmt.Sprintf(`"p%d";r=999;t=1`, i))
			for range 3 { // until it is forgotten
				hearOf(t, r, site, "", "")
				time.Sleep(time.Second)
			}
		}
		for i := range 500 { // nor where the user changes limits all the time
			l := Limits{Policies: []Policy{{Name: fmt.Sprint(i), Quota: 100, Window: time.Second}}}
			if err := r.SetLimits(site, l); err != nil {
				t.Fatal(err)
			}
		}
		if kept, n := len(long.p.slots), len(long.charges); n > kept {
			t.Errorf("%d accounts are kept of %d policies", n, kept)
		}
	})
}

// The names of policies that an origin stated on a route are remembered, and
// not without end.
func TestNamesThatAnswersHaveStatedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRegistry(Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for i := range 2000 {
			hearOf(t, r, "https://api.example.org", fmt.Sprintf(`"p%d";q=1000;w=1`, i), fmt.Sprintf(`"p%d";r=999;t=1`, i))
		}
		for _, o := range r.all() {
			for _, table := range []*routes{o.stated, o.routes} {
				if table == nil {
					continue
				}
				for route, key := range table.known {
					if n := 1 + strings.Count(key, budgetSep); n > mostSlots {
						t.Errorf("%d names are kept for %q", n, route)
					}
				}
			}
		}
	})
}

// A limit may name a partition key that its policy does not name. It says what is left of that
// policy all the same, and is none of its own.
func TestLimitWithAPartitionKeyIsOfThePolicyThatNamesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRegistry(Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		hearOf(t, r, "https://api.example.org/", `"default";q=10;w=60`, `"default";r=7;t=30;pk=:YQ==:`)
		got := r.Snapshot()[0].Partitions[0].Policies
		if len(got) != 1 || got[0].Quota != 10 || got[0].Remaining != 7 {
			t.Errorf("policies %+v, want the one announced, with 7 of 10 left", got)
		}
	})
}
