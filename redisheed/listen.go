package redisheed

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// A message is what one process publishes for the others.
type message struct {
	Kind      string `json:"k"` // pause, reset, ask, lost
	Client    string `json:"c"`
	Origin    string `json:"o"`
	Partition string `json:"p"` // "": all of the origin's
	D         int64  `json:"d"` // microseconds; -1: no longer
	Doubt     int    `json:"b"`
	Manual    int    `json:"m"`
	Resets    int64  `json:"r"`
}

// listen subscribes to what other processes publish, which takes as long as connecting
// does: nobody waits for it. l.mu is held.
func (l *Ledger) listen() {
	if l.stop != nil || l.closed || l.bad != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	l.stop, l.stopped = cancel, stopped
	go func() {
		defer close(stopped)
		sub := l.c.Subscribe(ctx, l.o.Prefix+":news")
		defer sub.Close()
		for events := sub.ChannelWithSubscriptions(); ; {
			select {
			case event, open := <-events:
				if !open { // for the client was closed
					return
				}
				l.hear(event)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// hear takes in what the subscription brings.
func (l *Ledger) hear(event any) {
	m, ok := event.(*redis.Message)
	if !ok { // it has begun, or begun again after the connection broke
		l.missed()
		return
	}
	var msg message
	if err := json.Unmarshal([]byte(m.Payload), &msg); err != nil {
		l.o.Logger.Warn("redisheed: a message that is none of ours", "channel", m.Channel, "error", err)
		return
	}
	if msg.Client != l.id {
		l.take1(&msg)
	}
}

// missed has those who wait ask anew, once: nobody knows what was published before.
func (l *Ledger) missed() {
	l.mu.Lock()
	l.seedDue = time.Time{}
	var news []heed.News
	for origin := range l.origins {
		news = append(news, heed.News{Origin: origin, Ask: true})
	}
	l.mu.Unlock()
	for _, n := range news {
		l.forgetAnswers(n.Origin)
	}
	l.tell(news)
}

// take1 takes in one message.
func (l *Ledger) take1(m *message) {
	books := l.of(m.Origin, m.Partition)
	news := heed.News{Origin: m.Origin, Partition: m.Partition}
	switch m.Kind {
	case "pause":
		if news.Pause = -1; m.D > 0 {
			news.Pause = time.Duration(m.D) * time.Microsecond
		}
		news.Doubt, news.Manual = m.Doubt == 1, m.Manual == 1
		for _, b := range books {
			b.wasPaused(news.Pause)
		}
	case "reset":
		news.Reset, news.Ask = true, true
		for _, b := range books {
			b.wasReset(m.Resets)
		}
	case "ask":
		news.Ask = true
		for _, b := range books {
			b.askAnew()
		}
	case "lost":
		for _, b := range books {
			b.wasLost()
		}
		return
	default:
		return
	}
	l.tell([]heed.News{news})
}

// tell tells the registries of this process.
func (l *Ledger) tell(news []heed.News) {
	if len(news) == 0 {
		return
	}
	l.mu.Lock()
	listeners := slices.Collect(maps.Values(l.listeners))
	l.mu.Unlock()
	for _, n := range news {
		for _, f := range listeners {
			f(n)
		}
	}
}

// wasPaused gives back what is in hand, or asks anew where a pause is over.
func (b *book) wasPaused(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if d > 0 {
		b.emptyHand(now)
	} else {
		b.until = time.Time{}
	}
	b.pump(now)
}

// wasReset forgets what was used before the origin was reset.
func (b *book) wasReset(resets int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resets < resets || b.birth == "" {
		b.forget(resets)
	}
	b.until = time.Time{}
	b.pump(time.Now())
}

// forget drops all that a reset drops.
func (b *book) forget(resets int64) {
	b.resets = resets
	b.hand, b.past, b.left = nil, past{}, -1
	b.report = report{rest: b.report.rest}
	b.unacked = nil
	clear(b.known)
	b.limits = nil
	b.until = time.Time{}
}

// askAnew forgets a refusal.
func (b *book) askAnew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
	b.pump(time.Now())
}

// wasLost tells a Redis that has forgotten what this process has in use.
func (b *book) wasLost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case !b.uses(now):
	case b.flying: // with a question that Redis may have answered before
		b.flushBy(now)
	default:
		b.fly(now, "tell")
	}
}

// cameLate takes in an answer that nobody waited for any more: the next question gives back
// what it grants.
func (b *book) cameLate(q *question, r *reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || r.status != granted || q.Flight != b.asked || q.Flight <= b.heard || r.birth != b.birth {
		return
	}
	now := time.Now()
	b.flushBy(now)
	b.arm(now)
}

// policy is an announced policy in heed's terms.
func (a *announced) policy() (heed.Policy, bool) {
	name, key, _ := strings.Cut(a.id, "\n")
	raw, err := decodeKey(key)
	if err != nil {
		return heed.Policy{}, false
	}
	u := heed.UnitRequests
	switch a.unit {
	case 'b':
		u = heed.UnitContentBytes
	case 'c':
		u = heed.UnitConcurrentRequests
	}
	return heed.Policy{Name: name, Quota: a.quota, Window: time.Duration(a.window) * time.Microsecond, Unit: u, PartitionKey: raw}, true
}

func nameOf(id string) string {
	name, _, _ := strings.Cut(id, "\n")
	return name
}
