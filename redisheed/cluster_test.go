package redisheed

import (
	"context"
	"strings"
	"testing"
	"time"

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
