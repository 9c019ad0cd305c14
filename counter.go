package heed

import "time"

// A counter finds out whether an origin keeps no more than two counts, of the present
// window and of the one before, and takes the units of that to have been used evenly: of these
// as many are still in use as there is left of the present window. What is left then
// grows at the pace of the window before.
type counter struct {
	end    time.Time // of the present window, as it was named first
	said   int64     // units of requests answered when the origin spoke last
	before int64     // units of the window before …
	mark   int64     // … and of all windows before the present one
	fits   int       // answers in a row that fit that, and nothing else …
	since  time.Time // … and when the first of them came
}

// learnCounter takes in what the answer to c says is left.
func (l *ledger) learnCounter(now, start time.Time, c *charge, p *Policy, s *statement, r int64) {
	k, w := &l.counter, p.Window
	if l.shape == shapeRefill || l.elastic || s.reset < 0 || s.refused || w <= 0 || p.Quota <= 0 {
		return
	}
	silent := max(l.answered-c.n-k.said, 0)
	k.said = l.answered
	if gap := start.Add(s.reset).Sub(k.end); gap > w/2 { // another window, however late the answer is
		mark := l.answered - c.n
		if *k = (counter{end: now.Add(s.reset), said: k.said, mark: mark, before: mark - k.mark}); gap-w > w/2 || silent > p.Quota/20 {
			k.before = 0
		}
	}
	used := l.answered - k.mark
	still := float64(k.before) * min(s.reset.Seconds()/w.Seconds(), 1)
	off := 2 + float64(l.sent-l.answered) + float64(k.before)*s.resolution.Seconds()/w.Seconds()
	counted := float64(p.Quota-used) - still
	sliding := float64(p.Quota - l.own.used(now, w))
	near := func(a, b, off float64) bool { return a-b <= off && b-a <= off }
	switch {
	case still <= 2*off || near(counted, sliding, 2*off): // that would look alike
	case !near(float64(r), counted, off):
		k.fits = 0
	case k.fits == 0:
		k.fits, k.since = 1, now
	default:
		if k.fits++; k.fits >= convinced && now.Sub(k.since) >= w/20 {
			l.shape = shapeRefill
		}
	}
}
