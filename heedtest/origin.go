package heedtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Origin is a fake origin that enforces limits and announces them. It is an
// [http.Handler] and an [http.RoundTripper]; make one with [NewOrigin]. All its
// methods may be called by many goroutines at once, also from within the
// functions of its [Config] save Latency.
type Origin struct {
	config Config

	mu       sync.Mutex
	began    time.Time // when it was first used, for a clock that no one sets back
	began64  int64     // the same, in nanoseconds since the Unix epoch
	started  int64     // requests started, for Latency
	answers  int64     // answers stamped, for Every
	policies []*policyState
	header   string // the RateLimit-Policy field with all policies
	keys     map[string]*keyed
	sweepAt  int // number of keys at which to look for idle ones
	outage   outage
	date     dateCache
	tally    Tally
	events   []Event
	epoch    int // counts ResetTally, so that answers find their event
}

type outage struct {
	until      int64
	status     int
	retryAfter time.Duration
}

// NewOrigin returns an origin as described. It panics where the description
// makes no sense: an unknown name, a negative number, a policy without window.
func NewOrigin(c Config) *Origin {
	o := &Origin{config: c.withDefaults(), keys: map[string]*keyed{}, sweepAt: minSweep}
	o.setPolicies(0, o.config.Policies)
	return o
}

// RoundTrip implements [http.RoundTripper]. It honours the request's context,
// whose cause it returns; a request given up before it arrives uses nothing up.
// The body of an accepted request is read to its end, that of a refused one is
// closed unread.
func (o *Origin) RoundTrip(req *http.Request) (*http.Response, error) {
	body := &countingBody{ReadCloser: req.Body}
	if req.Body == nil {
		body.ReadCloser = http.NoBody
	}
	defer body.Close()
	if req.URL == nil {
		return nil, errors.New("heedtest: request without a URL")
	}

	ctx := req.Context()
	x := o.start(req)
	defer x.end()
	if err := x.travel(ctx); err != nil {
		return nil, err
	}
	answer := &recorder{header: x.header, status: x.status}
	switch {
	case !x.accepted:
		answer.body.WriteString(x.text)
	default:
		if err := sleep(ctx, o.config.Service); err != nil {
			return nil, err
		}
		if err := x.serve(ctx, req, body, answer); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, x.down); err != nil {
		return nil, err
	}
	x.deliver(answer.status)
	return answer.response(req), nil
}

// ServeHTTP implements [http.Handler]. All of [Config.Latency] passes here: the
// up half before the request counts as arrived, the down half before the answer
// is written. So the start that [Tally] judges by is the call of ServeHTTP, and
// the delivery is the moment the answer is written: over a real connection,
// requests already on their way when the answer was written are among those
// counted as early.
func (o *Origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	x := o.start(r)
	defer x.end()
	if x.travel(ctx) != nil {
		return
	}
	wait := x.down
	if x.accepted {
		wait += o.config.Service
	}
	if sleep(ctx, wait) != nil {
		return
	}
	header := w.Header()
	for name, values := range x.header {
		header[name] = values
	}
	if !x.accepted {
		header.Set("Content-Length", strconv.Itoa(len(x.text)))
		x.deliver(x.status)
		w.WriteHeader(x.status)
		if r.Method != http.MethodHead {
			io.WriteString(w, x.text)
		}
		return
	}

	body := &countingBody{ReadCloser: http.NoBody}
	if r.Body != nil {
		body.ReadCloser = r.Body
		r2 := *r
		r2.Body = body
		r = &r2
	}
	counted := &countingWriter{ResponseWriter: w, status: http.StatusOK, deliver: x.deliver}
	if o.config.Respond != nil {
		o.config.Respond(counted, r)
	} else {
		io.Copy(io.Discard, body)
		header.Set("Content-Length", strconv.FormatInt(o.config.BodySize, 10))
		counted.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			io.Copy(counted, filler(o.config.BodySize))
		}
	}
	counted.announce()
	x.settle(body.n + counted.n)
}

