package scorecard

import (
	"slices"
	"time"
)

// A Result is what came of one scenario with one client under one seed.
// Refusals are counted where the origin sees them.
type Result struct {
	Row, Variant, Condition, Client string
	Seed                            uint64

	Accepted int64
	Refused  int64
	After    int64 // of those Refused, after the first event: started once the first answer had been delivered that told of it
	Early    int64 // starts before an instant that answers had named, see heedtest.Tally.Early

	EarlyStanding int64 // of those Early, by the newest answer too

	Share   float64 // of what the oracle got accepted
	OfQuota float64 // accepted, over windows times quota
	Oracle  float64 // the same of the oracle
	Sparing float64 // the same of an oracle that leaves one unit of each window and is never told to wait; 0: not asked

	Reach        float64 // the share of an oracle that keeps to the rules, too; 0: not asked, which is only where a threshold is broken
	ReachRefused int64   // how many of its requests are refused: they go before anything is announced

	Nonclairvoyant float64 // the share of an oracle that does not know how long its requests will be on the way, and keeps to what may be refused; 0: not asked, as Reach

	PeakInWindow int64
	PeakInFlight int64

	WaitMean, WaitP99, WaitMax time.Duration // of requests that were answered, without the time on the way

	ForeignServed float64 // the share of its requests the foreign client got accepted; 1 where there is none
	Jain          float64 // index of fairness over the processes; 1 where there is one

	Problems []string `json:",omitempty"` // what else the row asks for and did not get
}

// PerMille is the number of refusals per 1000 accepted requests.
func (r Result) PerMille() float64 { return perMille(r.Refused, r.Accepted) }

// AfterPerMille is PerMille without the first event.
func (r Result) AfterPerMille() float64 { return perMille(r.After, r.Accepted) }

func perMille(refused, accepted int64) float64 {
	return 1000 * float64(refused) / float64(max(1, accepted))
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
