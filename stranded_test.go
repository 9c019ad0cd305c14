package heed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A wanderer is one request of the test of what strands nobody.
type wanderer struct {
	class  string // who of one class went in the order they came; "": no order is promised
	number uint64
	came   time.Time
	start  time.Time
	sent   bool // and not cancelled
	span   time.Duration
}

// mayhem drives one origin with all that can hold requests, and all that can let them go.
type mayhem struct {
	t      *testing.T
	seed   uint64
	rnd    *rand.Rand
	r      *Registry
	common Limits
	quiet  bool // limits never change, nobody is cancelled after admission: starts can be told apart

	mu       sync.Mutex
	went     []wanderer
	inFlight int
	peak     int
}

const mayhemOrigin = "https://api.example.org"

// Whatever holds requests, and however that ends: when nothing holds one any more, it goes.
func TestNobodyIsStranded(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { strandNobody(t, seed) })
	}
}

func strandNobody(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		m := &mayhem{t: t, seed: seed, rnd: rnd, quiet: rnd.IntN(3) == 0}
		m.common = m.limits()
		r, err := NewRegistry(Config{Default: m.common, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		m.r = r
		began := time.Now()
		var all sync.WaitGroup
		keys := 1 + rnd.IntN(6)
		for range 20 + rnd.IntN(80) {
			own := rand.New(rand.NewPCG(rnd.Uint64(), 4))
			at := time.Duration(rnd.Int64N(int64(20 * time.Second))).Truncate([]time.Duration{1, time.Second}[rnd.IntN(2)])
			all.Go(func() {
				time.Sleep(at)
				m.request(own, keys)
			})
		}
		stop := make(chan struct{})
		go func() { all.Wait(); close(stop) }()
		for i := 0; ; i++ {
			select {
			case <-stop:
				m.judge()
				r.Close()
				return
			case <-time.After(time.Duration(1 + rnd.Int64N(int64(800*time.Millisecond)))):
			}
			synctest.Wait()
			m.look()
			if !m.quiet && i < 60 {
				m.disturb()
			}
			synctest.Wait()
			m.look()
			if d := time.Since(began); d > 6*time.Hour {
				t.Fatalf("seed %d: some still wait after %v", seed, d)
			}
		}
	})
}

func (m *mayhem) limits() (l Limits) {
	rnd := m.rnd
	if rnd.IntN(3) == 0 {
		l.MinInterval = time.Duration(1+rnd.IntN(20)) * 50 * time.Millisecond
	}
	if rnd.IntN(4) == 0 {
		l.MinPause = time.Duration(1+rnd.IntN(10)) * 50 * time.Millisecond
	}
	if rnd.IntN(3) == 0 {
		l.MaxConcurrent = 1 + rnd.IntN(4)
	}
	if rnd.IntN(3) == 0 {
		l.Policies = append(l.Policies, Policy{Quota: int64(1 + rnd.IntN(5)), Window: time.Duration(1+rnd.IntN(5)) * time.Second})
	}
	if rnd.IntN(5) == 0 {
		l.Policies = append(l.Policies, Policy{Quota: int64(3 + rnd.IntN(3)), Unit: UnitConcurrentRequests})
	}
	if rnd.IntN(5) == 0 {
		l.MaxWait = time.Duration(1+rnd.IntN(30)) * time.Second
	}
	if rnd.IntN(6) == 0 {
		l.MaxQueue = 5 + rnd.IntN(20)
	}
	l.Smoothing.Off = rnd.IntN(2) == 0
	l.Smoothing.Strict = !l.Smoothing.Off && rnd.IntN(4) == 0
	l.MaxRetryAfter = time.Minute
	return l
}

