package heed

import (
	"net/http"
	"time"
)

// A Dialect says how a service, or a family of services, states its limits in
// fields of its own, beside those of the IETF drafts. The dialects heed knows
// are listed in docs/dialects.md; a user adds others in [Config].Dialects, which
// are looked at first. To see what one makes of a response, have a [Permit] of a
// Registry that is configured with it observe the response: [ParseAnnouncement]
// knows heed's own dialects only.
//
// Most need no more than Name, Origins and one [QuotaFields]. The names of fields
// may be given in any case. A Dialect is only data, save Body. It must not be
// changed once in use.
type Dialect struct {
	// Name is what [Announcement.Dialect] is for a response in this dialect. It
	// is also given to a policy whose own name another one has already.
	Name string

	// Origins lists where the dialect is spoken: origins
	// ("https://api.example.org"), hosts ("api.example.org"), either with a
	// wildcard for everything below a domain ("https://*.example.org",
	// "*.example.org"), or "*". A host without a port stands for all its ports;
	// one that is not in ASCII is given in its ASCII form, as [OriginOf] returns
	// it. Where Origins is empty the dialect is spoken by whoever sends Sign or,
	// without a Sign, any of its fields.
	Origins []string

	// Sign is the name of a field that only those who speak the dialect send,
	// wherever they are; "" for none.
	Sign string

	// Anywhere reports that the names of its fields mean nothing else: the
	// dialect is also spoken by whoever sends any of them.
	Anywhere bool

	// Quotas are the quotas it states.
	Quotas []QuotaFields

	// Bucket names the field that says which budget a response was counted
	// in; several, separated by spaces, are alternatives, the first one sent
	// counts.
	Bucket string

	// Named reports that each policy with a name is a budget of its own: it holds
	// only requests to the routes on whose answers it is stated.
	Named bool

	// Majors lists segments of a path after which the next one tells budgets
	// of the same name apart ("channels": each channel has its own).
	Majors []string

	// Global lists what shows that a refusal holds for everything and not
	// only for its bucket: a field and its value ("X-Ratelimit-Global: true").
	Global []string

	// Route lists what shows that a refusal holds for its route only, likewise.
	Route []string

	// NoRetry lists what shows that a request is not wanted again, likewise:
	// a field and its value ("Stripe-Should-Retry: false").
	NoRetry []string

	// Refusals says which statuses, besides 429 and 503, turn a request away
	// for a limit, and which answers are not to be retried. The first one that
	// fits counts.
	Refusals []Refusal

	// Body reads limits from the beginning of a response's body, for services
	// that state them nowhere else; nil: none. It is given no more than 16 KiB,
	// must not keep or change them, and reports false where they say nothing.
	// It may be called by several goroutines at once.
	Body func(status int, h http.Header, body []byte) (Announcement, bool)
}

