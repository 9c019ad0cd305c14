package heed_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A crowdMember is one of many who wait: how long, and what it asks for.
type crowdMember struct {
	within   time.Duration // 0: no deadline
	priority heed.Priority
	cost     int64
	asked    int           // the how manyth it is
	got      time.Duration // when it was granted, or if it was not …
	refused  bool          // … turned away
}

// crowdOf returns so many that cost less than costs, or where that is 0, 1.
func crowdOf(rnd *rand.Rand, n, costs int) []*crowdMember {
	all := make([]*crowdMember, n)
	for i := range all {
		all[i] = &crowdMember{priority: heed.Priority(rnd.IntN(3) - 1), cost: 1, asked: i}
		if rnd.IntN(4) > 0 {
			all[i].within = time.Duration(60+rnd.IntN(150))*time.Second + time.Second/2
		}
		if costs > 0 {
			all[i].cost = rnd.Int64N(int64(costs))
		}
	}
	return all
}

// inTurn sorts a crowd as it goes.
func inTurn(crowd []*crowdMember) []*crowdMember {
	crowd = slices.Clone(crowd)
	slices.SortFunc(crowd, func(a, b *crowdMember) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.asked, b.asked))
	})
	return crowd
}

// join has all of them wait.
func (m *crowdMember) join(t *testing.T, r *heed.Registry, all *sync.WaitGroup, header ...string) {
	ctx, cancel := heed.WithCost(heed.WithPriority(t.Context(), m.priority), heed.UnitRequests, m.cost), context.CancelFunc(func() {})
	if m.within > 0 {
		ctx, cancel = context.WithTimeout(ctx, m.within)
	}
	began := time.Now()
	all.Go(func() {
		defer cancel()
		pm, err := r.Acquire(ctx, request(example, header...))
		if m.got, m.refused = time.Since(began), err != nil; err == nil {
			done(pm)
		} else {
			limitErr(t, err)
		}
	})
	synctest.Wait()
}

// Of many who wait, exactly those are turned away whom a longer pause puts off for too long, from the places that
// the others leave them.
func TestNewsTurnsAwayExactlyWhoCanNoLongerMakeIt(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const quota, window, pause = 10, 10 * time.Second, 50 * time.Second
			rnd := rand.New(rand.NewPCG(seed, 1))
			r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 1 << 20, Window: time.Second}}, Smoothing: heed.Smoothing{Off: true}}})
			defer r.Close()
			meet(t, r, example)
			time.Sleep(time.Hour / 2)
			r.Pause(example, time.Second)
			costs := int(seed%2) * 4
			crowd, all := crowdOf(rnd, 200, costs), sync.WaitGroup{}
			for _, m := range crowd {
				m.join(t, r, &all)
			}
			r.SetLimits("*", heed.Limits{Policies: []heed.Policy{{Quota: quota, Window: window}}, Smoothing: heed.Smoothing{Off: true}})
			r.Pause(example, pause)
			synctest.Wait()
			all.Wait()
			before := int64(0)
			for _, m := range inTurn(crowd) {
				// The last unit it takes is of the window that it goes in, the first of which begins when the pause is over.
				goes := pause
				if upTo := before + m.cost; upTo > 0 {
					goes += time.Duration((upTo-1)/quota) * window
				}
				late, atOnce := m.within > 0 && m.within <= goes, m.refused && m.got == 0
				if late != atOnce || costs == 0 && late != m.refused { // what costs more may not fit into what is left of a window
					t.Errorf("seed %d: number %d of priority %d within %v at a cost of %d, with %d before it: refused %v after %v; it could go after %v",
						seed, m.asked, m.priority, m.within, m.cost, before, m.refused, m.got, goes)
				}
				if !late {
					before += m.cost
				}
			}
		})
	}
}

// Whatever holds all of an origin: when it lets one go, that is the first who came of the highest priority, of
// those whom nothing of their credential's own holds. Also when some of them have left, and others joined.
func TestCredentialsTakeTurnsInTheOrderTheyCame(t *testing.T) {
	sideBySide(t)
	for name, limits := range map[string]heed.Limits{
		"MaxConcurrent": {MaxConcurrent: 1},
		"MinInterval":   {MinInterval: time.Second},
		"MinPause":      {MinPause: time.Second},
	} {
		for seed := range uint64(5) {
			synctest.Test(t, func(t *testing.T) {
				const keys, requests, outage = 40, 300, 20 * time.Second
				rnd := rand.New(rand.NewPCG(seed, 2))
				r := newRegistry(t, heed.Config{Default: heed.Limits{}})
				defer r.Close()
				for i := range keys {
					for range 12 {
						done(acquire(t, r, credential(i)))
					}
				}
				r.SetLimits("*", limits)
				time.Sleep(time.Minute)
				began := time.Now()
				held := make([]time.Duration, keys) // until when a credential is, by itself
				for i := range 5 {
					pm := acquire(t, r, credential(i))
					held[i] = time.Since(began) + time.Duration(30*(i+1))*time.Second
					pm.Learn(heed.Announcement{RetryAfter: held[i] - time.Since(began)})
					pm.Release()
				}
				r.Pause(example, outage)
				type member struct {
					crowdMember
					key int
				}
				var mu sync.Mutex
				waiting, went := map[*member]bool{}, 0
				var all sync.WaitGroup
				for i := range requests {
					m := &member{crowdMember: crowdMember{priority: heed.Priority(rnd.IntN(3) - 1), asked: i}, key: rnd.IntN(keys)}
					ctx, cancel := context.WithCancel(heed.WithPriority(t.Context(), m.priority))
					if rnd.IntN(5) == 0 {
						time.AfterFunc(time.Duration(rnd.IntN(100))*time.Second+time.Millisecond, cancel)
					}
					mu.Lock()
					waiting[m] = true
					mu.Unlock()
					all.Go(func() {
						defer cancel()
						pm, err := r.Acquire(ctx, credential(m.key))
						at := time.Since(began)
						mu.Lock()
						delete(waiting, m)
						if err == nil {
							went++
							for other := range waiting {
								first := other.priority > m.priority || other.priority == m.priority && other.asked < m.asked
								if first && held[other.key] < at {
									t.Errorf("%s, seed %d: after %v number %d of priority %d went before number %d of priority %d", name, seed, at, m.asked, m.priority, other.asked, other.priority)
								}
							}
							if at < held[m.key] {
								t.Errorf("%s, seed %d: after %v number %d went, whose credential is held until %v", name, seed, at, m.asked, held[m.key])
							}
						}
						mu.Unlock()
						if err == nil {
							time.Sleep(time.Second / 2)
							done(pm)
						}
					})
					synctest.Wait()
					if i > requests/2 { // the others join while some go
						time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
					}
				}
				all.Wait()
				if went < requests*2/3 {
					t.Errorf("%s, seed %d: only %d went", name, seed, went)
				}
			})
		}
	}
}
