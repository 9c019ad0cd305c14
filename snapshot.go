package heed

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// An OriginState is what a [Registry] knows of one origin, as plain data.
// Its durations are nanoseconds in JSON.
type OriginState struct {
	Origin      string           `json:"origin"`
	Partitions  []PartitionState `json:"partitions"`
	InFlight    int              `json:"in_flight"`             // requests that are on their way, or whose responses' bodies are being read
	Waiting     int              `json:"waiting"`               // requests that wait until they may go
	Waited      time.Duration    `json:"waited"`                // the sum of the waits of all requests admitted so far
	Paused      time.Duration    `json:"paused,omitempty"`      // how much longer the whole origin is paused
	PauseCause  string           `json:"pause_cause,omitempty"` // "manual" or "refused"
	Refusals    int64            `json:"refusals"`              // answers that turned a request away
	Held        time.Duration    `json:"held,omitempty"`        // how long the oldest request in flight has been there: if that grows, its body may never have been closed
	HeldBy      string           `json:"held_by,omitempty"`     // the path of that request, with "*" for what may be a token
	Unlimited   bool             `json:"unlimited,omitempty"`   // Limits.Unlimited has heed step aside
	LastUsedAgo time.Duration    `json:"last_used_ago"`         // how long ago the latest request was
	Partitioned int              `json:"partitioned,omitempty"` // partitions ever seen, if those are more than are listed
}

// A PartitionState is the state of one credential's quota at an origin. It
// does not say which credential. Fields without a comment are as in [OriginState],
// of this partition alone.
type PartitionState struct {
	Partition  int           `json:"partition"`       // in the order in which they were first seen, from 0
	Route      string        `json:"route,omitempty"` // method and shape of the path, where only requests to that are in it: they have a limit of their own that nobody announces
	Policies   []PolicyState `json:"policies"`        // those announced or configured are the same for all of one credential's partitions: they hold for all routes together
	InFlight   int           `json:"in_flight"`
	Waiting    int           `json:"waiting"`
	Waited     time.Duration `json:"waited"`
	Paused     time.Duration `json:"paused,omitempty"`
	PauseCause string        `json:"pause_cause,omitempty"`
	Buckets    []BucketState `json:"buckets,omitempty"` // if the origin has several budgets, those that are paused or that requests wait for
	Refusals   int64         `json:"refusals"`
	Opening    int           `json:"opening,omitempty"`  // how many requests may be unanswered at once on first contact, or after a pause; 0: no such bound
	Cap        int           `json:"cap,omitempty"`      // how many may be because the server says that it is short of capacity; 0: no such bound
	Degraded   bool          `json:"degraded,omitempty"` // the shared ledger cannot be reached, and goes on without its store
}

// A BucketState is the state of one of an origin's budgets, in which only some of
// a partition's requests are counted, or of several in which the same requests are
// counted. What holds the whole partition or the origin is not repeated here.
type BucketState struct {
	Bucket     string        `json:"bucket"`                // as in [PolicyState], several with ", " between them; or, while its name is unknown, method and shape of the path
	Waiting    int           `json:"waiting"`               // requests that wait until they may go, whatever holds them
	Paused     time.Duration `json:"paused,omitempty"`      // how much longer its requests are held because one was refused
	PauseCause string        `json:"pause_cause,omitempty"` // "refused"; "": it is not paused
}

// A PolicyState is the state of one policy.
type PolicyState struct {
	Name      string        `json:"name"`
	Source    Source        `json:"source"` // announced, configured or learned
	Unit      Unit          `json:"unit"`
	Quota     int64         `json:"quota"`            // units per Window; 0: not said
	Window    time.Duration `json:"window,omitempty"` // 0: not said
	Burst     int64         `json:"burst,omitempty"`  // size of a configured token bucket; 0: it is none
	Used      int64         `json:"used"`             // as far as heed knows
	Remaining int64         `json:"remaining"`        // -1: unknown
	Reset     time.Duration `json:"reset,omitempty"`  // until there is more; 0: not known, or now
	// Bucket is the origin's name for the budget the policy is of, which holds
	// only the requests counted in it; "": it holds all, or the budget has no
	// name.
	Bucket string  `json:"bucket,omitempty"`
	Pace   float64 `json:"pace,omitempty"` // units per second at which requests are paced; 0: they are not
}

