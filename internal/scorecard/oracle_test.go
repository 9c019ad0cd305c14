package scorecard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// TestOracleKeepsItsWord sends what oracles plan to real fake origins: every
// request must be accepted, and none may be early.
func TestOracleKeepsItsWord(t *testing.T) {
	every := 5
	if testing.Short() {
		every = 20
	}
	for _, row := range Rows() {
		for i, v := range row.Variants {
			conditions := v.Conditions
			for j := range conditions {
				if (i+j)%every != 0 || conditions[j].Quota.Units > 500 {
					continue
				}
				s := v.Scenario
				s.Row, s.Condition = row.Name, conditions[j]
				name := fmt.Sprintf("%s/%s/%v", s.Row, s.Variant, s.Condition)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { replay(t, s, s.planned(manner((i+j)%3), false), false, uint64(i+j)) })
				})
				if s.rules() != nil && s.Measure == nil && s.Bodies == nil && !testing.Short() {
					t.Run(name+"/bound", func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { replay(t, s, s.planned(manner((i+j)%2), true), true, uint64(i+j)) })
					})
				}
			}
		}
	}
}

// planned returns how to plan in one manner.
func (s Scenario) planned(how manner, bound bool) func(uint64, time.Time) []start {
	return func(seed uint64, began time.Time) []start { return s.plan(how, bound, seed, began) }
}

// replay sends a plan to the scenario's origin and holds it to what it says.
func replay(t *testing.T, s Scenario, plan func(seed uint64, began time.Time) []start, bound bool, seed uint64) {
	time.Sleep(s.offset(seed))
	config := s.config(seed)
	var next start
	config.Latency = func(int64) (up, down time.Duration) { return next.up, next.down }
	origin := heedtest.NewOrigin(config)
	began := origin.Began()
	schedule := plan(seed, began)
	var all sync.WaitGroup
	all.Go(func() {
		for _, at := range s.foreign(seed) {
			time.Sleep(time.Until(began.Add(at)))
			origin.Take(1)
		}
	})
	all.Go(func() { s.disturb(seed, origin, began) })
	refused, first := int64(0), max(1, s.Processes)
	var mu sync.Mutex
	sent, answered, told := 0, 0, time.Duration(never)
	for _, next = range schedule {
		time.Sleep(time.Until(began.Add(next.at)))
		synctest.Wait()
		sent++
		if next.refused {
			refused++
		}
		if bound && next.at < told && sent > 2*answered+first {
			t.Errorf("request %d starts with %d answers, none of which announces anything", sent, answered)
			bound = false // once is enough
		}
		all.Go(func() {
			req, _ := http.NewRequest("GET", "http://origin.test/", nil)
			resp, err := origin.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			answered++
			for field := range resp.Header {
				if strings.Contains(field, "Ratelimit") && told > time.Since(began) {
					told = time.Since(began)
				}
			}
		})
		synctest.Wait()
	}
	all.Wait()
	tally := origin.Tally()
	if tally.Refused != refused || tally.Early > 0 || tally.ForeignRefused > 0 || tally.Accepted != int64(len(schedule))-refused {
		t.Errorf("of %d planned, %d of them to be refused: %d accepted, %d refused, %d early; others refused: %d",
			len(schedule), refused, tally.Accepted, tally.Refused, tally.Early, tally.ForeignRefused)
	}
	if bound {
		keepsPace(t, s, config, schedule, told)
	}
}

// keepsPace checks that what starts after an instant keeps to the rules' pace, where
// that is the same throughout.
func keepsPace(t *testing.T, s Scenario, c heedtest.Config, schedule []start, from time.Duration) {
	if len(c.Policies) != 1 || c.Algorithm != heedtest.SlidingWindow && c.Algorithm != heedtest.TokenBucket && c.Algorithm != heedtest.GCRA {
		return
	}
	schedule = slices.DeleteFunc(schedule, func(s start) bool { return s.at < from })
	velocity := 1.5
	if s.Foreign > 0 || s.Processes > 1 {
		velocity = 1
	}
	w := c.Policies[0].Window
	for i := range schedule {
		for j := range i {
			span := schedule[i].at - schedule[j].at + min(2*time.Second, w/10)
			if most := 1 + velocity*float64(c.Policies[0].Quota)*float64(span)/float64(w); float64(i-j) > most {
				t.Fatalf("%d start between %v and %v, at most %.1f should", i-j, schedule[j].at, schedule[i].at, most)
			}
		}
	}
}