// QuotaFields says which fields state one quota and what they mean. The names
// of fields may be given in any case. Several names, separated by spaces, are
// alternatives: the first one sent counts. One "*" in a name stands for the
// name of the policy, so that "X-Ratelimit-Limit-*" is a quota for each field
// that fits; the names of one QuotaFields have it all or none.
//
// A number below zero, or one that cannot be read, is not said; a fraction is
// rounded down.
type QuotaFields struct {
	// Policy names the policy; "*" in it is replaced by what "*" stands for in
	// the names of the fields, in lower case. "": what "*" stands for, alone, or
	// no name if there is no "*".
	Policy string
	Unit   Unit // "": as the name of the policy tells (…-tokens), or else UnitRequests
	Form   Form // how Limit, Remaining and Used are written

	Limit     string // the quota; "150/15m" states its window, too, and "10, 10;w=1, 100;w=60" several
	Remaining string // what is left of it
	Used      string // what is spent of it
	Reset     string // when it is restored, or begins to be: see ResetForm
	// ResetAfter is when it is restored, always as a span, in seconds where it
	// has no unit; it is preferred to Reset.
	ResetAfter string
	ResetForm  TimeForm // how a plain number in Reset is meant
	// RetryAfter is when to come back, a sibling of the Retry-After field,
	// which is preferred to it. In an accepted answer that says that some is
	// left, and neither Reset nor ResetAfter, it is when more is restored,
	// unless Window is stated.
	RetryAfter     string
	RetryAfterForm TimeForm // how a plain number in RetryAfter is meant
	Interval       string   // the quota's window; also in a word, "minute"
	IntervalForm   TimeForm // how a plain number in Interval is meant
	Rate           string   // units given back per Interval or, where that is not sent, per second; without Limit, the quota is that number

	// What the service's documentation adds to the fields.
	Quota   int64           // the quota where Limit is not sent; 0: unknown
	Window  time.Duration   // the window where Interval is not sent; 0: unknown
	Windows []time.Duration // FormPositions: the window of each position
	Aligned bool            // windows begin at multiples of their length since 1970 in UTC: where no reset is sent, that tells it

	// PerRoute reports that every route of the API has such a quota to itself:
	// requests of one method to paths of one shape.
	PerRoute bool

	// ResetIfExceeded reports that Reset is meant only once the quota was exceeded,
	// and is the present before: it is read from refusals alone, and where nothing
	// is left if it is at least a second ahead.
	ResetIfExceeded bool

	// ZeroUnknown reports that a quota of 0 says nothing. Otherwise a quota
	// of 0 on a refusal means that the request is never allowed.
	ZeroUnknown bool
}

// A Form is how numbers of a quota are written in its fields.
type Form uint8

const (
	FormNumber     Form = iota // one number to a field
	FormRatio                  // Used: "32/40", used of the quota; "api-usage=18/5000; bursts=1/750" for several
	FormWindows                // Limit and Used: "20:1,100:120", so many in so many seconds
	FormPositions              // Limit and Used: "600,30000", one for each of Windows
	FormKeys                   // Limit: "total=100; remaining=99; resets=41"
	FormNamed                  // Remaining: "Get3Min;159,Get30Min;1252", names of policies and what is left
	FormCategories             // Limit: "60:error;session:organization", seconds that categories are held
	FormPercent                // Used: {"call_count":28,"total_time":25}, percent of a quota
	FormScopes                 // Limit: "user-hour-lim:3500;user-hour-rem:500;", for each scope a quota and what is left
)

// A TimeForm is how a plain number is meant that stands for a time. Values that
// are not plain numbers are understood by their looks, whatever the TimeForm:
// durations with units ("1m30s", "250ms"), HTTP-dates and their relatives
// with other zones than GMT, RFC 3339, JavaScript's Date.toString, Java's
// Date.toString, Go's Time.String. Of several numbers, as a proxy joins them
// with commas, the longest time counts.
type TimeForm uint8

const (
	// TimeAuto tells by the size of the number: below 5·10⁸ a span in seconds,
	// below 10¹¹ an instant in seconds since 1970, below 10¹⁴ one in
	// milliseconds. In a field whose name ends in -Ms or -Milliseconds a span
	// is in milliseconds.
	TimeAuto TimeForm = iota
	// TimeMilliseconds: as TimeAuto, but below 10¹¹ a span in milliseconds.
	TimeMilliseconds
)

// A Refusal says which responses with a status turn the request away for a
// limit: those that meet one of its conditions, or all if it has none.
type Refusal struct {
	Status int // which may be one of success if a condition says which answers are meant

	// The conditions.
	RetryAfter bool   // the response says when to come back
	Exhausted  bool   // it says that nothing is left of a quota
	Body       string // the beginning of its body contains this text; not looked at with a status below 400, for which there is Dialect.Body

	// NoRetry, Global: as in [Announcement].
	NoRetry, Global bool

	// Member names the member of a JSON body that says when to come back,
	// where no field does: a span in seconds, or with units ("34s").
	Member string

	// Wait is how long the service's documentation asks to wait where the
	// response names no time; 0: not said. After several such refusals in a
	// row it is twice as long each time, up to [Limits.MaxBackoff].
	Wait time.Duration
}
