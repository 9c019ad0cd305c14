package redisheed

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

func TestARefusalEndsEveryLease(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := newLedger(t, c, Options{Lease: time.Second})
	limit := heed.Policy{Quota: 100_000, Window: time.Minute}
	b := busy(t, l, limit)
	if b.hold() == 0 {
		t.Fatal("nothing in hand")
	}
	other := newLedger(t, c, Options{})
	pb, _ := other.book("key", limitPartition)
	g := &grant{b: pb}
	g.Heard(heed.Heard{At: time.Now(), Pause: time.Minute})
	eventually(t, atOnce, "the lease is given back", func() bool { return b.hold() == 0 })
	if _, err := l.Limit("key", limit).Acquire(heed.NoWait(t.Context())); err == nil {
		t.Error("it went although it is paused")
	}
}

func (b *book) hold() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inHand()
}

// busy uses a limit until units are taken in advance.
func busy(t *testing.T, l *Ledger, p heed.Policy) *book {
	t.Helper()
	limit := l.Limit("key", p)
	b, err := l.book("key", limitPartition)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "a lease", func() bool {
		for range 50 {
			if _, err := limit.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return b.hold() > 10
	})
	return b
}

func TestWhatIsNotUsedOfALeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := newLedger(t, c, Options{})
	policy := heed.Policy{Quota: 10_000, Window: time.Minute}
	var used int64
	limit := l.Limit("key", policy)
	b, err := l.book("key", limitPartition)
	if err != nil {
		t.Fatal(err)
	}
	for b.hold() == 0 {
		if _, err := limit.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		used++
	}
	other := newLedger(t, c, Options{}).Limit("key", policy)
	eventually(t, atOnce, "only what was used is spent", func() bool {
		s, err := other.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Used == used
	})
}

