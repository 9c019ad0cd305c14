package heed

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// StackExchange is the dialect of the Stack Exchange API, which heed knows at
// api.stackexchange.com. An answer may ask, with status 200, to leave its method
// alone for some seconds (backoff), and says what is left of the day's quota.
var StackExchange = Dialect{
	Name:    "stackexchange",
	Origins: []string{"api.stackexchange.com"},
	Refusals: []Refusal{
		{Status: http.StatusBadRequest, Body: "throttle_violation"},
		{Status: http.StatusBadGateway, Body: "throttle_violation"},
	},
	Body: stackExchangeBody,
}

// ShopifyGraphQL is the dialect of Shopify's GraphQL Admin API, which heed knows
// at *.myshopify.com. Its answers say what a query cost and what is left in a
// leaky bucket of points; a query that was refused is answered with status 200.
var ShopifyGraphQL = Dialect{
	Name:    "shopify-graphql",
	Origins: []string{"*.myshopify.com"},
	Body:    shopifyGraphQLBody,
}

// stackExchangeBody reads the common wrapper of Stack Exchange's answers. The
// numbers stand behind the items, so that a longer answer than is looked at
// says nothing.
func stackExchangeBody(status int, _ http.Header, body []byte) (Announcement, bool) {
	if !bytes.Contains(body, []byte(`"quota_remaining"`)) && !bytes.Contains(body, []byte(`"backoff"`)) && !bytes.Contains(body, []byte(`"error_name"`)) {
		return Announcement{}, false
	}
	var wrapper struct {
		Backoff   int64  `json:"backoff"`
		Max       *int64 `json:"quota_max"`
		Remaining *int64 `json:"quota_remaining"`
		ErrorName string `json:"error_name"`
		Message   string `json:"error_message"`
	}
	if json.Unmarshal(body, &wrapper) != nil {
		return Announcement{}, false
	}
	a := Announcement{Dialect: "stackexchange"}
	if wrapper.Backoff > 0 && wrapper.Backoff < int64(maxSpan/time.Second) {
		a.RetryAfter = time.Duration(wrapper.Backoff) * time.Second
	}
	if wrapper.Max != nil && *wrapper.Max > 0 {
		a.Policies = []Policy{{Name: "daily", Quota: *wrapper.Max, Window: day}}
	}
	if wrapper.Remaining != nil && *wrapper.Remaining >= 0 {
		a.Limits = []ServiceLimit{{Policy: "daily", Remaining: *wrapper.Remaining, Reset: -1}}
	}
	if a.Refused = status >= 400 && wrapper.ErrorName == "throttle_violation"; a.Refused {
		// "too many requests from this IP, more requests available in 60 seconds"
		if _, in, ok := strings.Cut(wrapper.Message, "available in "); ok {
			if n, _, ok := scanDecimal(in); ok && !n.neg {
				d := n.duration(time.Second)
				a.RetryAfter = max(a.RetryAfter, d)
			}
		}
	}
	return a, a.RetryAfter > 0 || a.Refused || len(a.Policies) > 0 || len(a.Limits) > 0
}

