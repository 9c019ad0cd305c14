package heed

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Registry knows the limits of every origin it has met, and grants permits
// that keep to them. Share one between Transports to share what they know.
//
// The zero value is ready and has the defaults of [Config]; [NewRegistry]
// makes one that is configured. A Registry can be used without a Transport,
// by other HTTP stacks, queues and crawlers: [Registry.Acquire] a permit, send
// the request, have the permit observe the answer, release it.
//
// All methods may be called from any goroutine. Origins never wait for one
// another. A Registry must not be copied after first use.
type Registry struct {
	config Config
	seed   maphash.Seed
	ready  sync.Once
	number atomic.Uint64 // of the latest request: its place in line
	closed atomic.Bool
	detach func() error // from the shared ledger; nil: there is none

	limits   atomic.Pointer[overrides]
	limitsMu sync.Mutex   // held by those who change limits
	size     atomic.Int64 // partitions in all
	born     time.Time
	sweepDue atomic.Int64 // nanoseconds after born

	mu        sync.RWMutex // never taken while an origin's lock is held
	origins   map[string]*origin
	spellings map[spelling]*origin // as requests spell them, to find an origin without building its name
}

// overrides are the limits in force, by pattern; everyOrigin is always among
// them. They are never changed, only replaced.
type overrides map[string]*Limits

// A spelling is an origin as a request writes it.
type spelling struct{ scheme, host string }

// mostSpellings bounds how many ways to write an origin are remembered.
const mostSpellings = 4096

// Config configures a [Registry]. The zero value of each field is its default.
type Config struct {
	Default    Limits                     // origins that Origins does not name
	Origins    map[string]Limits          // "https://api.github.com", "https://*.example.org"; the most specific wins
	Origin     func(*http.Request) string // what shares an origin's limits; nil: scheme, host and port, as OriginOf gives them
	Partition  func(*http.Request) string // what has a quota of its own; nil: a credential
	Logger     *slog.Logger               // nil: slog.Default()
	Dialects   []Dialect                  // of the user's own, asked before those heed knows
	Ledger     Ledger                     // what several processes share; nil: this process alone
	OnEvent    func(Event)                // called on the request's goroutine with no lock held; nil: none
	IdleAfter  time.Duration              // how long an origin nobody uses is remembered; 0: an hour
	MaxOrigins int                        // origins and partitions remembered; 0: 100 000
}

const (
	defaultIdleAfter  = time.Hour
	defaultMaxOrigins = 100_000
)

// NewRegistry returns a Registry configured by c. The error names the first
// thing that is wrong with c.
func NewRegistry(c Config) (*Registry, error) {
	if c.IdleAfter < 0 || c.MaxOrigins < 0 {
		return nil, errors.New("heed: Config.IdleAfter and Config.MaxOrigins must not be negative")
	}
	r := &Registry{config: c}
	if err := r.SetAllLimits(c.Default, c.Origins); err != nil {
		return nil, err
	}
	return r, nil
}

// init fills in what the zero value leaves open.
func (r *Registry) init() {
	r.ready.Do(func() {
		orDefault(&r.config.IdleAfter, defaultIdleAfter)
		orDefault(&r.config.MaxOrigins, defaultMaxOrigins)
		r.seed = maphash.MakeSeed()
		r.born = time.Now()
		r.sweepDue.Store(int64(r.sweepEvery()))
		r.origins = make(map[string]*origin)
		r.spellings = make(map[spelling]*origin)
		r.limits.Store(&overrides{everyOrigin: Limits{}.withDefaults()})
		r.attach()
	})
}

// Acquire waits until req may be sent without breaking a limit of its origin
// and returns leave to send it. Of req it looks at the URL and the header
// alone. What ctx holds decides how it waits: its cancellation and deadline,
// and [NoWait], [WithCost], [WithPriority], [WithMinInterval], [WithTrace].
//
// Where the request would have to wait longer than ctx or the limits allow,
// the error is a [*LimitError], at once. Where ctx is cancelled while it
// waits, the error is context.Cause(ctx). Where the registry is closed, it is
// [ErrClosed].
func (r *Registry) Acquire(ctx context.Context, req *http.Request) (*Permit, error) {
	return r.acquire(ctx, req, ask{attempt: 1})
}

