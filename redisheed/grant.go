package redisheed

import (
	"time"

	"github.com/heedhttp/heed"
)

// A grant is leave to send one request.
type grant struct {
	b     *book
	cost  heed.Cost
	x     int64 // the instant its units are booked at
	seen  []*announced
	most  int64 // longest wait an announcement can ask for
	bytes bool  // they are counted once its bodies are over

	start, before time.Time // where it was granted without Redis: when, and when the one before it on the origin was

	answered, over bool
	older, younger *grant // among those without an answer
}

var _ heed.Grant = (*grant)(nil)

// flights is the grants without an answer, oldest first.
type flights struct {
	oldest, youngest *grant
	n                int64
}

func (f *flights) add(g *grant) {
	g.older, g.younger = f.youngest, nil
	if f.youngest == nil {
		f.oldest = g
	} else {
		f.youngest.younger = g
	}
	f.youngest = g
	f.n++
}

func (f *flights) remove(g *grant) {
	f.n--
	if g.older == nil {
		f.oldest = g.younger
	} else {
		g.older.younger = g.younger
	}
	if g.younger == nil {
		f.youngest = g.older
	} else {
		g.younger.older = g.older
	}
	g.older, g.younger = nil, nil
}

// shift moves what they are booked at.
func (f *flights) shift(by int64) {
	for g := f.oldest; g != nil; g = g.younger {
		g.x += by
	}
}

// grant makes the grant for a whose units are booked at x; nil where they are
// used at once. counted: its slot is counted already.
func (b *book) grant(now time.Time, a *ask, x int64, seen []*announced, counted bool) *grant {
	if a.plain {
		b.usedUntil(now, a.limits.cost, x)
		return nil
	}
	if !counted {
		b.slots.take(b, a.limits.cost.Concurrent)
	}
	g := &grant{b: b, cost: a.limits.cost, x: x, seen: seen, most: micros(a.maxWait)}
	for _, l := range a.limits.list {
		g.bytes = g.bytes || l.unit == 'b'
	}
	for _, s := range seen {
		g.bytes = g.bytes || s.unit == 'b'
	}
	b.open.add(g)
	return g
}

// usedUntil says that the units of one request booked at x were in use until
// at; it returns what they are booked at then.
func (b *book) usedUntil(at time.Time, c heed.Cost, x int64) int64 {
	y := b.clock.now(at)
	slack := int64(1000)
	if b.limits != nil {
		g := b.limits.grain
		y = (y + g - 1) / g * g
		slack = max(slack, g)
	}
	if y <= x && x-y <= slack {
		return x
	}
	b.move(move{x, y, c.Requests, c.Bytes}, 1, c.Bytes)
	return y
}

// move has Redis told of a move.
func (b *book) move(m move, k, really int64) {
	b.past.move(m, k, really)
	if !b.alone.move(m, k, really) {
		b.report.move(m, k, really)
	}
}

// Heard implements [heed.Grant].
func (g *grant) Heard(h heed.Heard) {
	b := g.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if g.over && !g.answered {
		return
	}
	if h.Answered && !g.answered {
		g.settle(h.At, h.Free)
	}
	b.hearAnnouncement(now, g, &h)
	switch {
	case h.Pause > 0:
		doubt, whole := 0, 0
		if h.Doubt {
			doubt = 1
		}
		if h.Whole {
			whole = 1
		}
		b.report.rest = append(b.report.rest, happened{kind: "p", until: h.At.Add(h.Pause), whole: whole, doubt: doubt})
		b.emptyHand(now)
		b.flushBy(now)
	case h.Pause < 0:
		b.report.rest = append(b.report.rest, happened{kind: "w"})
		b.flushBy(now)
	}
	b.arm(now)
}

// settle says that the request was answered at an instant, or for free.
func (g *grant) settle(at time.Time, free bool) {
	b := g.b
	g.answered = true
	b.open.remove(g)
	c := g.cost
	if free {
		b.move(move{g.x, 0, c.Requests, c.Bytes}, 1, 0)
		b.flushBy(at.Add(b.patience()))
		g.cost.Bytes = 0
		return
	}
	if g.bytes {
		c.Bytes = 0 // not yet
	}
	y := b.usedUntil(at, c, g.x)
	if b.limits == nil || b.limits.window == 0 {
		return
	}
	window := time.Duration(b.limits.window) * time.Microsecond
	switch {
	case y > g.x: // else its units come back too soon
		b.flushBy(at.Add(window / 8))
	case y < g.x && b.clients > 1: // else others wait for them longer than they need
		b.flushBy(at.Add(window - window/4))
	}
}

