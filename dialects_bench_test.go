package heed

import (
	"net/http"
	"testing"
	"time"
)

// ordinaryHeader is that of a response that says nothing about limits.
func ordinaryHeader() http.Header {
	return http.Header{
		"Content-Type":                {"application/json; charset=utf-8"},
		"Content-Length":              {"5120"},
		"Date":                        {"Tue, 02 Jun 2026 10:00:00 GMT"},
		"Server":                      {"nginx"},
		"Cache-Control":               {"no-cache, private"},
		"Etag":                        {`W/"d41d8cd98f00b204e9800998ecf8427e"`},
		"Last-Modified":               {"Mon, 01 Jun 2026 10:00:00 GMT"},
		"Vary":                        {"Accept-Encoding"},
		"Strict-Transport-Security":   {"max-age=31536000; includeSubDomains"},
		"X-Content-Type-Options":      {"nosniff"},
		"X-Request-Id":                {"3f1c7a52-8a52-4c5b-b0a5-90d7a2f8a4b1"},
		"Access-Control-Allow-Origin": {"*"},
	}
}

// unusualHeader is another one, with names that heed has never heard of.
func unusualHeader() http.Header {
	h := http.Header{}
	for _, name := range []string{
		"X-Backend-Node", "X-Correlation-Token", "X-Deployment-Slot", "X-Envoy-Upstream-Service-Time",
		"X-Cloud-Trace-Context", "X-Region", "X-Tenant-Name", "X-Schema-Version", "X-Edge-Location",
		"X-Middleware-Rewrite", "X-Robots-Tag", "X-Feature-Flags",
	} {
		h.Set(name, "1")
	}
	return h
}

func benchmarkFields(b *testing.B, h http.Header, origin string, status int, fields ...string) {
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	now := time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		announcementOf(origin, status, h, nil, now, nil)
	}
}

// What every response costs that says nothing about limits: 300 ns at most, and
// no allocation.
func BenchmarkDialectsNone(b *testing.B) {
	b.Run("ordinary", func(b *testing.B) { benchmarkFields(b, ordinaryHeader(), "https://api.example.org", 200) })
	b.Run("unusual", func(b *testing.B) { benchmarkFields(b, unusualHeader(), "https://api.example.org", 200) })
}

// A response of the plain family: 1 µs at most.
func BenchmarkDialectsPlain(b *testing.B) {
	benchmarkFields(b, ordinaryHeader(), "https://api.example.org", 200,
		"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4987", "X-RateLimit-Reset", "1780398000")
}

func BenchmarkDialectsGitHub(b *testing.B) {
	benchmarkFields(b, ordinaryHeader(), "https://api.github.com", 200,
		"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4987", "X-RateLimit-Reset", "1780398000",
		"X-RateLimit-Used", "13", "X-RateLimit-Resource", "core")
}

func BenchmarkDialectsOpenAI(b *testing.B) {
	benchmarkFields(b, ordinaryHeader(), "https://api.openai.com", 200,
		"x-ratelimit-limit-requests", "60", "x-ratelimit-limit-tokens", "150000", "x-ratelimit-remaining-requests", "59",
		"x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-requests", "1s", "x-ratelimit-reset-tokens", "6m0s")
}
