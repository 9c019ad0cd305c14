package heed

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// Where resets are rounded by a quarter of a window or more they do not tell when windows end. An origin that keeps two counts looks
// there like one whose window slides, or like a bucket, that others use: what this process used early in a window seems to be in use
// for too long, for it comes back evenly over the next one. But each instant at which windows may end, with this process's own
// use, says how much is in use at any time. Where all answers of some windows agree with one, that is it, and nobody else uses the
// quota. While others wait one unit is left: an answer that says that none is has all wait for a reset that is as far away as a window is long.

// edges are the instants at which windows of two counts may end, of an origin of which nobody knows when they do.
type edges struct {
	window          time.Duration      // that these are apart
	from            time.Time          // one of them, since when this process's use is counted …
	used            [2 * parts]float64 // … by the part of a window in which it was …
	newest          int64              // … of which this is the latest, since from …
	lately          []arrival          // … and one by one, of no more than two windows
	may             [parts]agreement   // by the part in which windows end
	slides          bool               // they agree with a window that slides …
	turns           uint32             // … or with one that ends in one of these parts, a bit for each, and all is back
	answers         int                // that were held against them …
	began           int64              // … since this part
	agreed          uint32             // parts that all answers agreed with, a bit for each …
	inARow          int                // … as often as this
	wrong           int                // how often in a row none did …
	judged          int                // … and how often that was judged
	found           bool               // there are some
	taken, inferred time.Duration      // how long the window was taken to be before, and by how much that could be too long
	unheard         int                // answers in a row that said nothing of it, for they came out of order
	farthest        time.Duration      // the longest reset that was named
	spare           float64            // units that are kept, for what is left turned out to be none
}

// parts is into how many a window is cut: it is not known more closely when it ends.
const parts = 32

// Answers have to agree over so many windows, and be so many, twice in a row.
const (
	agreedWindows = 3
	agreedAnswers = 16
)

// An arrival is when the origin had so many units asked of it.
type arrival struct {
	at time.Time
	n  float64
}

// An agreement is by how much more is in use than there should be, as answers have it.
type agreement struct {
	by  bounds // what is told in whole units is rounded, in a way that stays the same
	sum float64
}

// untold is an agreement before the first answer: units are rounded up or down.
func untold() agreement { return agreement{by: bounds{-1 - aTenth, aTenth}} }

const aTenth = 0.1

func (a *agreement) hear(more, doubt float64) {
	a.by.narrow(more-1-doubt, more+doubt)
	a.sum += more
}

// holds reports whether rounding explains what so many answers said.
func (a *agreement) holds(answers int) bool {
	return a.by.least <= a.by.most && math.Abs(a.sum) <= 0.75*float64(answers)
}

// since is how many parts an instant is after the first.
func (e *edges) since(at time.Time) float64 {
	return at.Sub(e.from).Seconds() / e.window.Seconds() * parts
}

// take counts n units that were used at an instant.
func (e *edges) take(at time.Time, n int64) {
	e.lately = slices.DeleteFunc(e.lately, func(a arrival) bool { return at.Sub(a.at) > 2*e.window })
	e.lately = append(e.lately, arrival{at, float64(n)})
	part := int64(math.Floor(e.since(at)))
	e.newest = max(e.newest, part-2*parts)
	for e.newest < part {
		e.newest++
		e.used[e.newest%(2*parts)] = 0
	}
	if part >= 0 && part > e.newest-2*parts {
		e.used[part%(2*parts)] += float64(n)
	}
}

// within is how much was used in the window until an instant, at least and at most.
func (e *edges) within(at time.Time, blur time.Duration) (least, most float64) {
	for _, a := range e.lately {
		if age := at.Sub(a.at); age < e.window-blur {
			least, most = least+a.n, most+a.n
		} else if age <= e.window+blur {
			most += a.n
		}
	}
	return least, most
}

// sum is how much was used in the parts from one to another.
func (e *edges) sum(from, to int64) (sum float64) {
	for i := max(from, 0, e.newest-2*parts+1); i <= min(to, e.newest); i++ {
		sum += e.used[i%(2*parts)]
	}
	return sum
}

// counts are what was used of the window present at an instant, and of the one before, if windows end in the i-th part of one, and how
// many parts ago the present one began.
func (e *edges) counts(i int, at float64) (present, before, passed float64) {
	part := int64(at)
	edge := part - (part-int64(i)+parts)%parts
	return e.sum(edge, part), e.sum(edge-parts, edge-1), at - float64(edge)
}

