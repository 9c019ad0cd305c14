package heed

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math"
	"net/http"
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

	limits   overrides
	born     time.Time
	sweepDue atomic.Int64 // nanoseconds after born

	size      atomic.Int64 // partitions in all
	roomAt    atomic.Int64 // size at which to look for room again
	squeezing sync.Mutex   // held by who looks for it
	warnedAt  time.Time    // that some were forgotten too soon; guarded by squeezing

	mu        sync.RWMutex // never taken while an origin's lock is held
	origins   map[string]*origin
	spellings map[spelling]*origin // as requests spell them, to find an origin without building its name
}

// Config configures a [Registry]. The zero value of each field is its default.
type Config struct {
	// Default has the limits of all origins that Origins does not name.
	Default Limits

	// Origins has limits by origin: "https://api.github.com", or for all hosts of
	// a domain "https://*.example.org". The most specific entry counts, alone:
	// nothing is added to it from a less specific one, nor from Default.
	Origins map[string]Limits

	// Origin names the origin a request belongs to: requests of one name share
	// limits. It is called for every request, by several goroutines at once.
	// nil: scheme, host and port, as [OriginOf] gives them.
	Origin func(*http.Request) string

	// Partition returns what tells the holders of quotas apart within an origin,
	// such as an API key; requests with the same string share quotas. Only a hash
	// of it is kept. It is called for every request, by several goroutines at once.
	// nil: the request's credential, as the package documentation says under
	// "Limits by origin".
	Partition func(*http.Request) string

	Logger   *slog.Logger // nil: slog.Default()
	Dialects []Dialect    // the user's own, looked at before those heed knows
	Ledger   Ledger       // the books that several processes share; nil: this process keeps its own

	// OnEvent is told of everything that happens. It is called on the goroutine
	// that brought the event about, which waits for it, by several at once, with no
	// lock held. nil: none.
	OnEvent func(Event)

	IdleAfter  time.Duration // how long an origin that nobody uses is remembered; 0: an hour
	MaxOrigins int           // origins and partitions remembered together; 0: 100 000
}

const (
	defaultIdleAfter  = time.Hour
	defaultMaxOrigins = 100_000
)

// NewRegistry returns a Registry configured by c. The error says what is wrong
// with c: a bad origin or limit, a negative IdleAfter or MaxOrigins, a Dialect's
// origin that no request can have, or whatever the method Err of its Ledger
// returns, if it has one.
func NewRegistry(c Config) (*Registry, error) {
	if c.IdleAfter < 0 || c.MaxOrigins < 0 {
		return nil, errors.New("heed: Config.IdleAfter and Config.MaxOrigins must not be negative")
	}
	if l, ok := c.Ledger.(interface{ Err() error }); ok {
		if err := l.Err(); err != nil {
			return nil, ledgerError(err)
		}
	}
	if c.Origin == nil { // else origins have names of the user's
		for i := range c.Dialects {
			if err := c.Dialects[i].check(); err != nil {
				return nil, err
			}
		}
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
		r.limits.edit(func(map[string]*Limits) {})
		r.attach()
	})
}

// Acquire waits until req may be sent without breaking a limit of its origin
// and returns leave to send it. It looks only at the method, the URL and the
// header of req and, for a redirect, at the requests that led to it;
// Config.Origin and Config.Partition may look at more. What ctx holds decides how
// it waits: its cancellation and deadline, and [NoWait], [WithCost],
// [WithPriority], [WithMinInterval] and [WithTrace]. With [Bypass] it does not
// wait, and the permit counts nothing.
//
// If the request would have to wait longer than ctx or the limits allow, Acquire
// returns a [*LimitError] as soon as that is known, at its deadline at the latest.
// If ctx is cancelled while the request waits, it returns context.Cause(ctx), and
// if the registry is closed, [ErrClosed]. The error of a shared ledger is returned
// wrapped.
func (r *Registry) Acquire(ctx context.Context, req *http.Request) (*Permit, error) {
	pm, err := r.acquire(ctx, req, ask{attempt: 1})
	if pm != nil {
		pm.goes()
	}
	return pm, err
}

// acquire is Acquire for one attempt of a request; a carries what earlier
// attempts left.
func (r *Registry) acquire(ctx context.Context, req *http.Request, a ask) (*Permit, error) {
	w, pm, err := r.begin(ctx, req, a)
	if w == nil {
		return pm, err
	}
	told := false
	defer func() {
		switch {
		case told:
		case pm != nil: // the user's OnEvent panicked
			pm.Cancel()
		default:
			w.giveUp(false)
		}
	}()
	if a.inLine != nil {
		a.inLine()
	}
	pm, err = w.wait(ctx)
	optionsOf(ctx).trace.waited(time.Since(w.arrived), w.held)
	w.origin.flush()
	told = true
	return pm, err
}

// begin grants a permit, refuses, or puts the request in line: one of what it
// returns is set.
func (r *Registry) begin(ctx context.Context, req *http.Request, a ask) (w *waiter, pm *Permit, err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	r.init()
	if a.opts = optionsOf(ctx); a.opts.bypass {
		return nil, &Permit{}, nil
	}
	p := r.enter(req, &a)
	w, pm, err = p.ask(ctx, &a)
	told := false
	defer func() {
		if told {
			return
		}
		if w != nil { // the user's OnEvent panicked
			w.giveUp(false)
		}
		if pm != nil {
			pm.Cancel()
		}
	}()
	p.origin.unlock()
	told = true
	return w, pm, err
}

