package heed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// within reports whether d is want or up to a tenth more, which is what a
// backoff and a short pause are jittered by.
func within(d, want time.Duration) bool { return d >= want && d <= want+want/10 }

func TestRetriesPassTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 2", "429 Retry-After: 2", "200"}}
		tr := quiet(t, base, heed.Limits{
			Policies:  []heed.Policy{{Name: "p", Quota: 2, Window: time.Hour}},
			Smoothing: heed.Smoothing{Off: true},
		})
		sendOne(t, tr, get(t.Context(), site))
		if gaps := base.gaps(); len(gaps) != 2 || gaps[0] > 3*time.Second || gaps[0]+gaps[1] != time.Hour {
			t.Errorf("intervals %v: the third attempt is not the quota's", gaps)
		}
	})
}

func TestFourRetriesThenTheRefusalItself(t *testing.T) {
	for name, c := range map[string]struct {
		retry heed.Retry
		ctx   func(context.Context) context.Context
		want  int
	}{
		"by default":     {want: 5},
		"one":            {retry: heed.Retry{Max: 1}, want: 2},
		"seven":          {retry: heed.Retry{Max: 7}, want: 8},
		"none":           {retry: heed.Retry{Max: -1}, want: 1},
		"none by far":    {retry: heed.Retry{Max: math.MinInt}, want: 1},
		"none this time": {ctx: heed.NoRetry, want: 1},
		"said so":        {retry: heed.Retry{Check: func(*http.Request, *http.Response, error) bool { return false }}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{answers: []string{"429"}}
				tr := quiet(t, base, heed.Limits{})
				tr.Retry = c.retry
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				status, body := sendOne(t, tr, get(ctx, site))
				if status != 429 || body != "429" || len(base.starts) != c.want {
					t.Errorf("%d %q after %d requests", status, body, len(base.starts))
				}
				wait := 5 * time.Second
				for _, gap := range base.gaps() {
					if !within(gap, wait) {
						t.Errorf("waited %v", base.gaps())
					}
					wait = min(2*wait, 5*time.Minute)
				}
			})
		})
	}
}

