package scorecard

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A Result is what came of one scenario with one client under one seed.
// Refusals are counted where the origin sees them.
type Result struct {
	Row, Variant, Condition, Client string
	Seed                            uint64

	Accepted int64
	Refused  int64
	After    int64 // of those Refused, after the first event: started once the first refusal had been delivered
	Early    int64 // starts before an instant that answers had named, see heedtest.Tally.Early

	Share   float64 // of what the oracle got accepted
	OfQuota float64 // accepted, over windows times quota
	Oracle  float64 // the same of the oracle

	PeakInWindow int64
	PeakInFlight int64

	WaitMean, WaitP99, WaitMax time.Duration // of requests that were answered, without the time on the way

	ForeignServed float64 // the share of its requests the foreign client got accepted; 1 where there is none
	Jain          float64 // index of fairness over the processes; 1 where there is one
}

// PerMille is the number of refusals per 1000 accepted requests.
func (r Result) PerMille() float64 { return perMille(r.Refused, r.Accepted) }

// AfterPerMille is PerMille without the first event.
func (r Result) AfterPerMille() float64 { return perMille(r.After, r.Accepted) }

func perMille(refused, accepted int64) float64 {
	return 1000 * float64(refused) / float64(max(1, accepted))
}

// measure makes a result of what the origin saw.
func (s Scenario) measure(c Client, seed uint64, began time.Time, t heedtest.Tally, events []heedtest.Event, waits []time.Duration) Result {
	r := Result{
		Row: s.Row, Variant: s.Variant, Condition: s.Condition.String(), Client: c.Name, Seed: seed,
		Accepted: t.Accepted, Refused: t.Refused, Early: t.Early,
		PeakInWindow: t.PeakInWindow, PeakInFlight: t.PeakInFlight,
		ForeignServed: 1, Jain: 1,
	}
	told := firstTold(events)
	for _, e := range events {
		if !e.Foreign && !e.Accepted && e.Start > told {
			r.After++
		}
	}
	if n := t.Foreign + t.ForeignRefused; n > 0 && s.Foreign > 0 {
		r.ForeignServed = float64(t.Foreign) / float64(n)
	}
	from := time.Duration(s.Skip) * s.Quota.Window
	mine, best := int64(0), int64(0)
	for _, e := range events {
		if e.Accepted && !e.Foreign && e.Arrival >= from {
			mine++
		}
	}
	for _, e := range s.consult(seed, began) {
		if e.arrival() >= from {
			best++
		}
	}
	whole := float64(s.Quota.Units) * float64(s.length()-from) / float64(s.Quota.Window)
	r.Share = float64(mine) / float64(max(1, best))
	r.OfQuota, r.Oracle = float64(mine)/whole, float64(best)/whole
	r.WaitMean, r.WaitP99, r.WaitMax = spread(waits)
	return r
}

// firstTold returns when the first refusal was delivered, if one was.
func firstTold(events []heedtest.Event) time.Duration {
	told := time.Duration(never)
	for _, e := range events {
		if !e.Foreign && !e.Accepted && e.Delivered > 0 {
			told = min(told, e.Delivered)
		}
	}
	return told
}

func spread(waits []time.Duration) (mean, p99, most time.Duration) {
	if len(waits) == 0 {
		return 0, 0, 0
	}
	slices.Sort(waits)
	var sum time.Duration
	for _, w := range waits {
		sum += w
	}
	return sum / time.Duration(len(waits)), waits[len(waits)*99/100], waits[len(waits)-1]
}
