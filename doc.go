// Package heed provides an [http.RoundTripper] that keeps to the rate limits of
// every origin it talks to.
//
//	client := &http.Client{Transport: &heed.Transport{}}
//
// That is all a program has to change. [Transport] holds each request back
// until its origin allows it, sends it, and learns from the answer. If the
// request was refused all the same, it holds everything that shares the refused
// quota until it is time to try again. An origin that sets no limits is not
// slowed down, except for the very first requests to it.
//
// # What is obeyed
//
// Three kinds of limits, all at once:
//
//   - Those an origin announces: in the RateLimit-Policy and RateLimit fields of
//     [draft-ietf-httpapi-ratelimit-headers] and of the drafts before it, in the
//     X-RateLimit fields and the other dialects of real services, in Retry-After
//     (RFC 9110, section 10.2.3), and in the problem documents of refusals. Their
//     quotas may count requests, bytes of content, or requests in flight.
//   - Those the user sets, in [Limits].
//   - Those nobody states, which only refusals reveal. They are learned, and kept
//     to until they are no longer true.
//
// No request starts before the instant an origin named. Where demand is higher
// than a quota, requests are spread over its window, rather than sent in one
// burst with a long silence after it; [Smoothing] says how, and turns it off.
// [ParseAnnouncement] is the parser by itself, and [Dialect] describes services
// it does not know.
//
// # Defaults
//
// Without configuration a request waits for as long as its context lasts, any
// number of requests may wait or be in flight, and one that is refused is tried
// again up to four times. A refusal that does not say for how long is waited for
// 5 seconds, then 10, and so on up to 5 minutes; no server can ask for a wait of
// more than an hour. [Limits], [Smoothing], [Retry] and [Config] have the fields
// that change this, each with its default.
//
// # Limits by origin
//
// An origin is a scheme, a host and a port; [OriginOf] names it. Every origin
// has limits of its own, and never waits for another.
//
// Within an origin every credential has quotas of its own, which this
// documentation calls a partition. The credential is that of the Authorization
// field, of the URL (user and password), or else of X-Api-Key, Api-Key or
// Private-Token; only a hash of it is kept. Requests with none of these share
// one partition, also if they have a key in the query or a cookie. So do those
// with an Authorization scheme other than Bearer, Basic, Digest, OAuth and AWS4,
// such as "token …": what follows it may be a signature, which changes each
// time. [Config].Partition tells them apart, and [Config].Origin can define what
// an origin is.
//
// Some origins have several budgets even for one credential, such as GitHub
// for its search and its core API, and name the one an answer was counted in.
// heed learns which requests belong to which, by method and the shape of the
// path. Where one budget is used up only its own requests wait.
// [PolicyState].Bucket names it, and [PartitionState].Buckets says which of them
// are paused or waited for. A [Pool] sends with several credentials, where a
// service allows that.
//
// What the user asks for is set by origin as well, in [Config] or, while
// requests are running, with [Registry.SetLimits]. The most specific entry
// counts, and replaces the others whole: "https://api.example.org", then
// "https://*.example.org", then the default.
//
// State is kept in a [Registry]. Transports that share one share what it knows,
// and [Registry.Snapshot] shows it.
//
// # Waiting and errors
//
// Requests wait in line for as long as their context lasts: first come first
// served, within a priority ([WithPriority]) and a budget of the origin. One
// that cannot start before its context's deadline is refused at once, not at the
// deadline. If answers have lately come too late for requests that had waited,
// one whose turn comes with too little time left is refused as well, so that
// others can go. [NoWait] asks never to wait; [Limits] bounds how long, and how
// many, may.
//
// The Timeout of an [http.Client] is such a deadline: it includes the time that
// a request waits. A client that is to wait for the next window of its quota
// needs a Timeout longer than that window, or none. If it runs out during a wait
// whose length nobody could tell, for requests in flight say, the http.Client
// keeps only the text of the LimitError: errors.As and ErrLimited do not match
// then, context.DeadlineExceeded does. With the deadline of a context they match.
//
// Whatever heed refuses to send is a [*LimitError], which matches [ErrLimited]
// and says how long the wait would have been; errors.As finds it in the
// [*url.Error] of an http.Client. What a server refuses is never made an error:
// a 429 that is not tried again, or that could not be tried again in time, comes
// back as the response it is, its body unread.
//
// A refused request is only repeated if its body can be replayed
// (http.Request.GetBody) and, where the server might have acted on it, if its
// method is idempotent. [Retry] changes what is tried again, and [NoRetry] turns
// it off for one request. Bodies are streamed, never buffered.
//
// A program can ask before it sends: [Registry.Check] says whether a request
// could go now, and if not, what holds it and for how long.
//
// # Many goroutines
//
// Everything in this package may be used by many goroutines at once; start as
// many as there is work for, and leave it to heed when each may go. On first
// contact with an origin one request goes ahead and the others wait for its
// answer, which usually says what the limits are. A response's body must be
// closed, as ever: a request is in flight until its body is closed or read to
// its end, and [Limits].MaxConcurrent and MinPause depend on it.
//
// # Redirects and nesting
//
// Redirects, cookies and authentication are the http.Client's business, and
// stay so. Each hop of a redirect is charged to the origin it goes to.
//
// A RoundTripper that makes requests of its own, as that of golang.org/x/oauth2
// does to refresh a token, goes outside. Inside, its requests would be made
// while the request they are for holds its place:
//
//	client := &http.Client{Transport: &oauth2.Transport{Source: tokens, Base: &heed.Transport{}}}
//
// What answers by itself, a cache or a recorder, goes outside as well: inside it
// would repeat what an origin announced long ago. [Bypass] lets a request pass
// untouched where nothing else will do.
//
// If both a library and heed try again, their tries multiply; turn one of the
// two off. What to tell which library is in docs/libraries.md.
//
// # Seeing what it does
//
// heed logs to log/slog, or to [Config].Logger: waits and learned limits at
// debug, pauses at info or, if the server did not say for how long, at warn.
// Above debug it never logs once per request. [Config].OnEvent gets every single
// [Event], for metrics and dashboards. [WithTrace] writes down how long one
// request waited and for what, and how many attempts it took. None of these ever
// carries a credential or a query string.
//
// # Without an HTTP client
//
// Other HTTP stacks, crawlers and job queues use a [Registry] directly:
// [Registry.Acquire] waits for a [Permit]; [Permit.Observe] learns from an
// answer's status and fields, [Permit.Learn] from anything else;
// [Permit.Release] ends it, or [Permit.Cancel] where the request was not sent.
//
// Package heedtest has origins that enforce and announce limits, for testing
// HTTP clients.
//
// [draft-ietf-httpapi-ratelimit-headers]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
package heed
