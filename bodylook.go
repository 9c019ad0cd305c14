package heed

import (
	"net/http"
	"sync"
)

// A bodyLook looks on as the caller reads a body, for the dialects that state
// limits there. It never reads on its own.
type bodyLook struct {
	dialects []*Dialect
	status   int
	header   http.Header

	mu   sync.Mutex // a body can be closed while it is read
	head []byte
	done bool
}

// lookOn has the dialects read from resp's body get its beginning.
func (pm *Permit) lookOn(resp *http.Response) {
	o := pm.origin
	if dialects := o.reg.bodyDialects(o, resp.Request); len(dialects) > 0 {
		pm.look = &bodyLook{dialects: dialects, status: resp.StatusCode, header: resp.Header}
	}
}

// see takes in what was read. Once the body is over, or as much as the dialects
// are given has been seen, the permit learns what they make of it.
func (l *bodyLook) see(pm *Permit, part []byte, over bool) {
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		return
	}
	l.head = append(l.head, part[:min(len(part), heldLen-len(l.head))]...)
	l.done = over || len(l.head) == heldLen
	if !l.done {
		l.mu.Unlock()
		return
	}
	head := l.head
	l.head = nil
	l.mu.Unlock()
	if len(head) == 0 {
		return
	}
	var a Announcement
	if a.addBody(l.dialects, l.status, l.header, head) {
		pm.Learn(a)
	}
}
