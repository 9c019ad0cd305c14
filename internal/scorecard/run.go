package scorecard

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// Play runs the scenario with a client in a bubble of virtual time.
func (s Scenario) Play(c Client, seed uint64) Result {
	v := s.watch(c, seed)
	return v.result(c)
}

// watch is Play without measuring.
func (s Scenario) watch(c Client, seed uint64) (v view) {
	bubble(func() { v = s.play(c, seed) })
	return v
}

// bubble runs f in virtual time, in tests and outside of them. It returns when
// f and all goroutines that f started have ended.
func bubble(f func()) {
	// A bubble wants a test to belong to, though it asks nothing of it but to
	// take note of a failure.
	synctest.Test(new(testing.T), func(*testing.T) { f() })
}

// play is watch within the bubble.
func (s Scenario) play(c Client, seed uint64) view {
	time.Sleep(s.offset(seed))
	config := s.config(seed)
	config.Record = true
	origin := heedtest.NewOrigin(config)
	began := origin.Began()
	end := began.Add(s.length())

	p := &play{scenario: s, origin: origin, end: end}
	var closers []func()
	var all sync.WaitGroup
	for range max(1, s.Processes) {
		n := &network{origin: origin}
		rt, done := c.New(s, n)
		p.networks = append(p.networks, n)
		closers = append(closers, done)
		if s.Burst {
			all.Go(func() { p.burst(rt, s.rng(seed, 6)) })
			break
		}
		for range s.Goroutines {
			all.Go(func() { p.loop(rt) })
		}
	}
	all.Go(func() {
		for _, at := range s.foreign(seed) {
			time.Sleep(time.Until(began.Add(at)))
			origin.Take(1)
		}
	})
	all.Go(func() { s.disturb(seed, origin, began) })
	// What arrives at the very end belongs to the next window.
	time.Sleep(time.Until(end) - 1)
	v := view{scenario: s, seed: seed, began: began, tally: origin.Tally(), events: origin.Events()}
	for _, n := range p.networks {
		v.accepted = append(v.accepted, float64(n.accepted.Load()))
		v.earlyByProcess += n.early.Load()
		v.standingByProcess += n.standing.Load()
	}
	p.over.Store(true)
	for _, done := range closers {
		done()
	}
	all.Wait()
	v.waits = p.waits
	return v
}

// A play is a run in progress.
type play struct {
	scenario Scenario
	origin   *heedtest.Origin
	end      time.Time
	networks []*network
	over     atomic.Bool

	mu    sync.Mutex
	waits []time.Duration
}

// onTheWay is the key of the time a goroutine's request has spent beyond the
// client.
type onTheWay struct{}

// A network is the origin as the clients of one process reach it.
type network struct {
	origin   *heedtest.Origin
	accepted atomic.Int64
	early    atomic.Int64 // starts before what answers to this process had named …
	standing atomic.Int64 // … and the newest of them still did

	mu        sync.Mutex
	named     time.Time // nothing should start before
	pending   time.Time // the same by answers that came at pendingAt
	pendingAt time.Time
	latest    time.Time // what the answer to the latest request named …
	latestOf  time.Time // … and when that request started
}

// tooEarly reports whether a request that starts now does so before an instant
// that answers had named, and whether the newest of those answers still does. An
// answer that comes at this very instant cannot have been heeded.
func (n *network) tooEarly(now time.Time) (early, standing bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	early = now.Before(n.named) || now.After(n.pendingAt) && now.Before(n.pending)
	return early, early && now.Before(n.latest)
}

// name notes what the answer that comes now to a request that began then asks for.
func (n *network) name(now, began time.Time, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !began.Before(n.latestOf) {
		n.latest, n.latestOf = now.Add(after), began
	}
	if after <= 0 {
		return
	}
	if now.After(n.pendingAt) {
		if n.pending.After(n.named) {
			n.named = n.pending
		}
		n.pending, n.pendingAt = now, now
	}
	if until := now.Add(after); until.After(n.pending) {
		n.pending = until
	}
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	early, standing := n.tooEarly(began)
	resp, err := n.origin.RoundTrip(req)
	if spent, ok := req.Context().Value(onTheWay{}).(*time.Duration); ok {
		*spent += time.Since(began)
	}
	if err != nil {
		return nil, err
	}
	if early {
		n.early.Add(1)
	}
	if standing {
		n.standing.Add(1)
	}
	if resp.StatusCode == http.StatusOK {
		n.accepted.Add(1)
	}
	n.name(time.Now(), began, asked(resp.Header))
	return resp, nil
}

// asked returns for how long an answer in the fields of the IETF asks to start
// nothing.
func asked(h http.Header) (after time.Duration) {
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil {
		return time.Duration(s) * time.Second
	}
	for item := range strings.SplitSeq(h.Get("RateLimit"), ",") {
		if _, t, ok := strings.Cut(item, ";r=0;t="); ok {
			if s, err := strconv.Atoi(t); err == nil {
				after = max(after, time.Duration(s)*time.Second)
			}
		}
	}
	return after
}

// loop sends one request after the other until the run is over.
func (p *play) loop(rt http.RoundTripper) {
	var waits []time.Duration
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waits = append(p.waits, waits...)
	}()
	for time.Now().Before(p.end) {
		began := time.Now()
		wait, ok := request(rt)
		switch {
		case ok:
			waits = append(waits, wait)
		case p.over.Load() || time.Since(began) == 0:
			return // a client that gives up at once would do so for ever
		}
	}
}

// burst sends all requests at once to an origin that the client has met, some
// time into a window of which others have used up all but a twentieth.
func (p *play) burst(rt http.RoundTripper, rng *rand.Rand) {
	request(rt)
	q := p.scenario.Quota
	time.Sleep(time.Duration((0.1 + 0.8*rng.Float64()) * float64(q.Window)))
	tally := p.origin.Tally()
	p.origin.Take(q.Units*19/20 - tally.Accepted - 1)
	request(rt) // whose answer says that a twentieth is left
	var all sync.WaitGroup
	for range p.scenario.Goroutines {
		all.Go(func() {
			wait, ok := request(rt)
			p.mu.Lock()
			defer p.mu.Unlock()
			if ok {
				p.waits = append(p.waits, wait)
			}
		})
	}
	all.Wait()
}

// request sends one request and returns how long it was held back; false where
// there was no answer.
func request(rt http.RoundTripper) (wait time.Duration, ok bool) {
	began := time.Now()
	spent := new(time.Duration)
	req := &http.Request{Method: http.MethodGet, URL: target, Header: http.Header{}}
	resp, err := rt.RoundTrip(req.WithContext(context.WithValue(context.Background(), onTheWay{}, spent)))
	if err != nil {
		return 0, false
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return time.Since(began) - *spent, true
}

var target = &url.URL{Scheme: "http", Host: "origin.test", Path: "/"}

// disturb makes the scenario's changes when they are due.
func (s Scenario) disturb(seed uint64, origin *heedtest.Origin, began time.Time) {
	for _, ch := range s.changes(seed) {
		time.Sleep(time.Until(began.Add(ch.At)))
		if ch.Policies != nil {
			origin.SetPolicies(ch.Policies...)
		}
		for ch.Drain && origin.WouldAccept("", time.Now()) {
			origin.Take(1)
		}
		if ch.Outage > 0 {
			origin.Outage(time.Now().Add(ch.Outage), 0, ch.RetryAfter)
		}
	}
}
