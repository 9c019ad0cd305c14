package scorecard

import (
	"io"
	"log/slog"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
)

// A Client is a way to send requests to an origin.
type Client struct {
	Name string

	// New returns the client for one process of a scenario, on top of the
	// network, and what ends it: after that, those waiting give up.
	New func(s Scenario, network http.RoundTripper) (http.RoundTripper, func())
}

// Clients are all there are, the one under test first.
func Clients() []Client { return []Client{Heed, Bare, Retryable, Limiter1, LimiterBurst} }

// Heed is a zero-value [heed.Transport], told nothing, with its logs off.
var Heed = Client{"heed", func(_ Scenario, network http.RoundTripper) (http.RoundTripper, func()) {
	r, err := heed.NewRegistry(heed.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))})
	if err != nil {
		panic(err)
	}
	return &heed.Transport{Base: network, Registry: r}, func() { r.Close() }
}}

// Bare is a client that pays no attention to limits.
var Bare = Client{"bare", func(_ Scenario, network http.RoundTripper) (http.RoundTripper, func()) {
	return network, func() {}
}}

// Retryable is go-retryablehttp with its default policy.
var Retryable = Client{"retryablehttp", func(_ Scenario, network http.RoundTripper) (http.RoundTripper, func()) {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: network}
	return &retryablehttp.RoundTripper{Client: c}, func() {}
}}

// Limiter1 and LimiterBurst are a [rate.Limiter] that was told the limit, with
// a burst of 1 and of the whole quota.
var (
	Limiter1     = Client{"limiter b=1", limiter(func(Scenario) int { return 1 })}
	LimiterBurst = Client{"limiter b=q", limiter(func(s Scenario) int { return int(s.Quota.Units) })}
)

func limiter(burst func(Scenario) int) func(Scenario, http.RoundTripper) (http.RoundTripper, func()) {
	return func(s Scenario, network http.RoundTripper) (http.RoundTripper, func()) {
		perSecond := float64(s.Quota.Units) / s.Quota.Window.Seconds()
		l := rate.NewLimiter(rate.Limit(perSecond), burst(s))
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if err := l.Wait(r.Context()); err != nil {
				return nil, err
			}
			return network.RoundTrip(r)
		}), func() {}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
