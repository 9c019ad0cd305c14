package heed_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed"
)

// benchAnswers are answers as an origin gives them.
var benchAnswers = map[string]http.Header{
	"silent": {"Content-Type": {"text/plain"}, "Date": {"Tue, 07 Jul 2026 10:00:00 GMT"}},
	"ietf":   {"Content-Type": {"text/plain"}, "Ratelimit-Policy": {`"p";q=1000000000;w=60`}, "Ratelimit": {`"p";r=900000000;t=30`}},
}

// roundTrip is what a request that need not wait costs.
func roundTrip(b *testing.B, r *heed.Registry, req *http.Request, resp *http.Response) {
	pm, err := r.Acquire(req.Context(), req)
	if err != nil {
		b.Fatal(err)
	}
	pm.Observe(resp)
	pm.Release()
}

func BenchmarkAcquire(b *testing.B) {
	for _, tc := range []struct {
		name   string
		limits heed.Limits
		answer string
	}{
		{"no limits", heed.Limits{}, "silent"},
		{"configured", heed.Limits{Policies: []heed.Policy{{Quota: 1 << 40, Window: time.Minute}}}, "silent"},
		{"bucket", heed.Limits{Policies: []heed.Policy{{Quota: 1 << 40, Window: time.Minute, Burst: 1 << 30}}}, "silent"},
		{"announced", heed.Limits{}, "ietf"},
		{"unlimited", heed.Limits{Unlimited: true}, "silent"},
	} {
		b.Run(tc.name, func(b *testing.B) {
			r, err := heed.NewRegistry(heed.Config{Default: tc.limits})
			if err != nil {
				b.Fatal(err)
			}
			req, _ := http.NewRequest("GET", "https://api.example.org/v1/things?page=1", nil)
			req.Header.Set("Authorization", "Bearer 0123456789abcdef0123456789abcdef")
			resp := &http.Response{StatusCode: 200, Header: benchAnswers[tc.answer]}
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, r, req, resp)
			}
		})
	}
}

func BenchmarkAcquireParallel(b *testing.B) {
	for _, origins := range []int{1, 64} {
		b.Run(fmt.Sprint(origins, " origins"), func(b *testing.B) {
			var r heed.Registry
			reqs := make([]*http.Request, origins)
			for i := range reqs {
				reqs[i], _ = http.NewRequest("GET", fmt.Sprintf("https://%d.example.org/", i), nil)
			}
			resp := &http.Response{StatusCode: 200, Header: benchAnswers["silent"]}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					roundTrip(b, &r, reqs[i%origins], resp)
				}
			})
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	var r heed.Registry
	req, _ := http.NewRequest("GET", "https://api.example.org/", nil)
	roundTrip(b, &r, req, &http.Response{StatusCode: 200, Header: benchAnswers["ietf"]})
	b.ReportAllocs()
	for b.Loop() {
		if !r.Check(req).Allowed {
			b.Fatal("not allowed")
		}
	}
}

// BenchmarkIdleOrigin reports the memory that an origin takes while nobody
// uses it.
func BenchmarkIdleOrigin(b *testing.B) {
	for _, answer := range []string{"silent", "ietf"} {
		b.Run(answer, func(b *testing.B) {
			const origins = 10_000
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			resp := &http.Response{StatusCode: 200, Header: benchAnswers[answer]}
			var bytes uint64
			for range b.N {
				b.StopTimer()
				var r heed.Registry
				before := heap()
				b.StartTimer()
				for i := range origins {
					req, _ := http.NewRequest("GET", fmt.Sprintf("https://%d.example.org/", i), nil)
					roundTrip(b, &r, req, resp)
				}
				b.StopTimer()
				bytes = heap() - before
				runtime.KeepAlive(&r)
				b.StartTimer()
			}
			b.ReportMetric(float64(bytes)/origins, "B/origin")
		})
	}
}