// acquire is Acquire for one attempt of a request; a carries what earlier
// attempts left: number, notBefore, attempt, status.
func (r *Registry) acquire(ctx context.Context, req *http.Request, a ask) (*Permit, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.init()
	if a.number == 0 {
		a.number = r.number.Add(1)
	}
	a.opts = optionsOf(ctx)
	a.path, a.req = pathOf(req), req
	a.arrived = time.Now()
	a.charged = len(a.opts.costs) > 0 && r.chargedHere(req)
	p := r.enter(req, a.arrived)
	w, pm, err := p.ask(ctx, &a)
	told := false
	defer func() {
		switch {
		case told: // nearly always
		case w != nil: // a function of the user's panicked
			w.abandon(time.Now())
		case pm != nil:
			pm.Cancel()
		}
	}()
	p.origin.unlock()
	if w != nil {
		if a.inLine != nil {
			a.inLine()
		}
		pm, err = w.wait(ctx)
		a.opts.trace.waited(time.Since(a.arrived), w.cause, w.policy)
		p.origin.mu.Lock()
		p.origin.unlock()
	}
	told = true
	return pm, err
}

func pathOf(req *http.Request) string {
	if req.URL == nil {
		return ""
	}
	return req.URL.Path
}

// ask grants a permit, refuses, or puts the request in line. o.mu is held.
func (p *partition) ask(ctx context.Context, a *ask) (*waiter, *Permit, error) {
	o, now := p.origin, a.arrived
	switch {
	case o.reg.closed.Load():
		return nil, nil, ErrClosed
	case o.limits.Unlimited:
		return nil, &Permit{}, nil
	}
	p.touch(now)
	p.wants(now, a)
	if s := p.impossible(a); s != nil {
		v := verdict{at: now, cause: CauseConcurrency, policy: s.policy.Name}
		return nil, nil, p.refusal(now, v, ReasonCost)
	}
	n, units := p.queue.ahead(a)
	v := p.judge(now, a, 0, 0)
	if n > 0 {
		v = p.judge(now, a, n, units)
		v.hold(now, false, CauseQueue, "")
	}
	if v.goes(now) && (o.waiting == 0 || a.opts.noWait || !o.hasCommonLimits(now)) {
		return nil, p.admit(now, a), nil
	}
	if l := o.limits; l.MaxWait > 0 {
		a.deadline, a.maxWait = now.Add(l.MaxWait), true
	}
	if d, ok := ctx.Deadline(); ok && (a.deadline.IsZero() || !d.After(a.deadline)) {
		a.deadline, a.maxWait = d, false
	}
	switch {
	case a.opts.noWait && !v.asks:
		return nil, nil, p.refusal(now, v, ReasonNoWait)
	case o.limits.MaxQueue > 0 && !p.shared.busy() && o.waiting >= o.limits.MaxQueue:
		return nil, nil, p.refusal(now, v, ReasonQueueFull)
	case a.late(v.at):
		return nil, nil, p.tooLate(now, a, v)
	}
	if v.events && !v.asks && !o.nested && o.heldBy(ctx) {
		o.nested = true
		p.emit(Event{Kind: eventNested, Time: now, Cause: v.cause})
	}
	w := &waiter{ask: *a, ctx: ctx, home: p, ready: make(chan struct{}), cause: v.cause, policy: v.policy}
	p.join(now, w)
	p.wake(now)
	select {
	case <-w.ready: // others that wait were held by something else
	default:
		if v.asks { // perhaps it need not wait
			break
		}
		p.emit(Event{Kind: EventWaiting, Time: now, Cause: v.cause, Policy: v.policyName(), Wait: v.at.Sub(now), Total: o.waited, Attempt: a.attempt})
	}
	return w, nil, nil
}

// heldBy reports whether ctx is that of a request in flight at the origin,
// one that holds a slot of it.
func (o *origin) heldBy(ctx context.Context) bool {
	pm, ok := ctx.Value(holderKey{}).(*Permit)
	return ok && pm.p.origin == o && !pm.over
}

