package heed_test

import (
	"fmt"
	"net/http"
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
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int64
				var mu sync.Mutex
				accepted := int64(0)
				var longest time.Duration
				tr := quiet(t, baseFunc(func(r *http.Request) (*http.Response, error) {
					time.Sleep(50 * time.Millisecond)
					if r.Header.Get("Sick") == "" {
						return answer(http.StatusOK), nil
					}
					refusal := answer(c.status)
					if c.after != "" {
						refusal.Header.Set("Retry-After", c.after)
					}
					return refusal, nil
				}), heed.Limits{})
				began := time.Now()
				busy := asking(8, began.Add(settles+length), func(int) (*http.Response, error) {
					i := n.Add(1)
					req := request(fmt.Sprint(example, "/items/", i))
					if c.named {
						req = request(fmt.Sprint(example, "/items/", word(int(i))))
					}
					if i%c.every == 0 {
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
				t.Logf("%d accepted, the longest wait was %v", accepted, longest)
				if accepted < c.least || longest > 5*time.Minute {
					t.Errorf("%d accepted, want at least %d; the longest wait was %v", accepted, c.least, longest)
				}
			})
		})
	}
}
