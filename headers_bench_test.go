package heed

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

var benchNow = time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)

func benchmarkAnnouncement(b *testing.B, status int, fields ...string) {
	h := http.Header{
		"Content-Type":                {"application/json; charset=utf-8"},
		"Content-Length":              {"5120"},
		"Date":                        {"Tue, 02 Jun 2026 10:00:00 GMT"},
		"Server":                      {"nginx"},
		"Cache-Control":               {"no-cache, private"},
		"Etag":                        {`W/"d41d8cd98f00b204e9800998ecf8427e"`},
		"Vary":                        {"Accept-Encoding"},
		"Strict-Transport-Security":   {"max-age=31536000; includeSubDomains"},
		"X-Content-Type-Options":      {"nosniff"},
		"Access-Control-Allow-Origin": {"*"},
	}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	b.ReportAllocs()
	for b.Loop() {
		announcementOf("https://api.example.org", status, h, nil, benchNow, nil)
	}
}

// A response that says nothing about limits, as most do.
func BenchmarkAnnouncementNone(b *testing.B) { benchmarkAnnouncement(b, 200) }

func BenchmarkAnnouncementIETF11(b *testing.B) {
	benchmarkAnnouncement(b, 200,
		"RateLimit-Policy", `"burst";q=100;w=60, "daily";q=1000;w=86400`,
		"RateLimit", `"burst";r=50;t=30`)
}

func BenchmarkAnnouncementExpressDraft8(b *testing.B) {
	benchmarkAnnouncement(b, 200,
		"RateLimit-Policy", `"100-in-15min"; q=100; w=900; pk=:YTY2NWE0NTkyMDQy:`,
		"RateLimit", `"100-in-15min"; r=99; t=900`,
		"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "99", "X-RateLimit-Reset", "1780395300")
}

func BenchmarkAnnouncementIETF07(b *testing.B) {
	benchmarkAnnouncement(b, 200,
		"RateLimit-Policy", `100;w=60`,
		"RateLimit", `limit=100, remaining=50, reset=30`)
}

func BenchmarkAnnouncementIETF06(b *testing.B) {
	benchmarkAnnouncement(b, 200,
		"RateLimit-Policy", `100;w=60`,
		"RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "30")
}

func BenchmarkAnnouncementRetryAfter(b *testing.B) {
	benchmarkAnnouncement(b, 429, "Retry-After", "120")
}

func BenchmarkAnnouncementRetryAfterDate(b *testing.B) {
	benchmarkAnnouncement(b, 503, "Retry-After", "Tue, 02 Jun 2026 10:02:00 GMT")
}

// The longest field that is looked at, and a longer one.
func BenchmarkAnnouncementBomb(b *testing.B) {
	for _, n := range []int{1024, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var s strings.Builder
			for i := range n {
				s.WriteString(`"p` + strconv.Itoa(i) + `";q=100;w=60;pk=:YTY2NWE0NTkyMDQy:, `)
			}
			benchmarkAnnouncement(b, 200, "RateLimit-Policy", strings.TrimSuffix(s.String(), ", "))
		})
	}
}

func BenchmarkParseTime(b *testing.B) {
	for b.Loop() {
		if _, ok := parseTime("Tue, 02 Jun 2026 10:02:00 GMT"); !ok {
			b.Fatal("no instant")
		}
	}
}
