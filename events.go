package heed

import "time"

// A Kind says what an [Event] reports.
type Kind int

const (
	// These two are logged alone.
	eventNested     Kind = iota - 1 // a request waits for what a request it is made for holds
	eventMuchWaited                 // the sum of waits has become worth a warning

	EventWaiting   // a request has to wait; Cause, Policy, Wait (0: unknown) and Queue say for what
	EventAdmitted  // a request, or another try of it, may go; Wait is how long that waited
	EventAnswered  // an answer came; Status, Latency, Remaining
	EventRefused   // an answer turned a request away for a limit; as EventAnswered
	EventPaused    // a partition or origin is paused; Wait says for how long. With Capped and CausePolicy: an announced policy holds it for longer than Max. Asked, Cause, Policy, InARow, Capped
	EventResumed   // a pause is over. With CausePolicy: an announced policy no longer holds requests for longer than MaxRetryAfter; Cause, Policy
	EventLearned   // a policy was announced for the first time, changed, or was inferred; Policy, Quota, Window, Unit
	EventRetried   // a request is about to be tried again; Attempt, and Status of the answer it is tried again for
	EventDegraded  // a shared ledger was lost (Err) or is back (no Err)
	EventForgotten // an origin's state was dropped
	EventSetAside  // a token of a [Pool] was answered 401 and is set aside at the origin; Partition tells which
)

// String returns k in a word, in lower case, as a metric may be labelled: "waiting",
// "admitted", "set-aside" and so on.
func (k Kind) String() string {
	switch k {
	case EventWaiting:
		return "waiting"
	case EventAdmitted:
		return "admitted"
	case EventAnswered:
		return "answered"
	case EventRefused:
		return "refused"
	case EventPaused:
		return "paused"
	case EventResumed:
		return "resumed"
	case EventLearned:
		return "learned"
	case EventRetried:
		return "retried"
	case EventDegraded:
		return "degraded"
	case EventForgotten:
		return "forgotten"
	case EventSetAside:
		return "set-aside"
	}
	return "unknown"
}

// MarshalText encodes k as the text of [Kind.String].
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// An Event is one thing that happened at one origin, for dashboards and
// metrics. Kind, Time, Origin and Partition are always set. Another field means
// something only where the comment of the Kind or its own comment names it.
// Credentials, partition keys and URLs are never part of an event.
//
// Each goroutine reports what it brought about itself, so an event can be reported
// after a later one of another goroutine: Time gives their order. What only the
// passing of time brings about, such as the end of a pause, is reported by the next
// goroutine that deals with the origin. A request that is not sent in the end (a
// [*LimitError], a cancelled context) or gets no answer has no event that says so:
// its sender has the error.
type Event struct {
	Kind   Kind
	Time   time.Time
	Origin string
	// Partition tells an origin's credentials apart, by the order in which
	// they were first seen: 0, 1, 2, …
	Partition int

	Cause  Cause
	Policy string        // the policy's name
	Bucket string        // EventPaused, EventResumed: the budget it is about, as the origin names it; "": not one alone
	Wait   time.Duration // how long it waited, or has to wait
	Total  time.Duration // EventWaiting, EventAdmitted: the sum of the waits of all requests admitted to the origin so far
	Queue  int           // requests waiting in the partition

	Status    int           // HTTP status
	Latency   time.Duration // from the start to the answer
	Remaining int64         // least left over all policies but those of bytes, announced, configured or learned; -1: unknown
	Attempt   int           // of the request that the event is about; 1: its first try
	Learned   bool          // EventLearned: inferred from refusals, not announced
	Quota     int64
	Window    time.Duration
	Unit      Unit

	Timed  bool          // EventPaused: the server or the user said for how long
	Asked  time.Duration // EventPaused: what the server asked for, where heed waits longer because that has proved too short; 0: it asked for Wait, or, where Capped, for more
	Manual bool          // EventPaused, EventResumed: by Registry.Pause
	Whole  bool          // EventPaused, EventResumed: the whole origin and not one partition
	Capped bool          // EventPaused: cut down to Max
	Max    time.Duration // EventPaused: the longest pause the limits allow
	InARow int           // EventPaused: refusals in a row

	Err error `json:"-"` // EventDegraded
}

// A Trace is what [WithTrace] has written down for one request.
type Trace struct {
	Waited   time.Duration // in all, over all attempts
	Cause    Cause         // of the longest wait; CauseNone: it did not wait
	Policy   string        // where Cause is CausePolicy or CauseSmoother
	Attempts int           // requests sent, by a [Transport] or a [Pool]; 0: refused before the first, or sent past heed by [Bypass]

	longest time.Duration
}

// waited adds a wait, and what held it.
func (t *Trace) waited(d time.Duration, by obstacle) {
	if t == nil || d <= 0 {
		return
	}
	t.Waited += d
	if d > t.longest {
		t.longest, t.Cause, t.Policy = d, by.cause, by.policy
	}
}