// Check reports whether req could be sent now, and if not, what would hold it
// and for how long. It takes nothing and does not wait for its turn; a shared
// ledger is asked. What the request's context holds counts as it does for
// [Registry.Acquire].
func (r *Registry) Check(req *http.Request) Decision {
	d, _ := r.look(req, ask{})
	return d
}

// look is Check for a request that would stand in several lines: a carries which.
func (r *Registry) look(req *http.Request, a ask) (d Decision, pr prospect) {
	r.init()
	a.opts, a.number = optionsOf(req.Context()), math.MaxUint64
	switch {
	case a.opts.bypass:
		return Decision{Allowed: true, Remaining: -1}, pr
	case r.closed.Load():
		return Decision{Remaining: -1, Err: ErrClosed}, pr
	}
	p := r.enter(req, &a)
	o := p.origin
	if o.limits.Unlimited {
		o.unlock()
		return Decision{Allowed: true, Remaining: -1}, pr
	}
	now := a.arrived
	a.lane = p.laneOf(now, &a)
	a.limit(req.Context(), o.limits.MaxWait)
	if s := p.impossible(&a); s != nil {
		d = Decision{Cause: CausePolicy, Policy: s.policy.Name, Remaining: p.remaining(now, a.lane)}
		o.unlock()
		return d, pr
	}
	if o.spaced > 0 { // who may go by now goes first, or has the origin kept free
		o.serve(now)
	}
	pl := p.placeOf(&a)
	var v verdict
	p.asIfNobodyCame(func() {
		p.wants(now, &a) // as it would
		v = p.behindOthers(now, &a, &pl, p.judge(now, &a, &pl))
		pr = p.prospect(now, &a, &pl, &v)
	})
	if v.goes(now) {
		v = p.behindKin(now, &a, v)
	}
	if pl.n > 0 && v.goes(now) && !(a.opts.noWait && p.spreads()) {
		v.await(now, CauseQueue)
	}
	d = Decision{Allowed: v.goes(now), Wait: v.at.Sub(now), Cause: v.cause, Policy: v.policy, Remaining: p.remaining(now, a.lane)}
	if !v.asks {
		o.unlock()
		return d, pr
	}
	q := p.question(&a)
	d.Remaining = p.remainingHere(now, a.lane) // for the ledger is about to say what it knows now
	o.unlock()
	return p.checkShared(req, q, d), pr
}

// A Decision is what [Registry.Check] found.
type Decision struct {
	Allowed   bool
	Wait      time.Duration // at least; 0 where it depends on requests in flight alone
	Cause     Cause         // what holds it
	Policy    string        // where Cause is CausePolicy or CauseSmoother
	Remaining int64         // least left over all policies but those of bytes; -1: unknown
	Err       error         // why it cannot be said: a shared ledger that cannot be reached, or ErrClosed
}

// Pause holds all of an origin's requests for d, on top of what holds them
// already: it never shortens a longer pause, and no cap shortens it. d <= 0
// ends every pause of the origin. It names one origin, no wildcard, which need not
// have been met. With a shared ledger it holds here at once and then in all
// processes, and Pause returns once the ledger has answered. The error says that
// origin is not the name of one, or is the ledger's: then it holds here alone.
func (r *Registry) Pause(origin string, d time.Duration) (err error) {
	o, now, err := r.lockNamed(origin)
	if err != nil {
		return err
	}
	defer r.pauseShared(o.name, d, &err) // once the lock is free
	defer o.unlock()
	if d <= 0 {
		o.resume(now)
	} else if o.pause.hand(now.Add(d)) {
		o.reopenAll(now)
		o.emit(Event{Kind: EventPaused, Time: now, Cause: CausePause, Wait: d, Timed: true, Manual: true, Whole: true})
	}
	o.wakeAll(now)
	return nil
}

// Reset forgets everything learned about an origin, what was used of its quotas,
// its pauses, and what is left of a running MinInterval or MinPause. It keeps what
// was configured. Requests that wait are judged again at once. With a shared ledger
// it holds in all processes, as [Registry.Pause] does. The error says that origin
// is not the name of one, or is the ledger's.
func (r *Registry) Reset(origin string) (err error) {
	o, now, err := r.lockNamed(origin)
	if err != nil {
		return err
	}
	defer r.resetShared(o.name, &err) // once the lock is free
	defer o.unlock()
	o.reset(now)
	o.wakeAll(now)
	return nil
}

// Close ends every wait with [ErrClosed], and refuses what comes after.
// Permits that are out stay good: requests that were sent are not disturbed.
// Its error is that of a shared ledger that could not take back what it had lent;
// the ledger itself stays the caller's to close. A Registry without a shared
// ledger has no goroutines and no connections, and need not be closed.
func (r *Registry) Close() error {
	r.init()
	r.closed.Store(true)
	for _, o := range r.all() {
		o.mu.Lock()
		for _, p := range o.partitions {
			p.endWaits(nil, ErrClosed)
			p.standAside(time.Time{})
			p.closeShared()
		}
		o.setAlarm(time.Time{})
		o.mu.Unlock()
	}
	err := r.detachShared()
	for _, o := range r.all() { // last, for the user's OnEvent may panic
		o.flush()
	}
	return err
}
