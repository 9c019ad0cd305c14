package redisheed

import (
	"strings"
	"time"
)

// A window is the units in use, and when each comes back: one window after
// the instant it was in use last, rounded up to grains. It is the counterpart
// of the script's logs. Instants are microseconds of Redis's clock.
type window struct {
	unit   byte
	quota  int64
	length int64
	grain  int64
	at     []int64 // rising, in grains
	n      []int64
	used   int64
}

func newWindow(unit byte, quota, length int64) *window {
	return &window{unit: unit, quota: quota, length: length, grain: grain(quota, length)}
}

// grain is how finely a window remembers: as the script does.
func grain(quota, length int64) int64 {
	if quota > 0 && quota <= exactUnits {
		return (length + 99_999) / 100_000
	}
	return (length + 99) / 100
}

func (w *window) index(x int64) int64 { return (x + w.grain - 1) / w.grain }

func (w *window) expire(now int64) {
	k := 0
	for k < len(w.at) && w.at[k]*w.grain+w.length <= now {
		w.used -= w.n[k]
		k++
	}
	if k > 0 {
		w.at = append(w.at[:0], w.at[k:]...)
		w.n = append(w.n[:0], w.n[k:]...)
	}
}

func (w *window) add(x, n int64) {
	if n <= 0 {
		return
	}
	i, j := w.index(x), len(w.at)
	for j > 0 && w.at[j-1] > i {
		j--
	}
	w.used += n
	if j > 0 && w.at[j-1] == i {
		w.n[j-1] += n
		return
	}
	w.at, w.n = append(w.at, 0), append(w.n, 0)
	copy(w.at[j+1:], w.at[j:])
	copy(w.n[j+1:], w.n[j:])
	w.at[j], w.n[j] = i, n
}

// remove takes back up to n units booked at x; it returns how many.
func (w *window) remove(x, n int64) int64 {
	i := w.index(x)
	for j := len(w.at) - 1; j >= 0 && w.at[j] >= i; j-- {
		if w.at[j] != i {
			continue
		}
		m := min(n, w.n[j])
		w.n[j] -= m
		w.used -= m
		if w.n[j] == 0 {
			w.at = append(w.at[:j], w.at[j+1:]...)
			w.n = append(w.n[:j], w.n[j+1:]...)
		}
		return m
	}
	return 0
}

// back returns the instant by which n more units have come back; false: there
// are not so many.
func (w *window) back(now, n int64) (int64, bool) {
	if n <= 0 {
		return now, true
	}
	for j := range w.at {
		if n -= w.n[j]; n <= 0 {
			return w.at[j]*w.grain + w.length, true
		}
	}
	return 0, false
}

// cost is what k requests that cost so much each take of the window.
func (w *window) cost(k, requests, bytes int64) int64 {
	n := requests
	if w.unit == 'b' {
		n = bytes
	}
	return k * min(n, w.quota)
}

// A past is the units that one process has in use, by the fields of the
// partition's key: what Redis has to be told where it has forgotten.
type past struct{ windows map[string]*window }

// any reports whether units are in use at now.
func (p *past) any(now int64) bool {
	in := false
	for field, w := range p.windows {
		if w.expire(now); w.used == 0 {
			delete(p.windows, field)
		}
		in = in || w.used > 0
	}
	return in
}

// add books k requests at x.
func (p *past) add(m *limits, seen []*announced, x, k int64) {
	if k == 0 {
		return
	}
	for _, l := range m.list {
		if l.unit != 'c' && l.burst == 0 {
			w := p.window("w:"+l.id, l.unit, l.quota, l.window)
			w.expire(x - l.window)
			w.add(x, w.cost(k, m.cost.Requests, m.cost.Bytes))
		}
	}
	for _, a := range seen {
		if a.unit != 'c' && a.quota > 0 && a.window > 0 {
			w := p.window("a:"+a.id, a.unit, a.quota, a.window)
			w.expire(x - a.window)
			w.add(x, w.cost(k, m.cost.Requests, m.cost.Bytes))
		}
	}
}

func (p *past) window(field string, unit byte, quota, length int64) *window {
	w := p.windows[field]
	if w != nil && w.quota == quota && w.length == length {
		return w
	}
	was := w
	if was == nil {
		was = p.before(field)
	}
	w = newWindow(unit, quota, length)
	if was != nil {
		for i := range was.at {
			w.add(was.at[i]*was.grain, was.n[i])
		}
	}
	if p.windows == nil {
		p.windows = make(map[string]*window)
	}
	p.windows[field] = w
	return w
}

// before returns the longest window of those that a configured policy may have taken the place of;
// nil: there is none.
func (p *past) before(field string) (was *window) {
	if !strings.HasPrefix(field, "w:") {
		return nil
	}
	for f, w := range p.windows {
		if strings.HasPrefix(f, "w:") && kinOf(f) == kinOf(field) && (was == nil || w.length > was.length) {
			was = w
		}
	}
	return was
}

// move books k requests at y that were booked at x; y = 0: they were not
// sent. really is how many bytes they had.
func (p *past) move(m move, k, really int64) {
	for _, w := range p.windows {
		all := w.cost(k, m.requests, m.bytes)
		n := w.remove(m.x, all)
		if m.y == 0 {
			continue
		}
		if m.x+w.length <= m.y {
			n = all
		}
		if w.unit == 'b' {
			n = really
		}
		w.add(m.y, n)
	}
}

// shift moves all instants.
func (p *past) shift(by int64) {
	for _, w := range p.windows {
		for i := range w.at {
			w.at[i] = w.index(w.at[i]*w.grain + by)
		}
	}
}

// A clock tells what time it is on Redis's clock: never too early, and too
// late by no more than the question took that it was read with.
type clock struct {
	wall func(time.Time) int64 // the time before Redis has told it: of use only to this process
	base int64
	at   time.Time
	took time.Duration
}

// set reads the clock off a reply; it returns by how much later, at the most, it says what was
// told before: where there was no reply yet, or it was set.
func (c *clock) set(r *reply) (by int64) {
	switch {
	case c.at.IsZero():
		by = r.now - c.wall(r.sent)
	case c.wasSet(r):
		by = r.now - c.now(r.sent) + micros(c.took)
	}
	took := r.came.Sub(r.sent)
	if c.at.IsZero() || took <= c.took || r.came.Sub(c.at) > 10*time.Second || c.wasSet(r) {
		c.base, c.at, c.took = r.now, r.sent, took
	}
	return by
}

// wasSet reports whether the clock says in r what it cannot have come to by
// itself: it was set, or Redis is on another machine now.
func (c *clock) wasSet(r *reply) bool {
	return r.now < c.now(r.sent)-micros(c.took) || r.now > c.now(r.came)
}

func (c *clock) now(t time.Time) int64 {
	if c.at.IsZero() {
		return c.wall(t)
	}
	return c.base + micros(t.Sub(c.at))
}
