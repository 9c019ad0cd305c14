package heed_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/heedhttp/heed"
)

// What others compile against: names, signatures and fields. That this file
// compiles is the test; it must not change with the package.
var (
	_ http.RoundTripper = (*heed.Transport)(nil)
	_ error             = (*heed.LimitError)(nil)
	_ error             = heed.ErrLimited
	_ error             = heed.ErrClosed

	_ = heed.Transport{Base: http.RoundTripper(nil), Registry: (*heed.Registry)(nil), Retry: heed.Retry{}}

	_ func(*heed.Transport, *http.Request) (*http.Response, error) = (*heed.Transport).RoundTrip
	_ func(*heed.Transport) *http.Client                           = (*heed.Transport).Client
	_ func(*heed.Transport)                                        = (*heed.Transport).CloseIdleConnections

	_ = heed.Retry{Max: int(0), Check: func(*http.Request, *http.Response, error) bool { return false }}

	_ = heed.Config{
		Default:    heed.Limits{},
		Origins:    map[string]heed.Limits{},
		Origin:     func(*http.Request) string { return "" },
		Partition:  func(*http.Request) string { return "" },
		Logger:     (*slog.Logger)(nil),
		OnEvent:    func(heed.Event) {},
		IdleAfter:  time.Duration(0),
		MaxOrigins: int(0),
	}

	_ func(heed.Config) (*heed.Registry, error)                                     = heed.NewRegistry
	_ func(*heed.Registry, context.Context, *http.Request) (*heed.Permit, error)    = (*heed.Registry).Acquire
	_ func(*heed.Registry, *http.Request) heed.Decision                             = (*heed.Registry).Check
	_ func(*heed.Registry, string, heed.Limits) error                               = (*heed.Registry).SetLimits
	_ func(*heed.Registry, string)                                                  = (*heed.Registry).ClearLimits
	_ func(r *heed.Registry, def heed.Limits, origins map[string]heed.Limits) error = (*heed.Registry).SetAllLimits
	_ func(*heed.Registry, string, time.Duration) error                             = (*heed.Registry).Pause
	_ func(*heed.Registry, string) error                                            = (*heed.Registry).Reset
	_ func(*heed.Registry) []heed.OriginState                                       = (*heed.Registry).Snapshot
	_ func(*heed.Registry) error                                                    = (*heed.Registry).Close
	_ func(*url.URL) string                                                         = heed.OriginOf
	_ func(*heed.Permit, *http.Response) heed.Announcement                          = (*heed.Permit).Observe
	_ func(*heed.Permit, heed.Announcement)                                         = (*heed.Permit).Learn
	_ func(*heed.Permit) int64                                                      = (*heed.Permit).Remaining
	_ func(*heed.Permit)                                                            = (*heed.Permit).Release
	_ func(*heed.Permit)                                                            = (*heed.Permit).Cancel
	_ func(*http.Response, time.Time) heed.Announcement                             = heed.ParseAnnouncement
	_ func(*heed.LimitError) bool                                                   = (*heed.LimitError).Timeout
	_ func(context.Context) context.Context                                         = heed.NoWait
	_ func(context.Context) context.Context                                         = heed.NoRetry
	_ func(context.Context) context.Context                                         = heed.Bypass
	_ func(ctx context.Context, unit heed.Unit, n int64) context.Context            = heed.WithCost
	_ func(context.Context, heed.Priority) context.Context                          = heed.WithPriority
	_ func(context.Context, time.Duration) context.Context                          = heed.WithMinInterval
	_ func(context.Context, *heed.Trace) context.Context                            = heed.WithTrace
	_ heed.Priority                                                                 = heed.PriorityLow + heed.PriorityNormal + heed.PriorityHigh

	_ = []heed.Cause{heed.CausePolicy, heed.CauseSmoother, heed.CausePause, heed.CauseInterval, heed.CauseConcurrency, heed.CauseQueue, heed.CauseScout}
	_ = []heed.Reason{heed.ReasonDeadline, heed.ReasonMaxWait, heed.ReasonQueueFull, heed.ReasonNoWait, heed.ReasonCost}
	_ = []heed.Unit{heed.UnitRequests, heed.UnitContentBytes, heed.UnitConcurrentRequests}

	_ = heed.Decision{Allowed: true, Wait: time.Duration(0), Cause: heed.Cause(0), Policy: "", Remaining: int64(0), Err: error(nil)}
	_ = heed.Limits{
		Policies:      []heed.Policy{},
		MinInterval:   time.Duration(0),
		MinPause:      time.Duration(0),
		MaxConcurrent: int(0),
		MaxRetryAfter: time.Duration(0),
		MaxWait:       time.Duration(0),
		MaxQueue:      int(0),
		MinBackoff:    time.Duration(0),
		MaxBackoff:    time.Duration(0),
		Smoothing:     heed.Smoothing{Interval: time.Duration(0), Velocity: float64(0), Strict: false, Off: false},
		IgnoreHeaders: false,
		Unlimited:     false,
	}
	_ = heed.Policy{Name: "", Quota: int64(0), Window: time.Duration(0), Burst: int64(0), Unit: heed.Unit(""), PartitionKey: ""}
	_ = heed.ServiceLimit{Policy: "", Remaining: int64(0), Reset: time.Duration(0), PartitionKey: ""}
	_ = heed.Announcement{
		Policies: []heed.Policy{}, Limits: []heed.ServiceLimit{}, RetryAfter: time.Duration(0),
		Refused: false, Violated: []string{}, Dialect: "",
	}
	_ = heed.LimitError{Origin: "", Policy: "", Wait: time.Duration(0), Reason: heed.Reason(0), Cause: heed.Cause(0)}
	_ = heed.Trace{Waited: time.Duration(0), Cause: heed.Cause(0), Policy: "", Attempts: int(0)}
	_ = heed.Event{}
	_ = heed.OriginState{}
)

