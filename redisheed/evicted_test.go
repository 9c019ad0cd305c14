package redisheed

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// A Redis that has no room for all its keys drops some: what was used of an origin is told
// again, whether its own key is gone or a partition's.
func TestWhatWasUsedIsToldAgainWhereKeysAreEvicted(t *testing.T) {
	const quota = 60
	for name, gone := range map[string]func(key string) bool{
		"the partition's": func(key string) bool { return strings.Contains(key, "}:") },
		"the origin's":    func(key string) bool { return strings.HasSuffix(key, "}") },
		"both":            func(string) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
				var all []*heed.Registry
				for range 3 {
					far := &farRedis{trip: func() time.Duration { return 2 * time.Millisecond }}
					r, end := far.registry(t, m, Options{}, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: quota, Window: time.Hour}}})
					defer end()
					all = append(all, r)
				}
				granted := 0
				for i := range 6 * quota {
					if i%30 == 20 { // each time another one finds it gone
						for _, key := range m.Keys() {
							if gone(key) {
								m.Del(key)
							}
						}
					}
					if pm, err := all[i/10%3].Acquire(heed.NoWait(t.Context()), request()); err == nil {
						granted++
						answer(pm, 200)
						pm.Release()
					}
					time.Sleep(100 * time.Millisecond)
				}
				if granted != quota {
					t.Errorf("%d granted in a window, want %d", granted, quota)
				}
				time.Sleep(time.Hour)
				if d := all[0].Check(request()); !d.Allowed || d.Remaining != quota {
					t.Errorf("a window later: %+v", d)
				}
			})
		})
	}
}
