package heed

import (
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// An Announcement is all that one response says about limits.
type Announcement struct {
	Policies   []Policy       // what the quotas are
	Limits     []ServiceLimit // what is left of them
	RetryAfter time.Duration  // how long to wait, by Retry-After or a sibling; 0 or less: not said, or unusable
	Refused    bool           // the response turned the request away for a limit
	Violated   []string       // policies named by a problem document
	Dialect    string         // "ietf-11", "github", …; "" where nothing was announced

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
	// PerRoute names those of Policies and Limits that every route of the API
	// has to itself: requests of one method to paths of one shape.
	PerRoute []string
	// Route reports that a refusal holds for the route of the request only.
	Route bool
	// Cached reports that the response came out of a cache, so that it cost
	// no quota and what it announces is out of date (draft-11, section 7.3).
	// Policies and Limits are empty then.
	Cached bool
	// Date is the response's own clock, where it has limits; zero: not said.
	Date time.Time `json:",omitzero"`

	majors []string // as Dialect.Majors
	usual  []string // those of Policies of which the answer does not say how long their windows are, but the service's documentation
	named  bool     // as Dialect.Named
	byRule bool     // the response does not say RetryAfter, but the service's documentation: Refusal.Wait
	free   bool     // the response cost no quota, by the service's documentation
}

// ParseAnnouncement returns what a response received at now says about limits:
// in the RateLimit-Policy and RateLimit fields of
// draft-ietf-httpapi-ratelimit-headers-11 and of the drafts before it, in the
// dialects heed knows, in Retry-After and its siblings, and where the response
// refuses the request in a problem document.
//
// What is malformed is ignored, and what is kept is bounded, whatever the
// server sent: at most 64 policies and 64 service limits, whose names, units
// and partition keys have at most 1 KiB each. Policies of the early drafts have
// no names and are given one, "100;w=60" for 100 in 60 seconds; where even the
// window is missing it is "", unless a dialect names the same quota.
//
// The origin, by which some dialects are known, is that of resp.Request, which may
// be nil. Dialects of [Config].Dialects are not known here.
//
// The body is looked at only where it is a refusal's problem document, or where
// the dialect of the origin tells a refusal by it, and then at no more than its
// first 16 KiB, for which it waits; it can be read as before. Trailers are never
// looked at.
func ParseAnnouncement(resp *http.Response, now time.Time) Announcement {
	if resp == nil {
		return Announcement{}
	}
	return parse(resp, now, math.MaxInt64)
}

// parse is ParseAnnouncement where the body is not waited for for longer than most.
func parse(resp *http.Response, now time.Time, most time.Duration) Announcement {
	origin := ""
	if resp.Request != nil {
		origin = spokenOrigin(resp.Request.URL)
	}
	a, more := parseFields(origin, resp, now, nil)
	if more {
		a.parseBody(origin, resp, peekBody(resp, most), now, nil)
	}
	return a
}

// parseFields is the part of parse that needs no body; more: the body may say
// more.
func parseFields(origin string, resp *http.Response, now time.Time, own []Dialect) (a Announcement, more bool) {
	a = announcementOf(origin, resp.StatusCode, resp.Header, nil, now, own)
	a.free = a.Dialect == "github" && resp.StatusCode == http.StatusNotModified && // see "Use conditional requests" there
		resp.Request != nil && resp.Request.Header.Get("Authorization") != ""
	return a, a.Refused && isProblem(resp.Header) || wantsBody(origin, resp.StatusCode, resp.Header, own)
}

// parseBody adds what the beginning of the body says. It reports whether the
// dialects that are read from bodies have had it.
func (a *Announcement) parseBody(origin string, resp *http.Response, body []byte, now time.Time, own []Dialect) (looked bool) {
	status, h := resp.StatusCode, resp.Header
	switch {
	case len(body) == 0:
		return false
	case !wantsBody(origin, status, h, own):
		a.readProblem(body)
		return false
	}
	*a = announcementOf(origin, status, h, body, now, own)
	a.addBody(bodyDialects(origin, own), status, h, body)
	return true
}

// A reply is what of a response may speak of limits.
type reply struct {
	origin string // whose dialects it may be in; "": nobody's
	status int
	header http.Header
	body   []byte    // the beginning of a refusal's body; nil: it was not looked at
	now    time.Time // when it came
	own    []Dialect // a user's dialects, which come before those heed knows
}

// announcementOf is ParseAnnouncement for a response that is known by its parts.
func announcementOf(origin string, status int, h http.Header, body []byte, now time.Time, own []Dialect) Announcement {
	// Most responses say nothing about limits. They are told by the names of
	// their fields alone.
	var buf [12]string
	fields := limitFields(h, buf[:0])
	if len(fields) == 0 && len(own) == 0 && status < 400 {
		return Announcement{Cached: fromCache(h)}
	}
	return readAnnouncement(reply{origin, status, h, body, now, own}, fields)
}

// readAnnouncement is announcementOf for a response that may say something.
// fields are the names of its fields that speak of limits.
func readAnnouncement(r reply, fields []string) Announcement {
	a := Announcement{
		Refused: r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable,
	}
	if lines := r.header["Date"]; len(lines) > 0 {
		a.Date, _ = parseTimeNear(lines[0], r.now)
	}
	ref := a.Date
	if ref.IsZero() {
		ref = r.now
	}
	said := false
	if len(fields) > 0 {
		a.RetryAfter, said = retryAfter(r.header, ref)
		for _, line := range bounded(r.header[fieldShouldRetry]) {
			a.NoRetry = a.NoRetry || equalASCII(trimOWS(line), "false")
		}
		a.readIETF(r.header, ref)
		for i := range a.Limits {
			said = said || a.Limits[i].Remaining == 0
		}
	}
	if r.status == http.StatusForbidden && said {
		a.Refused = true // not for lack of permission
	}
	readDialects(r, fields, ref, &a)
	if fromCache(r.header) {
		// It cost nothing, and is about the past (draft-11, section 7.3).
		a.Policies, a.Limits, a.PerRoute, a.Dialect, a.Bucket = nil, nil, nil, "", ""
		a.Cached, a.Refused = true, a.Refused && r.status >= 400
	}
	if len(r.body) > 0 && isProblem(r.header) {
		a.readProblem(r.body)
	}
	return a
}

// fromCache reports whether a response is as old as to come from a cache: its
// Age is above zero (RFC 9111, section 5.1).
func fromCache(h http.Header) bool {
	for _, line := range bounded(h["Age"]) {
		line = trimOWS(line)
		if line != "" && strings.Trim(line, "0123456789") == "" && strings.Trim(line, "0") != "" {
			return true
		}
	}
	return false
}

// spokenOrigin is an origin as the dialect table knows it.
func spokenOrigin(u *url.URL) string {
	if u == nil || u.Host == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}
