package heed

import (
	"net/http"
	"reflect"
	"testing"
	"time"
)

// dialectsOf reads a response's dialects alone.
func dialectsOf(origin string, status int, body string, own []Dialect, fields ...string) Announcement {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	now := time.Unix(1780394400, 0)
	a := Announcement{}
	readDialects(origin, status, h, limitFields(h, nil), []byte(body), time.Time{}, now, own, &a)
	return a
}

func TestPlainTrio(t *testing.T) {
	for _, prefix := range []string{"X-RateLimit-", "X-Rate-Limit-"} {
		a := dialectsOf("https://api.example.org", 200, "", nil, prefix+"Limit", "100", prefix+"Remaining", "42", prefix+"Reset", "1780394460")
		if want := []Policy{{Quota: 100}}; !reflect.DeepEqual(a.Policies, want) {
			t.Errorf("%s: policies %v, want %v", prefix, a.Policies, want)
		}
		if want := []ServiceLimit{{Remaining: 42, Reset: time.Minute, Resolution: time.Second, Clock: true}}; !reflect.DeepEqual(a.Limits, want) {
			t.Errorf("%s: limits %v, want %v", prefix, a.Limits, want)
		}
	}
}
