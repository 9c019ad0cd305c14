package heed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

const digest = `Digest username="Mufasa", realm="http-auth@example.org", uri="/dir/index.html", algorithm=SHA-256, nc=00000001, `

// Whether two requests share a quota.
func TestCredentialsPartitionAnOrigin(t *testing.T) {
	for _, tc := range []struct {
		name   string
		a, b   []string // header fields
		shared bool
	}{
		{"none", nil, nil, true},
		{"none and one", nil, []string{"Authorization", "Bearer a"}, false},
		{"bearer, same", []string{"Authorization", "Bearer a"}, []string{"Authorization", "bearer  a"}, true},
		{"bearer, other", []string{"Authorization", "Bearer a"}, []string{"Authorization", "Bearer b"}, false},
		{"basic, other", []string{"Authorization", "Basic YTpi"}, []string{"Authorization", "Basic YTpj"}, false},
		{"aws, another signature and day",
			[]string{"Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20260707/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=aa"},
			[]string{"Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20260708/eu-west-1/s3/aws4_request,SignedHeaders=host,Signature=bb"}, true},
		{"aws, other key",
			[]string{"Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20260707/us-east-1/s3/aws4_request, Signature=aa"},
			[]string{"Authorization", "AWS4-HMAC-SHA256 Credential=AKIE/20260707/us-east-1/s3/aws4_request, Signature=aa"}, false},
		{"digest, another nonce",
			[]string{"Authorization", digest + `nonce="one", response="aa", cnonce="x"`},
			[]string{"Authorization", digest + `nonce="two", response="bb", cnonce="y"`}, true},
		{"digest, other user",
			[]string{"Authorization", digest + `nonce="one"`},
			[]string{"Authorization", strings.Replace(digest, "Mufasa", "Scar", 1) + `nonce="one"`}, false},
		{"digest, other user in the long form",
			[]string{"Authorization", `Digest username*=UTF-8''J%C3%A4s, nonce="one"`},
			[]string{"Authorization", `Digest username*=UTF-8''J%C3%B6s, nonce="one"`}, false},
		{"oauth 1, another nonce and signature",
			[]string{"Authorization", `OAuth realm="r", oauth_consumer_key="k", oauth_token="t", oauth_nonce="1", oauth_signature="a%3D"`},
			[]string{"Authorization", `OAuth oauth_token="t",oauth_consumer_key="k",oauth_nonce="2",oauth_signature="b%3D"`}, true},
		{"oauth 1, other token",
			[]string{"Authorization", `OAuth oauth_consumer_key="k", oauth_token="t"`},
			[]string{"Authorization", `OAuth oauth_consumer_key="k", oauth_token="u"`}, false},
		{"oauth 1, other consumer",
			[]string{"Authorization", `OAuth oauth_consumer_key="k", oauth_token="t"`},
			[]string{"Authorization", `OAuth oauth_consumer_key="l", oauth_token="t"`}, false},
		{"other scheme, whatever follows", []string{"Authorization", "Hawk id=1, mac=a"}, []string{"Authorization", "hawk id=2, mac=b"}, true},
		{"other schemes", []string{"Authorization", "Hawk id=1"}, []string{"Authorization", "Negotiate YII="}, false},
		{"api key, other", []string{"X-Api-Key", "a"}, []string{"X-Api-Key", "b"}, false},
		{"api key, same", []string{"Api-Key", "a"}, []string{"Api-Key", "a"}, true},
		{"private token, other", []string{"Private-Token", "a"}, []string{"Private-Token", "b"}, false},
		{"authorization comes first", []string{"Authorization", "Bearer a", "X-Api-Key", "a"}, []string{"Authorization", "Bearer a", "X-Api-Key", "b"}, true},
		{"other fields do not count", []string{"Cookie", "a=b", "User-Agent", "x"}, []string{"Cookie", "a=c"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Hour}}}})
			acquire(t, r, request(example, tc.a...))
			ctx := heed.NoWait(t.Context())
			_, err := r.Acquire(ctx, request(example, tc.b...))
			if shared := err != nil; shared != tc.shared {
				t.Errorf("share a quota: %v, want %v", shared, tc.shared)
			}
			if n, want := len(r.Snapshot()[0].Partitions), map[bool]int{true: 1, false: 2}[tc.shared]; n != want {
				t.Errorf("%d partitions, want %d", n, want)
			}
		})
	}
}

func TestUserinfoIsACredential(t *testing.T) {
	r := newRegistry(t, heed.Config{})
	for _, u := range []string{"https://a:b@api.example.org", "https://a:c@api.example.org", "https://api.example.org", "https://a:b@api.example.org/x"} {
		acquire(t, r, request(u)).Release()
	}
	sent := request(example) // what http.Client makes of it
	sent.SetBasicAuth("a", "b")
	acquire(t, r, sent).Release()
	if n := len(r.Snapshot()[0].Partitions); n != 3 {
		t.Errorf("%d partitions, want 3", n)
	}
}

func TestUserFunctionDecidesPartitions(t *testing.T) {
	r := newRegistry(t, heed.Config{Partition: func(req *http.Request) string { return req.Header.Get("X-Tenant") }})
	for _, tenant := range []string{"a", "b", "a", ""} {
		acquire(t, r, request(example, "X-Tenant", tenant, "Authorization", "Bearer "+tenant)).Release()
	}
	if n := len(r.Snapshot()[0].Partitions); n != 3 {
		t.Errorf("%d partitions, want 3", n)
	}
}

func TestNewPartitionInheritsPoliciesNotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		pm := acquire(t, r, request(example, "Authorization", "Bearer a"))
		pm.Observe(answer(200, "RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=2;t=30`))
		pm.Release()
		if d := r.Check(request(example, "Authorization", "Bearer b")); !d.Allowed || d.Remaining != 10 {
			t.Errorf("Check for another credential = %+v, want allowed with 10 left", d)
		}
		if d := r.Check(request(example, "Authorization", "Bearer a")); d.Remaining != 2 {
			t.Errorf("Check for the first credential = %+v, want 2 left", d)
		}
	})
}

// However many credentials there are, each has its own quota, and all are
// forgotten in the end.
func TestManyPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: quota(2, time.Minute)})
		keep := acquire(t, r, request(example)) // so that the origin is not forgotten with them
		keep.Observe(answer(200))
		defer keep.Release()
		for round := range 2 {
			for i := range 100 {
				pm := acquire(t, r, request(example, "X-Api-Key", fmt.Sprint(i)))
				if left := pm.Remaining(); left != int64(1-round) {
					t.Fatalf("%d left for key %d", left, i)
				}
				pm.Release()
			}
		}
		if d := r.Check(request(example)); d.Remaining != 1 {
			t.Errorf("%d left for the first", d.Remaining)
		}
		time.Sleep(2 * time.Hour)
		acquire(t, r, request(example, "X-Api-Key", "99")).Release()
		if s := r.Snapshot()[0]; len(s.Partitions) != 2 || s.Partitions[1].Partition != 101 || s.Partitions[1].Policies[0].Used != 1 {
			t.Errorf("Snapshot() = %+v", s)
		}
	})
}

// Tokens that change every hour do not pile up.
func TestPartitionsAreForgottenWhileTheirOriginIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		for i := range 100 {
			for range 10 {
				acquire(t, r, request(example, "Authorization", fmt.Sprint("Bearer ", i))).Release()
				time.Sleep(6 * time.Minute)
			}
		}
		s := r.Snapshot()[0]
		if len(s.Partitions) > 3 || s.Partitioned != 100 {
			t.Errorf("%d partitions kept of %d, want 3 at the most of 100", len(s.Partitions), s.Partitioned)
		}
		if last := s.Partitions[len(s.Partitions)-1]; last.Partition != 99 {
			t.Errorf("the latest is partition %d, want 99", last.Partition)
		}
	})
}

// Whatever is said of a request, its secrets are not.
func TestSecretsShowNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var mu sync.Mutex
		say := func(v any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(&out, "%v %+v %#v\n", v, v, v)
			if err := json.NewEncoder(&out).Encode(v); err != nil {
				t.Error(err)
			}
		}
		r := newRegistry(t, heed.Config{
			Logger:  slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
			OnEvent: func(e heed.Event) { say(e) },
			Default: heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 2, Window: time.Second, PartitionKey: "SECRET9"}}, MaxQueue: 2},
		})
		reqs := []*http.Request{
			request("https://user:SECRET1@api.example.org/a?token=SECRET2#SECRET3"),
			request(example+"?key=SECRET2", "Authorization", "Bearer SECRET4"),
			request(example, "Authorization", "SECRET5"),
			request(example, "X-Api-Key", "SECRET6", "Cookie", "s=SECRET7"),
		}
		for range 20 {
			for _, req := range reqs {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				pm, err := r.Acquire(ctx, req)
				cancel()
				if err != nil {
					say(err.Error())
					say(err)
					continue
				}
				say(pm.Observe(answer(429, "RateLimit-Policy", `"q";q=10;w=60;pk=:U0VDUkVUOA==:`, "RateLimit", `"q";r=1;t=1;pk=:U0VDUkVUOA==:`)).Dialect)
				say(r.Snapshot()) // which says what holds a slot
				pm.Release()
				say(r.Check(req))
			}
		}
		for _, err := range []error{
			r.SetLimits("https://user:SECRET1@api.example.org/", heed.Limits{}),
			r.Pause("https://user:SECRET1@api.example.org/", 1),
			r.SetLimits(example, heed.Limits{Policies: []heed.Policy{{PartitionKey: "SECRET9"}}}),
		} {
			if err == nil {
				t.Error("no error")
			}
			say(err.Error())
		}
		say(r.Snapshot())
		mu.Lock()
		defer mu.Unlock()
		if out.Len() < 1000 {
			t.Errorf("too little said to tell: %d bytes", out.Len())
		}
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "SECRET") {
				t.Errorf("a secret shows: %s", line)
			}
		}
	})
}

// After a pause of the whole origin one request goes first, whosever it is; its own quota is for each credential to find out.
func TestOneRequestOfAllCredentialsGoesFirstAfterAPauseOfTheOrigin(t *testing.T) {
	for _, manual := range []bool{false, true} {
		t.Run(fmt.Sprint("manual: ", manual), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				const credentials = 50
				as := func(i int) *http.Request { return request(example, "Authorization", fmt.Sprint("Bearer ", i)) }
				for i := range credentials {
					done(acquire(t, r, as(i)))
				}
				if manual {
					r.Pause(example, 10*time.Second)
				} else {
					pm := acquire(t, r, as(0))
					pm.Observe(answer(503, "Retry-After", "10"))
					pm.Release()
				}
				var all []*waiting
				for i := range credentials {
					all = append(all, start(t.Context(), r, as(i)))
				}
				went := func() (n int) {
					synctest.Wait()
					for i, w := range all {
						if w != nil && w.done() {
							n++
							all[i] = nil
							defer done(w.permit)
						}
					}
					return n
				}
				time.Sleep(10 * time.Second)
				n := went()
				for ; n == 0; n = went() { // a server's pause lasts a little longer
					time.Sleep(10 * time.Millisecond)
				}
				for round, want := range []int{1, 2, 4, 8, 16, 19} {
					if n != want {
						t.Errorf("round %d: %d went, want %d", round, n, want)
					}
					n = went()
				}
			})
		})
	}
}
