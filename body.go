package heed

import (
	"bytes"
	"io"
	"net/http"
)

// follow ends the permit when the response is over: when its body is read to
// the end or closed, at once where there is none.
func (pm *Permit) follow(resp *http.Response) {
	if pm.p == nil {
		return
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified ||
		resp.Request != nil && resp.Request.Method == http.MethodHead {
		pm.Release()
		return
	}
	pm.body, pm.length = resp.Body, resp.ContentLength
	if _, ok := resp.Body.(io.Writer); ok { // a connection after 101 Switching Protocols
		resp.Body = (*followedPipe)(pm)
	} else {
		resp.Body = (*followedBody)(pm)
	}
}

// A followedBody is a response's body that ends its permit.
type followedBody Permit

func (b *followedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 && b.counts {
		b.content.Add(int64(n))
	}
	if err != nil {
		(*Permit)(b).Release()
	}
	return n, err
}

func (b *followedBody) Close() error {
	err := b.body.Close()
	(*Permit)(b).Release()
	return err
}

// A followedPipe is a followedBody that can be written to. Its permit lasts
// until it is closed, for the connection does.
type followedPipe Permit

func (b *followedPipe) Read(p []byte) (int, error)  { return b.body.Read(p) }
func (b *followedPipe) Write(p []byte) (int, error) { return b.body.(io.Writer).Write(p) }
func (b *followedPipe) Close() error                { return (*followedBody)(b).Close() }

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

// refusalBody is how much of a refusal's body is read ahead, so that a wait
// does not pin its connection.
const refusalBody = 16 << 10

// hold reads ahead what is bounded of a refusal's body, which reads as before.
// A body that is read to its end that way no longer holds its connection or
// its permit.
func hold(resp *http.Response) {
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		return
	}
	buf, err := io.ReadAll(io.LimitReader(resp.Body, refusalBody))
	if err == nil && len(buf) < refusalBody {
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(buf))
		return
	}
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failed{err}
	}
	resp.Body = &heldBody{io.MultiReader(bytes.NewReader(buf), rest), resp.Body}
}

// A heldBody is a body whose beginning has been read ahead.
type heldBody struct {
	io.Reader
	io.Closer
}

// failed is what is left of a body that could not be read.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
