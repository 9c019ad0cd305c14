package redisheed

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// While a slot of a Cluster moves, what is new in it has no place yet: who asks meanwhile waits
// for it, as for an answer that takes its time.
func TestANewPartitionWaitsForASlotThatMoves(t *testing.T) {
	c := startCluster(t)
	ctx := t.Context()
	slot := c.ClusterKeySlot(ctx, "{heed:"+testOrigin+"}").Val()
	shards, err := c.ClusterSlots(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	var from, to redis.ClusterNode
	for _, s := range shards {
		if int64(s.Start) <= slot && slot <= int64(s.End) {
			from = s.Nodes[0]
		} else {
			to = s.Nodes[0]
		}
	}
	node := func(n redis.ClusterNode, args ...any) {
		t.Helper()
		nc := redis.NewClient(&redis.Options{Addr: n.Addr})
		defer nc.Close()
		if err := nc.Do(context.Background(), args...).Err(); err != nil && !strings.Contains(err.Error(), "NOKEY") {
			t.Fatal(args, err)
		}
	}
	r := newRegistry(t, c, Options{}, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 10, Window: time.Minute}}})
	send := func(token string) error {
		req := request()
		req.Header.Set("Authorization", "Bearer "+token)
		pm, err := r.Acquire(ctx, req)
		if err == nil {
			answer(pm, 200)
			pm.Release()
		}
		return err
	}
	if err := send("old"); err != nil {
		t.Fatal(err)
	}
	node(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID)
	node(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID)
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		time.Sleep(time.Second)
		fc := redis.NewClient(&redis.Options{Addr: from.Addr})
		defer fc.Close()
		host, port, _ := strings.Cut(to.Addr, ":")
		for _, key := range fc.ClusterGetKeysInSlot(ctx, int(slot), 100).Val() {
			node(from, "MIGRATE", host, port, key, 0, 1000)
		}
		node(to, "CLUSTER", "SETSLOT", slot, "NODE", to.ID)
		node(from, "CLUSTER", "SETSLOT", slot, "NODE", to.ID)
	}()
	if err := send("new"); err != nil {
		t.Error(err)
	}
	<-moved
	for range 5 {
		for _, token := range []string{"old", "new"} {
			if err := send(token); err != nil {
				t.Error(err)
			}
		}
	}
}

// A client that sends what a dead master is asked nowhere else is told to look who has taken over.
func TestAReplicaThatTakesOverIsFoundAtOnce(t *testing.T) {
	for outage, what := range map[Outage]string{Fail: "failing", GoAlone: "going alone"} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, replica *miniredis.Miniredis) {
				var addr atomic.Pointer[string] // of the master
				old, replaced := "192.0.2.1:6379", "192.0.2.2:6379"
				addr.Store(&old)
				master := miniredis.NewMiniRedis()
				var dead atomic.Bool
				rc := redis.NewClusterClient(&redis.ClusterOptions{
					Addrs: []string{old}, DisableRoutingPolicies: true,
					ClusterSlots: func(ctx context.Context) ([]redis.ClusterSlot, error) { return oneMaster(*addr.Load())(ctx) },
					Dialer: func(ctx context.Context, network, at string) (net.Conn, error) {
						switch {
						case at == replaced:
							return replica.Dial()
						case dead.Load():
							return nobodyListens(ctx, network, at)
						}
						return master.Dial()
					},
				})
				l := New(rc, quiet(Options{Timeout: time.Second, OnOutage: outage}))
				noSubscription(l)
				r, err := heed.NewRegistry(heed.Config{Ledger: l, Logger: l.o.Logger})
				if err != nil {
					t.Fatal(err)
				}
				named := request()
				named.Header.Set("Authorization", "Bearer token") // hashed with a seed that is yet to be asked for
				reached := func() bool {
					for _, req := range []*http.Request{request(), named} {
						if pm, err := r.Acquire(t.Context(), req); err == nil {
							answer(pm, 200)
							pm.Release()
						}
						if d := r.Check(req); d.Err != nil {
							return false
						}
					}
					return true
				}
				acquire(t, r).Release()
				master.Close()
				dead.Store(true)
				if reached() {
					t.Error("the master is reached though it is dead")
				}
				time.Sleep(time.Second)
				addr.Store(&replaced)
				began := time.Now()
				for !reached() && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if d := time.Since(began); d > 5*time.Second {
					t.Errorf("the replica that took over was found after %v", d)
				}
				r.Close()
				l.Close()
				rc.Close()
			})
		})
	}
}
