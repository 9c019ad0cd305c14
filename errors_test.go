package heed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

func TestLimitErrorIsASentence(t *testing.T) {
	for _, tc := range []struct {
		err  heed.LimitError
		want string
	}{
		{heed.LimitError{Policy: "daily", Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy},
			`heed: request to https://api.example.org not sent: policy "daily" has too little left; it could start in 1m0s at the earliest, not before its deadline`},
		{heed.LimitError{Wait: 90 * time.Millisecond, Reason: heed.ReasonMaxWait, Cause: heed.CausePolicy},
			`heed: request to https://api.example.org not sent: a policy without a name has too little left; it could start in 90ms at the earliest, longer than MaxWait allows`},
		{heed.LimitError{Policy: "p", Wait: time.Second, Reason: heed.ReasonNoWait, Cause: heed.CauseSmoother},
			`heed: request to https://api.example.org not sent: requests are being spread over the window of policy "p"; it could start in 1s at the earliest, and was asked not to wait`},
		{heed.LimitError{Wait: time.Hour, Reason: heed.ReasonDeadline, Cause: heed.CausePause},
			`heed: request to https://api.example.org not sent: the origin is paused; it could start in 1h0m0s at the earliest, not before its deadline`},
		{heed.LimitError{Wait: time.Second, Reason: heed.ReasonQueueFull, Cause: heed.CauseInterval},
			`heed: request to https://api.example.org not sent: the interval between requests has not passed; it could start in 1s at the earliest, and MaxQueue requests wait already`},
		{heed.LimitError{Reason: heed.ReasonDeadline, Cause: heed.CauseConcurrency},
			`heed: request to https://api.example.org not sent: as many requests as allowed are in flight; nobody can say when it could start, and its deadline has come`},
		{heed.LimitError{Reason: heed.ReasonNoWait, Cause: heed.CauseScout},
			`heed: request to https://api.example.org not sent: the answer to a request sent ahead is awaited; nobody can say when it could start, and it was asked not to wait`},
		{heed.LimitError{Policy: "slots", Reason: heed.ReasonCost, Cause: heed.CausePolicy},
			`heed: request to https://api.example.org not sent: it costs more than policy "slots" can ever give`},
		{heed.LimitError{Wait: time.Second, Reason: heed.ReasonDeadline, Cause: heed.CauseBackoff},
			`heed: request to https://api.example.org not sent: it was refused and backs off; it could start in 1s at the earliest, not before its deadline`},
		{heed.LimitError{Wait: time.Second, Reason: heed.ReasonNoWait, Cause: heed.CauseLedger},
			`heed: request to https://api.example.org not sent: the shared quota has too little left; it could start in 1s at the earliest, and was asked not to wait`},
		{heed.LimitError{Reason: heed.ReasonQueueFull, Cause: heed.CauseQueue},
			`heed: request to https://api.example.org not sent: others came first; nobody can say when it could start, and MaxQueue requests wait already`},
	} {
		tc.err.Origin = example
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("Error() is\n%s, want\n%s", got, tc.want)
		}
	}
}

// No origin knows of a limit that was inferred, and no user of a name that they did not give.
func TestLimitErrorSaysWhoseLimitItIs(t *testing.T) {
	refused := func(t *testing.T, r *heed.Registry, url, want string) {
		t.Helper()
		req := request(url)
		for {
			pm, err := r.Acquire(heed.NoWait(t.Context()), req)
			if err == nil {
				pm.Release()
				continue
			}
			if got := err.Error(); !strings.HasPrefix(got, "heed: request to "+url+" not sent: "+want+"; ") {
				t.Errorf("Error() is\n%s, want what holds it to be\n%s", got, want)
			}
			return
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Minute}}}})
		refused(t, r, example, "a configured policy has too little left")
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Name: "mine", Quota: 1, Window: time.Minute}}}})
		refused(t, r, example, `policy "mine" has too little left`)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		o := heedtest.NewOrigin(heedtest.Config{
			Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		})
		tr := &heed.Transport{Registry: r, Base: o}
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			sendOne(t, tr, get(t.Context(), site))
		}
		refused(t, r, strings.TrimSuffix(site, "/"), `policy "learned", which heed inferred from refusals, has too little left`)
	})
}

// Nobody waits for less than the sentence says.
func TestLimitErrorRoundsTheWaitUp(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		59*time.Second + 999_995_654: "1m0s", 5_475_112_208: "5.476s", 90 * time.Millisecond: "90ms", 103_017_726: "103.018ms", 1: "1µs",
	} {
		err := &heed.LimitError{Wait: wait, Reason: heed.ReasonDeadline, Cause: heed.CausePause}
		if got := err.Error(); !strings.Contains(got, "could start in "+want+" at") {
			t.Errorf("%v: Error() is\n%s", wait, got)
		}
	}
}

func TestLimitErrorIsFoundInAChain(t *testing.T) {
	err := fmt.Errorf("get: %w", &heed.LimitError{Reason: heed.ReasonDeadline})
	if !errors.Is(err, heed.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, heed.ErrClosed) {
		t.Error("errors.Is is wrong")
	}
	for c := heed.CauseNone; c <= heed.CauseRedirect; c++ {
		if c.String() == "unknown" {
			t.Errorf("cause %d has no name", int(c))
		}
	}
	for r := heed.ReasonDeadline; r <= heed.ReasonCost; r++ {
		if r.String() == "unknown" {
			t.Errorf("reason %d has no name", int(r))
		}
	}
}

// The pace of a policy that the user has set, and not named, is told as the user's.
func TestErrorOfAPaceSaysWhosePolicyItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{
			MaxWait: time.Second, Policies: []heed.Policy{{Quota: 5, Window: time.Minute}}, Smoothing: heed.Smoothing{Strict: true},
		}})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200))
		pm.Release()
		_, err := r.Acquire(t.Context(), request(example))
		if err == nil || !strings.Contains(err.Error(), "spread over the window of a configured policy;") {
			t.Error(err)
		}
	})
}
