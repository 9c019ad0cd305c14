package heed_test

import (
	"fmt"
	"net/http"
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
		{1, 20 * time.Millisecond, 200 * time.Millisecond, 99, 0}, // those that go together do not all go at the same instant
		{1, 50 * time.Millisecond, 400 * time.Millisecond, 99, 0},
		{1, 50 * time.Millisecond, 900 * time.Millisecond, 99, 0},
		{2, 120 * time.Millisecond, 900 * time.Millisecond, 90, 2}, // others have as many on their way as this process
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
				var processes []*heed.Transport
				for range c.processes {
					processes = append(processes, quiet(t, o, heed.Limits{}))
				}
				crowd(end, processes)
				tally := o.Tally()
				if tally.Accepted < c.least || tally.Refused > c.refused {
					t.Errorf("%d accepted of %d, want at least %d; %d refused, want at most %d", tally.Accepted, quota, c.least, tally.Refused, c.refused)
				}
			})
		})
	}
}

// That nobody else used one window says nothing of the next: each of two who were alone in a window of
// their own leaves room for the other where they meet in a third one.
func TestSolitudeEndsWithItsWindow(t *testing.T) {
	const quota, window, trip, alone = 100, 10 * time.Second, 120 * time.Millisecond, 60
	for _, left := range []time.Duration{400 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			end := time.Now().Add(3 * window)
			o := heedtest.NewOrigin(heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: window}},
				Phase: time.Duration(end.UnixNano()) % window, Latency: heedtest.RoundTrip(trip),
			})
			var processes []*heed.Transport
			for range 2 {
				tr := quiet(t, o, heed.Limits{})
				next := time.Now().Add(window)
				for range alone {
					sendOne(t, tr, get(t.Context(), example))
				}
				time.Sleep(time.Until(next))
				processes = append(processes, tr)
			}
			time.Sleep(time.Until(end.Add(-left)))
			before := o.Tally()
			crowd(end, processes)
			after := o.Tally()
			if accepted, refused := after.Accepted-before.Accepted, after.Refused-before.Refused; accepted < 60 || refused > 2 {
				t.Errorf("%v left: %d accepted of %d, want at least 60; %d refused, want at most 2", left, accepted, quota, refused)
			}
		})
	}
}

// crowd has 64 goroutines of each process ask for all they can get until an instant.
func crowd(end time.Time, processes []*heed.Transport) {
	for _, tr := range processes {
		time.AfterFunc(time.Until(end), func() { tr.Registry.Close() })
	}
	asking(64*len(processes), end, func(i int) (*http.Response, error) { return processes[i%len(processes)].Client().Get(example) }).Wait()
}
