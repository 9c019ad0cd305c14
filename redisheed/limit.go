package redisheed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heedhttp/heed"
)

// A Limit is a named limit, shared by all processes that use its key, on
// something that is not HTTP. Its methods may be called from any goroutine.
type Limit struct {
	l   *Ledger
	key string
	p   heed.Policy
	err error // what is wrong with the policy
}

// Limit returns the limit of that key. p.Quota units of anything, whatever p.Unit
// calls them, can be acquired in every p.Window; with p.Burst it is a token bucket
// of that size instead, refilled at p.Quota per p.Window. All processes should
// give a key the same policy; if they do not, each judges by its own.
//
// Limit itself does not talk to Redis, and may be called each time a limit is
// needed. If a key is the name of an origin, the origin's pauses and resets are
// the limit's as well.
//
// If p has no quota or no window, or is of requests in flight, which would have to
// be released, each method of the Limit returns an error that says so.
func (l *Ledger) Limit(key string, p heed.Policy) *Limit {
	m := &Limit{l: l, key: key, p: p}
	switch {
	case p.Quota <= 0:
		m.err = fmt.Errorf("redisheed: limit %q has quota %d, want at least 1", key, p.Quota)
	case p.Window <= 0:
		m.err = fmt.Errorf("redisheed: limit %q has window %v, want more", key, p.Window)
	case p.Burst < 0:
		m.err = fmt.Errorf("redisheed: limit %q has a negative burst: %d", key, p.Burst)
	case p.Unit == heed.UnitConcurrentRequests:
		m.err = fmt.Errorf("redisheed: limit %q is of %s, which cannot be acquired without being released", key, p.Unit)
	}
	return m
}

// limitPartition is the partition of limits without credentials.
const limitPartition = "limit"

func (m *Limit) ask(ctx context.Context) (*book, *ask, error) {
	if m.err != nil {
		return nil, nil, m.err
	}
	b, err := m.l.book(m.key, limitPartition)
	if err != nil {
		return nil, nil, err
	}
	n := heed.CostOf(ctx, m.p.Unit, 1)
	policy := configured(&m.p, 'r')
	return b, &ask{need: 1, want: 1, queue: true, plain: true, limits: &limits{cost: heed.Cost{Requests: n}, list: []limit{policy}}}, nil
}

// Acquire takes one unit, or as many as [heed.WithCost] says for the policy's
// unit, and returns how many are left. It waits until they are free: those who
// wait in this process go first come first served, and processes take turns. A
// cost above the quota waits for the whole quota and takes it all.
//
// If the units are not free and ctx comes from [heed.NoWait], or they will not be
// free before the deadline of ctx, it returns at once a [*heed.LimitError] whose
// Origin is the key and whose Wait says how long it would have taken. If ctx is
// cancelled the error is context.Cause(ctx). If Redis is lost it is that of the
// connection, wrapped, unless [Options].OnOutage says GoAlone.
func (m *Limit) Acquire(ctx context.Context) (remaining int64, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	b, a, err := m.ask(ctx)
	if err != nil {
		return 0, err
	}
	if heed.NoWaitOf(ctx) {
		a.queue = false
	} else {
		a.stay = true
		a.deadline, _ = ctx.Deadline()
	}
	g, err := b.take(ctx, a)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		g, err = got{cause: heed.CausePolicy, policy: m.p.Name}, nil
	}
	if err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("redisheed: limit %q: %w", m.key, err)
		}
		return 0, err
	}
	if !g.ok {
		reason := heed.ReasonNoWait
		if a.stay {
			reason = heed.ReasonDeadline
		}
		return 0, &heed.LimitError{Origin: m.key, Policy: g.policy, Wait: g.wait, Reason: reason, Cause: g.cause}
	}
	return max(g.left, 0), nil
}

