package heed_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// An answering is a RoundTripper that answers by its requests' order.
type answering struct {
	began   time.Time
	starts  []time.Duration
	answers []func() *http.Response // the last one for all that follow
}

func newAnswering(answers ...func() *http.Response) *answering {
	return &answering{began: time.Now(), answers: answers}
}

func (s *answering) RoundTrip(*http.Request) (*http.Response, error) {
	s.starts = append(s.starts, time.Since(s.began))
	return s.answers[min(len(s.starts), len(s.answers))-1](), nil
}

// saying is an answer with a body.
func saying(status int, body string, header ...string) func() *http.Response {
	return func() *http.Response {
		resp := answer(status, header...)
		resp.Body = io.NopCloser(strings.NewReader(body))
		return resp
	}
}

// fetch sends a request and reads the answer to its end.
func fetch(t testing.TB, tr http.RoundTripper, url string) (status int, body string) {
	t.Helper()
	resp, err := tr.RoundTrip(request(url).WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, string(b)
}

func TestBodyTellsARefusalFromAMistake(t *testing.T) {
	const limited, mistaken = `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`, `{"errors":[{"message":"no such field"}]}`
	for _, tc := range []struct {
		name, url string
		first     func() *http.Response
		tries     int
	}{
		{"Linear's 400 for a limit", "https://api.linear.app/graphql", saying(400, limited, "Retry-After", "3"), 2},
		{"Linear's 400 for a mistake", "https://api.linear.app/graphql", saying(400, mistaken), 1},
		{"the same where nobody is known to mean it", "https://api.example.org/graphql", saying(400, limited), 1},
		{"OpenAI's 429 for a rate", "https://api.openai.com/v1/x", saying(429, `{"error":{"code":"rate_limit_exceeded"}}`, "Retry-After", "3"), 2},
		{"OpenAI's 429 for want of money", "https://api.openai.com/v1/x", saying(429, `{"error":{"code":"insufficient_quota"}}`), 1},
		{"Gemini's 429, with the time in its body", "https://generativelanguage.googleapis.com/v1beta/x",
			saying(429, `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3s"}]}}`), 2},
		{"Google's 403 for a rate", "https://www.googleapis.com/drive", saying(403, `{"reason":"userRateLimitExceeded"}`, "Retry-After", "3"), 2},
		{"Google's 403 for the day", "https://www.googleapis.com/drive", saying(403, `{"reason":"dailyLimitExceeded"}`), 1},
		{"Google's 403 for want of permission", "https://www.googleapis.com/drive", saying(403, `{"reason":"forbidden"}`), 1},
		{"Stripe's 429, not to be tried again", "https://api.stripe.com/v1/x", saying(429, `{}`, "Stripe-Should-Retry", "false"), 1},
		{"Stack Exchange's 400 for a limit", "https://api.stackexchange.com/2.3/questions",
			saying(400, `{"error_id":502,"error_name":"throttle_violation","error_message":"too many requests from this IP, more requests available in 3 seconds"}`), 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAnswering(tc.first, saying(200, "well"))
				tr := &heed.Transport{Base: s, Registry: newRegistry(t, heed.Config{})}
				status, body := fetch(t, tr, tc.url)
				if len(s.starts) != tc.tries {
					t.Fatalf("%d tries, want %d", len(s.starts), tc.tries)
				}
				if tc.tries == 1 {
					want := tc.first()
					b, _ := io.ReadAll(want.Body)
					if status != want.StatusCode || body != string(b) {
						t.Errorf("got %d %q, want it as it came", status, body)
					}
					return
				}
				if status != 200 || s.starts[1] < 3*time.Second || s.starts[1] > 4*time.Second {
					t.Errorf("got %d after tries at %v, want the second after three seconds", status, s.starts)
				}
			})
		})
	}
}

