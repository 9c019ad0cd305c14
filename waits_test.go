package heed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

func TestClientTimeoutHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := respond(func(req *http.Request) *http.Response { return reply(200, "") })
		client := quiet(t, base, heed.Limits{MinInterval: time.Minute}).Client()
		client.Timeout = 30 * time.Second
		resp, err := client.Get(site)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		began := time.Now()
		_, err = client.Get(site)
		var timeout interface{ Timeout() bool }
		if !errors.Is(err, heed.ErrLimited) || !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(began) != 0 {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		client.Timeout = 2 * time.Minute
		if resp, err = client.Get(site); err != nil || time.Since(began) != time.Minute {
			t.Fatalf("error %v after %v", err, time.Since(began))
		}
		resp.Body.Close()
	})
}

func TestClientTimeoutEndsARequestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}), heed.Limits{})
		client := &http.Client{Transport: tr, Timeout: time.Second}
		began := time.Now()
		if _, err := client.Get(site); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

func TestCancelledWaitEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		tr := quiet(t, base, heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		began := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := make(chan error)
		go func() {
			_, err := tr.RoundTrip(get(ctx, site))
			gone <- err
		}()
		synctest.Wait()
		var next time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			sendOne(t, tr, get(t.Context(), site))
			next = time.Since(began)
		}()
		time.Sleep(10 * time.Second)
		cancel(errCancelled)
		if err := <-gone; err != errCancelled || time.Since(began) != 10*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		<-done
		if next != time.Minute {
			t.Errorf("the next one went after %v, as if the cancelled one had gone", next)
		}
	})
}

func TestCancelledWaitForASlotWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			select {
			case <-req.Context().Done():
				return nil, req.Context().Err()
			case <-time.After(time.Hour):
				return reply(200, ""), nil
			}
		})
		tr := quiet(t, base, heed.Limits{MaxConcurrent: 1})
		holder, cancel := context.WithCancel(t.Context())
		go tr.RoundTrip(get(holder, site))
		synctest.Wait()
		var began = time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			sendOne(t, tr, get(t.Context(), site))
		}()
		time.Sleep(time.Second)
		cancel()
		<-done
		if took := time.Since(began); took != time.Hour+time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Granted and cancelled at one instant, a request gives back what it was granted.
func TestCancelledAtTheInstantItMayGo(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []string{"200"}}
			tr := quiet(t, base, heed.Limits{MinInterval: time.Minute, Policies: []heed.Policy{{Name: "p", Quota: 100, Window: time.Hour}}})
			sendOne(t, tr, get(t.Context(), site))
			ctx, cancel := context.WithCancel(t.Context())
			defer time.AfterFunc(time.Minute, cancel).Stop()
			if resp, err := tr.RoundTrip(get(ctx, site)); err == nil {
				resp.Body.Close()
			}
			if used, want := usedBy(tr.Registry), fmt.Sprint(site, " ", len(base.starts)); used != want || tr.Registry.Snapshot()[0].InFlight != 0 {
				t.Errorf("used: %s, want %s", used, want)
			}
		})
	}
}

func TestDeadlineOutOfReachIsRefusedAtOnce(t *testing.T) {
	pausedFor := func(d time.Duration) func(*heed.Registry) {
		return func(r *heed.Registry) { r.Pause(site, d) }
	}
	for name, c := range map[string]struct {
		limits  heed.Limits
		prepare func(*heed.Registry)
		timeout time.Duration
		want    heed.LimitError
	}{
		"interval": {limits: heed.Limits{MinInterval: time.Minute}, timeout: 59 * time.Second,
			want: heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
		"to the instant": {limits: heed.Limits{MinInterval: time.Minute}, timeout: time.Minute,
			want: heed.LimitError{Wait: time.Minute, Reason: heed.ReasonDeadline, Cause: heed.CauseInterval}},
		"policy": {limits: heed.Limits{Policies: []heed.Policy{{Name: "one an hour", Quota: 1, Window: time.Hour}}}, timeout: time.Minute,
			want: heed.LimitError{Wait: time.Hour, Reason: heed.ReasonDeadline, Cause: heed.CausePolicy, Policy: "one an hour"}},
		"pause": {prepare: pausedFor(time.Hour), timeout: time.Minute,
			want: heed.LimitError{Wait: time.Hour, Reason: heed.ReasonDeadline, Cause: heed.CausePause}},
		"longest wait": {limits: heed.Limits{MaxWait: time.Second, MinInterval: time.Minute}, timeout: time.Hour,
			want: heed.LimitError{Wait: time.Minute, Reason: heed.ReasonMaxWait, Cause: heed.CauseInterval}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{answers: []string{"200"}}
				tr := quiet(t, base, c.limits)
				sendOne(t, tr, get(t.Context(), site))
				if c.prepare != nil {
					c.prepare(tr.Registry)
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				began := time.Now()
				_, err := tr.Client().Do(get(ctx, site))
				var limit *heed.LimitError
				if !errors.As(err, &limit) {
					t.Fatalf("error %v", err)
				}
				c.want.Origin = site
				if *limit != c.want || time.Since(began) != 0 || len(base.starts) != 1 {
					t.Errorf("%+v after %v, want %+v", *limit, time.Since(began), c.want)
				}
				deadline := c.want.Reason == heed.ReasonDeadline
				if !errors.Is(err, heed.ErrLimited) || errors.Is(err, context.DeadlineExceeded) != deadline || !limit.Timeout() {
					t.Errorf("%v is not what it should be", err)
				}
			})
		})
	}
}

