package heed_test

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// A limiter is an origin on the loopback that decides by itself what it accepts.
type limiter struct {
	mu                sync.Mutex
	accepts           func(r *http.Request, now time.Time, h http.Header) bool
	way               time.Duration // there and, as long, back; on top of a little
	uneven            *rand.Rand    // nil: that is always as little
	status            int           // of a refusal; 0: 429
	accepted, refused int
}

func (l *limiter) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(l.little() + l.way)
	l.mu.Lock()
	now := time.Now()
	resp := answer(http.StatusOK, "Date", now.UTC().Format(http.TimeFormat))
	if l.accepts(r, now, resp.Header) {
		l.accepted++
	} else {
		l.refused++
		resp.StatusCode = cmp.Or(l.status, http.StatusTooManyRequests)
	}
	l.mu.Unlock()
	time.Sleep(l.little() + l.way)
	resp.Request = r
	return resp, nil
}

func (l *limiter) little() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uneven == nil {
		return 100 * time.Microsecond
	}
	return 50*time.Microsecond + time.Duration(l.uneven.Int64N(int64(200*time.Microsecond)))
}

// askedBy has so many goroutines ask for one URL, for a while.
func (l *limiter) askedBy(t *testing.T, goroutines int, length time.Duration) {
	tr := quiet(t, l, heed.Limits{})
	end := time.Now().Add(length)
	busy := asking(goroutines, end, func(int) (*http.Response, error) { return tr.Client().Get(example) })
	time.Sleep(time.Until(end))
	tr.Registry.Close()
	busy.Wait()
}

// sharedBy has so many processes, each with so many goroutines, ask for one URL, for a while.
func (l *limiter) sharedBy(t *testing.T, processes, goroutines int, length time.Duration) {
	var all sync.WaitGroup
	for range processes {
		all.Go(func() { l.askedBy(t, goroutines, length) })
	}
	all.Wait()
}

// ask has 16 goroutines ask for URLs, in turn, for a while.
func (l *limiter) ask(t *testing.T, length time.Duration, urls ...string) {
	tr := quiet(t, l, heed.Limits{})
	c := tr.Client()
	end := time.Now().Add(length)
	var busy sync.WaitGroup
	for range 16 {
		busy.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				resp, err := c.Get(urls[i%len(urls)])
				if err != nil {
					return // the registry was closed
				}
				resp.Body.Close()
			}
		})
	}
	time.Sleep(time.Until(end))
	tr.Registry.Close()
	busy.Wait()
}

// A window begins with the first request in it.
type window struct {
	quota  int
	length time.Duration
	used   int
	end    time.Time
}

func (w *window) take(now time.Time) bool {
	if !now.Before(w.end) {
		w.used, w.end = 0, now.Add(w.length)
	}
	w.used++
	return w.used <= w.quota
}

// turnByClock has the window begin anew where one is over that goes by the clock.
func (w *window) turnByClock(now time.Time) {
	if !now.Before(w.end) {
		w.used, w.end = 0, now.Truncate(w.length).Add(w.length)
	}
}

// announce says it as flask-limiter does.
func (w *window) announce(h http.Header) {
	h.Set("X-Ratelimit-Limit", strconv.Itoa(w.quota))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(max(w.quota-w.used, 0)))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(1+w.end.Unix(), 10))
}

// showsOne keeps to two limits, and announces the second where that refuses, else
// the first.
func showsOne(first, second *window) *limiter {
	return &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
		one, other := first.take(now), second.take(now)
		if !other {
			second.announce(h)
		} else {
			first.announce(h)
		}
		return one && other
	}}
}

// Several limits of which an answer shows but one, the first or the one that
// refuses, are not one whose quota changes all the time.
func TestLimitsWithoutNamesAreToldApart(t *testing.T) {
	sideBySide(t)
	for phase := range 10 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*100*time.Millisecond + 37*time.Millisecond)
			long, short := window{quota: 50, length: 5 * time.Second}, window{quota: 15, length: time.Second}
			l := showsOne(&long, &short)
			l.ask(t, 30*time.Second, "http://origin.test/")
			if l.refused > 16 { // what was in flight, once
				t.Errorf("phase %d: %d refused", phase, l.refused)
			}
			if l.accepted < 220 {
				t.Errorf("phase %d: %d accepted of 300", phase, l.accepted)
			}
		})
	}
}

