// Package redisheed lets any number of processes keep to the rate limits of
// every origin together, through one Redis or Valkey (7 or newer; alone,
// behind Sentinel, or a Cluster).
//
//	ledger := redisheed.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), redisheed.Options{})
//	registry, err := heed.NewRegistry(heed.Config{Ledger: ledger})
//	client := (&heed.Transport{Registry: registry}).Client()
//
// Close the registry first, then the ledger, then the client of Redis.
//
// [Ledger.Limit] limits what is not HTTP.
//
// A redis.Ring keeps quotas too, but processes hear at once of pauses and resets
// from one of its shards only: of those at other origins they learn when they ask
// next.
//
// # What is shared
//
//   - The limits of [heed.Limits] that concern an origin: policies, MinInterval,
//     MinPause and MaxConcurrent.
//   - The policies that origins announce, and how much of them is used, by these
//     processes and by others.
//   - Pauses: those that refusals ask for, and those of Registry.Pause.
//
// What a process learns from refusals alone stays its own, and so do budgets that
// hold only some of an origin's requests.
//
// Every process judges its own limits first (its queue, its pace, the first
// request to an origin that goes ahead), and then asks Redis. There one script
// judges all of a partition's limits, at one instant of Redis's clock. It takes
// what the request costs, or says how long to wait.
//
// Every window of a policy, wherever it begins, holds at most its quota, as the
// origin counts arrivals: a unit comes back one window after the answer to its
// request came. That holds for announced policies too: their windows are taken to
// slide, whatever the origin makes of them. Of quotas up to 100 each unit is
// remembered, to a 100,000th of the window; of larger ones a hundredth of the
// window at a time, so that a wait can be that much longer. What Redis keeps of a
// policy does not grow with its quota.
//
// What comes back is shared out evenly between the processes that wait, as far as
// each wants it; what each was granted in the last window counts. The share of a
// process that is late, or that waits for answers before it goes on, is kept for
// it for a twentieth of the window, but at least 50 ms and at most 250 ms.
// MinInterval, MinPause and MaxConcurrent let one process after the other go, and
// in each process one credential after the other.
//
// If an announced quota of requests is also used by clients that do not know of
// the ledger, what they were seen to use of a window is left to them. The
// processes together spread the rest over the window, at most at the pace of
// [heed.Smoothing], unless that is Off.
//
// # Round trips
//
// A request costs at most one round trip to Redis: what became of earlier requests
// is told along with it. A process that sends many takes units in advance while no
// other one waits, and keeps them for no longer than [Options].Lease: then most
// requests cost no round trip. It takes no more than half its share of what is
// left, and gives back what it does not use. A refusal that pauses the partition,
// in any process, ends every lease at once. Nothing can be taken in advance of
// limits on requests in flight, MinInterval and MinPause; there a request may cost
// a second message when it is over.
//
// # When Redis is lost
//
// By default requests fail with the error of the connection ([Fail]); with
// [GoAlone] each process keeps to its share. Either way nothing has to be done
// once Redis is back. Meanwhile quotas are kept to as well, but for this:
//
//   - If Redis is restarted empty, or evicts keys: nothing goes over a quota as
//     long as the processes that had used units are still there, and ask before
//     others do. The first one that notices has Redis grant nothing for half a
//     second, in which all of them say what they have in use. Until then a process
//     that had used nothing can be granted units. What was used by processes that
//     have ended is forgotten. Token buckets are full again, and the next request
//     may come sooner than MinInterval and MinPause allow.
//
//   - If a failover loses the last writes: as many units as were granted in them.
//     Of announced policies the next answer puts that right.
//
//   - If processes go alone: nothing, as long as all of them lose Redis and the
//     share of each is at least one unit. Where a quota is smaller than the number
//     of processes, each uses one unit, the more rarely the smaller the quota, so
//     that a window may hold one of each process. Likewise each may have one
//     request in flight, whatever MaxConcurrent is. MinInterval and MinPause are
//     multiplied by the number of processes; but as none knows when others start,
//     two may start at once, and with MinPause each may have one in flight. If
//     only some processes lose Redis: as much as their shares.
//
//   - If a process dies: its units stay spent until their window has passed, and
//     its slots come back within [Options].SlotLease. A request that it had sent,
//     and that takes longer to reach the origin than recent answers took, may be
//     one too many.
//
//   - If a process stands still for half a window or more between a grant and the
//     arrival of its request: that request may be one too many.
//
//   - If Redis cannot be told of anything for most of a window, which is soon where
//     that is a second: requests sent or answered later than recent answers took
//     may be too many.
//
// A process's own clock may be wrong, as long as it goes at the right speed.
// Redis's clock counts: if it is put forward, or that of a replica that takes over
// is ahead, units come back sooner by as much. If it is put back, units, pauses and
// turns last longer by as much, unless Registry.Reset or [Limit.Reset] ends them. If
// Redis has lost its data as well, processes tell it anew what is in use, by the
// clock that it has then.
//
// go-redis logs by itself, to standard error, that it cannot connect, for each
// connection: redis.SetLogger sends that elsewhere.
//
// What is kept in Redis, for those who want to read it or to join in from
// another language, is described in docs/redis.md.
package redisheed