// End implements [heed.Grant].
func (g *grant) End(sent bool, bytes int64) {
	b := g.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if g.over {
		return
	}
	g.over = true
	unsent := !g.answered && !sent
	if unsent {
		b.open.remove(g)
		b.move(move{g.x, 0, g.cost.Requests, g.cost.Bytes}, 1, 0)
		b.flushBy(now.Add(b.patience()))
		g.bytes = false
	} else if !g.answered {
		g.settle(now, false)
	}
	if g.bytes && g.cost.Bytes > 0 {
		if bytes < 0 {
			bytes = g.cost.Bytes
		}
		b.move(move{g.x, b.clock.now(now), 0, g.cost.Bytes}, 1, bytes)
	}
	b.slots.free(b, g.cost.Concurrent)
	if b.limits == nil || b.limits.bounds {
		d := 5 * time.Millisecond
		if b.waiting > 0 {
			d = 0
		}
		b.flushBy(now.Add(d))
	}
	switch {
	case unsent && !g.start.IsZero():
		b.slots.started(g.start, g.before)
	case !unsent && b.alone != nil:
		b.slots.ended(now)
	}
	b.arm(now)
}

// hearAnnouncement notes what an answer announced, for Redis.
func (b *book) hearAnnouncement(now time.Time, g *grant, h *heed.Heard) {
	a := &h.Announcement
	for _, s := range statements(g, h) {
		b.report.say(s.id, s.statement)
		known := b.known[s.id]
		switch {
		case s.remaining == 0 || s.refused == 1:
			b.emptyHand(now)
			b.flushBy(now)
		case known == nil:
			b.emptyHand(now) // what is in it was not taken of this policy
			b.flushBy(now.Add(5 * time.Millisecond))
		case s.quota >= 0 && known.quota != s.quota:
			b.flushBy(now.Add(5 * time.Millisecond))
		default:
			w := time.Second
			if known.window > 0 {
				w = time.Duration(known.window/4) * time.Microsecond
			}
			b.flushBy(now.Add(min(w, 5*time.Second)))
		}
	}
	if h.Pause == 0 && a.RetryAfter > 0 {
		for _, name := range a.Violated {
			for id := range b.known {
				if nameOf(id) == name {
					b.report.rest = append(b.report.rest, happened{kind: "x", id: id, until: h.At.Add(a.RetryAfter)})
					b.emptyHand(now)
					b.flushBy(now)
				}
			}
		}
	}
}

type named struct {
	id string
	statement
}

// statements turns an announcement into what is to be said of each policy.
func statements(g *grant, h *heed.Heard) []named {
	a := &h.Announcement
	var list []named
	find := func(id string) *named {
		for i := range list {
			if list[i].id == id {
				return &list[i]
			}
		}
		s := named{id, statement{unit: 'r', quota: -1, window: -1, remaining: -1, reset: -1, at: h.At, start: h.Start, n: g.cost.Requests, sent: -1, most: g.most}}
		if a.Refused {
			s.refused = 1
		}
		for _, seen := range g.seen {
			if seen.id == id {
				s.epoch, s.sent, s.used, s.unit = seen.epoch, seen.sent, seen.used, seen.unit
			}
		}
		list = append(list, s)
		return &list[len(list)-1]
	}
	for _, p := range a.Policies {
		u := unitOf(p.Unit)
		if u == 0 {
			continue
		}
		s := find(idOf(p.Name, p.PartitionKey))
		s.unit, s.quota, s.window = u, min(p.Quota, countable), micros(p.Window)
		if u == 'b' {
			s.n = g.cost.Bytes
		}
	}
	for _, l := range a.Limits {
		id := idOf(l.Policy, l.PartitionKey)
		if l.PartitionKey != "" && !g.knows(id) {
			id = idOf(l.Policy, "")
		}
		if l.Unit != "" && unitOf(l.Unit) == 0 {
			continue
		}
		s := find(id)
		if l.Unit != "" {
			s.unit = unitOf(l.Unit)
		}
		s.remaining = max(l.Remaining, -1)
		if l.Reset >= 0 {
			s.reset = micros(l.Reset)
		}
		s.resolution = micros(l.Resolution)
	}
	return list
}

func (g *grant) knows(id string) bool {
	for _, s := range g.seen {
		if s.id == id {
			return true
		}
	}
	return false
}
