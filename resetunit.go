package heed

import "time"

// A resetUnit finds out what an origin counts the time to a reset in that it names as a plain
// number: seconds, as nearly all do, or thousandths of one, as MuleSoft and Zuul. The number
// tells: from one answer of a window to the next it falls by as many as have passed. Until
// that is seen, one that would make a window of no length that windows mostly have is taken for
// thousandths, save where nothing is left. For requests that are spread over hours would not
// show for hours that it was seconds that the origin named; and those that go sooner do.
type resetUnit struct {
	seconds, thousandths bool          // it was seen to be
	doubtful             bool          // the number of a window was odd, if of seconds
	first                time.Duration // the number that an answer named, as seconds …
	sent, heard          time.Time     // … when its request went, and when it came …
	alike                int           // … and answers since whose numbers are as much less, if of seconds
}

// read returns what a limit's reset is in an answer to a request sent at start.
func (u *resetUnit) read(now, start time.Time, lim ServiceLimit) ServiceLimit {
	if lim.Reset > 0 && !lim.Clock && lim.Resolution == time.Second {
		u.measure(now, start, lim.Reset)
	}
	return u.convert(lim)
}

// convert is read for a limit that was read before.
func (u *resetUnit) convert(lim ServiceLimit) ServiceLimit {
	if lim.Reset < 0 || lim.Clock || lim.Resolution != time.Second {
		return lim
	}
	if u.thousandths || u.doubtful && !u.seconds && lim.Remaining != 0 {
		lim.Reset, lim.Resolution = lim.Reset/1000, time.Millisecond
	}
	return lim
}

// measure compares by how much the number has fallen with how long that took.
func (u *resetUnit) measure(now, start time.Time, named time.Duration) {
	if u.seconds {
		return
	}
	fell, least, most := u.first-named, start.Sub(u.heard), now.Sub(u.sent)
	asSeconds := fell <= most+time.Second && fell >= least-time.Second
	asThousandths := fell/1000 <= most+time.Millisecond && fell/1000 >= least-time.Millisecond
	over := most >= u.first/1000 // a window of thousandths may be
	switch {
	case u.heard.IsZero(), fell < 0:
		u.doubtful = named >= 1000*time.Second && !roundly(named)
		fallthrough
	case !asSeconds && (over || !asThousandths):
		u.first, u.sent, u.heard, u.alike = named, start, now, 0
	case over:
		if u.alike++; fell >= 2*time.Second && u.alike >= convinced {
			u.seconds = !u.thousandths
		}
	case !asThousandths:
		u.seconds = !u.thousandths
	case !asSeconds && fell >= surelyFell && fell/1000 >= most-least: // else it is known too badly how many have passed
		u.thousandths = true
	}
}

// surelyFell is so much that it is not by chance that a number fell by as many thousandths as
// have passed, if that is longer than requests and answers were on their way: two windows of
// seconds may be told of in turn.
const surelyFell = 16 * time.Second
