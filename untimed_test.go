package heed_test

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// Who share a window of which accepted answers say what is left, but not until when, find out how long it is: from refusals that say when
// there is more, or from when all was back. They spread what is left over it then, and few are refused at its end.
func TestProcessesFindOutHowLongAWindowIsThatAcceptedAnswersDoNotTime(t *testing.T) {
	manyRequests(t)
	for _, says := range []struct {
		name    string
		refused func(h http.Header, wait time.Duration) // what a refusal adds
		most    int                                     // refused in all
	}{
		{"when in seconds", func(h http.Header, wait time.Duration) {
			h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		}, 450},
		{"Retry-After", func(h http.Header, wait time.Duration) {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		}, 650},
		{"nothing", func(http.Header, time.Duration) {}, 1050},
	} {
		const quota, length, lasts = 50, 5 * time.Second, 3 * time.Minute
		accepted, refused, could := 0, 0, 0
		for _, processes := range []int{2, 4} {
			for _, byTheClock := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(1850 * time.Millisecond)
					w := window{quota: quota, length: length}
					l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
						if byTheClock {
							w.turnByClock(now)
						}
						ok := w.take(now)
						countsOf(h, quota, float64(max(quota-w.used, 0)))
						if !ok {
							says.refused(h, w.end.Sub(now))
						}
						return ok
					}}
					l.sharedBy(t, processes, 8, lasts)
					t.Logf("%d processes, refusals say %s, by the clock %v: %d accepted, %d refused", processes, says.name, byTheClock, l.accepted, l.refused)
					accepted, refused, could = accepted+l.accepted, refused+l.refused, could+quota*int(lasts/length)
				})
			}
		}
		if accepted < could*85/100 || refused > says.most {
			t.Errorf("refusals say %s: %d of %d accepted, %d refused; want at most %d", says.name, accepted, could, refused, says.most)
		}
	}
}

// A refusal that names a day, or two hours, as a penalty does, is waited for, and makes no window of that.
func TestOnePenaltyIsNoWindow(t *testing.T) {
	manyRequests(t)
	synctest.Test(t, func(t *testing.T) {
		const quota, length, lasts = 60, time.Minute, 3 * time.Hour
		began, last, refused := time.Now(), 0, 0
		w := window{quota: quota, length: length}
		l := &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
			ok := w.take(now)
			countsOf(h, quota, float64(max(quota-w.used, 0)))
			if ok {
				if now.Sub(began) > 2*time.Hour {
					last++
				}
				return true
			}
			reset := w.end.Sub(now)
			if refused++; refused == 1 {
				reset = 2 * time.Hour
			}
			h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(reset.Seconds()))))
			return false
		}}
		l.ask(t, lasts, example)
		t.Logf("%d of 3600 accepted in the last hour, %d refused in all", last, l.refused)
		if last < 3200 {
			t.Errorf("%d of 3600 accepted in the last hour, %d refused in all", last, l.refused)
		}
	})
}

// Who sends a few, and comes back when a hundred windows are over, does not take all of that time for one.
func TestTimeInWhichNobodyAskedIsNoWindow(t *testing.T) {
	manyRequests(t)
	for _, says := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const quota, length, idle, end = 50, 5 * time.Second, 10 * time.Minute, 13 * time.Minute
			began := time.Now()
			w := window{quota: quota, length: length}
			var mu sync.Mutex
			var got [2]int // in the last two minutes, of the other and of the one that comes back
			of := func(who int) *limiter {
				return &limiter{way: 50 * time.Millisecond, accepts: func(_ *http.Request, now time.Time, h http.Header) bool {
					mu.Lock()
					defer mu.Unlock()
					ok := w.take(now)
					countsOf(h, quota, float64(max(quota-w.used, 0)))
					switch {
					case !ok && says:
						h.Set("X-RateLimit-Reset", strconv.Itoa(int(math.Ceil(w.end.Sub(now).Seconds()))))
					case ok && now.Sub(began) > end-2*time.Minute:
						got[who]++
					}
					return ok
				}}
			}
			var other sync.WaitGroup
			other.Go(func() {
				time.Sleep(idle - 20*time.Second)
				of(0).askedBy(t, 8, end-idle+20*time.Second)
			})
			tr := quiet(t, of(1), heed.Limits{})
			ask := func(int) (*http.Response, error) { return tr.Client().Get(example) }
			for range 10 {
				if resp, err := ask(0); err == nil {
					resp.Body.Close()
				}
			}
			time.Sleep(idle)
			busy := asking(8, began.Add(end), ask)
			other.Wait()
			tr.Registry.Close()
			busy.Wait()
			t.Logf("refusals say when: %v: the other got %d in the last two minutes, and it got %d", says, got[0], got[1])
			if got[0]+got[1] < 600 || says && got[1] < 60 { // else who asks first may have it all
				t.Errorf("refusals say when: %v: the other got %d in the last two minutes, and it got %d", says, got[0], got[1])
			}
		})
	}
}
