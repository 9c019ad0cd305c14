package redisheed

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// Who does not want to wait is told so at once, also behind others who wait for something else, with Redis or without.
func TestNoWaitIsAnsweredAtOnceBehindOthersWhoWait(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
			down := false
			far := &farRedis{trip: func() time.Duration { return time.Millisecond }, fate: func() fate {
				if down {
					return unsent
				}
				return answered
			}}
			c := far.in(m)
			defer c.Close()
			l := New(c, quiet(Options{OnOutage: GoAlone}))
			defer l.Close()
			limit := l.Limit("key", heed.Policy{Name: "p", Quota: 5, Window: 10 * time.Second})
			cost := func(n int64) context.Context { return heed.WithCost(t.Context(), "", n) }
			down = lost
			if _, err := limit.Acquire(cost(5)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(cost(3))
			done := make(chan bool)
			go func() { limit.Acquire(ctx); close(done) }()
			time.Sleep(500 * time.Millisecond)
			began := time.Now()
			_, err := limit.Acquire(heed.NoWait(cost(1)))
			var le *heed.LimitError
			if d := time.Since(began); d > 100*time.Millisecond || !errors.As(err, &le) || le.Reason != heed.ReasonNoWait {
				t.Errorf("lost: %v: after %v: %v", lost, d, err)
			}
			soon, cancelSoon := context.WithTimeout(cost(1), time.Second)
			began = time.Now()
			_, err = limit.Acquire(soon)
			if d := time.Since(began); d > 100*time.Millisecond || !errors.As(err, &le) || le.Reason != heed.ReasonDeadline {
				t.Errorf("lost: %v: with a deadline, after %v: %v", lost, d, err)
			}
			cancelSoon()
			cancel()
			<-done
		})
	}
}

// The longest times there are mean no less than long ones.
func TestTheLongestTimesThereAreHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		far := &farRedis{trip: func() time.Duration { return time.Millisecond }}
		r, end := far.registry(t, m, Options{}, heed.Limits{MaxRetryAfter: math.MaxInt64})
		defer end()
		other, endOther := far.registry(t, m, Options{}, heed.Limits{MaxRetryAfter: math.MaxInt64})
		defer endOther()
		if err := r.Pause(testOrigin, math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := other.Acquire(heed.NoWait(t.Context()), request()); !errors.Is(err, heed.ErrLimited) {
			t.Errorf("in a process that did not pause: %v", err)
		}
		if err := r.Pause(testOrigin, 0); err != nil {
			t.Fatal(err)
		}
		pm := acquire(t, r)
		answer(pm, 200, "RateLimit", `"p";r=0;t=60`)
		pm.Release()
		began := time.Now()
		acquire(t, r).Release()
		if d := time.Since(began); d < time.Minute {
			t.Errorf("went %v before what was announced", time.Minute-d)
		}
		l := New(far.in(m), quiet(Options{}))
		defer l.Close()
		limit := l.Limit("key", heed.Policy{Name: "p", Quota: math.MaxInt64, Window: math.MaxInt64})
		if _, err := limit.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err := limit.Stats(t.Context()); err != nil || s.Used != 1 || s.Remaining <= 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