// left is how much of the present window is left where so many parts have passed since that began in which it does: mostly half-way.
func (e *edges) left(passed float64) float64 { return 1 - max(passed-0.5, 0)/parts }

// hear holds against each of them that so many units were in use when a request arrived. trip is how many parts passed between its
// start and its answer, and blur by how much its arrival, and those before it, may have been sooner or later.
func (e *edges) hear(at time.Time, inUse, trip float64, blur time.Duration) {
	now := e.since(at)
	part := int64(now)
	if part < 2*parts { // it is not known what was used before
		return
	}
	if e.answers == 0 {
		e.began, e.slides, e.turns = part, true, math.MaxUint32
		for i := range e.may {
			e.may[i] = untold()
		}
	}
	e.answers++
	near := int64(math.Ceil(trip / 2)) // so many parts sooner or later each request may have arrived
	around := func(part int64) float64 { return e.sum(part-near, part+near) }
	least, most := e.within(at, blur)
	e.slides = e.slides && least <= inUse && inUse <= most
	for i := range e.may {
		present, before, passed := e.counts(i, now)
		either := around(part - int64(passed)) // they may have been of one window or the other
		if more := inUse - present; more > 1+either || more < -1-either {
			e.turns &^= 1 << i
		}
		doubt := before*(1+trip)/2/parts + either*passed/parts
		e.may[i].hear(inUse-present-before*e.left(passed), doubt)
	}
}

// judge draws the conclusion from answers, where enough came since it last did. wrong: it is not two counts that are kept;
// slides: what answers say fits a window that slides.
func (e *edges) judge(reset bool) (wrong, slides bool) {
	if e.answers < agreedAnswers || e.newest-e.began < agreedWindows*parts {
		return false, false
	}
	fit := uint32(0)
	for i := range e.may {
		if e.may[i].holds(e.answers) {
			fit |= 1 << i
		}
	}
	still := fit & near(e.agreed)
	switch {
	case e.turns != 0 && !e.found && reset:
		e.inARow, e.wrong = 0, 2
	case e.slides && (!e.found || fit&e.agreed == 0): // to a unit, as weighted counts hardly do
		e.inARow, e.wrong = 0, 2
	case still != 0:
		e.agreed, e.inARow, e.wrong = still, e.inARow+1, 0
		e.spare -= e.spare / 16
	case fit != 0 && !e.found:
		e.agreed, e.inARow, e.wrong = fit, 1, 0
	default: // or others use it
		e.inARow, e.wrong = 0, e.wrong+1
	}
	e.found = e.found || e.inARow >= 2
	e.answers = 0
	e.judged++
	return e.wrong >= 2 || !e.found && e.judged >= few, e.slides && e.turns == 0
}

// near are those parts and the ones beside them: no two clocks go alike.
func near(parts uint32) uint32 {
	return parts | bits.RotateLeft32(parts, 1) | bits.RotateLeft32(parts, -1)
}

// inUse is how much of the quota is in use at an instant, if all that is in flight arrives by then, at most.
func (e *edges) inUse(at time.Time, inFlight int64) (most float64) {
	now := e.since(at)
	for rest := e.agreed; rest != 0; rest &= rest - 1 {
		present, before, passed := e.counts(bits.TrailingZeros32(rest), now)
		most = max(most, present+before*e.left(passed))
	}
	return most + float64(inFlight)
}

// free is when no more than so much is in use, at the latest, if no more is used.
func (e *edges) free(at time.Time, inFlight int64, most float64) time.Time {
	now, wait := e.since(at), 0.0 // windows
	for rest := e.agreed; rest != 0; rest &= rest - 1 {
		present, before, passed := e.counts(bits.TrailingZeros32(rest), now)
		present += float64(inFlight)
		left := e.left(passed)
		switch over := present + before*left - most; {
		case over <= 0:
		case over <= before*left:
			wait = max(wait, over/before)
		default: // in the next window
			wait = max(wait, left+(present-most)/max(present, 1))
		}
	}
	return at.Add(nanoseconds(wait * e.window.Seconds() * 1e9))
}

