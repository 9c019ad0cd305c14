package heedtest

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Config describes an [Origin]. The zero value is an origin without limits that
// answers every request with 200 and no body.
type Config struct {
	// Policies are the limits enforced, all at once. None: no limits.
	Policies []Policy

	// Algorithm is how policies that name none of their own are enforced.
	// "": FixedWindow.
	Algorithm Algorithm

	// Phase moves the windows of FixedWindowByClock and SlidingCounter: they
	// begin at Phase + k·Window after the Unix epoch, on the origin's clock.
	Phase time.Duration

	// Key tells clients apart; every key has quotas of its own. It is called
	// without locks held, by many goroutines at once. nil: one key, "", for all
	// requests. [ByAuthorization] keys by credential.
	Key func(*http.Request) string

	// Cost is how many units a request takes of every policy that counts neither
	// bytes nor requests in flight; 0 or less is free. It is called like Key.
	// nil: 1.
	Cost func(*http.Request) int64

	// CountRefused makes refused requests use up quota as well. To a windowed
	// policy they count like any other; a bucket that refuses is emptied.
	CountRefused bool

	// Block turns every refusal by a policy into a block: the key is refused
	// altogether for this long, and a request that arrives in the meantime
	// starts the block anew. 0: no blocks.
	Block time.Duration

	// Dialect is the family of fields that announce the limits. "": IETF11.
	Dialect Dialect

	// Tightest announces one policy alone, where the dialect could name all: the
	// one that would hold a request longest, else the one with the least share
	// left.
	Tightest bool

	// OnRefusalsOnly keeps the fields off the answers to accepted requests.
	OnRefusalsOnly bool

	// Every puts the fields on the first of every so many answers of the origin,
	// Retry-After apart. 0 or 1: all.
	Every int

	// Below puts the fields only on answers where the tightest policy has less
	// than this share of its quota left, of 0 to 1: 0.2 for a fifth. 0: all.
	Below float64

	// Reset is the instant reset values point at. "": ResetUsual.
	Reset Reset

	// Rounding is what becomes of fractions in reset values. "": RoundUp.
	Rounding Rounding

	// ClockSkew is how far the origin's clock is ahead of the true time; below 0
	// it is behind. Date, epochs and windows by the clock follow that clock.
	ClockSkew time.Duration

	// RetryAfter is what refusals carry in the Retry-After field. Zero: the true
	// wait, rounded up to a second; with the dialect GitHub none.
	RetryAfter RetryAfter

	// Status is the status code of refusals. 0: 429, with the dialect GitHub 403.
	Status int

	// Problem gives refusals a problem document (RFC 9457) of this type that
	// names the policies violated, such as [QuotaExceeded]. "": plain text.
	Problem string

	// Latency is the time on the way; see [RoundTrip] and [HeavyTail]. nil: none.
	Latency Latency

	// Service is how long the origin works on an accepted request, between its
	// arrival and the answer. 0: no time.
	Service time.Duration

	// BodySize is the number of bytes in the body of the answer to an accepted
	// request, where Respond is nil. 0: no body.
	BodySize int64

	// Respond answers accepted requests, after Service. The fields are set on w
	// before it is called. nil: 200 with BodySize bytes.
	Respond func(w http.ResponseWriter, r *http.Request)

	// Record keeps an [Event] for every request that arrives. Memory then grows
	// with their number.
	Record bool
}

// Policy is a quota policy: Quota units per Window.
type Policy struct {
	// Name is what the dialects that name policies call it. "": "default", or
	// "policy-2" and so on by its place among several.
	Name string

	// Quota is how many units are granted per Window; with [Concurrency] how
	// many requests may be in flight. 0: every request is refused.
	Quota int64

	// Window is the length of the window. It must be above 0, save with
	// [Concurrency], where it has no meaning.
	Window time.Duration

	// Burst is the size of a bucket: with [TokenBucket] and [GCRA] the number of
	// units granted at once after a long rest (0: Quota), with [LeakyBucket] the
	// excess tolerated over strict spacing (0: none, so one at a time). Other
	// algorithms have no use for it.
	Burst int64

	// Unit is what the quota counts: [UnitRequests], [UnitContentBytes],
	// [UnitConcurrentRequests], or a name of your own, charged by [Config.Cost].
	// "": UnitRequests. UnitConcurrentRequests implies the algorithm
	// [Concurrency], and the other way round.
	Unit string

	// Algorithm is how this policy is enforced. "": as [Config.Algorithm] says.
	Algorithm Algorithm
}

