package heed_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// What was on its way when the first word of a policy came may not have been counted in it. That less is left
// then is no sign of others, and all of the windows to come is used.
func TestWindowsThatAreToldOfLateAreUsedUp(t *testing.T) {
	manyRequests(t)
	const windows, quota, phases = 20, 50, 16
	for _, c := range []struct {
		name    string
		latency heedtest.Latency
		least   int64
	}{ // there is more than a quota in twenty lengths of a window, for they begin and end within one
		{"5 ms", heedtest.RoundTrip(5 * time.Millisecond), 16080},
		{"500 ms", heedtest.RoundTrip(500 * time.Millisecond), 15550},
		{"drawn", heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, 2), 15950},
	} {
		var accepted int64
		for phase := range time.Duration(phases) {
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.FixedWindowByClock, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}},
				Below: 0.2, Phase: phase * 312 * time.Millisecond, Latency: c.latency,
			}, 16, windows, nil}.play(t)
			accepted += tally.Accepted
		}
		t.Logf("%s: %d accepted of %d", c.name, accepted, phases*windows*quota)
		if accepted < c.least {
			t.Errorf("%s: %d accepted of %d, want %d", c.name, accepted, phases*windows*quota, c.least)
		}
	}
}

// Where only answers that say that little is left announce a policy, one that says nothing says that more is left. So
// what a bucket holds at first is used, too.
func TestBucketsThatAreToldOfLateAreUsedUp(t *testing.T) {
	manyRequests(t)
	const windows, quota, runs = 20, 50, 8
	for name, latency := range map[string]heedtest.Latency{
		"5 ms":  heedtest.RoundTrip(5 * time.Millisecond),
		"drawn": heedtest.HeavyTail(30*time.Millisecond, 1.7, 5*time.Second, 2),
	} {
		var accepted, refused int64
		for range runs { // which of the answers comes first is for chance to decide
			tally, _ := load{heedtest.Config{
				Algorithm: heedtest.TokenBucket, Policies: []heedtest.Policy{{Quota: quota, Window: 5 * time.Second}}, Below: 0.2, Latency: latency,
			}, 16, windows, nil}.play(t)
			accepted, refused = accepted+tally.Accepted, refused+tally.Refused
		}
		t.Logf("%s: %d accepted of %d, %d refused", name, accepted, runs*(windows+1)*quota, refused)
		if accepted < runs*(windows+1)*quota*966/1000 || refused > 3*runs { // 0.949 to 0.962 were, where it said nothing
			t.Errorf("%s: %d accepted of %d, %d refused", name, accepted, runs*(windows+1)*quota, refused)
		}
	}
}

// Another route may be silent whatever is left, and so may one that has not always spoken, or where others used what
// went before it did.
func TestSilenceTellsOnlyWhereAnAnswerWouldHaveSpoken(t *testing.T) {
	const policy = `"p";q=50;w=60`
	for _, c := range []struct {
		name   string
		before int    // answers before the first that says what is left
		said   []int  // from there on; -1: nothing
		path   string // of the request whose answer is silent then …
		status int    // … and this one …
		left   int64  // … and what is left
	}{
		{"of the route that spoke", 40, []int{9, 8, 7, 6, 5}, "/a", 200, 10},
		{"of one from nearer by", 40, []int{9, 8, 7, 6, 5}, "/a", 304, 4},
		{"of another route", 40, []int{9, 8, 7, 6, 5}, "/b", 200, 4},
		{"of one that was silent before", 40, []int{9, 8, -1, 6, 5}, "/a", 200, 4},
		{"where others used it", 20, []int{9, 8, 7, 6, 5}, "/a", 200, 4},
		{"of one that also speaks where much is left", 10, []int{39, 38, 37, 36, 35}, "/a", 200, 34},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, heed.Config{Default: unsmoothed})
			defer r.Close()
			send := func(path string, left, status int) {
				pm := acquire(t, r, request(example+path))
				time.Sleep(time.Millisecond)
				var fields []string
				if left >= 0 {
					fields = []string{"RateLimit-Policy", policy, "RateLimit", `"p";r=` + strconv.Itoa(left) + ";t=60"}
				}
				pm.Observe(answer(status, fields...))
				pm.Release()
			}
			for range c.before {
				send("/a", -1, 200)
			}
			for _, left := range c.said {
				send("/a", left, 200)
			}
			send(c.path, -1, c.status)
			if got := r.Check(request(example + "/a")).Remaining; got != c.left {
				t.Errorf("silence %s: %d are left, want %d", c.name, got, c.left)
			}
		})
	}
}