// learnEdges takes in that the answer to c, sent at start, says that so many units are left.
func (l *ledger) learnEdges(now, start time.Time, c *charge, p *Policy, s *statement, r int64) {
	seems := l.othersSeen && l.flows() || r == 0 && !l.flows() // as if others used it, or nothing told yet how it comes back
	if l.edges == nil && (!seems || l.counter.known || now.Before(l.edgesFrom)) {
		return
	}
	trip := now.Sub(start).Seconds() / p.Window.Seconds() * parts
	clear := float64(p.Quota)*(1+trip)/2 <= parts // what is in use is known to a unit
	e := l.edges
	if !clear || !l.vague(s, p) || p.Unit == UnitContentBytes || l.elastic || l.contest.is() || l.counter.known || e != nil && e.found && !l.edged() {
		l.dropEdges(now, p)
		return
	}
	if e == nil {
		e = &edges{}
		l.edges = e
	}
	e.farthest = max(e.farthest, s.reset)
	if window := l.windowUpTo(p, e.farthest); window != e.window {
		*e = edges{window: window, from: start, farthest: e.farthest}
		return
	}
	if e.unheard++; l.orderly(c) && !s.refused {
		e.unheard = 0
		at := middle(start, now)
		e.hear(at, float64(p.Quota-r), trip, p.Window/256+2*(l.usual-l.least))
		if l.edged() {
			used := e.inUse(at, 0)
			l.hearForeign(now, start, p.Quota-r-1-int64(math.Ceil(used)))
			if r == 0 && used <= float64(p.Quota-1) {
				e.spare = min(e.spare+aQuarter, 1)
			}
		}
	}
	was := e.found
	switch wrong, slides := e.judge(l.shape == shapeReset); {
	case wrong || e.unheard >= few*few:
		l.dropEdges(now, p)
		if slides {
			l.shape, l.slides = shapeSliding, now
			l.forgetOthers()
		}
	case e.found && !was:
		l.shape, l.slides = shapeSliding, now
		e.taken, e.inferred = p.Window, l.inferred
		p.Window, l.inferred = e.window, min(l.inferred, 1)
		l.forgetOthers()
	}
}

// dropEdges has it be unknown again how what was kept to by them comes back, if anything was.
func (l *ledger) dropEdges(now time.Time, p *Policy) {
	if l.edges == nil {
		return
	}
	if l.edged() {
		p.Window, l.inferred, l.shape = l.edges.taken, l.edges.inferred, shapeUnknown
		l.forgetOthers()
	}
	l.edges, l.edgesFrom = nil, now.Add(times(agreedWindows*few, p.Window))
}

// windowUpTo is how long a window is of which the longest reset named is so far away: where it was only inferred, it may be taken
// for too short, for what two counts give back late seems to be in use by others.
func (l *ledger) windowUpTo(p *Policy, farthest time.Duration) time.Duration {
	if l.inferred <= 1 {
		return p.Window
	}
	return roundest(max(p.Window-l.inferred, 1), max(p.Window, farthest))
}

// vague reports whether the end of a window is named so roughly that this is no help to know when it is, and yet has all wait for it where
// nothing is left.
func (l *ledger) vague(s *statement, p *Policy) bool {
	named := s.clock && s.grain < p.Window/4
	return !named && p.Window > 0 && p.Quota >= fewUnits && p.Window <= 4*max(s.resolution, l.grain, l.rounded) && l.timeless < few
}

// edged reports whether it is known by that when windows of two counts end.
func (l *ledger) edged() bool { return l.edges != nil && l.edges.found && l.shape == shapeSliding }

// unused is how many units are left for certain when a request that goes now arrives.
func (l *ledger) unused(now time.Time, p *Policy) float64 {
	return float64(p.Quota-l.foreignNow(now, p)) - l.edges.spare - l.edges.inUse(now.Add(l.quickest/2), l.own.inFlight)
}

// unusedBy is when so many are, or, where that is more than there can be, what is left of them after whole windows.
func (l *ledger) unusedBy(now time.Time, n int64, p *Policy) time.Time {
	windows := max(n-1, 0) / p.Quota
	n -= windows * p.Quota
	most := max(float64(p.Quota-l.foreignNow(now, p)-n)-l.edges.spare, 0)
	way := l.quickest / 2
	return l.edges.free(now.Add(way), l.own.inFlight, most).Add(times(windows, p.Window) - way)
}

// unusedSoonest is when so many are at the earliest: no more than the quota comes back in a window.
func (l *ledger) unusedSoonest(now time.Time, n int64, p *Policy) time.Time {
	over := float64(n-p.Quota) - l.unused(now, p) - l.edges.spare
	return now.Add(nanoseconds(max(over, 0) / p.rate() * 1e9))
}