func TestWhichRequestsAreTriedAgain(t *testing.T) {
	replayable := func() io.Reader { return strings.NewReader("content") }
	opaque := func() io.Reader { return io.NopCloser(strings.NewReader("content")) }
	always := func(*http.Request, *http.Response, error) bool { return true }
	for name, c := range map[string]struct {
		method string
		body   func() io.Reader
		field  string
		answer string
		check  func(*http.Request, *http.Response, error) bool
		again  bool
	}{
		"GetAfter429":                      {method: "GET", answer: "429", again: true},
		"GetAfter503":                      {method: "GET", answer: "503", again: true},
		"PutAfter503":                      {method: "PUT", body: replayable, answer: "503", again: true},
		"DeleteAfter503":                   {method: "DELETE", answer: "503", again: true},
		"PostAfter429":                     {method: "POST", body: replayable, answer: "429", again: true},
		"PostWithoutBodyAfter429":          {method: "POST", answer: "429", again: true},
		"PatchAfter429":                    {method: "PATCH", body: replayable, answer: "429", again: true},
		"PostAfter503":                     {method: "POST", body: replayable, answer: "503"},
		"PostAfter503WithRetryAfter":       {method: "POST", body: replayable, answer: "503 Retry-After: 1"},
		"PostAfter403WithRetryAfter":       {method: "POST", body: replayable, answer: "403 Retry-After: 1"},
		"GetAfter403WithRetryAfter":        {method: "GET", answer: "403 Retry-After: 1", again: true},
		"GetAfter403":                      {method: "GET", answer: "403"},
		"PatchAfter503":                    {method: "PATCH", body: replayable, answer: "503"},
		"PostWithIdempotencyKeyAfter503":   {method: "POST", body: replayable, field: "Idempotency-Key", answer: "503", again: true},
		"PostWithXIdempotencyKeyAfter503":  {method: "POST", body: replayable, field: "X-Idempotency-Key", answer: "503", again: true},
		"OpaquePutAfter429":                {method: "PUT", body: opaque, answer: "429"},
		"OpaquePutWithKeyAfter503":         {method: "PUT", body: opaque, field: "Idempotency-Key", answer: "503"},
		"XShouldRetryFalseAfter429":        {method: "GET", answer: "429 X-Should-Retry: false"},
		"XShouldRetryFalseAfter503":        {method: "GET", answer: "503 X-Should-Retry: false"},
		"XShouldRetryFalseWithCheck":       {method: "GET", answer: "429 X-Should-Retry: false", check: always},
		"After500":                         {method: "GET", answer: "500"},
		"After502":                         {method: "GET", answer: "502"},
		"After504":                         {method: "GET", answer: "504"},
		"After200":                         {method: "GET", answer: "200"},
		"AfterError":                       {method: "GET", answer: "error"},
		"After500WithCheck":                {method: "GET", answer: "500", check: always, again: true},
		"AfterErrorWithCheck":              {method: "GET", answer: "error", check: always, again: true},
		"PostAfterErrorWithCheck":          {method: "POST", body: replayable, answer: "error", check: always},
		"PostAfter503WithCheck":            {method: "POST", body: replayable, answer: "503", check: always},
		"PostWithKeyAfterErrorWithCheck":   {method: "POST", body: replayable, field: "Idempotency-Key", answer: "error", check: always, again: true},
		"OpaquePutAfterErrorWithCheck":     {method: "PUT", body: opaque, answer: "error", check: always},
		"CheckTakesARefusalOff":            {method: "GET", answer: "429", check: func(_ *http.Request, resp *http.Response, _ error) bool { return resp.StatusCode != 429 }},
		"CheckIsNotAskedWhatMustNotRepeat": {method: "POST", body: replayable, answer: "500", check: func(*http.Request, *http.Response, error) bool { panic("asked") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{answers: []string{c.answer, "200"}}
				tr := quiet(t, base, heed.Limits{})
				asked := 0
				if c.check != nil {
					tr.Retry.Check = func(req *http.Request, resp *http.Response, err error) bool {
						asked++
						if (resp == nil) == (err == nil) {
							t.Errorf("asked about %v and %v", resp, err)
						}
						return asked == 1 && c.check(req, resp, err)
					}
				}
				var body io.Reader
				if c.body != nil {
					body = c.body()
				}
				req, err := http.NewRequest(c.method, site, body)
				if err != nil {
					t.Fatal(err)
				}
				if c.field != "" {
					req.Header.Set(c.field, "one")
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				if again := len(base.starts) == 2; again != c.again {
					t.Fatalf("%d requests", len(base.starts))
				}
				if asked > len(base.starts) {
					t.Errorf("Check was asked %d times about %d answers", asked, len(base.starts))
				}
				if c.again && c.body != nil && !slices.Equal(base.bodies, []string{"content", "content"}) {
					t.Errorf("bodies %q", base.bodies)
				}
			})
		})
	}
}

func TestGiveUpKeepsIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := true
		base, conns := network(t, func(w http.ResponseWriter, req *http.Request) {
			if refuse {
				w.WriteHeader(429)
				io.WriteString(w, "later")
			}
		})
		watched := &idler{RoundTripper: base}
		tr := quiet(t, watched, heed.Limits{})
		giveUps := map[string]func(){
			"retries run out": func() { sendOne(t, tr, get(t.Context(), origin(t))) },
			"no time left": func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				sendOne(t, tr, get(ctx, origin(t)))
			},
			"cancelled": func() {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				tr.RoundTrip(get(ctx, origin(t)))
			},
			"body cannot be replayed": func() {
				req, _ := http.NewRequest(http.MethodPut, origin(t), strings.NewReader("content"))
				req.GetBody = func() (io.ReadCloser, error) { return nil, errAny }
				sendOne(t, tr, req)
			},
		}
		for name, giveUp := range giveUps {
			refuse = true
			giveUp()
			refuse = false
			tr.Registry.Reset(origin(t))
			sendOne(t, tr, get(t.Context(), origin(t)))
			if watched.calls != 0 || conns.Load() != 1 {
				t.Errorf("%s: idle connections closed %d times, %d connections made", name, watched.calls, conns.Load())
			}
		}
	})
}

