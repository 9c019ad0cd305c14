package heed

import "time"

// An Announcement is all that one response says about limits.
type Announcement struct {
	Policies   []Policy
	Limits     []ServiceLimit
	RetryAfter time.Duration // 0 or less: not said, or unusable
	Refused    bool          // the response turned the request away for a limit
	Violated   []string      // policies named by a problem document
	Dialect    string        // "ietf-11", "github", …; "" where nothing was announced

	// NoRetry reports that the server does not want this request again:
	// x-should-retry: false, the draft's abnormal-usage-detected, a plan
	// without the resource asked for.
	NoRetry bool
	// Reduced reports the draft's temporary-reduced-capacity: the server is
	// short of capacity and wants less at once.
	Reduced bool
	// Bucket is the server's own name for the budget this response was
	// counted in (X-RateLimit-Resource, X-RateLimit-Bucket, …); "" where it
	// named none.
	Bucket string
	// Global reports that a refusal holds for the whole partition, whatever
	// Bucket it names.
	Global bool
	// Cached reports that the response came out of a cache, so that it cost
	// no quota and what it announces is out of date (draft-11, section 7.3).
	// Policies and Limits are empty then.
	Cached bool
}
