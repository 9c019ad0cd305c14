package heed_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A haproxy refuses as HAProxy does by a counter of its stick tables (gpc_rate, with sc-inc for those it lets through): what came in
// the present period, and of the one before it the part that is not a period ago, all in whole milliseconds. A period begins with
// the first request after the last one.
type haproxy struct {
	quota, period int64 // requests, milliseconds
	countsAll     bool  // those that are refused as well, as http_req_rate does
	trip          time.Duration

	mu                sync.Mutex
	rng               *rand.Rand
	began             time.Time
	tick, curr, prev  int64
	accepted, refused int
}

func (h *haproxy) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := sleep(req.Context(), h.half()); err != nil {
		return nil, err
	}
	resp := answer(200)
	switch {
	case h.lets():
	case h.countsAll:
		resp = answer(429)
	default:
		resp = answer(429, "Retry-After", "1")
	}
	return resp, sleep(req.Context(), h.half())
}

// half is how long a request or an answer is on its way.
func (h *haproxy) half() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trip/2 + time.Duration(h.rng.ExpFloat64()*float64(time.Millisecond))
}

func (h *haproxy) lets() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Since(h.began).Milliseconds() + h.period
	if past := now - h.tick; past >= h.period {
		h.prev, h.curr, h.tick = h.curr, 0, h.tick+h.period
		if past >= 2*h.period {
			h.prev, h.tick = 0, now
		}
	}
	if h.curr+h.prev*(h.tick+h.period-now)/h.period >= h.quota {
		if h.countsAll {
			h.curr++
		}
		h.refused++
		return false
	}
	h.curr++
	h.accepted++
	return true
}

// What a measure spans may be two waits that the server named, and not one: it is too low by half, and must not be confirmed by
// the very refusals that it was measured by.
func TestMeasureThatMayBeTooLowIsNotConfirmedByItself(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		goroutines int
		trip       time.Duration
	}{{16, 20 * time.Millisecond}, {64, 50 * time.Millisecond}} {
		t.Run(fmt.Sprint(c.goroutines, " goroutines, ", c.trip), func(t *testing.T) {
			const seeds, length = 160, 20 * time.Second // so many that chance does not decide
			half, accepted, refused := 0, 0, 0
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) {
					h := &haproxy{quota: 10, period: 1000, trip: c.trip, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now()}
					askAtOnce(&heed.Transport{Base: h, Registry: newRegistry(t, heed.Config{})}, c.goroutines, length)
					accepted, refused = accepted+h.accepted, refused+h.refused
					if h.accepted < 130 { // of 200
						half++
					}
				})
			}
			t.Logf("%d accepted, %d refused a run; %d of %d used about half", accepted/seeds, refused/seeds, half, seeds)
			if half > seeds/8 || accepted < 130*seeds {
				t.Errorf("%d accepted of 200 in the mean, and %d of %d runs used about half of what goes", accepted/seeds, half, seeds)
			}
		})
	}
}

// A limit that counts what it refuses, too, and lasts as long as the first wait, has room again a little later than one that does not. To
// be refused then costs a second wait, which is twice as long.
func TestFirstWaitAllowsForALimitThatCountsWhatItRefuses(t *testing.T) {
	const seeds = 16
	accepted := 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			h := &haproxy{quota: 50, period: 5000, countsAll: true, trip: time.Millisecond, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now()}
			askAtOnce(&heed.Transport{Base: h, Registry: newRegistry(t, heed.Config{})}, 4, 20*time.Second)
			accepted += h.accepted
		})
	}
	t.Logf("%d accepted of 200 in the mean", accepted/seeds)
	if accepted < 150*seeds {
		t.Errorf("%d accepted of 200 in the mean", accepted/seeds)
	}
}
