package heed_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A request that went before a reset may arrive after one that went later. If its answer says
// that nothing is left, and the newer words leave no more than it took, that may be the origin's
// last word: nothing starts before the instant it names. Where they leave more, it is of
// the window that is over, and holds nothing.
func TestAnswerThatOutlastsAResetHoldsWhereItMayBeTheLastWord(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		algorithm heedtest.Algorithm
		others    int64
		up, down  time.Duration // of the request that takes long
		last      time.Duration // when the last request starts
	}{
		{heedtest.SlidingCounter, 7, 1100 * ms, 1400 * ms, 7700 * ms}, // it arrives behind the third
		{heedtest.FixedWindowByClock, 8, 5 * ms, 2495 * ms, 6800 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			origin := heedtest.NewOrigin(heedtest.Config{
				Algorithm: c.algorithm, Policies: []heedtest.Policy{{Quota: 10, Window: 5 * time.Second}},
				Latency: func(n int64) (up, down time.Duration) {
					if n == 1 {
						return c.up, c.down
					}
					return 5 * ms, 5 * ms
				},
				Record: true,
			})
			transport := &heed.Transport{Base: origin}
			origin.Take(c.others)
			begin, all := time.Now(), sync.WaitGroup{}
			// The window turns at 5 s. The second request is answered at 6.7 s: r=0, t=1.
			for _, at := range []time.Duration{4000 * ms, 4200 * ms, 5100 * ms, 6800 * ms} {
				time.Sleep(at - time.Since(begin))
				all.Go(func() { fetch(t, transport, example) })
			}
			all.Wait()
			events := origin.Events()
			if last := events[len(events)-1]; last.Start != c.last {
				t.Errorf("%s: the last request started at %v, want %v", c.algorithm, last.Start, c.last)
			}
			if tally := origin.Tally(); tally.EarlyStanding > 0 || tally.Refused > 0 {
				t.Errorf("%s: %d early, %d refused", c.algorithm, tally.EarlyStanding, tally.Refused)
			}
		})
	}
}
