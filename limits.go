package heed

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
)

// Limits are what the user asks heed to keep to at one origin, besides what the
// origin itself announces. The zero value asks for nothing; it only bounds what
// servers can ask for. No field may be negative.
type Limits struct {
	// Policies are kept to beside those the origin announces. Each credential has
	// quotas of its own by them: to have all share one, and the announced quotas
	// too, set [Config].Partition to a function that returns "". A policy needs a
	// Quota and a Window, or for requests in flight a Quota alone. One in another
	// unit than the three of [Unit] is shown but not kept to, which a warning in the
	// log says.
	Policies []Policy

	// These three hold for the origin as a whole, over all credentials.
	MinInterval   time.Duration // between two starts; 0: none
	MinPause      time.Duration // between the end of one request and the start of the next, so one at a time; 0: none
	MaxConcurrent int           // requests in flight, each until its response's body is closed or read to its end; 0: no cap

	// A request that would wait for longer, or is one too many to wait, is refused
	// with a [*LimitError].
	MaxWait  time.Duration // longest a request may wait, all its attempts together; 0: as long as its context
	MaxQueue int           // requests waiting at once on the origin; 0: no cap

	// MaxRetryAfter is the longest pause a server can ask for, and the longest
	// wait for an answer that may never come; then one request goes to see. It is
	// no bound of [Registry.Pause], nor of configured policies. 0: an hour.
	MaxRetryAfter time.Duration

	// How long to wait after a refusal that does not say how long.
	MinBackoff time.Duration // after the first one, doubled with each one in a row; 0: 5 s, or MaxBackoff if that is less
	MaxBackoff time.Duration // at most; 0: 5 min; where it is less than MinBackoff, that counts

	Smoothing     Smoothing // how requests are spread over a window; zero: in bunches of 2 s, at a velocity of 1.5
	IgnoreHeaders bool      // announced limits are not followed; refusals and their Retry-After are
	Unlimited     bool      // heed steps aside for this origin: no wait, no pause, no retry
}

// Smoothing says how requests are spread over a window: that of the policy that
// holds them most. The zero value paces them once demand is higher than the
// quota; Strict, or a Velocity below 1, paces every request.
//
// What comes in one batch goes at once, up to half of what is left, unless others
// are known to use the same quota. Requests that keep coming for a tenth of the
// window are taken to go on, and are paced; unless two batches of about their size
// came before, with silence between them, and the quota affords another. Where not every request is paced, no
// request is refused only because of the pace while requests do not keep coming
// and the quota allows it: one whose deadline is sooner goes sooner.
type Smoothing struct {
	Interval time.Duration // requests within such a span may go together; 0: 2 s; never more than a tenth of the window
	Velocity float64       // times the rate of the quota: with 0.5 half of it is used, with 1 it lasts as long as its window, with 2 half as long; 0: 1.5
	Strict   bool          // pace every request, whatever the demand
	Off      bool          // never pace: requests go for as long as anything is left
}

const (
	defaultMaxRetryAfter = time.Hour
	defaultMinBackoff    = 5 * time.Second
	defaultMaxBackoff    = 5 * time.Minute
	defaultMicroInterval = 2 * time.Second
	defaultVelocity      = 1.5
)

// check reports the first thing that is wrong with the limits of an origin.
func (l *Limits) check(origin string) error {
	if wrong := l.wrong(); wrong != "" {
		return fmt.Errorf("heed: limits for %q: %s", origin, wrong)
	}
	return nil
}

