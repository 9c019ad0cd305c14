package heed

import (
	"bytes"
	"net/http"
	"strings"
)

// conclude reads the budget and judges the status.
func (r *dialectReader) conclude(body []byte) {
	for i := range r.groups {
		r.speaks(r.groups[i].dialect)
	}
	exhausted := false
	for i := range r.a.Limits {
		exhausted = exhausted || r.a.Limits[i].Remaining == 0
	}
	refusal := (*Refusal)(nil)
	for i, d := range r.spoken {
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
		if r.status < 400 {
			continue
		}
		for _, global := range d.Global {
			name, value, _ := strings.Cut(global, ":")
			if name = http.CanonicalHeaderKey(name); r.sent(name, i < r.own) && equalASCII(trimOWS(r.h[name][0]), trimOWS(value)) {
				r.a.Global = true
			}
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
