package heed

import (
	"math/rand/v2"
	"time"
)

// A pause holds everything that shares a refused quota until an instant. One
// refusal that many answers bring is one event: those to requests sent before
// it began can only lengthen it.
type pause struct {
	until time.Time // zero or past: none
	asked time.Time // when the server asked for as long as that; zero: it did not
	least time.Time // until then the user asked for it: nothing shortens that but the user
	open  bool      // resuming has been seen to

	// A refusal without a hint holds its partition only as long as nothing
	// else there succeeds.
	doubtful bool
	path     string    // what was refused …
	began    time.Time // … and when
	tried    bool      // another path has been let through to see
}

// holds reports whether the pause still holds at now.
func (p *pause) holds(now time.Time) bool { return now.Before(p.until) }

// firm reports whether it holds at now whatever else succeeds.
func (p *pause) firm(now time.Time) bool { return p.holds(now) && !p.doubtful }

// extend lengthens the pause to until, never shortening it; it reports
// whether it did.
func (p *pause) extend(until time.Time) bool {
	if !until.After(p.until) {
		return false
	}
	p.until, p.asked, p.open = until, time.Time{}, true
	return true
}

// obey is extend for what a server asks for at now.
func (p *pause) obey(now, until time.Time) bool {
	longer := p.extend(until)
	if longer {
		p.asked = now
	}
	return longer
}

// hand is extend for what the user asks for.
func (p *pause) hand(until time.Time) bool {
	p.least = latest(p.least, until)
	return p.extend(until)
}

// join has p hold for as long as another pause does, where that is firm; it reports whether that is longer.
func (p *pause) join(now time.Time, other *pause) bool {
	if !other.firm(now) {
		return false
	}
	p.doubtful = false // it would end too soon
	return p.obey(other.asked, other.until)
}

// manual reports whether it is the user who asked for as long as that.
func (p *pause) manual() bool { return !p.least.IsZero() && !p.until.After(p.least) }

// limit has the pause last no longer than most after the server asked for it, whatever it
// was to be then.
func (p *pause) limit(most time.Duration) {
	if end := latest(p.asked.Add(most), p.least); !p.asked.IsZero() && end.Before(p.until) {
		p.until = end
	}
}

// end ends the pause.
func (p *pause) end() { *p = pause{} }

// over reports, once, that a pause has run out.
func (p *pause) over(now time.Time) bool {
	if !p.open || p.holds(now) {
		return false
	}
	p.end()
	return true
}

// A backoff counts refusal events in a row.
type backoff struct {
	n     int       // events since the last accepted answer
	blind int       // those that gave no hint …
	paced int       // … save those that waited for the next unit at a learned rate alone, which are these
	began time.Time // when the latest event began
}

// event counts a refusal of a request sent at start, and reports whether it
// is news or one more answer of an event already counted.
func (b *backoff) event(now, start time.Time) bool {
	if b.n > 0 && !start.After(b.began) {
		return false
	}
	b.n++
	b.began = now
	return true
}

// over says that an answer was accepted.
func (b *backoff) over() { b.n, b.blind, b.paced = 0, 0, 0 }

// backoffWait is how long a refusal without a hint asks to wait after n in a row:
// min·2ⁿ⁻¹ up to most, and up to a tenth longer, so that many clients do not
// come back at once.
func backoffWait(n int, least, most time.Duration) time.Duration {
	d := doubled(least, n, min(most, ages))
	return d + jitter(d/10)
}

// doubled is d, doubled with each of n times but the first, up to most.
func doubled(d time.Duration, n int, most time.Duration) time.Duration {
	for range n - 1 {
		if d >= most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// pauseJitter is how much later than a server asked its pause ends: at most a
// tenth of it, and at most a second.
func pauseJitter(d time.Duration) time.Duration { return jitter(min(d/10, time.Second)) }

func jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}
