package heed_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/heedhttp/heed"
)

func TestOriginOf(t *testing.T) {
	long := strings.Repeat("a", 256) + ".example"
	for _, tc := range []struct{ url, want string }{
		{"https://api.example.org/v1?q=1#f", "https://api.example.org"},
		{"HTTPS://API.Example.ORG", "https://api.example.org"},
		{"https://api.example.org:443/", "https://api.example.org"},
		{"http://api.example.org:80/", "http://api.example.org"},
		{"http://api.example.org:0080/", "http://api.example.org"},
		{"http://api.example.org:443/", "http://api.example.org:443"},
		{"https://api.example.org:80/", "https://api.example.org:80"},
		{"https://api.example.org:8443/", "https://api.example.org:8443"},
		{"https://api.example.org:/", "https://api.example.org"},
		{"https://api.example.org:0/", "https://api.example.org:0"},
		{"https://api.example.org./", "https://api.example.org"},
		{"https://api.example.org.:8443/", "https://api.example.org:8443"},
		{"https://user:secret@api.example.org/", "https://api.example.org"},
		{"http://localhost:8080/", "http://localhost:8080"},
		{"http://LOCALHOST./", "http://localhost"},
		{"http://under_score.example/", "http://under_score.example"},

		{"http://127.0.0.1/", "http://127.0.0.1"},
		{"http://127.0.0.1.:8080/", "http://127.0.0.1:8080"},
		{"http://[::1]/", "http://[::1]"},
		{"http://[::1]:80/", "http://[::1]"},
		{"http://[::1]:8080/", "http://[::1]:8080"},
		{"http://[0:0:0:0:0:0:0:1]:8080/", "http://[::1]:8080"},
		{"http://[2001:DB8::A]/", "http://[2001:db8::a]"},
		{"http://[2001:db8:0:0:1:0:0:1]/", "http://[2001:db8::1:0:0:1]"},
		{"http://[fe80::1%25eth0]:8080/", "http://[fe80::1%25eth0]:8080"},
		{"http://[fe80::1%25En0]/", "http://[fe80::1%25En0]"}, // interfaces have case
		{"http://[::ffff:192.0.2.1]/", "http://[::ffff:192.0.2.1]"},

		// RFC 3492, section 7.1, and names that are in use.
		{"https://bücher.example/", "https://xn--bcher-kva.example"},
		{"https://BÜCHER.example/", "https://xn--bcher-kva.example"},
		{"https://xn--bcher-kva.example/", "https://xn--bcher-kva.example"},
		{"https://XN--BCHER-KVA.example/", "https://xn--bcher-kva.example"},
		{"https://例え.jp/", "https://xn--r8jz45g.jp"},
		{"https://例え。jp/", "https://xn--r8jz45g.jp"},
		{"https://münchen.de/", "https://xn--mnchen-3ya.de"},
		{"https://президент.рф/", "https://xn--d1abbgf6aiiy.xn--p1ai"},
		{"https://他们为什么不说中文/", "https://xn--ihqwcrb4cv8a8dqg056pqjye"},
		{"https://ليهمابتكلموشعربي؟/", "https://xn--egbpdaj6bu4bxfgehfvwxn"},
		{"https://なぜみんな日本語を話してくれないのか/", "https://xn--n8jok5ay5dzabd5bym9f0cm5685rrjetr6pdxa"},
		{"https://3年b組金八先生/", "https://xn--3b-ww4c5e180e575a65lsy2b"},
		{"https://i❤.ws/", "https://xn--i-7iq.ws"},
		{"https://faß.example/", "https://xn--fa-hia.example"},

		{"https://", "unknown"},
		{"https://:443/", "unknown"},
		{"https://./", "unknown"},
		{"/relative", "unknown"},
		{"mailto:someone@example.org", "unknown"},
		{"", "unknown"},
		{"https://*.example.org/", "unknown"}, // a pattern, no origin
		{"https://" + long + "/", "unknown"},
		{"https://" + strings.Repeat("ü", 64) + ".example/", "unknown"},
		{"//api.example.org/", "//api.example.org"},
		{"ftp://api.example.org:21/", "ftp://api.example.org:21"},
	} {
		u, err := url.Parse(tc.url)
		if err != nil {
			t.Errorf("%q: %v", tc.url, err)
			continue
		}
		if got := heed.OriginOf(u); got != tc.want {
			t.Errorf("OriginOf(%q) = %q, want %q", tc.url, got, tc.want)
		}
	}
	if got := heed.OriginOf(nil); got != "unknown" {
		t.Errorf("OriginOf(nil) = %q", got)
	}
	for _, host := range []string{"a b", "a/b", "a%zz", "a@b", "[", "]", "::1]", "a\x00b", "a\nb", "http://x"} {
		if got := heed.OriginOf(&url.URL{Scheme: "http", Host: host}); got != "unknown" {
			t.Errorf("OriginOf with host %q = %q", host, got)
		}
	}
	if got := heed.OriginOf(&url.URL{Scheme: "http", Host: "2001:db8::1"}); got != "http://[2001:db8::1]" {
		t.Errorf("OriginOf with an address without brackets = %q", got)
	}
}

