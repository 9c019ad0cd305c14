package heed_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// A stalling is a body that comes as what is written to it, and has no end
// until it is closed.
type stalling struct {
	*io.PipeReader
	*io.PipeWriter
}

func newStalling(begin string) stalling {
	r, w := io.Pipe()
	if begin != "" {
		go w.Write([]byte(begin))
	}
	return stalling{r, w}
}

func (s stalling) Close() error                     { return s.PipeReader.Close() }
func (s stalling) CloseWithError(error) (err error) { return s.Close() }

// Its fields said how long before its body said whom.
func TestRefusalHoldsWhileItsDocumentIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		document string // comes after half a second; "": never
		other    string // another's credential
		at       time.Duration
	}{
		"and none comes":          {429, "", "", time.Minute},
		"it adds nothing":         {429, `{"title":"no"}`, "", time.Minute},
		"the origin is refused":   {503, `{"title":"no"}`, "Bearer another", time.Minute},
		"none comes from it":      {503, "", "Bearer another", time.Minute},
		"another's quota is well": {429, "", "Bearer another", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t, heed.Config{})
				meet(t, r, example)
				refused := acquire(t, r, request(example))
				body := newStalling("")
				defer body.Close()
				if c.document != "" {
					time.AfterFunc(time.Second/2, func() {
						io.WriteString(body, c.document)
						body.PipeWriter.Close()
					})
				}
				resp := answer(c.status, "Retry-After", "60", "Content-Type", "application/problem+json")
				resp.Body = body
				observed := make(chan time.Duration)
				began := time.Now()
				go func() {
					refused.Observe(resp)
					refused.Release()
					observed <- time.Since(began)
				}()
				synctest.Wait()
				var header []string
				if c.other != "" {
					header = []string{"Authorization", c.other}
				}
				next := start(t.Context(), r, request(example, header...))
				want := time.Second / 2
				if c.document == "" {
					want = time.Second
				}
				if took := <-observed; took != want {
					t.Errorf("observed after %v, want %v", took, want)
				}
				time.Sleep(2 * time.Minute)
				if !next.done() || next.err != nil || next.at < c.at || next.at > c.at+time.Second {
					t.Fatalf("%v after %v, want it after %v", next.err, next.at, c.at)
				}
				next.permit.Release()
			})
		})
	}
}

