package heed

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers-11, section 5, by
// their fragment: https://iana.org/assignments/http-problem-types#quota-exceeded.
const (
	problemHost     = "iana.org"
	problemQuota    = "quota-exceeded"
	problemCapacity = "temporary-reduced-capacity"
	problemAbnormal = "abnormal-usage-detected"
	problemMember   = "violated-policies"
)

// maxProblemLen is how much of a refusal's body is looked at.
const maxProblemLen = 16 << 10

// isProblem reports whether the content is a problem document (RFC 9457).
func isProblem(h map[string][]string) bool {
	v := h["Content-Type"]
	if len(v) != 1 {
		return false
	}
	mediaType, _, _ := strings.Cut(v[0], ";")
	return strings.EqualFold(trimOWS(mediaType), "application/problem+json")
}

// readProblem adds what a problem document says, or the beginning of one. It
// takes what it can get up to the first error: the draft itself shows a
// document without a comma that belongs there (draft-11, appendix B.1.4).
func (a *Announcement) readProblem(body []byte) {
	d := json.NewDecoder(bytes.NewReader(body[:min(len(body), maxProblemLen)]))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return
	}
	for {
		key, err := d.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if _, ok := key.(string); !ok || d.Decode(&value) != nil {
			return
		}
		switch key {
		case "type":
			var s string
			if json.Unmarshal(value, &s) == nil {
				a.setProblem(s)
			}
		case problemMember:
			a.Violated = policyNames(value)
		}
	}
}

// setProblem takes in the type of a problem document. The draft's own are
// recognised by host and fragment, or by the fragment of a relative reference.
func (a *Announcement) setProblem(s string) {
	u, err := url.Parse(s)
	if err != nil || u.Fragment == "" {
		return
	}
	if host := strings.ToLower(u.Hostname()); host != "" && host != problemHost && host != "www."+problemHost {
		return
	}
	switch strings.ToLower(u.Fragment) {
	case problemQuota:
		a.Refused = true
	case problemCapacity:
		a.Refused, a.Reduced = true, true
	case problemAbnormal:
		a.Refused, a.NoRetry = true, true
	}
}

// policyNames reads an array of policy names, or one name alone, and leaves out
// what is none.
func policyNames(value json.RawMessage) []string {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var names []string
	for _, v := range list {
		name, ok := v.(string)
		if ok && len(name) <= maxNameLen && len(names) < maxItems {
			names = append(names, name)
		}
	}
	return names
}