func TestPauseRefusesThoseWaitingWhoseDeadlineItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, &script{answers: []string{"200"}}, heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		began := time.Now()
		time.AfterFunc(10*time.Second, func() { tr.Registry.Pause(site, time.Hour) })
		_, err := tr.RoundTrip(get(ctx, site))
		var limit *heed.LimitError
		if !errors.As(err, &limit) || time.Since(began) != 10*time.Second {
			t.Fatalf("error %v after %v", err, time.Since(began))
		}
		if want := (heed.LimitError{Origin: site, Wait: time.Hour, Reason: heed.ReasonDeadline, Cause: heed.CausePause}); *limit != want {
			t.Errorf("%+v, want %+v", *limit, want)
		}
	})
}

// MaxWait and the instant at which the request may go are one: it goes.
func TestLongestWaitIncludesItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, &script{answers: []string{"200"}}, heed.Limits{MinInterval: time.Minute, MaxWait: time.Minute})
		for range 20 {
			sendOne(t, tr, get(t.Context(), site))
		}
	})
}

func TestWaitingRequestRunsIntoItsDeadline(t *testing.T) {
	for reason, end := range map[heed.Reason]string{
		heed.ReasonDeadline: "it had waited 1m0s when its deadline came",
		heed.ReasonMaxWait:  "it had waited 1m0s when MaxWait was over",
	} {
		synctest.Test(t, func(t *testing.T) {
			hang := baseFunc(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			limits, timeout := heed.Limits{MaxConcurrent: 1}, time.Minute
			if reason == heed.ReasonMaxWait {
				limits.MaxWait, timeout = time.Minute, time.Hour
			}
			tr := quiet(t, hang, limits)
			holder, cancel := context.WithCancel(t.Context())
			defer cancel()
			go tr.RoundTrip(get(holder, site))
			synctest.Wait()
			ctx, stop := context.WithTimeout(t.Context(), timeout)
			defer stop()
			began := time.Now()
			_, err := tr.RoundTrip(get(ctx, site))
			var limit *heed.LimitError
			if !errors.As(err, &limit) || limit.Reason != reason || limit.Cause != heed.CauseConcurrency || time.Since(began) != time.Minute {
				t.Errorf("error %v after %v", err, time.Since(began))
			} else if !strings.HasSuffix(err.Error(), end) {
				t.Errorf("error is %q", err)
			}
		})
	}
}

func TestTraceTellsWhatARequestWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 60", "302 Location: /next", "200"}}
		tr := quiet(t, base, heed.Limits{MinInterval: time.Second})
		for _, c := range []struct {
			want  heed.Trace
			waits time.Duration // at most
			pause time.Duration // afterwards
		}{
			{want: heed.Trace{Attempts: 3, Waited: 61 * time.Second, Cause: heed.CausePause}, waits: 62 * time.Second},
			{want: heed.Trace{Attempts: 1, Waited: time.Second, Cause: heed.CauseInterval}, waits: time.Second, pause: time.Second},
			{want: heed.Trace{Attempts: 1}},
		} {
			var trace heed.Trace
			resp, err := tr.Client().Do(get(heed.WithTrace(t.Context(), &trace), site))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if trace.Waited < c.want.Waited || trace.Waited > c.waits ||
				trace.Attempts != c.want.Attempts || trace.Cause != c.want.Cause || trace.Policy != c.want.Policy {
				t.Errorf("%+v, want %+v", trace, c.want)
			}
			time.Sleep(c.pause)
		}
		var trace heed.Trace
		if _, err := tr.RoundTrip(get(heed.NoWait(heed.WithTrace(t.Context(), &trace)), site)); err == nil || trace != (heed.Trace{}) {
			t.Errorf("error %v, trace %+v", err, trace)
		}
	})
}

func TestTraceTellsTheLatestCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, &script{answers: []string{"200"}}, heed.Limits{MinInterval: time.Minute})
		sendOne(t, tr, get(t.Context(), site))
		time.AfterFunc(time.Second, func() { tr.Registry.Pause(site, time.Hour) })
		var trace heed.Trace
		sendOne(t, tr, get(heed.WithTrace(t.Context(), &trace), site))
		if trace.Cause != heed.CausePause || trace.Waited != time.Hour+time.Second {
			t.Errorf("%+v", trace)
		}
	})
}
