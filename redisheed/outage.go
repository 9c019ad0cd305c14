package redisheed

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// An outage is what a ledger knows of a Redis that is lost, so that not every partition has to
// find out for itself and keep a request waiting for it.
type outage struct {
	mu    sync.Mutex
	err   error     // why it did not answer last; nil: it did
	until time.Time // it is taken for lost until then
}

// note takes in what became of a question. What Redis says itself concerns that question alone, and
// so it is with the masters of a Cluster.
func (l *Ledger) note(ctx context.Context, err error) {
	l.seekMaster(ctx, err)
	if _, single := l.c.(*redis.Client); !single || said(err) || err != nil && ctx.Err() != nil {
		return
	}
	lasts := tryAgainAtMost
	if l.o.OnOutage == GoAlone { // each partition looks by itself whether it is back
		lasts += l.o.Timeout + tryAgainAtMost
	}
	l.outage.mu.Lock()
	defer l.outage.mu.Unlock()
	l.outage.err, l.outage.until = err, time.Now().Add(lasts)
}

// said reports whether err is something that Redis said.
func said(err error) bool {
	var e redis.Error
	return errors.As(err, &e) || errors.Is(err, errReply)
}

// seekMaster has the client of a Cluster find out which node has taken over where a master did not answer: by
// itself it looks once a minute, for one that is dead sends it nowhere else.
func (l *Ledger) seekMaster(ctx context.Context, err error) {
	if c, ok := l.c.(*redis.ClusterClient); ok && err != nil && !said(err) && ctx.Err() == nil {
		c.ReloadState(ctx)
	}
}

// lost returns why Redis is known to be lost; nil: it is not known. After a while it is nil once,
// for who asks to see.
func (l *Ledger) lost(now time.Time) error {
	o := &l.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && !now.Before(o.until) {
		o.until = now.Add(l.o.Timeout + tryAgainAtMost)
		return nil
	}
	return o.err
}

// joinOutage has the book take Redis for lost where the ledger knows that it is.
func (b *book) joinOutage(now time.Time) {
	if b.alone != nil || b.down != nil && now.Before(b.retryAt) {
		return
	}
	err := b.l.lost(now)
	if err == nil {
		return
	}
	if b.down == nil {
		b.failures = 0
	}
	b.down, b.retryAt = err, now.Add(tryAgainAfter)
	if b.l.o.OnOutage == GoAlone {
		b.emptyHand(now)
		b.alone = b.newAlone()
		b.arm(now)
	}
}