// Two limiters behind one another may each add lines of their own to the same fields, which
// a proxy may join. Both limits hold then: nothing goes before the instant that the inner one
// named, and no less goes for it.
func TestLimitersThatAddLinesOfTheirOwnAreBothKeptTo(t *testing.T) {
	sideBySide(t)
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} {
		for _, joined := range []bool{false, true} {
			for phase := range 10 {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Duration(phase)*100*time.Millisecond + 37*time.Millisecond)
					outer, inner := window{quota: 10, length: time.Second}, window{quota: 30, length: time.Minute}
					add := func(w *window, h http.Header) {
						own := http.Header{}
						w.announce(own)
						for name, values := range own {
							name = strings.Replace(name, "X-Ratelimit-", prefix, 1)
							if h[name] = append(h[name], values...); joined {
								h.Set(name, strings.Join(h[name], ", "))
							}
						}
					}
					l := limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
						ok := outer.take(now)
						add(&outer, h)
						if ok {
							ok = inner.take(now)
							add(&inner, h)
						}
						return ok
					}}
					l.ask(t, 2*time.Minute, "http://origin.test/")
					if l.refused > 2 || l.accepted < 58 || l.accepted > 60 {
						t.Errorf("%s, joined %v, phase %d: %d accepted of 60, %d refused", prefix, joined, phase, l.accepted, l.refused)
					}
				})
			}
		}
	}
}

// The longer of two limits, where the shorter one is what accepted answers show: its
// window is as long as it takes to use up all of it, and then to wait for its end.
func TestLongerLimitThatOnlyRefusalsShowIsKeptTo(t *testing.T) {
	manyRequests(t)
	for phase := range 10 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*100*time.Millisecond + 37*time.Millisecond)
			short, long := window{quota: 15, length: time.Second}, window{quota: 50, length: 5 * time.Second}
			l := showsOne(&short, &long)
			l.ask(t, 2*time.Minute, "http://origin.test/")
			t.Logf("phase %d: %d accepted, %d refused", phase, l.accepted, l.refused)
			if l.accepted < 980 || l.refused > 2 {
				t.Errorf("phase %d: %d accepted of 1200, %d refused", phase, l.accepted, l.refused)
			}
		})
	}
}

// Limits that are told of one at a time, by fields of an early draft without a list, hold all
// routes alike, whichever of them was told of where.
func TestLimitsInNoListHoldAllRoutes(t *testing.T) {
	sideBySide(t)
	for phase := range 10 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*100*time.Millisecond + 37*time.Millisecond)
			long, short := window{quota: 50, length: 5 * time.Second}, window{quota: 15, length: time.Second}
			l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				one, other := long.take(now), short.take(now)
				w := &long
				if !other {
					w = &short
				}
				h.Set("RateLimit-Limit", strconv.Itoa(w.quota))
				h.Set("RateLimit-Remaining", strconv.Itoa(max(w.quota-w.used, 0)))
				h.Set("RateLimit-Reset", strconv.Itoa(1+int(w.end.Sub(now)/time.Second)))
				return one && other
			}}
			l.ask(t, 30*time.Second, "http://origin.test/a", "http://origin.test/b", "http://origin.test/c")
			t.Logf("phase %d: %d accepted, %d refused", phase, l.accepted, l.refused)
			if l.refused > 4 || l.accepted < 270 {
				t.Errorf("phase %d: %d accepted of 300, %d refused", phase, l.accepted, l.refused)
			}
		})
	}
}

// Limits of their own for two routes are not two limits of each.
func TestLimitOfAnotherRouteIsNotToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many, few := window{quota: 100, length: 5 * time.Second}, window{quota: 5, length: 5 * time.Second}
		l := &limiter{accepts: func(r *http.Request, now time.Time, h http.Header) bool {
			w := &many
			if r.URL.Path == "/few" {
				w = &few
			}
			defer w.announce(h)
			return w.take(now)
		}}
		l.ask(t, 30*time.Second, "http://origin.test/many", "http://origin.test/few")
		if l.accepted < 50 {
			t.Errorf("%d accepted, %d refused", l.accepted, l.refused)
		}
	})
}

