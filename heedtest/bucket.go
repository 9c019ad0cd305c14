package heedtest

import "math"

// bucket is the token bucket, the generic cell rate algorithm and nginx's leaky
// bucket, which grant exactly the same: with the theoretical arrival time TAT
// and one unit every T = window/quota, a bucket of size B holds
//
//	B - (TAT - now)/T
//
// tokens, GCRA's tolerance is (B-1)·T, and nginx's excess is (TAT - now)/T, of
// which it tolerates B-1.
//
// TAT is kept as a fraction, tat + part/quota nanoseconds, so that the rate is
// exact for every quota and window and however long it runs.
type bucket struct {
	quota, window, size int64
	tat, part           int64
}

func (b *bucket) wait(now, n int64) int64 {
	if n > b.size {
		return never
	}
	// Accepted from TAT - (size-n)·T on.
	tolerance, part := mulDiv(b.size-n, b.window, b.quota)
	first := b.tat - tolerance
	if b.part > part {
		first++
	}
	return max(0, first-now)
}

func (b *bucket) take(now, n int64) {
	if b.tat < now {
		b.tat, b.part = now, 0
	}
	whole, part := mulDiv(n, b.window, b.quota)
	if whole > math.MaxInt64-1-b.tat {
		whole = math.MaxInt64 - 1 - b.tat
	}
	b.tat += whole
	if b.part += part; b.part >= b.quota {
		b.part -= b.quota
		b.tat++
	}
}

// punish empties the bucket: a fraction of a token that had gathered is lost.
func (b *bucket) punish(now, _ int64) {
	whole, part := mulDiv(b.size, b.window, b.quota)
	if tat := now + whole; b.tat < tat || b.tat == tat && b.part < part {
		b.tat, b.part = tat, part
	}
}

func (b *bucket) look(now int64) level {
	if b.tat < now {
		return level{left: b.size}
	}
	// Tokens missing: (TAT - now)·quota/window, rounded up.
	missing, rest := mulDiv(b.tat-now, b.quota, b.window)
	missing += (rest + b.part + b.window - 1) / b.window
	full := b.tat - now
	if b.part > 0 {
		full++
	}
	return level{left: max(0, b.size-missing), usual: full, full: full}
}

func (b *bucket) idle(now int64) bool { return b.tat < now || b.tat == now && b.part == 0 }

func (b *bucket) change(now int64, p Policy) {
	size := p.Burst
	switch {
	case p.Algorithm == LeakyBucket:
		size++
	case size == 0:
		size = p.Quota
	}
	if b.tat > now && b.quota > 0 {
		// As many tokens are missing as before, but no more than there can be.
		missing := float64(b.tat-now) * float64(b.quota) / float64(b.window)
		missing = min(missing, float64(size))
		b.tat, b.part = now+int64(missing*float64(p.Window)/float64(p.Quota)), 0
	}
	b.quota, b.window, b.size = p.Quota, int64(p.Window), size
	b.part = min(b.part, b.quota-1)
}
