package heed

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// Transport is an [http.RoundTripper] that keeps to the rate limits of every
// origin it talks to. It holds each request back until it may go, sends it
// through Base, learns from the answer, and where the answer is a refusal
// holds all that share the refused quota before it tries again.
//
// It obeys what servers announce (draft-ietf-httpapi-ratelimit-headers, its
// predecessors, vendors' dialects, Retry-After), what the user sets in
// [Limits], and what refusals reveal. A request that cannot start in time is
// not sent: the error is a [*LimitError]. A refusal that is not tried again
// comes back as the response it is.
//
// The zero value is ready. Most programs wrap the transport of one
// [http.Client] and share it; [Transport.Client] does that in one call.
// Authentication that makes requests of its own goes outside: the Base of an
// oauth2.Transport is the Transport, not the other way round.
//
// A Transport may be used by any number of goroutines. Its fields must not be
// changed after first use, and it must not be copied.
type Transport struct {
	Base     http.RoundTripper // sends the requests; nil: http.DefaultTransport
	Registry *Registry         // nil: one of its own, with the defaults; share one to share limits
	Retry    Retry             // zero: 429 and 503 up to four times

	own Registry
}

// Client returns an http.Client that uses t.
func (t *Transport) Client() *http.Client { return &http.Client{Transport: t} }

// CloseIdleConnections closes the idle connections of the base transport.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

func (t *Transport) registry() *Registry {
	if t.Registry != nil {
		return t.Registry
	}
	return &t.own
}

// RoundTrip sends one request as soon as its origin's limits allow, and again
// where it was refused and [Retry] says so.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if optionsOf(req.Context()).bypass {
		return t.base().RoundTrip(req)
	}
	first := t.try(req, ask{attempt: 1})
	if !t.triesAgain(req, &first) {
		return first.resp, first.err
	}
	return t.tryAgain(req, first)
}

// An outcome is what became of one attempt.
type outcome struct {
	resp   *http.Response
	err    error
	permit *Permit // under which it was sent; nil: it was not
	said   Announcement
}

// try waits for leave to send req and sends it.
func (t *Transport) try(req *http.Request, a ask) outcome {
	pm, err := t.registry().acquire(req.Context(), req, a)
	if err != nil {
		if req.Body != nil {
			req.Body.Close() // as the contract of RoundTripper asks
		}
		return outcome{err: err}
	}
	return t.send(req, pm)
}

// send sends req under a permit, which lasts until the response's body is over.
func (t *Transport) send(req *http.Request, pm *Permit) (out outcome) {
	out.permit = pm
	defer func() {
		if out.resp == nil && out.err == nil { // the base or the user's OnEvent panicked
			pm.Release()
		}
	}()
	if tr := optionsOf(req.Context()).trace; tr != nil {
		tr.Attempts++
	}
	resp, err := t.base().RoundTrip(pm.outgoing(req))
	if err != nil {
		if resp != nil && resp.Body != nil {
			resp.Body.Close() // one of response and error
		}
		if neverSent(err) {
			pm.Cancel()
		} else {
			pm.Release()
		}
		out.err = err
		return out
	}
	resp.Request = req
	out.said = pm.observe(resp)
	out.resp = resp
	pm.follow(resp)
	return out
}

// neverSent reports whether an error shows that nothing reached the server.
func neverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}

// holderKey is under what a request's context names the permit it was sent
// with, where slots can run out.
type holderKey struct{}

// outgoing returns the request to hand to the base: req itself, save where
// bytes have to be counted or a request made on its behalf could wait for
// the slot it holds.
func (pm *Permit) outgoing(req *http.Request) *http.Request {
	counts, slots := pm.needs()
	if slots {
		req = req.WithContext(context.WithValue(req.Context(), holderKey{}, pm))
	}
	if counts && req.Body != nil && req.Body != http.NoBody {
		if !slots {
			req = req.WithContext(req.Context())
		}
		req.Body = &countedBody{req.Body, pm}
	}
	return req
}

// observe is Observe, with the response closed where the user's OnEvent panics.
func (pm *Permit) observe(resp *http.Response) Announcement {
	told := false
	defer func() {
		if !told && resp.Body != nil {
			resp.Body.Close()
		}
	}()
	a := pm.Observe(resp)
	told = true
	return a
}
