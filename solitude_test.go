package heed_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// What is left of a window is lost with it, so who comes late and is alone uses it up at once. Several who
// come at the same time leave each other some.
func TestWindowMetLateIsUsedUpByWhoIsAlone(t *testing.T) {
	const quota, window = 100, 10 * time.Second
	for _, c := range []struct {
		processes      int
		trip, left     time.Duration
		least, refused int64
	}{
		{1, 5 * time.Millisecond, 150 * time.Millisecond, 99, 0},
		{1, 50 * time.Millisecond, 400 * time.Millisecond, 99, 0},
		{1, 50 * time.Millisecond, 900 * time.Millisecond, 99, 0},
		{4, 5 * time.Millisecond, 400 * time.Millisecond, 80, 2},
		{4, 50 * time.Millisecond, 400 * time.Millisecond, 70, 2},
		{4, 50 * time.Millisecond, 900 * time.Millisecond, 90, 2},
	} {
		t.Run(fmt.Sprintf("%d, %v away, %v left", c.processes, c.trip, c.left), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(c.left)
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: window}},
					Phase: time.Duration(end.UnixNano()) % window, Latency: heedtest.RoundTrip(c.trip),
				})
				var busy sync.WaitGroup
				for range c.processes {
					tr := quiet(t, o, heed.Limits{})
					time.AfterFunc(c.left, func() { tr.Registry.Close() })
					client := tr.Client()
					for range 64 {
						busy.Go(func() {
							for time.Now().Before(end) {
								resp, err := client.Get(example)
								if err != nil {
									return
								}
								resp.Body.Close()
							}
						})
					}
				}
				busy.Wait()
				tally := o.Tally()
				if tally.Accepted < c.least || tally.Refused > c.refused {
					t.Errorf("%d accepted of %d, want at least %d; %d refused, want at most %d", tally.Accepted, quota, c.least, tally.Refused, c.refused)
				}
			})
		})
	}
}
