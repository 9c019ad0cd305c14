package heed

import (
	"math"
	"time"
)

// A contest is the pace at which one of several goes for the units of a bucket of which it is known what is left, but not how fast it
// fills. Who goes as soon as there is one more is told of the same one as all others, and most of them are refused. So the bucket is
// kept from running dry: each goes the slower the less is left, which all see alike, and that much slower or faster as it takes for a
// part of it to stay there. Nothing is lost by that, for only a full bucket spills.
type contest struct {
	share  float64   // units per second that this process got while the bucket was dry; 0: not known
	factor float64   // by how much faster it goes, where as much is left as is to stay
	quota  int64     // of so many units
	left   int64     // as the latest answer says …
	most   int64     // … and the most since nothing was
	dry    time.Time // when nothing was left …
	got    int64     // … and units that this process has got since
}

const (
	contestPart  = 8   // of a quota this part is to stay …
	contestLeast = 2   // … and so many units at least
	contestSlow  = 4   // times as slow it is with nothing left
	contestGain  = 0.1 // by how much one answer makes it faster or slower, at most …
	contestFar   = 8   // … and how many times in all
)

// is reports whether there seems to be one.
func (k *contest) is() bool { return k.known() || !k.dry.IsZero() }

// known reports whether it is known how much of it this process gets.
func (k *contest) known() bool { return k.share > 0 }

// hear takes in that the answer to c says that so many units are left. It is a contest where others were seen to use a quota of which
// a part came back, and goes on until all of it did.
func (k *contest) hear(now time.Time, l *ledger, c *charge, p *Policy, left int64, refused bool) {
	k.left, k.quota = left, p.Quota
	orDefault(&k.quota, l.drought.whole)
	all := left == 0 && 4*k.most >= 3*k.quota
	if k.most = max(k.most, left); left == 0 {
		k.most = 0
	}
	if !refused {
		k.got += c.n
	}
	switch shared := l.othersSeen || l.othersMet; {
	case p.Unit != UnitRequests, p.Window > 0 && l.inferred == 0, l.shape == shapeSliding, l.shape == shapeRefill && l.fillsUp, all: // it is known how it comes back
		*k = contest{left: left}
	case !k.is() && (!shared || !l.drought.part || min(k.quota, l.drought.whole) < few):
	case k.known():
		k.adapt(refused)
	case left > 0:
	case k.dry.IsZero():
		k.dry, k.got = now, 0
	case k.got >= few && now.Sub(k.dry) > l.quickest: // at both times nothing was left
		k.share, k.factor = float64(k.got)/now.Sub(k.dry).Seconds(), 1
	}
}

// adapt has it go slower where less is left than is to stay, or faster.
func (k *contest) adapt(refused bool) {
	switch stays := k.stays(); {
	case refused:
		k.factor *= 1 - 2*contestGain
	case !k.plenty(k.left):
		k.factor *= math.Exp(contestGain * min(float64(k.left)/stays-1, 1))
	}
	k.factor = min(max(k.factor, 1./contestFar), contestFar)
}

func (k *contest) stays() float64 { return max(float64(k.quota)/contestPart, contestLeast) }

// plenty reports whether so much is left that everyone may go as they like.
func (k *contest) plenty(left int64) bool { return 2*left > k.quota }

// pace is how many units per second are to go where so many are left; +Inf where that is no question.
func (k *contest) pace(left int64) float64 {
	if k.plenty(left) {
		return math.Inf(1)
	}
	return k.share * k.factor * max(float64(left)/k.stays(), 1./contestSlow)
}

// paceBeside is the pace in a contest. What was said last counts, for all that is reckoned since is what this process uses.
func (s *slot) paceBeside(now time.Time) float64 {
	k := &s.ledger.contest
	left := k.left
	if s.ledger.stated {
		left = min(left, s.remaining(now))
	}
	return k.pace(left)
}
