package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// answering returns a handler that answers with a status and fields.
func answering(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
	}
}

func TestInspectSaysInWords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		origin http.Handler
		status int
		want   []string
	}{
		{"two policies", answering(200,
			"RateLimit-Policy", `"burst";q=20;w=1, "daily";q=1000;w=86400`,
			"RateLimit", `"burst";r=19;t=1, "daily";r=900;t=3600`,
		), exitOK, []string{
			"answered 200 OK", "ietf-11", `"burst": 20 requests per second; 19 left; reset in 1s.`,
			`"daily": 1,000 requests per day; 900 left; reset in 1h.`, "Another request could go now.",
		}},
		{"other units", answering(200,
			"RateLimit-Policy", `"b";q=5000000;w=10;qu="content-bytes", "c";q=4;qu="concurrent-requests", "d";q=9;w=60;qu="tokens"`,
		), exitOK, []string{
			"5,000,000 bytes of content per 10 seconds", "4 requests at once", "9 tokens per minute", "heed does not know this unit",
		}},
		{"nothing left", answering(200,
			"RateLimit-Policy", `"hourly";q=100;w=3600`, "RateLimit", `"hourly";r=0;t=90`,
		), exitOK, []string{"0 left; reset in 1m30s", "heed would hold another request for 1m30s", `policy "hourly"`}},
		{"a vendor's fields", answering(200,
			"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "59", "X-RateLimit-Reset", "30",
		), exitOK, []string{"60 requests", "59 left", "reset in 30s"}},
		{"a budget among others", answering(200,
			"X-GitHub-Media-Type", "github.v3", "X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "29", "X-RateLimit-Reset", "60", "X-RateLimit-Resource", "search",
		), exitOK, []string{"dialect github, the fields that github is known to send", `counted in the budget "search"`, "30 requests", "29 left"}},
		{"a limit of each method", answering(429, "X-App-Rate-Limit", "100:120", "X-App-Rate-Limit-Count", "2:120", "X-Method-Rate-Limit", "20:10",
			"X-Method-Rate-Limit-Count", "20:10", "X-Rate-Limit-Type", "method", "Retry-After", "5"), exitOK, []string{
			"in the dialect riot, the fields that riot is known to send",
			`"app-2m": 100 requests per 2 minutes; 98 left`,
			`"method-10s": 20 requests per 10 seconds, for each method and shape of path; 0 left`,
			"The refusal holds for requests of the same method and a path of the same shape.",
		}},
		{"tokens", answering(200, "X-RateLimit-Limit-Tokens", "1500", "X-RateLimit-Remaining-Tokens", "1000"), exitOK, []string{
			`"tokens": 1,500 tokens; 1,000 left. (heed cannot count these, and waits only where none is left.)`,
		}},
		{"a refusal for all budgets", answering(429, "X-RateLimit-Global", "true", "X-RateLimit-Bucket", "abcd", "Retry-After", "5"), exitOK, []string{
			"turned away for a limit", "holds for all requests",
		}},
		{"a refusal", answering(429, "Retry-After", "120"), exitOK, []string{
			"answered 429 Too Many Requests", "turned away for a limit", "come back in 2m (Retry-After)", "heed would hold another request for 2m",
		}},
		{"a refusal that says nothing else", answering(429), exitNothing, []string{"turned away for a limit", "announces no limits"}},
		{"nothing", answering(204), exitNothing, []string{"answered 204 No Content", "announces no limits here"}},
		{"from a cache", answering(200, "Age", "5", "RateLimit", `"a";r=1;t=1`), exitNothing, []string{"came out of a cache"}},
		{"no quota at all", answering(200, "RateLimit-Policy", `"none";q=0;w=60`), exitOK, []string{`"none": 0 requests per minute.`}},
		{"what a terminal would obey", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(429)
			w.Write([]byte(`{"type":"about:\u001b[2J","title":"a\nb\u202ec\u009bd"}`))
		}), exitNothing, []string{"of type about:\uFFFD[2J: a\uFFFDb\uFFFDc\uFFFDd\n"}},
		{"one at a time", answering(200, "RateLimit-Policy", `"p";q=1;w=3600, "c";q=1;qu="concurrent-requests"`), exitOK, []string{
			"1 request per hour.", "1 request at once.",
		}},
		{"a problem document", heedtest.NewOrigin(heedtest.Config{
			Policies: []heedtest.Policy{{Name: "none", Quota: 0, Window: time.Minute}}, Problem: heedtest.QuotaExceeded,
		}), exitOK, []string{`turned away for going beyond "none"`, "problem document is of type " + heedtest.QuotaExceeded, `for the policy "none"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := heedCommand(t, "inspect", serve(t, tt.origin))
			if status != tt.status || stderr != "" {
				t.Errorf("exit status %d, want %d; stderr %q", status, tt.status, stderr)
			}
			for _, part := range tt.want {
				if !strings.Contains(stdout, part) {
					t.Errorf("%q is not in\n%s", part, stdout)
				}
			}
		})
	}
}

func TestInspectShowsEveryHop(t *testing.T) {
	target := serve(t, answering(200, "RateLimit-Policy", `"there";q=7;w=60`))
	first := serve(t, answering(302, "Location", target+"/there", "RateLimit-Policy", `"here";q=5;w=60`))

	stdout, _, status := heedCommand(t, "inspect", "--json", first+"/here")
	if status != exitOK {
		t.Fatalf("exit status %d", status)
	}
	var r report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Hops) != 2 {
		t.Fatalf("%d hops, want 2", len(r.Hops))
	}
	for i, want := range []struct {
		origin, policy string
		status         int
	}{{first, "here", 302}, {target, "there", 200}} {
		h := r.Hops[i]
		if h.Origin != want.origin || h.Status != want.status || len(h.Policies) != 1 || h.Policies[0].Name != want.policy {
			t.Errorf("hop %d is %+v, want %+v", i, h, want)
		}
	}
	stdout, _, _ = heedCommand(t, "inspect", first)
	if want := "leads on to " + target + "/there"; !strings.Contains(stdout, want) {
		t.Errorf("%q is not in\n%s", want, stdout)
	}
}

func TestInspectAsJSON(t *testing.T) {
	url := serve(t, answering(429, "RateLimit-Policy", `"p";q=5;w=60`, "RateLimit", `"p";r=0;t=9, "q";r=3`, "Retry-After", "30"))
	stdout, _, status := heedCommand(t, "inspect", url, "--json")
	if status != exitOK {
		t.Fatalf("exit status %d", status)
	}
	var r report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	h := r.Hops[0]
	if !r.Announced || !h.Refused || h.RetryAfter == nil || *h.RetryAfter != 30 || len(h.Policies) != 2 {
		t.Fatalf("got %s", stdout)
	}
	p, q := h.Policies[0], h.Policies[1]
	if *p.Quota != 5 || *p.Window != 60 || *p.Remaining != 0 || *p.Reset != 9 || p.Unit != "requests" {
		t.Errorf("the first policy is %+v", p)
	}
	if q.Quota != nil || q.Window != nil || *q.Remaining != 3 || q.Reset != nil {
		t.Errorf("the second policy is %+v", q)
	}
	if h.Next.Allowed || h.Next.Wait < 25 {
		t.Errorf("next is %+v", h.Next)
	}
}

func TestInspectSendsWhatItIsTold(t *testing.T) {
	var got *http.Request
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r }))
	heedCommand(t, "inspect", "--method", "head", "-H", "Authorization: Bearer x", "-H", "Host: example.org", "-H", "User-Agent: mine", url+"/path")
	if got.Method != "HEAD" || got.URL.Path != "/path" || got.Header.Get("Authorization") != "Bearer x" || got.Host != "example.org" ||
		len(got.Header["User-Agent"]) != 1 || got.UserAgent() != "mine" {
		t.Errorf("the request was %s %s to %s with %v", got.Method, got.URL, got.Host, got.Header)
	}
}

func TestInspectFailsWhereNobodyAnswers(t *testing.T) {
	s := httptest.NewServer(nil)
	url := s.URL
	s.Close()
	stdout, stderr, status := heedCommand(t, "inspect", url)
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "refused") {
		t.Errorf("exit status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	stdout, _, status = heedCommand(t, "inspect", "--json", url)
	if status != exitFailed || !strings.Contains(stdout, `"error":`) || !strings.Contains(stdout, `"hops": []`) {
		t.Errorf("exit status %d, stdout %q", status, stdout)
	}
}

// A full disk is no success, and what was lost is not that nothing was announced.
func TestInspectFailsWhereItCannotPrint(t *testing.T) {
	url := serve(t, answering(200, "RateLimit", `"a";r=5;t=1`))
	for _, args := range [][]string{{"inspect", url}, {"inspect", url, "--json"}} {
		full := writer(func([]byte) (int, error) { return 0, errors.New("no space left") })
		var stderr bytes.Buffer
		if status := run(t.Context(), args, full, &stderr); status != exitFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%q: status %d, %q", args[1:], status, stderr.String())
		}
	}
}

type writer func([]byte) (int, error)

func (f writer) Write(b []byte) (int, error) { return f(b) }

func TestInspectSaysWhyItEnded(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	http.DefaultTransport = stub(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	})
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			timeout, says string
			status        int
		}{
			{"30s", "no answer within 30s", exitFailed},
			{"90s", "canceled", exitInterrupted},
		} {
			ctx, interrupt := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, interrupt)
			var stdout, stderr bytes.Buffer
			status := run(ctx, []string{"inspect", "example.org", "--timeout", tt.timeout}, &stdout, &stderr)
			if status != tt.status || !strings.Contains(stderr.String(), tt.says) {
				t.Errorf("--timeout %s: exit status %d, stderr %q", tt.timeout, status, stderr.String())
			}
		}
	})
}

// A key given for one host is no other's, as it is with what net/http knows for credentials.
func TestInspectSendsNoKeyToAnotherHost(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	next := map[string]string{
		"https://a.example/": "/here", "https://a.example/here": "https://b.example/", "https://b.example/": "https://a.example/back",
	}
	got := map[string]http.Header{}
	http.DefaultTransport = stub(func(req *http.Request) (*http.Response, error) {
		got[req.URL.String()] = req.Header
		w := httptest.NewRecorder()
		if to := next[req.URL.String()]; to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		}
		return w.Result(), nil
	})
	keys := []string{"Authorization", "X-Api-Key", "Api-Key", "Private-Token"}
	args := []string{"inspect", "https://a.example/"}
	for _, name := range append(keys, "X-Other") {
		args = append(args, "-H", name+": value")
	}
	heedCommand(t, args...)
	for at, want := range map[string]bool{"https://a.example/": true, "https://a.example/here": true, "https://b.example/": false, "https://a.example/back": false} {
		if got[at].Get("X-Other") == "" {
			t.Errorf("%s was sent no X-Other", at)
		}
		for _, name := range keys {
			if has := got[at].Get(name) != ""; has != want {
				t.Errorf("%s was sent %s: %v, want %v", at, name, has, want)
			}
		}
	}
}

func TestInspectEndsWhereRedirectsDoNot(t *testing.T) {
	asked := 0
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/", http.StatusFound)
	}))
	if _, stderr, status := heedCommand(t, "inspect", url); status != exitFailed || asked != 10 || !strings.Contains(stderr, "10 redirects") {
		t.Errorf("exit status %d after %d requests, stderr %q", status, asked, stderr)
	}
}

func TestInspectPrintsNoPassword(t *testing.T) {
	target := serve(t, answering(200))
	_, host, _ := strings.Cut(target, "://")
	url := serve(t, answering(302, "Location", "http://user:sesame@"+host+"/there"))
	for _, args := range [][]string{{"inspect", url}, {"inspect", url, "--json"}} {
		stdout, stderr, _ := heedCommand(t, args...)
		if all := stdout + stderr; strings.Contains(all, "sesame") || strings.Count(all, "http://user:xxxxx@"+host+"/there") != 2 {
			t.Errorf("%q prints %s", args[1:], all)
		}
	}
}

// What the hop before announced is not what the body of a later answer says.
func TestInspectClaimsNoMoreThanEachAnswerSays(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("X-RateLimit-Limit", "60")
			w.Header().Set("X-RateLimit-Remaining", "59")
			w.Header().Set("X-RateLimit-Reset", "30")
			http.Redirect(w, r, "/next", http.StatusFound)
		}
	}))
	stdout, stderr, status := heedCommand(t, "inspect", "--json", url+"/")
	var r report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != exitOK || len(r.Hops) != 2 {
		t.Fatalf("exit status %d, %v, stdout %q, stderr %q", status, err, stdout, stderr)
	}
	if h := r.Hops[0]; len(h.Policies) != 1 || h.Dialect != "x-ratelimit" {
		t.Errorf("the first hop is %+v", h)
	}
	if h := r.Hops[1]; len(h.Policies) != 0 || h.Dialect != "" {
		t.Errorf("the second hop is %+v", h)
	}
	if stdout, _, _ = heedCommand(t, "inspect", url+"/"); !strings.Contains(stdout, "announces no limits here") {
		t.Errorf("the second hop is taken to announce something in\n%s", stdout)
	}
}

func TestInspectKeepsToWhatItWasJustTold(t *testing.T) {
	// The second hop goes to the same origin, which has nothing left.
	var url string
	url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit-Policy", `"p";q=1;w=600`)
		w.Header().Set("RateLimit", `"p";r=0;t=600`)
		if r.URL.Path == "/" {
			http.Redirect(w, r, url+"/next", http.StatusFound)
		}
	}))
	stdout, stderr, status := heedCommand(t, "inspect", url+"/")
	if status != exitFailed || !strings.Contains(stderr, "not sent") || !strings.Contains(stdout, "0 left") {
		t.Errorf("exit status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestInspectSaysThatItWaits(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	http.DefaultTransport = stub(func(req *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if req.URL.Path == "/" {
			w.Header().Set("RateLimit-Policy", `"p";q=1;w=3`)
			w.Header().Set("RateLimit", `"p";r=0;t=3`)
			w.Header().Set("Location", "/next")
			w.WriteHeader(http.StatusFound)
		}
		return w.Result(), nil
	})
	synctest.Test(t, func(t *testing.T) {
		var said string
		began, at := time.Now(), time.Duration(-1)
		stderr := writer(func(b []byte) (int, error) {
			said, at = said+string(b), time.Since(began)
			return len(b), nil
		})
		if status := run(t.Context(), []string{"inspect", "https://a.example/"}, io.Discard, stderr); status != exitOK {
			t.Errorf("exit status %d", status)
		}
		if d := time.Since(began); d < 3*time.Second || at != 0 || !strings.Contains(said, "waiting for 3s, as https://a.example asks") {
			t.Errorf("in %v it says, after %v, %q", d, at, said)
		}
	})
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 1234 * time.Millisecond: "1.23s", 10 * time.Second: "10s",
		10 * time.Minute: "10m", time.Hour: "1h", 10 * time.Hour: "10h", 90 * time.Minute: "1h30m", 3601 * time.Second: "1h0m1s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%d) = %q, want %q", d, got, want)
		}
	}
}

type stub func(*http.Request) (*http.Response, error)

func (f stub) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestInspectReadsWhatTheBodySays(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	http.DefaultTransport = stub(func(req *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.WriteString(`{"items":[],"backoff":10,"quota_max":300,"quota_remaining":299}`)
		return w.Result(), nil
	})
	stdout, stderr, status := heedCommand(t, "inspect", "https://api.stackexchange.com/2.3/info")
	if status != exitOK {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	for _, part := range []string{"in the body of the answer", `"daily": 300 requests per day; 299 left`, "heed would hold another request for 10s"} {
		if !strings.Contains(stdout, part) {
			t.Errorf("%q is not in\n%s", part, stdout)
		}
	}
}
