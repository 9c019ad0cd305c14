package heed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/heedtest"
)

// sizes answers with bodies of so many bytes, one after the other.
func sizes(fields []string, bytes ...int) baseFunc {
	return respond(func(*http.Request) *http.Response {
		n := bytes[0]
		bytes = bytes[1:]
		return reply(200, strings.Repeat("x", n), fields...)
	})
}

// readAll makes a request and reads its answer to the end.
func readAll(t *testing.T, tr *heed.Transport) {
	t.Helper()
	resp, err := tr.RoundTrip(request(example))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

func TestEstimateOfBytesIsSettledWhenTheBodiesEnd(t *testing.T) {
	window := heed.Policy{Quota: 2000, Window: time.Minute, Unit: heed.UnitContentBytes}
	bucket := heed.Policy{Quota: 1, Window: time.Minute, Burst: 2000, Unit: heed.UnitContentBytes}
	for _, tc := range []struct {
		name    string
		limit   heed.Policy
		chunked bool // nobody says beforehand how long a body is
	}{
		{"window", window, false},
		{"window, chunked", window, true},
		{"bucket", bucket, false},
		{"bucket, chunked", bucket, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{tc.limit}, Smoothing: heed.Smoothing{Off: true}}})
				base := sizes(nil, 900, 10, 10, 0, 700)
				tr := &heed.Transport{Registry: r, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
					resp, err := base(req)
					if tc.chunked {
						resp.ContentLength = -1
					}
					return resp, err
				})}
				for _, left := range []int64{1100, 1090, 1080, 1080, 380} {
					readAll(t, tr)
					if got := r.Snapshot()[0].Partitions[0].Policies[0].Remaining; got != left {
						t.Fatalf("%d bytes left, want %d", got, left)
					}
				}
			})
		})
	}
}

func TestBytesOfAnAnswerFromACacheAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 1000, Window: time.Minute, Unit: heed.UnitContentBytes}}}})
		tr := &heed.Transport{Registry: r, Base: sizes([]string{"Age: 5"}, 900, 900)}
		readAll(t, tr)
		readAll(t, tr)
		if left := r.Snapshot()[0].Partitions[0].Policies[0].Remaining; left != 1000 {
			t.Errorf("%d bytes left, want 1000", left)
		}
	})
}

func TestNoBytesLeftHoldsThoseWhoseSizeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200, "RateLimit-Policy", `"b";q=1000;w=60;qu="content-bytes"`, "RateLimit", `"b";r=0;t=10`))
		w := start(t.Context(), r, request(example))
		time.Sleep(time.Hour)
		synctest.Wait()
		if !w.done() || w.at < 10*time.Second {
			t.Errorf("the next request starts after %v, want 10s", w.at)
		}
		pm.Release()
		w.permit.Release()
	})
}

func TestBytesNobodyCountsAreSpentAsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: 1000, Window: time.Minute, Unit: heed.UnitContentBytes}}}})
		pm, err := r.Acquire(heed.WithCost(t.Context(), heed.UnitContentBytes, 400), request(example))
		if err != nil {
			t.Fatal(err)
		}
		pm.Observe(answer(200))
		pm.Release()
		if left := r.Snapshot()[0].Partitions[0].Policies[0].Remaining; left != 600 {
			t.Errorf("%d bytes left, want 600", left)
		}
	})
}

// What is said to be left before a body has ended may not have counted it.
func TestBytesCountedWhenTheBodyEndsCostNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, size = 1000, 100
		left, refused, end := 0, 0, time.Now()
		tr := quiet(t, respond(func(*http.Request) *http.Response {
			if !time.Now().Before(end) {
				left, end = quota, time.Now().Add(10*time.Second)
			}
			status := 200
			if left <= 0 {
				status = 429
				refused++
			}
			resp := reply(status, strings.Repeat("x", size), `RateLimit-Policy: "b";q=1000;w=10;qu="content-bytes"`,
				fmt.Sprintf(`RateLimit: "b";r=%d;t=%d`, left, (time.Until(end)+time.Second-1)/time.Second))
			if status == 200 {
				left -= size
			}
			resp.ContentLength = -1
			return resp
		}), heed.Limits{})
		for range 60 {
			resp, err := tr.RoundTrip(get(heed.WithCost(t.Context(), heed.UnitContentBytes, size), example))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if refused > 1 { // the first request goes before there is a policy to charge it to
			t.Errorf("%d refused", refused)
		}
	})
}

