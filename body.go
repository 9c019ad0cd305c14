package heed

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// holderKey is under what a request's context names the permit it was sent
// with, where slots can run out.
type holderKey struct{}

// outgoing returns the request to hand to the base: req itself, save where
// bytes have to be counted or a request made on its behalf could wait for
// the slot it holds.
func (pm *Permit) outgoing(req *http.Request) *http.Request {
	if pm.counts {
		pm.watched = true
	}
	count := pm.counts && req.Body != nil && req.Body != http.NoBody
	if !count && !pm.slots {
		return req
	}
	ctx := req.Context()
	if pm.slots {
		ctx = context.WithValue(ctx, holderKey{}, pm)
	}
	req = req.WithContext(ctx)
	if count {
		req.Body = &countedBody{req.Body, pm}
		if again := req.GetBody; again != nil { // a connection that turns out closed
			req.GetBody = func() (io.ReadCloser, error) {
				body, err := again()
				if err != nil {
					return nil, err
				}
				return &countedBody{body, pm}, nil
			}
		}
	}
	return req
}

// A countedBody is a request's body whose bytes count.
type countedBody struct {
	io.ReadCloser
	pm *Permit
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pm.content.Add(int64(n))
	return n, err
}

// follow ends the permit when the response is over: when its body is read to
// the end or closed, at once where there is none.
func (pm *Permit) follow(resp *http.Response) {
	switch {
	case isEmpty(resp):
		pm.Release()
	case resp.StatusCode == http.StatusSwitchingProtocols:
		pm.body = resp.Body
		if _, ok := resp.Body.(io.Writer); ok {
			resp.Body = (*followedPipe)(pm)
		} else {
			resp.Body = (*followedBody)(pm)
		}
	default:
		pm.body = resp.Body
		if pm.counts {
			pm.unread.Store(min(resp.ContentLength, mostClaimed))
		}
		if o := pm.origin; !pm.looked.Load() && (o.bodies != nil || o.reg.config.Origin != nil) {
			pm.lookOn(resp)
		}
		resp.Body = (*followedBody)(pm)
	}
}

// isEmpty reports whether a response has no body that anyone has to close. Over HTTP/2 such a one is
// not [http.NoBody], and known by its length.
func isEmpty(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusNoContent, http.StatusNotModified:
		return true
	}
	return resp.Body == nil || resp.Body == http.NoBody || resp.Request.Method == http.MethodHead || resp.ContentLength == 0 && resp.ProtoMajor >= 2
}

// mostClaimed bounds how many bytes a response is believed to hold.
const mostClaimed = 1 << 40

// A followedBody is a response's body that ends its permit.
type followedBody Permit

func (b *followedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if b.counts {
		b.counted(int64(n), err)
	}
	if b.look != nil {
		b.look.see((*Permit)(b), p[:n], err != nil)
	}
	if err != nil {
		if err != io.EOF {
			(*Permit)(b).lapse()
		}
		(*Permit)(b).Release()
	}
	return n, err
}

// counted counts what has been read.
func (b *followedBody) counted(n int64, err error) {
	b.content.Add(n)
	switch unread := b.unread.Load(); {
	case err == io.EOF:
		b.unread.Store(0)
	case unread >= 0:
		b.unread.Store(max(unread-n, 0))
	}
}

func (b *followedBody) Close() (err error) {
	defer (*Permit)(b).Release()
	defer func() { err = b.body.Close() }() // also where a function of the user's panics
	if b.look != nil {
		b.look.see((*Permit)(b), nil, true)
	}
	return nil
}

// A followedPipe is the body of a 101 Switching Protocols: the connection. Its
// permit lasts until it is closed.
type followedPipe Permit

func (b *followedPipe) Read(p []byte) (int, error)  { return b.body.Read(p) }
func (b *followedPipe) Write(p []byte) (int, error) { return b.body.(io.Writer).Write(p) }
func (b *followedPipe) Close() error                { return (*followedBody)(b).Close() }

// CloseWrite ends one direction of the connection, where it can be.
func (b *followedPipe) CloseWrite() error {
	if c, ok := b.body.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return fmt.Errorf("heed: CloseWrite: %w", http.ErrNotSupported)
}