// The three fields of the early drafts state the tightest of several quotas, now one and
// now another, which other fields state by their names. Kong announces them so.
func TestTightestOfSeveralQuotasIsNotTakenForAnother(t *testing.T) {
	manyRequests(t)
	fare(t, 130*time.Second, 860, 2, func() func(now time.Time, h http.Header) bool { // of 900
		byClock := []*window{{quota: 10, length: time.Second}, {quota: 400, length: time.Minute}}
		names := []string{"Second", "Minute"}
		return func(now time.Time, h http.Header) bool {
			ok, tightest := true, byClock[0]
			for i, w := range byClock {
				w.turnByClock(now)
				ok = w.take(now) && ok
				left := max(w.quota-w.used, 0)
				if left < max(tightest.quota-tightest.used, 0) {
					tightest = w
				}
				h.Set("X-RateLimit-Limit-"+names[i], strconv.Itoa(w.quota))
				h.Set("X-RateLimit-Remaining-"+names[i], strconv.Itoa(left))
			}
			h.Set("RateLimit-Limit", strconv.Itoa(tightest.quota))
			h.Set("RateLimit-Remaining", strconv.Itoa(max(tightest.quota-tightest.used, 0)))
			h.Set("RateLimit-Reset", strconv.FormatInt(tightest.end.Unix()-now.Unix(), 10))
			return ok
		}
	})
}

// The first refusal tells how long the second limit's window is, where all that was
// accepted before is what it lets through.
func TestWindowThatRefusalsTellOfIsKnownFromTheFirstOneOn(t *testing.T) {
	for phase := range 10 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*100*time.Millisecond + 37*time.Millisecond)
			long := &window{quota: 50, length: 5 * time.Second}
			l := showsOne(&window{quota: 15, length: time.Second}, long)
			accepts := l.accepts
			l.accepts = func(r *http.Request, now time.Time, h http.Header) bool {
				ok := accepts(r, now, h)
				if !ok {
					h.Set("Retry-After", strconv.Itoa(int(time.Unix(1+long.end.Unix(), 0).Sub(now)/time.Second)))
				}
				return ok
			}
			l.ask(t, 20*time.Second+500*time.Millisecond, site) // when the fourth window is over: refusals round up what is left of the first
			if l.accepted < 198 || l.refused > 2 {
				t.Errorf("phase %d: %d accepted of 200, %d refused", phase, l.accepted, l.refused)
			}
		})
	}
}

// Of two limits at once the tightest alone is announced, now one and now the other, without a
// name. The window of each is its own: one by the clock, in whole seconds, is as long as its resets
// say, and what is left of the other holds all the same.
func TestLimitsOfWhichTheTightestIsToldAreBothUsedUp(t *testing.T) {
	manyRequests(t)
	for _, few := range []int64{5, 10} {
		for _, dialect := range []heedtest.Dialect{heedtest.XRateLimit, heedtest.XRateLimitEpoch} {
			for _, goroutines := range []int{1, 16} {
				for phase := range 4 {
					const windows, quota = 6, 100
					tally, _ := load{heedtest.Config{
						Algorithm: heedtest.FixedWindowByClock, Phase: time.Duration(phase) * 15100 * time.Millisecond, Dialect: dialect,
						Policies: []heedtest.Policy{{Quota: quota, Window: time.Minute}, {Quota: few, Window: time.Second}},
						Latency:  heedtest.RoundTrip(5 * time.Millisecond),
					}, goroutines, windows, nil}.play(t)
					if least := int64(windows * quota * 95 / 100); tally.Accepted < least || tally.Refused > 2 || tally.EarlyStanding > 0 {
						t.Errorf("%d per second, %s, n=%d, phase %d: %d accepted, want at least %d; %d refused, %d early",
							few, dialect, goroutines, phase, tally.Accepted, least, tally.Refused, tally.EarlyStanding)
					}
				}
			}
		}
	}
}

