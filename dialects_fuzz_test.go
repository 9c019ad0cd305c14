package heed

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// FuzzDialects reads responses as a hostile server might send them. Whatever
// they are, what comes out is bounded, is the same every time, and asks for no
// negative wait.
func FuzzDialects(f *testing.F) {
	for _, fx := range readFixtures(f) {
		text, err := os.ReadFile(filepath.Join("testdata", "dialects", fx.file+".http"))
		if err != nil {
			f.Fatal(err)
		}
		head := string(text)
		for strings.HasPrefix(head, "#") {
			_, head, _ = strings.Cut(head, "\n")
		}
		head, body, _ := strings.Cut(head, "\n\n")
		f.Add(fx.origin, head, body)
	}
	own := []Dialect{{
		Name: "own", Origins: []string{"*.example.org", "*"},
		Quotas: []QuotaFields{
			{Limit: "x-*-max", Remaining: "x-*-left", Reset: "x-*-again", ResetForm: TimeMilliseconds},
			{Form: FormKeys, Limit: "quota"},
			{Form: FormNamed, Remaining: "left"},
			{Form: FormPercent, Used: "used"},
			{Form: FormScopes, Limit: "scopes"},
			{Policy: "route", Limit: "route-max", Remaining: "route-left", Reset: "route-again", ResetIfExceeded: true, PerRoute: true},
			{Form: FormPositions, Limit: "limit", Used: "usage", Windows: []time.Duration{time.Second, time.Minute}, Aligned: true},
		},
	}}
	now := time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, origin, head, body string) {
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head+"\n\n")), nil)
		if err != nil {
			return
		}
		for _, own := range [][]Dialect{nil, own} {
			a := announcementOf(origin, resp.StatusCode, resp.Header, []byte(body), now, own)
			checkBounds(t, a)
			if len(resp.Header) <= maxFields {
				if again := announcementOf(origin, resp.StatusCode, resp.Header, []byte(body), now, own); !reflect.DeepEqual(a, again) {
					t.Fatalf("%v, and then %v", a, again)
				}
			}
		}
		for _, d := range []Dialect{StackExchange, ShopifyGraphQL} {
			if a, ok := d.Body(resp.StatusCode, resp.Header, []byte(body)); ok {
				checkBounds(t, a)
			}
		}
	})
}

func checkBounds(t *testing.T, a Announcement) {
	t.Helper()
	if len(a.Policies) > 64 || len(a.Limits) > 64 {
		t.Fatalf("%d policies, %d limits", len(a.Policies), len(a.Limits))
	}
	for _, p := range a.Policies {
		if p.Quota < 0 || p.Window < 0 || len(p.Name) > 1024 {
			t.Fatalf("policy %+v", p)
		}
	}
	for _, l := range a.Limits {
		if l.Remaining < -1 || l.Reset < -1 || l.Used < 0 || l.Resolution < 0 || len(l.Policy) > 1024 {
			t.Fatalf("limit %+v", l)
		}
	}
	if a.RetryAfter < 0 {
		t.Fatalf("retry after %v", a.RetryAfter)
	}
}
