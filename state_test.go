package heed_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// policies are those of the first partition of the first origin, by name.
func policies(r *heed.Registry) map[string]heed.PolicyState {
	all := map[string]heed.PolicyState{}
	for _, p := range r.Snapshot()[0].Partitions[0].Policies {
		all[p.Name] = p
	}
	return all
}

func exchange(t *testing.T, r *heed.Registry, header ...string) {
	t.Helper()
	pm := acquire(t, r, request(example))
	pm.Observe(answer(200, header...))
	pm.Release()
}

func TestPolicyNoLongerAnnouncedFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Name: "own", Quota: 1000, Window: time.Second}}}})
		exchange(t, r, "RateLimit-Policy", `"old";q=100;w=60, "new";q=100;w=60`, "RateLimit", `"old";r=90;t=60, "new";r=90;t=60`)
		for range 59 {
			time.Sleep(time.Second)
			exchange(t, r, "RateLimit-Policy", `"new";q=100;w=60`)
			if len(policies(r)) != 3 {
				t.Fatalf("policies are %v", policies(r))
			}
		}
		time.Sleep(2 * time.Second)
		exchange(t, r, "RateLimit-Policy", `"new";q=100;w=60`)
		all := policies(r)
		if _, ok := all["old"]; ok || len(all) != 2 {
			t.Errorf("policies are %v", all)
		}
		// Nor do new partitions inherit it.
		acquire(t, r, request(example, "X-Api-Key", "b")).Release()
		if ps := r.Snapshot()[0].Partitions[1].Policies; len(ps) != 2 {
			t.Errorf("policies of a new partition are %v", ps)
		}
	})
}

func TestStateIsBoundedWhateverAServerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		for i := range 200 {
			var b strings.Builder
			for j := range 50 {
				fmt.Fprintf(&b, `, "%d-%d";q=1000000;w=3600`, i, j)
			}
			exchange(t, r, "RateLimit-Policy", b.String()[2:])
			pm := acquire(t, r, request(example))
			pm.Learn(heed.Announcement{Limits: []heed.ServiceLimit{{Policy: fmt.Sprint("limit", i), Remaining: 1e6, Reset: -1}}})
			pm.Release()
		}
		for _, key := range []string{"", "new"} {
			acquire(t, r, request(example, "X-Api-Key", key)).Release()
		}
		for _, p := range r.Snapshot()[0].Partitions {
			if n := len(p.Policies); n > 64 {
				t.Errorf("%d policies are kept", n)
			}
		}
	})
}

func TestAbsurdRemainingNeverRaisesTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: quota(7, time.Minute)})
		exchange(t, r, "RateLimit-Policy", `"q";q=5;w=60`, "RateLimit", `"q";r=999999999999999;t=60`)
		if left := policies(r)["q"].Remaining; left > 5 {
			t.Errorf("%d of 5 left", left)
		}
		exchange(t, r, "RateLimit-Policy", `"q";q=999999999999999;w=60`, "RateLimit", `"q";r=999999999999999;t=60`)
		if d := r.Check(request(example)); d.Remaining != 5 {
			t.Errorf("%d of the user's own 7 left", d.Remaining)
		}
	})
}

func TestUnknownUnitsAreShownNotEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Name: "own", Quota: 1, Window: time.Hour, Unit: "points"}}}})
		exchange(t, r, "RateLimit-Policy", `"theirs";q=1;w=3600;qu="tokens"`, "RateLimit", `"theirs";r=0;t=3600`)
		all := policies(r)
		if all["own"].Unit != "points" || all["theirs"].Unit != "tokens" || all["theirs"].Quota != 1 {
			t.Errorf("policies are %v", all)
		}
		if d := r.Check(request(example)); !d.Allowed || d.Remaining != -1 {
			t.Errorf("Check() = %+v", d)
		}
	})
}

func TestIgnoredHeadersAreNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{IgnoreHeaders: true}})
		exchange(t, r, "RateLimit-Policy", `"q";q=1;w=3600`, "RateLimit", `"q";r=0;t=3600`)
		if d := r.Check(request(example)); !d.Allowed || len(policies(r)) != 0 {
			t.Errorf("Check() = %+v with policies %v", d, policies(r))
		}
		pm := acquire(t, r, request(example))
		pm.Observe(answer(429, "Retry-After", "60"))
		pm.Release()
		if d := r.Check(request(example)); d.Cause != heed.CausePause || d.Wait < time.Minute {
			t.Errorf("Check() = %+v after a refusal", d)
		}
	})
}

// So it is with those that were announced before headers were ignored.
func TestIgnoredHeadersHoldNoNewCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		exchange(t, r, "RateLimit-Policy", `"q";q=2;w=3600`, "RateLimit", `"q";r=1;t=3600`)
		if err := r.SetLimits(example, heed.Limits{IgnoreHeaders: true}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 5 {
			pm := acquire(t, r, request(example, "Authorization", "Bearer b"))
			pm.Observe(answer(200))
			pm.Release()
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("five requests of a new credential took %v", d)
		}
	})
}
