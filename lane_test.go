package heed

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// An origin can call the budget of every answer by another name.
func TestLanesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Registry
		defer r.Close()
		for i := range 3 * mostLanes {
			pm, err := r.Acquire(t.Context(), chaosTo("https://api.example.org", "", fmt.Sprintf("/%x/%x", i%16, i)))
			if err != nil {
				t.Fatal(err)
			}
			pm.Learn(Announcement{Bucket: fmt.Sprint("budget ", i), Policies: []Policy{{Name: "p", Quota: 10, Window: time.Minute}}})
			pm.Release()
			time.Sleep(time.Second)
		}
		for _, o := range r.all() {
			for _, p := range o.partitions {
				if n := len(p.lanes); n > mostLanes || n < mostLanes/2 {
					t.Errorf("%d lanes, want at most %d", n, mostLanes)
				}
			}
		}
	})
}
