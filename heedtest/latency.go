package heedtest

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Latency is the time a request spends on the way. It returns the way up, from
// the start of the n-th request (counted from 0 in the order they start) to its
// arrival, and the way down, from the answer to its delivery. It is called
// under the origin's lock and must return at once; a function of n alone makes
// runs repeatable.
type Latency func(n int64) (up, down time.Duration)

// RoundTrip is the [Latency] of a fixed round trip, half of it up and half of
// it down.
func RoundTrip(d time.Duration) Latency {
	return func(int64) (up, down time.Duration) { return d / 2, d - d/2 }
}

// HeavyTail is the [Latency] of round trips drawn from a lognormal distribution
// with this median and sigma (the standard deviation of the logarithm), none
// longer than cut; half up and half down. The draws depend on seed and n alone.
func HeavyTail(median time.Duration, sigma float64, cut time.Duration, seed uint64) Latency {
	return func(n int64) (up, down time.Duration) {
		var source rand.PCG
		source.Seed(seed, uint64(n))
		rtt := float64(median) * math.Exp(sigma*rand.New(&source).NormFloat64())
		d := time.Duration(min(rtt, float64(cut)))
		return d / 2, d - d/2
	}
}

// sleep waits for d or until ctx is done, and then returns its cause.
func sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	done := ctx.Done()
	if done == nil {
		time.Sleep(d)
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-done:
		return context.Cause(ctx)
	}
}
