package heed

import (
	"context"
	"log/slog"
)

// log is where the registry logs to.
func (r *Registry) log() *slog.Logger {
	if r.config.Logger != nil {
		return r.config.Logger
	}
	return slog.Default()
}

// logged reports whether events of a kind are logged. What can happen with
// every request is logged at debug at most.
func (k Kind) logged() bool {
	switch k {
	case EventWaiting, EventLearned, EventPaused, EventDegraded, EventSetAside, eventMuchWaited, eventNested:
		return true
	}
	return false
}

// listens reports whether anyone may be told of an event. What the user's
// handler makes of its level is asked later, for an origin is locked now.
func (r *Registry) listens(k Kind) bool {
	return k.logged() || r.config.OnEvent != nil
}

// tell logs an event and calls the user's function. No lock is held.
func (r *Registry) tell(e *Event) {
	r.logEvent(e)
	if r.config.OnEvent != nil && e.Kind > eventMuchWaited {
		r.config.OnEvent(*e)
	}
}

func (r *Registry) logEvent(e *Event) {
	ctx, log := context.Background(), r.log()
	switch e.Kind {
	case EventWaiting:
		log.LogAttrs(ctx, slog.LevelDebug, "heed: waiting", slog.String("origin", e.Origin), slog.Duration("wait", e.Wait),
			slog.String("cause", e.Cause.String()), slog.String("policy", e.Policy), slog.Int("queue", e.Queue), slog.Duration("waited_in_all", e.Total))
	case EventLearned:
		log.LogAttrs(ctx, slog.LevelDebug, "heed: learned a policy", slog.String("origin", e.Origin), slog.String("policy", e.Policy),
			slog.Int64("quota", e.Quota), slog.Duration("window", e.Window), slog.String("unit", string(e.Unit)), slog.Bool("inferred", e.Learned))
	case EventPaused:
		level := slog.LevelWarn
		if e.Timed && !e.Capped {
			level = slog.LevelInfo
		}
		attrs := []slog.Attr{slog.String("origin", e.Origin), slog.String("cause", e.pauseCause()), slog.Duration("pause", e.Wait),
			slog.Int("in_a_row", e.InARow), slog.Bool("whole_origin", e.Whole), slog.Bool("capped", e.Capped), slog.Duration("max", e.Max)}
		if e.Asked > 0 {
			attrs = append(attrs, slog.Duration("asked", e.Asked))
		}
		if e.Bucket != "" {
			attrs = append(attrs, slog.String("bucket", e.Bucket))
		}
		log.LogAttrs(ctx, level, "heed: paused", attrs...)
	case EventDegraded:
		if e.Err != nil {
			log.LogAttrs(ctx, slog.LevelWarn, "heed: shared ledger lost", slog.String("origin", e.Origin), slog.Any("error", e.Err))
		} else {
			log.LogAttrs(ctx, slog.LevelInfo, "heed: shared ledger back", slog.String("origin", e.Origin))
		}
	case EventSetAside:
		log.LogAttrs(ctx, slog.LevelWarn, "heed: a token was answered with status 401, and is set aside", slog.String("origin", e.Origin), slog.Int("partition", e.Partition))
	case eventNested:
		log.LogAttrs(ctx, slog.LevelWarn, "heed: a request waits for a slot that the request it is made for holds: what makes it belongs outside the Transport", slog.String("origin", e.Origin),
			slog.String("cause", e.Cause.String()))
	case eventMuchWaited:
		log.LogAttrs(ctx, slog.LevelWarn, "heed: limits have held requests for long, all their waits added up", slog.String("origin", e.Origin), slog.Duration("waited_in_all", e.Total))
	}
}

// pauseCause says in a word what a pause is for.
func (e *Event) pauseCause() string {
	switch {
	case e.Manual:
		return "manual"
	case e.Policy == learnedPolicy && !e.Capped: // until the next unit at the rate that was learned
		return "refused at a learned rate"
	case e.Policy != "":
		return "policy " + e.Policy
	case e.Timed:
		return "refused"
	}
	return "refused without a hint"
}
