package heed

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// books is a Ledger in memory, shared by the registries of one test: sliding
// windows, a cap on requests in flight, and pauses. Every talk takes rtt.
type books struct {
	rtt time.Duration

	mu        sync.Mutex
	down      error
	questions int
	stopped   int // talks cut short
	heard     []Heard
	names     map[string]int // credentials
	accounts  map[string]*account
	listeners []func(News)
}

type account struct {
	uses     []time.Time // of units, by when they were answered; zero: not yet
	inFlight int
	pause    time.Time
}

// process is the ledger as one process sees it.
type process struct {
	*books
	id int
}

func (b *books) process() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(b.listeners, nil)
	return &process{b, len(b.listeners) - 1}
}

func (p *process) Attach(news func(News)) func() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners[p.id] = news
	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.listeners[p.id] = nil
		return p.down
	}
}

func (p *process) tell(n News) {
	p.mu.Lock()
	others := slices.Clone(p.listeners)
	p.mu.Unlock()
	for i, l := range others {
		if l != nil && i != p.id {
			l(n)
		}
	}
}

func (p *process) talk(ctx context.Context) error {
	select {
	case <-time.After(p.rtt):
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopped++
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

func (b *books) account(origin, partition string) *account {
	if b.accounts == nil {
		b.accounts = make(map[string]*account)
	}
	k := origin + " " + partition
	if b.accounts[k] == nil {
		b.accounts[k] = &account{}
	}
	return b.accounts[k]
}

func (p *process) Partition(ctx context.Context, credential string) (string, error) {
	if err := p.talk(ctx); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = make(map[string]int)
	}
	if _, ok := p.names[credential]; !ok {
		p.names[credential] = len(p.names)
	}
	return string(rune('A' + p.names[credential])), nil
}

func (b *books) judge(q *Question, now time.Time) Answer {
	acc := b.account(q.Origin, q.Partition)
	ans := Answer{Remaining: -1}
	if acc.pause.After(now) {
		ans.News = []News{{Origin: q.Origin, Partition: q.Partition, Pause: acc.pause.Sub(now)}}
		ans.Wait, ans.Cause = acc.pause.Sub(now), CausePause
		return ans
	}
	if q.MaxConcurrent > 0 && acc.inFlight >= q.MaxConcurrent {
		ans.Wait, ans.Cause = time.Hour, CauseConcurrency
		return ans
	}
	for _, pol := range q.Policies {
		used, back := q.Cost.Requests, time.Time{}
		for _, u := range acc.uses {
			if u.IsZero() || now.Sub(u) < pol.Window {
				used++
				if back.IsZero() {
					back = u
				}
			}
		}
		ans.Remaining = max(pol.Quota-used, 0)
		if used > pol.Quota {
			ans.Wait, ans.Cause, ans.Policy = max(back.Add(pol.Window).Sub(now), time.Millisecond), CausePolicy, pol.Name
		}
	}
	return ans
}

func (p *process) Take(ctx context.Context, q *Question) (Answer, error) {
	if err := p.talk(ctx); err != nil {
		return Answer{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.questions++
	ans := p.judge(q, time.Now())
	if ans.Wait == 0 {
		acc := p.account(q.Origin, q.Partition)
		acc.inFlight++
		g := &granted{process: p, q: q, acc: acc}
		for range q.Cost.Requests {
			acc.uses = append(acc.uses, time.Time{})
			g.uses++
		}
		ans.Grant = g
	}
	return ans, nil
}

func (p *process) Check(ctx context.Context, q *Question) (Answer, error) {
	if err := p.talk(ctx); err != nil {
		return Answer{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.judge(q, time.Now()), nil
}

func (p *process) Pause(ctx context.Context, origin string, d time.Duration) error {
	if err := p.talk(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	for k, a := range p.accounts {
		if k[:len(origin)] == origin {
			a.pause = time.Now().Add(max(d, 0))
		}
	}
	p.mu.Unlock()
	if d <= 0 {
		d = -1
	}
	p.tell(News{Origin: origin, Pause: d, Manual: true})
	return nil
}

func (p *process) Reset(ctx context.Context, origin string) error {
	if err := p.talk(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	clear(p.accounts)
	p.mu.Unlock()
	p.tell(News{Origin: origin, Reset: true, Ask: true})
	return nil
}

type granted struct {
	*process
	q    *Question
	acc  *account
	uses int64 // not answered yet
}

func (g *granted) settle(now time.Time, sent bool) {
	for i := 0; g.uses > 0 && i < len(g.acc.uses); i++ {
		if !g.acc.uses[i].IsZero() {
			continue
		}
		g.uses--
		if sent {
			g.acc.uses[i] = now
		} else {
			g.acc.uses = slices.Delete(g.acc.uses, i, i+1)
			i--
		}
	}
}

func (g *granted) Heard(h Heard) {
	g.mu.Lock()
	g.heard = append(g.heard, h)
	if h.Answered {
		g.settle(h.At, !h.Free)
	}
	if h.Pause > 0 && !h.Doubt {
		g.acc.pause = h.At.Add(h.Pause)
	}
	g.mu.Unlock()
	if h.Pause != 0 || len(h.Announcement.Policies) > 0 {
		n := News{Origin: g.q.Origin, Partition: g.q.Partition, Pause: h.Pause, Doubt: h.Doubt, Policies: h.Announcement.Policies}
		if h.Whole {
			n.Partition = ""
		}
		go g.tell(n)
	}
}

func (g *granted) End(sent bool, _ int64) {
	g.mu.Lock()
	g.settle(time.Now(), sent)
	g.acc.inFlight--
	g.mu.Unlock()
	go g.tell(News{Origin: g.q.Origin, Partition: g.q.Partition, Ask: true})
}

const sharedOrigin = "https://api.example"

// share makes n registries over one set of books.
func share(t *testing.T, b *books, n int, l Limits) []*Registry {
	t.Helper()
	rs := make([]*Registry, n)
	for i := range rs {
		r, err := NewRegistry(Config{Default: l, Ledger: b.process(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		rs[i] = r
	}
	return rs
}

func sharedRequest() *http.Request {
	req, _ := http.NewRequest("GET", sharedOrigin+"/path", nil)
	req.Header.Set("Authorization", "Bearer secret")
	return req
}

// mustGo acquires a permit and has its request answered at once with 200.
func mustGo(t *testing.T, r *Registry, header ...string) *Permit {
	t.Helper()
	pm, err := r.Acquire(t.Context(), sharedRequest())
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	answer(pm, 200, header...)
	return pm
}

func answer(pm *Permit, status int, header ...string) {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	pm.Observe(&http.Response{StatusCode: status, Header: h, Body: http.NoBody})
}

func eachSecond(n int64) Limits {
	return Limits{Policies: []Policy{{Name: "p", Quota: n, Window: time.Second}}, Smoothing: Smoothing{Off: true}}
}
