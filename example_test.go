package heed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A stub takes the place of the network: it answers every request itself,
// with fields that announce limits.
type stub func(req *http.Request, fields http.Header) (status int)

func (s stub) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}
	resp.StatusCode = s(req, resp.Header)
	return resp, nil
}

// The zero value of Transport needs no configuration: it goes into the client
// a program has.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit-Policy", `"hourly";q=5000;w=3600`)
		w.Header().Set("RateLimit", `"hourly";r=4999;t=3600`)
		io.WriteString(w, "hello")
	}))
	defer server.Close()

	client := &http.Client{Transport: &heed.Transport{}}

	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.Status, string(body))
	// Output: 200 OK hello
}

// Limits can be set for one origin, for all hosts of a domain, and for the
// rest. They hold beside what the origins announce.
func ExampleConfig() {
	registry, err := heed.NewRegistry(heed.Config{
		Default: heed.Limits{MaxConcurrent: 8},
		Origins: map[string]heed.Limits{
			"https://api.example.com": {
				Policies: []heed.Policy{{Name: "contract", Quota: 100, Window: time.Minute}},
				MaxWait:  30 * time.Second,
			},
			"https://*.example.org": {MinInterval: time.Second},
		},
		Logger: discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()

	transport := &heed.Transport{
		Base:     stub(func(*http.Request, http.Header) int { return http.StatusOK }),
		Registry: registry,
	}
	client := transport.Client()
	for _, url := range []string{"https://api.example.com/orders", "https://www.example.org/page"} {
		resp, err := client.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		next := registry.Check(resp.Request)
		fmt.Println(url, "again now?", next.Allowed, next.Cause)
	}
	// Output:
	// https://api.example.com/orders again now? true none
	// https://www.example.org/page again now? false interval
}

// Limits can be changed while requests are running; those that wait are judged
// again at once. A mistake is an error, and changes nothing.
func ExampleRegistry_SetLimits() {
	registry, err := heed.NewRegistry(heed.Config{Logger: discard})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()

	err = registry.SetLimits("https://api.example.com", heed.Limits{MaxConcurrent: 2})
	fmt.Println(err)
	err = registry.SetLimits("https://api.example.com", heed.Limits{MaxConcurrent: -2})
	fmt.Println(err)
	// Output:
	// <nil>
	// heed: limits for "https://api.example.com": MaxConcurrent is negative: -2
}

// A request that must not wait is refused at once, with an error that says how
// long it would have taken.
func ExampleNoWait() {
	transport := &heed.Transport{Base: stub(func(_ *http.Request, fields http.Header) int {
		fields.Set("RateLimit-Policy", `"daily";q=1000;w=86400`)
		fields.Set("RateLimit", `"daily";r=0;t=3600`)
		return http.StatusOK
	})}
	client := transport.Client()

	ctx := heed.NoWait(context.Background())
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
		if err != nil {
			log.Fatal(err)
		}
		resp, err := client.Do(req)
		var limited *heed.LimitError
		switch {
		case errors.As(err, &limited):
			fmt.Printf("%s is spent: come back in %v (%v)\n", limited.Policy, limited.Wait.Round(time.Minute), limited.Reason)
		case err != nil:
			log.Fatal(err)
		default:
			resp.Body.Close()
			fmt.Println(resp.StatusCode)
		}
	}
	// Output:
	// 200
	// daily is spent: come back in 1h0m0s (no wait)
}

// A request that cannot start before its deadline is refused at once, and not
// when the deadline has come.
func ExampleLimitError() {
	transport := &heed.Transport{Base: stub(func(_ *http.Request, fields http.Header) int {
		fields.Set("RateLimit-Policy", `"daily";q=1000;w=86400`)
		fields.Set("RateLimit", `"daily";r=0;t=3600`)
		return http.StatusOK
	})}
	client := transport.Client()
	if _, err := client.Get("https://api.example.com/"); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Do(req)
	fmt.Println(errors.Is(err, heed.ErrLimited), errors.Is(err, context.DeadlineExceeded), ctx.Err())
	// Output: true true <nil>
}

// Transports that share a registry share what it knows: here one learns that
// nothing is left, and the other is held.
func ExampleRegistry() {
	registry, err := heed.NewRegistry(heed.Config{Logger: discard})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	base := stub(func(_ *http.Request, fields http.Header) int {
		fields.Set("RateLimit-Policy", `"hourly";q=60;w=3600`)
		fields.Set("RateLimit", `"hourly";r=0;t=1800`)
		return http.StatusOK
	})
	readers := &http.Client{Transport: &heed.Transport{Base: base, Registry: registry}}
	writers := &http.Client{Transport: &heed.Transport{Base: base, Registry: registry, Retry: heed.Retry{Max: -1}}}

	if _, err := readers.Get("https://api.example.com/items"); err != nil {
		log.Fatal(err)
	}
	req, err := http.NewRequestWithContext(heed.NoWait(context.Background()), http.MethodDelete, "https://api.example.com/items/1", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = writers.Do(req)
	fmt.Println(errors.Is(err, heed.ErrLimited))

	for _, origin := range registry.Snapshot() {
		for _, policy := range origin.Partitions[0].Policies {
			fmt.Println(origin.Origin, policy.Name, policy.Source, policy.Remaining, "of", policy.Quota, "left")
		}
	}
	// Output:
	// true
	// https://api.example.com hourly announced 0 of 60 left
}

// A function can see everything that happens, for a metric or a dashboard.
func ExampleEvent() {
	var mu sync.Mutex // events come from many goroutines
	counts := map[heed.Kind]int{}
	registry, err := heed.NewRegistry(heed.Config{
		OnEvent: func(e heed.Event) {
			mu.Lock()
			defer mu.Unlock()
			counts[e.Kind]++
			if e.Kind == heed.EventLearned {
				fmt.Println(e.Origin, "allows", e.Quota, "per", e.Window)
			}
		},
		Logger: discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	base := stub(func(_ *http.Request, fields http.Header) int {
		fields.Set("RateLimit-Policy", `"minute";q=60;w=60`)
		return http.StatusOK
	})
	client := &http.Client{Transport: &heed.Transport{Base: base, Registry: registry}}
	for range 3 {
		resp, err := client.Get("https://api.example.com/")
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	fmt.Println(counts[heed.EventAdmitted], "admitted,", counts[heed.EventAnswered], "answered,", counts[heed.EventRefused], "refused")
	// Output:
	// https://api.example.com allows 60 per 1m0s
	// 3 admitted, 3 answered, 0 refused
}

// A trace says how one request fared.
func ExampleWithTrace() {
	refuse := true
	transport := &heed.Transport{Base: stub(func(_ *http.Request, fields http.Header) int {
		if refuse {
			refuse = false
			fields.Set("Retry-After-Ms", "500")
			return http.StatusTooManyRequests
		}
		return http.StatusOK
	})}

	var trace heed.Trace
	ctx := heed.WithTrace(context.Background(), &trace)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := transport.Client().Do(req)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", trace.Attempts, "attempts and a", trace.Cause)
	fmt.Println(trace.Waited > 0)
	// Output:
	// 200 after 2 attempts and a pause
	// true
}

// A crawler or a queue that does not use net/http asks the registry itself.
func ExampleRegistry_Acquire() {
	var registry heed.Registry
	defer registry.Close()

	ctx := context.Background()
	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/", nil) // of it the URL and the header count
	if err != nil {
		log.Fatal(err)
	}
	permit, err := registry.Acquire(ctx, req)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release() // once the answer has been read

	// … the request is sent by whatever sends requests here …

	said := permit.Observe(&http.Response{StatusCode: 200, Header: http.Header{
		"Ratelimit-Policy": {`"hourly";q=5000;w=3600`},
		"Ratelimit":        {`"hourly";r=4200;t=600`},
	}})
	fmt.Println(said.Dialect, said.Policies[0].Quota, said.Limits[0].Remaining)
	// Output: ietf-11 5000 4200
}

// Check takes nothing and waits for nobody.
func ExampleRegistry_Check() {
	registry, err := heed.NewRegistry(heed.Config{Logger: discard})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	if err := registry.Pause("https://api.example.com", time.Hour); err != nil {
		log.Fatal(err)
	}

	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		log.Fatal(err)
	}
	d := registry.Check(req)
	fmt.Println(d.Allowed, d.Cause, d.Wait.Round(time.Minute))
	// Output: false pause 1h0m0s
}

// A service that heed does not know states its limits in fields of its own. What
// heed makes of them is seen without the service, by an answer as it sends it.
func ExampleDialect() {
	registry, err := heed.NewRegistry(heed.Config{
		Dialects: []heed.Dialect{{
			Name:    "acme",
			Origins: []string{"api.acme.example"},
			Quotas: []heed.QuotaFields{{
				Policy:    "calls",
				Limit:     "X-Acme-Calls",
				Remaining: "X-Acme-Calls-Left",
				Reset:     "X-Acme-Seconds", // until the quota is restored
				Window:    time.Minute,      // as the documentation of the service says
			}},
			Refusals: []heed.Refusal{{Status: http.StatusForbidden, Exhausted: true}}, // beside 429 and 503
		}},
		Logger: discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()

	req, err := http.NewRequest(http.MethodGet, "https://api.acme.example/orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	permit, err := registry.Acquire(context.Background(), req)
	if err != nil {
		log.Fatal(err)
	}
	said := permit.Observe(&http.Response{StatusCode: http.StatusForbidden, Header: http.Header{
		"X-Acme-Calls":      {"100"},
		"X-Acme-Calls-Left": {"0"},
		"X-Acme-Seconds":    {"20"},
	}})
	permit.Release()
	fmt.Println(said.Dialect, said.Refused, said.Policies[0].Quota, said.Limits[0].Reset)
	next := registry.Check(req)
	fmt.Println(next.Allowed, next.Wait > 19*time.Second)
	// Output:
	// acme true 100 20s
	// false true
}

// Each request goes with the token that has most room. Where a token goes is for
// Apply to say; by default it is a Bearer token.
func ExamplePool() {
	origin := heedtest.NewOrigin(heedtest.Config{
		Policies: []heedtest.Policy{{Name: "hourly", Quota: 2, Window: time.Hour}},
		Key:      func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
	})
	pool := &heed.Pool{
		Transport: &heed.Transport{Base: origin},
		Tokens:    func(context.Context) ([]string, error) { return []string{"alpha", "beta"}, nil },
		Apply:     func(r *http.Request, token string) { r.Header.Set("X-Api-Key", token) },
	}
	client := pool.Client()

	for range 4 { // twice as many as either may send
		resp, err := client.Get("https://api.example.com/")
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	tally := origin.Tally()
	fmt.Println(tally.Accepted, "accepted,", tally.Refused, "refused,", tally.Keys, "tokens")
	// Output: 4 accepted, 0 refused, 2 tokens
}

// What is tried again can be more than refusals: here, also answers of a gateway
// that has lost its backend. Only requests that may be repeated get to Check.
func ExampleRetry() {
	statuses := []int{http.StatusBadGateway, http.StatusOK}
	registry, err := heed.NewRegistry(heed.Config{
		Default: heed.Limits{MinBackoff: 10 * time.Millisecond}, // 5 s by default
		Logger:  discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	transport := &heed.Transport{
		Registry: registry,
		Retry: heed.Retry{Max: 2, Check: func(_ *http.Request, resp *http.Response, err error) bool {
			if err != nil {
				return false
			}
			switch resp.StatusCode {
			case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
				return true
			}
			return false
		}},
		Base: stub(func(*http.Request, http.Header) int {
			status := statuses[0]
			statuses = statuses[1:]
			return status
		}),
	}
	resp, err := transport.Client().Get("https://api.example.com/")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

// What a response announces can be read without sending anything.
func ExampleParseAnnouncement() {
	resp := &http.Response{StatusCode: 200, Header: http.Header{
		"X-Ratelimit-Limit":     {"60"},
		"X-Ratelimit-Remaining": {"12"},
		"X-Ratelimit-Reset":     {"30"},
	}}
	a := heed.ParseAnnouncement(resp, time.Now())
	for _, l := range a.Limits {
		fmt.Println(l.Remaining, "left; reset in", l.Reset)
	}
	// Output: 12 left; reset in 30s
}

// Package heedtest tests clients: here, that heed sends no request that an
// origin which allows five per hour would have to refuse.
func Example_heedtest() {
	origin := heedtest.NewOrigin(heedtest.Config{
		Policies: []heedtest.Policy{{Name: "hourly", Quota: 5, Window: time.Hour}},
		Dialect:  heedtest.XRateLimit,
	})
	registry, err := heed.NewRegistry(heed.Config{
		Default: heed.Limits{Smoothing: heed.Smoothing{Off: true}}, // all at once, as long as there is any
	})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	client := &http.Client{Transport: &heed.Transport{Base: origin, Registry: registry}}

	limited := 0
	for range 8 {
		req, err := http.NewRequestWithContext(heed.NoWait(context.Background()), http.MethodGet, "https://api.example.com/", nil)
		if err != nil {
			log.Fatal(err)
		}
		resp, err := client.Do(req)
		switch {
		case errors.Is(err, heed.ErrLimited):
			limited++
		case err != nil:
			log.Fatal(err)
		default:
			resp.Body.Close()
		}
	}
	tally := origin.Tally()
	fmt.Println(tally.Accepted, "accepted,", tally.Refused, "refused,", limited, "not sent")
	// Output: 5 accepted, 0 refused, 3 not sent
}
