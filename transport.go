package heed

import (
	"context"
	"crypto/tls"
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
//
// Authentication that makes requests of its own goes outside: make the
// Transport the Base of an oauth2.Transport, not the other way round. With
// [Limits.MaxConcurrent] or MinPause the other way round can hang: a request holds
// the last slot while another one, made on its behalf through the same Registry to
// the same origin, waits for one until its context ends. A warning is logged if
// the context of the second derives from that of the first.
//
// A Transport can be http.DefaultTransport itself, for the whole program: while
// Base is nil, it then sends through the one that the program began with. If
// http.DefaultTransport is a RoundTripper that wraps the Transport, Base must
// be set, else it sends to itself and requests hang. Some libraries panic if
// http.DefaultTransport is no *http.Transport.
//
// A Transport may be used by any number of goroutines. Its fields must not be
// changed after first use, and it must not be copied.
type Transport struct {
	Base     http.RoundTripper // sends the requests; nil: http.DefaultTransport
	Registry *Registry         // knows the limits; nil: one of its own, with the defaults of Config. Share one to share limits
	Retry    Retry             // zero: refusals (429, 503 and what a dialect adds) are tried again up to four times

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

// builtin is the http.DefaultTransport that the program began with.
var builtin = http.DefaultTransport

func (t *Transport) base() http.RoundTripper {
	switch {
	case t.Base != nil:
		return t.Base
	case http.DefaultTransport == http.RoundTripper(t): // it paces all of the program, and must not send through itself
		return builtin
	}
	return http.DefaultTransport
}

func (t *Transport) registry() *Registry {
	if t.Registry != nil {
		return t.Registry
	}
	return &t.own
}

// RoundTrip sends one request as soon as its origin's limits allow, and sends it
// again if it was refused and [Retry] says so. Its error is
//
//   - a [*LimitError] if the request was not sent because of a limit, also if its
//     deadline came while it waited;
//   - [ErrClosed], as it is, if the Registry was closed;
//   - context.Cause if its context was cancelled while it waited;
//   - that of a shared [Ledger], wrapped;
//   - else the base transport's, as it is.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if optionsOf(req.Context()).bypass {
		return t.base().RoundTrip(req)
	}
	first := t.try(req)
	if !t.triesAgain(req, &first) {
		return first.resp, first.err
	}
	return t.tryAgain(req, first, 1)
}

// try waits for leave to send req and sends it.
func (t *Transport) try(req *http.Request) outcome {
	var pm *Permit
	defer func() {
		if pm == nil && req.Body != nil { // not sent
			req.Body.Close() // as the contract of RoundTripper asks
		}
	}()
	pm, err := t.registry().acquire(req.Context(), req, ask{attempt: 1})
	if err != nil {
		return outcome{err: err}
	}
	return t.send(req, pm)
}

// An outcome is what became of one attempt: a response or an error.
type outcome struct {
	resp   *http.Response
	err    error
	permit *Permit // under which it was sent; nil: it was not
	said   Announcement
}

// cancelledBy has the cause of a request's cancellation take the place of its answer, if it was cancelled.
func (out *outcome) cancelledBy(ctx context.Context) {
	if errors.Is(ctx.Err(), context.Canceled) {
		closeBody(out.resp)
		*out = outcome{err: context.Cause(ctx), permit: out.permit}
	}
}

var errNoAnswer = errors.New("heed: base transport returned neither a response nor an error")

// send sends req under a permit, which lasts until the response's body is over.
func (t *Transport) send(req *http.Request, pm *Permit) outcome {
	out := outcome{permit: pm}
	panicked := true // the base, or the user's OnEvent
	defer func() {
		if panicked {
			out.drop()
		}
	}()
	if tr := optionsOf(req.Context()).trace; tr != nil {
		tr.Attempts++
	}
	sent := pm.outgoing(req)
	pm.goes()
	out.resp, out.err = t.base().RoundTrip(sent)
	if out.resp == nil && out.err == nil {
		out.err = errNoAnswer
	}
	if out.err == nil {
		if r := out.resp.Request; r == nil || r == sent { // else the base has sent one of its own
			out.resp.Request = req
		}
		if pm.origin != nil { // else heed steps aside
			out.said = pm.Observe(out.resp)
			pm.follow(out.resp)
		}
	} else {
		closeBody(out.resp) // one of response and error
		out.resp = nil
		if neverSent(out.err) {
			pm.Cancel()
		} else {
			pm.lapse()
			pm.Release()
		}
	}
	panicked = false
	return out
}

// drop lets go of all that an outcome holds.
func (out *outcome) drop() {
	defer out.permit.Release()
	closeBody(out.resp)
}

func closeBody(resp *http.Response) {
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
}

// neverSent reports whether an error shows that nothing reached the server.
func neverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect") {
		return true
	}
	return errors.As(err, &dns) || errors.As(err, &certificate) || errors.As(err, &record) && record.Conn != nil // in a handshake
}
