package heed_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// inFlightOver sends n requests at once through a transport whose every answer
// is the same after a tenth of a second, and returns how many were under way
// after each such round.
func inFlightOver(t *testing.T, r *heed.Registry, n, rounds int, status int, fields ...string) (under []int) {
	t.Helper()
	const latency = time.Second / 10
	var mu sync.Mutex
	now := 0
	tr := &heed.Transport{Registry: r, Retry: heed.Retry{Max: -1}, Base: respond(func(*http.Request) *http.Response {
		mu.Lock()
		now++
		mu.Unlock()
		time.Sleep(latency)
		mu.Lock()
		now--
		mu.Unlock()
		return reply(status, "", fields...)
	})}
	var all sync.WaitGroup
	for range n {
		all.Go(func() { sendOne(t, tr, get(t.Context(), site)) })
	}
	time.Sleep(latency / 2)
	for range rounds {
		synctest.Wait()
		mu.Lock()
		under = append(under, now)
		mu.Unlock()
		time.Sleep(latency)
	}
	all.Wait()
	return under
}

// On first contact the rest go as the policies announced allow; after a pause
// only as answers confirm that there is room.
func TestHowManyGoOnceOneHasScouted(t *testing.T) {
	const all = 20
	for name, c := range map[string]struct {
		fields []string
		first  int // in flight after the first answer, on first contact …
		after  int // … and after a pause
	}{
		"nothing announced":          {nil, 2, 2},
		"what remains":               {[]string{`RateLimit-Policy: "a";q=100;w=60`, `RateLimit: "a";r=90;t=50`}, all - 1, all - 1},
		"a policy":                   {[]string{`RateLimit-Policy: "a";q=100;w=60`}, all - 1, 2},
		"a policy with less":         {[]string{`RateLimit-Policy: "a";q=11;w=60`}, 10, 2},
		"a policy without a window":  {[]string{`RateLimit-Policy: "a";q=100`}, 2, 2},
		"a cap on those in flight":   {[]string{`RateLimit-Policy: "a";q=5;qu="concurrent-requests"`}, 5, 2},
		"a policy nobody can count":  {[]string{`RateLimit-Policy: "a";q=100;w=60;qu="moons"`}, 2, 2},
		"a policy, out of a cache":   {[]string{`RateLimit-Policy: "a";q=100;w=60`, "Age: 5"}, 2, 1},
		"what remains, from a cache": {[]string{`RateLimit: "a";r=90;t=50`, "Age: 5"}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{MaxRetryAfter: time.Minute, Smoothing: heed.Smoothing{Off: true}}})
				if under := inFlightOver(t, r, all, 2, 200, c.fields...); under[0] != 1 || under[1] != c.first {
					t.Errorf("%v in flight on first contact, want 1 and %d", under, c.first)
				}
				r.Pause(site, 2*time.Minute)
				time.Sleep(2 * time.Minute)
				if under := inFlightOver(t, r, all, 2, 200, c.fields...); under[0] != 1 || under[1] != c.after {
					t.Errorf("%v in flight after a pause, want 1 and %d", under, c.after)
				}
			})
		})
	}
}

// Answers that confirm nothing slow the opening and do not stop it: one more
// goes with every second.
func TestOpeningGoesOnWithoutGoodAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		field  string
	}{"server errors": {500, "X-Any: 1"}, "answers from a cache": {200, "Age: 5"}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			r.Pause(site, time.Minute)
			time.Sleep(time.Minute)
			under := inFlightOver(t, r, 300, 50, c.status, c.field)
			for round, want := range map[int]int{5: 1, 15: 2, 25: 3, 35: 4, 45: 5} {
				if under[round] != want {
					t.Errorf("%s: %d in flight after %d rounds, want %d", name, under[round], round, want)
				}
			}
		})
	}
}

// peaksOver has many goroutines ask an origin as fast as they can, where the n. round
// trip is so long, and returns the most that were under way in each of the
// first spans of time.
func peaksOver(t *testing.T, trip func(n int) time.Duration, span time.Duration, spans int) []int {
	t.Helper()
	peaks := make([]int, spans)
	var mu sync.Mutex
	all, now, began := 0, 0, time.Now()
	tr := &heed.Transport{Registry: newRegistry(t, heed.Config{}), Base: respond(func(*http.Request) *http.Response {
		mu.Lock()
		all++
		n := all
		now++
		if i := int(time.Since(began) / span); i < spans {
			peaks[i] = max(peaks[i], now)
		}
		mu.Unlock()
		time.Sleep(trip(n))
		mu.Lock()
		now--
		mu.Unlock()
		return reply(200, "")
	})}
	var busy sync.WaitGroup
	for range 64 {
		busy.Go(func() {
			for time.Since(began) < time.Duration(spans)*span {
				sendOne(t, tr, get(t.Context(), site))
			}
		})
	}
	busy.Wait()
	return peaks
}

// Where a round trip takes no time, doubling with each would have all of them
// in flight before the first limit could be met.
func TestOriginNearByIsNotOpenedInARush(t *testing.T) {
	manyRequests(t)
	for _, c := range []struct {
		trip, span time.Duration
		want       []int
	}{
		{200 * time.Microsecond, 50 * time.Millisecond, []int{2, 4, 8, 16, 32, 64, 64}},
		{4 * time.Millisecond, 20 * time.Millisecond, []int{2, 4, 8, 16, 32, 64, 64}},
		{20 * time.Microsecond, 10 * time.Millisecond, []int{2, 4, 8, 16, 32, 64, 64}},
		{5 * time.Millisecond, 5 * time.Millisecond, []int{1, 2, 4, 8, 16, 32, 64, 64}},
		{100 * time.Millisecond, 100 * time.Millisecond, []int{1, 2, 4, 8, 16, 32, 64, 64}},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := peaksOver(t, func(int) time.Duration { return c.trip }, c.span, len(c.want))
			for i, want := range c.want {
				if got[i] > want || got[i] < want/2 || c.trip >= 5*time.Millisecond && got[i] != want {
					t.Errorf("%v on the way: at most %v in flight in spans of %v, want %v", c.trip, got, c.span, c.want)
					break
				}
			}
		})
	}
}

// Nor is one met slowly that is far away, though a cache on the way answers a few at once.
func TestFewQuickAnswersDoNotSlowTheOpening(t *testing.T) {
	const span = 25 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		got := peaksOver(t, func(n int) time.Duration {
			if n%5 == 0 {
				return 200 * time.Microsecond
			}
			return span
		}, span, 8)
		t.Log(got)
		if last := got[len(got)-1]; last < 32 {
			t.Errorf("at most %v in flight in spans of %v, want 32 in the last", got, span)
		}
	})
}
