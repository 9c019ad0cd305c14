package heed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLimited matches, with [errors.Is], every [*LimitError]: heed did not send
// the request. A refusal of the server is a response, and no error.
var ErrLimited = errors.New("heed: request not sent: rate limited")

// ErrClosed is returned for requests that were waiting on a [Registry] when
// it was closed, and for all that come after.
var ErrClosed = errors.New("heed: registry closed")

// A Reason is why a request was refused rather than kept waiting.
type Reason int

const (
	ReasonDeadline  Reason = iota + 1 // it could not have started before its context's deadline (of which the Timeout of an http.Client is one), or so late that an answer was unlikely to come in time
	ReasonMaxWait                     // it would have waited longer than Limits.MaxWait
	ReasonQueueFull                   // Limits.MaxQueue requests were waiting already
	ReasonNoWait                      // it would have had to wait, and NoWait was asked for
	ReasonCost                        // it costs more than a concurrency limit can ever give
)

// String returns r in lower case: "deadline", "max wait", "queue full", "no wait", "cost".
func (r Reason) String() string {
	switch r {
	case ReasonDeadline:
		return "deadline"
	case ReasonMaxWait:
		return "max wait"
	case ReasonQueueFull:
		return "queue full"
	case ReasonNoWait:
		return "no wait"
	case ReasonCost:
		return "cost"
	}
	return "unknown"
}

// MarshalText encodes r as the text of [Reason.String].
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// A Cause is what holds a request back.
type Cause int

const (
	CauseNone        Cause = iota // nothing does
	CausePolicy                   // a policy, announced, configured or learned, has too few units left
	CauseSmoother                 // requests are being spread over a window: see Smoothing
	CausePause                    // a refusal, or Registry.Pause, holds the partition or the origin
	CauseInterval                 // MinInterval or MinPause
	CauseConcurrency              // as many requests as may be are in flight, which they are until their bodies are closed or read to the end
	CauseQueue                    // others came first
	CauseScout                    // on first contact, or after a pause, requests sent ahead have not been answered yet
	CauseBackoff                  // this request's own wait before it is tried again
	CauseLedger                   // a shared ledger has not granted it yet
	CauseRedirect                 // the redirect that this request follows asks to wait
)

// String returns c in a word, in lower case: "none", "policy", "smoother" and so on.
func (c Cause) String() string {
	switch c {
	case CauseNone:
		return "none"
	case CausePolicy:
		return "policy"
	case CauseSmoother:
		return "smoother"
	case CausePause:
		return "pause"
	case CauseInterval:
		return "interval"
	case CauseConcurrency:
		return "concurrency"
	case CauseQueue:
		return "queue"
	case CauseScout:
		return "scout"
	case CauseBackoff:
		return "backoff"
	case CauseLedger:
		return "ledger"
	case CauseRedirect:
		return "redirect"
	}
	return "unknown"
}

// MarshalText encodes c as the text of [Cause.String].
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A LimitError says that a request was not sent because of a limit. It is
// heed that refuses, never the server: a server's refusal is a response, and
// comes back as one.
//
// errors.Is(err, [ErrLimited]) holds for every LimitError, and
// errors.Is(err, [context.DeadlineExceeded]) where Reason is
// [ReasonDeadline], although the deadline itself may still lie ahead.
//
// An http.Client returns it in a [*url.Error], so find it with errors.As:
//
//	var limited *heed.LimitError
//	if errors.As(err, &limited) {
//		// try again in limited.Wait, or later
//	}
type LimitError struct {
	Origin string        // the origin whose limit it is; the key of a limit of package redisheed
	Policy string        // the policy's name, where Cause is CausePolicy or CauseSmoother; "" if it has none
	Wait   time.Duration // how long the request would have had to wait, at least; 0: nobody can say. Of one whose time ran out as it waited, how long it had waited
	Reason Reason        // why it was not kept waiting
	Cause  Cause         // what held it

	source  Source // of the policy, where its name does not tell the user which it is; else 0
	waited  bool   // for Wait, and nobody knows how much longer it would have been
	tooNear bool   // the deadline had not come, but an answer would probably have come after it
}

