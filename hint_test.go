package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A refusal that names no quota says no more than Retry-After does, or nothing at all, whichever field it comes in. The limit is
// learned all the same.
func TestLimitWhoseRefusalsNameNoQuotaIsLearned(t *testing.T) {
	epoch := func(h http.Header, _, back time.Time) {
		h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(math.Ceil(float64(back.UnixMilli())/1000)), 10))
	}
	for name, say := range map[string]func(h http.Header, now, back time.Time){
		"X-RateLimit-Remaining":                    func(h http.Header, _, _ time.Time) { h.Set("X-RateLimit-Remaining", "0") },
		"X-RateLimit-Reset":                        epoch,
		"X-RateLimit-Reset with all other answers": epoch,
		"RateLimit": func(h http.Header, now, back time.Time) {
			h.Set("RateLimit", `"default";r=0;t=`+strconv.Itoa(int(math.Ceil(back.Sub(now).Seconds()))))
		},
	} {
		for _, quota := range []int{10, 50} {
			for _, way := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
				if testing.Short() && (quota > 10 || way > time.Millisecond) { // the race detector would take a minute
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					w := window{quota: quota, length: time.Duration(quota) * 100 * time.Millisecond}
					l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
						ok := w.take(now)
						if !ok || strings.HasSuffix(name, "answers") {
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

// Where accepted answers name the quota, a refusal that does not is of that one all the same; and so is one of a policy that
// names a partition key beside a limit that names none, or the other way round.
func TestRefusalThatNamesNoQuotaIsOfTheOneThatOtherAnswersName(t *testing.T) {
	for _, c := range []struct{ accepted, refused []string }{
		{
			[]string{"X-RateLimit-Limit", "20", "X-RateLimit-Remaining", "12", "X-RateLimit-Reset", "30"},
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"},
		},
		{
			[]string{"RateLimit-Policy", `"p";q=20;w=30;pk=:MTJj:`, "RateLimit", `"p";r=12;t=30`},
			[]string{"RateLimit-Policy", `"p";q=20;w=30;pk=:MTJj:`, "RateLimit", `"p";r=0;t=30`},
		},
		{
			nil,
			[]string{"RateLimit-Policy", `"p";q=20;w=30`, "RateLimit", `"p";r=0;t=30;pk=:MTJj:`},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{})
			defer r.Close()
			send := sender(t, r)
			send(200, c.accepted...)
			send(429, c.refused...)
			if p := r.Snapshot()[0].Partitions[0].Policies[0]; p.Quota != 20 || p.Remaining != 0 {
				t.Errorf("%q: %d left of %d, want none of 20", c.refused, p.Remaining, p.Quota)
			}
			if d := r.Check(request(example)); d.Wait < 29*time.Second || d.Wait > 32*time.Second || d.Cause != heed.CausePolicy {
				t.Errorf("%q: it waits for %v for a %v, want 30s for the policy", c.refused, d.Wait, d.Cause)
			}
		})
	}
}

// A bucket of which refusals alone tell that nothing is left, and when the next unit is back, gives back nearly all of a small quota in the
// second or two that these are rounded to and doubted by. That it is never all shows that it is no window.
func TestSmallBucketIsNoWindowThoughNearlyAllIsBackWhenRefusalsSay(t *testing.T) {
	manyRequests(t)
	for _, p := range []heedtest.Policy{{Quota: 10, Window: 3 * time.Second}, {Quota: 20, Window: 2 * time.Second}, {Quota: 30, Window: 3 * time.Second}} {
		for _, trip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
			const windows = 200
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{p}, Dialect: heedtest.XRateLimit, OnRefusalsOnly: true, Latency: heedtest.RoundTrip(trip),
			}, 16, windows, nil}.play(t)
			t.Logf("%d per %v, %v: %d of %d accepted, %d refused", p.Quota, p.Window, trip, tally.Accepted, windows*p.Quota, tally.Refused)
			if tally.Accepted < windows*p.Quota*95/100 || tally.Refused > 80 {
				t.Errorf("%d per %v, %v: %d of %d accepted, %d refused", p.Quota, p.Window, trip, tally.Accepted, windows*p.Quota, tally.Refused)
			}
		}
	}
}