// The quota units of draft-ietf-httpapi-ratelimit-headers.
const (
	// UnitRequests counts requests, each at its [Config.Cost].
	UnitRequests = "requests"

	// UnitContentBytes counts the bytes of request and response bodies. A
	// request is accepted while anything is left, so the last body may overdraw
	// the quota. What is known on arrival (Content-Length, [Config.BodySize]) is
	// charged then, the rest when the bodies have ended.
	UnitContentBytes = "content-bytes"

	// UnitConcurrentRequests counts requests in flight.
	UnitConcurrentRequests = "concurrent-requests"
)

// Algorithm is a way to enforce a policy. The package documentation has the
// definitions.
type Algorithm string

const (
	FixedWindow        Algorithm = "fixed-window"          // opened by the first request, as in express-rate-limit; the default
	FixedWindowByClock Algorithm = "fixed-window-by-clock" // aligned to the clock, see Config.Phase
	SlidingWindow      Algorithm = "sliding-window"        // an exact log of what was accepted
	SlidingCounter     Algorithm = "sliding-counter"       // two clock windows, weighted, as at CDNs and in Upstash
	TokenBucket        Algorithm = "token-bucket"          // refilled continuously
	GCRA               Algorithm = "gcra"                  // the generic cell rate algorithm; grants what TokenBucket grants
	LeakyBucket        Algorithm = "leaky-bucket"          // nginx's limit_req with nodelay
	Concurrency        Algorithm = "concurrency"           // a cap on requests in flight, from arrival until the answer is delivered
)

// Dialect is a family of fields that announce limits.
type Dialect string

const (
	IETF11                Dialect = "ietf-11"                  // draft 08 to 11: RateLimit: "p";r=49;t=5, RateLimit-Policy: "p";q=50;w=5; the default
	IETF07                Dialect = "ietf-07"                  // RateLimit: limit=50, remaining=49, reset=5, RateLimit-Policy: 50;w=5
	IETF06                Dialect = "ietf-06"                  // RateLimit-Limit, -Remaining, -Reset in seconds, RateLimit-Policy
	XRateLimit            Dialect = "x-ratelimit"              // X-RateLimit-Limit, -Remaining, -Reset in seconds from now
	XRateLimitEpoch       Dialect = "x-ratelimit-epoch"        // the same, Reset in seconds since the Unix epoch
	XRateLimitEpochMillis Dialect = "x-ratelimit-epoch-millis" // the same, Reset in milliseconds since the Unix epoch
	GitHub                Dialect = "github"                   // XRateLimitEpoch with -Used and -Resource; refusals are 403 without Retry-After
	RetryAfterOnly        Dialect = "retry-after-only"         // Retry-After on refusals and nothing else
	Silent                Dialect = "silent"                   // nothing ever, not even Retry-After
)

// Reset is the meaning of a reset value: the instant it points at.
//
// To a fixed window there is one such instant, the window's end, which also
// counts as the whole window where none is open.
type Reset string

const (
	// ResetUsual is what servers of the algorithm mostly announce: while nothing
	// is left, the instant the next unit is free; otherwise for a SlidingWindow
	// the instant the oldest request leaves it, for a SlidingCounter the end of
	// the clock window, for buckets the instant they are full. The default.
	ResetUsual Reset = "usual"

	// ResetNext is the instant one more unit is free than now.
	ResetNext Reset = "next"

	// ResetFull is the instant the whole quota is free, should no request come.
	ResetFull Reset = "full"
)

// Rounding is what becomes of fractions in reset values, to whole seconds or,
// with [XRateLimitEpochMillis], milliseconds. Epochs are rounded as instants.
// Retry-After is not affected.
type Rounding string

const (
	RoundUp      Rounding = "up"      // never early; the default
	RoundDown    Rounding = "down"    // early by up to a second
	RoundNearest Rounding = "nearest" // early by up to half a second
	RoundZero    Rounding = "zero"    // 0 whatever the wait; as an epoch, the present second
	Exact        Rounding = "exact"   // fractions are sent, where the dialect is an X-RateLimit; IETF dialects have none and round up
)

// RetryAfter is what refusals carry in the Retry-After field. A refusal for
// concurrency has no true wait, so only a constant can be sent with it.
type RetryAfter struct {
	// Mode says how the value comes about. "": RetryAfterExact.
	Mode RetryAfterMode

	// Value is the constant of RetryAfterConstant, rounded up to a second.
	Value time.Duration

	// Share is the share of the true wait that RetryAfterShort sends, rounded
	// down to a second. 0: half.
	Share float64

	// HTTPDate sends an instant on the origin's clock in place of seconds.
	HTTPDate bool
}

// RetryAfterMode is the way a Retry-After value comes about.
type RetryAfterMode string