func TestALookLeavesALeaseInHand(t *testing.T) {
	t.Parallel()
	l := newLedger(t, anyServer(t), Options{Lease: time.Hour})
	policy := heed.Policy{Quota: 10_000, Window: time.Hour}
	b := busy(t, l, policy)
	had := b.hold()
	limit := l.Limit("key", policy)
	if _, err := limit.Check(heed.WithCost(t.Context(), "", 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := limit.Stats(heed.WithCost(t.Context(), "", 0)); err != nil {
		t.Fatal(err)
	}
	if has := b.hold(); has != had {
		t.Errorf("%d in hand, and after a look %d", had, has)
	}
}

func TestCloseGivesBackLeases(t *testing.T) {
	t.Parallel()
	c := anyServer(t)
	l := New(c, quiet(Options{Lease: 10 * time.Second}))
	policy := heed.Policy{Quota: 10_000, Window: time.Hour}
	b := busy(t, l, policy)
	inHand := b.hold()
	other := newLedger(t, c, Options{}).Limit("key", policy)
	before, err := other.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := other.Stats(t.Context())
	if err != nil || before.Used-after.Used != inHand {
		t.Errorf("%d in hand; used before %d, after %d; %v", inHand, before.Used, after.Used, err)
	}
	if _, err := l.Limit("key", policy).Acquire(t.Context()); err == nil {
		t.Error("a closed ledger grants")
	}
}

func TestRoundTripsPerRequest(t *testing.T) {
	needServer(t)
	for _, test := range []struct {
		name    string
		o       Options
		rate    int
		most    float64
		workers int
		away    time.Duration // or what is measured is how busy the machine is
	}{
		{"without leases, one after the other", Options{Lease: -1}, 0, 1.02, 1, 0},
		{"without leases, 8 at once", Options{Lease: -1}, 0, 1.02, 8, 0},
		{"with leases, at 500 a second", Options{}, 500, 0.1, 8, 10 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startServer(t)
			c := s.client()
			defer c.Close()
			var trips int64
			c.AddHook(&tripCounter{&trips})
			c.AddHook(distance(test.away))
			_, url := origin(t, heedtest.Config{})
			r := newRegistry(t, c, test.o, heed.Limits{Policies: []heed.Policy{{Quota: 100_000, Window: time.Minute}}, Smoothing: heed.Smoothing{Off: true}})
			client := (&heed.Transport{Registry: r}).Client()
			get := func() time.Duration {
				var tr heed.Trace
				req, _ := http.NewRequestWithContext(heed.WithTrace(t.Context(), &tr), "GET", url, nil)
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return 0
				}
				resp.Body.Close()
				return tr.Waited
			}
			get()
			time.Sleep(300 * time.Millisecond) // the first answer is told by now
			began, n := time.Now(), int64(0)
			atomic.StoreInt64(&trips, 0)
			var waits []time.Duration
			var mu sync.Mutex
			var wg sync.WaitGroup
			var pings []time.Duration
			pinger := s.client()
			pinger.AddHook(distance(test.away))
			defer pinger.Close()
			wg.Go(func() {
				for time.Since(began) < time.Second {
					at := time.Now()
					pinger.Ping(t.Context())
					pings = append(pings, time.Since(at))
					time.Sleep(5 * time.Millisecond)
				}
			})
			for range test.workers {
				wg.Go(func() {
					for due := began; time.Since(began) < time.Second; {
						if test.rate > 0 {
							due = due.Add(time.Duration(test.workers) * time.Second / time.Duration(test.rate))
							time.Sleep(time.Until(due)) // who is late makes up for it
						}
						w := get()
						mu.Lock()
						n++
						waits = append(waits, w)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			per := float64(atomic.LoadInt64(&trips)) / float64(n)
			slices.Sort(waits)
			median := waits[len(waits)/2]
			slices.Sort(pings)
			ping := pings[len(pings)/2]
			t.Logf("%d requests, %.3f trips each, median wait %v, median round trip %v", n, per, median, ping)
			if per > test.most {
				t.Errorf("%.3f round trips per request, want at most %v", per, test.most)
			}
			if test.rate > 0 && median > ping {
				t.Errorf("the median request waited %v, more than a round trip of %v", median, ping)
			}
		})
	}
}

func TestIdlePartitionsAreSmallAndGo(t *testing.T) {
	t.Parallel()
	needServer(t)
	c := startServer(t).client()
	defer c.Close()
	const window = 3 * time.Second
	r := newRegistry(t, c, Options{Seed: []byte("seed")}, heed.Limits{Policies: []heed.Policy{{Name: "small", Quota: 100, Window: window}, {Name: "large", Quota: 1_000_000, Window: window}}})
	for range 18 { // however slowly: instants further apart take more digits
		pm := acquire(t, r)
		answer(pm, 200, "RateLimit-Policy", `"p";q=100;w=3`, "RateLimit", `"p";r=50;t=2`)
		pm.Release()
	}
	r.Check(request()) // Redis knows all by now
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	var sum int64
	for _, k := range keys {
		n, err := c.MemoryUsage(t.Context(), k, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", k, n)
		sum += n
		if strings.Contains(k, "secret") {
			t.Errorf("a credential in the clear: %s", k)
		}
	}
	if sum > 1024 {
		t.Errorf("a partition takes %d bytes, its origin's key included", sum)
	}
	eventually(t, window+4*time.Second, "the keys are gone", func() bool {
		n, err := c.DBSize(t.Context()).Result()
		return err == nil && n == 0
	})
}

func TestMemoryDoesNotGrowWithTheQuota(t *testing.T) {
	c := anyServer(t)
	l := newLedger(t, c, Options{}).Limit("key", heed.Policy{Quota: 50_000_000, Window: 10 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	n := 0
	for ctx.Err() == nil {
		if _, err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		n++
	}
	keys, _ := c.Keys(t.Context(), "*"+limitPartition).Result()
	for _, k := range keys {
		h, err := c.HGetAll(t.Context(), k).Result()
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for f, v := range h {
			size += len(f) + len(v)
		}
		t.Logf("%d units in %d bytes", n, size)
		if size > 2000 {
			t.Errorf("%d bytes: %v", size, h)
		}
	}
}