// Nor is a longer window taken for a bucket because others use a little of it: it is refused once in each.
func TestWindowThatOnlyRefusalsTellOfStaysOneWhereOthersUseALittle(t *testing.T) {
	manyRequests(t)
	for _, algorithm := range []heedtest.Algorithm{heedtest.FixedWindow, heedtest.FixedWindowByClock} {
		const windows, quota, others = 60, 100, 5
		window := 10 * time.Second
		tally, state := load{heedtest.Config{
			Algorithm: algorithm, Policies: []heedtest.Policy{{Quota: quota, Window: window}}, Phase: 370 * time.Millisecond, Dialect: heedtest.XRateLimit, OnRefusalsOnly: true,
			Latency: heedtest.RoundTrip(20 * time.Millisecond),
		}, 16, windows, func(o *heedtest.Origin, _ *heed.Registry) {
			go func() {
				for range windows * others {
					time.Sleep(window / others)
					o.Take(1)
				}
			}()
		}}.play(t)
		t.Logf("%s: %d of %d accepted, %d refused", algorithm, tally.Accepted, windows*(quota-others), tally.Refused)
		if tally.Accepted < windows*(quota-others)*95/100 || tally.Refused > 2*windows {
			t.Errorf("%s: %d of %d accepted, %d refused", algorithm, tally.Accepted, windows*(quota-others), tally.Refused)
		}
		for _, p := range state.Partitions[0].Policies {
			if p.Source == heed.SourceLearned {
				t.Errorf("%s: %d per %v is learned", algorithm, p.Quota, p.Window)
			}
		}
	}
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

// Accepted answers may name the quota and nothing else, and refusals what is left of it, and perhaps when there is more. Those of a bucket
// name when the next unit is back: that is no window.
func TestQuotaOfWhichRefusalsAloneSayHowMuchIsLeftIsUsedUp(t *testing.T) {
	for _, resets := range []bool{false, true} {
		for _, c := range []struct {
			quota  int
			window time.Duration
			bucket bool
			most   int // refused at most
		}{
			{50, 5 * time.Second, false, 70},
			{100, time.Minute, false, 70},
			{50, 5 * time.Second, true, 130},
			{100, time.Minute, true, 130},
			{1000, time.Minute, true, 130},
		} {
			if !resets && c.bucket { // see TestBucketThatOnlyRefusalsTellOfIsUsedUp
				continue
			}
			if testing.Short() && time.Duration(c.quota)*time.Minute > 100*c.window { // the race detector would take half a minute
				continue
			}
			for _, way := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
				synctest.Test(t, func(t *testing.T) {
					w, b := window{quota: c.quota, length: c.window}, bucketOf(c.quota, c.window)
					l := &limiter{way: way, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
						h.Set("X-RateLimit-Limit", strconv.Itoa(c.quota))
						ok, back := false, time.Duration(0)
						if c.bucket {
							ok = b.take(now)
							back = time.Duration((1 - b.left) / b.rate * 1e9)
						} else {
							ok = w.take(now)
							back = w.end.Sub(now)
						}
						if !ok {
							h.Set("X-RateLimit-Remaining", "0")
						}
						if !ok && resets {
							h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(back.Seconds()))))
						}
						return ok
					}}
					l.ask(t, 10*time.Minute, example)
					could := int(600 / c.window.Seconds() * float64(c.quota))
					t.Logf("%+v, resets %v, %v away: %d of %d accepted, %d refused", c, resets, way, l.accepted, could, l.refused)
					if l.accepted < could*85/100 || l.refused > c.most {
						t.Errorf("%+v, resets %v, %v away: %d of %d accepted, %d refused", c, resets, way, l.accepted, could, l.refused)
					}
				})
			}
		}
	}
}

// What is taken for hints, since only refusals told of it, is a quota like any other once accepted answers tell what is left of it.
func TestQuotaThatAcceptedAnswersTellOfAtLastIsKeptTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, later := time.Now(), 0
		b, w := bucketOf(100, time.Minute), window{quota: 100, length: time.Minute}
		l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			h.Set("X-RateLimit-Limit", "100")
			if now.Sub(began) < 5*time.Minute {
				ok := b.take(now)
				if !ok {
					h.Set("X-RateLimit-Remaining", "0")
					h.Set("X-RateLimit-Reset", "1")
				}
				return ok
			}
			ok := w.take(now)
			usualFields(h, w.quota, max(w.quota-w.used, 0), int64(math.Ceil(w.end.Sub(now).Seconds())))
			if !ok {
				later++
			}
			return ok
		}}
		l.ask(t, 15*time.Minute, example)
		t.Logf("%d accepted, %d refused, %d of them later", l.accepted, l.refused, later)
		if l.accepted < 1400 || later > 2 {
			t.Errorf("%d accepted, %d refused, %d of them later", l.accepted, l.refused, later)
		}
	})
}