const (
	RetryAfterExact    RetryAfterMode = "exact"    // the true wait, rounded up to a second; the default
	RetryAfterNone     RetryAfterMode = "none"     // no Retry-After
	RetryAfterConstant RetryAfterMode = "constant" // RetryAfter.Value, whatever the wait
	RetryAfterWindow   RetryAfterMode = "window"   // the whole window of the policy that refused, whatever the wait
	RetryAfterShort    RetryAfterMode = "short"    // too short: a share of the true wait, rounded down
)

// Problem types of draft-ietf-httpapi-ratelimit-headers, for [Config.Problem].
const (
	QuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsageDetected    = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// ByAuthorization is a [Config.Key] that gives every credential quotas of its
// own. Requests without an Authorization field share the key "".
func ByAuthorization(r *http.Request) string { return r.Header.Get("Authorization") }

// withDefaults fills in what is left to default and panics where c makes no
// sense: a test that asks for the impossible should fail where it asks.
func (c Config) withDefaults() Config {
	setDefault(&c.Algorithm, FixedWindow)
	setDefault(&c.Dialect, IETF11)
	setDefault(&c.Reset, ResetUsual)
	setDefault(&c.Rounding, RoundUp)
	if c.Dialect == GitHub {
		setDefault(&c.RetryAfter.Mode, RetryAfterNone)
		setDefault(&c.Status, http.StatusForbidden)
	}
	setDefault(&c.RetryAfter.Mode, RetryAfterExact)
	setDefault(&c.RetryAfter.Share, 0.5)
	setDefault(&c.Status, http.StatusTooManyRequests)

	known("Algorithm", c.Algorithm, FixedWindow, FixedWindowByClock, SlidingWindow, SlidingCounter,
		TokenBucket, GCRA, LeakyBucket, Concurrency)
	known("Dialect", c.Dialect, IETF11, IETF07, IETF06, XRateLimit, XRateLimitEpoch,
		XRateLimitEpochMillis, GitHub, RetryAfterOnly, Silent)
	known("Reset", c.Reset, ResetUsual, ResetNext, ResetFull)
	known("Rounding", c.Rounding, RoundUp, RoundDown, RoundNearest, RoundZero, Exact)
	known("RetryAfter.Mode", c.RetryAfter.Mode, RetryAfterExact, RetryAfterNone, RetryAfterConstant,
		RetryAfterWindow, RetryAfterShort)
	switch {
	case c.Block < 0, c.Service < 0, c.BodySize < 0, c.Every < 0, c.RetryAfter.Value < 0:
		panic("heedtest: Block, Service, BodySize, Every and RetryAfter.Value must not be negative")
	case c.Status < 200 || c.Status > 999:
		panic(fmt.Sprintf("heedtest: Status %d is no final status code", c.Status))
	case !isShare(c.Below), !isShare(c.RetryAfter.Share):
		panic("heedtest: Below and RetryAfter.Share must be shares")
	}
	c.Policies = c.complete(c.Policies)
	return c
}

// complete returns policies with names, units and algorithms filled in.
func (c Config) complete(policies []Policy) []Policy {
	policies = slices.Clone(policies)
	for i := range policies {
		p := &policies[i]
		if p.Name == "" {
			p.Name = "default"
			if i > 0 {
				p.Name = fmt.Sprintf("policy-%d", i+1)
			}
		}
		if p.Unit == UnitConcurrentRequests {
			p.Algorithm = Concurrency
		}
		if p.Algorithm == "" {
			p.Algorithm = c.Algorithm
			if p.Unit != "" && p.Unit != UnitRequests && p.Algorithm == Concurrency {
				p.Algorithm = FixedWindow // bytes are never in flight
			}
		}
		known("Algorithm of policy "+p.Name, p.Algorithm, FixedWindow, FixedWindowByClock, SlidingWindow,
			SlidingCounter, TokenBucket, GCRA, LeakyBucket, Concurrency)
		if p.Algorithm == Concurrency {
			p.Unit = UnitConcurrentRequests
		}
		setDefault(&p.Unit, UnitRequests)
		switch {
		case p.Quota < 0, p.Burst < 0, p.Window < 0:
			panic(fmt.Sprintf("heedtest: policy %q has a negative quota, burst or window", p.Name))
		case p.Window == 0 && p.Algorithm != Concurrency:
			panic(fmt.Sprintf("heedtest: policy %q has no window", p.Name))
		}
	}
	return policies
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func known[T comparable](what string, v T, all ...T) {
	if !slices.Contains(all, v) {
		panic(fmt.Sprintf("heedtest: unknown %s %v", what, v))
	}
}

func isShare(x float64) bool { return x >= 0 && x <= 1 } // and no NaN
