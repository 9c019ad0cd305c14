package heed_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/heedhttp/heed"
)

// through returns a Transport that sends through a proxy.
func through(t *testing.T, proxy string, r *heed.Registry) *heed.Transport {
	t.Helper()
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{Proxy: http.ProxyURL(u)}
	t.Cleanup(base.CloseIdleConnections)
	return &heed.Transport{Base: base, Registry: r}
}

// What a proxy answers in an origin's stead cannot be told from the origin's own answer.
func TestRefusalOfAProxyHoldsTheOriginThatWasAskedFor(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Host == "refused.example.org" {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer proxy.Close()
	r := newRegistry(t, heed.Config{})
	tr := through(t, proxy.URL, r)
	for host, want := range map[string]int{"refused.example.org": 503, "other.example.org": 200} {
		resp, err := tr.RoundTrip(request("http://" + host).WithContext(heed.NoRetry(t.Context())))
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s: %v, %v", host, resp, err)
		}
		resp.Body.Close()
		if d := r.Check(request("http://" + host)); d.Allowed != (want == 200) {
			t.Errorf("%s: %+v", host, d)
		}
	}
}

func TestRequestThatASOCKSProxyDoesNotDeliverCostsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // RFC 1928: no authentication needed; host unreachable
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 3))
		_, _ = c.Write([]byte{5, 0})
		_, _ = c.Read(make([]byte, 300))
		_, _ = c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
	}()
	r := newRegistry(t, heed.Config{Default: quota(1, time.Hour)})
	if _, err := through(t, "socks5://"+l.Addr().String(), r).RoundTrip(request(example)); err == nil {
		t.Fatal("no error")
	}
	if d := r.Check(request(example)); !d.Allowed {
		t.Errorf("another one has to wait: %+v", d)
	}
}
