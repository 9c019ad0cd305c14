package heed_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A refusal's wait is kept to whatever the refused policy counts.
func TestRefusalHoldsWhateverThePolicyCounts(t *testing.T) {
	const (
		concurrent = `RateLimit-Policy: "c";q=5;qu="concurrent-requests"`
		bytes      = `RateLimit-Policy: "c";q=5000;w=60;qu="content-bytes"`
		points     = `RateLimit-Policy: "c";q=5;w=60;qu="points"`
		spent      = `RateLimit: "c";r=0;t=10`
		violated   = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["c"]}`
		problem    = "Content-Type: application/problem+json"
		after      = "Retry-After: 10"
	)
	for name, fields := range map[string][]string{
		"concurrency, nothing left": {concurrent, spent},
		"bytes, nothing left":       {bytes, spent},
		"unknown, nothing left":     {points, spent},
		"concurrency, violated":     {concurrent, problem, after},
		"bytes, violated":           {bytes, problem, after},
		"unknown, violated":         {points, problem, after},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, began := 0, time.Now()
				tr := &heed.Transport{Registry: newRegistry(t, heed.Config{}), Base: respond(func(*http.Request) *http.Response {
					if tries++; tries == 1 {
						return reply(429, violated, fields...)
					}
					return reply(200, "")
				})}
				resp, err := tr.RoundTrip(request(example))
				if err != nil || resp.StatusCode != 200 {
					t.Fatal(resp, err)
				}
				if d := time.Since(began); tries != 2 || d < 10*time.Second || d > 11*time.Second {
					t.Errorf("answered after %d tries and %v, want 2 and 10s to 11s", tries, d)
				}
			})
		})
	}
}
