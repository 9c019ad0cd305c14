package heed

import (
	"context"
	"time"
)

// A Ledger keeps the books that several processes share, so that together
// they keep to each origin's limits as one client would. Package redisheed
// has one on Redis; this interface is what another store needs. It goes into
// [Config.Ledger].
//
// A registry judges its own limits first and asks the ledger last, with no
// lock held, for the request at the head of a partition's queue and for no
// other: the next question comes after the answer. What the ledger grants is
// all that the request costs, of every limit, at one instant. Whatever it
// does not grant stays in its place in the queue and is asked about again
// once [Answer.Wait] has passed or [News] has come.
//
// All methods may be called from any goroutine. A method that talks to a
// store must come back when its context ends, and if that has no deadline, within
// a time of the ledger's own. Its error reaches the caller of [Registry.Acquire],
// wrapped; a ledger that can go on without its store answers instead and says so
// in [Answer.Err].
//
// A ledger that was set up wrongly can say so by a method Err() error, which
// [NewRegistry] calls. Whoever made a ledger closes it, after the registry.
type Ledger interface {
	// Attach has the ledger tell a registry what other processes do, from any
	// goroutine, until detach is called; what this process does is not news
	// to it. Detach gives back what the ledger holds for requests to come; its
	// error is that of the store. The ledger must not call news from within a
	// call of its other methods.
	Attach(news func(News)) (detach func() error)

	// Partition returns the name under which all processes know the holder of
	// a credential: the same in each, and such that the credential cannot be found
	// out from it, like a keyed hash. "" is a credential as well.
	Partition(ctx context.Context, credential string) (string, error)

	// Take grants what a request costs, or says how long to wait.
	Take(ctx context.Context, q *Question) (Answer, error)

	// Check says what Take would, and takes nothing: where the answer is yes,
	// its Wait is 0 and its Grant nil.
	Check(ctx context.Context, q *Question) (Answer, error)

	// Pause holds all of an origin's requests in all processes for d; it
	// never shortens a longer pause. d <= 0 ends every pause of the origin.
	Pause(ctx context.Context, origin string, d time.Duration) error

	// Reset forgets what all partitions of an origin have used, what was
	// announced for them, and their pauses, in all processes.
	Reset(ctx context.Context, origin string) error
}

// A Question asks a [Ledger] for leave to send one request.
type Question struct {
	Origin    string // as [OriginOf] or [Config.Origin] names it
	Partition string // as [Ledger.Partition] names it
	Cost      Cost

	// Policies are those configured for the origin; those in other units than the
	// three of [Unit] are to be passed over. What a process learns from refusals
	// alone it keeps to itself.
	Policies []Policy

	// Announced are the policies that the origin announced to this process. The
	// ledger judges them too, and those it has from others by [Heard], as their
	// announcements say.
	Announced []Policy

	// IgnoreHeaders is that of [Limits]: no announced policy is judged, no matter
	// which process heard of it.
	IgnoreHeaders bool

	// These hold for the origin over all its partitions; zero: no limit.
	MinInterval   time.Duration // between two starts
	MinPause      time.Duration // between one end and the next start, so one at a time
	MaxConcurrent int           // requests in flight

	// Waiting is how many more requests wait behind this one in this process,
	// and Ahead how many of them could go along with it: a ledger may take
	// units for those in advance.
	Waiting, Ahead int

	// NoWait says that the request is not asked about again if it is not granted.
	NoWait bool

	// Latency is how long the slowest of recent answers took; 0: not known.
	Latency time.Duration

	// Velocity is that of [Smoothing]: once others are seen to use an announced
	// quota as well, what they leave of it is spread over its window at this pace,
	// but at most at 1. 0: it is not spread.
	Velocity float64

	// MaxWait is [Limits].MaxRetryAfter: how long a server can have the partition
	// wait by what it announces, and by pauses that it asks for, no matter which
	// process heard it. It does not bound a pause of [Registry.Pause].
	MaxWait time.Duration
}

// Cost is what a request takes of policies of each unit. A cost above a
// policy's quota waits for the whole quota and takes it all.
type Cost struct {
	Requests   int64
	Bytes      int64 // of content, as estimated
	Concurrent int64 // of requests in flight at once
}

// An Answer is what a [Ledger] says to a [Question].
type Answer struct {
	Grant     Grant         // leave to send the request; nil: not yet
	Wait      time.Duration // how long until it is worth asking again; 0 with neither Grant nor error: at once
	Cause     Cause         // what holds it; CauseNone counts as CauseLedger
	Policy    string        // where Cause is CausePolicy
	Whole     bool          // it holds all of the origin's requests; with CauseConcurrency until Wait has passed or one of them is over
	Remaining int64         // least left over all policies; -1: unknown

	// News is what other processes have brought about, as far as the registry was
	// not told of it by the function that it attached.
	News []News

	// Err is set if the store cannot be reached and the ledger goes on without it:
	// the answer is then for this process alone. nil: the store was reached.
	Err error
}

// A Grant is a [Ledger]'s side of a [Permit]. Its methods return at once and
// never talk to a store themselves: what they are told rides along with the
// next question, or follows on its own soon enough. A grant that nobody ends,
// since its process died, is ended by the ledger.
type Grant interface {
	// Heard takes in that the request was answered, or what became known of
	// its limits in another way.
	Heard(h Heard)

	// End says that the request is over, bodies and all, and how many bytes of
	// content it had; negative: not counted. Where it was not sent, what it
	// took is given back. Nothing follows End.
	End(sent bool, bytes int64)
}

// Heard is what an answer said, as far as it concerns other processes. Its
// instants are of this process's clock.
type Heard struct {
	At       time.Time // when it came
	Start    time.Time // when the request was sent
	Answered bool      // it is the answer to the request, and the only one
	Free     bool      // it came from a cache: what the request took is given back

	// Announcement is what it announced; empty where announcements are not
	// to be followed.
	Announcement Announcement

	// Pause is how long the partition is paused from At on, or with Whole the
	// origin. 0: not at all; negative: a pause with Doubt is over, for a request
	// succeeded.
	Pause time.Duration
	Whole bool
	Doubt bool // the pause ends with the first request that succeeds: a ledger passes it on, and holds nobody for it
}

// News is what another process has done, or heard, that concerns this one.
type News struct {
	Origin    string
	Partition string // "": all of the origin's

	Pause  time.Duration // > 0: paused for so long from now; < 0: no longer
	Doubt  bool          // the pause ends with the first request that succeeds
	Manual bool          // the pause was asked for by a user, not by a server

	Policies []Policy // announced
	Reset    bool     // the origin's books were emptied
	Ask      bool     // what was refused may be granted now
	Err      error    // why the ledger grants nothing any more: those who wait get it, wrapped; nil: it does
}
