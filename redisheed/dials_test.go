package redisheed

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// nobodyListens is a Dialer to a host where that is so.
func nobodyListens(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// oneMaster is what a Cluster says of itself that has one.
func oneMaster(addr string) func(context.Context) ([]redis.ClusterSlot, error) {
	return func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
}

// noSubscription keeps l from subscribing: while it connects, the client holds a lock, and for who waits
// for that virtual time stands still.
func noSubscription(l *Ledger) {
	l.stop, l.stopped = func() {}, make(chan struct{})
	close(l.stopped)
}

// A client tries to connect for longer than Redis may take to answer.
func TestWhyRedisCannotBeConnectedToIsWhatTheErrorSays(t *testing.T) {
	for name, c := range map[string]func() redis.UniversalClient{
		"one Redis": func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: nobodyListens})
		},
		"a Cluster": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: nobodyListens, ClusterSlots: oneMaster("127.0.0.1:1"), DisableRoutingPolicies: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rc := c()
				l := New(rc, quiet(Options{Timeout: time.Second}))
				noSubscription(l)
				r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger})
				if err != nil {
					t.Fatal(err)
				}
				named := request()
				named.Header.Set("Authorization", "Bearer token")
				for what, ask := range map[string]func() error{
					"Acquire": func() error { _, err := r.Acquire(t.Context(), request()); return err },
					"Acquire, with a deadline": func() error {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						_, err := r.Acquire(ctx, request())
						return err
					},
					"Acquire, with a credential": func() error { _, err := r.Acquire(t.Context(), named); return err },
					"Pause":                      func() error { return r.Pause(testOrigin, time.Second) },
				} {
					if err := ask(); !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", what, err)
					}
				}
				r.Close()
				l.Close()
				rc.Close()
				time.Sleep(10 * time.Minute) // the client's goroutines end
			})
		})
	}
}
