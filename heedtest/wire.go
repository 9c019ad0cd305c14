package heedtest

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// filler is a body of n bytes.
func filler(n int64) io.Reader { return io.LimitReader(letters{}, n) }

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// countingBody is a request's body as the origin reads it.
type countingBody struct {
	io.ReadCloser
	n      int64
	err    error
	closed sync.Once
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err != nil {
		b.err = err
	}
	return n, err
}

func (b *countingBody) Close() error {
	var err error
	b.closed.Do(func() { err = b.ReadCloser.Close() })
	return err
}

// countingWriter is an answer as the handler writes it.
type countingWriter struct {
	http.ResponseWriter
	n       int64
	status  int
	deliver func(status int) // called once, with the status
}

func (w *countingWriter) announce() {
	if w.deliver != nil {
		w.deliver(w.status)
		w.deliver = nil
	}
}

func (w *countingWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if w.deliver != nil {
			w.status = status
		}
		w.announce()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.announce()
	n, err := w.ResponseWriter.Write(p)
	w.n += int64(n)
	return n, err
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// recorder is an answer as the RoundTripper collects it.
type recorder struct {
	header http.Header // the handler's
	sent   http.Header // as it was when the status was written; nil: not yet
	status int
	body   bytes.Buffer
	filler int64 // length of a body of no content, in place of body
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.sent != nil || status < 200 {
		return
	}
	r.status, r.sent = status, r.header.Clone()
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

func (r *recorder) response(req *http.Request) *http.Response {
	if r.sent == nil {
		r.sent = r.header
	}
	length := int64(r.body.Len()) + r.filler
	resp := &http.Response{
		Status: statusLine(r.status), StatusCode: r.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.sent, Body: http.NoBody, ContentLength: length, Request: req,
	}
	switch {
	case r.status == http.StatusNoContent, r.status == http.StatusNotModified:
		resp.ContentLength = 0
		return resp
	case r.sent["Content-Length"] == nil:
		r.sent["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	switch {
	case req.Method == http.MethodHead || length == 0:
	case r.filler > 0:
		resp.Body = io.NopCloser(filler(r.filler))
	default:
		resp.Body = io.NopCloser(&r.body)
	}
	return resp
}

func statusLine(status int) string {
	switch status {
	case http.StatusOK:
		return "200 OK"
	case http.StatusTooManyRequests:
		return "429 Too Many Requests"
	}
	line := strconv.Itoa(status)
	if text := http.StatusText(status); text != "" {
		line += " " + text
	}
	return line
}
