package heedtest

import (
	"maps"
	"slices"
	"time"
)

// Tally is what an [Origin] has seen since it was made or since
// [Origin.ResetTally]. It is a copy, and encodes to JSON.
type Tally struct {
	Requests int64 // that arrived: Accepted + Refused
	Accepted int64 // by all policies, whatever Config.Respond then made of them
	Refused  int64 // by a policy, a block or an outage

	DuringOutage int64 // of those Refused, by an outage
	Cancelled    int64 // given up before they arrived; they count nowhere else
	Abandoned    int64 // given up after they arrived, before the answer was delivered

	// Early counts requests that started before an instant the origin had named:
	// an answer that says nothing is left names its delivery plus its reset
	// value, a refusal with Retry-After its delivery plus that (whatever resets
	// stand beside it), an epoch or a date the instant the origin's clock will
	// show it. What counts is the latest instant of all answers that were
	// delivered, to any client of the key, before the instant of the start; no
	// later answer takes back what one of them said. Rounding to 0 names
	// nothing, nor does an answer with something left.
	Early int64

	// EarlyStanding counts those of the early requests that were early too by the
	// newest answer with fields (by the instant it was given) that had been
	// delivered: an answer with something left takes back what older ones said.
	EarlyStanding int64

	// PeakInWindow is the largest number of units accepted, for one key, within
	// any stretch of the window's length, (t-Window, t], by the first policy that
	// has a window. Policies has it for all of them.
	PeakInWindow int64

	InFlight     int64 // requests that have arrived and are not over
	PeakInFlight int64 // most of them at once, over all keys

	Bytes    int64         // of the bodies of accepted requests and their answers
	ByStatus map[int]int64 // answers delivered, by status code

	Foreign        int64 // calls of Take and TakeKey that were granted
	ForeignRefused int64 // and that were not

	Keys int // keys in use

	FirstArrival  time.Time `json:",omitzero"` // zero: none yet, as below
	FirstAccepted time.Time `json:",omitzero"` // these are instants of arrival
	LastAccepted  time.Time `json:",omitzero"`
	FirstRefused  time.Time `json:",omitzero"`
	LastRefused   time.Time `json:",omitzero"`

	Policies []PolicyTally // in the order of Config.Policies
}

// PolicyTally is the part of a [Tally] that belongs to one policy.
type PolicyTally struct {
	Name      string
	Quota     int64
	Window    time.Duration // in nanoseconds
	Unit      string
	Algorithm Algorithm

	Accepted     int64 // units charged, those of Take included
	Refused      int64 // requests and calls of Take this policy refused; several may refuse one
	PeakInWindow int64 // most units accepted for one key within (t-Window, t]; with Concurrency, most in flight
}

// Event is one request that arrived, or one call of Take. Instants are counted
// from the origin's first use, see [Origin.Began], in nanoseconds.
type Event struct {
	Key       string        `json:",omitzero"`
	Start     time.Duration // when the client sent it
	Arrival   time.Duration // when it was judged
	Delivered time.Duration `json:",omitzero"` // when the client had the answer; 0: not yet, or it gave up
	Status    int           `json:",omitzero"` // of the answer; 0: not yet, or a call of Take
	Bytes     int64         `json:",omitzero"` // of both bodies, for an accepted request
	Accepted  bool
	Early     bool `json:",omitzero"` // see Tally.Early
	Foreign   bool `json:",omitzero"` // a call of Take
}

// Tally returns what the origin has seen so far.
func (o *Origin) Tally() Tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tally
	t.ByStatus = maps.Clone(t.ByStatus)
	t.Keys = len(o.keys)
	t.Policies = make([]PolicyTally, len(o.policies))
	found := false
	for i, p := range o.policies {
		t.Policies[i] = p.tally
		if !found && p.Unit != UnitConcurrentRequests {
			t.PeakInWindow, found = p.tally.PeakInWindow, true
		}
	}
	return t
}

// ResetTally begins the counting anew, and forgets the events. Quotas keep what
// was used of them, and requests in flight stay in flight.
func (o *Origin) ResetTally() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tally = Tally{InFlight: o.tally.InFlight, PeakInFlight: o.tally.InFlight}
	for _, p := range o.policies {
		p.tally.Accepted, p.tally.Refused, p.tally.PeakInWindow = 0, 0, 0
	}
	for _, k := range o.keys {
		for i := range k.accepted {
			k.accepted[i] = spans{}
		}
	}
	o.events = nil
	o.epoch++
}

// Began returns the instant of the origin's first use, from which the instants
// of events are counted.
func (o *Origin) Began() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now()
	return o.began
}

// Events returns the requests seen so far in the order they arrived; nil without
// [Config.Record].
func (o *Origin) Events() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events)
}

// AcceptedPer returns how many requests were accepted in each stretch of d since
// the origin's first use, up to the last one that was, calls of Take left out;
// nil without [Config.Record].
func (o *Origin) AcceptedPer(d time.Duration) []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d <= 0 {
		return nil
	}
	var counts []int64
	for _, e := range o.events {
		if !e.Accepted || e.Foreign {
			continue
		}
		i := int(e.Arrival / d)
		for len(counts) <= i {
			counts = append(counts, 0)
		}
		counts[i]++
	}
	return counts
}
