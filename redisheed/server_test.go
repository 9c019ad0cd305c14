package redisheed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// needServer skips a test that needs a redis-server in short mode, or where
// there is none; in CI the latter is a failure.
func needServer(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs against a real server in real time")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no redis-server: ", err)
		}
		t.Skip(err)
	}
}

// patience is how long tests wait for an answer of Redis.
const patience = 5 * time.Second

// A server is a redis-server of the test's own.
type server struct {
	t    testing.TB
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a redis-server on a free port of the loopback interface.
func startServer(t testing.TB, args ...string) *server {
	needServer(t)
	s := &server{t: t, addr: freeAddr(t), dir: t.TempDir(), args: args}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// freeAddr returns an address that nobody listens on, with a port below those
// that connections get, and 10000 below another such one, for a cluster's bus.
func freeAddr(t testing.TB) string {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 15000+rand.N(7000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

func (s *server) start() {
	s.t.Helper()
	args := append([]string{"--port", s.port(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := s.client()
	defer c.Close()
	eventually(s.t, 10*time.Second, "the server answers", func() bool { return c.Ping(context.Background()).Err() == nil })
}

func (s *server) stop() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) client() *redis.Client { return redis.NewClient(&redis.Options{Addr: s.addr}) }

// do sends a command to the server.
func (s *server) do(args ...any) any {
	s.t.Helper()
	c := s.client()
	defer c.Close()
	v, err := c.Do(context.Background(), args...).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// eventually waits until ok.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// startCluster starts three masters that share the slots.
func startCluster(t testing.TB) redis.UniversalClient {
	var addrs []string
	var first *server
	for range 3 {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
		addrs = append(addrs, s.addr)
		if first == nil {
			first = s
		}
	}
	out, err := exec.Command("redis-cli", append(append([]string{"--cluster", "create"}, addrs...), "--cluster-yes")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, addr := range addrs {
		c := redis.NewClient(&redis.Options{Addr: addr})
		eventually(t, 20*time.Second, "the cluster is up", func() bool {
			info, _ := c.ClusterInfo(context.Background()).Result()
			return strings.Contains(info, "cluster_state:ok")
		})
		c.Close()
	}
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	if _, ok := c.(*redis.ClusterClient); !ok {
		t.Fatalf("a client of type %T", c)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// anyServer returns a client of a redis-server, or where there is none of one
// in this process.
func anyServer(t testing.TB) redis.UniversalClient {
	if _, err := exec.LookPath("redis-server"); (err == nil || os.Getenv("CI") != "") && !testing.Short() {
		c := startServer(t).client()
		t.Cleanup(func() { c.Close() })
		return c
	}
	m := miniredis.RunT(t)
	c := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { c.Close() })
	return c
}

// quiet are options that log nothing, and do not take a Redis for lost that a
// busy machine keeps waiting.
func quiet(o Options) Options {
	o.Logger = slog.New(slog.DiscardHandler)
	o.Timeout = cmp.Or(o.Timeout, patience)
	return o
}

func newLedger(t testing.TB, c redis.UniversalClient, o Options) *Ledger {
	l := New(c, quiet(o))
	t.Cleanup(func() { l.Close() })
	return l
}

// A stall is a while for which this process was not run.
type stall struct {
	at     time.Time
	length time.Duration
}

// stalls are those of the test's process; guarded by its lock.
var stalls struct {
	sync.Mutex
	list []stall
}

// watchStalls notes when the machine does not run this process.
func watchStalls() {
	const nap = 5 * time.Millisecond
	for {
		at := time.Now()
		time.Sleep(nap)
		if d := time.Since(at) - nap; d > nap {
			stalls.Lock()
			stalls.list = append(stalls.list, stall{at, d})
			stalls.Unlock()
		}
	}
}

// stoodStill is the longest stall since an instant.
func stoodStill(since time.Time) (longest time.Duration) {
	stalls.Lock()
	defer stalls.Unlock()
	for _, s := range stalls.list {
		if s.at.After(since) {
			longest = max(longest, s.length)
		}
	}
	return longest
}
