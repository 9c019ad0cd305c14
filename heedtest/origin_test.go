package heedtest_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/heedhttp/heed/heedtest"
)

const ms = time.Millisecond

// do sends a request through the origin and reads the answer.
func do(t *testing.T, o http.RoundTripper, req *http.Request) *http.Response {
	t.Helper()
	resp, err := o.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if req.Method != "HEAD" && int64(len(body)) != resp.ContentLength {
		t.Errorf("body of %d bytes, Content-Length %d", len(body), resp.ContentLength)
	}
	if resp.Request != req {
		t.Error("the answer's request is another one")
	}
	resp.Body.Close()
	return resp
}

func get(t *testing.T, o http.RoundTripper) *http.Response {
	t.Helper()
	return do(t, o, httptest.NewRequest("GET", "http://origin.example/", nil))
}

// statuses sends n requests one after the other.
func statuses(t *testing.T, o http.RoundTripper, n int) (s []int) {
	t.Helper()
	for range n {
		s = append(s, get(t, o).StatusCode)
	}
	return s
}

func wantStatuses(t *testing.T, got []int, want ...int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("statuses %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("statuses %v, want %v", got, want)
		}
	}
}

func TestZeroConfigAcceptsAll(t *testing.T) {
	o := NewOrigin(Config{})
	for range 100 {
		resp := get(t, o)
		if resp.StatusCode != 200 || resp.Header.Get("RateLimit") != "" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
	}
}

func TestARequestRefusedByOnePolicyUsesUpNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Policies: []Policy{
			{Name: "second", Quota: 2, Window: time.Second},
			{Name: "minute", Quota: 5, Window: time.Minute, Algorithm: SlidingWindow},
		}})
		wantStatuses(t, statuses(t, o, 4), 200, 200, 429, 429)
		time.Sleep(time.Second)
		wantStatuses(t, statuses(t, o, 4), 200, 200, 429, 429)
		time.Sleep(time.Second)
		wantStatuses(t, statuses(t, o, 2), 200, 429) // the minute's fifth; that leaves one of the second's
		time.Sleep(58 * time.Second)                 // the first two leave the minute
		wantStatuses(t, statuses(t, o, 3), 200, 200, 429)
		tally := o.Tally()
		if tally.Policies[0].Refused != 4+1 || tally.Policies[1].Refused != 1+1 {
			t.Errorf("refused by %+v", tally.Policies)
		}
	})
}

// One request every 400 ms for a minute, where one every 500 ms is granted.
func TestRefusedRequestsCountOnRequest(t *testing.T) {
	for _, test := range []struct {
		algorithm Algorithm
		counted   bool
		accepted  int64
	}{
		{FixedWindow, false, 117}, // windows open at 0, 5.2, … 57.2 s: eleven grant 10, the last one sees 7
		{FixedWindow, true, 117},  // a full window is as full
		{SlidingWindow, true, 10}, // 12.5 in every window: the log stays full
		{SlidingCounter, true, 10},
		{TokenBucket, false, 129}, // 10 + 2·59.6
		{TokenBucket, true, 46},   // a fifth of a token less each time; once one is missing, 0.8 gather and are lost
		{GCRA, true, 46},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := NewOrigin(Config{Algorithm: test.algorithm, CountRefused: test.counted,
				Policies: []Policy{{Quota: 10, Window: 5 * time.Second}}})
			for range 150 {
				get(t, o)
				time.Sleep(400 * ms)
			}
			if got := o.Tally().Accepted; got != test.accepted {
				t.Errorf("%s, refusals counted %v: accepted %d, want %d", test.algorithm, test.counted, got, test.accepted)
			}
		})
	}
}

// A refusal by one policy is counted by the others too.
func TestCountedRefusalsCountEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{CountRefused: true, Policies: []Policy{{Quota: 1, Window: time.Second}, {Quota: 4, Window: time.Hour}}})
		wantStatuses(t, statuses(t, o, 4), 200, 429, 429, 429)
		time.Sleep(time.Second)
		wantStatuses(t, statuses(t, o, 1), 429)
	})
}

func TestEachRefusalRenewsTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Block: 10 * time.Second, Policies: []Policy{{Quota: 1, Window: time.Second}, {Quota: 9, Window: time.Second}}})
		wantStatuses(t, statuses(t, o, 1), 200)
		resp := get(t, o)
		if got := resp.Header.Get("Retry-After"); resp.StatusCode != 429 || got != "10" {
			t.Fatalf("%d, Retry-After %s", resp.StatusCode, got)
		}
		if got := resp.Header.Get("RateLimit"); got != `"default";r=0;t=10, "policy-2";r=0;t=10` {
			t.Errorf("in the block: %s", got)
		}
		if first := o.Earliest("", time.Now()); time.Until(first) != 10*time.Second {
			t.Errorf("the block ends in %v", time.Until(first))
		}
		time.Sleep(10*time.Second - 1)
		wantStatuses(t, statuses(t, o, 1), 429)
		time.Sleep(10*time.Second - 1)
		wantStatuses(t, statuses(t, o, 1), 429)
		time.Sleep(10 * time.Second)
		wantStatuses(t, statuses(t, o, 1), 200)
	})
}

