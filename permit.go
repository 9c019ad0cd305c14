package heed

import (
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// A Permit is leave to send one request, from [Registry.Acquire]. Whoever
// holds one must end it, with Release, or with Cancel where the request was
// not sent: one that is never ended counts as in flight for good. All methods may
// be called from any goroutine, and more than once.
type Permit struct {
	origin    *origin    // nil: it is unlimited, and the permit counts nothing
	p         *partition // guarded by the origin's lock
	start     time.Time
	method    string
	path      string
	number    uint64
	attempt   int
	spent     time.Duration // waited by the earlier attempts
	first     uint32        // of its origin's opening it went under …
	serial    uint32        // … of its partition's …
	lane      *lane         // … with those of the same budgets; nil: none known …
	ahead     uint32        // … under that lane's opening
	waited    time.Duration
	sought    time.Time     // when one that the learner held, be it this one, last waited or was turned away before it went
	left      time.Duration // until its context's deadline; 0: it has none
	level     int           // unanswered requests of the partition when it went, itself included …
	well      int64         // … and the most that there had been when one went that had been accepted by then
	paced     bool          // it took of what the partition spreads over a window …
	lanePaced bool          // … and of what its lane does
	spaced    bool          // others keep an interval from when it is sent: see goes
	grant     Grant         // of a shared ledger; nil: there is none
	costs     []cost        // set for its request

	charges   []charge
	inline    [3]charge // so that the usual few need no memory of their own
	earlier   starts    // the origin's last before it
	answered  bool
	observed  bool
	over      bool
	listening *int      // counts it among those whose bodies are being looked at; nil: it is not
	chance    float64   // that it had of going where lots were drawn, of a route under suspicion and others; 0: they were not
	doubted   bool      // sent during a pause, to see whether another path is refused too
	retryAt   time.Time // refused without a hint: its own next try is not before this
	budgets   string    // refused: the key of the lane of those that its answer named; "": none

	older, younger *Permit // in the partition's flights

	body    io.ReadCloser // the response's, once it came
	looked  atomic.Bool   // the dialects read from bodies have had its beginning
	look    *bodyLook     // they are yet to have it; nil: there are none
	counts  bool          // a policy counts its bytes
	watched bool          // and a Transport sees them pass
	slots   bool          // its origin has slots that can run out
	content atomic.Int64  // bytes of the request's and the response's content …
	unread  atomic.Int64  // … and of the latter those not read yet; negative: nobody knows
}

// flights is the permits of a partition that are not over, oldest first.
type flights struct {
	oldest, youngest *Permit
	len              int
}

func (f *flights) add(pm *Permit) {
	pm.older, pm.younger = f.youngest, nil
	for pm.older != nil && pm.older.start.After(pm.start) { // it comes from another partition
		pm.older, pm.younger = pm.older.older, pm.older
	}
	if pm.older == nil {
		f.oldest = pm
	} else {
		pm.older.younger = pm
	}
	if pm.younger == nil {
		f.youngest = pm
	} else {
		pm.younger.older = pm
	}
	f.len++
}

func (f *flights) remove(pm *Permit) {
	if pm.older == nil {
		f.oldest = pm.younger
	} else {
		pm.older.younger = pm.younger
	}
	if pm.younger == nil {
		f.youngest = pm.older
	} else {
		pm.younger.older = pm.older
	}
	pm.older, pm.younger = nil, nil
	f.len--
}

// goes says that the permit's request is about to be sent: whoever was to be told of it, or the answer
// to its last try, may have taken time since it was let go.
func (pm *Permit) goes() {
	if pm.spaced {
		o := pm.origin
		o.went(o.lock(), pm.start)
		o.mu.Unlock()
	}
}

// Observe learns from the answer's status and fields, and reports what they
// say. If the answer is a refusal with a problem document, it looks at that too,
// waits for it no longer than a second, and puts the body back. Observe does not
// end the permit: its request is in flight until [Permit.Release]. Only the first
// answer counts; nil is ignored.
func (pm *Permit) Observe(resp *http.Response) Announcement {
	now := time.Now()
	switch {
	case resp == nil:
		return Announcement{}
	case pm.origin == nil:
		return parse(resp, now, bodyPatience)
	}
	r := pm.origin.reg
	origin := r.spokenAt(pm.origin, resp.Request)
	a, more := parseFields(origin, resp, now, r.config.Dialects)
	if more {
		pm.listen(resp.StatusCode, &a)
		if a.parseBody(origin, resp, peekBody(resp, bodyPatience), now, r.config.Dialects) {
			pm.looked.Store(true)
		}
	}
	pm.learn(pm.origin.lockAt(now), now, resp.StatusCode, &a)
	return a
}

// Learn takes in limits or a refusal from a source other than a response's
// status and fields: its body, a stream, a message out of band. It can be
// called at any time, before or after Observe, and after Release as long as the
// origin is not forgotten ([Config].IdleAfter). A RetryAfter holds all requests
// that share the quota for that long, but no longer than [Limits].MaxRetryAfter,
// whether or not anything was refused.
func (pm *Permit) Learn(a Announcement) {
	if pm.origin != nil {
		pm.learn(pm.origin.lock(), time.Time{}, 0, &a)
	}
}

// learn is Observe's and Learn's common part; status 0 is no answer, else it came at an instant. The
// origin is locked, and no more after.
func (pm *Permit) learn(now, came time.Time, status int, a *Announcement) {
	o := pm.origin
	defer o.unlock()
	if pm.p.forgotten() {
		return
	}
	if status != 0 {
		if pm.observed {
			return
		}
		pm.observed = true
	}
	a = a.sane()
	before, first := pm.p.pauses(), status != 0 && !pm.answered
	pm.p.hear(now, came, pm, status, a)
	pm.tellLedger(now, a, first, before)
	if status != 0 {
		pm.heard()
	}
	if o.waiting > 0 { // they go now, and not when it came
		now = o.present()
	}
	pm.p.wake(now)
}

// listen has everyone wait whom a refusal may hold whose body is being looked
// at: its fields say for how long, and only its body whom.
func (pm *Permit) listen(status int, fields *Announcement) {
	o := pm.origin
	o.mu.Lock()
	defer o.unlock()
	if pm.over || pm.observed || pm.listening != nil || hintOf(fields, o.limits.IgnoreHeaders) <= 0 {
		return
	}
	pm.listening = &pm.p.listening
	if status == http.StatusServiceUnavailable {
		pm.listening = &o.listening
	}
	*pm.listening++
}

// heard ends what listen began.
func (pm *Permit) heard() {
	if pm.listening != nil {
		*pm.listening--
		pm.listening = nil
		pm.origin.stirred = true
	}
}

// Remaining returns the least left over all policies, announced, configured or
// learned, in their units; -1 where nothing is known. Policies of bytes are left
// out: [Registry.Snapshot] has them.
func (pm *Permit) Remaining() int64 {
	if pm.origin == nil {
		return -1
	}
	o := pm.origin
	now := o.lock()
	defer o.mu.Unlock()
	return pm.p.remaining(now, pm.lane)
}

// Release ends the permit: the request is over, its response's body read or
// closed. Without Observe it means: sent, outcome unknown; what it took is
// spent.
func (pm *Permit) Release() { pm.end(false) }

// Cancel ends the permit of a request that was never sent (a dial error,
// say), and gives back what it took. After Observe it is Release.
func (pm *Permit) Cancel() { pm.end(true) }

func (pm *Permit) end(unsent bool) {
	if pm.origin == nil {
		return
	}
	o := pm.origin
	now := o.lock()
	defer o.unlock()
	if pm.over {
		return
	}
	p := pm.p
	pm.over = true
	pm.heard()
	unsent = unsent && !pm.answered
	if pm.observed && pm.left > 0 {
		o.reserve.answered(now, now.Sub(pm.start))
	}
	for i := range pm.charges {
		c := &pm.charges[i]
		if unsent {
			c.slot.refund(now, c)
		} else {
			bytes, exact := pm.bytes()
			c.slot.over(now, pm.start, c, bytes, exact)
		}
	}
	if unsent {
		pm.unspread(now)
	}
	pm.endShared(unsent)
	p.inFlight.remove(pm)
	o.inFlight--
	o.shared.until = time.Time{} // which may have been for this one
	if !pm.answered {
		pm.answered = true
		p.unanswered--
		pm.gone()
	}
	if !unsent {
		o.lastEnd = now
	} else {
		o.takeBack(pm.start, pm.earlier)
	}
	p.touch(now)
	p.wake(now)
}

// unspread gives back what the permit's request took of what is spread over a
// window, where it was not sent, or cost nothing.
func (pm *Permit) unspread(now time.Time) {
	n := costOf(pm.costs, UnitRequests, 1)
	if pm.paced {
		pm.p.pacer().refund(now, n)
	}
	if pm.lanePaced {
		pm.lane.smoother.refund(now, n)
	}
}

// free reports whether its request was said to cost nothing of a unit.
func (pm *Permit) free(u Unit) bool { return slices.Contains(pm.costs, cost{u, 0}) }

// gone says that the permit's request is answered, or never will be.
func (pm *Permit) gone() {
	pm.origin.opening.gone(pm.first)
	pm.p.opening.gone(pm.serial)
	if pm.lane != nil {
		pm.lane.opening.gone(pm.ahead)
	}
}

// bytes is how much content the request and its response held, -1 where
// nobody counted; what was not read of the response counts where it is known, for
// the origin has sent it. Else bytes is what it held at least.
func (pm *Permit) bytes() (n int64, exact bool) {
	if !pm.counts || !pm.watched {
		return -1, false
	}
	n, unread := pm.content.Load(), pm.unread.Load()
	return n + max(unread, 0), unread >= 0
}

// ownRetryAt is the instant before which a refused request is not to be tried
// again, whatever the limits it shares say; zero: none.
func (pm *Permit) ownRetryAt() time.Time {
	if pm.origin == nil {
		return time.Time{}
	}
	o := pm.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	return pm.retryAt
}

// namedBudgets is the key of the lane of the budgets that its refusal named; "": none.
func (pm *Permit) namedBudgets() string {
	if pm.origin == nil {
		return ""
	}
	o := pm.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	return pm.budgets
}

// limits are what the user asks for the permit's origin.
func (pm *Permit) limits() *Limits {
	o := pm.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limits
}
