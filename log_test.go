package heed_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// records is a slog.Handler that keeps all it is given, a line each.
type records struct {
	mu    sync.Mutex
	lines []string
	level map[slog.Level]int
}

func (h *records) Enabled(context.Context, slog.Level) bool { return true }
func (h *records) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *records) WithGroup(string) slog.Handler            { return h }
func (h *records) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value.Resolve())
		return true
	})
	h.lines = append(h.lines, b.String())
	if h.level == nil {
		h.level = map[slog.Level]int{}
	}
	h.level[r.Level]++
	return nil
}

// count is how many are of a level.
func (h *records) count(l slog.Level) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.level[l]
}

// take returns what was logged since.
func (h *records) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

func TestWhatIsLoggedAndAtWhichLevel(t *testing.T) {
	refuse := func(status int, header ...string) func(*testing.T, *heed.Registry) {
		return func(t *testing.T, r *heed.Registry) {
			pm := acquire(t, r, request(example+"/path?query=1"))
			pm.Observe(answer(status, header...))
			pm.Release()
		}
	}
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		do     func(*testing.T, *heed.Registry)
		want   []string // how each line begins; "…" at its end: whatever follows
	}{
		{"a request that need not wait", heed.Limits{}, refuse(200), nil},
		{"a wait", quota(1, time.Minute), func(t *testing.T, r *heed.Registry) {
			refuse(200)(t, r)
			refuse(200)(t, r)
			ctx, cancel := context.WithCancel(t.Context())
			start(ctx, r, request(example))
			start(ctx, r, request(example))
			cancel()
		}, []string{
			"DEBUG heed: waiting origin=https://api.example.org wait=1m0s cause=policy policy=p queue=1 waited_in_all=0s",
			"WARN heed: limits have held requests for long, all their waits added up origin=https://api.example.org waited_in_all=1m0s",
			"DEBUG heed: waiting origin=https://api.example.org wait=1m0s cause=policy policy=p queue=1 waited_in_all=1m0s",
			"DEBUG heed: waiting origin=https://api.example.org wait=2m0s cause=policy policy=p queue=2 waited_in_all=1m0s",
		}},
		{"a wait of unknown length", heed.Limits{MaxConcurrent: 1}, func(t *testing.T, r *heed.Registry) {
			acquire(t, r, request(example))
			start(t.Context(), r, request(example))
		}, []string{"DEBUG heed: waiting origin=https://api.example.org wait=0s cause=concurrency policy= queue=1 waited_in_all=0s"}},
		{"a policy announced", heed.Limits{}, func(t *testing.T, r *heed.Registry) {
			for range 3 {
				refuse(200, "RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=90;t=60`)(t, r)
			}
		}, []string{"DEBUG heed: learned a policy origin=https://api.example.org policy=p quota=100 window=1m0s unit=requests inferred=false"}},
		{"a refusal that names a time", heed.Limits{}, refuse(429, "Retry-After", "60"), []string{
			"INFO heed: paused origin=https://api.example.org cause=refused pause=1m0s in_a_row=1 whole_origin=false capped=false max=1h0m0s",
		}},
		{"an outage", heed.Limits{}, refuse(503, "Retry-After", "60"), []string{
			"INFO heed: paused origin=https://api.example.org cause=refused pause=1m0s in_a_row=1 whole_origin=true capped=false max=1h0m0s",
		}},
		{"a refusal without a hint", heed.Limits{}, refuse(429), []string{
			"WARN heed: paused origin=https://api.example.org cause=refused without a hint pause=5…",
		}},
		{"a refusal that asks for too long", heed.Limits{MaxRetryAfter: time.Minute}, refuse(429, "Retry-After", "7200"), []string{
			"WARN heed: paused origin=https://api.example.org cause=refused pause=1m0s in_a_row=1 whole_origin=false capped=true max=1m0s",
		}},
		{"a window too long to wait for", heed.Limits{MaxRetryAfter: time.Minute}, func(t *testing.T, r *heed.Registry) {
			for range 3 { // each goes at the cap, to see
				pm := acquire(t, r, request(example))
				pm.Observe(answer(200, "RateLimit-Policy", `"p";q=1;w=86400`))
				pm.Release()
			}
		}, []string{
			"DEBUG heed: learned a policy origin=https://api.example.org policy=p quota=1 window=24h0m0s unit=requests inferred=false",
			"WARN heed: paused origin=https://api.example.org cause=policy p pause=1m0s in_a_row=0 whole_origin=false capped=true max=1m0s",
			"DEBUG heed: waiting origin=https://api.example.org wait=1m0s cause=policy policy=p queue=1 waited_in_all=0s",
			"WARN heed: limits have held requests for long, all their waits added up origin=https://api.example.org waited_in_all=1m0s",
			"DEBUG heed: waiting origin=https://api.example.org wait=1m0s cause=policy policy=p queue=1 waited_in_all=1m0s",
		}},
		{"nothing left, and not until when", heed.Limits{MaxRetryAfter: time.Minute}, func(t *testing.T, r *heed.Registry) {
			for range 2 {
				pm := acquire(t, r, request(example))
				pm.Observe(answer(200, "RateLimit-Policy", `"p";q=9;w=86400`, "RateLimit", `"p";r=0`))
				pm.Release()
			}
		}, []string{
			"DEBUG heed: learned a policy origin=https://api.example.org policy=p quota=9 window=24h0m0s unit=requests inferred=false",
			"WARN heed: paused origin=https://api.example.org cause=policy p pause=1m0s in_a_row=0 whole_origin=false capped=true max=1m0s",
			"DEBUG heed: waiting origin=https://api.example.org wait=1m0s cause=policy policy=p queue=1 waited_in_all=0s",
			"WARN heed: limits have held requests for long, all their waits added up origin=https://api.example.org waited_in_all=1m0s",
		}},
		{"a pause by hand", heed.Limits{}, func(t *testing.T, r *heed.Registry) {
			r.Pause(example, time.Minute)
			r.Pause(example, time.Second) // changes nothing
		}, []string{"INFO heed: paused origin=https://api.example.org cause=manual pause=1m0s in_a_row=0 whole_origin=true capped=false max=0s"}},
		{"limits set", heed.Limits{}, func(t *testing.T, r *heed.Registry) {
			r.SetLimits("HTTPS://*.Example.org", heed.Limits{MaxQueue: 3, Policies: []heed.Policy{
				{Quota: 2, Window: time.Second}, {Name: "b", Quota: 1, Window: time.Minute, Burst: 4, Unit: heed.UnitContentBytes}, {Name: "c", Quota: 5, Unit: heed.UnitConcurrentRequests},
			}})
			r.SetLimits("*", heed.Limits{
				MinInterval: 1, MinPause: 2, MaxConcurrent: 3, MaxRetryAfter: 4, MaxWait: 5, MinBackoff: 6, MaxBackoff: 7,
				Smoothing: heed.Smoothing{Interval: 8, Velocity: 9, Strict: true, Off: true}, IgnoreHeaders: true, Unlimited: true,
			})
			r.ClearLimits("*")
			r.SetAllLimits(heed.Limits{MaxQueue: 1}, nil)
			r.SetAllLimits(heed.Limits{}, map[string]heed.Limits{"*": {MaxQueue: 2}})
		}, []string{
			"DEBUG heed: limits set origin=https://*.example.org limits=[policy=2 requests per 1s policy b=1 content-bytes per 1m0s, 4 at once policy c=5 concurrent-requests max_queue=3]",
			"DEBUG heed: limits set origin=* limits=[min_interval=1ns min_pause=2ns max_concurrent=3 max_retry_after=4ns max_wait=5ns min_backoff=6ns max_backoff=7ns" +
				" smoothing_interval=8ns velocity=9 strict=true no_smoothing=true ignore_headers=true unlimited=true]",
			"DEBUG heed: limits cleared origin=*",
			"DEBUG heed: limits set origin=* limits=[max_queue=1]",
			"DEBUG heed: limits set origin=* limits=[max_queue=2]",
		}},
		{"a policy that nobody can keep to", heed.Limits{}, func(t *testing.T, r *heed.Registry) {
			tokens := heed.Limits{Policies: []heed.Policy{{Name: "tpm", Quota: 9, Window: time.Minute, Unit: "tokens"}}}
			r.SetLimits(example, tokens)
			r.SetAllLimits(heed.Limits{}, map[string]heed.Limits{example: tokens, "*": {}})
		}, []string{
			"DEBUG heed: limits set origin=https://api.example.org limits=[policy tpm=9 tokens per 1m0s]",
			"WARN heed: a configured policy is not kept to: heed counts only requests, content-bytes and concurrent-requests origin=https://api.example.org policy=tpm unit=tokens",
			"DEBUG heed: limits set origin=* limits=[]",
			"DEBUG heed: limits set origin=https://api.example.org limits=[policy tpm=9 tokens per 1m0s]",
			"WARN heed: a configured policy is not kept to: heed counts only requests, content-bytes and concurrent-requests origin=https://api.example.org policy=tpm unit=tokens",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log records
				r := newRegistry(t, heed.Config{Default: tc.limits, Logger: slog.New(&log)})
				defer r.Close()
				log.take() // of the limits set
				tc.do(t, r)
				synctest.Wait()
				got := log.take()
				if !slices.EqualFunc(got, tc.want, func(got, want string) bool {
					begin, open := strings.CutSuffix(want, "…")
					return got == want || open && strings.HasPrefix(got, begin)
				}) {
					t.Errorf("logged is\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
				}
			})
		})
	}
}

