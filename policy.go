package heed

import "time"

// A Unit is what a quota is counted in (draft-ietf-httpapi-ratelimit-headers-11,
// section 3.1.2, "quota unit"). The empty Unit means [UnitRequests].
type Unit string

// The registered quota units. A policy in any other unit, announced or
// configured, is shown by [Registry.Snapshot] but not counted, since heed cannot
// know what a request costs of it. Only where the dialect of a service says that
// no tokens are left, or that all of a percentage is used, requests wait for the
// reset it names.
const (
	UnitRequests           Unit = "requests"
	UnitContentBytes       Unit = "content-bytes"       // bytes of request and response content, as the caller sees them: decompressed where net/http does so
	UnitConcurrentRequests Unit = "concurrent-requests" // requests in flight at once; a window has no meaning for it
)

// A Policy is a quota policy: so many units in so much time
// (draft-ietf-httpapi-ratelimit-headers-11, section 3). Servers announce
// policies, and users configure them in [Limits].
//
// A configured policy without a Burst holds in every stretch of time as long as
// Window, wherever it begins, whatever kind of window the server has.
type Policy struct {
	Name         string        // as announced, compared exactly; of a configured one it only shows in errors, logs and events, and may be ""
	Quota        int64         // units per Window; to be configured, at least 1
	Window       time.Duration // 0: none stated; to be configured, above 0, save with UnitConcurrentRequests
	Burst        int64         // configured only; above 0: a token bucket of this size, refilled at Quota per Window
	Unit         Unit          // "": UnitRequests
	PartitionKey string        // raw bytes, as announced; "" where none was stated
}

// rate is how many units a second come back to all who use the quota.
func (p *Policy) rate() float64 { return float64(p.Quota) / p.Window.Seconds() }

// isBucket reports whether a policy is kept to as a token bucket.
func (p *Policy) isBucket() bool {
	return p.Burst > 0 && p.Window > 0 && p.Unit != UnitConcurrentRequests
}

// A ServiceLimit is what a server says is left of one policy just now
// (draft-ietf-httpapi-ratelimit-headers-11, section 4).
type ServiceLimit struct {
	Policy       string        // the name of the policy it is about
	Remaining    int64         // units left; negative: not said
	Reset        time.Duration // from the response's receipt; negative: not said
	PartitionKey string        // raw bytes; "" where none was stated

	// Unit is what Remaining and Used are counted in. "" means the unit of the
	// policy of that name, or UnitRequests where none was announced.
	Unit Unit
	// Used is how many units the server says are spent; 0: none, or not said.
	Used int64

	// Resolution is the grain Reset was rounded to by the server, which may
	// have rounded up or down: a second for whole seconds and HTTP dates,
	// 0 where the value was exact.
	Resolution time.Duration
	// Clock reports that Reset was announced as an instant of the server's
	// clock (an epoch or a date) and not as a span of time.
	Clock bool
}