// Error says that the request was not sent, by whose limit, and when it could be.
func (e *LimitError) Error() string {
	text := "heed: request to " + e.Origin + " not sent: "
	switch {
	case e.Reason == ReasonCost:
		return text + "it costs more than " + e.whose() + " can ever give"
	case e.waited:
		return text + e.holder() + "; " + e.afterWaiting()
	}
	return text + e.holder() + "; " + e.earliest() + e.why()
}

// holder says what held the request.
func (e *LimitError) holder() string {
	switch e.Cause {
	case CausePolicy:
		return e.whose() + " has too little left"
	case CauseSmoother:
		return "requests are being spread over the window of " + e.whose()
	case CausePause:
		return "the origin is paused"
	case CauseInterval:
		return "the interval between requests has not passed"
	case CauseConcurrency:
		return "as many requests as allowed are in flight"
	case CauseScout:
		return "the answer to a request sent ahead is awaited"
	case CauseBackoff:
		return "it was refused and backs off"
	case CauseRedirect:
		return "the redirect that led to it asks to wait"
	case CauseLedger:
		return "the shared quota has too little left"
	}
	return "others came first"
}

// afterWaiting says what ended a wait, of which nobody knows how much longer it would
// have been.
func (e *LimitError) afterWaiting() string {
	text := fmt.Sprintf("it had waited %v when ", readable(e.Wait))
	if e.Reason == ReasonMaxWait {
		return text + "MaxWait was over"
	}
	if e.tooNear {
		return text + "its deadline was too near for an answer"
	}
	return text + "its deadline came"
}

// earliest says when the request could start.
func (e *LimitError) earliest() string {
	if e.Wait > 0 {
		return fmt.Sprintf("it could start in %v at the earliest", readable(e.Wait))
	}
	return "nobody can say when it could start"
}

// why says why the request was not kept waiting until then.
func (e *LimitError) why() string {
	switch {
	case e.Reason == ReasonDeadline && e.Wait > 0:
		return ", not before its deadline"
	case e.Reason == ReasonDeadline:
		return ", and its deadline has come"
	case e.Reason == ReasonMaxWait && e.Wait > 0:
		return ", longer than MaxWait allows"
	case e.Reason == ReasonMaxWait:
		return ", and MaxWait is over"
	case e.Reason == ReasonQueueFull:
		return ", and MaxQueue requests wait already"
	case e.Wait > 0:
		return ", and was asked not to wait"
	}
	return ", and it was asked not to wait"
}

// whose says which policy it is, and whose.
func (e *LimitError) whose() string {
	switch {
	case e.source == SourceConfigured && e.Policy == "": // few who set one name it
		return "a configured policy"
	case e.Policy == "":
		return "a policy without a name"
	case e.source == SourceLearned: // no origin knows of it
		return fmt.Sprintf("policy %q, which heed inferred from refusals,", e.Policy)
	}
	return fmt.Sprintf("policy %q", e.Policy)
}

// readable is d as a sentence has it: rounded up, for that is when a request may go.
func readable(d time.Duration) time.Duration {
	grain := time.Microsecond
	if d >= time.Second {
		grain = time.Millisecond
	}
	if rest := d % grain; rest > 0 && d < ages {
		d += grain - rest
	}
	return d
}

// Timeout reports whether the request ran out of time: its Reason is
// [ReasonDeadline] or [ReasonMaxWait].
func (e *LimitError) Timeout() bool { return e.Reason == ReasonDeadline || e.Reason == ReasonMaxWait }

// Is makes errors.Is match [ErrLimited] and, where the deadline is the
// reason, [context.DeadlineExceeded].
func (e *LimitError) Is(target error) bool {
	return target == ErrLimited || target == context.DeadlineExceeded && e.Reason == ReasonDeadline
}
