package heed_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed"
)

// crowds are how many wait.
var crowds = []int{10, 1000, 10_000}

// credential is a request of one of many credentials.
func credential(i int) *http.Request {
	return request(example, "X-Api-Key", strconv.Itoa(i))
}

// await returns once so many wait at the origin.
func await(r *heed.Registry, waiting int) {
	for r.Snapshot()[0].Waiting < waiting {
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkManyCredentialsTakeTurns is what a request costs where each of many credentials has one waiting for
// what all share, and the next as soon as that is answered.
func BenchmarkManyCredentialsTakeTurns(b *testing.B) {
	for name, limits := range map[string]heed.Limits{
		"MaxConcurrent": {MaxConcurrent: 4},
		"MinPause":      {MinPause: 1},
	} {
		for _, deadline := range []bool{false, true} {
			for _, n := range crowds {
				b.Run(fmt.Sprintf("%s/deadline=%v/%d", name, deadline, n), func(b *testing.B) {
					r := newRegistry(b, heed.Config{Default: limits})
					defer r.Close()
					for i := range n {
						roundTrip(b, r, credential(i), answer(200))
					}
					ctx := b.Context()
					if deadline {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, 100*time.Hour)
						defer cancel()
					}
					r.Pause(example, time.Hour)
					left := make(chan struct{}, b.N)
					for range b.N {
						left <- struct{}{}
					}
					close(left)
					var all sync.WaitGroup
					for i := range n {
						all.Go(func() {
							req, resp := credential(i), answer(200)
							for range left {
								pm, err := r.Acquire(ctx, req)
								if err != nil {
									b.Error(err)
									return
								}
								pm.Observe(resp)
								pm.Release()
							}
						})
					}
					await(r, min(n, b.N))
					b.ResetTimer()
					r.Pause(example, 0)
					all.Wait()
				})
			}
		}
	}
}

// BenchmarkJoinALongQueue is what it costs each of many of all priorities, each with a deadline, to get in line:
// every one that goes before others puts them off.
func BenchmarkJoinALongQueue(b *testing.B) {
	for _, costs := range []bool{false, true} {
		for _, n := range crowds {
			b.Run(fmt.Sprintf("costs=%v/%d", costs, n), func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					r := newRegistry(b, heed.Config{Default: quota(1_000_000, time.Hour)})
					roundTrip(b, r, request(example), answer(200))
					r.Pause(example, time.Hour)
					ctx, cancel := context.WithTimeout(b.Context(), 100_000*time.Hour)
					var all sync.WaitGroup
					b.StartTimer()
					for i := range n {
						ctx := heed.WithPriority(ctx, heed.Priority(i*7%3-1))
						if costs {
							ctx = heed.WithCost(ctx, heed.UnitRequests, int64(i%5))
						}
						all.Go(func() { r.Acquire(ctx, request(example)) })
					}
					await(r, n)
					b.StopTimer()
					r.Close()
					cancel()
					all.Wait()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/arrival")
			})
		}
	}
}

// BenchmarkLongQueueIsJudged is what it costs each of many who wait, with a deadline, when something happens to all.
func BenchmarkLongQueueIsJudged(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		r := newRegistry(b, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})
		r.Pause(example, time.Hour)
		ctx, cancel := context.WithTimeout(b.Context(), 100_000*time.Hour)
		for i := range 10_000 {
			go r.Acquire(ctx, credential(i%keys))
		}
		await(r, 10_000)
		for name, do := range map[string]func(i int){
			"pause":     func(i int) { r.Pause(example, 2*time.Hour+time.Duration(i)*time.Second) },
			"SetLimits": func(i int) { r.SetLimits(example, heed.Limits{MaxConcurrent: 1 + i%2, MaxWait: 200_000 * time.Hour}) },
			"Check":     func(int) { r.Check(credential(0)) },
			"Snapshot":  func(int) { r.Snapshot() },
		} {
			b.Run(fmt.Sprintf("%s/credentials=%d", name, keys), func(b *testing.B) {
				for i := range b.N {
					do(i)
				}
			})
		}
		r.Close()
		cancel()
	}
}

// BenchmarkDeadlinesOfACrowd is what it costs each of many who wait behind one another when the deadline of all comes.
func BenchmarkDeadlinesOfACrowd(b *testing.B) {
	for _, n := range crowds {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				r := newRegistry(b, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})
				acquire(b, r, request(example))
				deadline := time.Now().Add(time.Second + time.Duration(n)*100*time.Microsecond)
				var all sync.WaitGroup
				for range n {
					ctx, cancel := context.WithDeadline(b.Context(), deadline)
					all.Go(func() {
						defer cancel()
						r.Acquire(ctx, request(example))
					})
				}
				time.Sleep(time.Until(deadline))
				b.StartTimer()
				all.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/request")
		})
	}
}