func TestConcurrencyIsHeldFromArrivalToDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{
			Algorithm: Concurrency, Policies: []Policy{{Quota: 3}},
			Latency: RoundTrip(100 * ms), Service: 200 * ms,
		})
		answer := func() int { return get(t, o).StatusCode }
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if s := answer(); s != 200 {
					t.Errorf("one of three: %d", s)
				}
			})
		}
		time.Sleep(249*ms + 999999) // arrives one nanosecond before the three are delivered
		synctest.Wait()
		wg.Go(func() {
			if s := answer(); s != 429 {
				t.Errorf("the fourth: %d", s)
			}
		})
		time.Sleep(time.Nanosecond)
		wg.Go(func() {
			time.Sleep(time.Nanosecond)
			if s := answer(); s != 200 {
				t.Errorf("after the three: %d", s)
			}
		})
		wg.Wait()
		tally := o.Tally()
		if tally.PeakInFlight != 4 || tally.Policies[0].PeakInWindow != 3 || tally.InFlight != 0 {
			t.Errorf("%+v", tally)
		}
	})
}

func TestBytesAreChargedAndTheLastBodyOverdraws(t *testing.T) {
	post := func(n int, chunked bool) *http.Request {
		req := httptest.NewRequest("POST", "http://origin.example/", strings.NewReader(strings.Repeat("u", n)))
		if chunked {
			req.ContentLength = -1
		}
		return req
	}
	for name, config := range map[string]Config{
		"known on arrival": {BodySize: 300},
		"known at the end": {Respond: func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, strings.Repeat("d", 300))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config.Policies = []Policy{{Name: "bytes", Quota: 1000, Window: 10 * time.Second, Unit: UnitContentBytes}}
				o := NewOrigin(config)
				for i, want := range []int{200, 200, 200, 429} { // 400 each: the third overdraws by 200
					if s := do(t, o, post(100, i%2 == 1)).StatusCode; s != want {
						t.Fatalf("request %d: %d, want %d", i, s, want)
					}
				}
				tally := o.Tally()
				if tally.Bytes != 1200 || tally.PeakInWindow != 1200 || tally.Policies[0].Accepted != 1200 {
					t.Errorf("%+v", tally)
				}
			})
		})
	}
	o := NewOrigin(Config{BodySize: 300, Policies: []Policy{{Quota: 1000, Window: time.Hour, Unit: UnitContentBytes}}})
	if got := do(t, o, post(100, false)).Header.Get("RateLimit"); got != `"default";r=600;t=3600` {
		t.Errorf("what is known on arrival is not announced: %s", got)
	}
	o = NewOrigin(Config{BodySize: 300, Policies: []Policy{{Quota: 1, Window: time.Hour, Unit: UnitContentBytes}}})
	req := httptest.NewRequest("HEAD", "http://origin.example/", nil)
	do(t, o, req)
	do(t, o, req)
	if tally := o.Tally(); tally.Accepted != 2 || tally.Bytes != 0 {
		t.Errorf("HEAD has no body to charge: %+v", tally)
	}
}

func TestKeysHaveQuotasOfTheirOwn(t *testing.T) {
	o := NewOrigin(Config{Key: ByAuthorization, Policies: []Policy{{Quota: 1, Window: time.Hour}}})
	for _, want := range []int{200, 429} {
		for _, token := range []string{"", "Bearer a", "Bearer b"} {
			req := httptest.NewRequest("GET", "http://origin.example/", nil)
			if token != "" {
				req.Header.Set("Authorization", token)
			}
			if s := do(t, o, req).StatusCode; s != want {
				t.Errorf("%q: %d, want %d", token, s, want)
			}
		}
	}
	if o.TakeKey("Bearer a", 1) || !o.TakeKey("Bearer c", 1) || o.Tally().Keys != 4 {
		t.Errorf("%d keys", o.Tally().Keys)
	}
}

func TestIdleKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		o := NewOrigin(Config{
			Key:      func(*http.Request) string { n++; return string(rune(0x4e00 + n)) },
			Policies: []Policy{{Quota: 5, Window: time.Second}},
		})
		for range 10_000 {
			get(t, o)
			time.Sleep(10 * ms)
		}
		if keys := o.Tally().Keys; keys > 1200 {
			t.Errorf("%d keys kept where 100 are in use", keys)
		}
	})
}