func TestRetryAfterOverflowIsNoHint(t *testing.T) {
	for _, value := range []string{
		"9223372037", "18446744074", "99999999999", "1000000000000", "10000000000000000000000", "1e12", "-1", "-9223372037", "", "soon",
		"0", "Sat, 01 Jan 1994 00:00:00 GMT",
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []string{"429 Retry-After: " + value, "200"}}
			sendOne(t, quiet(t, base, heed.Limits{}), get(t.Context(), site))
			if wait := base.gaps()[0]; wait < 5*time.Second || wait > time.Hour+time.Second {
				t.Errorf("%q: waited %v", value, wait)
			}
		})
	}
}

func TestRetryAfterIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 86400", "200"}}
		sendOne(t, quiet(t, base, heed.Limits{MaxRetryAfter: time.Minute}), get(t.Context(), site))
		if wait := base.gaps()[0]; wait < time.Minute || wait > time.Minute+time.Second {
			t.Errorf("waited %v", wait)
		}
	})
}

// No start is earlier than the receipt of the answer plus what it asks for,
// and none much later.
func TestNeverEarly(t *testing.T) {
	for _, answer := range []string{"429 Retry-After: 7", "503 Retry-After: 7", "429 Retry-After: 0.3", "429 Retry-After: 2000"} {
		synctest.Test(t, func(t *testing.T) {
			var asked time.Duration
			_, value, _ := strings.Cut(answer, ": ")
			asked, _ = time.ParseDuration(value + "s")
			var mu sync.Mutex
			var received time.Time
			starts := 0
			base := baseFunc(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				starts++
				first := starts == 1
				if wait := time.Since(received); !received.IsZero() && (wait < asked || wait > asked+min(asked/10, time.Second) && starts == 2) {
					t.Errorf("%s: a request started after %v", answer, wait)
				}
				mu.Unlock()
				time.Sleep(123456789)
				if !first {
					return reply(200, ""), nil
				}
				mu.Lock()
				received = time.Now()
				mu.Unlock()
				status, fields, _ := strings.Cut(answer, " ")
				resp := reply(429, "", fields)
				fmt.Sscan(status, &resp.StatusCode)
				return resp, nil
			})
			tr := quiet(t, base, heed.Limits{})
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 250 * time.Millisecond)
					sendOne(t, tr, get(t.Context(), fmt.Sprint(site, "/", i%3)))
				})
			}
			all.Wait()
			if starts != 21 {
				t.Errorf("%d requests", starts)
			}
		})
	}
}

func TestLastResponseComesBackWhole(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string
		timeout time.Duration
		pause   bool          // a longer one, found while the retry waits
		after   time.Duration // at least
		atMost  time.Duration
		sent    int
	}{
		"attempts run out":            {answer: "429 Retry-After: 1", after: 4 * time.Second, atMost: 5 * time.Second, sent: 5},
		"named wait does not fit":     {answer: "429 Retry-After: 600", timeout: time.Minute, sent: 1},
		"named wait fits to the end":  {answer: "503 Retry-After: 60", timeout: time.Minute, sent: 1},
		"backoff does not fit":        {answer: "429", timeout: 5 * time.Second, sent: 1},
		"found late":                  {answer: "429 Retry-After: 30", timeout: time.Minute, pause: true, after: time.Second, atMost: time.Second, sent: 1},
		"longer than it may wait":     {answer: "429 Retry-After: 90", sent: 1},
		"second wait does not fit":    {answer: "503", timeout: 8 * time.Second, after: 5 * time.Second, atMost: 6 * time.Second, sent: 2},
		"what Check adds does not":    {answer: "502", timeout: time.Second, sent: 1},
		"what Check adds is too much": {answer: "500", after: 75 * time.Second, atMost: 83 * time.Second, sent: 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{answers: []string{c.answer}}
				tr := quiet(t, base, heed.Limits{MaxWait: 85 * time.Second})
				tr.Retry.Check = func(_ *http.Request, resp *http.Response, _ error) bool { return resp.StatusCode >= 429 }
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				if c.pause {
					time.AfterFunc(time.Second, func() { tr.Registry.Pause(site, time.Hour) })
				}
				began := time.Now()
				resp, err := tr.Client().Do(get(ctx, site))
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.after || took > c.atMost {
					t.Errorf("after %v", took)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(body) != c.answer || err != nil || len(base.starts) != c.sent || resp.Header.Get("Retry-After") == "" && strings.Contains(c.answer, "Retry") {
					t.Errorf("%q, %v after %d requests", body, err, len(base.starts))
				}
			})
		})
	}
}

