package heed

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Whatever is put in, moved and taken out meanwhile, what comes first is the first.
func TestRankingKeepsWhatComesFirst(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 3))
	for range 100 {
		var r ranking[*partition, byAlarm]
		all := make([]*partition, 1+rnd.IntN(30))
		for i := range all {
			all[i] = &partition{}
		}
		in := make(map[*partition]bool)
		for range 200 {
			p := all[rnd.IntN(len(all))]
			if in[p] = rnd.IntN(3) > 0; in[p] {
				p.alarm = time.Unix(rnd.Int64N(20), 0)
				r.put(p)
			} else {
				r.drop(p)
			}
			var alarms []time.Time
			for p, in := range in {
				if in != (p.bell > 0) {
					t.Fatalf("it knows that it is in: %v, want %v", p.bell > 0, in)
				}
				if in {
					alarms = append(alarms, p.alarm)
				}
			}
			if r.len() != len(alarms) {
				t.Fatalf("%d in it, want %d", r.len(), len(alarms))
			}
			if len(alarms) > 0 && !r.first().alarm.Equal(slices.MinFunc(alarms, time.Time.Compare)) {
				t.Fatalf("the first of %v is %v", alarms, r.first().alarm)
			}
		}
	}
}