// serve reads the request and puts the answer into a.
func (x *exchange) serve(ctx context.Context, req *http.Request, body *countingBody, a *recorder) error {
	if body.ReadCloser != http.NoBody && ctx.Done() != nil {
		// A reader that hangs must not outlast the request.
		defer context.AfterFunc(ctx, func() { body.Close() })()
	}
	if respond := x.origin.config.Respond; respond != nil {
		served := *req
		served.Header = req.Header.Clone()
		served.Body = body
		served.RequestURI = req.URL.RequestURI()
		served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/1.1", 1, 1
		if served.Host == "" {
			served.Host = req.URL.Host
		}
		respond(a, &served)
		a.WriteHeader(http.StatusOK)
	} else {
		if req.Method != http.MethodHead {
			a.filler = x.origin.config.BodySize
		}
		if body.ReadCloser != http.NoBody {
			io.Copy(io.Discard, body)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if body.err != nil && body.err != io.EOF {
		return body.err // as a transport does whose upload breaks off
	}
	x.settle(body.n + int64(a.body.Len()) + a.filler)
	return nil
}

// Take uses up n units as a client of another kind would, without a request,
// and reports whether they were granted; if not, nothing is used up. It asks
// every policy of the key "" and charges those that count neither bytes nor
// requests in flight.
func (o *Origin) Take(n int64) bool { return o.TakeKey("", n) }

// TakeKey is Take for the quotas of a key.
func (o *Origin) TakeKey(key string, n int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	k := o.key(key, now)
	ok := false
	if now >= o.outage.until {
		v := k.judge(o, now, n)
		if ok = v.ok; ok {
			k.charge(o, now, n, 0, false)
		} else {
			k.refuse(o, now, n, v)
		}
	}
	if ok {
		o.tally.Foreign++
	} else {
		o.tally.ForeignRefused++
	}
	if o.config.Record {
		at := time.Duration(now - o.began64)
		o.events = append(o.events, Event{Key: key, Start: at, Arrival: at, Accepted: ok, Foreign: true})
	}
	return ok
}

// WouldAccept reports whether a request of cost 1 with this key would be
// accepted if it arrived at an instant and no other came before it. It uses
// nothing up. The instant should not lie in the past.
func (o *Origin) WouldAccept(key string, at time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	instant := o.instant(at)
	return o.earliest(key, instant) == instant
}

// Earliest returns the first instant, from a given one on, at which a request of
// cost 1 with this key would be accepted if no other came before it; the zero
// time if time alone will not free a unit, as with Concurrency.
func (o *Origin) Earliest(key string, from time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	instant := o.instant(from)
	first := o.earliest(key, instant)
	if first == never {
		return time.Time{}
	}
	return from.Add(time.Duration(first - instant))
}

func (o *Origin) earliest(key string, from int64) int64 {
	k := o.keys[key]
	if k == nil {
		k = o.newKeyed(from)
	}
	first := max(from, k.blocked, o.outage.until)
	for _, l := range k.limiters {
		// What frees a unit is time, so a later instant is as good: the latest
		// of all waits suits every policy.
		w := l.wait(from, 1)
		if w == never {
			return never
		}
		first = max(first, from+w)
	}
	return first
}

// SetPolicies changes the limits from now on. A policy of the same name and
// algorithm as before keeps count of what was used; others start afresh. It
// panics like [NewOrigin].
func (o *Origin) SetPolicies(policies ...Policy) {
	policies = o.config.complete(policies)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setPolicies(o.now(), policies)
}

// Outage makes the origin refuse all requests until an instant, with a status
// (0: 503) and a Retry-After of that long (0: none), rounded up to a second.
// They use nothing up. An instant that has passed ends an outage.
func (o *Origin) Outage(until time.Time, status int, retryAfter time.Duration) {
	setDefault(&status, http.StatusServiceUnavailable)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.outage = outage{until: o.instant(until), status: status, retryAfter: retryAfter}
}

// now returns the present instant. It follows the monotonic clock from the
// origin's first use on, so that steps of the wall clock move no window.
func (o *Origin) now() int64 {
	if o.began64 == 0 {
		o.began = time.Now()
		o.began64 = o.began.UnixNano()
		return o.began64
	}
	return o.began64 + int64(time.Since(o.began))
}

func (o *Origin) instant(t time.Time) int64 {
	o.now()
	return o.began64 + int64(t.Sub(o.began))
}

// time is the inverse of instant.
func (o *Origin) time(instant int64) time.Time {
	return o.began.Add(time.Duration(instant - o.began64))
}