// request is one request, from its context to its release.
func (m *mayhem) request(rnd *rand.Rand, keys int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := wanderer{}
	key, priority := rnd.IntN(keys), []Priority{PriorityLow, 0, 0, PriorityHigh}[rnd.IntN(4)]
	w.class = fmt.Sprint(key, priority)
	ctx = WithPriority(ctx, priority)
	if rnd.IntN(6) == 0 {
		ctx, w.class = WithCost(ctx, UnitRequests, int64(rnd.IntN(7))), ""
	}
	if rnd.IntN(6) == 0 {
		w.span = time.Duration(1+rnd.IntN(30)) * 100 * time.Millisecond
		ctx = WithMinInterval(ctx, w.span)
	}
	switch rnd.IntN(6) {
	case 0:
		ctx = NoWait(ctx)
	case 1:
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, time.Duration(rnd.IntN(20000))*time.Millisecond)
		defer end()
	case 2:
		after := time.AfterFunc(time.Duration(rnd.IntN(10000))*time.Millisecond, cancel)
		defer after.Stop()
	}
	path := []string{"/a", "/a", "/b"}[rnd.IntN(3)]
	if w.class != "" {
		w.class += path
	}
	req, _ := http.NewRequestWithContext(ctx, "GET", mayhemOrigin+path, nil)
	req.Header.Set("Authorization", fmt.Sprint("Bearer ", key))
	for attempt := 1; attempt <= 3; attempt++ {
		w.came = time.Now()
		a := ask{attempt: attempt, number: w.number}
		pm, err := m.r.acquire(ctx, req, a)
		if err != nil {
			return
		}
		if again := m.send(rnd, req, pm, &w, attempt); !again {
			return
		}
		w.class = ""
	}
}

// send is a permit's use. It reports whether the request is to be tried again.
func (m *mayhem) send(rnd *rand.Rand, req *http.Request, pm *Permit, w *wanderer, attempt int) (again bool) {
	w.number, w.start = pm.number, pm.start
	m.mu.Lock()
	m.inFlight++
	m.peak = max(m.peak, m.inFlight)
	m.mu.Unlock()
	time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
	out := func() {
		m.mu.Lock()
		m.inFlight--
		m.mu.Unlock()
	}
	if rnd.IntN(8) == 0 {
		out()
		pm.Cancel()
		return false
	}
	m.mu.Lock()
	w.sent = true
	m.went = append(m.went, *w)
	m.mu.Unlock()
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}
	switch rnd.IntN(14) {
	case 0:
		resp.StatusCode = 429
		resp.Header.Set("Retry-After", strconv.Itoa(rnd.IntN(5)))
	case 1:
		resp.StatusCode = 429
	case 2:
		resp.StatusCode = 503
		resp.Header.Set("Retry-After", strconv.Itoa(rnd.IntN(5)))
	case 3:
		resp.Header.Set("RateLimit-Policy", `"x";q=10;w=8`)
		resp.Header.Set("RateLimit", fmt.Sprintf(`"x";r=%d;t=%d`, rnd.IntN(10), 1+rnd.IntN(8)))
	}
	if rnd.IntN(10) > 0 {
		pm.Observe(resp)
	}
	if rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
	}
	out()
	pm.Release()
	return resp.StatusCode != 200
}

// disturb changes something for all of them.
func (m *mayhem) disturb() {
	switch m.rnd.IntN(12) {
	case 0:
		m.r.Pause(mayhemOrigin, time.Duration(m.rnd.IntN(5000))*time.Millisecond)
	case 1:
		m.r.Pause(mayhemOrigin, 0)
	case 2:
		m.r.SetLimits("*", m.limits())
	case 3:
		m.r.Reset(mayhemOrigin)
	case 4:
		m.r.sweepDue.Store(0)
		m.r.sweep(time.Now().Add(2 * time.Hour))
	}
}

// plansAnew reports whether w waits for a pace that rises now, as what is left has to last for less time. Nobody is woken for
// that: the wait goes on for less than it takes for one unit at that pace.
func (p *partition) plansAnew(now time.Time, w *waiter) bool {
	l := p.smoother.limiter
	return w.held.cause == CauseSmoother && l != nil && p.alarm.After(now) && p.alarm.Sub(now).Seconds() <= 1/float64(l.Limit())
}

