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

func BenchmarkLimitFieldsNone(b *testing.B) {
	h := ordinaryHeader()
	b.ReportAllocs()
	for b.Loop() {
		var buf [16]string
		if len(limitFields(h, buf[:0])) > 0 {
			b.Fatal("found some")
		}
	}
}

func BenchmarkReadDialectsPlain(b *testing.B) {
	h := ordinaryHeader()
	h.Set("X-RateLimit-Limit", "5000")
	h.Set("X-RateLimit-Remaining", "4987")
	h.Set("X-RateLimit-Reset", "1780398000")
	now := time.Unix(1780394400, 0)
	b.ReportAllocs()
	for b.Loop() {
		var buf [16]string
		var a Announcement
		readDialects("https://api.example.org", 200, h, limitFields(h, buf[:0]), nil, now, now, nil, &a)
		if len(a.Limits) != 1 {
			b.Fatal(a)
		}
	}
}
