package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// A refusal that names no quota says no more than Retry-After does, or nothing at all, whichever field it comes in. The limit is
// learned all the same.
func TestLimitWhoseRefusalsNameNoQuotaIsLearned(t *testing.T) {
	for name, say := range map[string]func(h http.Header, now, back time.Time){
		"X-RateLimit-Remaining": func(h http.Header, _, _ time.Time) { h.Set("X-RateLimit-Remaining", "0") },
		"X-RateLimit-Reset": func(h http.Header, _, back time.Time) {
			h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(math.Ceil(float64(back.UnixMilli())/1000)), 10))
		},
		"RateLimit": func(h http.Header, now, back time.Time) {
			h.Set("RateLimit", `"default";r=0;t=`+strconv.Itoa(int(math.Ceil(back.Sub(now).Seconds()))))
		},
	} {
		for _, quota := range []int{10, 50} {
			for _, way := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
				synctest.Test(t, func(t *testing.T) {
					w := window{quota: quota, length: time.Duration(quota) * 100 * time.Millisecond}
					l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
						ok := w.take(now)
						if !ok {
							say(h, now, w.end)
						}
						return ok
					}}
					l.ask(t, 10*time.Minute, example)
					t.Logf("%s, %d per %v, %v away: %d of 6000 accepted, %d refused", name, w.quota, w.length, way, l.accepted, l.refused)
					if l.accepted < 5000 || l.refused > 60 {
						t.Errorf("%s, %d per %v, %v away: %d of 6000 accepted, %d refused", name, w.quota, w.length, way, l.accepted, l.refused)
					}
				})
			}
		}
	}
}
