package heed

import (
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// heldLen is how much of a refusal's body is read ahead, so that a wait
	// does not pin its connection.
	heldLen = 16 << 10

	// bodyPatience is how long the beginning of a refusal's body is waited for
	// where something depends on it.
	bodyPatience = time.Second
)

// An aheadBody is a response's body whose beginning is read ahead of its
// reader, who notices nothing of it.
type aheadBody struct {
	orig  io.ReadCloser
	began time.Time
	over  chan struct{} // closed once as much has been read ahead as is to be

	mu       sync.Mutex
	more     sync.Cond // head, err, done or closed have changed
	head     []byte    // read ahead and not yet by the reader
	err      error     // what ended it; nil: there may be more
	done     bool      // nothing more is read ahead
	panicked any       // what reading on panics with; nil: it does not
	closed   bool      // net/http lets Close be called while Read runs

	once sync.Once
	cerr error
}

// readAhead has up to n bytes of a body read ahead, by a goroutine that ends
// with that.
func readAhead(body io.ReadCloser, n int) *aheadBody {
	b := &aheadBody{orig: body, began: time.Now(), over: make(chan struct{})}
	b.more.L = &b.mu
	go b.fill(n)
	return b
}

// peekBody returns the beginning of a response's body, which can then be read
// as if nobody had looked; nil where it takes longer than most to come.
func peekBody(resp *http.Response, most time.Duration) []byte {
	if resp.Body == nil || resp.Body == http.NoBody {
		return nil
	}
	b := readAhead(resp.Body, maxProblemLen)
	resp.Body = b
	if !b.await(most) {
		return nil
	}
	return b.head
}

// fill reads up to n bytes ahead.
func (b *aheadBody) fill(n int) {
	defer close(b.over)
	defer func() {
		if v := recover(); v != nil { // which nobody could recover from here
			b.mu.Lock()
			b.panicked, b.done = v, true
			b.mu.Unlock()
			b.more.Broadcast()
		}
	}()
	part := make([]byte, min(n, 2<<10))
	for done := false; !done; {
		got, err := b.orig.Read(part[:min(n, len(part))])
		n -= got
		done = n <= 0 || err != nil
		b.mu.Lock()
		if !b.closed {
			b.head = append(b.head, part[:got]...)
		}
		b.err, b.done = err, done
		b.mu.Unlock()
		b.more.Broadcast()
	}
}

// await waits until as much has been read ahead as is to be, for no longer than
// most after that began. It reports whether that is so.
func (b *aheadBody) await(most time.Duration) bool {
	select {
	case <-b.over:
		return true
	default:
	}
	late := time.NewTimer(most - time.Since(b.began))
	defer late.Stop()
	select {
	case <-b.over:
		return true
	case <-late.C:
		return false
	}
}

func (b *aheadBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	for len(b.head) == 0 && b.err == nil && !b.done && !b.closed {
		b.more.Wait()
	}
	n, err, closed, v := copy(p, b.head), b.err, b.closed, b.panicked
	b.head = b.head[n:]
	b.mu.Unlock()
	switch {
	case closed:
		return 0, http.ErrBodyReadAfterClose
	case n > 0 || len(p) == 0:
		return n, nil
	case v != nil:
		panic(v)
	case err != nil:
		return 0, err
	}
	return b.orig.Read(p)
}

func (b *aheadBody) Close() error {
	b.mu.Lock()
	b.closed, b.head = true, nil
	b.mu.Unlock()
	b.more.Broadcast()
	b.once.Do(func() { b.cerr = b.orig.Close() })
	return b.cerr
}

// hold has the beginning of a refusal's body read ahead, which reads as
// before. A body of which nothing is left then gives back its connection.
func (out *outcome) hold() {
	pm := out.permit
	if out.resp == nil || pm.body == nil {
		return
	}
	if b, ok := pm.body.(*aheadBody); ok && !b.await(0) {
		return // it hangs already
	}
	pm.body = readAhead(pm.body, heldLen+1)
}

// discard lets go of a response that is not going back, and of its connection
// unharmed where little of its body is left, and comes soon.
func (out *outcome) discard() {
	if pm := out.permit; out.resp != nil && pm.body != nil {
		b, ok := pm.body.(*aheadBody)
		if !ok {
			b = readAhead(pm.body, heldLen+1)
			pm.body = b
		}
		if b.await(bodyPatience) {
			io.CopyN(io.Discard, out.resp.Body, heldLen+1) // for those who look on
		}
	}
	closeBody(out.resp)
}