// The quota of the day goes on; only the wait asked for counts.
func TestStackExchangeBackoffIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAnswering(saying(200, `{"items":[],"backoff":10,"quota_max":300,"quota_remaining":200}`), saying(200, `{"items":[]}`))
		r := newRegistry(t, heed.Config{})
		tr := &heed.Transport{Base: s, Registry: r}
		for range 2 {
			fetch(t, tr, "https://api.stackexchange.com/2.3/questions")
		}
		if s.starts[1] != 10*time.Second {
			t.Errorf("the second went at %v, want 10s", s.starts[1])
		}
		if p := r.Snapshot()[0].Partitions[0].Policies; len(p) != 1 || p[0].Quota != 300 {
			t.Errorf("policies are %+v, want 300 a day", p)
		}
	})
}

func TestShopifyThrottledWithStatus200IsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAnswering(saying(200, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],
			"extensions":{"cost":{"requestedQueryCost":200,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":100,"restoreRate":50.0}}}}`),
			saying(200, `{"data":{}}`))
		r := newRegistry(t, heed.Config{})
		tr := &heed.Transport{Base: s, Registry: r}
		const url = "https://shop.myshopify.com/admin/api/2026-01/graphql.json"
		if status, body := fetch(t, tr, url); status != 200 || !strings.Contains(body, "THROTTLED") {
			t.Errorf("got %d %q, want it as it came", status, body)
		}
		fetch(t, tr, url)
		if at := s.starts[1]; at < 2*time.Second || at > 3*time.Second { // 100 points at 50 a second
			t.Errorf("the second went at %v, want after two seconds", at)
		}
		if n := r.Snapshot()[0].Refusals; n != 1 {
			t.Errorf("%d refusals, want 1", n)
		}
	})
}

// What a dialect is given is what the caller has read, as soon as it is enough.
func TestBodyDialectLooksOnAsTheCallerReads(t *testing.T) {
	for _, tc := range []struct {
		name        string
		size, reads int // bytes
		close       bool
		want        int // given; 0: not called
	}{
		{"to its end", 100, 100, false, 100},
		{"closed early", 100, 30, true, 30},
		{"still being read", 100, 30, false, 0},
		{"unread", 100, 0, true, 0},
		{"a long one", 100 << 10, 50 << 10, false, 16 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls, given := 0, 0
			own := heed.Dialect{Name: "own", Origins: []string{"api.example.org"}, Body: func(_ int, _ http.Header, body []byte) (heed.Announcement, bool) {
				calls, given = calls+1, len(body)
				return heed.Announcement{}, false
			}}
			body := &countingBody{Reader: strings.NewReader(strings.Repeat("x", tc.size))}
			base := newAnswering(func() *http.Response {
				resp := answer(200)
				resp.Body = body
				return resp
			})
			tr := &heed.Transport{Base: base, Registry: newRegistry(t, heed.Config{Dialects: []heed.Dialect{own}})}
			resp, err := tr.RoundTrip(request(example))
			if err != nil {
				t.Fatal(err)
			}
			if body.read != 0 {
				t.Errorf("%d bytes read before the caller did", body.read)
			}
			io.CopyBuffer(io.Discard, struct{ io.Reader }{io.LimitReader(resp.Body, int64(tc.reads))}, make([]byte, 1000))
			if tc.reads == tc.size {
				resp.Body.Read(make([]byte, 1))
			}
			if tc.close {
				resp.Body.Close()
			}
			if given != tc.want || calls != min(tc.want, 1) {
				t.Errorf("called %d times, last with %d bytes, want once with %d", calls, given, tc.want)
			}
			resp.Body.Close()
			if calls > 1 {
				t.Errorf("called again when closed")
			}
			if body.read > tc.reads+1 {
				t.Errorf("%d bytes read, the caller asked for %d", body.read, tc.reads)
			}
		})
	}
}

type countingBody struct {
	io.Reader
	read int
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *countingBody) Close() error { return nil }
