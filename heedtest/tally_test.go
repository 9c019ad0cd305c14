package heedtest_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/heedhttp/heed/heedtest"
)

// Requests start at these instants; a round trip takes 100 ms. Which are early?
func TestEarly(t *testing.T) {
	one := []Policy{{Quota: 1, Window: 5 * time.Second}}
	two := []Policy{{Quota: 2, Window: 5 * time.Second}}
	// The first request arrives at 50 ms and is answered at 100 ms.
	for _, test := range []struct {
		name            string
		config          Config
		starts          []time.Duration
		early, standing int64
	}{
		{"something left names nothing", Config{Policies: two}, []time.Duration{0, 101 * ms}, 0, 0},
		{"nothing left names receipt plus t", Config{Policies: one}, []time.Duration{0, 5100*ms - 1}, 1, 1},
		{"and no more", Config{Policies: one}, []time.Duration{0, 5100 * ms}, 0, 0},
		{"before the answer is there one cannot know", Config{Policies: one}, []time.Duration{0, 99 * ms}, 0, 0},
		{"nor at the very instant", Config{Policies: one}, []time.Duration{0, 100 * ms}, 0, 0},
		{"however many come while it is on its way", Config{Policies: one}, []time.Duration{0, 10 * ms, 20 * ms, 99 * ms}, 0, 0},
		{"a nanosecond later one can", Config{Policies: one}, []time.Duration{0, 100*ms + 1}, 1, 1},
		{"t rounded up counts as announced", Config{Policies: []Policy{{Quota: 1, Window: 4001 * ms}}}, []time.Duration{0, 5100*ms - 1}, 1, 1},
		{"t cut to 0 names nothing", Config{Policies: one, Rounding: RoundZero}, []time.Duration{0, 2000 * ms}, 0, 0},
		{"without fields nothing is named", Config{Policies: one, Dialect: Silent}, []time.Duration{0, 1000 * ms, 2000 * ms}, 0, 0},
		// Refused at 1050 ms, answered at 1100 ms: 4 s to go.
		{"Retry-After names receipt plus its value", Config{Policies: one, Dialect: RetryAfterOnly}, []time.Duration{0, 1000 * ms, 5100*ms - 1}, 1, 1},
		{"and no more than that", Config{Policies: one, Dialect: RetryAfterOnly}, []time.Duration{0, 1000 * ms, 5100 * ms}, 0, 0},
		{"it goes before a reset beside it", Config{Policies: one, OnRefusalsOnly: true,
			RetryAfter: RetryAfter{Mode: RetryAfterConstant, Value: 2 * time.Second}}, []time.Duration{0, 1000 * ms, 3100 * ms}, 0, 0},
		{"a date is an instant of its clock", Config{Policies: one, Dialect: RetryAfterOnly, ClockSkew: 3500 * ms,
			RetryAfter: RetryAfter{HTTPDate: true}}, []time.Duration{0, 1000 * ms, 5500*ms - 1}, 1, 1}, // 00:00:09 by a clock 3.5 s ahead
		{"of its own clock", Config{Policies: one, Dialect: RetryAfterOnly, ClockSkew: 3500 * ms,
			RetryAfter: RetryAfter{HTTPDate: true}}, []time.Duration{0, 1000 * ms, 5500 * ms}, 0, 0},
		{"so is an epoch", Config{Policies: one, Dialect: XRateLimitEpoch, ClockSkew: -250 * ms},
			[]time.Duration{0, 5250*ms - 1}, 1, 1}, // 00:00:05
		{"to be kept to and no longer", Config{Policies: one, Dialect: XRateLimitEpoch, ClockSkew: -250 * ms},
			[]time.Duration{0, 5250 * ms}, 0, 0},
		{"one policy of two is enough", Config{Policies: append(two, one...)}, []time.Duration{0, 5000 * ms}, 1, 1},
		// At 1.1 s nothing is left and t=4, so until 5.1 s. The window ends at
		// 4.051 s; the third opens the next one, and its answer says so at 4.101 s.
		{"a later answer with units left takes back what stands", Config{Policies: []Policy{{Quota: 2, Window: 4001 * ms}}},
			[]time.Duration{0, 1000 * ms, 4001 * ms, 4500 * ms}, 2, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.config.Latency = RoundTrip(100 * ms)
				o := NewOrigin(test.config)
				var wg sync.WaitGroup
				begin := time.Now()
				for _, start := range test.starts {
					time.Sleep(start - time.Since(begin))
					synctest.Wait() // what is delivered at this instant, is
					wg.Go(func() { get(t, o) })
				}
				wg.Wait()
				if tally := o.Tally(); tally.Early != test.early || tally.EarlyStanding != test.standing {
					t.Errorf("early %d, standing %d; want %d, %d", tally.Early, tally.EarlyStanding, test.early, test.standing)
				}
			})
		})
	}
}

