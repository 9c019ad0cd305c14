package heed

import (
	"slices"
	"time"
)

// mostUnits is the largest number that a field can state (RFC 9651, section 3.3.1). With those
// up to it, and times up to ages, nothing that is reckoned here overflows.
const mostUnits = 999_999_999_999_999

// sane returns an announcement as one that fields could have made: what a dialect of the
// user's own, or who calls [Permit.Learn], has put together can hold anything. A policy of a
// negative quota or window is none; what is too large, or too long, is as large as can be.
func (a *Announcement) sane() *Announcement {
	if !slices.ContainsFunc(a.Policies, func(p Policy) bool { return p != p.sane() }) &&
		!slices.ContainsFunc(a.Limits, func(l ServiceLimit) bool { return l != l.sane() }) && a.RetryAfter <= ages && len(a.Bucket) <= maxNameLen {
		return a // nearly all
	}
	b := *a
	b.RetryAfter, b.Bucket = min(a.RetryAfter, ages), a.Bucket[:min(len(a.Bucket), maxNameLen)]
	b.Policies, b.Limits = nil, nil
	for _, p := range a.Policies {
		if p.Quota >= 0 && p.Window >= 0 {
			b.Policies = append(b.Policies, p.sane())
		}
	}
	for _, l := range a.Limits {
		b.Limits = append(b.Limits, l.sane())
	}
	return &b
}

func (p Policy) sane() Policy {
	p.Quota, p.Window = min(max(p.Quota, 0), mostUnits), min(max(p.Window, 0), ages)
	return p
}

func (l ServiceLimit) sane() ServiceLimit {
	within := func(d, least time.Duration) time.Duration { return min(max(d, least), ages) }
	l.Remaining, l.Used = min(max(l.Remaining, -1), mostUnits), min(max(l.Used, 0), mostUnits)
	l.Reset, l.Resolution = within(l.Reset, -1), within(l.Resolution, 0)
	return l
}
