package heedtest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// An exchange is one request on its way through the origin.
type exchange struct {
	origin *Origin
	key    string
	cost   int64
	body   int64 // bytes known before the bodies have been read

	started         int64
	early, standing bool // by what was known at the start
	up, down        time.Duration

	arrived   bool
	accepted  bool
	delivered bool
	keyed     *keyed
	held      []*concurrency // slots to give back
	status    int
	header    http.Header
	text      string // the body of a refusal
	stamped   int64
	said      statement
	charged   int64 // bytes
	event     int   // index in events
	epoch     int   // … of this epoch
}

// start begins an exchange at this instant.
func (o *Origin) start(req *http.Request) *exchange {
	x := &exchange{origin: o, cost: 1}
	if o.config.Key != nil {
		x.key = o.config.Key(req)
	}
	if o.config.Cost != nil {
		x.cost = max(0, o.config.Cost(req))
	}
	if o.config.Respond == nil && req.Method != http.MethodHead {
		x.body = o.config.BodySize
	}
	if req.Body != nil && req.ContentLength > 0 {
		x.body += req.ContentLength
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	x.started = o.now()
	if k := o.keys[x.key]; k != nil {
		x.early, x.standing = k.early(x.started)
	}
	if o.config.Latency != nil {
		x.up, x.down = o.config.Latency(o.started)
	}
	o.started++
	return x
}

// travel takes the request up to its arrival, where it is judged.
func (x *exchange) travel(ctx context.Context) error {
	if err := sleep(ctx, x.up); err != nil {
		return err
	}
	x.arrive()
	return nil
}

// arrive judges the request at this instant and stamps the answer.
func (x *exchange) arrive() {
	o := x.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	k := o.key(x.key, now)
	x.arrived, x.keyed, x.stamped = true, k, now
	k.inFlight++
	t := &o.tally
	if t.Requests++; t.Requests == 1 {
		t.FirstArrival = o.time(now)
	}
	t.InFlight++
	t.PeakInFlight = max(t.PeakInFlight, t.InFlight)
	if x.early {
		t.Early++
	}
	if x.standing {
		t.EarlyStanding++
	}

	x.header = make(http.Header, 8)
	x.header["Date"] = o.date.at(now + int64(o.config.ClockSkew))
	if now < o.outage.until {
		x.status = o.outage.status
		x.text = http.StatusText(x.status) + "\n"
		x.said = o.stampOutage(x.header)
		t.DuringOutage++
	} else if v := k.judge(o, now, x.cost); v.ok {
		x.accepted = true
		x.status = http.StatusOK
		x.charged = x.body
		x.held = k.charge(o, now, x.cost, x.body, true)
		x.said = k.stamp(o, now, x.header, nil)
	} else {
		x.status = o.config.Status
		v = k.refuse(o, now, x.cost, v)
		x.text = o.refusalText(x.header, v)
		x.said = k.stamp(o, now, x.header, &v)
	}

	if x.accepted {
		if t.Accepted++; t.Accepted == 1 {
			t.FirstAccepted = o.time(now)
		}
		t.LastAccepted = o.time(now)
		t.Bytes += x.charged
	} else {
		if t.Refused++; t.Refused == 1 {
			t.FirstRefused = o.time(now)
		}
		t.LastRefused = o.time(now)
	}
	if o.config.Record {
		x.event, x.epoch = len(o.events), o.epoch
		e := Event{
			Key: x.key, Start: time.Duration(x.started - o.began64), Arrival: time.Duration(now - o.began64),
			Accepted: x.accepted, Early: x.early, Bytes: x.charged,
		}
		if !x.accepted {
			e.Status = x.status
		}
		o.events = append(o.events, e)
	}
}

// settle charges what of the bodies' bytes was not known on arrival.
func (x *exchange) settle(bytes int64) {
	extra := bytes - x.charged
	if extra <= 0 {
		return
	}
	o := x.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	x.charged = bytes
	x.keyed.chargeBytes(o, o.now(), extra)
	o.tally.Bytes += extra
	if e := x.recorded(); e != nil {
		e.Bytes = bytes
	}
}

// deliver hands the answer to the client at this instant: from now on the client
// knows what it says.
func (x *exchange) deliver(status int) {
	o := x.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	x.delivered = true
	x.keyed.named(x.said, x.stamped, now)
	if o.tally.ByStatus == nil {
		o.tally.ByStatus = map[int]int64{}
	}
	o.tally.ByStatus[status]++
	if e := x.recorded(); e != nil {
		e.Status, e.Delivered = status, time.Duration(now-o.began64)
	}
}

// recorded returns the exchange's event, if it is kept.
func (x *exchange) recorded() *Event {
	if x.origin.config.Record && x.epoch == x.origin.epoch && x.arrived {
		return &x.origin.events[x.event]
	}
	return nil
}

// end closes the books, however the exchange came out.
func (x *exchange) end() {
	o := x.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	if !x.arrived {
		o.tally.Cancelled++
		return
	}
	if !x.delivered {
		o.tally.Abandoned++
	}
	o.tally.InFlight--
	x.keyed.inFlight--
	for _, c := range x.held {
		c.inFlight--
	}
}

// refusalText returns the body of a refusal and sets its type.
func (o *Origin) refusalText(h http.Header, v verdict) string {
	if o.config.Problem == "" {
		h["Content-Type"] = textPlain
		return "rate limit exceeded\n"
	}
	h["Content-Type"] = problemJSON
	violated := []string{}
	for i, p := range o.policies {
		if v.violates(i) {
			violated = append(violated, p.Name)
		}
	}
	document, _ := json.Marshal(struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Violated []string `json:"violated-policies"`
	}{o.config.Problem, "Request cannot be satisfied as assigned quota has been exceeded", violated})
	return string(document)
}

var (
	textPlain   = []string{"text/plain; charset=utf-8"}
	problemJSON = []string{"application/problem+json"}
)
