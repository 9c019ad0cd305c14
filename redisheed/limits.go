package redisheed

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed"
)

// limits are what a question is about. Questions about the same share one.
type limits struct {
	list   []limit // configured
	heard  []limit // announced
	cost   heed.Cost
	iv, mp int64
	mc     int64
	pace   float64
	deaf   bool  // announced policies are not judged
	most   int64 // longest wait that a server can ask for; 0: any

	single bool  // nothing can be taken in advance
	bounds bool  // requests in flight are counted …
	whole  bool  // … over all of the origin
	window int64 // the shortest; 0: none
	grain  int64 // instants closer than this are as good as one
}

// countable is the largest quota that the scripts count to the unit: their numbers are doubles.
const countable = 1 << 53

// limitOf returns an announced policy as the scripts know it.
func limitOf(p *heed.Policy, unit byte) limit {
	return limit{id: idOf(p.Name, p.PartitionKey), unit: unit, quota: min(p.Quota, countable), window: micros(p.Window)}
}

// configured returns a policy of the user's as the scripts know it. The user may give several
// one name, or none: a third line of their IDs tells them apart. A window is one whatever its
// quota, so that what was used of it counts for each.
func configured(p *heed.Policy, unit byte) limit {
	l := limitOf(p, unit)
	l.burst = min(p.Burst, countable)
	l.id += fmt.Sprintf("\n%c %d", unit, l.window)
	if l.burst > 0 {
		l.id += fmt.Sprintf(" %d %d", l.quota, l.burst)
	}
	return l
}

// kinOf returns what the IDs of policies have in common of which one may have taken the place of
// another: unit, name and partition key.
func kinOf(id string) string { return id[:strings.LastIndexByte(id, '\n')+2] }

// limitsOf returns the limits of a question.
func limitsOf(q *heed.Question) *limits {
	m := &limits{cost: q.Cost, iv: micros(q.MinInterval), mp: micros(q.MinPause), mc: int64(q.MaxConcurrent), pace: q.Velocity, deaf: q.IgnoreHeaders, most: micros(q.MaxWait)}
	for _, p := range q.Policies {
		if u := unitOf(p.Unit); u != 0 {
			m.keepTo(configured(&p, u))
		}
	}
	for _, p := range q.Announced {
		if u := unitOf(p.Unit); u != 0 {
			m.heard = append(m.heard, limitOf(&p, u))
		}
	}
	return m
}

// keepTo adds a configured policy. Of two that are alike but for their quota the lower one holds.
func (m *limits) keepTo(l limit) {
	i := slices.IndexFunc(m.list, func(x limit) bool { return x.id == l.id })
	if i < 0 {
		m.list = append(m.list, l)
		return
	}
	m.list[i].quota = min(m.list[i].quota, l.quota)
}

// put has a question ask for them.
func (m *limits) put(q *question) {
	q.Limits, q.Announced, q.MinInterval, q.MinPause, q.MaxInFlight, q.Velocity = m.list, m.heard, m.iv, m.mp, m.mc, m.pace
	q.Deaf, q.Most = m.deaf, m.most
	q.Requests, q.Bytes, q.Concurrent = m.cost.Requests, m.cost.Bytes, m.cost.Concurrent
}

// equal reports whether questions about m and about was are about the same.
func (m *limits) equal(was *limits) bool {
	return was != nil && was.cost == m.cost && was.iv == m.iv && was.mp == m.mp && was.mc == m.mc && was.pace == m.pace && was.deaf == m.deaf && was.most == m.most && slices.Equal(was.list, m.list) && slices.Equal(was.heard, m.heard)
}

// settle returns the limits that stand for all equal to m. What is in hand was taken of others.
func (b *book) settle(m *limits) *limits {
	if m.equal(b.limits) {
		return b.limits
	}
	if b.limits != nil {
		b.emptyHand(time.Now())
	}
	m.grain = 1
	m.whole = m.mc > 0 || m.mp > 0
	m.bounds = m.whole
	m.single = m.bounds || m.iv > 0
	for _, l := range m.list {
		m.consider(l.unit, l.quota, l.window)
	}
	for _, a := range b.known {
		m.consider(a.unit, a.quota, a.window)
	}
	b.limits = m
	return m
}

func (m *limits) consider(unit byte, quota, window int64) {
	if unit == 'c' {
		m.bounds, m.single = true, true
	}
	if window > 0 && (m.window == 0 || window < m.window) {
		m.window = window
		m.grain = 1
		if quota == 0 || quota > exactUnits {
			m.grain = max(window/400, 1)
		}
	}
}

// exactUnits is up to which quota every unit is remembered by itself.
const exactUnits = 100

func unitOf(u heed.Unit) byte {
	switch u {
	case "", heed.UnitRequests:
		return 'r'
	case heed.UnitContentBytes:
		return 'b'
	case heed.UnitConcurrentRequests:
		return 'c'
	}
	return 0
}

// idOf is what a policy is called in Redis: its name, and its partition key, which may be
// any bytes.
func idOf(name, key string) string {
	return name + "\n" + base64.RawStdEncoding.EncodeToString([]byte(key))
}

// decodeKey returns the partition key in what idOf has made.
func decodeKey(s string) (string, error) {
	b, err := base64.RawStdEncoding.DecodeString(s)
	return string(b), err
}