func TestContractValues(t *testing.T) {
	if heed.PriorityLow != -1 || heed.PriorityNormal != 0 || heed.PriorityHigh != 1 {
		t.Error("priorities are not -1, 0, 1")
	}
	if heed.UnitRequests != "requests" || heed.UnitContentBytes != "content-bytes" || heed.UnitConcurrentRequests != "concurrent-requests" {
		t.Error("units are not those registered")
	}
	for _, reason := range []heed.Reason{heed.ReasonDeadline, heed.ReasonMaxWait, heed.ReasonQueueFull, heed.ReasonNoWait, heed.ReasonCost} {
		err := error(&heed.LimitError{Reason: reason})
		if !errors.Is(err, heed.ErrLimited) {
			t.Errorf("%v: errors.Is(err, ErrLimited) is false", reason)
		}
		if got, want := errors.Is(err, context.DeadlineExceeded), reason == heed.ReasonDeadline; got != want {
			t.Errorf("%v: errors.Is(err, DeadlineExceeded) = %v", reason, got)
		}
		if got, want := err.(*heed.LimitError).Timeout(), reason == heed.ReasonDeadline || reason == heed.ReasonMaxWait; got != want {
			t.Errorf("%v: Timeout() = %v", reason, got)
		}
	}
}

func TestZeroRegistryIsReady(t *testing.T) {
	var r heed.Registry
	req, _ := http.NewRequest("GET", "https://api.example.org/", nil)
	pm, err := r.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	pm.Observe(&http.Response{StatusCode: 200, Header: http.Header{}})
	pm.Release()
	if got := r.Snapshot(); len(got) != 1 || got[0].Origin != "https://api.example.org" {
		t.Errorf("Snapshot() = %+v", got)
	}
	var none heed.Registry
	if err := none.Close(); err != nil {
		t.Error(err)
	}
	if _, err := none.Acquire(t.Context(), req); err != heed.ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}