// What an answer claims to hold is no more than a claim.
func TestAbsurdContentLengthsLiftNoLimit(t *testing.T) {
	for name, limit := range map[string]heed.Policy{
		"window": {Quota: 1000, Window: time.Minute, Unit: heed.UnitContentBytes},
		"bucket": {Quota: 1000, Window: time.Minute, Burst: 1000, Unit: heed.UnitContentBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{limit}, Smoothing: heed.Smoothing{Off: true}}})
				defer r.Close()
				tr := &heed.Transport{Registry: r, Base: respond(func(*http.Request) *http.Response {
					resp := reply(200, "x")
					resp.ContentLength = math.MaxInt64
					return resp
				})}
				ctx := heed.WithCost(t.Context(), heed.UnitContentBytes, 10)
				var open []*http.Response
				for range 4 {
					resp, err := tr.RoundTrip(get(ctx, example))
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, resp)
				}
				for i, resp := range open {
					resp.Body.Close()
					if d := r.Check(get(ctx, example)); d.Allowed || d.Wait < time.Second {
						t.Errorf("after %d: %+v, want that it is held", i+1, d)
					}
				}
			})
		})
	}
}

// Costs that no quota holds take all of it, and make no debt of one that is
// past counting.
func TestAbsurdCostsLiftNoLimit(t *testing.T) {
	for name, limit := range map[string]heed.Policy{
		"window": {Quota: 10, Window: time.Minute},
		"bucket": {Quota: 10, Window: time.Minute, Burst: 10},
		"slow":   {Quota: 1, Window: 200 * 365 * 24 * time.Hour, Burst: 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{limit}, Smoothing: heed.Smoothing{Off: true}}})
				pm := acquire(t, r, request(example))
				pm.Observe(answer(200))
				pm.Release()
				var all []*waiting
				for range 5 {
					all = append(all, start(heed.WithCost(t.Context(), heed.UnitRequests, math.MaxInt64), r, request(example)))
				}
				if d := r.Check(request(example)); d.Allowed {
					t.Errorf("%+v, want that it is held", d)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				if _, err := r.Acquire(ctx, request(example)); !errors.Is(err, heed.ErrLimited) {
					t.Errorf("behind %d that take the whole quota each: %v", len(all), err)
				}
				if at, _ := ctx.Deadline(); time.Until(at) < 2*time.Minute {
					t.Errorf("it was told so only %v before", time.Until(at))
				}
				r.Close()
			})
		})
	}
}

// Until a body is over the origin may not have counted all of it: another answer does not
// speak for it, and that it turned out small, or was refused, makes nothing else smaller.
func TestAnswersSpeakOnlyForBodiesThatAreOver(t *testing.T) {
	for _, status := range []int{200, 429} {
		synctest.Test(t, func(t *testing.T) {
			type step struct {
				status      int
				trip        time.Duration
				body, bytes int // in the answer, and left as it says
			}
			steps := []step{{200, 0, 100, 10_000}, {200, 0, 100, 9900}, {status, 0, 10, 9800}, {200, time.Second, 100, 9850}, {200, time.Minute, 100, 9700}}
			var next atomic.Int32
			base := respond(func(*http.Request) *http.Response {
				s := steps[next.Add(1)-1]
				time.Sleep(s.trip)
				left, reset := s.bytes, 900
				if s.status == 429 {
					left, reset = 0, 0
				}
				return reply(s.status, strings.Repeat("x", s.body),
					`RateLimit-Policy: "b";q=10000;w=1000;qu="content-bytes"`, fmt.Sprintf(`RateLimit: "b";r=%d;t=%d`, left, reset))
			})
			r := newRegistry(t, heed.Config{Default: unsmoothed})
			tr := &heed.Transport{Registry: r, Base: base}
			readAll(t, tr)
			readAll(t, tr)
			another := func() {
				if resp, err := tr.RoundTrip(request(example)); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
			small, err := tr.RoundTrip(request(example).WithContext(heed.NoRetry(t.Context())))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour * time.Duration(status/429)) // until the pause is over
			go another()                                      // says what is left in a second
			time.Sleep(time.Millisecond)
			io.Copy(io.Discard, small.Body)
			small.Body.Close()
			go another() // is still under way then
			time.Sleep(2 * time.Second)
			if left := r.Snapshot()[0].Partitions[0].Policies[0].Remaining; left < 9000 || left > 9650 {
				t.Errorf("%d: %d bytes left, want no more than 9850 less the two bodies of 100 that may not be counted", status, left)
			}
			time.Sleep(time.Hour)
		})
	}
}

