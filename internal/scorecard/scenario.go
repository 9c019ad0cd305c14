package scorecard

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A Scenario is one origin, those who use it, and for how long. Its fields are
// the same for every seed; what varies with the seed is where windows by the
// clock begin, the second the run starts in, latencies that are drawn, and what
// Vary adds.
type Scenario struct {
	Row     string // the score card's row it belongs to
	Variant string // what of the row's variety it is
	Condition
	Compared   bool       // clients other than heed play it too
	Thresholds Thresholds // of the row

	Origin    heedtest.Config                          // without policies and latency
	Limits    func(Quota) []heedtest.Policy            // nil: the condition's quota
	Vary      func(c *heedtest.Config, rng *rand.Rand) // nil: nothing more
	Bodies    func(rng *rand.Rand) (bytes int64)       // draws the size of an answer's body; nil: none
	Length    func(Quota) time.Duration                // of the run; nil: 20 windows
	Skip      int                                      // windows at the start that do not count for the share
	Processes int                                      // clients that do not know of each other, each with all the goroutines; 0: 1
	Foreign   float64                                  // the share of the quota another client wants; 0: there is none
	Changes   func(Quota, *rand.Rand) []Change         // what happens mid-run; nil: nothing
	Burst     bool                                     // requests all at once, on a known origin with little left, in place of a closed loop
	Measure   func(view) figures                       // nil: overall
}

// A Condition is under what a scenario is played.
type Condition struct {
	Quota      Quota
	Goroutines int
	Trip       Trip
}

func (c Condition) String() string {
	return fmt.Sprintf("%v n=%d rtt=%v", c.Quota, c.Goroutines, c.Trip)
}

// Quota is units per window.
type Quota struct {
	Units  int64
	Window time.Duration
}

func (q Quota) String() string {
	return fmt.Sprintf("%d/%ds", q.Units, int64(q.Window/time.Second))
}

// Trip is a round trip, half up and half down; 0 is the heavy tail: lognormal
// with a median of 30 ms and a sigma of 1.7, cut at 5 s.
type Trip time.Duration

// HeavyTail is the round trip that is drawn.
const HeavyTail Trip = 0

const (
	tailMedian = 30 * time.Millisecond
	tailSigma  = 1.7
	tailCut    = 5 * time.Second
)

func (t Trip) String() string {
	if t == HeavyTail {
		return "tail"
	}
	return fmt.Sprintf("%dms", time.Duration(t)/time.Millisecond)
}

func (t Trip) latency(seed uint64) heedtest.Latency {
	if t == HeavyTail {
		return heedtest.HeavyTail(tailMedian, tailSigma, tailCut, seed)
	}
	return heedtest.RoundTrip(time.Duration(t))
}

// A Change is something that happens to the origin mid-run.
type Change struct {
	At         time.Duration
	Policies   []heedtest.Policy // new limits; nil: the old ones
	Drain      bool              // another client takes all that is left
	Outage     time.Duration     // refuse all for so long, with 503
	RetryAfter time.Duration     // in an outage
}

// windows is the length of a run in windows, where nothing else is said.
const windows = 20

func (s Scenario) length() time.Duration {
	if s.Length != nil {
		return s.Length(s.Quota)
	}
	return windows * s.Quota.Window
}

// changes returns what happens mid-run under a seed, in order.
func (s Scenario) changes(seed uint64) []Change {
	if s.Changes == nil {
		return nil
	}
	return s.Changes(s.Quota, s.rng(seed, 5))
}

func (s Scenario) rng(seed uint64, what uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, what)) }

// config returns the origin under a seed.
func (s Scenario) config(seed uint64) heedtest.Config {
	c := s.Origin
	c.Policies = []heedtest.Policy{{Quota: s.Quota.Units, Window: s.Quota.Window}}
	if s.Limits != nil {
		c.Policies = s.Limits(s.Quota)
	}
	rng := s.rng(seed, 1)
	if s.Condition.Quota.Units == 0 {
		c.Policies = nil // an origin without limits
	}
	c.Phase = time.Duration(rng.Int64N(int64(s.Quota.Window)))
	c.Latency = s.Trip.latency(seed)
	if s.Vary != nil {
		s.Vary(&c, rng)
	}
	if s.Bodies != nil {
		var n atomic.Int64
		size := s.bodies(seed)
		c.Respond = func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size(n.Add(1)-1))) }
	}
	return c
}

// offset is how far into a second a run starts.
func (s Scenario) offset(seed uint64) time.Duration {
	return time.Duration(s.rng(seed, 2).Int64N(int64(time.Second)))
}

// foreign returns when the foreign client's requests arrive: evenly, but for
// half the spacing either way.
func (s Scenario) foreign(seed uint64) (arrivals []time.Duration) {
	if s.Foreign == 0 {
		return nil
	}
	rng := s.rng(seed, 3)
	gap := float64(s.Quota.Window) / (s.Foreign * float64(s.Quota.Units))
	for at := 0.0; ; {
		at += gap * (0.5 + rng.Float64())
		if time.Duration(at) >= s.length() {
			return arrivals
		}
		arrivals = append(arrivals, time.Duration(at))
	}
}

// bodies returns the size of the n-th accepted answer's body.
func (s Scenario) bodies(seed uint64) func(n int64) int64 {
	return func(n int64) int64 {
		if s.Bodies == nil {
			return 0
		}
		return s.Bodies(s.rng(seed, 1<<32+uint64(n)))
	}
}
