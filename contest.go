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
	stays  float64   // how many are to stay …
	factor float64   // … and by how much faster it goes where as many are left
	quota  int64     // of so many units
	most   int64     // … of which the most was left since nothing was …
	left   int64     // … and so many by the latest answer …
	heard  time.Time // … which came then …
	dries  int       // … and so many in a row that say that nothing is
	dry    time.Time // when nothing was left …
	got    int64     // … and units that this process has got since
}

const (
	contestPart  = 8   // of a quota this part is to stay …
	contestLeast = 2   // … but so many units at least …
	contestMost  = 32  // … and so many at most, and as many again for each that this process gets in a round trip
	contestSlow  = 4   // times as slow it is with nothing left
	contestGain  = 0.1 // by how much one answer makes it faster or slower, at most …
	contestFar   = 8   // … and how many times in all

	contestDries  = 64 // answers in a row that nothing is left: it has failed
	contestSilent = 8  // times as long as it takes to get a unit, at the slowest: who has not asked for so long asks no more, or less
)

// is reports whether there seems to be one.
func (k *contest) is() bool { return k.known() || !k.dry.IsZero() }

// known reports whether it is known how much of it this process gets.
func (k *contest) known() bool { return k.share > 0 }

// hear takes in that the answer to c, whose request was sent at start, says that so many units are left. It is a contest where others
// were seen to use a quota of which a part came back. Where it runs dry all the same, somebody has come who does not know how much
// there is for each; then all find that out anew, as does who has not asked for long.
func (k *contest) hear(now, start time.Time, l *ledger, c *charge, p *Policy, s *statement, left int64) {
	silent := start.Sub(latest(k.heard, l.stopped)) // so long nothing kept it from asking but itself, or its pace
	leap := left - k.left
	k.left, k.quota, k.heard = left, l.drought.all(p), now
	all := 4*max(k.most, left) >= 3*k.quota
	if k.most = max(k.most, left); left == 0 {
		k.most, k.dries = 0, k.dries+1
	} else {
		k.dries = 0
	}
	if !s.refused && !s.free {
		k.got += c.n
	}
	shared := l.inCompany()
	switch {
	case !l.fillsUnseen(p), 2*leap >= k.quota, all && (left == 0 || !shared): // or at once; or most did, and it is gone again, or nobody else is there
		k.end()
	case !k.is() && (!shared || !l.drought.part || min(k.quota, l.drought.whole) < few):
	case k.known() && silent.Seconds() > contestSilent*contestSlow/(k.share*k.factor):
		k.end()
	case k.known() && k.dries >= contestDries:
		k.share, k.dry, k.got, k.dries = 0, now, 0, 0
	case k.known():
		k.adapt(s.refused)
	case !k.dry.IsZero() && silent > 2*apartTrips*l.quickest+time.Second: // what it gets without asking is no share
		k.dry = time.Time{}
	case left > 0:
	case k.dry.IsZero():
		k.dry, k.got = now, 0
	case k.got >= few && now.Sub(k.dry) > l.quickest: // at both times nothing was left
		k.share, k.factor = float64(k.got)/now.Sub(k.dry).Seconds(), 1
		k.stays = max(min(float64(k.quota)/contestPart, contestMost*(1+k.share*l.quickest.Seconds())), contestLeast)
	}
}

// fillsUnseen reports whether a quota may be a bucket's of which it is not known how fast it fills.
func (l *ledger) fillsUnseen(p *Policy) bool {
	known := l.shape == shapeSliding || l.shape == shapeRefill && l.fillsUp || l.twoCounts()
	return p.Unit == UnitRequests && (p.Window == 0 || l.inferred > 0) && !known
}

// end forgets what is known of it.
func (k *contest) end() { *k = contest{left: k.left, quota: k.quota, heard: k.heard} }

// adapt has it go slower where less is left than is to stay, or faster.
func (k *contest) adapt(refused bool) {
	switch {
	case refused:
		k.factor *= 1 - 2*contestGain
	case !k.plenty(k.left):
		k.factor *= math.Exp(contestGain * min(float64(k.left)/k.stays-1, 1))
	}
	k.factor = min(max(k.factor, 1./contestFar), contestFar)
}

// plenty reports whether so much is left that everyone may go as they like.
func (k *contest) plenty(left int64) bool { return 2*left > k.quota }

// pace is how many units per second are to go where so many are left, at a velocity; +Inf where that is no question. Who asks for a part
// of the quota gets no more than that of its share.
func (k *contest) pace(left int64, velocity float64) float64 {
	if k.plenty(left) {
		return math.Inf(1)
	}
	pace := k.share * k.factor
	if velocity < 1 {
		pace = velocity * k.share * min(k.factor, 1)
	}
	return pace * max(float64(left)/k.stays, 1./contestSlow)
}

// paceBeside is the pace in a contest, at a velocity; +Inf where that is no question. What was said last counts, for all that is reckoned
// since is what this process uses.
func (s *slot) paceBeside(now time.Time, velocity float64) float64 {
	k := &s.ledger.contest
	if !k.known() {
		return math.Inf(1)
	}
	left := k.left
	if s.ledger.stated {
		left = min(left, s.remaining(now))
	}
	return k.pace(left, velocity)
}