// An origin is its own origin, however it came about.
func FuzzOriginOf(f *testing.F) {
	for _, s := range []string{
		"https://API.example.org.:443/x", "http://[fe80::1%25eth0]:080/", "https://bücher。example", "//host", "http://a..", "http://\u212a.example",
		"http://[::ffff:1.2.3.4]", "https://１２７.0.0.1", "http://xn--.example", "http://%C3%BC:1", "h+p://x", "http://[::1%25%41]", "http://1.2.3.4..:0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		once := heed.OriginOf(u)
		if once == "unknown" {
			return
		}
		again, err := url.Parse(once)
		if err != nil {
			t.Fatalf("OriginOf(%q) = %q, which does not parse: %v", s, once, err)
		}
		if twice := heed.OriginOf(again); twice != once {
			t.Errorf("OriginOf(%q) = %q, whose origin is %q", s, once, twice)
		}
		var r heed.Registry
		if err := r.SetLimits(once, heed.Limits{}); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestsWithoutAHostShareOneOrigin(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	for _, req := range []*http.Request{
		{},
		{URL: &url.URL{}},
		{URL: &url.URL{Path: "/x"}},
		{URL: &url.URL{Scheme: "https", Host: ":443"}},
	} {
		acquire(t, r, req).Release()
	}
	if got := r.Snapshot(); len(got) != 1 || got[0].Origin != "unknown" {
		t.Errorf("Snapshot() = %+v, want one origin, unknown", got)
	}
}

func TestOneOriginHoweverItIsSpelled(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	for _, s := range []string{"https://api.example.org/", "https://API.example.org:443/", "HTTPS://api.example.org./a"} {
		acquire(t, r, request(s)).Release()
		acquire(t, r, request(s)).Release()
	}
	if got := r.Snapshot(); len(got) != 1 {
		t.Errorf("Snapshot() = %+v, want one origin", got)
	}
}

func TestUserFunctionJoinsHosts(t *testing.T) {
	r := newRegistry(t, heed.Config{
		Origin: func(req *http.Request) string {
			if strings.HasSuffix(req.URL.Host, ".example.org") {
				return "example"
			}
			return ""
		},
		Origins: map[string]heed.Limits{"example": {Policies: []heed.Policy{{Name: "joint", Quota: 1, Window: 1e9}}}},
	})
	acquire(t, r, request("https://a.example.org/")).Release()
	if d := r.Check(request("http://b.example.org/")); d.Allowed || d.Policy != "joint" {
		t.Errorf("Check of another host of the origin = %+v", d)
	}
	acquire(t, r, request("https://elsewhere.example/")).Release()
	got := r.Snapshot()
	if len(got) != 2 || got[0].Origin != "example" || got[1].Origin != "unknown" {
		t.Errorf("Snapshot() = %+v", got)
	}
}
