package heed

import (
	"context"
	"time"
)

// A Priority orders the requests that wait: higher goes first, and first
// come first served within one priority. A request of a lower one waits for as
// long as requests of a higher one keep waiting, so give it a deadline if that
// matters. Values beyond the three constants count as the nearest of them.
type Priority int

const (
	PriorityLow    Priority = -1
	PriorityNormal Priority = 0 // the default
	PriorityHigh   Priority = 1
)

// options are what a request's context asks of heed. One value holds them
// all, so that a request costs one look-up however many were set.
type options struct {
	noWait, noRetry, bypass bool
	priority                Priority
	minInterval             time.Duration
	costs                   []cost // one a unit at the most
	trace                   *Trace
	credential              string // a Pool's, where the request shows none; a secret
}

type cost struct {
	unit Unit
	n    int64
}

type optionsKey struct{}

var noOptions options

func optionsOf(ctx context.Context) *options {
	if o, ok := ctx.Value(optionsKey{}).(*options); ok {
		return o
	}
	return &noOptions
}

func with(ctx context.Context, set func(*options)) context.Context {
	o := *optionsOf(ctx)
	set(&o)
	return context.WithValue(ctx, optionsKey{}, &o)
}

// NoWait returns a context whose requests never wait: where one would have
// to, it is refused at once with a [*LimitError] that says for how long. One that the
// quota allows goes even if others are being spread over the window ([Smoothing]).
// A refusal that comes back from the server is not tried again if that takes a wait.
func NoWait(ctx context.Context) context.Context {
	return with(ctx, func(o *options) { o.noWait = true })
}

// NoRetry returns a context whose requests are tried once; a refusal comes
// back as the response it is. It still pauses other requests, as any refusal does.
func NoRetry(ctx context.Context) context.Context {
	return with(ctx, func(o *options) { o.noRetry = true })
}

// Bypass returns a context whose requests pass heed untouched: they neither
// wait, nor are counted, learned from or retried.
func Bypass(ctx context.Context) context.Context {
	return with(ctx, func(o *options) { o.bypass = true })
}

// WithCost returns a context whose requests cost n of unit, instead of one
// request, one in flight, or an estimate of bytes. Costs of several units can be
// set one after the other. The unit is one of [UnitRequests] (or ""),
// [UnitContentBytes] and [UnitConcurrentRequests]: a Registry counts no other, so
// that the cost of another, such as "tokens", changes nothing. Where an origin
// limits nothing but tokens, a request's tokens can be charged as requests, to a
// [Policy] of UnitRequests; they are charged to all of the origin's policies of
// that unit. A limit of package redisheed counts any unit.
//
// 0 is free, though such a request waits for the end of a pause all the same; a
// negative n counts as 0, and one above 2⁴⁸ as 2⁴⁸. A cost above a policy's quota
// waits for the whole quota and takes it all; above a policy that counts requests
// in flight it is a [*LimitError]. [Limits].MaxConcurrent counts each request as
// one. Where a redirect leads to another origin, that origin is charged as if no
// cost had been set.
func WithCost(ctx context.Context, unit Unit, n int64) context.Context {
	if unit == "" {
		unit = UnitRequests
	}
	return with(ctx, func(o *options) {
		costs := make([]cost, 0, len(o.costs)+1)
		for _, c := range o.costs {
			if c.unit != unit {
				costs = append(costs, c)
			}
		}
		o.costs = append(costs, cost{unit, min(max(n, 0), mostCost)})
	})
}

// WithPriority returns a context whose requests wait with priority p.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return with(ctx, func(o *options) { o.priority = min(max(p, PriorityLow), PriorityHigh) })
}

// WithMinInterval returns a context whose requests start no sooner than d after
// the origin's last start, if d is longer than the origin's own MinInterval;
// d <= 0 asks for nothing. Requests that come later may go before such a one, but
// once it has waited for d they wait for it. A shared [Ledger] counts only the
// starts of requests with an interval, be it this one or that of [Limits].
func WithMinInterval(ctx context.Context, d time.Duration) context.Context {
	return with(ctx, func(o *options) { o.minInterval = d })
}

// WithTrace returns a context for one request whose waits are written to t
// before RoundTrip returns, with an error as well. A redirect's hops add up in one
// Trace. A Trace must not be shared by requests under way at the same time, nor
// read while its request is; nil traces nothing.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return with(ctx, func(o *options) { o.trace = t })
}

// mostCost is the highest cost that is told from a higher one: the sum of all
// that wait has to be counted.
const mostCost = 1 << 48

// NoWaitOf reports whether ctx comes from [NoWait]. It is for other limiters
// that are given the same contexts.
func NoWaitOf(ctx context.Context) bool { return optionsOf(ctx).noWait }

// CostOf returns what [WithCost] set for a unit, of any name, and usual where
// nothing was set. It is for other limiters that are given the same contexts.
func CostOf(ctx context.Context, unit Unit, usual int64) int64 {
	if unit == "" {
		unit = UnitRequests
	}
	return costOf(optionsOf(ctx).costs, unit, usual)
}
