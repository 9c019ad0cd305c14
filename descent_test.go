package heed_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// While many are refused by chance the pace falls far. Once that is over as many are accepted in a row as hardly ever are by chance, and
// what was asked for before goes again, without hours of a slow rise.
func TestPaceIsBackSoonAfterManyWereRefusedForAWhile(t *testing.T) {
	manyRequests(t)
	const well, ill, most = 10 * time.Minute, 40 * time.Minute, 45 * time.Minute
	for name, c := range map[string]struct {
		status int
		after  string // named by each refusal; "": none
	}{
		"429 that names 5 s": {http.StatusTooManyRequests, "5"},
		"503":                {http.StatusServiceUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				synctest.Test(t, func(t *testing.T) {
					began, chance := time.Now(), rand.New(rand.NewPCG(seed, 7))
					var mu sync.Mutex
					var accepted int64
					tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) {
						mu.Lock()
						now := time.Since(began)
						refuses := now > well && now < well+ill && chance.Float64() < 0.6
						if !refuses {
							accepted++
						}
						mu.Unlock()
						time.Sleep(50 * time.Millisecond)
						if !refuses {
							return answer(http.StatusOK), nil
						}
						refusal := answer(c.status)
						if c.after != "" {
							refusal.Header.Set("Retry-After", c.after)
						}
						return refusal, nil
					}), heed.Limits{})
					var busy sync.WaitGroup
					back := false
					for asked, before := int64(0), int64(0); time.Since(began) < well+ill+most && !back; asked++ {
						busy.Go(func() {
							if resp, err := tr.RoundTrip(request(example)); err == nil {
								resp.Body.Close()
							}
						})
						time.Sleep(time.Second / 2)
						if asked%120 == 0 { // each minute
							mu.Lock()
							back, before = time.Since(began) > well+ill+time.Minute && accepted-before > 110, accepted
							mu.Unlock()
						}
					}
					t.Logf("it took %v", time.Since(began)-well-ill)
					if !back {
						t.Errorf("%v after that was over hardly anything goes", time.Since(began)-well-ill)
					}
					tr.Registry.Close()
					busy.Wait()
				})
			}
		})
	}
}