// wait waits for w's turn, for as long as ctx and MaxWait allow.
func (w *waiter) wait(ctx context.Context) (*Permit, error) {
	var expired <-chan time.Time
	if w.maxWait {
		t := time.NewTimer(time.Until(w.deadline))
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-w.ready:
		return w.permit, w.err
	case <-ctx.Done():
	case <-expired:
	}
	now := time.Now()
	reason := ReasonDeadline
	if ctx.Err() == nil {
		if reason = ReasonMaxWait; !w.lastChance(now) {
			return w.permit, w.err
		}
	} else {
		if w.abandon(now); w.err != nil {
			return nil, w.err
		}
		if cause := context.Cause(ctx); cause != context.DeadlineExceeded {
			return nil, cause
		}
	}
	v := verdict{at: now, cause: w.cause, policy: w.policy}
	return nil, &LimitError{Origin: w.home.origin.name, Policy: v.policyName(), Wait: now.Sub(w.arrived), Reason: reason, Cause: w.cause}
}

// abandon takes w out of line, or gives back what it was granted meanwhile.
func (w *waiter) abandon(now time.Time) {
	o := w.home.origin
	o.mu.Lock()
	select {
	case <-w.ready:
		o.mu.Unlock()
		if w.permit != nil {
			w.permit.Cancel()
		}
	default:
		w.home.leave(w)
		w.home.wake(now)
		o.mu.Unlock()
	}
}

// lastChance takes w out of line where it may not go at now either, and
// reports whether it did.
func (w *waiter) lastChance(now time.Time) bool {
	o := w.home.origin
	o.mu.Lock()
	defer o.mu.Unlock()
	w.home.wake(now)
	select {
	case <-w.ready:
		return false
	default:
		w.home.leave(w)
		w.home.wake(now)
		return true
	}
}

// chargedHere reports whether a cost set for a request holds at its origin: it
// does at the first origin of a chain of redirects alone. No lock is held.
func (r *Registry) chargedHere(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first == req || r.nameOf(first) == r.nameOf(req)
}

// nameOf returns the name of the origin whose limits a request shares.
func (r *Registry) nameOf(req *http.Request) string {
	if r.config.Origin != nil {
		return r.config.Origin(req)
	}
	return OriginOf(req.URL)
}

// enter returns the partition a request belongs to, with its origin locked.
func (r *Registry) enter(req *http.Request, now time.Time) *partition {
	r.sweep(now)
	key := r.partitionOf(req)
	for {
		o := r.originFor(req, now)
		if p := r.lockPartition(o, key, now); p != nil {
			return p
		}
	}
}

// lockPartition locks o and returns its partition, made where there is none;
// nil, with nothing locked, where o was forgotten meanwhile.
func (r *Registry) lockPartition(o *origin, key partitionKey, now time.Time) *partition {
	o.mu.Lock()
	if o.gone {
		o.mu.Unlock()
		return nil
	}
	o.refresh()
	if p := o.partitions[key]; p != nil {
		return p
	}
	o.mu.Unlock()
	r.makeRoom(now, o)
	o.mu.Lock()
	if o.gone {
		r.size.Add(-1)
		o.mu.Unlock()
		return nil
	}
	if p := o.partitions[key]; p != nil { // made by another meanwhile
		r.size.Add(-1)
		return p
	}
	return o.newPartition(key, now)
}

// partitionOf returns what tells the holder of a quota from another.
func (r *Registry) partitionOf(req *http.Request) partitionKey {
	return hashCredential(r.seed, r.credential(req))
}

// credential returns what a request's partition is told by: a secret.
func (r *Registry) credential(req *http.Request) string {
	if r.config.Partition != nil {
		return r.config.Partition(req)
	}
	return credentialOf(req.Header)
}

// originFor returns the state of a request's origin, made where there is none.
func (r *Registry) originFor(req *http.Request, now time.Time) *origin {
	if r.config.Origin != nil {
		return r.originNamed(r.config.Origin(req), now)
	}
	u := req.URL
	if u == nil {
		u = &url.URL{}
	}
	s := spelling{u.Scheme, u.Host}
	r.mu.RLock()
	o := r.spellings[s]
	r.mu.RUnlock()
	if o != nil {
		return o
	}
	o = r.originNamed(OriginOf(u), now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spellings) >= mostSpellings+2*len(r.origins) {
		clear(r.spellings)
		for _, o := range r.origins {
			o.spellings = nil
		}
	}
	if r.origins[o.name] == o {
		s.host = strings.Clone(s.host) // not the URL it is part of
		r.spellings[s] = o
		o.spellings = append(o.spellings, s)
	}
	return o
}

