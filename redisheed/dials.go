package redisheed

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A dials is a [redis.Hook] that notes what becomes of connecting. A client that cannot connect
// tries several times before it says so, for longer than Redis may take to answer.
type dials struct {
	mu  sync.Mutex
	err error // of the latest one; nil: it connected …
	at  time.Time
}

// watch has d note what becomes of the client's connections.
func (d *dials) watch(c redis.UniversalClient) {
	hook := func(c *redis.Client) { c.AddHook(d) }
	switch c := c.(type) {
	case *redis.Client:
		hook(c)
	case *redis.ClusterClient:
		c.OnNewNode(hook)
	}
}

// failedSince returns why nothing could be connected to, if that was found since an instant, and
// is so yet.
func (d *dials) failedSince(since time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.Before(since) {
		return nil
	}
	return d.err
}

// DialHook implements [redis.Hook].
func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		d.mu.Lock()
		d.err, d.at = err, time.Now()
		d.mu.Unlock()
		return conn, err
	}
}

// ProcessHook implements [redis.Hook].
func (d *dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (d *dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
