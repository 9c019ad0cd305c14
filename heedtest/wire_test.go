package heedtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/heedhttp/heed/heedtest"
)

// body notes what was read of it and whether it was closed.
type body struct {
	io.Reader
	closed int
	read   int
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}
func (b *body) Close() error { b.closed++; return nil }

func TestTheBodyIsAlwaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Latency: RoundTrip(100 * ms), Service: 100 * ms, Policies: []Policy{{Quota: 4, Window: time.Hour}}})
		broken := errors.New("broken")
		for _, test := range []struct {
			name    string
			after   time.Duration // when it is given up; 0: never
			reader  io.Reader
			read    int
			failure error
		}{
			{"accepted", 0, strings.NewReader("12345"), 5, nil},
			{"upload breaks off", 0, io.MultiReader(strings.NewReader("123"), errReader{broken}), 3, broken},
			{"given up before arrival", 20 * ms, strings.NewReader("12345"), 0, context.Canceled},
			{"given up in service", 100 * ms, strings.NewReader("12345"), 0, context.Canceled},
			{"given up on the way back", 180 * ms, strings.NewReader("12345"), 5, context.Canceled},
			{"refused", 0, strings.NewReader("12345"), 0, nil},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			if test.after > 0 {
				time.AfterFunc(test.after, cancel)
			}
			b := &body{Reader: test.reader}
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://origin.example/", b)
			begin := time.Now()
			resp, err := o.RoundTrip(req)
			if !errors.Is(err, test.failure) || (resp == nil) != (err != nil) {
				t.Errorf("%s: %v, %v", test.name, resp, err)
			}
			if test.after > 0 && time.Since(begin) != test.after {
				t.Errorf("%s: returned after %v", test.name, time.Since(begin))
			}
			if b.closed != 1 || b.read != test.read {
				t.Errorf("%s: closed %d times, %d bytes read", test.name, b.closed, b.read)
			}
			cancel()
		}
		tally := o.Tally()
		if tally.Requests != 5 || tally.Accepted != 4 || tally.Cancelled != 1 || tally.Abandoned != 3 || tally.InFlight != 0 {
			t.Errorf("%+v", tally)
		}
	})
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// A reader that hangs is closed when the request is given up.
func TestGivingUpEndsAHangingUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		reader, _ := io.Pipe()
		req, _ := http.NewRequestWithContext(ctx, "PUT", "http://origin.example/", reader)
		if _, err := o.RoundTrip(req); err == nil || err.Error() != "enough" {
			t.Errorf("error %v, want the cause", err)
		}
	})
}

func TestRespondMakesTheAnswer(t *testing.T) {
	config := Config{
		Policies: []Policy{{Quota: 1, Window: time.Hour}},
		Respond: func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Path", r.URL.Path+" "+r.RequestURI+" "+r.Host)
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Too-Late", "1")
			w.Write([]byte(strings.ToUpper(string(text))))
		},
	}
	through := map[string]func(*testing.T, *Origin) (http.RoundTripper, string){
		"RoundTripper": func(_ *testing.T, o *Origin) (http.RoundTripper, string) { return o, "http://origin.example" },
		"Handler": func(t *testing.T, o *Origin) (http.RoundTripper, string) {
			server := httptest.NewServer(o)
			t.Cleanup(server.Close)
			return server.Client().Transport, server.URL
		},
	}
	for name, make := range through {
		t.Run(name, func(t *testing.T) {
			o := NewOrigin(config)
			transport, base := make(t, o)
			client := &http.Client{Transport: transport}
			resp, err := client.Post(base+"/a/b?c", "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 201 || string(text) != "HELLO" || resp.Header.Get("X-Too-Late") != "" ||
				resp.Header.Get("X-Path") != "/a/b /a/b?c "+strings.TrimPrefix(base, "http://") {
				t.Errorf("%d %q %v", resp.StatusCode, text, resp.Header)
			}
			if got := resp.Header.Get("RateLimit"); got != `"default";r=0;t=3600` {
				t.Error(got)
			}
			resp, err = client.Head(base)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3600" || resp.ContentLength <= 0 {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
			tally := o.Tally()
			if tally.ByStatus[201] != 1 || tally.ByStatus[429] != 1 || tally.Bytes != 10 {
				t.Errorf("%+v", tally)
			}
		})
	}
}

func TestHandlerServesTheDefaultBody(t *testing.T) {
	o := NewOrigin(Config{BodySize: 100_000})
	server := httptest.NewServer(o)
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != 100_000 || err != nil || resp.ContentLength != n {
		t.Errorf("%d bytes, %v, Content-Length %d", n, err, resp.ContentLength)
	}
	if got := get(t, o).ContentLength; got != 100_000 {
		t.Errorf("as a RoundTripper %d bytes", got)
	}
}

func TestTheRequestIsNotChanged(t *testing.T) {
	o := NewOrigin(Config{Respond: func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Mine", "1")
		r.URL = nil
	}})
	req, _ := http.NewRequest("GET", "http://origin.example/", nil)
	do(t, o, req)
	if len(req.Header) != 0 || req.URL == nil || req.RequestURI != "" || req.Body != nil {
		t.Errorf("%+v", req)
	}
}

func TestAHandlerThatWritesNothingAnswers200(t *testing.T) {
	o := NewOrigin(Config{Respond: func(http.ResponseWriter, *http.Request) {}})
	get(t, o)
	o.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if tally := o.Tally(); tally.ByStatus[200] != 2 || tally.Abandoned != 0 {
		t.Errorf("%+v", tally)
	}
}

// In a handler the latency passes while the request is served.
func TestHandlerTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Latency: RoundTrip(100 * ms), Service: 30 * ms, Record: true, Policies: []Policy{{Quota: 1, Window: time.Second}}})
		begin := time.Now()
		w := httptest.NewRecorder()
		o.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if took := time.Since(begin); w.Code != 200 || took != 130*ms {
			t.Errorf("%d after %v", w.Code, took)
		}
		if e := o.Events()[0]; e.Arrival != 50*ms || e.Delivered != 130*ms || e.Status != 200 {
			t.Errorf("%+v", e)
		}
		w = httptest.NewRecorder()
		o.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if took := time.Since(begin); w.Code != 429 || took != 230*ms || w.Body.String() != "rate limit exceeded\n" {
			t.Errorf("%d after %v", w.Code, took)
		}
	})
}

func TestProblemDocumentNamesThePoliciesViolated(t *testing.T) {
	o := NewOrigin(Config{Problem: QuotaExceeded, Policies: []Policy{
		{Name: "a", Quota: 1, Window: time.Hour}, {Name: "b", Quota: 9, Window: time.Hour}, {Name: "c", Quota: 1, Window: time.Hour},
	}})
	get(t, o)
	resp, _ := o.RoundTrip(httptest.NewRequest("GET", "http://origin.example/", nil))
	text, _ := io.ReadAll(resp.Body)
	want := `{"type":"` + QuotaExceeded + `","title":"Request cannot be satisfied as assigned quota has been exceeded","violated-policies":["a","c"]}`
	if string(text) != want || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s\nwant %s", text, want)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingCounter, GCRA} {
		b.Run(string(algorithm), func(b *testing.B) {
			o := NewOrigin(Config{Algorithm: algorithm, Policies: []Policy{{Quota: 1000, Window: 5 * time.Second}}})
			req := httptest.NewRequest("GET", "http://origin.example/", nil)
			b.ReportAllocs()
			for b.Loop() {
				if resp, err := o.RoundTrip(req); err != nil {
					b.Fatal(err)
				} else {
					resp.Body.Close()
				}
			}
		})
	}
}
