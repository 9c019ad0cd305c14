package heed

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// conclude reads what the response says beside its quotas: which budget it was
// counted in, and whether it is a refusal.
func (r *dialectReader) conclude(body []byte) {
	for i := range r.groups {
		r.speaks(r.groups[i].dialect)
	}
	exhausted, timed := r.usedUp()
	refusal := (*Refusal)(nil)
	for i, d := range r.spoken {
		if r.a.majors == nil {
			r.a.majors = d.Majors
		}
		r.a.named = r.a.named || d.Named
		if i >= r.known && !r.shown && len(d.Refusals) == 0 {
			continue
		}
		r.readSigns(d, i < r.own)
		for i := range d.Refusals {
			if refusal == nil && d.Refusals[i].fits(r, exhausted, body) {
				refusal = &d.Refusals[i]
			}
		}
	}
	if refusal != nil {
		r.refuse(refusal, timed, body)
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

// usedUp reports whether nothing is left of a quota, and whether it is said when
// there is more. That no more requests may be in flight at once is no sign of it:
// this one was the last that was let in.
func (r *dialectReader) usedUp() (exhausted, timed bool) {
	for i := range r.a.Limits {
		if l := &r.a.Limits[i]; l.Remaining == 0 && l.Unit != UnitConcurrentRequests {
			exhausted, timed = true, timed || l.Reset > 0
		}
	}
	return exhausted, timed
}

// readSigns reads the fields by which a dialect names the budget of the response
// and says what a refusal holds for.
func (r *dialectReader) readSigns(d *Dialect, own bool) {
	for name, more := cutWord(d.Bucket); name != "" && r.a.Bucket == ""; name, more = cutWord(more) {
		if own {
			name = http.CanonicalHeaderKey(name)
		}
		if r.sent(name, own) {
			r.a.Bucket = trimOWS(r.h[name][0])
		}
	}
	if r.status >= 400 {
		r.a.Global = r.a.Global || r.shows(d.Global, own)
		r.a.Route = r.a.Route || r.shows(d.Route, own)
		r.a.NoRetry = r.a.NoRetry || r.shows(d.NoRetry, own)
	}
}

// refuse takes the response for a refusal of this kind. timed: a reset says when
// there is more.
func (r *dialectReader) refuse(f *Refusal, timed bool, body []byte) {
	r.a.Refused = true
	r.a.NoRetry = r.a.NoRetry || f.NoRetry
	r.a.Global = r.a.Global || f.Global
	if f.NoRetry || r.a.RetryAfter > 0 {
		return
	}
	r.a.RetryAfter = memberSpan(body, f.Member)
	if r.a.RetryAfter <= 0 && !timed {
		r.a.RetryAfter, r.a.byRule = f.Wait, f.Wait > 0
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