// The first answer, with a unit left, is overtaken by the second, with none: what
// stands is what was said last.
func TestAnOvertakenAnswerTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{
			Latency: func(n int64) (up, down time.Duration) {
				return 0, []time.Duration{300 * ms, 100 * ms, 0}[n]
			},
			Policies: []Policy{{Quota: 2, Window: 5 * time.Second}},
		})
		var wg sync.WaitGroup
		wg.Go(func() { get(t, o) })
		time.Sleep(50 * ms)
		get(t, o)
		wg.Wait()
		time.Sleep(100 * ms)
		get(t, o)
		if tally := o.Tally(); tally.Early != 1 || tally.EarlyStanding != 1 {
			t.Errorf("early %d, standing %d", tally.Early, tally.EarlyStanding)
		}
	})
}

func TestPeakInWindowLeavesOutItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Policies: []Policy{{Quota: 1, Window: time.Second}}})
		for range 3 {
			get(t, o)
			time.Sleep(time.Second)
		}
		if tally := o.Tally(); tally.Accepted != 3 || tally.PeakInWindow != 1 {
			t.Errorf("%d accepted, peak %d", tally.Accepted, tally.PeakInWindow)
		}
	})
}

// The peak is what a search over all windows finds.
func TestPeakInWindow(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			window := time.Second
			o := NewOrigin(Config{Record: true, Policies: []Policy{
				{Quota: 3, Unit: UnitConcurrentRequests}, {Quota: 10, Window: window},
			}})
			for range 200 {
				get(t, o)
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(60*ms)))
			}
			peak := int64(0)
			events := o.Events()
			for _, last := range events {
				n := int64(0)
				for _, e := range events {
					if e.Accepted && e.Arrival > last.Arrival-window && e.Arrival <= last.Arrival {
						n++
					}
				}
				peak = max(peak, n)
			}
			tally := o.Tally()
			if tally.PeakInWindow != peak || tally.Policies[1].PeakInWindow != peak || peak <= 10 {
				t.Errorf("peak %d, search finds %d (a fixed window lets more than its quota pass)", tally.PeakInWindow, peak)
			}
			if tally.Policies[0].PeakInWindow != 1 {
				t.Errorf("one at a time, peak in flight %d", tally.Policies[0].PeakInWindow)
			}
		})
	}
}

func TestEventsTellWhatHappenedWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Record: true, Latency: RoundTrip(100 * ms), Service: 10 * ms, BodySize: 7,
			Policies: []Policy{{Quota: 2, Window: 5 * time.Second}}})
		get(t, o)
		o.Take(1)
		get(t, o)
		want := []Event{
			{Start: 0, Arrival: 50 * ms, Delivered: 110 * ms, Status: 200, Accepted: true, Bytes: 7},
			{Start: 110 * ms, Arrival: 110 * ms, Accepted: true, Foreign: true},
			{Start: 110 * ms, Arrival: 160 * ms, Delivered: 210 * ms, Status: 429},
		}
		if got := o.Events(); !slices.Equal(got, want) {
			t.Errorf("\n got %+v\nwant %+v", got, want)
		}
		time.Sleep(6 * time.Second)
		get(t, o)
		get(t, o)
		if got := o.AcceptedPer(time.Second); !slices.Equal(got, []int64{1, 0, 0, 0, 0, 0, 2}) {
			t.Errorf("accepted per second %v", got)
		}
		if began := o.Began(); time.Since(began) != 210*ms+6*time.Second+220*ms {
			t.Errorf("began %v ago", time.Since(began))
		}
	})
}

func TestResetTallyKeepsQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Record: true, Latency: RoundTrip(100 * ms), Policies: []Policy{{Quota: 2, Window: time.Hour}}})
		get(t, o)
		var wg sync.WaitGroup
		wg.Go(func() { get(t, o) })
		time.Sleep(60 * ms) // it has arrived
		o.ResetTally()
		o.Take(1)
		o.Take(1)
		wg.Wait()
		if e := o.Events()[1]; e.Status != 0 {
			t.Errorf("an answer from before is noted with %+v", e)
		}
		get(t, o)
		tally := o.Tally()
		if tally.Requests != 1 || tally.Refused != 1 || tally.Accepted != 0 || tally.PeakInWindow != 0 ||
			tally.InFlight != 0 || tally.PeakInFlight != 1 || tally.ByStatus[200] != 1 || len(o.Events()) != 3 {
			t.Errorf("%+v", tally)
		}
	})
}

func TestTallyEncodesToJSON(t *testing.T) {
	o := NewOrigin(Config{Policies: []Policy{{Quota: 1, Window: time.Hour}}})
	w := httptest.NewRecorder()
	o.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	tally := o.Tally()
	text, err := json.Marshal(tally)
	if err != nil {
		t.Fatal(err)
	}
	var back Tally
	if err := json.Unmarshal(text, &back); err != nil || back.Accepted != 1 || back.ByStatus[200] != 1 || back.Policies[0].Algorithm != FixedWindow {
		t.Errorf("%s: %v", text, err)
	}
	if tally.FirstArrival.IsZero() || tally.FirstAccepted.IsZero() || !tally.FirstRefused.IsZero() {
		t.Errorf("%+v", tally)
	}
	tally.ByStatus[200], tally.Policies[0].Accepted = 99, 99
	if again := o.Tally(); again.ByStatus[200] != 1 || again.Policies[0].Accepted != 1 {
		t.Error("a tally is a copy")
	}
}
