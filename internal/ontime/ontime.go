// Package ontime lets tests on the wall clock tell a fault from a machine that
// was busy with something else.
package ontime

import (
	"testing"
	"time"
)

const (
	tries     = 3
	tolerance = 50 * time.Millisecond // that late, a machine cannot be held to anything
	tick      = 10 * time.Millisecond
)

// Try runs play, which returns what is wrong. Where something is, and the machine
// was late for a clock of Try's own meanwhile, that says nothing, and play
// runs again: three times at most. Else it fails the test.
func Try(t testing.TB, play func() error) {
	t.Helper()
	try(t, watch, play)
}

// try is Try with a clock: what it returns is to be called at the end, and
// returns how late it was at most.
func try(t testing.TB, watch func() func() time.Duration, play func() error) {
	t.Helper()
	for n := 1; ; n++ {
		late := watch()
		err := play()
		most := late()
		switch {
		case err == nil:
			return
		case most < tolerance || n == tries || t.Failed():
			t.Errorf("%v (the machine was late by %v at most)", err, most)
			return
		}
		t.Logf("try %d says nothing, the machine was late by %v: %v", n, most, err)
	}
}

// watch has a goroutine wake up every so often until what it returns is called,
// which says by how much it was late at most.
func watch() func() time.Duration {
	stop, late := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			due := time.Now().Add(tick)
			timer := time.NewTimer(tick)
			select {
			case <-timer.C:
				most = max(most, time.Since(due))
			case <-stop:
				timer.Stop()
				late <- most
				return
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-late
	}
}