func TestCostIsChargedWhole(t *testing.T) {
	cost := int64(4)
	o := NewOrigin(Config{
		Cost:     func(*http.Request) int64 { return cost },
		Policies: []Policy{{Quota: 10, Window: time.Hour, Unit: "points"}},
	})
	wantStatuses(t, statuses(t, o, 3), 200, 200, 429)
	cost = 0
	wantStatuses(t, statuses(t, o, 2), 200, 200)
	cost = 2
	resp := get(t, o)
	if got := resp.Header.Get("RateLimit"); resp.StatusCode != 200 || !strings.HasPrefix(got, `"default";r=0;`) {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	if got := resp.Header.Get("RateLimit-Policy"); got != `"default";q=10;qu="points";w=3600` {
		t.Error(got)
	}
}

func TestPoliciesCanChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Policies: []Policy{{Name: "p", Quota: 4, Window: time.Minute}}})
		wantStatuses(t, statuses(t, o, 3), 200, 200, 200)
		o.SetPolicies(Policy{Name: "p", Quota: 2, Window: time.Minute})
		resp := get(t, o)
		if got := resp.Header.Get("RateLimit-Policy"); resp.StatusCode != 429 || got != `"p";q=2;w=60` {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
		o.SetPolicies(Policy{Name: "p", Quota: 5, Window: time.Minute}, Policy{Name: "new", Quota: 1, Window: time.Second})
		wantStatuses(t, statuses(t, o, 2), 200, 429)
		time.Sleep(time.Second)
		wantStatuses(t, statuses(t, o, 2), 200, 429)
		o.SetPolicies()
		wantStatuses(t, statuses(t, o, 2), 200, 200)
	})
}

func TestSlotsHeldAcrossAChangeAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Service: time.Second, Policies: []Policy{{Name: "c", Quota: 2, Unit: UnitConcurrentRequests}}})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { get(t, o) })
		}
		time.Sleep(500 * ms)
		o.SetPolicies(Policy{Name: "c", Quota: 0, Unit: UnitConcurrentRequests})
		wantStatuses(t, statuses(t, o, 1), 429)
		o.SetPolicies(Policy{Name: "c", Quota: 1, Unit: UnitConcurrentRequests})
		wg.Wait()
		wantStatuses(t, statuses(t, o, 2), 200, 200)
	})
}

func TestOutageRefusesAllAndUsesUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Policies: []Policy{{Quota: 2, Window: time.Hour}}})
		o.Outage(time.Now().Add(time.Hour), 0, 60*time.Second)
		resp := get(t, o)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "60" || resp.Header.Get("RateLimit") != "" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		if o.Take(1) {
			t.Error("granted in an outage")
		}
		if got := o.Earliest("", time.Now()); !got.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("accepted from %v", got)
		}
		time.Sleep(time.Hour)
		wantStatuses(t, statuses(t, o, 3), 200, 200, 429)
		o.Outage(time.Now().Add(time.Hour), 500, 0)
		if resp := get(t, o); resp.StatusCode != 500 || resp.Header.Get("Retry-After") != "" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		o.Outage(time.Now(), 0, 0)
		wantStatuses(t, statuses(t, o, 1), 429)
		if tally := o.Tally(); tally.DuringOutage != 2 || tally.Refused != 4 || tally.ForeignRefused != 1 {
			t.Errorf("%+v", tally)
		}
	})
}

func TestTakeSharesTheQuota(t *testing.T) {
	o := NewOrigin(Config{Policies: []Policy{{Quota: 5, Window: time.Hour}, {Quota: 2, Unit: UnitConcurrentRequests}}})
	if !o.Take(3) || o.Take(3) || !o.Take(1) {
		t.Error("of 5, 3 and 1 can be had, 3 and 3 not")
	}
	wantStatuses(t, statuses(t, o, 2), 200, 429)
	if tally := o.Tally(); tally.Foreign != 2 || tally.ForeignRefused != 1 || tally.Accepted != 1 || tally.PeakInWindow != 5 {
		t.Errorf("%+v", tally)
	}
}

