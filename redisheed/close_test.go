package redisheed

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

func TestCloseEndsTheWaitsOfRegistries(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		rc := (&farRedis{}).in(m)
		l := New(rc, quiet(Options{Seed: []byte("seed")}))
		r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger, Default: heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Minute}}}})
		if err != nil {
			t.Fatal(err)
		}
		pm := acquire(t, r)
		answer(pm, 200)
		pm.Release()
		waits := make(chan error)
		for range 3 {
			go func() {
				_, err := r.Acquire(t.Context(), request())
				waits <- err
			}()
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-waits; !errors.Is(err, ErrClosed) {
				t.Errorf("who waited got %v, want %v", err, ErrClosed)
			}
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("who waited was told after %v", d)
		}
		r.Close()
		rc.Close()
	})
}
