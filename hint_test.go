package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
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

// Where accepted answers name the quota, a refusal that does not is of that one all the same.
func TestRefusalThatNamesNoQuotaIsOfTheOneThatOtherAnswersName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		defer r.Close()
		send := sender(t, r)
		send(200, "X-RateLimit-Limit", "20", "X-RateLimit-Remaining", "12", "X-RateLimit-Reset", "30")
		send(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30")
		if p := r.Snapshot()[0].Partitions[0].Policies[0]; p.Quota != 20 || p.Remaining != 0 {
			t.Errorf("%d left of %d, want none of 20", p.Remaining, p.Quota)
		}
		if d := r.Check(request(example)); d.Wait < 29*time.Second || d.Wait > 32*time.Second || d.Cause != heed.CausePolicy {
			t.Errorf("it waits for %v for a %v, want 30s for the policy", d.Wait, d.Cause)
		}
	})
}

// Of a quota of which nobody says how many are left, nor of what window it is, nothing is counted: the limit is learned as one that
// nobody names.
func TestQuotaOfWhichNothingElseIsToldHoldsNobody(t *testing.T) {
	for _, quota := range []int{10, 100} {
		synctest.Test(t, func(t *testing.T) {
			w := window{quota: quota, length: time.Duration(quota) * 100 * time.Millisecond}
			l := &limiter{way: 100 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				h.Set("X-RateLimit-Limit", strconv.Itoa(quota))
				return w.take(now)
			}}
			l.ask(t, 10*time.Minute, example)
			t.Logf("%d per %v: %d of 6000 accepted, %d refused", quota, w.length, l.accepted, l.refused)
			if l.accepted < 5000 || l.refused > 60 {
				t.Errorf("%d per %v: %d of 6000 accepted, %d refused", quota, w.length, l.accepted, l.refused)
			}
		})
	}
}