// UnmarshalText decodes what [Source.MarshalText] has encoded.
func (s *Source) UnmarshalText(text []byte) error {
	for source := SourceAnnounced; source <= SourceLearned; source++ {
		if source.String() == string(text) {
			*s = source
			return nil
		}
	}
	return fmt.Errorf("heed: %q is no source of a policy", text)
}

// Snapshot returns the state of every origin, sorted by origin.
func (r *Registry) Snapshot() []OriginState {
	r.init()
	r.sweep(time.Now())
	states := make([]OriginState, 0, 16)
	for _, o := range r.all() {
		if now := o.lock(); !o.gone {
			states = append(states, o.state(now))
		}
		o.mu.Unlock()
	}
	slices.SortFunc(states, func(a, b OriginState) int { return cmp.Compare(a.Origin, b.Origin) })
	return states
}

func (o *origin) state(now time.Time) OriginState {
	s := OriginState{
		Origin: o.name, Partitions: make([]PartitionState, 0, len(o.partitions)), InFlight: o.inFlight, Waiting: o.waiting, Waited: o.waited,
		Unlimited: o.limits.Unlimited, LastUsedAgo: now.Sub(o.lastUsed),
	}
	s.Paused, s.PauseCause = o.pause.state(now)
	if o.created > len(o.partitions) {
		s.Partitioned = o.created
	}
	for _, p := range o.partitions {
		s.Partitions = append(s.Partitions, p.state(now))
		s.Refusals += p.refusals
		if pm := p.inFlight.oldest; pm != nil && now.Sub(pm.start) >= s.Held {
			s.Held, s.HeldBy = now.Sub(pm.start), shownPath(pm.path)
		}
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionState) int { return cmp.Compare(a.Partition, b.Partition) })
	return s
}

// leastToken is how long a segment of a path is at least that may be a token: fewer random characters
// are not out of reach of guessing, and what names a thing is mostly shorter.
const leastToken = 20

// shownPath is a path as it may be shown: bots and webhooks have their tokens in it.
func shownPath(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if len(s) >= leastToken && strings.ContainsAny(s, "0123456789") {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

func (p *partition) state(now time.Time) PartitionState {
	s := PartitionState{
		Partition: p.number, Route: p.route, Policies: make([]PolicyState, 0, len(p.slots)), InFlight: p.inFlight.len, Waiting: p.waiting(),
		Waited: p.waited, Refusals: p.refusals, Opening: p.opening.limit, Cap: int(p.cap.limit), Degraded: p.shared.isDegraded(),
	}
	s.Paused, s.PauseCause = p.pause.state(now)
	for _, sl := range p.slots {
		s.Policies = append(s.Policies, sl.state(now))
	}
	s.Buckets = p.budgetStates(now)
	return s
}

// budgetStates are those of the budgets that are paused or waited for, sorted by name; nil: there are none.
func (p *partition) budgetStates(now time.Time) (all []BucketState) {
	aside := map[*lane]int{} // until their own next try
	for _, w := range p.parked.items {
		aside[w.lane]++
	}
	for _, l := range p.lanes {
		s := BucketState{Bucket: l.shown(), Waiting: l.queue.len() + aside[l]}
		if s.Paused, s.PauseCause = l.pause.state(now); s.Waiting > 0 || s.Paused > 0 {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b BucketState) int { return cmp.Compare(a.Bucket, b.Bucket) })
	return all
}

func (p *pause) state(now time.Time) (time.Duration, string) {
	switch {
	case !p.holds(now):
		return 0, ""
	case p.manual():
		return p.until.Sub(now), "manual"
	}
	return p.until.Sub(now), "refused"
}

func (s *slot) state(now time.Time) PolicyState {
	p := &s.policy
	st := PolicyState{
		Name: p.Name, Source: s.source, Unit: p.Unit, Quota: p.Quota, Window: p.Window, Burst: p.Burst,
		Remaining: s.left(now), Pace: min(s.plan.rate, math.MaxFloat64), // JSON has no infinity
		Bucket: shownBudget(s.budget),
	}
	if p.Quota > 0 && st.Remaining >= 0 {
		st.Used = max(s.most()-st.Remaining, 0)
	}
	if !s.enforced() { // as the origin said last
		st.Used, st.Remaining = 0, -1
		if s.ledger.stated {
			st.Remaining = s.ledger.left
		}
	}
	reset := s.ledger.until()
	if w, ok := s.books.(*rollingWindow); ok {
		reset, _ = w.own.back(now, 1, p.Window)
	}
	if reset.After(now) {
		st.Reset = reset.Sub(now)
	}
	return st
}