// Nobody can tell when a slot will be free: the refusal goes back at the
// deadline.
func TestRetryThatRunsIntoItsDeadlineGivesTheRefusalBack(t *testing.T) {
	for _, cause := range []error{nil, errCancelled} {
		synctest.Test(t, func(t *testing.T) {
			refuse := true
			tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
				if refuse {
					refuse = false
					return reply(429, "later"), nil
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			}), heed.Limits{MaxConcurrent: 1})
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
			defer cancel()
			other, stop := context.WithCancel(t.Context())
			defer stop()
			time.AfterFunc(time.Second, func() { tr.RoundTrip(get(other, site+"/other")) })
			began := time.Now()
			if status, body := sendOne(t, tr, get(ctx, site)); status != 429 || body != "later" || time.Since(began) != time.Minute {
				t.Errorf("%d %q after %v", status, body, time.Since(began))
			}
		})
	}
}

func TestRegistryClosedWhileARetryWaitsGivesTheRefusalBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := quiet(t, &script{answers: []string{"429 Retry-After: 60"}}, heed.Limits{})
		time.AfterFunc(time.Second, func() { tr.Registry.Close() })
		if status, body := sendOne(t, tr, get(t.Context(), site)); status != 429 || body != "429 Retry-After: 60" {
			t.Errorf("%d %q", status, body)
		}
	})
}

func TestTransportErrorsAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) { calls++; return nil, errAny }), heed.Limits{})
		if _, err := tr.RoundTrip(get(t.Context(), site)); err != errAny || calls != 1 {
			t.Errorf("error %v after %d requests", err, calls)
		}
		// Where they are, the last one comes back, and as it is.
		tr.Retry.Check = func(_ *http.Request, _ *http.Response, err error) bool { return err == errAny }
		calls = 0
		began := time.Now()
		if _, err := tr.RoundTrip(get(t.Context(), site)); err != errAny || calls != 5 || !within(time.Since(began), 75*time.Second) {
			t.Errorf("error %v after %d requests in %v", err, calls, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := tr.RoundTrip(get(ctx, site)); err != errAny || time.Since(began) != 0 {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

func TestLocalRefusalsAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"200"}}
		tr := quiet(t, base, heed.Limits{MinInterval: time.Hour})
		tr.Retry.Check = func(*http.Request, *http.Response, error) bool { return true }
		tr.Retry.Max = -1
		sendOne(t, tr, get(t.Context(), site))
		tr.Retry.Max = 0
		_, err := tr.Client().Do(get(heed.NoWait(t.Context()), site))
		var limit *heed.LimitError
		if !errors.As(err, &limit) || limit.Reason != heed.ReasonNoWait || limit.Wait != time.Hour || len(base.starts) != 1 {
			t.Errorf("error %v after %d requests", err, len(base.starts))
		}
	})
}

// What Retry.Check adds waits a backoff of its own and pauses nobody.
func TestRetryCheckAddsAndPausesNobody(t *testing.T) {
	for answer, want := range map[string]time.Duration{"500": 5 * time.Second, "502": 5 * time.Second, "504": 5 * time.Second, "error": 5 * time.Second,
		"500 Retry-After: 60": time.Minute, "500 Retry-After: 99999": time.Hour} {
		t.Run(answer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := &script{answers: []string{answer, "200"}}
				good := &script{answers: []string{"200"}}
				tr := quiet(t, baseFunc(func(req *http.Request) (*http.Response, error) {
					if req.URL.Path == "/bad" {
						return bad.RoundTrip(req)
					}
					return good.RoundTrip(req)
				}), heed.Limits{})
				tr.Retry.Check = func(_ *http.Request, resp *http.Response, err error) bool {
					return err != nil || resp.StatusCode >= 500
				}
				sendOne(t, tr, get(t.Context(), site+"/good"))
				began := time.Now()
				var all sync.WaitGroup
				all.Go(func() { sendOne(t, tr, get(t.Context(), site+"/bad")) })
				synctest.Wait()
				for range 50 {
					sendOne(t, tr, get(t.Context(), site+"/good"))
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("others were held for %v", took)
				}
				all.Wait()
				if gaps := bad.gaps(); len(gaps) != 1 || gaps[0] < want || gaps[0] > want+min(want/10, time.Second) {
					t.Errorf("waited %v", gaps)
				}
			})
		})
	}
}

