package heed

import (
	"net/http"
	"strings"
	"time"
)

// plain is the trio of limit, remaining and reset behind a prefix, with what
// some send beside it. Allowed, Used, Available and Expiry are what Apigee's quota
// calls them.
func plain(prefix string, window time.Duration) QuotaFields {
	return QuotaFields{
		Limit:     prefix + "Limit " + prefix + "Max " + prefix + "Total " + prefix + "Allowed",
		Remaining: prefix + "Remaining " + prefix + "Limit-Remaining " + prefix + "Available",
		Used:      prefix + "Used " + prefix + "Observed",
		Reset: prefix + "Reset " + prefix + "Resettime " + prefix + "Next " + prefix + "Reset-Ms " + prefix + "Reset-After-Ms " +
			prefix + "Reset-At " + prefix + "Reset-Time " + prefix + "Reset-Timestamp " + prefix + "Expiry " + prefix + "Expiry-Time",
		ResetAfter: prefix + "Reset-After " + prefix + "Reset-In",
		RetryAfter: prefix + "Retry-After " + prefix + "Retryafter " + prefix + "Retry-After-Seconds " + prefix + "Retry-After-Milliseconds " + prefix + "After",
		Interval: prefix + "Interval-Milliseconds " + prefix + "Interval " + prefix + "Interval-Seconds " +
			prefix + "Window " + prefix + "Window-Seconds " + prefix + "Window-Ms " + prefix + "Duration " + prefix + "Period",
		Rate:   prefix + "Fillrate " + prefix + "Rate",
		Window: window,
	}
}

// trio is the limit, what remains and the reset behind a prefix, and nothing beside it.
func trio(prefix string) QuotaFields {
	return QuotaFields{Limit: prefix + "Limit", Remaining: prefix + "Remaining", Reset: prefix + "Reset"}
}

// as gives the quota a name, a unit and a window; what is empty it does not have.
func (q QuotaFields) as(policy string, unit Unit, window time.Duration) QuotaFields {
	q.Policy, q.Unit, q.Window = policy, unit, window
	return q
}

// suffixed is the trio with the dimension at its end.
func suffixed(prefix string) QuotaFields {
	return QuotaFields{
		Limit: prefix + "Limit-*", Remaining: prefix + "Remaining-*", Used: prefix + "Used-*", Reset: prefix + "Reset-*",
	}
}

// named is the trio with one known dimension at its end.
func named(prefix, dim string, unit Unit, window time.Duration) QuotaFields {
	word := http.CanonicalHeaderKey(dim)
	return QuotaFields{
		Policy: dim, Unit: unit, Window: window,
		Limit: prefix + "Limit-" + word, Remaining: prefix + "Remaining-" + word, Reset: prefix + "Reset-" + word,
	}
}

// alsoBare adds the name without "-Limit" that Zendesk gives the quota.
func alsoBare(q QuotaFields) QuotaFields {
	name, _, _ := strings.Cut(q.Limit, " ")
	q.Limit += " " + strings.TrimSuffix(name, "-Limit")
	return q
}

// perRoute says that every route has the quota to itself.
func perRoute(q QuotaFields) QuotaFields {
	q.PerRoute = true
	return q
}

func trello(policy, prefix string) QuotaFields {
	return QuotaFields{
		Policy: policy, Limit: prefix + "Max", Remaining: prefix + "Remaining", Interval: prefix + "Interval-Ms",
	}
}
