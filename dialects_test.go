package heed

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// A fixture is a response as a service sends it, and what it means. The file
// begins with lines of the form "# key: value":
//
//	service   whose response it is
//	source    where it was found
//	date      when that was written, or looked at
//	checked   how sure we are: V the service's own documentation or source code,
//	          W a capture of its traffic or a quotation of its documentation,
//	          S a survey
//	note      anything a reader should know
//	url       of the request
//	at        when the response was received
//	means     one statement of what it means, as statements writes it
//
// The mark is about names, forms and meaning. Where the source gave no whole
// response, its other numbers are made up to go with the ones it gave.
//
// and goes on with the response.
type fixture struct {
	file    string
	key     map[string]string
	origin  string
	at      time.Time
	status  int
	header  http.Header
	body    []byte
	meaning []string
}

func readFixtures(t testing.TB) []fixture {
	t.Helper()
	files, err := filepath.Glob("testdata/dialects/*.http")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	var all []fixture
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := fixture{file: strings.TrimSuffix(filepath.Base(file), ".http"), key: map[string]string{}}
		for bytes.HasPrefix(text, []byte("#")) {
			line, rest, _ := bytes.Cut(text, []byte("\n"))
			text = rest
			key, value, ok := strings.Cut(strings.TrimPrefix(string(line), "# "), ": ")
			if !ok {
				t.Fatalf("%s: no key in %q", file, line)
			}
			if key == "means" {
				f.meaning = append(f.meaning, value)
			} else {
				f.key[key] = value
			}
		}
		for _, key := range []string{"service", "source", "date", "checked", "url", "at"} {
			if f.key[key] == "" {
				t.Errorf("%s: no %s", file, key)
			}
		}
		if f.at, err = time.Parse(time.RFC3339, f.key["at"]); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		u, err := url.Parse(f.key["url"])
		if err != nil || u.Host == "" {
			t.Fatalf("%s: url %q: %v", file, f.key["url"], err)
		}
		f.origin = u.Scheme + "://" + u.Host
		head, body, _ := bytes.Cut(text, []byte("\n\n"))
		resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("\n\n"))), nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		f.status, f.header, f.body = resp.StatusCode, resp.Header, bytes.TrimSpace(body)
		all = append(all, f)
	}
	return all
}

// statements puts an announcement into words, in the order of their kinds:
//
//	dialect NAME
//	policy "NAME": QUOTA UNIT [per WINDOW] [for each route]
//	limit "NAME": [N left,] [N used,] [reset in SPAN [to GRAIN] [by the clock]]
//	refused | not to be retried | for all | for its route | bucket NAME | retry after SPAN | reduced | cached
func statements(a Announcement) []string {
	var s []string
	if a.Dialect != "" {
		s = append(s, "dialect "+a.Dialect)
	}
	unit := func(u Unit) string {
		if u == "" {
			u = UnitRequests
		}
		return string(u)
	}
	for _, p := range a.Policies {
		line := fmt.Sprintf("policy %q: %d %s", p.Name, p.Quota, unit(p.Unit))
		if p.Window != 0 {
			line += " per " + p.Window.String()
		}
		if slices.Contains(a.PerRoute, p.Name) {
			line += " for each route"
		}
		s = append(s, line)
	}
	for _, l := range a.Limits {
		var parts []string
		if l.Remaining >= 0 {
			parts = append(parts, fmt.Sprintf("%d left", l.Remaining))
		}
		if l.Used != 0 {
			parts = append(parts, fmt.Sprintf("%d used", l.Used))
		}
		if l.Reset >= 0 {
			part := "reset in " + l.Reset.String()
			if l.Resolution != 0 {
				part += " to " + l.Resolution.String()
			}
			if l.Clock {
				part += " by the clock"
			}
			parts = append(parts, part)
		}
		line := fmt.Sprintf("limit %q: %s", l.Policy, strings.Join(parts, ", "))
		if u := unit(l.Unit); u != string(UnitRequests) && !slices.ContainsFunc(a.Policies, func(p Policy) bool { return p.Name == l.Policy }) {
			line += " (" + u + ")"
		}
		s = append(s, line)
	}
	for _, flag := range []struct {
		set  bool
		text string
	}{
		{a.Refused, "refused"},
		{a.NoRetry, "not to be retried"},
		{a.Global, "for all"},
		{a.Route, "for its route"},
		{a.Bucket != "", "bucket " + a.Bucket},
		{a.RetryAfter > 0, "retry after " + a.RetryAfter.String()},
		{a.Reduced, "reduced"},
		{a.Cached, "cached"},
	} {
		if flag.set {
			s = append(s, flag.text)
		}
	}
	for _, v := range a.Violated {
		s = append(s, "violated "+v)
	}
	return s
}