// BenchmarkNewOriginAtTheBound is what a request costs that is the first to
// its origin where as many are known as may be.
func BenchmarkNewOriginAtTheBound(b *testing.B) {
	for _, answer := range []string{"silent", "ietf"} { // restored at once, and not for a while
		b.Run(answer, func(b *testing.B) {
			r, err := heed.NewRegistry(heed.Config{Logger: discard})
			if err != nil {
				b.Fatal(err)
			}
			resp := &http.Response{StatusCode: 200, Header: benchAnswers[answer]}
			n := 0
			visit := func() {
				req, _ := http.NewRequest("GET", fmt.Sprintf("https://%d.example.org/", n), nil)
				n++
				roundTrip(b, r, req, resp)
			}
			for range 100_000 {
				visit()
			}
			b.ReportAllocs()
			for b.Loop() {
				visit()
			}
		})
	}
}

// BenchmarkAnswerWhileOthersWait is what an answer costs while many wait,
// each with a deadline.
func BenchmarkAnswerWhileOthersWait(b *testing.B) {
	for _, waiting := range []int{100, 10_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			r, err := heed.NewRegistry(heed.Config{Logger: discard, Default: heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Hour}}}})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			req, _ := http.NewRequest("GET", "https://api.example.org", nil)
			pm, err := r.Acquire(b.Context(), req)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(b.Context(), 100_000*time.Hour)
			defer cancel()
			for range waiting {
				go r.Acquire(ctx, req)
			}
			for r.Snapshot()[0].Waiting < waiting {
				time.Sleep(time.Millisecond)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				pm.Learn(heed.Announcement{Limits: []heed.ServiceLimit{{Policy: "p", Remaining: int64(1000 - i), Reset: time.Hour}}})
			}
		})
	}
}

// BenchmarkWaitInACrowd is what it costs each of many who come at once, each with a
// deadline, to get in line.
func BenchmarkWaitInACrowd(b *testing.B) {
	r, err := heed.NewRegistry(heed.Config{Logger: discard, Default: heed.Limits{Policies: []heed.Policy{{Quota: 1, Window: time.Second}}}})
	if err != nil {
		b.Fatal(err)
	}
	req, _ := http.NewRequest("GET", "https://api.example.org", nil)
	if _, err := r.Acquire(b.Context(), req); err != nil {
		b.Fatal(err)
	}
	if err := r.Pause("https://api.example.org", time.Hour); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 100_000*time.Hour)
	defer cancel()
	b.ResetTimer()
	for range b.N {
		go r.Acquire(ctx, req)
	}
	for r.Snapshot()[0].Waiting < b.N {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	r.Close()
}

// BenchmarkCancelACrowd is what it costs each of many who wait to leave, all at once and in any order.
func BenchmarkCancelACrowd(b *testing.B) {
	r, err := heed.NewRegistry(heed.Config{Logger: discard})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	if err := r.Pause("https://api.example.org", time.Hour); err != nil {
		b.Fatal(err)
	}
	req, _ := http.NewRequest("GET", "https://api.example.org", nil)
	all, cancel := context.WithCancel(b.Context())
	var waiting sync.WaitGroup
	for range b.N {
		waiting.Go(func() {
			ctx, cancel := context.WithCancel(all)
			defer cancel()
			r.Acquire(ctx, req)
		})
	}
	for r.Snapshot()[0].Waiting < b.N {
		time.Sleep(time.Millisecond)
	}
	b.ResetTimer()
	cancel()
	waiting.Wait()
}

// BenchmarkPauseManyCredentials is what it costs for each of many credentials, with a request that
// waits and has a deadline, when their origin is paused.
func BenchmarkPauseManyCredentials(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r, err := heed.NewRegistry(heed.Config{Logger: discard, Default: heed.Limits{MinInterval: time.Second}})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(b.Context(), 100_000*time.Hour)
			defer cancel()
			if err := r.Pause("https://api.example.org", time.Hour); err != nil {
				b.Fatal(err)
			}
			for i := range n {
				req, _ := http.NewRequest("GET", "https://api.example.org", nil)
				req.Header.Set("X-Api-Key", strconv.Itoa(i))
				go r.Acquire(ctx, req)
			}
			for r.Snapshot()[0].Waiting < n {
				time.Sleep(time.Millisecond)
			}
			b.ResetTimer()
			for i := range b.N {
				if err := r.Pause("https://api.example.org", 2*time.Hour+time.Duration(i)*time.Second); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/credential")
			b.StopTimer()
			r.Close()
		})
	}
}
