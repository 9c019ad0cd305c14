// Package heedtest provides fake origins that enforce rate limits and announce
// them, for testing HTTP clients.
//
// An [Origin] is both an [http.Handler] and an [http.RoundTripper]. As a
// handler it stands behind a real server:
//
//	origin := heedtest.NewOrigin(heedtest.Config{
//		Policies: []heedtest.Policy{{Name: "burst", Quota: 50, Window: 5 * time.Second}},
//	})
//	server := httptest.NewServer(origin)
//
// As a RoundTripper it takes the place of the network, latency included, so
// that in a [testing/synctest] bubble an hour of traffic passes in an instant:
//
//	synctest.Test(t, func(t *testing.T) {
//		client := &http.Client{Transport: &heed.Transport{Base: origin}}
//		…
//		if tally := origin.Tally(); tally.Refused > 0 {
//			t.Errorf("refused %d times", tally.Refused)
//		}
//	})
//
// What happens to a request is the same both ways. It starts; after the up half
// of its latency it arrives; at that instant every policy is asked, the request
// is accepted or refused, and the answer's fields are stamped; after the service
// time and the down half of the latency the answer is delivered. A request is
// accepted only if every policy accepts it, and one that is refused uses nothing
// up, unless [Config.CountRefused] says otherwise.
//
// # What is enforced
//
// Each [Policy] has an [Algorithm]. In the definitions, Q is the policy's quota,
// W its window, and t the instant of arrival:
//
//   - [FixedWindow]: at most Q in [s, s+W), where s is the arrival that opened the window.
//   - [FixedWindowByClock]: the same, with s = phase + kW on the origin's clock.
//   - [SlidingWindow]: at most Q in (t-W, t], exactly.
//   - [SlidingCounter]: at most Q by the estimate of two clock windows,
//     previous·(1 - elapsed/W) + current.
//   - [TokenBucket]: a bucket of Burst (0: Q) tokens, refilled evenly at Q per W.
//   - [GCRA]: emission interval W/Q, tolerance for Burst (0: Q) at once.
//   - [LeakyBucket]: one per W/Q, and an excess of at most Burst (0: none).
//   - [Concurrency]: at most Q in flight.
//
// # What is announced
//
// A [Dialect] says in which fields, [Rounding] and [Reset] say what their reset
// values mean, [RetryAfter] what refusals carry, and [Config] on which answers
// any of it appears. Values are those after the request they come with.
//
// # What is counted
//
// [Origin.Tally] returns what the origin saw; [Origin.Events] every single
// request, where [Config.Record] is set.
//
// An Origin starts no goroutines and keeps no timers between requests. Nothing
// in this package needs more than the standard library.
package heedtest