func (r *Registry) originNamed(name string, now time.Time) *origin {
	r.mu.RLock()
	o := r.origins[name]
	r.mu.RUnlock()
	if o != nil {
		return o
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.origins[name]; o != nil {
		return o
	}
	o = &origin{reg: r, name: name, lastUsed: now}
	o.refresh()
	r.origins[name] = o
	return o
}

// refresh brings an origin's limits up to date.
func (o *origin) refresh() {
	in := o.reg.limits.Load()
	if in == o.overrides {
		return
	}
	o.overrides = in
	l, _ := lookUp(*in, o.name)
	if l == o.limits {
		return
	}
	o.limits = l
	for _, p := range o.partitions {
		p.configure()
		p.news = true
	}
}

// SetLimits sets the limits of one origin ("https://api.example.org"), of the
// hosts under one ("https://*.example.org"), or of all that have none of
// their own ("*"). The most specific wins, and replaces the others whole.
// Requests that wait are judged again at once. A bad origin or limit is an
// error, and nothing changes.
func (r *Registry) SetLimits(origin string, l Limits) error {
	name, err := canonicalPattern(origin, r.config.Origin != nil)
	if err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	r.change(func(all overrides) { all[name] = l.withDefaults() })
	r.log().Debug("heed: limits set", "origin", name, "limits", l)
	return nil
}

// ClearLimits takes back what SetLimits set for an origin; "*" takes back the
// default. What does not parse was never set, and changes nothing.
func (r *Registry) ClearLimits(origin string) {
	name, err := canonicalPattern(origin, r.config.Origin != nil)
	if err != nil {
		return
	}
	r.change(func(all overrides) { delete(all, name) })
	r.log().Debug("heed: limits cleared", "origin", name)
}

// SetAllLimits replaces all limits at once: def is for origins that origins
// does not name.
func (r *Registry) SetAllLimits(def Limits, origins map[string]Limits) error {
	if err := def.check(); err != nil {
		return err
	}
	all := map[string]*Limits{everyOrigin: def.withDefaults()}
	for origin, l := range origins {
		name, err := canonicalPattern(origin, r.config.Origin != nil)
		if err == nil {
			err = l.check()
		}
		if err != nil {
			return err
		}
		all[name] = l.withDefaults()
	}
	r.change(func(now overrides) {
		clear(now)
		maps.Copy(now, all)
	})
	r.log().Debug("heed: limits set", "default", def, "origins", origins)
	return nil
}

// change edits the limits and has every origin judged again.
func (r *Registry) change(edit func(overrides)) {
	r.init()
	r.limitsMu.Lock()
	all := maps.Clone(*r.limits.Load())
	edit(all)
	if all[everyOrigin] == nil {
		all[everyOrigin] = Limits{}.withDefaults()
	}
	r.limits.Store(&all)
	r.limitsMu.Unlock()
	now := time.Now()
	for _, o := range r.all() {
		o.mu.Lock()
		o.refresh()
		o.wakeAll(now)
		o.unlock()
	}
}

// all returns every origin.
func (r *Registry) all() []*origin {
	r.mu.RLock()
	defer r.mu.RUnlock()
	os := make([]*origin, 0, len(r.origins))
	for _, o := range r.origins {
		os = append(os, o)
	}
	return os
}

// Check reports whether req could be sent now, and if not, what would hold it
// and for how long. It takes nothing and waits for nobody.
func (r *Registry) Check(req *http.Request) Decision {
	r.init()
	now := time.Now()
	a := ask{opts: optionsOf(req.Context()), path: pathOf(req), number: r.number.Load() + 1, arrived: now}
	a.charged = len(a.opts.costs) > 0 && r.chargedHere(req)
	p := r.enter(req, now)
	if p.origin.limits.Unlimited {
		p.origin.unlock()
		return Decision{Allowed: true, Remaining: -1}
	}
	n, units := p.queue.ahead(&a)
	v := p.judge(now, &a, n, units)
	if n > 0 {
		v.hold(now, false, CauseQueue, "")
	}
	d := Decision{Allowed: v.goes(now), Wait: v.at.Sub(now), Cause: v.cause, Policy: v.policyName(), Remaining: p.remaining(now)}
	var q *Question
	if v.asks {
		q = p.question(&a)
	}
	p.origin.unlock()
	if q != nil {
		return p.checkShared(req, q, d)
	}
	return d
}

// A Decision is what [Registry.Check] found.
type Decision struct {
	Allowed   bool
	Wait      time.Duration // at least; 0 where it depends on requests in flight alone
	Cause     Cause         // what holds it
	Policy    string        // where Cause is CausePolicy
	Remaining int64         // least left over all policies; -1: unknown
	Err       error         // a shared ledger that cannot be reached
}

// Pause holds all of an origin's requests for d, on top of what holds them
// already: it never shortens a longer pause, and no cap shortens it. d <= 0
// ends every pause of the origin. It is an error where origin is not one.
func (r *Registry) Pause(origin string, d time.Duration) (err error) {
	now := time.Now()
	o, err := r.lockNamed(origin, now)
	if err != nil {
		return err
	}
	defer r.pauseShared(o.name, d, &err) // once the lock is free
	defer o.unlock()
	if d <= 0 {
		o.pause.end()
		for _, p := range o.partitions {
			p.pause.end()
		}
		o.emit(Event{Kind: EventResumed, Time: now, Whole: true, Manual: true})
	} else if o.pause.extend(now.Add(d)) {
		o.pause.manual = true
		for _, p := range o.partitions {
			p.opening.restart(now)
			p.news = true
		}
		o.emit(Event{Kind: EventPaused, Time: now, Cause: CausePause, Wait: d, Timed: true, Manual: true, Whole: true})
	}
	o.wakeAll(now)
	return nil
}

// Reset drops everything learned about an origin, its charges and its pauses,
// and keeps what was configured. Requests that wait are judged again at once.
// It is an error where origin is not one.
func (r *Registry) Reset(origin string) (err error) {
	now := time.Now()
	o, err := r.lockNamed(origin, now)
	if err != nil {
		return err
	}
	defer r.resetShared(o.name, &err) // once the lock is free
	defer o.unlock()
	o.reset(now)
	o.wakeAll(now)
	return nil
}

// reset makes o as if it had just been met, save for requests in flight.
func (o *origin) reset(now time.Time) {
	o.pause.end()
	o.backoff, o.lastStart, o.lastEnd = backoff{}, time.Time{}, time.Time{}
	o.known, o.opened, o.waited, o.warned, o.nested = nil, false, 0, false, false
	for _, p := range o.partitions {
		p.pause.end()
		p.backoff, p.cap, p.smoother, p.learner = backoff{}, concurrency{}, smoother{}, learner{}
		p.opening = opening{serial: p.opening.serial + 1}
		p.slots = nil
		p.configure()
		p.shared.forget()
		for pm := p.inFlight.oldest; pm != nil; pm = pm.younger {
			pm.charges = nil
		}
		for _, w := range p.parked {
			w.notBefore = time.Time{}
		}
	}
}

// lockNamed returns the origin of that name, locked; made where there is
// none, so that what is asked of it holds from its first request on.
func (r *Registry) lockNamed(name string, now time.Time) (*origin, error) {
	r.init()
	name, err := canonicalPattern(name, r.config.Origin != nil)
	if err != nil {
		return nil, err
	}
	if strings.Contains(name, everyOrigin) && r.config.Origin == nil {
		return nil, fmt.Errorf("heed: %q is not one origin", name)
	}
	for {
		o := r.originNamed(name, now)
		o.mu.Lock()
		if !o.gone && len(o.partitions) > 0 {
			o.refresh()
			return o, nil
		}
		o.mu.Unlock()
		if p := r.lockPartition(o, 0, now); p != nil {
			return o, nil
		}
	}
}

// wakeAll looks at all waiting requests of the origin, deadlines included.
func (o *origin) wakeAll(now time.Time) {
	for _, p := range o.partitions {
		p.news = true
	}
	o.wake(now)
}

// Close ends every wait with [ErrClosed], and refuses what comes after. Its
// error is that of a shared ledger that could not take back what it had lent.
func (r *Registry) Close() error {
	r.init()
	r.closed.Store(true)
	for _, o := range r.all() {
		o.mu.Lock()
		for _, p := range o.partitions {
			drop := func(w *waiter, _ int, _ int64) {
				p.leave(w)
				w.resolve(nil, ErrClosed)
			}
			p.queue.all(drop)
			for len(p.parked) > 0 {
				drop(p.parked[0], 0, 0)
			}
			p.setAlarm(time.Time{})
			p.closeShared()
		}
		o.unlock()
	}
	return r.detachShared()
}
