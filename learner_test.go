package heed_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

func TestOneRefusalDoesNotSlowALoneClientForGood(t *testing.T) {
	for _, answer := range []string{"429 Retry-After: 60", "503 Retry-After: 60", "429", "503"} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []string{"200", answer, "200"}}
			tr := quiet(t, base, heed.Limits{})
			for range 30 {
				sendOne(t, tr, get(t.Context(), site))
				time.Sleep(time.Second)
			}
			if gaps := base.gaps(); gaps[len(gaps)-1] > 2*time.Second {
				t.Errorf("%s: intervals %v", answer, gaps)
			}
		})
	}
}

// Where one alone is accepted right after a bunch was refused, there were too
// many in flight. Later, time may have helped as well.
func TestCapInFlightShowsRightAfterTheRefusal(t *testing.T) {
	for after, want := range map[time.Duration]bool{0: true, 6 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			meet(t, r, example)
			var bunch []*heed.Permit
			for range 12 {
				bunch = append(bunch, acquire(t, r, request(example)))
			}
			for _, pm := range slices.Backward(bunch) {
				pm.Observe(answer(429))
				pm.Release()
			}
			time.Sleep(after)
			pm := acquire(t, r, request(example))
			pm.Observe(answer(200))
			pm.Release()
			learned := false
			for _, p := range r.Snapshot()[0].Partitions[0].Policies {
				learned = learned || p.Unit == heed.UnitConcurrentRequests
			}
			if learned != want {
				t.Errorf("accepted %v after the refusal, a cap in flight is learned: %v, want %v", after, learned, want)
			}
		})
	}
}

// A refusal of a request that went before the origin opened again is part of what
// is over.
func TestLateRefusalIsNoNewOne(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			meet(t, r, example)
			early, late := acquire(t, r, request(example)), acquire(t, r, request(example))
			early.Observe(answer(429))
			early.Release()
			for range 2 { // the first one after the pause
				pm := acquire(t, r, request(example))
				pm.Observe(answer(200))
				pm.Release()
				time.Sleep(idle)
			}
			before := learned(r.Snapshot()[0])
			late.Observe(answer(429))
			late.Release()
			after := learned(r.Snapshot()[0])
			if len(before) != 1 || len(after) != 1 || after[0].Window != before[0].Window {
				t.Fatalf("learned %+v, and after a late refusal %+v", before, after)
			}
			if d := r.Check(request(example)); d.Cause == heed.CausePause || d.Wait > 2*after[0].Window {
				t.Errorf("after a late refusal the next one is held: %+v", d)
			}
		})
	}
}
