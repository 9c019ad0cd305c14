package heed

import "time"

// trips are how long requests and their answers are on the way, and by how much others
// may go sooner for that.
type trips struct {
	usual    time.Duration // how long answers take: recently, in the mean …
	least    time.Duration // … the quickest, for long …
	quickest time.Duration // … and lately …
	ahead    time.Duration // … and by how much that lets requests go sooner
}

// measureTrip takes in how long an answer took.
func (t *trips) measureTrip(now, start time.Time) {
	trip := now.Sub(start)
	orDefault(&t.usual, trip)
	orDefault(&t.least, trip)
	t.usual += (trip - t.usual) / 32
	t.least = min(trip, t.least+(t.usual-t.least)/256)
	t.quickest = min(trip, t.quickest+max(t.quickest/16, min(trip/16, time.Millisecond)))
}

// surely is how long a request and its answer are on their way, at least, and so are an answer
// and the next request together: the quickest round trip, less twice what they mostly take longer.
func (t *trips) surely() time.Duration { return max(t.least-2*max(t.usual-t.least, 0), 0) }

// lead takes in by how much requests may go sooner for what they and answers are on their way.
func (l *ledger) lead(c *charge, p *Policy, s *statement) {
	switch {
	case float64(p.Quota)*l.quickest.Seconds() <= float64(max(c.n, 1))*p.Window.Seconds(): // no more than the time of a request, and not worth it
		l.ahead = 0
	case !s.clock, s.reset > s.resolution: // else the instant may be over, as that of an origin that names the present one is
		l.ahead = l.quickest
	}
}

// onTheWay is how much later than the origin said what is left the next request
// arrives there, at least, when it goes as soon as that is heard: the answer was
// on its way back, the request will be on its way there. What comes back to others meanwhile
// they take: where it is known what does, it is as if the rest had less time.
func (l *ledger) onTheWay() time.Duration {
	k := &l.counter
	switch {
	case !l.othersSeen:
		return l.quickest
	case l.twoCounts():
		return nanoseconds(float64(l.quickest) * k.own / max(k.before, 1))
	}
	return 0
}
