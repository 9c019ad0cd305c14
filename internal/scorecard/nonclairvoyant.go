package scorecard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A nonclairvoyant is an oracle that does not know how long its requests will be
// on the way. In the sense of scheduling theory, it learns that when it is over:
// the delivery of an answer tells it when that request arrived, and what became of
// it. However evenly it sends its requests, some meet at the origin, and so it is
// refused now and then.
//
// What it knows beforehand is the origin's algorithm and quota, and the
// distribution that latencies are drawn from. With that, and for how long each of
// its requests has been without an answer, it can tell at every instant the
// [nonclairvoyant.risk] of one more. How it weighs that, its caution, is chosen for
// it in hindsight, for each run. It needs no first contact, and a refusal holds
// nothing.
//
// Like [oracle] it is a good client, not a perfect one: it looks ahead at its next
// request, not at those that follow.
type nonclairvoyant struct {
	caution  caution
	end      int64
	free     int
	origin   meter
	known    meter // the origin's, as far as answers have told of it
	settled  meter // … without those heard
	ways     *ways
	heard    []int64 // accepted arrivals among which others may still turn out to have been
	spacing  int64   // how long one request is in the way of another, by and large
	pending  []pending
	events   []event // ahead, in order
	counts   []float64
	schedule []start
}

// A pending request has no answer: all that is known of it is when it started.
type pending struct {
	n  int // its place in the schedule
	at int64
}

// An event is the arrival of a request or the delivery of its answer.
type event struct {
	at     int64
	n      int
	answer bool
}

// A caution says which risk a request is worth: none above most, and none that
// falls by more than price in as long as the spacing, or likewise in less or more.
type caution struct{ most, price float64 }

// admitsNonclairvoyant reports whether a nonclairvoyant can play the scenario:
// where latencies are drawn, a bucket or a cap on requests in flight that answers
// say nothing of, so that they name no instant to wait for.
func (s Scenario) admitsNonclairvoyant() bool {
	alone := s.Processes <= 1 && s.Foreign == 0 && s.Changes == nil
	a := s.Origin.Algorithm
	return s.Trip == HeavyTail && alone && s.Origin.Dialect == heedtest.Silent && (a == heedtest.LeakyBucket || a == heedtest.Concurrency)
}

// hindsight returns the starts of the nonclairvoyant that gets most accepted
// between two instants, of those that keep to what the row lets be refused: the
// bolder ones, which get more, are refused more often.
func (s Scenario) hindsight(seed uint64, from, to time.Duration) (best []start) {
	most := -1.0
	timid, bold := 1e-3, 0.2
	for range 6 {
		x := math.Sqrt(timid * bold)
		c := caution{most: 0.5, price: x}
		if s.Origin.Algorithm == heedtest.Concurrency {
			// To wait pays only where an answer comes.
			c = caution{most: x, price: math.Inf(1)}
		}
		plan := s.venture(c, s.config(seed).Latency, seed)
		arrivals, kept := s.keepsTo(plan)
		if !kept {
			bold = x
			continue
		}
		timid = x
		if n := count(arrivals, from, to); n > most {
			most, best = n, plan
		}
	}
	return best
}

// keepsTo reports whether a plan keeps to what the row lets be refused, and when
// its requests arrive that are accepted.
func (s Scenario) keepsTo(plan []start) (arrivals []time.Duration, kept bool) {
	arrivals, refused := outcome(plan)
	if s.Thresholds.AfterEvent {
		told := time.Duration(never)
		for _, p := range plan {
			if p.refused {
				told = min(told, p.arrival()+p.down)
			}
		}
		for _, p := range plan {
			if p.refused && p.at <= told {
				refused--
			}
		}
	}
	return arrivals, !s.Thresholds.tooMany(refused, int64(len(arrivals)))
}

// venture returns the starts of one nonclairvoyant that arrive before the end of
// the run.
func (s Scenario) venture(c caution, latency heedtest.Latency, seed uint64) []start {
	config := s.config(seed)
	m := newMeter(config.Policies[0], config.Algorithm, 0)
	o := &nonclairvoyant{
		caution: c, end: int64(s.length()), free: s.Goroutines,
		origin: m, known: m, settled: m, ways: tail(), spacing: m.window / m.quota,
	}
	if m.algorithm == heedtest.Concurrency {
		o.spacing = o.ways.mean
	}
	o.run(latency)
	return slices.DeleteFunc(o.schedule, func(s start) bool { return int64(s.arrival()) >= o.end })
}

