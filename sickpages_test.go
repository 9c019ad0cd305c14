package heed_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// Who asks for each page but once, of which many are refused for good, gets the others all the same: what is refused whenever it is tried
// again, though others of its like are accepted, is no limit's.
func TestPagesThatAreRefusedForGoodDoNotKeepTheOthersWaiting(t *testing.T) {
	manyRequests(t)
	const settles, length = time.Hour, time.Hour
	for name, c := range map[string]struct {
		status int
		after  string // named by each refusal; "": none
		every  int64  // so many pages one is refused
		named  bool   // pages have names, not numbers
		least  int64  // others accepted
	}{
		"each second, by 429":               {http.StatusTooManyRequests, "", 2, false, 500},
		"each second, by 503":               {http.StatusServiceUnavailable, "", 2, false, 500},
		"each third, by 429 that names 5 s": {http.StatusTooManyRequests, "5", 3, false, 200},
		"each second that has a name":       {http.StatusTooManyRequests, "", 2, true, 500},
	} {
		t.Run(name, func(t *testing.T) {
			const plays = 5
			var accepted []int64
			var longest []time.Duration
			for range plays {
				n, wait := pagesRefused(t, c.status, c.after, c.every, c.named, settles, length)
				accepted, longest = append(accepted, n), append(longest, wait)
			}
			slices.Sort(accepted)
			slices.Sort(longest)
			t.Logf("accepted %v, the longest waits were %v", accepted, longest)
			if accepted[plays/2] < c.least || longest[plays/2] > 5*time.Minute { // chance may have it take an hour
				t.Errorf("accepted %v, want at least %d mostly; the longest waits were %v", accepted, c.least, longest)
			}
		})
	}
}

// pagesRefused has 8 goroutines ask for each of many pages once, every so many of which are refused for good. It returns how many
// others were accepted in a time after another one, and the longest that one of them waited.
func pagesRefused(t *testing.T, status int, after string, every int64, named bool, settles, length time.Duration) (accepted int64, longest time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		var mu sync.Mutex
		tr := quiet(t, baseFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(50 * time.Millisecond)
			if r.Header.Get("Sick") == "" {
				return answer(http.StatusOK), nil
			}
			refusal := answer(status)
			if after != "" {
				refusal.Header.Set("Retry-After", after)
			}
			return refusal, nil
		}), heed.Limits{})
		began := time.Now()
		busy := asking(8, began.Add(settles+length), func(int) (*http.Response, error) {
			i := n.Add(1)
			req := request(fmt.Sprint(example, "/items/", i))
			if named {
				req = request(fmt.Sprint(example, "/items/", word(int(i))))
			}
			if i%every == 0 {
				req.Header.Set("Sick", "yes")
			}
			asked := time.Now()
			resp, err := tr.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusOK && asked.Sub(began) > settles {
				mu.Lock()
				accepted++
				longest = max(longest, time.Since(asked))
				mu.Unlock()
			}
			return resp, err
		})
		time.Sleep(settles + length)
		tr.Registry.Close()
		busy.Wait()
	})
	return accepted, longest
}