func TestNothingIsLoggedByRetryablehttp(t *testing.T) {
	if os.Getenv("HEED_TEST_QUIET") != "" {
		synctest.Test(t, func(t *testing.T) {
			tr := quiet(t, &script{answers: []string{"429", "503", "error"}}, heed.Limits{})
			tr.RoundTrip(get(t.Context(), site))
		})
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v=false")
	cmd.Env = append(os.Environ(), "HEED_TEST_QUIET=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v; logged %q", err, &stderr)
	}
}

// A request that is not refused does not pay for go-retryablehttp.
func TestRetryableEngineIsNotEnteredOnSuccess(t *testing.T) {
	resp := reply(200, "")
	tr := quiet(t, baseFunc(func(*http.Request) (*http.Response, error) { return resp, nil }), heed.Limits{})
	req := get(t.Context(), site)
	sendOne(t, tr, req)
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 1 { // the permit
		t.Errorf("%v allocations", allocs)
	}
	tr.Retry.Check = func(_ *http.Request, resp *http.Response, _ error) bool { return resp.StatusCode == 500 }
	if allocs := testing.AllocsPerRun(1000, func() { tr.RoundTrip(req) }); allocs > 1 {
		t.Errorf("%v allocations with Check", allocs)
	}
}

func TestCancelledRightAfterLeaveToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		refusal, again := watch("later"), watch("content")
		requests := 0
		tr := &heed.Transport{
			Base: respond(func(*http.Request) *http.Response {
				requests++
				resp := reply(429, "", "Retry-After: 5")
				resp.Body = refusal
				return resp
			}),
			Registry: listening(t, heed.Limits{}, func(e heed.Event) {
				if e.Kind == heed.EventRetried {
					cancel(errCancelled)
				}
			}),
		}
		req, _ := http.NewRequestWithContext(ctx, http.MethodPut, site, watch("content"))
		req.GetBody = func() (io.ReadCloser, error) { return again, nil }
		if _, err := tr.RoundTrip(req); err != errCancelled || requests != 1 {
			t.Errorf("error %v after %d requests", err, requests)
		}
		if o := tr.Registry.Snapshot()[0]; o.InFlight != 0 || o.Waiting != 0 {
			t.Errorf("%d in flight, %d waiting", o.InFlight, o.Waiting)
		}
		if refusal.closed.Load() != 1 || again.closed.Load() != 1 {
			t.Errorf("refusal closed %d times, body %d times", refusal.closed.Load(), again.closed.Load())
		}
	})
}

func TestBodyThatCannotBeReplayedGivesTheRefusalBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []string{"429 Retry-After: 5"}}
		tr := quiet(t, base, heed.Limits{Policies: []heed.Policy{{Name: "p", Quota: 10, Window: time.Hour}}})
		req, _ := http.NewRequest(http.MethodPut, site, strings.NewReader("content"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, errAny }
		if status, body := sendOne(t, tr, req); status != 429 || body != "429 Retry-After: 5" || len(base.starts) != 1 {
			t.Errorf("%d %q after %d requests", status, body, len(base.starts))
		}
		if used := usedBy(tr.Registry); used != site+" 1" || tr.Registry.Snapshot()[0].InFlight != 0 {
			t.Errorf("used %s", used)
		}
	})
}

func TestRetryKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		refused := false
		base := respond(func(req *http.Request) *http.Response {
			time.Sleep(100 * time.Millisecond) // so that the others are in line when it is refused
			mu.Lock()
			defer mu.Unlock()
			if !refused {
				refused = true
				return reply(429, "", "Retry-After: 10")
			}
			order = append(order, req.URL.Path)
			return reply(200, "")
		})
		tr := quiet(t, base, heed.Limits{MinInterval: time.Second})
		var all sync.WaitGroup
		for _, path := range []string{"/first", "/second", "/third"} {
			all.Go(func() { sendOne(t, tr, get(t.Context(), site+path)) })
			synctest.Wait()
		}
		all.Wait()
		if want := []string{"/first", "/second", "/third"}; !slices.Equal(order, want) {
			t.Errorf("order %q", order)
		}
	})
}
