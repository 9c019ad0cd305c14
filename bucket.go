package heed

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A tokenBucket is the books of a limit whose units come back one by one: of a configured
// policy with a burst, and of a rate that was learned, which keeps to a window beside.
type tokenBucket struct {
	limiter *rate.Limiter
	within  within
	strict  *strict // of a rate that was learned, if any is known; or nil
}

// newTokenBucket returns a bucket that is full, and gains so many units per second.
func newTokenBucket(perSecond float64, burst int64) *tokenBucket {
	return &tokenBucket{limiter: rate.NewLimiter(rate.Limit(perSecond), int(min(burst, math.MaxInt)))}
}

// resize changes the bucket's rate and its size; what it holds stays, as far as it fits.
func (b *tokenBucket) resize(now time.Time, perSecond float64, burst int64) {
	b.limiter.SetLimitAt(now, rate.Limit(perSecond))
	b.limiter.SetBurstAt(now, int(min(burst, math.MaxInt)))
}

func (b *tokenBucket) free(now time.Time, n int64, _ *Policy, _ bool) (time.Time, bool) {
	if b.strict != nil && b.strict.on {
		return latest(b.strict.free(n), now), true
	}
	at := now
	if missing := float64(n) - b.limiter.TokensAt(now); missing > 0 {
		at = now.Add(nanoseconds(missing/float64(b.limiter.Limit())*1e9) + 1)
	}
	return b.within.free(now, at, n)
}

// counting is a window at most, wherever it hangs.
func (b *tokenBucket) counting(most time.Duration, _ *Policy) (time.Duration, bool) {
	return min(b.within.window, most), true
}

func (b *tokenBucket) take(now time.Time, n int64, _ *Policy) charge {
	b.limiter.AllowN(now, int(n))
	b.within.own.take(n)
	if b.strict != nil {
		b.strict.take(now)
	}
	return charge{n: n}
}

func (b *tokenBucket) refund(now time.Time, c *charge) {
	b.limiter.AllowN(now, -int(c.n)) // gives back; never above the burst
	b.within.own.refund(c.n)
	if b.strict != nil { // be it not the latest
		b.strict.done = now
	}
}

func (b *tokenBucket) settle(now, start time.Time, c *charge, _ *Policy) {
	b.within.answered(now, start, c.n)
	if b.strict != nil {
		b.strict.over(now, start)
	}
}

// correct takes more units than were taken, be it into debt, or gives some back.
func (b *tokenBucket) correct(now, _ time.Time, c *charge, n int64, _ *Policy) {
	l, more := b.limiter, n-c.n
	burst := l.Burst()
	l.SetBurstAt(now, int(max(more, int64(burst)))) // no more than that can be taken at once
	l.ReserveN(now, int(more))
	l.SetBurstAt(now, burst)
	l.AllowN(now, 0) // never above the burst
}

func (b *tokenBucket) remaining(now time.Time, _ *Policy) int64 {
	tokens, burst := b.limiter.TokensAt(now), b.limiter.Burst()
	if tokens >= float64(burst) { // which may be beyond all integers
		return int64(burst)
	}
	return max(int64(tokens), 0)
}

func (b *tokenBucket) rest(now time.Time, p *Policy) time.Time {
	at, _ := b.free(now, p.Burst, p, false)
	return at
}

// A within is what a limit lets through in any time as long as its window, as far as is
// known. Those that go evenly can still meet at the origin, where some take longer than
// others to get there: no more are on their way, or were answered within a window, than
// one lets through.
type within struct {
	quota  int64
	window time.Duration // what is in use is counted over it; 0: not known
	holds  bool          // it is kept to: who finds out about it, or waits for it to open, only counts
	trip   time.Duration // the quickest there was: so long before its answer a request was counted, at least
	own    usage
}

// keepTo keeps to the window that a limit is taken to have, and to as much more as the
// pace lets go.
func (w *within) keepTo(l *learner, pace float64) {
	r := &l.rate
	w.trip, w.window = l.quickest, r.window
	if w.holds = !l.blocked && !l.goesByAnswers() && r.climb == 0 && l.quickest < r.window; w.holds {
		w.quota = max(r.cycle, int64(math.Ceil(pace*w.window.Seconds()-1e-6))) // at the very pace of the window no more than it lets through
	}
}

// atOnce is how many may go at once. What a window has held back is made up for, for it lets through no more
// than it does however they go: not where it may be a bucket, though, that only asks for a window's wait.
func (w *within) atOnce(r *throughput) int64 {
	if w.holds && (r.sure || r.bunches) {
		return max(w.quota/few, 1)
	}
	return 1
}

// free moves the instant at which n units may go back to when there is room for them.
func (w *within) free(now, at time.Time, n int64) (time.Time, bool) {
	if !w.holds {
		return at, true
	}
	back, known := w.own.back(now, w.own.used(now, w.window)+n-w.quota, w.window)
	return latest(at, back), known
}

// answered takes in the answer to a request that took n units.
func (w *within) answered(now, start time.Time, n int64) {
	w.own.done(now, start, w.trip, n, w.quota, w.window)
}