// Check says whether Acquire would have to wait, for how long, and how many
// units remain. It takes nothing. Its error is what is wrong with the policy, or
// that of the connection, wrapped, where Redis is lost.
func (m *Limit) Check(ctx context.Context) (heed.Decision, error) {
	b, a, err := m.ask(ctx)
	if err != nil {
		return heed.Decision{Err: err}, err
	}
	g, err := b.check(ctx, a)
	if err != nil {
		err = fmt.Errorf("redisheed: limit %q: %w", m.key, err)
		return heed.Decision{Err: err}, err
	}
	return heed.Decision{Allowed: g.ok, Wait: g.wait, Cause: g.cause, Policy: g.policy, Remaining: g.left, Err: g.alone}, nil
}

// Stats are figures of a [Limit] at one instant.
type Stats struct {
	Quota     int64         // as the policy says, 2⁵³ at most; with Burst: the size of the bucket
	Used      int64         // units in use: not those whose window has passed
	Remaining int64         // units that can be acquired at once
	Next      time.Duration // until one can be acquired; 0: now
	Processes int64         // that have used the limit in the last minute; 0: none
}

// Stats returns the limit's figures, over all processes. Its error is as Check's.
func (m *Limit) Stats(ctx context.Context) (Stats, error) {
	b, a, err := m.ask(ctx)
	if err != nil {
		return Stats{}, err
	}
	a.limits.cost.Requests = max(a.limits.cost.Requests, 1)
	g, err := b.check(ctx, a)
	if err != nil {
		return Stats{}, fmt.Errorf("redisheed: limit %q: %w", m.key, err)
	}
	s := Stats{Quota: min(cmp.Or(m.p.Burst, m.p.Quota), countable), Remaining: g.left, Next: g.wait, Processes: g.clients}
	s.Used = max(s.Quota-s.Remaining, 0)
	return s, nil
}

// Reset forgets what was used of the limit, in all processes. Those who wait
// go on at once.
func (m *Limit) Reset(ctx context.Context) error {
	if m.err != nil {
		return m.err
	}
	if err := m.l.Reset(ctx, m.key); err != nil {
		return fmt.Errorf("redisheed: limit %q: %w", m.key, err)
	}
	return nil
}

// check asks what an ask would get, and takes nothing.
func (b *book) check(ctx context.Context, a *ask) (got, error) {
	b.mu.Lock()
	now := time.Now()
	b.joinOutage(now)
	switch {
	case b.alone != nil:
		b.arm(now) // which sees whether Redis is back
		g := b.checkAlone(now, a)
		g.clients = b.clients
		b.mu.Unlock()
		return g, nil
	case b.down != nil && (now.Before(b.retryAt) || b.flying):
		err := b.down
		b.mu.Unlock()
		return got{}, err
	}
	// What has happened here must be known there first: what is under way may be without it,
	// what sets out after that has it. More would be waiting for a busy process to rest.
	for range 2 {
		if !b.flying && (b.flushAt.IsZero() || b.down != nil) {
			break
		}
		if !b.flying {
			b.fly(time.Now(), "tell")
		}
		landed := b.landed
		b.mu.Unlock()
		select {
		case <-landed:
		case <-ctx.Done():
			return got{}, context.Cause(ctx)
		}
		b.mu.Lock()
	}
	hand := int64(0)
	if a.limits.equal(b.limits) {
		hand = b.inHand()
	}
	q := &question{Do: "check", Birth: b.birth, Need: 1, Imm: 1, Latency: micros(a.latency)}
	m := a.limits
	m.put(q)
	name := b.name
	b.mu.Unlock()
	r, err := b.l.run(ctx, name.origin, name.partition, q, nil)
	if err != nil {
		return got{}, err
	}
	g := got{ok: r.status == granted, wait: r.wait, cause: causeOf(r.cause), policy: r.policy, left: r.left, clients: r.clients}
	if hand > 0 {
		g.ok, g.wait = true, 0
		if g.left >= 0 {
			g.left += hand * max(m.cost.Requests, 1)
		}
	}
	if g.ok {
		g.cause, g.policy = heed.CauseNone, ""
	}
	return g, nil
}
