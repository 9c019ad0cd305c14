package heed

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Retry says which requests are tried again. When, the origin's limits decide.
//
// By default a request is tried again where its answer is a refusal (429, 503
// or what the origin's dialect marks as one), its body can be replayed, and,
// for anything but a 429, its method is idempotent (RFC 9110, section 9.2.2)
// or it has an Idempotency-Key (or X-Idempotency-Key). A server's x-should-retry: false is obeyed.
// A refusal that is not tried again comes back as the response it is. So does the
// last one, once there were Max tries, or if the next could not start in time.
//
// An error of the base transport is not tried again unless Check says so; what
// [http.Transport] repeats by itself on a lost connection is its own affair.
type Retry struct {
	Max int // tries after the first; 0: 4; negative: none

	// Check decides whether a request is tried again, in place of the default. It
	// is called only if the request's body and method let it be repeated at all,
	// with the response or the base transport's error, and by several goroutines at
	// once. What it adds to refusals (a 502, a lost connection) waits for
	// [Limits].MinBackoff, doubled with each try, and pauses no other request. It
	// must not read the response's body. nil: refusals are tried again.
	Check func(*http.Request, *http.Response, error) bool
}

const defaultRetries = 4

func (r *Retry) max() int {
	if r.Max == 0 {
		return defaultRetries
	}
	return max(r.Max, 0)
}

// triesAgain reports whether what came of an attempt is worth another one.
func (t *Transport) triesAgain(req *http.Request, out *outcome) bool {
	switch {
	case out.permit == nil, out.permit.origin == nil: // heed refused it, or steps aside
		return false
	case out.err == nil && !out.said.Refused && t.Retry.Check == nil: // nearly all
		return false
	case t.Retry.Max < 0, out.said.NoRetry, optionsOf(req.Context()).noRetry, req.Context().Err() != nil:
		return false
	case !replayable(req):
		return false
	case !idempotent(req) && (out.err != nil || out.resp.StatusCode != http.StatusTooManyRequests):
		return false // the server may have acted on it
	case t.Retry.Check == nil:
		return out.said.Refused
	}
	panicked := true
	defer func() {
		if panicked {
			out.drop()
		}
	}()
	again := t.Retry.Check(req, out.resp, out.err)
	panicked = false
	return again
}

// replayable reports whether req's body can be sent again.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// idempotent reports whether req can be repeated though it may have been
// acted on: as net/http decides it, and for PUT and DELETE too.
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

// tries is the further attempts at one request. It is the RoundTripper that
// go-retryablehttp sends through, for this request alone, and its CheckRetry.
type tries struct {
	t       *Transport
	req     *http.Request
	last    outcome       // of the latest attempt
	attempt int           // its number, from 1
	from    int           // that of the attempt handed over, which is known to be worth another one
	permit  *Permit       // for the next attempt; nil: none yet
	again   *http.Request // to send then
}

// tryAgain hands a request whose latest attempt, of that number, is over to
// go-retryablehttp, that attempt's outcome as its attempt 0. The requests and
// responses that go-retryablehttp and the http.Client inside it see are
// stand-ins: redirects, cookies, bodies and connections are none of their
// business.
func (t *Transport) tryAgain(req *http.Request, last outcome, attempt int) (*http.Response, error) {
	r := &tries{t: t, req: req, last: last, attempt: attempt, from: attempt}
	panicked := true
	defer func() {
		r.unused()
		if panicked {
			r.last.drop()
		}
	}()
	client := retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: r},
		RetryMax:     t.Retry.max(),
		CheckRetry:   r.next,
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return 0 }, // next has waited
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	standIn := &http.Request{Method: http.MethodGet, URL: standInURL, Header: http.Header{}}
	// What it returns is a stand-in too. r.last is the truth.
	_, _ = client.Do(&retryablehttp.Request{Request: standIn.WithContext(req.Context())})
	if r.permit != nil { // the context ended between leave and the attempt, or the body could not be replayed
		r.giveUp()
	}
	panicked = false
	return r.last.resp, r.last.err
}

var standInURL = &url.URL{Scheme: "http", Host: "heed.invalid"}

// next decides whether there is another attempt, and waits for leave to make
// it with the refusal in hand: where it cannot start in time, or for whatever
// other reason is not to be made, the refusal goes back whole.
func (r *tries) next(ctx context.Context, _ *http.Response, _ error) (bool, error) {
	if r.attempt > r.t.Retry.max() || r.attempt > r.from && !r.t.triesAgain(r.req, &r.last) {
		return false, nil
	}
	sent := r.last.permit
	sent.Release() // the next attempt must not wait for the slot of this one
	a := r.last.another(r.attempt + 1)
	a.notBefore = r.notBefore()
	var err error
	if r.permit, err = r.t.registry().acquire(ctx, r.req, a); err != nil {
		r.giveUp()
		return false, nil
	}
	r.again, err = replay(r.req)
	return err == nil && ctx.Err() == nil, nil // go-retryablehttp might not see that it ended just now
}

// RoundTrip makes the next attempt, with the permit that next has waited for.
func (r *tries) RoundTrip(*http.Request) (*http.Response, error) {
	if pm := r.permit; pm != nil { // else the first attempt, which is over
		r.attempt++
		r.last.discard()
		r.permit = nil // send's
		r.last = r.t.send(r.again, pm)
		if resp := r.last.resp; resp != nil && resp.Request == r.again {
			resp.Request = r.req
		}
	}
	if r.last.err != nil {
		return nil, r.last.err
	}
	return &http.Response{StatusCode: r.last.resp.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}, nil
}

// another is what the request asks for that is tried again after out.
func (out *outcome) another(attempt int) ask {
	pm := out.permit
	a := ask{attempt: attempt, number: pm.number, spent: pm.spent + pm.waited, budgets: pm.namedBudgets(), inLine: out.hold}
	if out.resp != nil {
		a.status = out.resp.StatusCode
	}
	return a
}

// notBefore is this request's own wait before it is tried again; zero where
// what it shares with others decides alone.
func (r *tries) notBefore() time.Time {
	pm, said := r.last.permit, &r.last.said
	if said.Refused {
		return pm.ownRetryAt()
	}
	l := pm.limits()
	wait := backoffWait(r.attempt, l.MinBackoff, l.MaxBackoff)
	if hint := min(said.RetryAfter, l.MaxRetryAfter); hint > 0 {
		wait = hint + pauseJitter(hint)
	}
	return time.Now().Add(wait)
}

// giveUp has the latest outcome go back, unless the request was cancelled.
func (r *tries) giveUp() {
	r.last.cancelledBy(r.req.Context())
}

// unused gives back what next got for an attempt that is not made.
func (r *tries) unused() {
	if r.permit == nil {
		return
	}
	defer r.permit.Cancel()
	if r.again != nil && r.again.Body != nil {
		r.again.Body.Close()
	}
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
