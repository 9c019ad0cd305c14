package heed

import (
	"context"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Retry says which requests are tried again. When is not its business: that
// is for the origin's limits to say.
//
// By default a request is tried again where its answer is a refusal (429, 503
// or what the origin's dialect marks as one), its body can be replayed, and,
// for a 503 or another server error, its method is idempotent (RFC 9110,
// section 9.2.2) or it has an Idempotency-Key. A server's x-should-retry:
// false is obeyed.
type Retry struct {
	Max int // tries after the first; 0: 4; negative: none

	// Check decides what is tried again, where the body and the method let
	// it be repeated at all; the error is the base transport's. What it adds
	// to the default waits a backoff of its own and pauses nobody. It must
	// not read the response's body. nil: refusals.
	Check func(*http.Request, *http.Response, error) bool
}

const defaultRetries = 4

func (r *Retry) max() int {
	switch {
	case r.Max == 0:
		return defaultRetries
	case r.Max < 0:
		return 0
	}
	return r.Max
}

// triesAgain reports whether what came of an attempt is worth another one.
func (t *Transport) triesAgain(req *http.Request, out *outcome) bool {
	switch {
	case out.permit == nil, out.permit.p == nil: // heed refused it, or steps aside
		return false
	case out.err == nil && !out.said.Refused && t.Retry.Check == nil: // nearly all
		return false
	case t.Retry.Max < 0, out.said.NoRetry, optionsOf(req.Context()).noRetry, req.Context().Err() != nil, !replayable(req):
		return false
	}
	turnedAway := out.err == nil && out.said.Refused && out.resp.StatusCode < 500
	if !turnedAway && !idempotent(req) {
		return false // the server may have acted on it
	}
	if t.Retry.Check != nil {
		return t.Retry.Check(req, out.resp, out.err)
	}
	return out.said.Refused
}

// replayable reports whether req's body can be sent again.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// idempotent reports whether req can be repeated though it may have been
// acted on: as net/http decides it.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, ok := req.Header["Idempotency-Key"]
	if !ok {
		_, ok = req.Header["X-Idempotency-Key"]
	}
	return ok
}

// tryAgain hands a request whose first attempt is over to go-retryablehttp,
// that attempt's outcome as its attempt 0. What go-retryablehttp and the
// http.Client inside it see are stand-ins: redirects, cookies, bodies and
// connections are none of their business.
func (t *Transport) tryAgain(req *http.Request, first outcome) (*http.Response, error) {
	tries := &tries{t: t, req: req, last: first, attempt: 1}
	client := retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: tries},
		RetryMax:     t.Retry.max(),
		CheckRetry:   tries.next,
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return 0 }, // next has waited
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	standIn := &http.Request{Method: http.MethodGet, URL: req.URL, Header: http.Header{}}
	// The response is a stand-in, and the error one that tries knows better.
	_, _ = client.Do(&retryablehttp.Request{Request: standIn.WithContext(req.Context())})
	if tries.permit != nil {
		tries.permit.Cancel()
	}
	if tries.last.resp == nil && tries.last.err == nil {
		return nil, context.Cause(req.Context()) // cancelled between leave and the attempt
	}
	return tries.last.resp, tries.last.err
}

// tries is the attempts at one request. It is the RoundTripper that
// go-retryablehttp sends through, for this request alone.
type tries struct {
	t       *Transport
	req     *http.Request
	last    outcome // of the latest attempt
	attempt int     // its number, from 1
	permit  *Permit // for the next attempt; nil: none yet
}

// RoundTrip makes the next attempt, with the permit that next has waited for.
func (r *tries) RoundTrip(*http.Request) (*http.Response, error) {
	if r.permit != nil { // else the first attempt, which is over
		pm := r.permit
		r.permit = nil
		r.attempt++
		req, err := replay(r.req)
		if err != nil {
			pm.Cancel()
			r.last = outcome{err: err}
		} else {
			r.last = r.t.send(req, pm)
			if r.last.resp != nil {
				r.last.resp.Request = r.req
			}
		}
	}
	if r.last.err != nil {
		return nil, r.last.err
	}
	return &http.Response{StatusCode: r.last.resp.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}, nil
}

// replay returns req with its body from the start.
func replay(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	again := req.WithContext(req.Context())
	again.Body = body
	return again, nil
}

// next decides whether there is another attempt, and waits for leave to make
// it with the refusal in hand: where it cannot start in time, or for whatever
// other reason is not to be made, the refusal goes back whole.
func (r *tries) next(ctx context.Context, _ *http.Response, _ error) (bool, error) {
	if r.attempt > r.t.Retry.max() || !r.t.triesAgain(r.req, &r.last) {
		return false, nil
	}
	hold(r.last.resp)
	sent := r.last.permit
	sent.Release() // the next attempt must not wait for the slot of this one
	a := ask{attempt: r.attempt + 1, number: sent.number, notBefore: r.notBefore(sent)}
	if r.last.resp != nil {
		a.status = r.last.resp.StatusCode
	}
	pm, err := r.t.registry().acquire(ctx, r.req, a)
	if err != nil {
		if ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
			r.discard()
			r.last = outcome{err: context.Cause(ctx)}
		}
		return false, nil
	}
	r.discard()
	r.permit = pm
	return true, nil
}

// notBefore is this request's own wait before it is tried again; zero where
// what it shares with others decides alone.
func (r *tries) notBefore(sent *Permit) time.Time {
	if r.last.said.Refused {
		return sent.ownRetryAt()
	}
	least, most := sent.backoffs()
	return time.Now().Add(backoffWait(r.attempt, least, most))
}

// discard lets go of a response that is not going back.
func (r *tries) discard() {
	if resp := r.last.resp; resp != nil && resp.Body != nil {
		resp.Body.Close() // hold has read what is worth reading
	}
	r.last = outcome{}
}
