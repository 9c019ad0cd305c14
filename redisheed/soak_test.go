package redisheed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestNoWindowEverHoldsMoreThanTheQuota has clients take units, keep some in
// hand, use them, get answers sooner or later than they thought and give the
// rest back, all at random, and some of them die.
func TestNoWindowEverHoldsMoreThanTheQuota(t *testing.T) {
	seeds, quotas := 2, []int64{1, 7, 100, 250, 5000}
	if testing.Short() {
		seeds, quotas = 1, quotas[:4]
	}
	for seed := range seeds {
		for _, quota := range quotas {
			t.Run(fmt.Sprintf("quota %d, seed %d", quota, seed), func(t *testing.T) {
				soak(t, rand.New(rand.NewPCG(uint64(seed), uint64(quota))), quota)
			})
		}
	}
}

func soak(t *testing.T, rnd *rand.Rand, quota int64) {
	s := newSim(t)
	const window = 10 * time.Second
	type flight struct{ x, arrives, ends int64 }
	type client struct {
		name    string
		hand    []lot // until is not used: x less the hold is
		flights []flight
		ops     []op
		batch   int64
	}
	clients := make([]*client, 4)
	for i := range clients {
		clients[i] = &client{name: fmt.Sprint("c", i)}
	}
	var arrivals []int64
	hold := micros(window / 40)
	use := func(c *client, x int64) {
		takes := rnd.Int64N(300_000)
		if rnd.IntN(20) == 0 {
			takes = rnd.Int64N(12_000_000) // longer than the window
		}
		// However long the answer takes, the request arrives within the latency
		// that was told; else its units could come back too soon where its
		// process dies.
		arrives := s.micro() + rnd.Int64N(min(takes, 200_000)+1)
		c.flights = append(c.flights, flight{x, arrives, s.micro() + takes})
		arrivals = append(arrivals, arrives)
	}
	granted0, most := 0, 0
	for step := range 600 {
		s.advance(time.Duration(rnd.Int64N(int64(200 * time.Millisecond))))
		now := s.micro()
		for _, c := range clients {
			c.flights = slices.DeleteFunc(c.flights, func(f flight) bool {
				if f.ends <= now {
					c.ops = append(c.ops, op{"m", f.x, f.ends, 1, 1, 0, 0})
				}
				return f.ends <= now
			})
			for i := range c.flights { // as book.extend does
				if f := &c.flights[i]; f.x+micros(window)/2 <= now+200_000 {
					c.ops = append(c.ops, op{"m", f.x, now, 1, 1, 0, 0})
					f.x = now
				}
			}
			for i := range c.hand {
				l := &c.hand[i]
				expired := l.x-hold < now
				for l.n > 0 && !expired && rnd.IntN(3) > 0 {
					l.n--
					use(c, l.x)
				}
				if l.n > 0 && expired {
					c.ops = append(c.ops, op{"m", l.x, 0, l.n, 1, 0, 0})
					l.n = 0
				}
			}
			c.hand = slices.DeleteFunc(c.hand, func(l lot) bool { return l.n == 0 })
		}
		c := clients[rnd.IntN(len(clients))]
		if rnd.IntN(40) == 0 { // it dies: nobody tells what became of its requests
			for _, f := range c.flights { // what had not arrived does not any more
				if i := slices.Index(arrivals, f.arrives); f.arrives > now && i >= 0 {
					arrivals = slices.Delete(arrivals, i, i+1)
				}
			}
			c.ops, c.hand, c.flights = nil, nil, nil
			c.name = fmt.Sprint("c", step)
			c.batch = 0
			continue
		}
		q := question{Limits: perWindow(quota, window), Need: 1 + rnd.Int64N(5+quota/10), Extra: rnd.Int64N(quota), Hold: hold, Latency: 200_000, Queue: 1, Ops: c.ops}
		q.Imm = q.Need
		if len(c.ops) > 0 {
			c.batch++
			q.Batch = c.batch
		}
		r := s.ask(c.name, q)
		if rnd.IntN(10) == 0 && len(c.ops) > 0 { // the reply was lost, and what happened is said again
			s.ask(c.name, question{Do: "tell", Limits: q.Limits, Ops: c.ops, Batch: c.batch})
		}
		c.ops = nil
		for range r.now0 {
			use(c, r.x0)
		}
		if r.later > 0 {
			c.hand = append(c.hand, lot{x: r.x1, n: r.later})
		}
		granted0 += int(r.now0)
	}
	slices.Sort(arrivals)
	first := 0
	for i, at := range arrivals {
		for at-arrivals[first] >= micros(window) {
			first++
		}
		most = max(most, i-first+1)
	}
	if most > int(quota) {
		t.Errorf("%d of %d units in one window", most, quota)
	}
	if granted0 == 0 {
		t.Error("nothing was granted")
	}
	h, _ := s.c.HGetAll(t.Context(), "{o}:p").Result()
	if size := len(h["w:p\n"]); size > 1000 {
		t.Errorf("a log of %d bytes: %s", size, h["w:p\n"])
	}
	// All that was used comes back, and nothing is left.
	s.advance(3 * window)
	if r := s.ask("x", question{Do: "check", Limits: perWindow(quota, window)}); r.left != quota {
		t.Errorf("%d of %d left after a rest", r.left, quota)
	}
	if keys := s.m.Keys(); len(keys) > 0 {
		t.Errorf("left in Redis: %v", keys)
	}
}
