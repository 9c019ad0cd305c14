package heed_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

func TestRedirectsAreTheOuterClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := respond(func(req *http.Request) *http.Response {
			switch req.URL.Host + req.URL.Path {
			case "a.example.org/":
				return reply(302, "", "Location: https://b.example.org/next", "Set-Cookie: seen=a; Domain=example.org")
			case "b.example.org/next":
				return reply(307, "", "Location: /end")
			}
			return reply(200, req.Header.Get("Cookie"))
		})
		tr := quiet(t, base, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Hour}}})
		jar, _ := cookiejar.New(nil)
		var hops []string
		client := &http.Client{Transport: tr, Jar: jar, CheckRedirect: func(req *http.Request, via []*http.Request) error {
			hops = append(hops, fmt.Sprint(req.URL, " after ", len(via)))
			return nil
		}}
		resp, err := client.Get("https://a.example.org/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if string(body) != "seen=a" {
			t.Errorf("cookie %q", body)
		}
		if want := []string{"https://b.example.org/next after 1", "https://b.example.org/end after 2"}; !slices.Equal(hops, want) {
			t.Errorf("CheckRedirect saw %q", hops)
		}
		if used := usedBy(tr.Registry); used != "https://a.example.org 1, https://b.example.org 2" {
			t.Errorf("charged: %s", used)
		}
	})
}

// usedBy lists what is used of each origin's first policy.
func usedBy(r *heed.Registry) string {
	var used []string
	for _, o := range r.Snapshot() {
		used = append(used, fmt.Sprint(o.Origin, " ", o.Partitions[0].Policies[0].Used))
	}
	return strings.Join(used, ", ")
}

func TestRedirectReplaysTheBody(t *testing.T) {
	for _, status := range []int{307, 308} {
		synctest.Test(t, func(t *testing.T) {
			var bodies []string
			base := baseFunc(func(req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				bodies = append(bodies, req.Method+" "+req.URL.Path+" "+string(body))
				req.Body.Close()
				switch {
				case err != nil:
					return nil, err
				case len(bodies) == 2: // the second hop is refused once
					return reply(429, "", "Retry-After: 1"), nil
				case req.URL.Path == "/":
					return reply(status, "", "Location: /end"), nil
				}
				return reply(200, ""), nil
			})
			resp, err := quiet(t, base, heed.Limits{}).Client().Post(site+"/", "text/plain", strings.NewReader("content"))
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"POST / content", "POST /end content", "POST /end content"}; !slices.Equal(bodies, want) || resp.StatusCode != 200 {
				t.Errorf("%d: status %d, sent %q", status, resp.StatusCode, bodies)
			}
		})
	}
}

func TestRedirectAfterARetryIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 1", "302 Location: https://other.example.org/"}}
		resp, err := quiet(t, base, heed.Limits{}).RoundTrip(get(t.Context(), site))
		if err != nil || resp.StatusCode != 302 || len(base.starts) != 2 {
			t.Errorf("%v, %v after %d requests", resp, err, len(base.starts))
		}
	})
}

// A redirect that names a time is followed no sooner (RFC 9110, section 10.2.3), and holds nobody else.
func TestRedirectThatAsksToWaitIsFollowedThen(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		synctest.Test(t, func(t *testing.T) {
			base := respond(func(req *http.Request) *http.Response {
				if req.URL.Path == "/" {
					return reply(status, "", "Location: https://b.example.org/next", "Retry-After: 20")
				}
				return reply(200, "")
			})
			client := quiet(t, base, heed.Limits{}).Client()
			began := time.Now()
			other := make(chan time.Duration)
			go func() {
				time.Sleep(time.Second)
				for _, host := range []string{"a", "b"} {
					resp, err := client.Get("https://" + host + ".example.org/other")
					if err != nil {
						t.Error(err)
						continue
					}
					resp.Body.Close()
				}
				other <- time.Since(began)
			}()
			resp, err := client.Get("https://a.example.org/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if took := time.Since(began); took != 20*time.Second {
				t.Errorf("%d: followed after %v, want 20s", status, took)
			}
			if took := <-other; took != time.Second {
				t.Errorf("%d: others were done after %v", status, took)
			}
			var limited *heed.LimitError
			client.Timeout = 10 * time.Second
			if _, err = client.Get("https://a.example.org/"); !errors.As(err, &limited) || limited.Wait != 20*time.Second || limited.Cause != heed.CauseRedirect || time.Since(began) > 21*time.Second {
				t.Errorf("%d: err = %v after %v", status, err, time.Since(began))
			}
		})
	}
}