func (o *nonclairvoyant) run(latency heedtest.Latency) {
	look := int64(0)
	for now := int64(0); now < o.end; {
		for len(o.events) > 0 && o.events[0].at <= now {
			e := o.events[0]
			o.events = o.events[1:]
			if e.answer {
				o.hear(e)
				look = now
			} else {
				o.arrive(e)
			}
		}
		for o.free > 0 && look <= now {
			if wait := o.hesitate(now); wait > 0 {
				look = now + wait
			} else {
				o.send(now, latency)
			}
		}
		now = o.end
		if o.free > 0 {
			now = min(now, look)
		}
		if len(o.events) > 0 {
			now = min(now, o.events[0].at)
		}
	}
}

func (o *nonclairvoyant) send(now int64, latency heedtest.Latency) {
	n := len(o.schedule)
	up, down := latency(int64(n))
	o.free--
	o.pending = append(o.pending, pending{n, now})
	o.schedule = append(o.schedule, start{at: time.Duration(now), up: up, down: down})
	o.expect(event{at: now + int64(up), n: n})
}

func (o *nonclairvoyant) expect(e event) {
	i, _ := slices.BinarySearchFunc(o.events, e.at, func(e event, at int64) int { return cmp.Compare(e.at, at+1) })
	o.events = slices.Insert(o.events, i, e)
}

// arrive is what becomes of a request, of which the oracle hears nothing yet.
func (o *nonclairvoyant) arrive(e event) {
	s := &o.schedule[e.n]
	end := e.at + int64(s.down)
	if s.refused = o.origin.wait(e.at) > 0; !s.refused {
		o.origin.take(e.at, 0, end)
	}
	o.expect(event{at: end, n: e.n, answer: true})
}

// hear takes in an answer. They come in any order, and what is left of a bucket
// depends on the order of arrivals.
func (o *nonclairvoyant) hear(e event) {
	o.free++
	o.pending = slices.DeleteFunc(o.pending, func(p pending) bool { return p.n == e.n })
	s := o.schedule[e.n]
	if s.refused || o.known.algorithm == heedtest.Concurrency { // its slot is free again
		return
	}
	arrival := int64(s.arrival())
	i, _ := slices.BinarySearch(o.heard, arrival)
	o.heard = slices.Insert(o.heard, i, arrival)
	for len(o.heard) > 0 && o.heard[0] < e.at-o.ways.longest {
		o.settled.take(o.heard[0], 0, 0)
		o.heard = o.heard[1:]
	}
	o.known = o.settled
	for _, at := range o.heard {
		o.known.take(at, 0, 0)
	}
}

// hesitate returns after what time to look again; 0: the next request is to
// start now.
func (o *nonclairvoyant) hesitate(now int64) int64 {
	step := o.spacing / 20
	risk := o.risk(now)
	for wait := step; wait < 2*o.spacing; wait *= 2 {
		worth := o.caution.price * float64(wait) / float64(o.spacing)
		if worth >= risk {
			break
		}
		if worth+o.risk(now+wait) < risk {
			return max(step, wait/2)
		}
	}
	if risk > o.caution.most {
		return step
	}
	return 0
}

// risk returns the probability that a request is refused, or has another one
// refused, if it starts at an instant until which no answer comes.
func (o *nonclairvoyant) risk(at int64) (p float64) {
	for _, way := range o.ways.typical {
		p += o.clash(at, at+way)
	}
	return p / float64(len(o.ways.typical))
}

// clash is risk for a request whose arrival is given: the probability that as many
// others are in its way as there is room for.
func (o *nonclairvoyant) clash(at, arrival int64) float64 {
	room := int(o.known.left(arrival))
	if room > len(o.pending) {
		return 0
	}
	o.counts = append(o.counts[:0], 1) // the probability of each count below room
	for _, other := range o.pending {
		// In the way of a request in a bucket is what comes while the bucket fills up
		// again, or right after it. Under a cap it is what is at the origin at any time
		// while the request is, which is for as long as the way up takes.
		ago := arrival - other.at
		longer, atMost := ago-o.known.size*o.spacing, ago+o.spacing
		if o.known.algorithm == heedtest.Concurrency {
			longer, atMost = ago/2, ago+arrival-at
		}
		p := o.ways.between(longer, atMost, (at-other.at)/2)
		if p == 0 {
			continue
		}
		if len(o.counts) < room {
			o.counts = append(o.counts, 0)
		}
		for i := len(o.counts) - 1; i > 0; i-- {
			o.counts[i] += p * (o.counts[i-1] - o.counts[i])
		}
		o.counts[0] *= 1 - p
	}
	p := 1.0
	if room > 0 {
		for _, c := range o.counts {
			p -= c
		}
	}
	return p
}
