// Package redisheed lets any number of processes keep to the rate limits of
// every origin together, through one Redis or Valkey (7 or newer; alone,
// behind Sentinel, or a Cluster).
//
//	ledger := redisheed.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), redisheed.Options{})
//	registry, err := heed.NewRegistry(heed.Config{Ledger: ledger})
//	client := (&heed.Transport{Registry: registry}).Client()
//
// What is limited and is no HTTP request has [Ledger.Limit].
//
// A redis.Ring keeps quotas too, but what processes tell each other arrives
// from one of its shards only: of the others' origins they learn of pauses and
// resets with their next question.
//
// # What is shared
//
// The limits of [heed.Limits] that concern an origin (policies, MinInterval,
// MinPause, MaxConcurrent), the policies that origins announce and how much of
// them is used, by these processes and by others, and pauses: those that
// refusals ask for and those of Registry.Pause. Every process judges its own
// limits first (its queue, its smoother, the first request to an origin that
// goes ahead), and then asks Redis, which judges all of a partition's limits in
// one script, at one instant of its own clock, and takes what the request
// costs or says how long to wait. What a process learns from refusals alone,
// and budgets that hold some of an origin's requests only, stay its own.
//
// Every window of a policy, wherever it begins, holds at most its quota, as
// the origin counts arrivals: a unit comes back one window after the answer to
// its request came. That holds for announced policies too; their windows are
// taken to slide, whatever the origin makes of them. Quotas of up to 100 are
// remembered unit by unit, to a 100,000th of the window; larger ones by
// hundredths of the window, so that a wait can be that much longer. What
// Redis keeps of a policy does not grow with its quota.
//
// What comes back is shared out evenly between the processes that wait, as far
// as each wants it, counting what each was granted in the last window. The
// share of one that is late, or that waits for answers before it goes on, is
// kept for a twentieth of the window, 50 ms at least and 250 ms at most. What
// MinInterval, MinPause and MaxConcurrent let go, one process after the other
// has, and in each one credential after the other.
//
// Where an announced quota of requests is used by others too, who do not know of
// the ledger, what they were seen to use of a window is left to them: the
// processes together spread the rest over it, at most at the pace of
// [heed.Smoothing], unless that is Off.
//
// # Round trips
//
// A request costs one round trip at most: what became of those before it rides
// along. A process that sends many takes units in advance, for as long as
// [Options].Lease says, where nobody else waits: then most requests cost none.
// It takes no more than half its share of what is left, and gives back what it
// does not use; a refusal that pauses the partition, anywhere, ends every lease
// at once. Limits that count requests in flight, MinInterval and MinPause allow
// of no advance; releasing a slot is a message of its own where no question
// follows at once.
//
// # When Redis is lost
//
// By default requests fail with the error of the connection ([Fail]); with
// [GoAlone] each process keeps to its share. Either way nothing has to be
// done once Redis is back. What could have gone over a quota is this:
//
//   - Redis restarted empty, or keys that it evicted: nothing, where the
//     processes that had used units are still there, and ask before others do.
//     The first one that notices has Redis grant nothing for half a second, in
//     which all of them say what they have in use. A process that had used
//     nothing can be granted units until then. What processes used that have
//     ended since is forgotten. Requests in flight are told as units are; token
//     buckets are full again. When a request last started or ended, for
//     MinInterval and MinPause, is forgotten too: the next one may come sooner.
//
//   - A failover that loses the last writes: as many units as were granted in
//     them. Of announced policies the next answer puts that right.
//
//   - Going alone: nothing, where all processes lose Redis and none has less than
//     one for its share. Each keeps at least that: of a quota smaller than the
//     number of processes one unit, the more rarely the smaller it is, so that a
//     window may hold one of each process; of MaxConcurrent one request in
//     flight. MinInterval and MinPause it multiplies by the number of processes,
//     and does not know when others start: two of different processes may
//     start at once, and with MinPause each may have one in flight. Where some
//     processes lose Redis and others do not, their shares.
//
//   - A process that dies: its units stay spent until their window has passed,
//     its slots come back within [Options].SlotLease. A request it had sent that
//     reaches the origin later than recent answers took may be counted twice.
//
//   - A process that stands still for half a window or more between a grant and
//     its request's arrival: that request may be counted twice.
//
//   - Redis that cannot be told of anything for most of a window, as it can be
//     where that is a second: what was sent or answered later than recent
//     answers took may be counted twice.
//
// A process's own clock does not matter, only how fast it goes. Redis's does:
// where it is put forward, or a replica that takes over is ahead, units come
// back sooner by as much; where it is put back, units, pauses and turns last
// longer by as much, unless Registry.Reset or [Limit.Reset] ends that. Where
// Redis forgot all besides, what is in use is told by the clock it has now.
//
// go-redis logs by itself, to standard error, that it cannot connect, for each
// connection: redis.SetLogger has that go elsewhere.
//
// What is kept in Redis, for those who want to read it or to join in from
// another language, is described in docs/redis.md.
package redisheed
