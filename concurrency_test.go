package heed_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// Twelve requests are in flight when the server says that it is short of capacity: in
// answer to the first of them, to the last, or to all, which says it once, in whatever
// order the answers come.
func TestReducedCapacityHalvesWhatIsInFlight(t *testing.T) {
	const inFlight = 12
	all := func(int) bool { return true }
	for _, tc := range []struct {
		name    string
		says    func(i int) bool
		reverse bool
	}{
		{"to the first", func(i int) bool { return i == 0 }, false},
		{"to the last", func(i int) bool { return i == inFlight-1 }, false},
		{"to all", all, false},
		{"to all, the last first", all, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				meet(t, r, example)
				var rounds []int
				round := func(most int, says func(i int) bool) {
					var permits []*heed.Permit
					for len(permits) < most {
						pm, err := r.Acquire(heed.NoWait(t.Context()), request(example))
						if err != nil {
							break
						}
						permits = append(permits, pm)
					}
					rounds = append(rounds, len(permits))
					time.Sleep(time.Second)
					if tc.reverse {
						slices.Reverse(permits)
					}
					for i, pm := range permits {
						pm.Observe(answer(200))
						if says(i) {
							pm.Learn(heed.Announcement{Reduced: true})
						}
						pm.Release()
					}
				}
				round(inFlight, tc.says)
				for range 60 {
					round(4*inFlight, func(int) bool { return false })
				}
				if rounds[1] < inFlight/2 || rounds[1] > inFlight/2+2 || rounds[2] > rounds[1]+1 {
					t.Errorf("in flight, round by round: %v", rounds)
				}
				if rounds[60] != 4*inFlight {
					t.Errorf("the cap was never lifted: %v", rounds)
				}
			})
		})
	}
}
