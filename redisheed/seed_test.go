package redisheed

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
)

// seeded returns a function that starts a process whose seed is kept in Redis; it sends one
// request with a credential at a time, and says whether it was granted.
func seeded(t *testing.T, m *miniredis.Miniredis, log *slog.Logger) (send func() bool, end func()) {
	rc := (&farRedis{}).in(m)
	l := New(rc, Options{Logger: log, Timeout: patience})
	r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: quiet(Options{}).Logger, Default: heed.Limits{
		Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Hour}}, Smoothing: heed.Smoothing{Off: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	req := request()
	req.Header.Set("Authorization", "Bearer token")
	return func() bool {
		pm, err := r.Acquire(heed.NoWait(t.Context()), req)
		if err != nil {
			return false
		}
		answer(pm, 200)
		pm.Release()
		return true
	}, func() { r.Close(); l.Close(); rc.Close() }
}

// The seed is read by new processes only, and so the first that a Redis without room evicts.
func TestNewProcessesShareThoughTheSeedWasEvicted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		log := quiet(Options{}).Logger
		send, end := seeded(t, m, log)
		defer end()
		granted := 0
		count := func(ok bool) {
			if ok {
				granted++
			}
		}
		count(send())
		m.Del("heed:seed")
		for range 20 { // as a process that is in use does
			time.Sleep(time.Second)
			count(send())
		}
		other, end := seeded(t, m, log)
		defer end()
		for range 100 {
			count(send())
			count(other())
		}
		if granted != 100 {
			t.Errorf("%d granted, want 100", granted)
		}
	})
}

func TestASeedThatIsNoLongerThatOfOthersIsSaid(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *miniredis.Miniredis) {
		var log bytes.Buffer
		send, end := seeded(t, m, slog.New(slog.NewTextHandler(&log, nil)))
		send()
		m.Set("heed:seed", "00ff")
		for range 60 {
			time.Sleep(time.Second)
			send()
		}
		end()
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("said %d times:\n%s", n, &log)
		}
	})
}
