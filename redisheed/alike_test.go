package redisheed

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// sends is how many requests r lets go at once.
func sends(t testing.TB, r *heed.Registry) (n int) {
	for ; n < 100; n++ {
		pm, err := r.Acquire(heed.NoWait(t.Context()), request())
		if err != nil {
			break
		}
		answer(pm, 200)
		pm.Release()
	}
	return n
}

// The name of a configured policy says nothing of which policy it is: most have none.
func TestPoliciesOfOneNameAreAllKeptTo(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	for what, policies := range map[string][]heed.Policy{
		"windows":            {{Quota: 3, Window: time.Hour}, {Quota: 5, Window: 4 * time.Hour}},
		"windows of a name":  {{Name: "p", Quota: 3, Window: time.Hour}, {Name: "p", Quota: 5, Window: 4 * time.Hour}},
		"quotas":             {{Quota: 3, Window: time.Hour}, {Quota: 5, Window: time.Hour}},
		"units":              {{Quota: 3, Window: time.Hour}, {Quota: 1 << 20, Window: time.Hour, Unit: heed.UnitContentBytes}},
		"buckets":            {{Quota: 1, Burst: 3, Window: time.Hour}, {Quota: 1, Burst: 50, Window: time.Hour}},
		"a bucket, a window": {{Quota: 1, Burst: 3, Window: time.Hour}, {Quota: 50, Window: time.Hour}},
	} {
		for range 2 {
			slices.Reverse(policies)
			l := heed.Limits{Policies: policies}
			prefix, n := fmt.Sprint(what, policies[0]), 0
			for range 3 {
				n += sends(t, newRegistry(t, c, Options{Prefix: prefix}, l))
			}
			if n != 3 {
				t.Errorf("%s, %v first: 3 processes sent %d, want 3", what, policies[0], n)
			}
		}
	}
}

// Processes may have different limits for a while, as where new ones replace the old.
func TestOtherLimitsInOneProcessTakeNothingFromThoseOfAnother(t *testing.T) {
	for what, x := range map[string][2]heed.Policy{
		"windows": {{Quota: 5, Window: time.Hour}, {Quota: 20, Window: time.Second}},
		"buckets": {{Quota: 1, Burst: 5, Window: time.Hour}, {Quota: 20, Burst: 20, Window: time.Second}},
	} {
		inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
			with := func(p heed.Policy) (*heed.Registry, func()) {
				return (&farRedis{}).registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{p}})
			}
			was, end := with(x[0])
			defer end()
			is, end := with(x[1])
			defer end()
			n := 0
			for range 5 {
				n += sends(t, was)
				time.Sleep(2 * time.Second)
				if pm, err := is.Acquire(t.Context(), request()); err == nil { // which counts for both
					answer(pm, 200)
					pm.Release()
				}
				time.Sleep(2 * time.Second)
			}
			if n != 5 {
				t.Errorf("%s: the process of the lower limit sent %d, want 5", what, n)
			}
			if other, end := with(x[0]); true {
				if n := sends(t, other); n != 0 {
					t.Errorf("%s: another one sent %d more", what, n)
				}
				end()
			}
		})
	}
}

func TestAChangedLimitKnowsWhatWasUsedBefore(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	window, bucket := heed.Policy{Quota: 4, Window: time.Hour}, heed.Policy{Quota: 1, Burst: 4, Window: time.Hour}
	for i, x := range []struct {
		was, is heed.Policy
		want    int
	}{
		{window, heed.Policy{Quota: 5, Window: time.Hour}, 2},
		{window, heed.Policy{Quota: 5, Window: 2 * time.Hour}, 2},
		{window, heed.Policy{Quota: 5, Window: time.Minute}, 2},
		{window, heed.Policy{Quota: 3, Window: time.Hour}, 0},
		{window, heed.Policy{Name: "new", Quota: 5, Window: time.Hour}, 5},
		{bucket, heed.Policy{Quota: 1, Burst: 6, Window: time.Hour}, 1},
		{bucket, heed.Policy{Quota: 1, Burst: 4, Window: 2 * time.Hour}, 1},
	} {
		prefix := fmt.Sprint(i)
		for _, n := range []int{1, 2} {
			r := newRegistry(t, c, Options{Prefix: prefix}, heed.Limits{Policies: []heed.Policy{x.was}})
			for range n {
				pm := acquire(t, r)
				answer(pm, 200)
				pm.Release()
			}
		}
		r := newRegistry(t, c, Options{Prefix: prefix}, heed.Limits{Policies: []heed.Policy{x.was}})
		if err := r.SetLimits("*", heed.Limits{Policies: []heed.Policy{x.is}, Smoothing: heed.Smoothing{Off: true}}); err != nil {
			t.Fatal(err)
		}
		r.Check(request())
		if n := sends(t, r); n != x.want {
			t.Errorf("%+v, of which 3 were used, became %+v: %d went, want %d", x.was, x.is, n, x.want)
		}
	}
}

// What nobody asks about any more is no longer counted, however much goes on.
func TestLimitsThatAreGoneLeaveNothingBehind(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		r, end := (&farRedis{}).registry(t, m, Options{}, heed.Limits{})
		defer end()
		for i := range 200 {
			p := heed.Policy{Quota: 10, Window: time.Duration(i+1) * 10 * time.Millisecond}
			if i%2 == 1 {
				p.Burst = int64(10 + i)
			}
			r.SetLimits("*", heed.Limits{Policies: []heed.Policy{p}, Smoothing: heed.Smoothing{Off: true}})
			if pm, err := r.Acquire(context.Background(), request()); err == nil {
				answer(pm, 200)
				pm.Release()
			}
			time.Sleep(10 * time.Second)
		}
		for _, key := range m.Keys() {
			if fields, _ := m.HKeys(key); len(fields) > 40 {
				t.Errorf("%s has %d fields: %q", key, len(fields), fields)
			}
		}
	})
}
