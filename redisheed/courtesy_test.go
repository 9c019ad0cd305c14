package redisheed

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/redis/go-redis/v9"
)

// Processes that share a quota leave to a client that does not know of them what it was seen to
// use, as one process alone would: it is not what is left once they have taken all they can get.
func TestAGroupLeavesOthersWhatTheyUse(t *testing.T) {
	t.Parallel()
	const window, windows, runs = 4 * time.Second, 6, 5
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			var others, refused int64
			for run := range runs {
				synctest.Test(t, func(t *testing.T) {
					o := heedtest.NewOrigin(heedtest.Config{
						Algorithm: algorithm, Latency: heedtest.RoundTrip(100 * time.Millisecond),
						Policies: []heedtest.Policy{{Name: "p", Quota: 10, Window: window}},
					})
					shareWithOther(t, o, 2, time.Duration(run)*73*time.Millisecond, windows*window)
					tally := o.Tally()
					others += tally.Foreign
					refused += tally.Refused
				})
			}
			// It asks for 48 in each run, of 60 to 70 that there are. One process alone leaves it 31 of a
			// fixed window.
			t.Logf("of 48 asked for, %.1f left to the other client; %.1f refused", float64(others)/runs, float64(refused)/runs)
			if others < 27*runs || refused > 8*runs {
				t.Error("want 27 left at least, and 8 refused at most")
			}
		})
	}
}

// The instants that an origin names are kept to in all processes, though Redis tells the time in
// whole microseconds.
func TestNoProcessStartsBeforeTheNamedInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const window = 4 * time.Second
		o := heedtest.NewOrigin(heedtest.Config{
			Algorithm: heedtest.SlidingWindow, Latency: heedtest.RoundTrip(100*time.Millisecond + 334),
			Policies: []heedtest.Policy{{Name: "p", Quota: 10, Window: window}},
		})
		shareWithOther(t, o, 2, 20*window, 10*window)
		if tally := o.Tally(); tally.Early > 0 || tally.Accepted < 50 {
			t.Errorf("%d of %d requests were early", tally.Early, tally.Accepted)
		}
	})
}

// Of a quota that is large enough for units to be taken in advance, too; those that nobody needed by then
// are given back at the very instant until which they were good. Who has no regard for others leaves 39 at most.
func TestALargerGroupLeavesOthersWhatTheyUse(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.SlidingWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := heedtest.NewOrigin(heedtest.Config{
					Algorithm: algorithm, Latency: heedtest.RoundTrip(20 * time.Millisecond),
					Policies: []heedtest.Policy{{Name: "p", Quota: 100, Window: 10 * time.Second}},
				})
				shareWithOther(t, o, 4, 0, time.Minute)
				tally := o.Tally()
				t.Logf("of 120 asked for, %d left to the other client; %d accepted, %d refused", tally.Foreign, tally.Accepted, tally.Refused)
				if tally.Foreign < 55 || tally.Accepted < 400 || tally.Refused > 10 {
					t.Error("want 55 left at least, 400 accepted, and 10 refused at most")
				}
			})
		})
	}
}

// shareWithOther has some processes ask an origin for all they can get, and another client for one
// unit every half second.
func shareWithOther(t *testing.T, o *heedtest.Origin, processes int, late, span time.Duration) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(span, stop)
	var clients sync.WaitGroup
	var ends []func()
	for range processes {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
		l := New(c, quiet(Options{}))
		r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, func() { r.Close(); l.Close(); c.Close() })
		keepAsking(ctx, t, &clients, 8, (&heed.Transport{Base: o, Registry: r}).Client())
	}
	clients.Go(func() {
		time.Sleep(late)
		for ctx.Err() == nil {
			o.Take(1)
			time.Sleep(500 * time.Millisecond)
		}
	})
	clients.Wait()
	for _, end := range ends {
		end()
	}
	m.Close()
	time.Sleep(2 * time.Minute) // until the clients have noticed
}