// wrong says what is wrong with l first; "": nothing.
func (l *Limits) wrong() string {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"MinInterval", l.MinInterval}, {"MinPause", l.MinPause}, {"MaxRetryAfter", l.MaxRetryAfter},
		{"MaxWait", l.MaxWait}, {"MinBackoff", l.MinBackoff}, {"MaxBackoff", l.MaxBackoff},
		{"Smoothing.Interval", l.Smoothing.Interval},
	} {
		if d.d < 0 {
			return fmt.Sprintf("%s is negative: %v", d.name, d.d)
		}
	}
	if l.MaxConcurrent < 0 {
		return fmt.Sprintf("MaxConcurrent is negative: %d", l.MaxConcurrent)
	}
	if l.MaxQueue < 0 {
		return fmt.Sprintf("MaxQueue is negative: %d", l.MaxQueue)
	}
	if v := l.Smoothing.Velocity; !(v >= 0) || math.IsInf(v, 1) {
		return fmt.Sprintf("Smoothing.Velocity is not a number from 0 up: %v", v)
	}
	for i, p := range l.Policies {
		switch {
		case p.Quota <= 0:
			return fmt.Sprintf("Policies[%d] %q has quota %d, want at least 1", i, p.Name, p.Quota)
		case p.Window < 0:
			return fmt.Sprintf("Policies[%d] %q has a negative window: %v", i, p.Name, p.Window)
		case p.Window == 0 && p.Unit != UnitConcurrentRequests:
			return fmt.Sprintf("Policies[%d] %q has no window", i, p.Name)
		case p.Burst < 0:
			return fmt.Sprintf("Policies[%d] %q has a negative burst: %d", i, p.Name, p.Burst)
		}
	}
	return ""
}

// withDefaults returns a copy of l with its zero values filled in, sharing
// nothing with it.
func (l Limits) withDefaults() *Limits {
	orDefault(&l.MaxRetryAfter, defaultMaxRetryAfter)
	orDefault(&l.MaxBackoff, defaultMaxBackoff)
	orDefault(&l.MinBackoff, min(defaultMinBackoff, l.MaxBackoff))
	l.MaxBackoff = max(l.MaxBackoff, l.MinBackoff)
	orDefault(&l.Smoothing.Interval, defaultMicroInterval)
	orDefault(&l.Smoothing.Velocity, defaultVelocity)
	l.Policies = append([]Policy(nil), l.Policies...)
	for i := range l.Policies {
		orDefault(&l.Policies[i].Unit, UnitRequests)
	}
	return &l
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// LogValue has a log show those limits that are set. Partition keys are left out.
func (l Limits) LogValue() slog.Value {
	var set []slog.Attr
	for _, p := range l.Policies {
		text := fmt.Sprintf("%d %s", p.Quota, cmp.Or(p.Unit, UnitRequests))
		if p.Window > 0 {
			text += " per " + p.Window.String()
		}
		if p.Burst > 0 {
			text += fmt.Sprintf(", %d at once", p.Burst)
		}
		set = append(set, slog.String(strings.TrimSpace("policy "+p.Name), text))
	}
	show := func(name string, v any, isSet bool) {
		if isSet {
			set = append(set, slog.Any(name, v))
		}
	}
	show("min_interval", l.MinInterval, l.MinInterval > 0)
	show("min_pause", l.MinPause, l.MinPause > 0)
	show("max_concurrent", l.MaxConcurrent, l.MaxConcurrent > 0)
	show("max_retry_after", l.MaxRetryAfter, l.MaxRetryAfter > 0)
	show("max_wait", l.MaxWait, l.MaxWait > 0)
	show("max_queue", l.MaxQueue, l.MaxQueue > 0)
	show("min_backoff", l.MinBackoff, l.MinBackoff > 0)
	show("max_backoff", l.MaxBackoff, l.MaxBackoff > 0)
	show("smoothing_interval", l.Smoothing.Interval, l.Smoothing.Interval > 0)
	show("velocity", l.Smoothing.Velocity, l.Smoothing.Velocity > 0)
	show("strict", true, l.Smoothing.Strict)
	show("no_smoothing", true, l.Smoothing.Off)
	show("ignore_headers", true, l.IgnoreHeaders)
	show("unlimited", true, l.Unlimited)
	return slog.GroupValue(set...)
}
