package heed

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// A request of a [Pool] may stand astride: in the lines of several tokens, to go from whichever has room first.

// peers are the places in line of one request that goes from one of them. Once it has taken all of them, which are of one
// origin then, that one's lock guards them.
type peers struct {
	all   []*waiter
	taken atomic.Bool
}

// take notes that a request waits wherever it may, unless a line did not take it, or is another origin's.
func (ps *peers) take(lines int) {
	if len(ps.all) == lines && !slices.ContainsFunc(ps.all, func(w *waiter) bool { return w.origin != ps.all[0].origin }) {
		ps.taken.Store(true)
	}
}

// lines are those of several tokens in which a request waits.
type lines struct {
	id uint64 // of those tokens together
	n  int
}

// wentElsewhere reports whether a, which may go, has gone from another line already; else it goes from this one.
func (a *ask) wentElsewhere() bool { return a.went != nil && !a.went.CompareAndSwap(false, true) }

// errWentElsewhere ends the wait in one line of a request that went from another.
var errWentElsewhere = errors.New("heed: the request went from another line")

// A prospect is what is certain of a request with a deadline in one of the lines that it would stand in.
type prospect struct {
	late    bool // it is too late there, if that line lets go no more than its share of those before it …
	alone   bool // … and even if nobody were before it
	abreast int  // how many those are that stand in the very same lines; -1: some stand in others
}

// prospect is a's, whom v judges from a place.
func (p *partition) prospect(now time.Time, a *ask, pl *place, v *verdict) prospect {
	pr := prospect{late: a.misses(v.at), abreast: pl.abreast}
	if pr.late {
		first := p.judge(now, a, &place{})
		pr.alone = a.misses(first.at)
	}
	return pr
}

// settleAstride is settleLate for those who stand in so many lines, each of which lets go its share of those before them.
func (p *partition) settleAstride(now time.Time, l *lane, q *queue, longest time.Duration, lines int) {
	last, missed := p.lastIn(l, longest), 0
	last.share = lines
	p.eachLate(now, q, &last, place{units: make([]int64, len(p.slots)), astride: make([]int64, len(p.slots))}, func(w *waiter) bool {
		if !w.refuseAstride(now) {
			missed++
		}
		return missed <= lines // no more than those are near enough to the limit to seem late here: other lines let more go
	})
}

// refuseAstride refuses one that stands in several lines, in all of them, where it is certain that it can go from none of
// them in time: see place.before. It reports whether it did.
func (w *waiter) refuseAstride(now time.Time) bool {
	if w.peers == nil || !w.peers.taken.Load() || w.attempt > 1 || w.opts.minInterval > 0 {
		return false
	}
	abreast, first := 0, verdict{}
	for i, s := range w.peers.all {
		if s.queue == nil {
			return false
		}
		a := s.ask
		a.share = a.lines.n
		pl := s.home.placeOf(&a)
		if i == 0 {
			abreast = pl.abreast
		}
		v := s.home.judge(now, &a, &pl)
		if pl.abreast <= 0 || pl.abreast != abreast || !v.at.After(now) || !a.misses(v.at) {
			return false
		}
		if i == 0 || v.at.Before(first.at) {
			first = v
		}
	}
	o := w.origin
	err := o.refusal(first.at.Sub(now), first.last, w.tooLate())
	for _, s := range w.peers.all {
		s.home.refuse(s, err)
	}
	o.stirred = true // their places are free in all lines
	return true
}
