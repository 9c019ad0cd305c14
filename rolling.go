package heed

import "time"

// A rollingWindow is the books of a configured policy: what this process took in any time as
// long as its window.
type rollingWindow struct {
	own usage
}

func (w *rollingWindow) free(now time.Time, n int64, p *Policy, _ bool) (time.Time, bool) {
	var cycles int64
	if n > p.Quota { // those ahead take whole windows first
		cycles = (n - 1) / p.Quota
		n -= cycles * p.Quota
	}
	missing := w.own.used(now, p.Window) + n - p.Quota
	at, known := w.own.back(now, missing, p.Window)
	if !known {
		at = now.Add(p.Window) // those in flight come back no sooner
	}
	return at.Add(times(cycles, p.Window)), known
}

// counting is a window from a request's arrival at the origin, whenever that was.
func (w *rollingWindow) counting(most time.Duration, p *Policy) (time.Duration, bool) {
	return min(p.Window, ages) + min(most, ages), true
}

func (w *rollingWindow) take(_ time.Time, n int64, _ *Policy) charge {
	w.own.take(n)
	return charge{n: n}
}

func (w *rollingWindow) refund(_ time.Time, c *charge) { w.own.refund(c.n) }

func (w *rollingWindow) settle(now, start time.Time, c *charge, p *Policy) {
	w.own.done(now, start, 0, c.n, p.Quota, p.Window)
}

func (w *rollingWindow) correct(now, start time.Time, c *charge, n int64, p *Policy) {
	w.own.more(now, start, n-c.n, p)
}

func (w *rollingWindow) remaining(now time.Time, p *Policy) int64 {
	return max(p.Quota-w.own.used(now, p.Window), 0)
}

func (w *rollingWindow) rest(_ time.Time, p *Policy) time.Time { return w.own.rest(p.Window) }
