package scorecard

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// Play runs the scenario with a client in a bubble of virtual time.
func (s Scenario) Play(c Client, seed uint64) (r Result) {
	bubble(func() { r = s.play(c, seed) })
	return r
}

// bubble runs f in virtual time, in tests and outside of them. It returns when
// f and all goroutines that f started have ended.
func bubble(f func()) {
	// A bubble wants a test to belong to, though it asks nothing of it but to
	// take note of a failure.
	synctest.Test(new(testing.T), func(*testing.T) { f() })
}

// play is Play within the bubble.
func (s Scenario) play(c Client, seed uint64) Result {
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
		rt, done := c.New(s, roundTripper(p.network))
		closers = append(closers, done)
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
	all.Go(func() { s.disturb(origin, began) })
	// What arrives at the very end belongs to the next window.
	time.Sleep(time.Until(end) - 1)
	tally, events := origin.Tally(), origin.Events()
	for _, done := range closers {
		done()
	}
	all.Wait()
	return s.measure(c, seed, began, tally, events, p.waits)
}

// A play is a run in progress.
type play struct {
	scenario Scenario
	origin   *heedtest.Origin
	end      time.Time

	mu    sync.Mutex
	waits []time.Duration
}

// onTheWay is the key of the time a goroutine's request has spent beyond the
// client.
type onTheWay struct{}

// network is the origin as clients reach it.
func (p *play) network(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := p.origin.RoundTrip(req)
	if spent, ok := req.Context().Value(onTheWay{}).(*time.Duration); ok {
		*spent += time.Since(began)
	}
	return resp, err
}

// loop sends one request after the other until the run is over.
func (p *play) loop(rt http.RoundTripper) {
	spent := new(time.Duration)
	ctx := context.WithValue(context.Background(), onTheWay{}, spent)
	var waits []time.Duration
	for {
		began := time.Now()
		if !began.Before(p.end) {
			break
		}
		*spent = 0
		req := (&http.Request{Method: http.MethodGet, URL: target, Header: http.Header{}}).WithContext(ctx)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			break // the run is over
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		waits = append(waits, time.Since(began)-*spent)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = append(p.waits, waits...)
}

var target = &url.URL{Scheme: "http", Host: "origin.test", Path: "/"}

// disturb makes the scenario's changes when they are due.
func (s Scenario) disturb(origin *heedtest.Origin, began time.Time) {
	for _, ch := range s.Changes {
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
