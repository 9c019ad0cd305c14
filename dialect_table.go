package heed

import "time"

// dialectTable is the dialects heed knows. Where an origin or a sign decides,
// the dialect's fields are read as it says; all other fields as the dialects
// say that anybody may speak.
//
// Names of fields are in their canonical form.
var dialectTable = []Dialect{
	{
		Name: "x-ratelimit",
		Quotas: []QuotaFields{
			{
				Limit:      "X-Ratelimit-Limit X-Ratelimit-Max",
				Remaining:  "X-Ratelimit-Remaining",
				Used:       "X-Ratelimit-Used X-Ratelimit-Observed",
				Reset:      "X-Ratelimit-Reset X-Ratelimit-Next",
				ResetAfter: "X-Ratelimit-Reset-After",
				Interval:   "X-Ratelimit-Interval-Milliseconds X-Ratelimit-Interval X-Ratelimit-Window",
				RetryAfter: "X-Ratelimit-Retry-After X-Ratelimit-Retryafter",
			},
			{
				Limit:      "X-Ratelimit-Limit-* X-Ratelimit-*-Limit",
				Remaining:  "X-Ratelimit-Remaining-* X-Ratelimit-*-Remaining",
				Used:       "X-Ratelimit-Used-* X-Ratelimit-*-Used",
				Reset:      "X-Ratelimit-Reset-* X-Ratelimit-*-Reset",
				RetryAfter: "Retry-After-*",
			},
		},
		Bucket: "X-Ratelimit-Resource X-Ratelimit-Bucket",
		Global: []string{"X-Ratelimit-Global: true", "X-Ratelimit-Scope: global"},
	},
	{
		Name: "x-rate-limit",
		Quotas: []QuotaFields{
			{
				Limit:      "X-Rate-Limit-Limit X-Rate-Limit X-Rate-Limit-Max",
				Remaining:  "X-Rate-Limit-Remaining",
				Used:       "X-Rate-Limit-Used",
				Reset:      "X-Rate-Limit-Reset",
				ResetAfter: "X-Rate-Limit-Reset-After",
				Interval:   "X-Rate-Limit-Interval X-Rate-Limit-Duration X-Rate-Limit-Window",
				RetryAfter: "X-Rate-Limit-Retry-After",
			},
			{
				Limit:     "X-Rate-Limit-Limit-* X-Rate-Limit-*-Limit",
				Remaining: "X-Rate-Limit-Remaining-* X-Rate-Limit-*-Remaining",
				Used:      "X-Rate-Limit-Used-* X-Rate-Limit-*-Used",
				Reset:     "X-Rate-Limit-Reset-* X-Rate-Limit-*-Reset",
			},
		},
	},
	{
		Name:    "github",
		Origins: []string{"api.github.com", "*.githubcopilot.com"},
		Sign:    "X-Github-Request-Id",
		Quotas: []QuotaFields{{
			Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Used: "X-Ratelimit-Used", Reset: "X-Ratelimit-Reset",
		}},
		Bucket: "X-Ratelimit-Resource",
		Refusals: []Refusal{
			{Status: 403, Exhausted: true},
			{Status: 429, Exhausted: true},
			{Status: 403, RetryAfter: true, Body: "secondary rate limit", Global: true, Wait: time.Minute},
			{Status: 429, Global: true, Wait: time.Minute}, // plenty left: the secondary limit
			{Status: 403, Body: "abuse detection mechanism", Global: true, Wait: time.Minute},
		},
	},
}
