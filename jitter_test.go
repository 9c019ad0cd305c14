package heed_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A jittery road to a limiter takes now long, now short, either way: 15 ms at least, and 25 ms
// in the mean.
type jittery struct {
	http.RoundTripper
	rng *rand.Rand
}

func (j jittery) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(j.way())
	resp, err := j.RoundTripper.RoundTrip(req)
	time.Sleep(j.way())
	return resp, err
}

func (j jittery) way() time.Duration {
	return 15*time.Millisecond + time.Duration(j.rng.ExpFloat64()*float64(10*time.Millisecond))
}

// fareFromAfar has a client that waits for each answer ask a limiter down a jittery road for a minute,
// several times, and wants so many accepted and no more than so many refused in the mean.
func fareFromAfar(t *testing.T, least, most int, made func() func(now time.Time, h http.Header) bool) {
	const times = 8
	accepted, refused := 0, 0
	for seed := range uint64(times) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(seed) * 137 * time.Millisecond) // of the clock
			accepts := made()
			l := &limiter{accepts: func(_ *http.Request, now time.Time, h http.Header) bool { return accepts(now, h) }}
			tr := quiet(t, jittery{l, rand.New(rand.NewPCG(seed, 5))}, heed.Limits{})
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				resp, err := tr.Client().Get("http://origin.test/")
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			}
			accepted, refused = accepted+l.accepted, refused+l.refused
		})
	}
	t.Logf("%d accepted, %d refused in the mean", accepted/times, refused/times)
	if accepted < times*least || refused > times*most {
		t.Errorf("%d accepted, %d refused in the mean; want at least %d and at most %d", accepted/times, refused/times, least, most)
	}
}

// Where neither a window nor a reset is named, a wait that is now enough, now too short for the
// way the requests took is not kept to: one that is always enough is. Nor is it taken for
// enough for the request that went much later, because the refusal had asked for that.
func TestAWaitThatIsOnlySometimesEnoughIsNotKeptTo(t *testing.T) {
	fareFromAfar(t, 450, 8, func() func(now time.Time, h http.Header) bool { // of 600
		w := &window{quota: 10, length: time.Second}
		return func(now time.Time, h http.Header) bool {
			ok := w.take(now)
			h.Set("X-RateLimit-Limit", strconv.Itoa(w.quota))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(max(w.quota-w.used, 0)))
			if !ok {
				h.Set("Retry-After", "1")
			}
			return ok
		}
	})
}

// A count that takes the window before into account, of which the end is named as an instant in thousandths
// of a second: what is left does not run empty for a client that goes one by one down a road on which
// answers take longer than that instant is uncertain. Upstash announces it so.
func TestCountersOfTwoWindowsAreUsedOneByOneDownAJitteryRoad(t *testing.T) {
	sideBySide(t)
	fareFromAfar(t, 470, 1, twoWindows) // of 600
}

// twoWindows is a limit of 10 a second by two counts.
func twoWindows() func(now time.Time, h http.Header) bool {
	const quota, window = 10, time.Second
	var began, blocked time.Time
	before, latest := 0, 0
	return func(now time.Time, h http.Header) bool {
		if start := now.Truncate(window); !start.Equal(began) {
			if before = latest; start.Sub(began) > window {
				before = 0
			}
			began, latest = start, 0
		}
		used := int(float64(before)*(1-now.Sub(began).Seconds()/window.Seconds())) + latest
		ok := used < quota && !now.Before(blocked)
		if ok {
			latest, used = latest+1, used+1
		} else {
			blocked = began.Add(window)
		}
		usualFields(h, quota, quota-used, int64(math.Ceil(float64(began.Add(window).UnixNano())/1e6)))
		return ok
	}
}
