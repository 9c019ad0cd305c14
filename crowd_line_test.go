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
