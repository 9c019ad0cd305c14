package heed_test

import (
	"cmp"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/jarcoal/httpmock"
)

// TestNextRequestStartsWhenTheServiceDocumentsThatItMay plays an answer as a service's
// documentation shows it, and looks at when the request after it starts: the same again
// where it was refused.
func TestNextRequestStartsWhenTheServiceDocumentsThatItMay(t *testing.T) {
	at := func(d time.Duration) string { // as a synctest bubble's clock has it
		return time.UnixMilli(946684800000).Add(d).UTC().Format(time.RFC3339)
	}
	for _, tt := range []struct {
		name   string
		host   string
		post   bool
		status int
		body   string
		fields []string
		then   string // the path of the next request, where it is another one
		after  time.Duration
	}{
		{
			name: "EVE Online, a request took two of many", host: "https://esi.evetech.net", status: 200,
			fields: []string{"X-Ratelimit-Group", "fleet", "X-Ratelimit-Limit", "150/15m", "X-Ratelimit-Remaining", "148", "X-Ratelimit-Used", "2"},
		},
		{
			name: "EVE Online, too many errors", host: "https://esi.evetech.net", status: 420,
			fields: []string{"X-Esi-Error-Limit-Remain", "0", "X-Esi-Error-Limit-Reset", "34"}, then: "/fleets/1",
			after: 34 * time.Second,
		},
		{
			name: "HubSpot no longer enforces what it says of each second", host: "https://api.hubapi.com", status: 200,
			fields: []string{
				"X-HubSpot-RateLimit-Max", "190", "X-HubSpot-RateLimit-Remaining", "180", "X-HubSpot-RateLimit-Interval-Milliseconds", "10000",
				"X-HubSpot-RateLimit-Secondly", "19", "X-HubSpot-RateLimit-Secondly-Remaining", "0",
			},
		},
		{
			name: "App Store Connect, the hour is used up", host: "https://api.appstoreconnect.apple.com", status: 200,
			fields: []string{"X-Rate-Limit", "user-hour-lim:3500;user-hour-rem:0;"}, after: time.Hour,
		},
		{
			name: "WHOOP, windows as the first drafts wrote them", host: "https://api.prod.whoop.com", status: 200,
			fields: []string{"X-RateLimit-Limit", "100, 100;window=60, 10000;window=86400", "X-RateLimit-Remaining", "0"}, after: time.Minute,
		},
		{
			name: "Ticketmaster, none available", host: "https://app.ticketmaster.com", status: 200,
			fields: []string{"Rate-Limit", "5000", "Rate-Limit-Available", "0", "Rate-Limit-Over", "0", "Rate-Limit-Reset", "946684840000"},
			after:  40 * time.Second,
		},
		{
			name: "Tradier, none available", host: "https://api.tradier.com", status: 200,
			fields: []string{"X-Ratelimit-Allowed", "120", "X-Ratelimit-Used", "120", "X-Ratelimit-Available", "0", "X-Ratelimit-Expiry", "946684825000"},
			after:  25 * time.Second,
		},
		{
			name: "Dropbox Sign, none left", host: "https://api.hellosign.com", status: 200,
			fields: []string{"X-RateLimit-Limit", "100", "X-RateLimit-Limit-Remaining", "0", "X-RateLimit-Reset", "946684850"},
			after:  50 * time.Second,
		},
		{
			name: "Genesys Cloud, as many as allowed", host: "https://api.mypurecloud.com", status: 200,
			fields: []string{"inin-ratelimit-count", "300", "inin-ratelimit-allowed", "300", "inin-ratelimit-reset", "19"},
			after:  19 * time.Second,
		},
		{
			name: "Discogs, the minute is used up", host: "https://api.discogs.com", status: 200,
			fields: []string{"X-Discogs-Ratelimit", "60", "X-Discogs-Ratelimit-Used", "60", "X-Discogs-Ratelimit-Remaining", "0"},
			after:  time.Minute,
		},
		{
			name: "Apollo, the minute is used up", host: "https://api.apollo.io", status: 200,
			fields: []string{"X-Rate-Limit-Minute", "50", "X-Minute-Usage", "50", "X-Rate-Limit-Hourly", "200", "X-Hourly-Usage", "50"},
			after:  time.Minute,
		},
		{
			name: "Airtable, for how long its documentation says", host: "https://api.airtable.com", status: 429,
			body:  `{"errors":[{"error":"RATE_LIMIT_REACHED"}]}`,
			after: 30 * time.Second,
		},
		{
			name: "Docusign, the hour is used up", host: "https://na1.docusign.net", status: 400,
			body: `{"errorCode":"HOURLY_APIINVOCATION_LIMIT_EXCEEDED","message":"The maximum number of hourly API invocations has been exceeded."}`,
			fields: []string{
				"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684980",
				"X-BurstLimit-Limit", "500", "X-BurstLimit-Remaining", "499",
			},
			after: 3 * time.Minute,
		},
		{
			name: "Toggl, the quota of the organization is used up", host: "https://api.track.toggl.com", status: 402,
			fields: []string{"X-Toggl-Quota-Remaining", "0", "X-Toggl-Quota-Resets-In", "1800"}, after: 30 * time.Minute,
		},
		{
			name: "RingCentral, another group's are not used up", host: "https://platform.ringcentral.com", status: 200,
			fields: []string{"X-Rate-Limit-Group", "heavy", "X-Rate-Limit-Limit", "10", "X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Window", "60"},
			then:   "/restapi/v1.0/b/c",
		},
		{
			name: "urlscan.io, a window in a word", host: "https://urlscan.io", status: 200,
			fields: []string{"X-Rate-Limit-Action", "search", "X-Rate-Limit-Window", "minute", "X-Rate-Limit-Limit", "120", "X-Rate-Limit-Remaining", "0"},
			after:  time.Minute,
		},
		{
			name: "Datadog, another limit is not used up", host: "https://api.datadoghq.com", status: 200,
			fields: []string{
				"X-RateLimit-Limit", "100", "X-RateLimit-Period", "3600", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "23", "X-RateLimit-Name", "query",
			},
			then: "/api/v2/logs",
		},
		{
			name: "GitHub's GraphQL, a secondary limit with status 200", host: "https://api.github.com", post: true, status: 200,
			body:   `{"errors":[{"message":"You have exceeded a secondary rate limit."}]}`,
			fields: []string{"Retry-After", "60", "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4000", "X-RateLimit-Resource", "graphql"},
			after:  time.Minute,
		},
		{
			name: "Retry-After with a status 200 elsewhere is when to ask again for the same", host: "https://api.example.org", status: 200,
			fields: []string{"Retry-After", "60"},
		},
		{
			name: "Close, a decimal", host: "https://api.close.com", status: 200,
			fields: []string{"RateLimit", "limit=100, remaining=0, reset=2.5"}, after: 2500 * time.Millisecond,
		},
		{
			name: "Close, semicolons", host: "https://api.close.com", status: 200,
			fields: []string{"RateLimit", "limit=100; remaining=0; reset=3"}, after: 3 * time.Second,
		},
		{
			name: "Bitvavo", host: "https://api.bitvavo.com", status: 200,
			fields: []string{"Bitvavo-Ratelimit-Limit", "1000", "Bitvavo-Ratelimit-Remaining", "0", "Bitvavo-Ratelimit-ResetAt", "946684845000"},
			after:  45 * time.Second,
		},
		{
			name: "Aircall", host: "https://api.aircall.io", status: 200,
			fields: []string{"X-AircallApi-Limit", "60", "X-AircallApi-Remaining", "0", "X-AircallApi-Reset", "946684815"},
			after:  15 * time.Second,
		},
		{
			name: "Mastodon", host: "https://mastodon.social", status: 200,
			fields: []string{"X-RateLimit-Limit", "300", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", at(17 * time.Second)},
			after:  17 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mock := httpmock.NewMockTransport()
				var starts []time.Time
				mock.RegisterNoResponder(func(req *http.Request) (*http.Response, error) {
					starts = append(starts, time.Now())
					if len(starts) > 1 {
						return httpmock.NewStringResponse(200, ""), nil
					}
					resp := httpmock.NewStringResponse(tt.status, tt.body)
					for i := 0; i+1 < len(tt.fields); i += 2 {
						resp.Header.Add(tt.fields[i], tt.fields[i+1])
					}
					return resp, nil
				})
				client := &http.Client{Transport: &heed.Transport{Base: mock, Registry: newRegistry(t, heed.Config{})}}
				get := func(path string) {
					req := request(tt.host + path)
					if tt.post {
						req, _ = http.NewRequest("POST", tt.host+path, strings.NewReader("{}"))
					}
					resp, err := client.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if resp.StatusCode != 200 {
						t.Errorf("status %d came back", resp.StatusCode)
					}
				}
				began := time.Now()
				go get("/one")
				synctest.Wait() // it is over, or waits to be sent again
				get(cmp.Or(tt.then, "/one"))
				synctest.Wait()
				if after := starts[1].Sub(began); after < tt.after || after > tt.after+min(tt.after/10, time.Second) {
					t.Errorf("the next request started after %v, want %v", after, tt.after)
				}
			})
		})
	}
}

// Bybit's reset is when its quota is restored only once that is exceeded. Otherwise it is the
// present, which is no reset: a window that turns with each answer would hold nothing back.
func TestPresentIsNoReset(t *testing.T) {
	sideBySide(t)
	for phase := range 10 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*100*time.Millisecond + 37*time.Millisecond)
			w := window{quota: 10, length: time.Second}
			l := limiter{way: 20 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				ok := w.take(now)
				if !ok {
					now = w.end
				}
				h.Set("X-Bapi-Limit", strconv.Itoa(w.quota))
				h.Set("X-Bapi-Limit-Status", strconv.Itoa(max(w.quota-w.used, 0)))
				h.Set("X-Bapi-Limit-Reset-Timestamp", strconv.FormatInt(now.UnixMilli(), 10))
				return ok
			}}
			l.ask(t, 30*time.Second, "https://api.bybit.com/v5/market/time")
			if l.refused > 5 || l.accepted < 240 {
				t.Errorf("phase %d: %d accepted of 300, %d refused", phase, l.accepted, l.refused)
			}
		})
	}
}
