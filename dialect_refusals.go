package heed

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// conclude reads the budget and judges the status.
func (r *dialectReader) conclude(body []byte) {
	for i := range r.groups {
		r.speaks(r.groups[i].dialect)
	}
	exhausted, timed := false, false
	for i := range r.a.Limits {
		// The last of those allowed at once has been let in.
		if l := &r.a.Limits[i]; l.Remaining == 0 && l.Unit != UnitConcurrentRequests {
			exhausted, timed = true, timed || l.Reset > 0
		}
	}
	refusal := (*Refusal)(nil)
	for i, d := range r.spoken {
		if r.a.majors == nil {
			r.a.majors = d.Majors
		}
		r.a.named = r.a.named || d.Named
		if i >= r.known && !r.shown && len(d.Refusals) == 0 {
			continue
		}
		for name, more := cutWord(d.Bucket); name != "" && r.a.Bucket == ""; name, more = cutWord(more) {
			if i < r.own {
				name = http.CanonicalHeaderKey(name)
			}
			if r.sent(name, i < r.own) {
				r.a.Bucket = trimOWS(r.h[name][0])
			}
		}
		if r.status >= 400 {
			r.a.Global = r.a.Global || r.shows(d.Global, i < r.own)
			r.a.Route = r.a.Route || r.shows(d.Route, i < r.own)
			r.a.NoRetry = r.a.NoRetry || r.shows(d.NoRetry, i < r.own)
		}
		for i := range d.Refusals {
			if refusal == nil && d.Refusals[i].fits(r, exhausted, body) {
				refusal = &d.Refusals[i]
			}
		}
	}
	if refusal != nil {
		r.a.Refused = true
		r.a.NoRetry = r.a.NoRetry || refusal.NoRetry
		r.a.Global = r.a.Global || refusal.Global
		if r.a.RetryAfter <= 0 && !refusal.NoRetry {
			r.a.RetryAfter = memberSpan(body, refusal.Member)
		}
		if r.a.RetryAfter <= 0 && !timed && !refusal.NoRetry {
			r.a.RetryAfter = refusal.Wait
		}
	}
	// A status 403 that says when to come back, or that nothing is left, is no
	// lack of permission.
	if r.status == http.StatusForbidden && (r.a.RetryAfter > 0 || exhausted) {
		r.a.Refused = true
	}
	if r.a.Refused && r.a.RetryAfter <= 0 {
		for i := r.limits; i < len(r.a.Limits); i++ {
			if l := &r.a.Limits[i]; l.Policy == "" && l.Remaining < 0 && l.Reset > 0 {
				l.Remaining = 0 // some state the reset of what is used up, and nothing else
			}
		}
	}
	said := len(r.a.Policies) > 0 || len(r.a.Limits) > 0 || r.a.RetryAfter > 0 || refusal != nil
	switch {
	case !said || len(r.spoken) == 0:
	case r.a.Dialect == "", r.a.Dialect == dialectIETF06 && r.known > 0: // who it is says more than the draft does
		r.a.Dialect = r.spoken[0].Name
	}
}

// memberSpan reads a span from the member of that name of a JSON text, wherever
// it is; 0: there is none.
func memberSpan(body []byte, name string) time.Duration {
	_, rest, found := bytes.Cut(body, []byte(`"`+name+`"`))
	if !found || name == "" {
		return 0
	}
	rest = bytes.TrimLeft(rest, ": \t\r\n\"")
	end := bytes.IndexAny(rest, ",}\" \t\r\n")
	if end < 0 || end > maxValueLen {
		return 0
	}
	s, ok := parseSpan(string(rest[:end]), TimeAuto, time.Time{})
	if !ok || s.clock {
		return 0
	}
	return s.d
}

// shows reports whether one of the fields of a list was sent with the value that
// the list gives it.
func (r *dialectReader) shows(list []string, anyName bool) bool {
	for _, item := range list {
		name, value, _ := strings.Cut(item, ":")
		if name = http.CanonicalHeaderKey(name); r.sent(name, anyName) && equalASCII(trimOWS(r.h[name][0]), trimOWS(value)) {
			return true
		}
	}
	return false
}

// fits reports whether a response is such a refusal.
func (f *Refusal) fits(r *dialectReader, exhausted bool, body []byte) bool {
	if f.Status != r.status {
		return false
	}
	if !f.RetryAfter && !f.Exhausted && f.Body == "" {
		return true
	}
	return f.RetryAfter && r.a.RetryAfter > 0 || f.Exhausted && exhausted || f.Body != "" && bytes.Contains(body, []byte(f.Body))
}