// shopifyGraphQLBody reads extensions.cost of Shopify's answers:
//
//	{"requestedQueryCost":101,"actualQueryCost":46,"throttleStatus":
//	  {"maximumAvailable":1000.0,"currentlyAvailable":954,"restoreRate":50.0}}
//
// A refusal pauses for as long as the bucket takes to fill to what the query
// needs.
func shopifyGraphQLBody(status int, _ http.Header, body []byte) (Announcement, bool) {
	i := bytes.LastIndex(body, []byte(`"extensions"`))
	if i < 0 || !bytes.Contains(body[i:], []byte(`"throttleStatus"`)) {
		return Announcement{}, false
	}
	// The data before it may be long, or cut off; this is an object of its own.
	rest := bytes.TrimLeft(body[i+len(`"extensions"`):], " \t\r\n")
	if len(rest) == 0 || rest[0] != ':' {
		return Announcement{}, false
	}
	var extensions struct {
		Cost struct {
			Requested float64 `json:"requestedQueryCost"`
			Throttle  *struct {
				Max     float64 `json:"maximumAvailable"`
				Left    float64 `json:"currentlyAvailable"`
				Restore float64 `json:"restoreRate"`
			} `json:"throttleStatus"`
		} `json:"cost"`
	}
	if json.NewDecoder(bytes.NewReader(rest[1:])).Decode(&extensions) != nil || extensions.Cost.Throttle == nil {
		return Announcement{}, false
	}
	t := extensions.Cost.Throttle
	if t.Max < 1 || t.Max > 1e15 || t.Left < 0 || t.Left > t.Max || t.Restore <= 0 {
		return Announcement{}, false
	}
	p := Policy{Name: "points", Quota: int64(t.Max), Unit: "points"}
	setRefill(&p, t.Restore)
	a := Announcement{
		Dialect:  "shopify-graphql",
		Policies: []Policy{p},
		Limits: []ServiceLimit{{
			Policy: "points", Unit: "points", Remaining: int64(t.Left),
			Reset: fillTime(t.Max-t.Left, t.Restore),
		}},
		Refused: status == http.StatusOK && bytes.Contains(body, []byte(`"THROTTLED"`)),
	}
	if a.Refused {
		a.RetryAfter = fillTime(min(extensions.Cost.Requested, t.Max)-t.Left, t.Restore)
	}
	return a, true
}

// fillTime is how long a bucket takes for so many units at so many a second.
func fillTime(units, rate float64) time.Duration {
	return time.Duration(min(max(0, units)/rate*1e9, float64(maxSpan)))
}

// bodyDialects returns the dialects spoken at an origin that want to see the
// beginning of every body, own ones first.
func bodyDialects(origin string, own []Dialect) []*Dialect {
	var all []*Dialect
	for i := range own {
		if d := &own[i]; d.Body != nil && (d.spokenAt(origin) || len(d.Origins) == 0) {
			all = append(all, d)
		}
	}
	knownDialects.at(origin, func(d *Dialect) {
		if d.Body != nil {
			all = append(all, d)
		}
	})
	return all
}

// addBody adds what dialects read from the beginning of a response's body to
// what its fields said, and reports whether that was anything.
func (a *Announcement) addBody(dialects []*Dialect, status int, h http.Header, body []byte) (said bool) {
	for _, d := range dialects {
		b, ok := d.Body(status, h, body)
		if !ok {
			continue
		}
		said = true
		a.Policies = append(a.Policies, b.Policies...)
		a.Limits = append(a.Limits, b.Limits...)
		a.Violated = append(a.Violated, b.Violated...)
		a.PerRoute = append(a.PerRoute, b.PerRoute...)
		a.RetryAfter = max(a.RetryAfter, b.RetryAfter)
		a.Refused, a.NoRetry = a.Refused || b.Refused, a.NoRetry || b.NoRetry
		a.Reduced, a.Global = a.Reduced || b.Reduced, a.Global || b.Global
		a.Route = a.Route || b.Route
		a.Dialect, a.Bucket = cmp.Or(a.Dialect, b.Dialect), cmp.Or(a.Bucket, b.Bucket)
	}
	return said
}

// wantsBody reports whether what a response with this status means depends on
// the beginning of its body, as a dialect's refusals do.
func wantsBody(origin string, status int, h http.Header, own []Dialect) bool {
	if status < 400 {
		return false
	}
	wants := func(d *Dialect) bool {
		for i := range d.Refusals {
			if d.Refusals[i].Status == status && (d.Refusals[i].Body != "" || d.Refusals[i].Member != "") {
				return true
			}
		}
		return false
	}
	found := false
	for i := range own {
		if d := &own[i]; d.spokenAt(origin) || d.anywhere() || d.Sign != "" && len(h.Values(d.Sign)) > 0 {
			found = found || wants(d)
		}
	}
	knownDialects.at(origin, func(d *Dialect) { found = found || wants(d) })
	for _, sign := range knownDialects.signs {
		if len(h[sign.name]) > 0 {
			found = found || wants(sign.dialect)
		}
	}
	for name := range h {
		for _, use := range knownDialects.fields[name] {
			found = found || wants(use.dialect)
		}
	}
	return found
}