// look finds those who wait though nothing holds them, or that nothing will wake.
func (m *mayhem) look() {
	for _, o := range m.r.all() {
		o.mu.Lock()
		now := time.Now()
		n := 0
		for _, p := range o.partitions {
			n += p.waiting()
			var heads []*waiter
			p.queues(func(_ *lane, q *queue) {
				if w := p.next(now, q).waiter; w != nil {
					heads = append(heads, w)
				}
			})
			for _, w := range heads {
				v := p.judge(now, &w.ask, &place{})
				if v.goes(now) && w.queue.head() == w && !p.plansAnew(now, w) { // else another path is tried, when its time has come
					m.t.Errorf("seed %d: nothing holds one who waits since %v: turn %d, alarm %v, timer %v", m.seed, now.Sub(w.arrived), p.turn, p.alarm.Sub(now), o.timer != nil)
				}
				at := v.wakeAt()
				if common := o.judge(now, &w.ask, p.patience()); common.events && common.again.IsZero() {
					at = time.Time{}
				}
				switch {
				case at.IsZero() && o.inFlight == 0:
					m.t.Errorf("seed %d: nothing will wake one held by %v", m.seed, v.obstacle)
				case at.IsZero():
				case o.timer == nil:
					m.t.Errorf("seed %d: no timer for one held by %v for %v: in flight %d", m.seed, v.obstacle, at.Sub(now), o.inFlight)
				}
			}
			if p.parked.len() > 0 && (o.timer == nil || o.alarm.After(p.nextParked())) && o.inFlight == 0 {
				m.t.Errorf("seed %d: no timer for one aside", m.seed)
			}
		}
		if n != o.waiting {
			m.t.Errorf("seed %d: %d wait, counted %d", m.seed, n, o.waiting)
		}
		if o.waiting == 0 && (o.spaced != 0 || o.due != nil || o.timer != nil || o.certain != [3]int{}) {
			m.t.Errorf("seed %d: nobody waits: spaced %d, due %v, timer %v, certain %v", m.seed, o.spaced, o.due != nil, o.timer != nil, o.certain)
		}
		sum := [3]int{}
		for _, p := range o.partitions {
			for i := range sum {
				sum[i] += p.certain[i]
			}
		}
		if sum != o.certain {
			m.t.Errorf("seed %d: certain %v, not %v", m.seed, o.certain, sum)
		}
		o.unlock()
	}
}

// judge looks back at what went when.
func (m *mayhem) judge() {
	for _, o := range m.r.all() {
		if o.waiting != 0 || o.inFlight != 0 {
			m.t.Errorf("seed %d: %d wait and %d are in flight in the end", m.seed, o.waiting, o.inFlight)
		}
	}
	if !m.quiet {
		return
	}
	if most := m.common.MaxConcurrent; most > 0 && m.peak > most {
		m.t.Errorf("seed %d: %d in flight, not %d", m.seed, m.peak, most)
	}
	slices.SortFunc(m.went, func(a, b wanderer) int {
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(b.span, a.span))
	})
	for i, w := range m.went {
		if i > 0 {
			if d := w.start.Sub(m.went[i-1].start); d < max(m.common.MinInterval, w.span) {
				m.t.Errorf("seed %d: %v after the last one, not %v or %v", m.seed, d, m.common.MinInterval, w.span)
			}
		}
		for _, x := range m.went[:i] { // went before: had it come after?
			if w.span == 0 && x.span == 0 && w.class != "" && w.class == x.class && w.number < x.number && x.start.Before(w.start) && w.came.Before(x.start) {
				m.t.Errorf("seed %d: %s: number %d, which came at %v, went %v after number %d", m.seed, w.class, w.number, w.came, w.start.Sub(x.start), x.number)
			}
		}
	}
}