// So it is where there are three of them, and a client asks for its routes in turn.
func TestLimitsOfWhichTheTightestIsToldHoldAllRoutes(t *testing.T) {
	sideBySide(t)
	byClock := func(ws ...*window) *limiter {
		return &limiter{way: 10 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok, tightest := true, ws[0]
			for _, w := range ws {
				w.turnByClock(now)
				ok = ok && w.used < w.quota
			}
			for _, w := range ws {
				if ok {
					w.used++
				}
				if w.quota-w.used < tightest.quota-tightest.used {
					tightest = w
				}
			}
			h.Set("X-RateLimit-Limit", strconv.Itoa(tightest.quota))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(tightest.quota-tightest.used))
			h.Set("X-RateLimit-Reset", strconv.Itoa(int((tightest.end.Sub(now)+time.Second-1)/time.Second)))
			return ok
		}}
	}
	for phase := range 4 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*13100*time.Millisecond + 37*time.Millisecond)
			l := byClock(&window{quota: 5, length: time.Second}, &window{quota: 60, length: time.Minute}, &window{quota: 500, length: 10 * time.Minute})
			l.ask(t, 10*time.Minute, "http://origin.test/a", "http://origin.test/b", "http://origin.test/c")
			t.Logf("phase %d: %d accepted, %d refused", phase, l.accepted, l.refused)
			if l.accepted < 475 || l.refused > 2 {
				t.Errorf("phase %d: %d accepted of 500, %d refused", phase, l.accepted, l.refused)
			}
		})
	}
}

// A limit that is announced in turn with others, and then is gone, holds nothing back for good.
func TestLimitToldInTurnThatIsLiftedIsForgotten(t *testing.T) {
	sideBySide(t)
	long := heedtest.Policy{Quota: 600, Window: time.Minute}
	tally, _ := load{heedtest.Config{
		Algorithm: heedtest.FixedWindowByClock, Dialect: heedtest.XRateLimit,
		Policies: []heedtest.Policy{long, {Quota: 5, Window: time.Second}}, Latency: heedtest.RoundTrip(5 * time.Millisecond),
	}, 1, 10, func(o *heedtest.Origin, _ *heed.Registry) {
		time.Sleep(5 * time.Minute)
		o.SetPolicies(long)
	}}.play(t)
	if tally.Accepted < 4000 || tally.Refused > 2 { // of 1500 and 3000
		t.Errorf("%d accepted of 4500, %d refused", tally.Accepted, tally.Refused)
	}
}

// A limit that only refusals tell of, and whose end nobody names, is over once a request that it counts is accepted, whatever
// the answer speaks of: how long it was waited for is not too short then, and what is refused later begins another wait.
func TestLimitThatOnlyRefusalsTellOfWithoutAnEndIsWaitedForAsLongAsItTakes(t *testing.T) {
	sideBySide(t)
	for phase := range 4 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(phase)*250*time.Millisecond + 37*time.Millisecond)
			outer, inner := window{quota: 10, length: time.Second}, window{quota: 100, length: time.Minute}
			l := limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
				w, ok := &outer, outer.take(now)
				if ok {
					w, ok = &inner, inner.take(now)
				}
				h.Set("X-Ratelimit-Limit", strconv.Itoa(w.quota))
				h.Set("X-Ratelimit-Remaining", strconv.Itoa(max(w.quota-w.used, 0)))
				return ok
			}}
			l.ask(t, 10*time.Minute, example)
			t.Logf("phase %d: %d accepted, %d refused", phase, l.accepted, l.refused)
			if l.accepted < 880 || l.refused > 40 {
				t.Errorf("phase %d: %d accepted of 1000, %d refused", phase, l.accepted, l.refused)
			}
		})
	}
}

// A limit of which only refusals told, and that is no more, holds nobody for good: now and then one goes all the same.
func TestLimitThatOnlyRefusalsToldOfIsFoundToBeNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, lately := window{quota: 20, length: 10 * time.Second}, 0
		began := time.Now()
		l := limiter{way: 25 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			switch at := now.Sub(began); {
			case at > 6*time.Minute:
				lately++
				return true
			case at > 2*time.Minute || limit.take(now):
				return true
			}
			h.Set("X-Ratelimit-Limit", "20")
			h.Set("X-Ratelimit-Remaining", "0")
			return false
		}}
		l.ask(t, 7*time.Minute, example)
		if lately < 500 {
			t.Errorf("%d accepted in the last minute", lately)
		}
	})
}