// What WouldAccept and Earliest foretell comes true to the nanosecond, for every
// algorithm and for several at once.
func TestForetoldVerdictsComeTrue(t *testing.T) {
	algorithms := []Algorithm{FixedWindow, FixedWindowByClock, SlidingWindow, SlidingCounter, TokenBucket, GCRA, LeakyBucket}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			config := Config{Phase: time.Duration(rng.Int64N(1e10)), ClockSkew: time.Duration(rng.Int64N(2e10) - 1e10)}
			for range 1 + rng.IntN(3) {
				config.Policies = append(config.Policies, Policy{
					Algorithm: algorithms[rng.IntN(len(algorithms))],
					Quota:     1 + rng.Int64N(10), Window: 1 + time.Duration(rng.Int64N(1e10)),
				})
			}
			o := NewOrigin(config)
			accept := func() bool { return get(t, o).StatusCode == 200 }
			for range 60 {
				if would := o.WouldAccept("", time.Now()); would != accept() {
					t.Fatalf("%+v: foretold %v", config, would)
				}
				switch rng.IntN(3) {
				case 0:
					time.Sleep(time.Duration(rng.Int64N(2e9)))
				case 1:
					first := o.Earliest("", time.Now())
					if wait := time.Until(first); wait > 1 {
						time.Sleep(wait - 1)
						if o.WouldAccept("", time.Now()) || accept() {
							t.Fatalf("%+v: accepted before the earliest instant", config)
						}
						time.Sleep(time.Nanosecond)
					}
					if !o.WouldAccept("", first) || !accept() {
						t.Fatalf("%+v: refused at the earliest instant", config)
					}
				}
			}
		})
	}
	full := NewOrigin(Config{Policies: []Policy{{Quota: 0, Unit: UnitConcurrentRequests}}})
	if !full.Earliest("", time.Now()).IsZero() || full.WouldAccept("", time.Now()) {
		t.Error("a slot foretold where there is none")
	}
}

func TestNonsenseIsRefusedAtOnce(t *testing.T) {
	for name, config := range map[string]Config{
		"algorithm":   {Algorithm: "fixed"},
		"of a policy": {Policies: []Policy{{Quota: 1, Window: 1, Algorithm: "x"}}},
		"dialect":     {Dialect: "ietf-12"},
		"rounding":    {Rounding: "even"},
		"reset":       {Reset: "?"},
		"retry-after": {RetryAfter: RetryAfter{Mode: "?"}},
		"share":       {RetryAfter: RetryAfter{Share: 2}},
		"quota":       {Policies: []Policy{{Quota: -1, Window: 1}}},
		"window":      {Policies: []Policy{{Quota: 1}}},
		"block":       {Block: -1},
		"status":      {Status: 99},
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "heedtest: ") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			NewOrigin(config)
		}()
	}
	if _, err := NewOrigin(Config{}).RoundTrip(&http.Request{}); err == nil {
		t.Error("no error for a request without a URL")
	}
}

// Many goroutines do everything at once; the books balance at the end.
func TestBooksBalanceUnderConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{
			Algorithm: GCRA, Key: ByAuthorization, Record: true, Service: 3 * ms,
			Latency: HeavyTail(30*ms, 1.7, 5*time.Second, 1), Block: ms, BodySize: 10,
			Policies: []Policy{
				{Quota: 50, Window: time.Second}, {Quota: 100, Window: 5 * time.Second, Algorithm: SlidingWindow},
				{Quota: 10, Unit: UnitConcurrentRequests}, {Quota: 1000, Window: time.Second, Unit: UnitContentBytes},
			},
		})
		var wg sync.WaitGroup
		var mu sync.Mutex
		answered, failed := map[int]int64{}, int64(0)
		for g := range uint64(64) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(g, 0))
				for i := range 50 {
					ctx, cancel := context.WithCancel(t.Context())
					if rng.IntN(4) == 0 {
						time.AfterFunc(time.Duration(rng.Int64N(int64(60*ms))), cancel)
					}
					req, _ := http.NewRequestWithContext(ctx, "POST", "http://origin.example/", strings.NewReader("12345"))
					req.Header.Set("Authorization", string(rune('a'+g%4)))
					resp, err := o.RoundTrip(req)
					mu.Lock()
					if err != nil {
						failed++
					} else {
						answered[resp.StatusCode]++
					}
					mu.Unlock()
					switch {
					case g == 0 && i%10 == 5:
						o.SetPolicies(Policy{Quota: 40, Window: time.Second}, Policy{Quota: int64(5 + i), Unit: UnitConcurrentRequests})
					case g == 1:
						o.Take(1)
						o.WouldAccept("a", time.Now())
						o.Tally()
						o.Events()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		tally := o.Tally()
		switch {
		case tally.InFlight != 0, tally.Requests != tally.Accepted+tally.Refused,
			tally.Requests+tally.Cancelled != 64*50, tally.Cancelled+tally.Abandoned != failed,
			tally.ByStatus[200] != answered[200], tally.ByStatus[429] != answered[429],
			int64(len(o.Events())) != tally.Requests+tally.Foreign+tally.ForeignRefused:
			t.Errorf("%+v\n%v answered, %d failed", tally, answered, failed)
		}
	})
}
