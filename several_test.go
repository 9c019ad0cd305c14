package heed_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// Where several processes share a limit that nobody announces, what one takes makes it refuse the
// others. None of them takes that for chance, and goes on regardless.
func TestRefusalsOfASharedLimitAreNotTakenForChance(t *testing.T) {
	const processes, goroutines, seeds, settle, length = 4, 4, 8, 2 * time.Minute, 8 * time.Minute
	var many, runs int // those with many refused
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.TokenBucket} {
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				origin := heedtest.NewOrigin(heedtest.Config{
					Algorithm: algorithm, Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}},
					Phase: time.Duration(rng.Int64N(int64(5 * time.Second))), Latency: heedtest.RoundTrip(50 * time.Millisecond),
				})
				end := time.Now().Add(settle + length)
				var transports []*heed.Transport
				var wg sync.WaitGroup
				for range processes {
					tr, begin := quiet(t, origin, heed.Limits{}), time.Duration(rng.Int64N(int64(3*time.Second)))
					transports = append(transports, tr)
					for range goroutines {
						wg.Go(func() {
							time.Sleep(begin)
							for client := tr.Client(); time.Now().Before(end); {
								resp, err := client.Get("https://origin.test/")
								if err != nil {
									return // the registry was closed
								}
								resp.Body.Close()
							}
						})
					}
				}
				time.Sleep(settle)
				origin.ResetTally()
				time.Sleep(length)
				tally := origin.Tally()
				for _, tr := range transports {
					tr.Registry.Close()
				}
				wg.Wait()
				if runs++; 1000*tally.Refused > 30*tally.Accepted {
					many++
				}
			})
		}
	}
	t.Logf("more than 30 in 1000 refused in %d runs of %d", many, runs)
	if many > runs/2 {
		t.Errorf("more than 30 in 1000 refused in %d runs of %d", many, runs)
	}
}
