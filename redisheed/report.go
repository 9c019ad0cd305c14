package redisheed

import (
	"slices"
	"time"
)

// A report is what happened since Redis was last told. It rides along with
// the next question.
type report struct {
	moves map[move]moved
	said  map[string][]statement
	rest  []happened
	adds  []op
}

// A move says that requests booked at x were in use until y; y = 0: they were
// not sent.
type move struct{ x, y, requests, bytes int64 }

type moved struct{ k, really int64 }

// A statement is what one answer said of one policy.
type statement struct {
	unit          byte
	quota, window int64 // -1: not said
	remaining     int64 // -1: not said
	reset         int64 // -1: not said
	resolution    int64
	refused       int
	at, start     time.Time
	n             int64
	epoch         int64
	sent, used    int64
	most          int64
}

// happened is anything else that Redis has to be told.
type happened struct {
	kind  string    // "p": a pause, "w": a pause in doubt is over, "x": a policy is used up
	id    string    // of the policy
	until time.Time // the pause ends, or there is more of the policy
	whole int       // 1: the pause is the origin's
	doubt int       // 1: it ends with the first request that succeeds
}

func (r *report) move(m move, k, really int64) {
	if r.moves == nil {
		r.moves = make(map[move]moved)
	}
	was := r.moves[m]
	r.moves[m] = moved{was.k + k, was.really + really}
}

// mostSaid bounds the statements kept of one policy. Of the others the
// newest are worth most, and what says that nothing is left.
const mostSaid = 4

func (r *report) say(id string, s statement) {
	if r.said == nil {
		r.said = make(map[string][]statement)
	}
	list := append(r.said[id], s)
	if len(list) > mostSaid {
		i := slices.IndexFunc(list[:len(list)-1], func(s statement) bool { return s.remaining != 0 && s.refused == 0 })
		list = slices.Delete(list, max(i, 0), max(i, 0)+1)
	}
	r.said[id] = list
}

func (r *report) empty() bool {
	return len(r.moves)+len(r.said)+len(r.rest)+len(r.adds) == 0
}

// ops returns the report as the script reads it. Spans of time are as of now: what is told
// again later has grown older.
func (r *report) ops(now time.Time) (ops []op) {
	if r == nil {
		return nil
	}
	ops = append(ops, r.adds...) // what was taken alone may have moved since
	for m, v := range r.moves {
		ops = append(ops, op{"m", m.x, m.y, v.k, m.requests, m.bytes, v.really})
	}
	for id, list := range r.said {
		for _, s := range list {
			// Redis's microsecond began up to one before its time, and this one's age ends up to one after it
			// was reached: two less, and no instant that was named is taken to be earlier.
			ops = append(ops, op{"s", id, string(s.unit), s.quota, s.window, s.remaining, s.reset, s.resolution, s.refused,
				max(micros(now.Sub(s.at)), 0) - 2, max(micros(s.at.Sub(s.start)), 0), s.n, s.epoch, s.sent, s.used, s.most})
		}
	}
	for _, h := range r.rest {
		left := micros(h.until.Sub(now))
		switch {
		case h.kind == "w":
			ops = append(ops, op{"w"})
		case left <= 0:
		case h.kind == "x":
			ops = append(ops, op{"x", h.id, left})
		default:
			ops = append(ops, op{"p", left, h.whole, h.doubt})
		}
	}
	return ops
}

// restore returns what a Redis that has forgotten is to be told: all units in
// use, and of what it has not acknowledged what is not about units.
func (r *report) restore(unacked *report, p *past) (all report) {
	if unacked != nil {
		all.said, all.rest = unacked.said, unacked.rest
	}
	r.moves, r.adds = nil, nil
	for field, w := range p.windows {
		for i, at := range w.at {
			all.adds = append(all.adds, op{"a", field, at * w.grain, w.n[i]})
		}
	}
	return all
}
