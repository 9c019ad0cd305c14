package heed

import "time"

// sickPages tells pages that are refused for good from a limit, which knows nothing of which request was refused before: of those that
// are tried again it lets through as many as of any others, and they stand first in line. So where none of them is accepted, time and
// again, though others are that are tried for the first time, those pages are sick. Such others have to be of the same route, for
// routes may have limits of their own; or those refused have to be of a new one each time, as where pages have names.
//
// From then on what is refused when it is tried again teaches nothing, and a page that is refused at its first try counts as chance.
// Where one is accepted when it is tried again there is a limit, it may be, and it takes twice as many to show that there are such pages.
type sickPages struct {
	route  string // of the one that was refused last when it was tried again
	well   bool   // since then another one of that route was accepted at its first try …
	other  bool   // … or one of any
	lately paths  // routes of those refused
	n      int    // times in a row that it was so when the next was refused
	many   bool   // so often that there are such pages
	wrong  int    // times that one got over it all the same

	tried   int // for the first time …
	refused int // … and refused
}

const (
	manySick  = 6 // refused again in a row, at first
	mostWrong = 8 // times after which no more are asked for
)

// accepted takes in that pm's request was accepted.
func (s *sickPages) accepted(pm *Permit) {
	switch {
	case s == nil:
	case pm.attempt > 1:
		if s.many {
			s.wrong++
		}
		s.n, s.many = 0, false
	default:
		s.tried++
		s.other, s.well = true, s.well || isOf(s.route, pm.method, pm.path)
	}
}

// refusedAgain takes in that pm's request was refused, which had been before. It reports whether that shows that there are sick
// pages.
func (s *sickPages) refusedAgain(pm *Permit) (shows bool) {
	tells := s.well
	if !isOf(s.route, pm.method, pm.path) {
		s.route = pm.route()
		tells = s.other && !s.lately.has(s.route)
		s.lately.add(s.route)
	}
	if tells {
		s.n, s.other = s.n+1, false
	}
	s.well = false
	shows = s.n >= manySick<<min(s.wrong, mostWrong) && !s.many
	s.many = s.many || shows
	return shows
}

// are reports whether there are such pages.
func (s *sickPages) are() bool { return s != nil && s.many }

// refusesPages takes in that a request was refused. Where that shows that there are sick pages, what was learned from them is
// forgotten. Of 503s nothing was: see outPaths.
func (p *partition) refusesPages(r *rejection) {
	l, pm := &p.learner, r.pm
	switch {
	case l.healthy.has(pm.path):
		return
	case pm.attempt <= 1:
		if l.pages != nil {
			l.pages.tried++
			l.pages.refused++
		}
		return
	}
	if l.pages == nil {
		l.pages = &sickPages{}
	}
	if l.pages.refusedAgain(pm) && l.chance.share == 0 && !r.whole {
		p.unlearn()
		l.chance.take(float64(l.pages.refused) / float64(max(l.pages.tried, 1)))
		l.chance.hint, l.chance.others = r.hint, r.hint > 0
	}
}

// refusesSick takes in that pm's request was refused, and reports whether that is just one more time that a sick page is, which names
// no time. It waits by itself then, and holds nobody: it tells nothing of the others. As with any refusals, its waits begin anew where
// something was accepted meanwhile.
func (p *partition) refusesSick(now time.Time, pm *Permit, a *Announcement) bool {
	l, limits := &p.learner, p.origin.limits
	if pm.attempt <= 1 || !l.pages.are() || l.healthy.has(pm.path) || hintOf(a, limits.IgnoreHeaders) > 0 || p.explains(now, pm, a) {
		return false
	}
	n := pm.attempt
	if p.lastWell.After(pm.start.Add(-pm.waited)) { // since it was refused the time before
		n = 1
	}
	pm.retryAt = now.Add(backoffWait(n, limits.MinBackoff, limits.MaxBackoff))
	return true
}
