package heed_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// authorized gets a token through its client, as oauth2.Transport does.
type authorized struct {
	base   http.RoundTripper
	tokens *http.Client
	token  atomic.Pointer[string]
	ctx    func(*http.Request) context.Context // of the token's request; nil: one of its own
}

func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	token := a.token.Load()
	if token == nil {
		ctx := context.Background()
		if a.ctx != nil {
			ctx = a.ctx(req)
		}
		resp, err := a.tokens.Do(get(ctx, site+"/token"))
		if err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, err
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		s := string(b)
		token = &s
		a.token.Store(token)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+*token)
	return a.base.RoundTrip(req)
}

func TestAuthenticationOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		tr := quiet(t, base, heed.Limits{MaxConcurrent: 1})
		client := &http.Client{Transport: &authorized{base: tr, tokens: tr.Client()}}
		began := time.Now()
		for range 3 {
			resp, err := client.Get(site)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if time.Since(began) != 0 || len(base.starts) != 4 {
			t.Errorf("%d requests in %v", len(base.starts), time.Since(began))
		}
	})
}

// A request made by the base, through heed again, is delayed by the scout or
// probe that the first one is; it is not stopped by it.
func TestAuthenticationInsideIsDelayedButNotStopped(t *testing.T) {
	for name, prepare := range map[string]func(*heed.Registry){
		"first contact": func(*heed.Registry) {},
		"after a pause": func(r *heed.Registry) { r.Pause(site, time.Minute); time.Sleep(time.Hour) },
		"after a reset": func(r *heed.Registry) { r.Reset(site) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &authorized{base: &script{answers: []string{"200"}}}
				tr := quiet(t, inner, heed.Limits{})
				inner.tokens = &http.Client{Transport: &heed.Transport{Base: inner.base, Registry: tr.Registry}}
				prepare(tr.Registry)
				began := time.Now()
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() { sendOne(t, tr, get(t.Context(), site)) })
				}
				all.Wait()
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestSlotHeldByTheOneWhoWaitsForItIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := warned(t, heed.Limits{MaxConcurrent: 1}, &log)
		inner := &authorized{base: &script{answers: []string{"200"}}, ctx: (*http.Request).Context}
		tr := &heed.Transport{Base: inner, Registry: r}
		inner.tokens = &http.Client{Transport: &heed.Transport{Base: inner.base, Registry: r}}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := tr.RoundTrip(get(ctx, site))
			cancel()
			var limit *heed.LimitError
			if !errors.As(err, &limit) || limit.Reason != heed.ReasonDeadline || limit.Cause != heed.CauseConcurrency {
				t.Errorf("error %v", err)
			}
		}
		if n := strings.Count(log.String(), "slot"); n != 1 {
			t.Errorf("reported %d times: %s", n, log.String())
		}
		log.Reset()
		var token = "known"
		inner.token.Store(&token)
		sendOne(t, tr, get(t.Context(), site))
		if log.Len() > 0 {
			t.Error(log.String())
		}
	})
}

func TestSlotOfAnotherOriginIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := warned(t, heed.Limits{MaxConcurrent: 1}, &log)
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Second)
			return reply(200, ""), nil
		})
		inner := &authorized{base: base, ctx: (*http.Request).Context, tokens: &http.Client{Transport: &heed.Transport{Base: base, Registry: r}}}
		var all sync.WaitGroup
		all.Go(func() { sendOne(t, inner.tokens.Transport, get(t.Context(), site)) })
		synctest.Wait()
		began := time.Now()
		sendOne(t, &heed.Transport{Base: inner, Registry: r}, get(t.Context(), "https://other.example.org"))
		all.Wait()
		if log.Len() > 0 || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %s", time.Since(began), &log)
		}
	})
}