func TestFixturesMeanWhatTheySay(t *testing.T) {
	services := map[string]bool{}
	for _, f := range readFixtures(t) {
		services[f.key["service"]] = true
		t.Run(f.file, func(t *testing.T) {
			if c := f.key["checked"]; c != "V" && c != "W" && c != "S" {
				t.Errorf("checked: %q", c)
			}
			a := announcementOf(f.origin, f.status, f.header, f.body, f.at, nil)
			for _, d := range bodyDialects(f.origin, nil) {
				if more, ok := d.Body(f.status, f.header, f.body); ok {
					a = more
				}
			}
			got, want := statements(a), f.meaning
			if !reflect.DeepEqual(got, want) {
				t.Errorf("means\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		})
	}
	if len(services) < 90 {
		t.Errorf("%d services, want 90", len(services))
	}
}

func TestRefusalOfAUserMayHaveAStatusOfSuccess(t *testing.T) {
	own := []Dialect{{Name: "own", Origins: []string{"api.example.org"}, Refusals: []Refusal{{Status: 200, RetryAfter: true}, {Status: 202, Exhausted: true}}}}
	for _, tt := range []struct {
		origin  string
		status  int
		fields  []string
		refused bool
	}{
		{"https://api.example.org", 200, []string{"Retry-After", "7"}, true},
		{"https://api.example.org", 200, []string{"Retry-After", "0"}, false},
		{"https://api.example.org", 200, []string{"X-RateLimit-Remaining", "0"}, false},
		{"https://api.example.org", 202, []string{"X-RateLimit-Remaining", "0"}, true},
		{"https://api.example.org", 202, []string{"Retry-After", "7"}, false},
		{"https://api.example.org", 201, []string{"Retry-After", "7"}, false},
		{"https://www.example.org", 200, []string{"Retry-After", "7"}, false},
	} {
		if a := dialectsOf(tt.origin, tt.status, "", own, tt.fields...); a.Refused != tt.refused {
			t.Errorf("%s, status %d, %v: refused %v", tt.origin, tt.status, tt.fields, a.Refused)
		}
	}
}

// Where two lists are looked up in each other, that takes no longer than for as many as are kept.
func TestLongListsAreNotLookedUpInEachOther(t *testing.T) {
	for _, tt := range []struct {
		form  QuotaFields
		limit string
		used  string
	}{
		{QuotaFields{Form: FormWindows, Limit: "Limits", Used: "Uses"}, strings.Repeat("x,", 200) + "20:1", "3:1"},
		{QuotaFields{Form: FormWindows, Limit: "Limits", Used: "Uses"}, "20:1", strings.Repeat("x,", 200) + "3:1"},
		{QuotaFields{Form: FormScopes, Limit: "Limits"}, strings.Repeat("x;", 200) + "hour-lim:20;hour-rem:17", ""},
		{QuotaFields{Form: FormScopes, Limit: "Limits"}, "hour-lim:20;" + strings.Repeat("x;", 200) + "hour-rem:17", ""},
	} {
		own := []Dialect{{Name: "own", Quotas: []QuotaFields{tt.form}}}
		short := strings.NewReplacer("x,", "", "x;", "")
		if a := dialectsOf("https://api.example.org", 200, "", own, "Limits", short.Replace(tt.limit), "Uses", short.Replace(tt.used)); len(a.Limits) != 1 || a.Limits[0].Remaining != 17 {
			t.Fatalf("%+v", a)
		}
		a := dialectsOf("https://api.example.org", 200, "", own, "Limits", tt.limit, "Uses", tt.used)
		for _, l := range a.Limits {
			if l.Remaining == 17 {
				t.Errorf("%d bytes and %d: %+v", len(tt.limit), len(tt.used), a)
			}
		}
	}
}

// What is a refusal by its origin alone is none at another one.
func TestRefusalsOfOneServiceAreAnswersOfAnother(t *testing.T) {
	theirs := []string{"docusign-refused", "eve-online-errors", "github-graphql-secondary", "toggl"}
	for _, f := range readFixtures(t) {
		if !slices.Contains(theirs, f.file) {
			continue
		}
		for origin, refused := range map[string]bool{f.origin: true, "https://api.example.org": false} {
			if a := announcementOf(origin, f.status, f.header, f.body, f.at, nil); a.Refused != refused {
				t.Errorf("%s, status %d at %s: refused %v", f.file, f.status, origin, a.Refused)
			}
		}
	}
}

// dialectsOf reads the fields of a response received at 2026-06-02 10:00:00.
func dialectsOf(origin string, status int, body string, own []Dialect, fields ...string) Announcement {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return announcementOf(origin, status, h, []byte(body), time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC), own)
}

func TestDialects(t *testing.T) {
	const anyone = "https://api.example.org"
	for _, tt := range []struct {
		name   string
		origin string
		status int
		body   string
		fields []string
		means  []string
	}{
		{"delta in seconds elsewhere", anyone, 200, "",
			[]string{"X-Rate-Limit-Limit", "10000", "X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", "600000"},
			[]string{"dialect x-rate-limit", `policy "": 10000 requests`, `limit "": 0 left, reset in 166h40m0s to 1s`}},
		{"past reset is now", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1780394399"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left, reset in 0s to 1s by the clock`}},
		{"negative reset is not said", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "-1"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left`}},
		{"microseconds since 1970 are no reset", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1780394400000000"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left`}},
		{"instants go by the server's clock", anyone, 200, "",
			[]string{"Date", "Tue, 02 Jun 2026 09:00:00 GMT", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1780390810"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left, reset in 10s to 1s by the clock`}},
		{"unknown is not used up", anyone, 429, "",
			[]string{"X-RateLimit-Limit", "-1", "X-RateLimit-Remaining", "-1"}, []string{"refused"}},
		{"a word is no number", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "unlimited", "X-RateLimit-Remaining", "unlimited"}, nil},
		{"of several lines the least is left until the last reset", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "30", "X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "2", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", "10", "X-RateLimit-Reset", "100"},
			[]string{"dialect x-ratelimit", `policy "": 30 requests`, `limit "": 0 left, reset in 1m40s to 1s`}},
		{"two families state one quota", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-Rate-Limit-Limit", "10", "X-Rate-Limit-Remaining", "3", "X-Rate-Limit-Reset", "7"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left, reset in 7s to 1s`}},
		{"two families state two quotas", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-Rate-Limit-Limit", "500", "X-Rate-Limit-Remaining", "499"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `policy "x-rate-limit": 500 requests`, `limit "": 3 left`, `limit "x-rate-limit": 499 left`}},
		{"a gateway's quota and the application's", anyone, 200, "",
			[]string{"RateLimit-Policy", `"gateway";q=1000;w=60`, "RateLimit", `"gateway";r=990;t=9`, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3"},
			[]string{"dialect ietf-11", `policy "gateway": 1000 requests per 1m0s`, `policy "": 10 requests`, `limit "gateway": 990 left, reset in 9s to 1s`, `limit "": 3 left`}},
		{"a dialect adds the reset the draft's fields lack", anyone, 200, "",
			[]string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=3`, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "20"},
			[]string{"dialect ietf-11", `policy "p": 10 requests per 1m0s`, `limit "p": 3 left, reset in 20s to 1s`}},
		{"what the draft's fields say stays", anyone, 200, "",
			[]string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=3;t=5`, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "20"},
			[]string{"dialect ietf-11", `policy "p": 10 requests per 1m0s`, `limit "p": 3 left, reset in 5s to 1s`}},
		{"tokens are not requests", anyone, 200, "",
			[]string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=3;t=5`, "X-RateLimit-Limit-Tokens", "10", "X-RateLimit-Remaining-Tokens", "3"},
			[]string{"dialect ietf-11", `policy "p": 10 requests per 1m0s`, `policy "tokens": 10 tokens`, `limit "p": 3 left, reset in 5s to 1s`, `limit "tokens": 3 left`}},
		{"the tightest of several lines", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9, 2", "X-RateLimit-Remaining", "5"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 2 left`}},
		{"a reset in seconds has many names", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "29", "X-RateLimit-Reset-In", "10", "X-RateLimit-Window-Seconds", "60"},
			[]string{"dialect x-ratelimit", `policy "": 30 requests per 1m0s`, `limit "": 29 left, reset in 10s to 1s`}},
		{"a span to the reset may have a unit", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "29", "X-RateLimit-Reset", "1780398000", "X-RateLimit-Reset-In", "1m5s"},
			[]string{"dialect x-ratelimit", `policy "": 30 requests`, `limit "": 29 left, reset in 1m5s`}},
		{"a span to the reset is no instant", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "29", "X-RateLimit-Reset", "10", "X-RateLimit-Reset-In", "2026-06-02T10:00:40Z"},
			[]string{"dialect x-ratelimit", `policy "": 30 requests`, `limit "": 29 left, reset in 10s to 1s`}},
		{"a quota and its window in one", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "100/h", "X-RateLimit-Remaining", "99"},
			[]string{"dialect x-ratelimit", `policy "": 100 requests per 1h0m0s`, `limit "": 99 left`}},
		{"a ratio is no quota and its window", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "100/60", "X-RateLimit-Remaining", "99"},
			[]string{"dialect x-ratelimit", `limit "": 99 left`}},
		{"an instant has many names", anyone, 200, "",
			[]string{"X-Rate-Limit-Limit", "30", "X-Rate-Limit-Remaining", "29", "X-Rate-Limit-Reset-At", "2026-06-02T10:00:10Z"},
			[]string{"dialect x-rate-limit", `policy "": 30 requests`, `limit "": 29 left, reset in 10s to 1s by the clock`}},
		{"an instant has many names, without a prefix", anyone, 200, "",
			[]string{"RateLimit-Limit", "30", "RateLimit-Remaining", "29", "RateLimit-Reset-At", "2026-06-02T10:00:10Z"},
			[]string{"dialect ietf-06", `policy "": 30 requests`, `limit "": 29 left, reset in 10s to 1s by the clock`}},
		{"limiters behind one another whose lines a proxy has joined", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "30, 300", "X-RateLimit-Remaining", "2, 0", "X-RateLimit-Reset", "10, 100"},
			[]string{"dialect x-ratelimit", `policy "": 30 requests`, `policy "300": 300 requests`, `limit "": 2 left, reset in 10s to 1s`, `limit "300": 0 left, reset in 1m40s to 1s`}},
		{"limiters that add lines of an older draft", anyone, 200, "",
			[]string{
				"RateLimit-Limit", "30", "RateLimit-Remaining", "2", "RateLimit-Reset", "10", "RateLimit-Policy", "30;w=10",
				"RateLimit-Limit", "300", "RateLimit-Remaining", "0", "RateLimit-Reset", "100", "RateLimit-Policy", "300;w=100",
			},
			[]string{"dialect ietf-06", `policy "30;w=10": 30 requests per 10s`, `policy "300;w=100": 300 requests per 1m40s`, `limit "30;w=10": 2 left, reset in 10s to 1s`, `limit "300;w=100": 0 left, reset in 1m40s to 1s`}},
		{"limiters whose numbers are in quotation marks", anyone, 200, "",
			[]string{
				"RateLimit-Limit", `"30"`, "RateLimit-Remaining", `"2"`, "RateLimit-Reset", `"10"`,
				"RateLimit-Limit", `"300"`, "RateLimit-Remaining", `"0"`, "RateLimit-Reset", `"100"`,
			},
			[]string{"dialect ietf-06", `policy "": 30 requests`, `policy "300": 300 requests`, `limit "": 2 left, reset in 10s to 1s`, `limit "300": 0 left, reset in 1m40s to 1s`}},
		{"one limiter whose quota was sent once", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "2, 0", "X-RateLimit-Reset", "10, 100"},
			[]string{"dialect x-ratelimit", `policy "": 30 requests`, `limit "": 0 left, reset in 1m40s to 1s`}},
		{"an older draft's, joined by a proxy", anyone, 200, "",
			[]string{"RateLimit-Limit", "30", "RateLimit-Remaining", "2, 0", "RateLimit-Reset", "10, 100"},
			[]string{"dialect ietf-06", `policy "": 30 requests`, `limit "": 0 left, reset in 1m40s to 1s`}},
		{"limiters behind one another add lines of their own", anyone, 429, "",
			[]string{
				"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "1780394401",
				"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1780394448",
			},
			[]string{
				"dialect x-ratelimit", `policy "": 10 requests`, `policy "100": 100 requests`,
				`limit "": 9 left, reset in 1s to 1s by the clock`, `limit "100": 0 left, reset in 48s to 1s by the clock`, "refused",
			}},
		{"one limiter that is counted twice", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "8"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 8 left`}},
		{"less than one left is none", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0.5"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 0 left`}},
		{"forbidden, nothing left", anyone, 403, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "20"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 0 left, reset in 20s to 1s`, "refused"}},
		{"forbidden, plenty left", anyone, 403, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "7"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 7 left`}},
		{"forbidden until", anyone, 403, "", []string{"Retry-After-Short", "20"},
			[]string{"dialect x-ratelimit", "refused", "retry after 20s"}},
		{"418 elsewhere is a teapot", anyone, 418, "", []string{"Retry-After", "20"}, []string{"retry after 20s"}},
		{"529 where it means something", "https://api.anthropic.com", 529, "", nil, []string{"dialect anthropic", "refused"}},
		{"529 elsewhere", anyone, 529, "", nil, nil},
		{"Anthropic behind a gateway", anyone, 529, "", []string{"Anthropic-Ratelimit-Requests-Limit", "50"},
			[]string{"dialect anthropic", `policy "requests": 50 requests per 1m0s`, "refused"}},
		{"a 400 that is the caller's fault", "https://api.linear.app", 400, `{"errors":[{"extensions":{"code":"BAD_USER_INPUT"}}]}`,
			[]string{"X-RateLimit-Requests-Limit", "2500", "X-RateLimit-Requests-Remaining", "9"},
			[]string{"dialect linear", `policy "requests": 2500 requests`, `limit "requests": 9 left`}},
		{"money has run out, elsewhere", anyone, 429, `{"error":{"code":"insufficient_quota"}}`, nil, []string{"refused"}},
		{"zero, and when to come back", anyone, 429, "", []string{"X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "Retry-After", "5"},
			[]string{"dialect x-ratelimit", `policy "": 0 requests`, `limit "": 0 left`, "refused", "retry after 5s"}},
		{"Okta's zero is concurrency", "https://dev-1.okta.com", 429, "", []string{"X-Rate-Limit-Limit", "0", "X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", "1780394460"},
			[]string{"refused"}},
		{"GitHub's secondary limit as 429", "https://api.github.com", 429, "", []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "9"},
			[]string{"dialect github", `policy "": 60 requests`, `limit "": 9 left`, "refused", "for all", "retry after 1m0s"}},
		{"GitHub's primary limit as 429", "https://api.github.com", 429, "", []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"},
			[]string{"dialect github", `policy "": 60 requests`, `limit "": 0 left, reset in 1m0s to 1s`, "refused"}},
		{"a bucket is named on acceptance too, a scope is not", anyone, 200, "", []string{"X-RateLimit-Bucket", "b", "X-RateLimit-Scope", "global"},
			[]string{"bucket b"}},
		{"fractions of a second that milliseconds state", anyone, 429, "", []string{"X-RateLimit-Retry-After-Ms", "2.5", "Retry-After-Ms", "1.5"},
			[]string{"refused", "retry after 1.5ms"}},
		{"a reset in milliseconds", anyone, 200, "", []string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset-Ms", "1500"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left, reset in 1.5s to 1ms`}},
		{"a reset that is milliseconds since 1970", anyone, 200, "", []string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset-Ms", "1780394410250"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left, reset in 10.25s to 1ms by the clock`}},
		{"a reset after milliseconds", anyone, 200, "", []string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset-After-Ms", "2500"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left, reset in 2.5s to 1ms`}},
		{"less than one is no quota", anyone, 200, "", []string{"X-RateLimit-Limit", "0.5", "X-RateLimit-Remaining", "3"},
			[]string{"dialect x-ratelimit", `limit "": 3 left`}},
		{"the first of alternatives counts", anyone, 200, "", []string{"X-RateLimit-Max", "20", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "3"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 3 left`}},
		{"Retry-After comes before its siblings", anyone, 429, "", []string{"Retry-After", "5", "X-RateLimit-Retry-After", "9"},
			[]string{"dialect x-ratelimit", "refused", "retry after 5s"}},
		{"accepted, and asked to wait for longer than the reset says", anyone, 200, "", []string{"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "5", "X-RateLimit-Retry-After", "60"},
			[]string{"dialect x-ratelimit", `policy "": 50 requests`, `limit "": 0 left, reset in 5s to 1s`, "retry after 1m0s"}},
		{"accepted, and told when to come back for another quota", anyone, 200, "", []string{"X-Contentful-RateLimit-Second-Limit", "7", "X-Contentful-RateLimit-Second-Remaining", "5", "X-Contentful-RateLimit-Reset", "1200"},
			[]string{"dialect contentful", `policy "second": 7 requests per 1s`, `limit "second": 5 left`, "retry after 20m0s"}},
		{"accepted, and told when to come back", anyone, 200, "", []string{"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "3", "X-RateLimit-Retry-After", "60"},
			[]string{"dialect x-ratelimit", `policy "": 50 requests`, `limit "": 3 left, reset in 1m0s to 1s`}},
		{"Envoy, the tightest listed last", anyone, 200, "", []string{"X-RateLimit-Limit", "10, 1000;w=3600, 10;w=1", "X-RateLimit-Remaining", "9"},
			[]string{"dialect x-ratelimit", `policy "1000;w=3600": 1000 requests per 1h0m0s`, `policy "10;w=1": 10 requests per 1s`, `limit "10;w=1": 9 left`}},
		{"an older draft beside a newer one", anyone, 200, "",
			[]string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=3;t=5`, "RateLimit-Limit", "500", "RateLimit-Remaining", "499"},
			[]string{"dialect ietf-11", `policy "p": 10 requests per 1m0s`, `limit "p": 3 left, reset in 5s to 1s`}},
		{"one policy is one quota only", anyone, 200, "",
			[]string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=3;t=5`, "X-RateLimit-Limit-A", "10", "X-RateLimit-Remaining-A", "3", "X-RateLimit-Limit-B", "10", "X-RateLimit-Remaining-B", "3"},
			[]string{"dialect ietf-11", `policy "p": 10 requests per 1m0s`, `policy "b": 10 requests`, `limit "p": 3 left, reset in 5s to 1s`, `limit "b": 3 left`}},
		{"as many in another window", anyone, 200, "",
			[]string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=3;t=5`, "X-RateLimit-Limit-Hour", "10", "X-RateLimit-Remaining-Hour", "3"},
			[]string{"dialect ietf-11", `policy "p": 10 requests per 1m0s`, `policy "hour": 10 requests per 1h0m0s`, `limit "p": 3 left, reset in 5s to 1s`, `limit "hour": 3 left`}},
		{"GitHub refuses without a reason", "https://api.github.com", 403, "", []string{"Retry-After", "7", "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "9"},
			[]string{"dialect github", `policy "": 60 requests`, `limit "": 9 left`, "refused", "for all", "retry after 7s"}},
		{"Salesforce's applications", anyone, 200, "", []string{"Sforce-Limit-Info", "per-app-api-usage=17/250(appName=a/b=c), api-usage=18/5000"},
			[]string{"dialect salesforce", `policy "per-app-api-usage": 250 requests`, `policy "api-usage": 5000 requests per 24h0m0s`, `limit "per-app-api-usage": 233 left, 17 used`, `limit "api-usage": 4982 left, 18 used`}},
		{"Sentry takes nothing at all", anyone, 200, "", []string{"X-Sentry-Rate-Limits", "60::organization, 2700:security:project"},
			[]string{"dialect sentry", `limit "all": 0 left, reset in 1m0s to 1s`, `limit "security": 0 left, reset in 45m0s to 1s (security)`}},
		{"Meta's fractions and seconds", anyone, 200, "", []string{"X-Ad-Account-Usage", `{"acc_id_util_pct":9.67,"reset_time_duration":100,"ads_api_access_tier":"standard_access"}`},
			[]string{"dialect meta", `policy "ad-account-acc-id-util-pct": 100 percent`, `limit "ad-account-acc-id-util-pct": 90 left, 9 used, reset in 1m40s to 1s`}},
		{"Zendesk, used for remaining", anyone, 200, "", []string{"Zendesk-RateLimit-Search", "limit=100; used=7"},
			[]string{"dialect zendesk", `policy "search": 100 requests`, `limit "search": 93 left, 7 used`}},
		{"a rate above one", anyone, 200, "", []string{"X-Amzn-RateLimit-Limit", "2.5"},
			[]string{"dialect amazon-sp-api", `policy "": 2 requests per 800ms for each route`}},
		{"a whole rate", anyone, 200, "", []string{"X-Amzn-RateLimit-Limit", "20.0"},
			[]string{"dialect amazon-sp-api", `policy "": 20 requests per 1s for each route`}},
		{"rates that are none", anyone, 200, "", []string{"X-Amzn-RateLimit-Limit", "0"}, nil},
		{"Discord's global limit, behind a proxy", anyone, 429, "", []string{"Retry-After", "5", "X-RateLimit-Global", "true"},
			[]string{"dialect x-ratelimit", "refused", "for all", "retry after 5s"}},
		{"a number before a window in words", anyone, 200, "",
			[]string{"X-RateLimit-Limit-24-Hour", "600", "X-RateLimit-Limit-Search-15min", "50", "X-RateLimit-Limit-PerDay", "700"},
			[]string{"dialect x-ratelimit", `policy "24-hour": 600 requests per 24h0m0s`, `policy "perday": 700 requests per 24h0m0s`, `policy "search-15min": 50 requests per 15m0s`}},
		{"a number that does not belong to the window", anyone, 200, "",
			[]string{"X-RateLimit-Limit-Items_203.0.113.7-Minute", "50", "X-RateLimit-Limit-Gpt-4-Day", "600"},
			[]string{"dialect x-ratelimit", `policy "gpt-4-day": 600 requests per 24h0m0s`, `policy "items_203.0.113.7-minute": 50 requests per 1m0s`}},
		{"as many at once as are allowed, and no permission", anyone, 403, "",
			[]string{"Maximum-Concurrent-Requests", "5", "Current-Concurrent-Requests", "5"},
			[]string{"dialect elevenlabs", `policy "concurrent": 5 concurrent-requests`, `limit "concurrent": 0 left, 5 used`}},
		{"thousands beside a reset", anyone, 200, "", []string{"X-RateLimit-Limit", "1,250", "X-RateLimit-Remaining", "1,249", "X-RateLimit-Reset", "60"},
			[]string{"dialect x-ratelimit", `policy "": 1250 requests`, `limit "": 1249 left, reset in 1m0s to 1s`}},
		{"limits of three digits, joined", anyone, 200, "", []string{"X-RateLimit-Limit", "100,250", "X-RateLimit-Remaining", "99,249", "X-RateLimit-Reset", "1,60"},
			[]string{"dialect x-ratelimit", `policy "": 100 requests`, `policy "250": 250 requests`, `limit "": 99 left, reset in 1s to 1s`, `limit "250": 249 left, reset in 1m0s to 1s`}},
		{"numbers that are no thousands, joined beside a reset", anyone, 200, "", []string{"X-RateLimit-Limit", "100,250", "X-RateLimit-Remaining", "9,24", "X-RateLimit-Reset", "60"},
			[]string{"dialect x-ratelimit", `policy "": 100 requests`, `limit "": 9 left, reset in 1m0s to 1s`}},
		{"thousands, and no reset", anyone, 200, "", []string{"X-RateLimit-Limit", "10,100", "X-RateLimit-Remaining", "9,999"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests`, `limit "": 9 left`}},
		{"thousands", anyone, 200, "", []string{"X-RateLimit-Limit", "10,000", "X-RateLimit-Remaining", "9,999", "X-RateLimit-Used", "1"},
			[]string{"dialect x-ratelimit", `policy "": 10000 requests`, `limit "": 9999 left, 1 used`}},
		{"millions", anyone, 200, "", []string{"X-RateLimit-Limit", "1,000,500", "X-RateLimit-Remaining", "1,000,000"},
			[]string{"dialect x-ratelimit", `policy "": 1000500 requests`, `limit "": 1000000 left`}},
		{"two limits, joined", anyone, 200, "", []string{"X-RateLimit-Limit", "600,300", "X-RateLimit-Remaining", "599,299"},
			[]string{"dialect x-ratelimit", `policy "": 600 requests`, `limit "": 299 left`}},
		{"numbers in quotation marks", anyone, 200, "", []string{"X-RateLimit-Limit", `"100"`, "X-RateLimit-Remaining", `"99"`, "X-RateLimit-Reset", `"60"`},
			[]string{"dialect x-ratelimit", `policy "": 100 requests`, `limit "": 99 left, reset in 1m0s to 1s`}},
		{"without an X", anyone, 200, "", []string{"Rate-Limit", "100", "Rate-Limit-Remaining", "99", "Rate-Limit-Reset", "1780394460"},
			[]string{"dialect rate-limit", `policy "": 100 requests`, `limit "": 99 left, reset in 1m0s to 1s by the clock`}},
		{"milliseconds in the name", anyone, 429, "", []string{"X-Rate-Limit-Retry-After-Milliseconds", "1500"},
			[]string{"dialect x-rate-limit", "refused", "retry after 1.5s"}},
		{"a sibling of Retry-After", anyone, 429, "", []string{"X-Retry-After", "15"},
			[]string{"dialect x-ratelimit", "refused", "retry after 15s"}},
		{"tokens that come back by the interval", anyone, 200, "",
			[]string{"X-RateLimit-Limit", "10", "X-RateLimit-FillRate", "2", "X-RateLimit-Interval-Seconds", "60", "X-RateLimit-Remaining", "3"},
			[]string{"dialect x-ratelimit", `policy "": 10 requests per 5m0s`, `limit "": 3 left`}},
		{"Shopify's bucket leaks faster where it is larger", anyone, 200, "", []string{"X-Shopify-Shop-Api-Call-Limit", "1/400"},
			[]string{"dialect shopify", `policy "": 400 requests per 20s`, `limit "": 399 left, 1 used`}},
		{"GitHub's secondary limit as 429, nothing left", "https://api.github.com", 429, `{"message":"You have exceeded a secondary rate limit"}`,
			[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0"},
			[]string{"dialect github", `policy "": 60 requests`, `limit "": 0 left`, "refused", "for all", "retry after 1m0s"}},
		{"Gemini's span in another form", "https://generativelanguage.googleapis.com", 429, `{"details":[{"retryDelay" : 2.5}]}`, nil,
			[]string{"dialect google", "refused", "retry after 2.5s"}},
		{"Retry-After comes before the body", "https://generativelanguage.googleapis.com", 429, `{"retryDelay":"34s"}`, []string{"Retry-After", "7"},
			[]string{"dialect google", "refused", "retry after 7s"}},
		{"no span in the body", "https://generativelanguage.googleapis.com", 429, `{"retryDelay":{}}`, nil, []string{"dialect google", "refused"}},
		{"a body cut off", "https://generativelanguage.googleapis.com", 429, `{"retryDelay":"3`, nil, []string{"dialect google", "refused"}},
		{"Google forbids for another reason", "https://www.googleapis.com", 403, `{"reason":"insufficientPermissions"}`, nil, nil},
		{"a validation error of AWS", "https://dynamodb.us-east-1.amazonaws.com", 400, `{"__type":"ValidationException"}`, nil, nil},
		{"from a cache", anyone, 200, "", []string{"Age", "5", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0"}, []string{"cached"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := statements(dialectsOf(tt.origin, tt.status, tt.body, nil, tt.fields...)); !reflect.DeepEqual(got, tt.means) {
				t.Errorf("means\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tt.means, "\n\t"))
			}
		})
	}
}

func TestDialectOfAUser(t *testing.T) {
	own := []Dialect{
		{
			Name:    "acme",
			Origins: []string{"https://*.acme.example"},
			Quotas: []QuotaFields{
				{Policy: "calls", Limit: "acme-calls", Remaining: "acme-calls-left", Reset: "X-RateLimit-Reset", ResetForm: TimeMilliseconds},
				{Unit: "credits", Limit: "acme-*-max", Remaining: "acme-*-left", Window: time.Hour},
			},
			Bucket:   "acme-pool",
			Global:   []string{"acme-scope: tenant"},
			Route:    []string{"acme-scope: method"},
			NoRetry:  []string{"acme-again: never"},
			Refusals: []Refusal{{Status: 422, Body: "slow down", Member: "wait"}, {Status: 509, NoRetry: true}, {Status: 420, Exhausted: true, Wait: 3 * time.Second}},
		},
		{Name: "signed", Sign: "x-signed", Quotas: []QuotaFields{{Limit: "n"}}},
		{Name: "mine", Origins: []string{"api.github.com"}, Quotas: []QuotaFields{{Policy: "mine", Limit: "x-ratelimit-limit", Remaining: "x-ratelimit-left"}}},
		{Name: "for-all", Quotas: []QuotaFields{{Policy: "all", Limit: "all-limit", PerRoute: true}}},
	}
	for _, tt := range []struct {
		name   string
		origin string
		status int
		fields []string
		means  []string
	}{
		{"its own fields", "https://eu.acme.example", 200,
			[]string{"Acme-Calls", "50", "Acme-Calls-Left", "20", "X-RateLimit-Reset", "1500", "X-RateLimit-Limit", "7", "Acme-Pool", "blue"},
			[]string{"dialect acme", `policy "calls": 50 requests`, `policy "": 7 requests`, `limit "calls": 20 left, reset in 1.5s to 1ms`, "bucket blue"}},
		{"a quota for each name", "https://eu.acme.example", 200,
			[]string{"Acme-Red-Max", "50", "Acme-Red-Left", "20", "Acme-Blue-Max", "10"},
			[]string{"dialect acme", `policy "blue": 10 credits per 1h0m0s`, `policy "red": 50 credits per 1h0m0s`, `limit "red": 20 left`}},
		{"before the one known at the origin", "https://api.github.com", 200, []string{"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "20"},
			[]string{"dialect mine", `policy "mine": 50 requests`, `limit "": 20 left`}},
		{"elsewhere", "https://acme.example", 200, []string{"Acme-Calls", "50", "Acme-Scope", "tenant"}, nil},
		{"another scheme", "http://eu.acme.example", 200, []string{"Acme-Calls", "50"}, nil},
		{"refusals", "https://eu.acme.example", 509, []string{"acme-scope", "Tenant"}, []string{"dialect acme", "refused", "not to be retried", "for all"}},
		{"refusals on a condition", "https://eu.acme.example", 420, []string{"acme-calls-left", "0"},
			[]string{"dialect acme", `limit "calls": 0 left`, "refused", "retry after 3s"}},
		{"the condition unmet", "https://eu.acme.example", 420, []string{"acme-calls-left", "1"}, []string{"dialect acme", `limit "calls": 1 left`}},
		{"a sign", "https://api.example.org", 200, []string{"X-Signed", "", "N", "5"}, []string{"dialect signed", `policy "": 5 requests`}},
		{"no sign", "https://api.example.org", 200, []string{"N", "5"}, nil},
		{"for all", "https://api.example.org", 200, []string{"All-Limit", "5"}, []string{"dialect for-all", `policy "all": 5 requests for each route`}},
		{"of one route", "https://eu.acme.example", 429, []string{"Acme-Scope", "method"}, []string{"refused", "for its route"}},
		{"not again", "https://eu.acme.example", 429, []string{"Acme-Again", "Never"}, []string{"refused", "not to be retried"}},
		{"told by the body", "https://eu.acme.example", 422, nil, []string{"dialect acme", "refused", "retry after 1m30s"}},
		{"before those heed knows", "https://eu.acme.example", 200, []string{"X-RateLimit-Remaining", "2", "X-RateLimit-Reset", "1500"},
			[]string{"dialect acme", `limit "calls": reset in 1.5s to 1ms`, `limit "": 2 left`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := statements(dialectsOf(tt.origin, tt.status, `{"error":"slow down","wait":"1m30s"}`, own, tt.fields...)); !reflect.DeepEqual(got, tt.means) {
				t.Errorf("means\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tt.means, "\n\t"))
			}
		})
	}
}

func TestOriginMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, origin string
		want            bool
	}{
		{"*", "https://api.example.org", true},
		{"https://api.example.org", "https://api.example.org", true},
		{"https://API.example.org", "https://api.example.org", true},
		{"https://api.example.org", "http://api.example.org", false},
		{"https://api.example.org", "https://api.example.org:8443", false},
		{"https://api.example.org:8443", "https://api.example.org:8443", true},
		{"https://*.example.org", "https://api.example.org", true},
		{"https://*.example.org", "https://a.b.example.org", true},
		{"https://*.example.org", "https://example.org", false},
		{"https://*.example.org", "https://badexample.org", false},
		{"https://*.example.org", "http://api.example.org", false},
		{"https://*.example.org:8443", "https://api.example.org:8443", true},
		{"api.example.org", "http://api.example.org", true},
		{"api.example.org", "https://api.example.org:8443", true},
		{"api.example.org:8443", "https://api.example.org:8443", true},
		{"api.example.org:8443", "https://api.example.org", false},
		{"*.example.org", "https://api.example.org:8443", true},
		{"*.example.org", "https://example.org", false},
		{"[::1]", "http://[::1]:8080", true},
		{"[::1]", "http://[::1]", true},
		{"api.example.org", "", false},
	} {
		if got := originMatches(tt.pattern, tt.origin); got != tt.want {
			t.Errorf("originMatches(%q, %q) = %v", tt.pattern, tt.origin, got)
		}
	}
}

func TestParseSpan(t *testing.T) {
	ref := time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC) // 1780394400
	for _, tt := range []struct {
		s    string
		form TimeForm
		want span
		ok   bool
	}{
		{"30", TimeAuto, span{30 * time.Second, time.Second, false}, true},
		{" 30 ", TimeAuto, span{30 * time.Second, time.Second, false}, true},
		{"0", TimeAuto, span{0, time.Second, false}, true},
		{"64.57", TimeAuto, span{64570 * time.Millisecond, time.Millisecond, false}, true},
		{"1.0000000001", TimeAuto, span{time.Second + 1, time.Millisecond, false}, true},
		{"30, 40", TimeAuto, span{40 * time.Second, time.Second, false}, true}, // as of two lines, which a proxy may join
		{"50,40, x, 60", TimeAuto, span{50 * time.Second, time.Second, false}, true},
		{"600000", TimeMilliseconds, span{10 * time.Minute, time.Millisecond, false}, true},
		{"499999999", TimeAuto, span{499999999 * time.Second, time.Second, false}, true},
		{"500000000", TimeAuto, span{0, time.Second, true}, true},
		{"1000000000", TimeAuto, span{0, time.Second, true}, true},
		{"1780394430", TimeAuto, span{30 * time.Second, time.Second, true}, true},
		{"1780394430.5", TimeAuto, span{30500 * time.Millisecond, time.Millisecond, true}, true},
		{"1780394430250", TimeAuto, span{30250 * time.Millisecond, time.Millisecond, true}, true},
		{"1780394430250", TimeMilliseconds, span{30250 * time.Millisecond, time.Millisecond, true}, true},
		{"99999999999", TimeAuto, span{maxSpan / 100 * 100, time.Second, true}, true},
		{"100000000000000", TimeAuto, span{}, false},
		{"99999999999999999999", TimeAuto, span{}, false},
		{"-5", TimeAuto, span{}, false},
		{"", TimeAuto, span{}, false},
		{"soon", TimeAuto, span{}, false},
		{"1m30s", TimeAuto, span{d: 90 * time.Second}, true},
		{"2m59.56s", TimeAuto, span{d: 179560 * time.Millisecond}, true},
		{"139.829206ms", TimeAuto, span{d: 139829206}, true},
		{"1d2h", TimeAuto, span{d: 26 * time.Hour}, true},
		{"999999999999h", TimeAuto, span{d: maxSpan}, true},
		{"1m30", TimeAuto, span{}, false},
		{"1 minute", TimeAuto, span{}, false},
		{"Tue, 02 Jun 2026 10:00:30 UTC", TimeAuto, span{30 * time.Second, time.Second, true}, true},
		{"2026-06-02T12:00:30+02:00", TimeAuto, span{30 * time.Second, time.Second, true}, true},
		{"2026-06-02T10:00:30.5Z", TimeAuto, span{30500 * time.Millisecond, time.Millisecond, true}, true},
		{"2026-06-02T10:01Z", TimeAuto, span{time.Minute, time.Minute, true}, true},
		{"2020-06-02T10:01:00Z", TimeAuto, span{0, time.Second, true}, true},
	} {
		got, ok := parseSpan(tt.s, tt.form, ref)
		if got != tt.want || ok != tt.ok {
			t.Errorf("parseSpan(%q, %d) = %v, %v, want %v, %v", tt.s, tt.form, got, ok, tt.want, tt.ok)
		}
	}
}

// The interpreter compares names without making them canonical, and looks only
// at fields that speak of limits.
func TestDialectTableIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	check := func(d *Dialect, name string) {
		name = strings.Replace(name, "*", "X", 1)
		if http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s: %s is not canonical", d.Name, name)
		}
		if !speaksOfLimits(name) || ordinary(name) {
			t.Errorf("%s: %s is not looked at", d.Name, name)
		}
	}
	for i := range dialectTable {
		d := &dialectTable[i]
		if d.Name == "" || seen[d.Name] {
			t.Errorf("no name of its own: %q", d.Name)
		}
		seen[d.Name] = true
		for _, o := range d.Origins {
			if o != strings.ToLower(o) || strings.Contains(o, "://") || strings.LastIndex(o, "*") > 0 {
				t.Errorf("%s: the index does not know origins like %q", d.Name, o)
			}
		}
		if d.Sign != "" {
			check(d, d.Sign)
		}
		for name := range strings.FieldsSeq(d.Bucket) {
			check(d, name)
		}
		for _, g := range d.Global {
			name, _, _ := strings.Cut(g, ":")
			check(d, name)
		}
		for j := range d.Quotas {
			q := &d.Quotas[j]
			stars, names := 0, 0
			for r := range numRoles {
				for name := range strings.FieldsSeq(q.names(r)) {
					check(d, name)
					names++
					stars += strings.Count(name, "*")
				}
			}
			if names == 0 || stars != 0 && stars != names {
				t.Errorf("%s: %d names, %d of them patterns", d.Name, names, stars)
			}
		}
	}
}

func TestHostileFieldsAreBounded(t *testing.T) {
	h := http.Header{}
	for i := range 500 {
		h.Set(fmt.Sprintf("X-RateLimit-Limit-D%d", i), "10")
		h.Set(fmt.Sprintf("X-RateLimit-Remaining-D%d", i), "5")
	}
	h.Set("X-App-Rate-Limit", strings.Repeat("10:1,", 100_000))
	h.Set("X-App-Usage", strings.Repeat(`[`, 100_000))
	own := []Dialect{{Name: "own", Quotas: []QuotaFields{{Limit: "x-*"}}}}
	for _, own := range [][]Dialect{nil, own} {
		a := announcementOf("https://api.example.org", 200, h, nil, time.Unix(0, 0), own)
		if len(a.Policies) == 0 || len(a.Policies) > 64 || len(a.Limits) > 64 {
			t.Errorf("%d policies, %d limits", len(a.Policies), len(a.Limits))
		}
	}
	list := make([]string, 500)
	for i := range list {
		list[i] = fmt.Sprintf("%d:%d", i+1, i+1)
	}
	a := dialectsOf("https://api.example.org", 200, "", nil, "X-App-Rate-Limit", strings.Join(list, ","), "X-Sentry-Rate-Limits", strings.Join(list, ","))
	if len(a.Policies) > 64 || len(a.Limits) > 64 {
		t.Errorf("%d policies, %d limits", len(a.Policies), len(a.Limits))
	}
}

func TestBodyDialects(t *testing.T) {
	own := []Dialect{
		{Name: "here", Origins: []string{"*.example.org"}, Body: func(int, http.Header, []byte) (Announcement, bool) { return Announcement{}, false }},
		{Name: "elsewhere", Origins: []string{"*.example.com"}, Body: func(int, http.Header, []byte) (Announcement, bool) { return Announcement{}, false }},
	}
	for origin, want := range map[string]string{
		"https://api.stackexchange.com": "stackexchange",
		"https://shop.myshopify.com":    "shopify-graphql",
		"https://api.example.org":       "here",
		"https://api.example.net":       "",
	} {
		var names []string
		for _, d := range bodyDialects(origin, own) {
			names = append(names, d.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", origin, got, want)
		}
	}
}

func TestBodiesThatSayNothing(t *testing.T) {
	for _, body := range []string{
		"", "{", "null", `"backoff"`, `{"backoff":-1}`, `{"backoff":"x"}`, `{"quota_remaining":-5}`, `{"items":[]}`,
		`{"backoff":99999999999}`,
	} {
		if a, ok := StackExchange.Body(200, nil, []byte(body)); ok {
			t.Errorf("%s: %v", body, a)
		}
	}
	for _, body := range []string{
		"", "{", `"extensions"`, `{"extensions":{}}`, `{"extensions":{"cost":{}}}`, `{"extensions":{"cost":{"throttleStatus":null}}}`,
		`{"extensions":{"cost":{"throttleStatus":{}}}}`,
		`{"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":10,"restoreRate":0}}}}`,
		`{"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":-1,"restoreRate":50}}}}`,
		`{"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":1001,"restoreRate":50}}}}`,
		`{"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1e300,"currentlyAvailable":1,"restoreRate":50}}}}`,
		`{"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1000,"currentlyAvail`,
	} {
		if a, ok := ShopifyGraphQL.Body(200, nil, []byte(body)); ok {
			t.Errorf("%s: %v", body, a)
		}
	}
}

func TestWantsBody(t *testing.T) {
	own := []Dialect{{Name: "own", Origins: []string{"*.example.org"}, Refusals: []Refusal{{Status: 409, Body: "busy"}}}}
	for _, tt := range []struct {
		origin string
		status int
		field  string
		want   bool
	}{
		{"https://api.linear.app", 400, "", true},
		{"https://api.linear.app", 200, "", false},
		{"https://api.linear.app", 404, "", false},
		{"https://api.example.com", 400, "", false},
		{"https://git.example.com", 403, "X-Github-Media-Type", true},
		{"https://proxy.example.com", 403, "Sforce-Limit-Info", true},
		{"https://api.example.org", 409, "", true},
		{"https://generativelanguage.googleapis.com", 429, "", true},
		{"https://generativelanguage.googleapis.com", 500, "", false},
	} {
		h := http.Header{}
		if tt.field != "" {
			h.Set(tt.field, "x")
		}
		if got := wantsBody(tt.origin, tt.status, h, own); got != tt.want {
			t.Errorf("wantsBody(%s, %d, %s) = %v", tt.origin, tt.status, tt.field, got)
		}
	}
}

// Where only a service's documentation says how large a quota is, answers still say what is
// left of it.
func TestDocumentedQuotaIsThatOfWhatIsLeft(t *testing.T) {
	own := []Dialect{{Name: "own", Quotas: []QuotaFields{{Policy: "day", Quota: 500, Window: 24 * time.Hour, Remaining: "X-Left"}}}}
	a := dialectsOf("https://api.example.org", 200, "", own, "X-Left", "499")
	if want := []Policy{{Name: "day", Quota: 500, Window: 24 * time.Hour}}; !slices.Equal(a.Policies, want) {
		t.Errorf("policies %+v, want %+v", a.Policies, want)
	}
	if len(a.Limits) != 1 || a.Limits[0].Policy != "day" || a.Limits[0].Remaining != 499 {
		t.Errorf("limits %+v", a.Limits)
	}
}