// An origin that says what is left without the body it is about to send lets that pass,
// however little is left: what would otherwise be left over is used up.
func TestLastBodyOfAWindowMayHoldMoreThanIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const windows = 20
		origin := heedtest.NewOrigin(heedtest.Config{
			Policies: []heedtest.Policy{{Quota: 9500, Window: 10 * time.Second, Unit: heedtest.UnitContentBytes}},
			Respond:  func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1000)) },
			Latency:  heedtest.RoundTrip(50 * time.Millisecond),
		})
		tr := quiet(t, origin, heed.Limits{})
		ctx, cancel := context.WithTimeout(t.Context(), windows*10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					resp, err := tr.RoundTrip(get(ctx, example))
					if err != nil {
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		all.Wait()
		tally := origin.Tally()
		if want := int64(10*windows - 8); tally.Accepted < want || tally.Refused > 0 {
			t.Errorf("%d accepted and %d refused, want %d and none", tally.Accepted, tally.Refused, want)
		}
	})
}

// Another may know what a body holds before it is sent, and mind: that costs one refusal.
func TestTooLargeABodyIsNotTriedAgainWhereOneWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, size = 950, 100
		left, accepted, refused, end := 0, 0, 0, time.Now()
		tr := quiet(t, respond(func(*http.Request) *http.Response {
			if !time.Now().Before(end) {
				left, end = quota, time.Now().Add(10*time.Second)
			}
			fields := func(left int) []string {
				return []string{
					`RateLimit-Policy: "b";q=950;w=10;qu="content-bytes"`,
					fmt.Sprintf(`RateLimit: "b";r=%d;t=%d`, left, (time.Until(end)+time.Second-1)/time.Second),
				}
			}
			if left < size {
				refused++
				return reply(429, "", fields(0)...)
			}
			accepted++
			left -= size
			return reply(200, strings.Repeat("x", size), fields(left+size)...)
		}), heed.Limits{})
		for range 100 {
			readAll(t, tr)
		}
		if refused != 1 || accepted != 100 {
			t.Errorf("%d accepted and %d refused, want 100 and the one that was tried", accepted, refused)
		}
	})
}

// However small the latest bodies were, the next is taken to hold what bodies do in the mean.
func TestAFewSmallBodiesMakeNoReservationSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota = 1_000_000
		var bytes []int
		for range 40 {
			bytes = append(bytes, 1500, 500)
		}
		for range 12 {
			bytes = append(bytes, 800)
		}
		used := 0
		for _, n := range bytes {
			used += n
		}
		r := newRegistry(t, heed.Config{Default: heed.Limits{Policies: []heed.Policy{{Quota: quota, Window: time.Minute, Unit: heed.UnitContentBytes}}}})
		tr := &heed.Transport{Registry: r, Base: sizes(nil, bytes...)}
		for range bytes {
			readAll(t, tr)
		}
		pm := acquire(t, r, request(example))
		if n := quota - used - int(r.Snapshot()[0].Partitions[0].Policies[0].Remaining); n < 880 {
			t.Errorf("%d bytes reserved for a request", n)
		}
		pm.Release()
	})
}

// What a body holds is an estimate until it is over: one large answer does not have small ones refused for their deadlines,
// which there is room for.
func TestDeadlineIsNotJudgedByWhatBodiesAreReckonedToHold(t *testing.T) {
	const quota, small, large, batch = 10_000, 100, 4_000, 12
	for _, announced := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := heedtest.Config{
				Policies: []heedtest.Policy{{Quota: quota, Window: 10 * time.Second, Unit: heedtest.UnitContentBytes}}, Latency: heedtest.RoundTrip(50 * time.Millisecond),
				Respond: func(w http.ResponseWriter, req *http.Request) {
					n := small
					if req.URL.Path == "/large" {
						n = large
					}
					w.Write(make([]byte, n))
				},
			}
			l := heed.Limits{Smoothing: heed.Smoothing{Off: true}}
			if !announced {
				c.Dialect, l.Policies = heedtest.Silent, []heed.Policy{{Quota: quota, Window: 10 * time.Second, Unit: heed.UnitContentBytes}}
			}
			tr := quiet(t, heedtest.NewOrigin(c), l)
			defer tr.Registry.Close()
			client := tr.Client()
			get := func(path string) error {
				resp, err := client.Get(example + path)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, resp.Body)
				return errors.Join(err, resp.Body.Close())
			}
			for range 20 {
				get("/small")
			}
			get("/large")
			time.Sleep(time.Minute)
			client.Timeout = 5 * time.Second
			var busy sync.WaitGroup
			for range batch {
				busy.Go(func() {
					if err := get("/small"); err != nil {
						t.Errorf("announced %v: %v", announced, err)
					}
				})
			}
			busy.Wait()
		})
	}
}
