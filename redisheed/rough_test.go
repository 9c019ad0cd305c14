package redisheed

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
	"github.com/redis/go-redis/v9"
)

// A badWire hands on what connections to a server carry, until they are cut; whoever locks a connection's gate stalls it.
type badWire struct {
	to    string
	l     net.Listener
	mu    sync.Mutex
	conns map[net.Conn]*sync.Mutex
}

func startBadWire(t testing.TB, to string) *badWire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &badWire{to: to, l: l, conns: make(map[net.Conn]*sync.Mutex)}
	t.Cleanup(func() { l.Close(); w.each(func(c net.Conn, _ *sync.Mutex) { c.Close() }) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	return w
}

func (w *badWire) carry(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer s.Close()
	gate := new(sync.Mutex)
	w.mu.Lock()
	w.conns[c] = gate
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.conns, c)
		w.mu.Unlock()
	}()
	one := func(to, from net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			gate.Lock()
			if n > 0 {
				_, failed := to.Write(buf[:n])
				err = cmp.Or(err, failed)
			}
			gate.Unlock()
			if err != nil {
				break
			}
		}
		to.Close()
		from.Close()
	}
	go one(s, c)
	one(c, s)
}

func (w *badWire) each(f func(net.Conn, *sync.Mutex)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, gate := range w.conns {
		f(c, gate)
	}
}

func TestConnectionsThatBreakAndStallAtRandom(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := startBadWire(t, s.addr)
	behind := &server{t: t, addr: w.l.Addr().String()}
	o := Options{Timeout: 200 * time.Millisecond, Seed: []byte("seed")}
	c := newCrowd(t)
	for range 3 {
		c.join(newLedger(t, behind.quick(t), o), 4)
	}
	for end := time.Now().Add(3 * lostWindow); time.Now().Before(end); time.Sleep(rand.N(100 * time.Millisecond)) {
		w.each(func(n net.Conn, gate *sync.Mutex) {
			switch rand.N(6) {
			case 0:
				n.Close()
			case 1:
				if gate.TryLock() {
					time.AfterFunc(rand.N(500*time.Millisecond), gate.Unlock)
				}
			}
		})
	}
	time.Sleep(600 * time.Millisecond) // the last stall is over
	c.fullRate(time.Now())
	c.stop()
	c.keptTo()
	c.neverHung(o)
}

// A script of somebody else's keeps Redis busy: it answers all others with an error.
func TestARedisThatSomebodyElseKeepsBusy(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--busy-reply-threshold", "100")
	c := two(t, s, Options{})
	for range 2 {
		time.Sleep(lostWindow / 2)
		s.do("EVAL", `local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
			local till = now() + 1500000
			repeat until now() > till
			return 1`, 0)
	}
	c.fullRate(time.Now())
	c.stop()
	if len(c.errors()) == 0 {
		t.Error("it was not busy")
	}
	c.keptTo()
	c.neverHung(Options{})
}

func TestAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	replica := startServer(t, "--replicaof", "127.0.0.1", master.port())
	role := func(what string) func() bool {
		return func() bool { return strings.Contains(fmt.Sprint(replica.do("INFO", "replication")), what) }
	}
	eventually(t, 10*time.Second, "the replica follows", role("master_link_status:up"))
	var sentinels []string
	for range 3 {
		s := &server{t: t, addr: freeAddr(t), dir: t.TempDir()}
		conf := filepath.Join(s.dir, "sentinel.conf")
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor m 127.0.0.1 %s 2\nsentinel down-after-milliseconds m 1000\n", s.port(), s.dir, master.port())
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.cmd = exec.Command("redis-server", conf, "--sentinel")
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.stop)
		sentinels = append(sentinels, s.addr)
	}
	for _, addr := range sentinels {
		s := &server{t: t, addr: addr}
		eventually(t, 20*time.Second, "the sentinels know each other and the replica", func() bool {
			c := s.client()
			defer c.Close()
			info := c.Info(t.Context(), "sentinel").Val()
			return strings.Contains(info, "slaves=1,sentinels=3")
		})
	}
	c := newCrowd(t)
	for range 2 {
		rc := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: sentinels})
		t.Cleanup(func() { rc.Close() })
		c.join(newLedger(t, rc, Options{Timeout: time.Second}), 4)
	}
	time.Sleep(lostWindow)
	master.stop()
	eventually(t, 30*time.Second, "the replica is promoted", role("role:master"))
	time.Sleep(2 * time.Second) // the clients are told
	c.fullRate(time.Now())
	c.stop()
	c.keptTo()
}

// Processes that start and are killed again and again, with leases and slots, stop those that stay for a while only.
func TestProcessesThatStartAndAreKilledStopNobodyForLong(t *testing.T) {
	t.Parallel()
	const quota, window, slotLease, killed = 200, 2 * time.Second, time.Second, 6
	for name, j := range map[string]job{"leases": {Goroutines: 16}, "slots": {Goroutines: 8, InFlight: 8}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, url := origin(t, heedtest.Config{
				Record: true, Algorithm: heedtest.SlidingWindow, Dialect: heedtest.Silent, Latency: heedtest.RoundTrip(10 * time.Millisecond),
				Policies: []heedtest.Policy{{Quota: quota, Window: window}},
			})
			j.Redis, j.Origin = []string{startServer(t).addr}, url
			j.Policies = []heed.Policy{{Name: "p", Quota: quota, Window: window}}
			j.Options = Options{Timeout: patience, SlotLease: slotLease}
			stays := startWorker(t, j)
			stays.begin()
			for range killed {
				w := startWorker(t, j)
				w.begin()
				time.Sleep(700 * time.Millisecond)
				w.kill()
			}
			time.Sleep(slotLease + slotLease/4)
			from := time.Since(o.Began())
			time.Sleep(window + window/4)
			n := 0
			for _, e := range o.Events() {
				if e.Accepted && e.Arrival >= from {
					n++
				}
			}
			if wt := stays.stop(); wt.Errors > 0 || wt.Longest > 2*window {
				t.Errorf("%+v", wt)
			}
			// On a busy machine what was in flight where it was killed may come later than booked.
			late, busy := int64(0), stoodStill(o.Began()) > 10*time.Millisecond
			if busy {
				late = int64(killed * j.Goroutines)
			}
			if tally := o.Tally(); tally.Refused > late {
				t.Errorf("%d refused", tally.Refused)
			}
			if n < quota*9/10 && !busy {
				t.Errorf("%d accepted in a window after that, want about %d", n, quota)
			}
		})
	}
}
