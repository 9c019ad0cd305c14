package heed

import "time"

// A block is a time in which a limit that nobody announces lets nothing through: from the first
// refusal until the origin accepts again. One that is over tells of the limit until the next begins.
//
// When exactly the origin reopened is known no better than between the last request refused and the first
// accepted, unless the server has named the instant.
type block struct {
	blocked bool      // it is not over
	hit     time.Time // when the request was sent that was refused first: all was used up by then
	began   time.Time // when the answer to that came
	refused time.Time // when the latest refused request had been sent
	probes  int       // sent meanwhile, and refused

	whole       bool      // all refusals were 503s
	timed       bool      // the first one said when to come back …
	curt        bool      // that was too soon
	blind       bool      // the latest refusal did not say when
	interrupted bool      // it is no limit's
	named       time.Time // when the server said to come back, the last time that it did

	known *throughput // what was known of the limit, where that refuses with another status; nil: it does not

	// Of what was on its way when it began, and had been sent after the one that was refused first:
	meanwhile int64     // accepted …
	through   time.Time // … when the latest of them had been sent
	also      int64     // refused, be it sent before that one
}

// next is the block that begins with a refusal, which comes now, of a request sent at hit.
func (b *block) next(now, hit time.Time, timed, whole bool) block {
	return block{blocked: true, hit: hit, began: now, refused: b.refused, whole: whole, timed: timed, blind: !timed, named: b.named}
}

// accepted takes in that a request sent at an instant was accepted, though it was no probe.
func (b *block) accepted(start time.Time) {
	if start.After(b.hit) {
		b.meanwhile++
		b.through = latest(b.through, start)
	}
}

// shut is for how long nothing at all was accepted, at least: where requests are long on their way
// a bucket accepts some of those it had been sent by its first refusal.
func (b *block) shut() time.Duration { return b.refused.Sub(latest(b.hit, b.through)) }

// closed is for how long the limit was closed, at least, or was said to be: to the second.
func (b *block) closed() time.Duration {
	if b.timed {
		return max(b.shut(), b.named.Sub(b.began)-time.Second)
	}
	return b.shut()
}

// windowClosed is closed where it may be a window that had been open for so long: a second that was said
// may be rounded up from next to nothing, but no window is shorter than one.
func (b *block) windowClosed(open time.Duration) time.Duration {
	if b.timed {
		return max(b.closed(), min(b.named.Sub(b.began), time.Second-open))
	}
	return b.closed()
}
