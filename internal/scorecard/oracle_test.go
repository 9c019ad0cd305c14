package scorecard

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// TestOracleKeepsItsWord sends what oracles plan to real fake origins: every
// request must be accepted, and none may be early.
func TestOracleKeepsItsWord(t *testing.T) {
	for _, row := range Rows() {
		for i, v := range row.Variants {
			conditions := v.Conditions
			for j := range conditions {
				if (i+j)%5 != 0 || conditions[j].Quota.Units > 500 {
					continue
				}
				s := v.Scenario
				s.Row, s.Condition = row.Name, conditions[j]
				name := fmt.Sprintf("%s/%s/%v", s.Row, s.Variant, s.Condition)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { replay(t, s, manner((i+j)%3), uint64(i+j)) })
				})
			}
		}
	}
}

func replay(t *testing.T, s Scenario, how manner, seed uint64) {
	time.Sleep(s.offset(seed))
	config := s.config(seed)
	var next start
	config.Latency = func(int64) (up, down time.Duration) { return next.up, next.down }
	origin := heedtest.NewOrigin(config)
	began := origin.Began()
	schedule := s.plan(how, seed, began)
	var all sync.WaitGroup
	all.Go(func() {
		for _, at := range s.foreign(seed) {
			time.Sleep(time.Until(began.Add(at)))
			origin.Take(1)
		}
	})
	all.Go(func() { s.disturb(seed, origin, began) })
	inFlight := 0
	for _, next = range schedule {
		time.Sleep(time.Until(began.Add(next.at)))
		synctest.Wait()
		inFlight++
		all.Go(func() {
			req, _ := http.NewRequest("GET", "http://origin.test/", nil)
			resp, err := origin.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
		synctest.Wait()
	}
	all.Wait()
	tally := origin.Tally()
	if tally.Refused > 0 || tally.Early > 0 || tally.ForeignRefused > 0 || tally.Accepted != int64(len(schedule)) {
		t.Errorf("of %d planned: %d accepted, %d refused, %d early; others refused: %d",
			len(schedule), tally.Accepted, tally.Refused, tally.Early, tally.ForeignRefused)
	}
}