// A pause at a rate that was learned is not that of a policy which the origin would know of.
func TestPauseAtALearnedRateIsLoggedAsThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log records
		o := heedtest.NewOrigin(heedtest.Config{
			Dialect: heedtest.Silent, Policies: []heedtest.Policy{{Quota: 50, Window: 5 * time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
		})
		tr := &heed.Transport{Registry: newRegistry(t, heed.Config{Logger: slog.New(&log)}), Base: o}
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			sendOne(t, tr, get(t.Context(), site))
		}
		found := false
		for _, line := range log.take() {
			found = found || strings.HasPrefix(line, "WARN heed: paused origin=https://api.example.org cause=refused at a learned rate pause=")
			if strings.Contains(line, "cause=policy learned") && !strings.Contains(line, "heed: waiting") {
				t.Error(line)
			}
		}
		if !found {
			t.Error("no such pause")
		}
	})
}

// However many requests there are, warnings are few.
func TestNoWarningPerRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		limits heed.Limits
		answer []string
		status int
	}{
		"waits":                   {limits: quota(1, time.Minute), status: 200},
		"resets beyond the cap":   {limits: heed.Limits{MaxRetryAfter: time.Second}, status: 200, answer: []string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=0;t=100000`}},
		"resets beyond all hope":  {limits: heed.Limits{MaxRetryAfter: time.Second}, status: 200, answer: []string{"RateLimit-Policy", `"p";q=10;w=60`, "RateLimit", `"p";r=5;t=999999999999`}},
		"windows beyond the cap":  {limits: heed.Limits{MaxRetryAfter: time.Second}, status: 200, answer: []string{"RateLimit-Policy", `"p";q=1;w=86400`}},
		"refusals to many in air": {status: 429, answer: []string{"Retry-After", "600"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log records
				r := newRegistry(t, heed.Config{Default: tc.limits, Logger: slog.New(&log)})
				meet(t, r, host("elsewhere"))
				var pms []*heed.Permit
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				for range 40 {
					pm, err := r.Acquire(ctx, request(example))
					if err != nil {
						break
					}
					if tc.status == 429 && len(pms) < 20 { // all at once
						pms = append(pms, pm)
						continue
					}
					pm.Observe(answer(tc.status, tc.answer...))
					pm.Release()
				}
				for _, pm := range pms {
					pm.Observe(answer(tc.status, tc.answer...))
					pm.Release()
				}
				if n := log.count(slog.LevelWarn); n > 3 {
					t.Errorf("%d warnings", n)
				}
			})
		})
	}
}

// A handler that is asked for its level may look at the registry, too.
func TestLogHandlerMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &askingHandler{Handler: slog.DiscardHandler}
		r := newRegistry(t, heed.Config{Logger: slog.New(h)})
		h.ask = func() { r.Snapshot() }
		pm := acquire(t, r, request(example))
		waits := start(t.Context(), r, request(example)) // for the answer to the first
		pm.Observe(answer(200, "RateLimit-Policy", `"q";q=10;w=60`))
		pm.Release()
		synctest.Wait()
		if !waits.done() {
			t.Fatal("not admitted")
		}
		waits.permit.Release()
	})
}

type askingHandler struct {
	slog.Handler
	ask func()
}

func (h *askingHandler) Enabled(context.Context, slog.Level) bool {
	if h.ask != nil {
		h.ask()
	}
	return false
}