// What a document names is held, and nothing else once that is known.
func TestDocumentThatComesLateSaysWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, heed.Config{})
		pm := acquire(t, r, request(example))
		pm.Observe(answer(200, "RateLimit-Policy", `"day";q=1000;w=86400, "now";q=100;w=10`, "RateLimit", `"day";r=900;t=80000, "now";r=90;t=9`))
		pm.Release()
		refused := acquire(t, r, request(example))
		body := newStalling("")
		resp := answer(429, "Retry-After", "60", "Content-Type", "application/problem+json")
		resp.Body = body
		go func() {
			refused.Observe(resp)
			refused.Release()
		}()
		synctest.Wait()
		free := heed.WithCost(t.Context(), heed.UnitRequests, 0)
		next := start(free, r, request(example).WithContext(free))
		if next.done() {
			t.Error("a request went before it was known what is held")
		}
		time.Sleep(time.Second / 4)
		io.WriteString(body, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["day"]}`)
		body.PipeWriter.Close()
		synctest.Wait()
		if !next.done() || next.err != nil || next.at != time.Second/4 {
			t.Errorf("%v after %v, want it once that is known", next.err, next.at)
		}
		paid := start(t.Context(), r, request(example))
		time.Sleep(2 * time.Minute)
		if d := time.Minute - time.Second/4; !paid.done() || paid.at < d || paid.at > d+time.Second {
			t.Errorf("a request of the quota named went after %v", paid.at)
		}
	})
}

// What went while the document of a refusal was awaited went before anybody knew of that
// refusal: its own refusal is part of the same event.
func TestWhatGoesWhileADocumentIsAwaitedIsRefusedForTheSame(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			var inARow []int
			r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
				if e.Kind == heed.EventPaused {
					inARow = append(inARow, e.InARow)
				}
			}})
			meet(t, r, example)
			first := acquire(t, r, request(example))
			body := newStalling("")
			defer body.Close()
			resp := answer(status, "Content-Type", "application/problem+json")
			resp.Body = body
			time.AfterFunc(time.Second/2, func() {
				io.WriteString(body, `{"title":"no"}`)
				body.PipeWriter.Close()
			})
			go first.Observe(resp)
			time.Sleep(time.Second / 4)
			second := acquire(t, r, request(example))
			time.Sleep(time.Second / 2)
			synctest.Wait()
			second.Observe(answer(status))
			first.Release()
			second.Release()
			if wait := r.Check(request(example)).Wait; wait > 6*time.Second || !slices.Equal(inARow, []int{1}) {
				t.Errorf("%d: holds for %v, after %v refusals in a row", status, wait, inARow)
			}
		})
	}
}

// An answer whose document is awaited is taken in after those that came meanwhile, and as if it had come
// then: what one answer says is never taken for older than what was known by it.
func TestAnswersAreDatedInTheOrderInWhichTheyAreTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []heed.Event
		r := newRegistry(t, heed.Config{OnEvent: func(e heed.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}})
		meet(t, r, example)
		first, second := acquire(t, r, request(example)), acquire(t, r, request(example))
		body := newStalling("")
		defer body.Close()
		resp := answer(429, "Content-Type", "application/problem+json")
		resp.Body = body
		time.Sleep(time.Second)
		time.AfterFunc(time.Second/4, func() { second.Observe(answer(200)) })
		time.AfterFunc(time.Second/2, func() {
			io.WriteString(body, `{"title":"no"}`)
			body.PipeWriter.Close()
		})
		first.Observe(resp)
		mu.Lock()
		defer mu.Unlock()
		if !slices.IsSortedFunc(told, func(a, b heed.Event) int { return a.Time.Compare(b.Time) }) {
			t.Errorf("events are not told in the order of their times: %+v", told)
		}
		if e := told[len(told)-1]; e.Kind != heed.EventRefused || e.Latency != time.Second {
			t.Errorf("%v after %v, want the refusal after 1s, when it came", e.Kind, e.Latency)
		}
	})
}

// A refusal whose body hangs is tried again when it may be, on another
// connection.
func TestBodyThatHangsDelaysNoRetry(t *testing.T) {
	for kind, after := range map[string]time.Duration{"text/plain": 5 * time.Second, "application/problem+json": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			body := newStalling("not n")
			var starts []time.Time
			tr := quiet(t, respond(func(*http.Request) *http.Response {
				if starts = append(starts, time.Now()); len(starts) > 1 {
					if _, err := body.Write(nil); err != io.ErrClosedPipe {
						t.Error("the refusal was not closed before the next attempt")
					}
					return reply(200, "")
				}
				resp := reply(429, "", fmt.Sprintf("Retry-After: %d", after/time.Second), "Content-Type: "+kind)
				resp.Body = body
				return resp
			}), heed.Limits{})
			if status, _ := sendOne(t, tr, get(t.Context(), site)); status != 200 {
				t.Errorf("status %d", status)
			}
			if d := starts[1].Sub(starts[0]); !within(d, after) {
				t.Errorf("%s: tried again after %v", kind, d)
			}
		})
	}
}

// A refusal that goes back is read as it comes.
func TestBodyThatHangsIsReadAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := newStalling("not ")
		tr := quiet(t, respond(func(*http.Request) *http.Response {
			resp := reply(429, "", "Retry-After: 5", "Content-Type: application/problem+json")
			resp.Body = body
			return resp
		}), heed.Limits{})
		time.AfterFunc(2*time.Second, func() { tr.Registry.Pause(site, time.Hour) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		resp, err := tr.RoundTrip(get(ctx, site))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it came back after %v", took)
		}
		buf := make([]byte, 100)
		if n, err := resp.Body.Read(buf); string(buf[:n]) != "not " || err != nil {
			t.Errorf("%q, %v", buf[:n], err)
		}
		read := make(chan string)
		go func() {
			n, err := resp.Body.Read(buf)
			if err != nil {
				t.Error(err)
			}
			read <- string(buf[:n])
			_, err = resp.Body.Read(buf)
			if err == nil {
				t.Error("read a closed body")
			}
			close(read)
		}()
		synctest.Wait()
		io.WriteString(body, "now")
		if s := <-read; s != "now" {
			t.Errorf("%q", s)
		}
		if err := resp.Body.Close(); err != nil { // ends the Read under way
			t.Error(err)
		}
		<-read
	})
}

// An attempt's wait is a part of its request's.
func TestLongestWaitIsForAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []string{"429 Retry-After: 5"}}
		tr := quiet(t, s, heed.Limits{MaxWait: 13 * time.Second})
		var trace heed.Trace
		began := time.Now()
		status, _ := sendOne(t, tr, get(heed.WithTrace(t.Context(), &trace), site))
		if took := time.Since(began); status != 429 || !within(took, 10*time.Second) || len(s.starts) != 3 || trace.Waited > 13*time.Second {
			t.Errorf("status %d after %v and tries at %v", status, took, s.gaps())
		}
		// The next request has a wait of its own.
		if sendOne(t, tr, get(t.Context(), site)); len(s.starts) < 5 {
			t.Errorf("%d tries", len(s.starts))
		}
	})
}

// panicking is a body that cannot be read.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic(http.ErrAbortHandler) }
func (panicking) Close() error             { return nil }

// On a goroutine of heed's own nobody could recover from it.
func TestBodyThatPanicsDoesSoWhereItsRequestIs(t *testing.T) {
	for _, contentType := range []string{"text/plain", "application/problem+json"} {
		synctest.Test(t, func(t *testing.T) {
			refuse := true
			base := baseFunc(func(req *http.Request) (*http.Response, error) {
				resp := answer(200)
				if refuse {
					resp = answer(429, "Retry-After", "1", "Content-Type", contentType)
					resp.Body = panicking{}
				}
				return resp, nil
			})
			tr := &heed.Transport{Base: base, Registry: newRegistry(t, heed.Config{Default: heed.Limits{MaxConcurrent: 1}})}
			func() {
				defer func() {
					if v := recover(); v != http.ErrAbortHandler {
						t.Errorf("recovered %v", v)
					}
				}()
				tr.RoundTrip(request(example))
			}()
			refuse = false
			resp, err := tr.RoundTrip(request(example))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		})
	}
}
