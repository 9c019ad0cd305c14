package heed

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

const problemTypes = "https://iana.org/assignments/http-problem-types#"

func TestProblemDocuments(t *testing.T) {
	const contentType = "application/problem+json"
	many := `"p"` + strings.Repeat(`,"p"`, 1000)
	for _, tt := range []struct {
		name, contentType, body   string
		violated                  []string
		refused, noRetry, reduced bool
	}{
		{"quota exceeded", contentType, `{"type":"` + problemTypes + `quota-exceeded","title":"x","violated-policies":["daily","bandwidth"]}`, []string{"daily", "bandwidth"}, true, false, false},
		{"reduced capacity", contentType, `{"type":"` + problemTypes + `temporary-reduced-capacity","violated-policies":["hourly"]}`, []string{"hourly"}, true, false, true},
		{"abnormal usage", contentType, `{"type":"` + problemTypes + `abnormal-usage-detected","violated-policies":["hourly"]}`, []string{"hourly"}, true, true, false},
		// draft-11, appendix B.1.4, forgets a comma.
		{"comma missing", contentType, `{"type":"` + problemTypes + `abnormal-usage-detected","title":"x" "violated-policies":["hourly"]}`, nil, true, true, false},
		{"content type with parameters", "Application/Problem+JSON ; charset=utf-8", `{"type":"` + problemTypes + `abnormal-usage-detected"}`, nil, true, true, false},
		{"www", contentType, `{"type":"https://www.iana.org/assignments/http-problem-types#abnormal-usage-detected"}`, nil, true, true, false},
		{"http, capitals, other path", contentType, `{"type":"HTTP://IANA.ORG/x#Abnormal-Usage-Detected"}`, nil, true, true, false},
		{"relative", contentType, `{"type":"#abnormal-usage-detected"}`, nil, true, true, false},
		{"type last", contentType, `{"violated-policies":["a"],"nested":{"type":"x","violated-policies":["b"]},"type":"` + problemTypes + `temporary-reduced-capacity"}`, []string{"a"}, true, false, true},
		{"cut off", contentType, `{"type":"` + problemTypes + `abnormal-usage-detected","violated-policies":["a","b`, nil, true, true, false},
		{"one name", contentType, `{"violated-policies":"a"}`, []string{"a"}, false, false, false},
		{"other types among the names", contentType, `{"violated-policies":["a",1,null,{"name":"x"},["y"],"b"]}`, []string{"a", "b"}, false, false, false},
		{"no names", contentType, `{"type":"` + problemTypes + `quota-exceeded","violated-policies":7}`, nil, true, false, false},
		{"too many names", contentType, `{"violated-policies":[` + many + `]}`, slicesRepeat("p", maxItems), false, false, false},
		{"a long name", contentType, `{"violated-policies":["` + strings.Repeat("x", 1025) + `","b"]}`, []string{"b"}, false, false, false},
		{"too long to see", contentType, `{"pad":"` + strings.Repeat("x", maxProblemLen) + `","type":"` + problemTypes + `abnormal-usage-detected"}`, nil, false, false, false},
		{"another host", contentType, `{"type":"https://example.org/#abnormal-usage-detected"}`, nil, false, false, false},
		{"another host ending alike", contentType, `{"type":"https://notiana.org/#abnormal-usage-detected"}`, nil, false, false, false},
		{"another type", contentType, `{"type":"` + problemTypes + `date"}`, nil, false, false, false},
		{"about:blank", contentType, `{"type":"about:blank"}`, nil, false, false, false},
		{"no URI", contentType, `{"type":"%zz#abnormal-usage-detected"}`, nil, false, false, false},
		{"type of another type", contentType, `{"type":["` + problemTypes + `abnormal-usage-detected"]}`, nil, false, false, false},
		{"array", contentType, `[{"type":"` + problemTypes + `abnormal-usage-detected"}]`, nil, false, false, false},
		{"no JSON", contentType, `<html>`, nil, false, false, false},
		{"empty", contentType, ``, nil, false, false, false},
		{"deep", contentType, `{"x":` + strings.Repeat("[", 16000), nil, false, false, false},
		{"plain JSON", "application/json", `{"type":"` + problemTypes + `abnormal-usage-detected","violated-policies":["a"]}`, nil, false, false, false},
		{"no content type", "", `{"type":"` + problemTypes + `abnormal-usage-detected"}`, nil, false, false, false},
	} {
		a := announcementOf("", 400, fieldsOf("Content-Type: "+tt.contentType), []byte(tt.body), testNow, nil)
		if !reflect.DeepEqual(nonNil(a.Violated), nonNil(tt.violated)) || a.Refused != tt.refused || a.NoRetry != tt.noRetry || a.Reduced != tt.reduced {
			t.Errorf("%s: got %+v", tt.name, a)
		}
	}
}

func slicesRepeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// A watchedBody counts what happens to it.
type watchedBody struct {
	io.Reader
	read, closed int
	err          error // of Close
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *watchedBody) Close() error {
	b.closed++
	return b.err
}

func problemResponse(status int, body io.Reader) (*http.Response, *watchedBody) {
	b := &watchedBody{Reader: body}
	return &http.Response{
		StatusCode: status,
		Header:     fieldsOf("Content-Type: application/problem+json"),
		Body:       b,
		Request:    &http.Request{URL: &url.URL{Scheme: "https", Host: "Example.ORG"}},
	}, b
}

func TestParseAnnouncementPutsTheBodyBack(t *testing.T) {
	document := `{"type":"` + problemTypes + `quota-exceeded","violated-policies":["daily"]}`
	for _, size := range []int{len(document), maxProblemLen - 1, maxProblemLen, maxProblemLen + 1, 1 << 20} {
		content := document + strings.Repeat(" ", size-len(document))
		resp, b := problemResponse(429, strings.NewReader(content))
		b.err = errors.New("closed badly")
		a := ParseAnnouncement(resp, testNow)
		if !reflect.DeepEqual(a.Violated, []string{"daily"}) {
			t.Errorf("%d bytes: %+v", size, a)
		}
		if b.read > maxProblemLen || b.closed > 0 {
			t.Errorf("%d bytes: %d read and %d times closed", size, b.read, b.closed)
		}
		var got bytes.Buffer
		if _, err := io.Copy(&got, resp.Body); err != nil || got.String() != content {
			t.Errorf("%d bytes: %d came back, %v", size, got.Len(), err)
		}
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%d bytes: after the end: %d, %v", size, n, err)
		}
		if err := resp.Body.Close(); err != b.err {
			t.Errorf("Close: %v", err)
		}
		if err := resp.Body.Close(); err != b.err || b.closed != 1 {
			t.Errorf("second Close: %v, %d times closed", err, b.closed)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose {
			t.Errorf("Read after Close: %v", err)
		}
	}
}

// An error in the middle comes where it came.
func TestParseAnnouncementKeepsTheBodysError(t *testing.T) {
	broken := errors.New("broken")
	resp, _ := problemResponse(503, io.MultiReader(strings.NewReader(`{"type":"#abnormal-usage-detected"`), &failing{broken}))
	if a := ParseAnnouncement(resp, testNow); !a.NoRetry {
		t.Errorf("got %+v", a)
	}
	got, err := io.ReadAll(resp.Body)
	if err != broken || string(got) != `{"type":"#abnormal-usage-detected"` {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != broken {
		t.Errorf("once more: %v", err)
	}
}

// A failing reader fails once, and has nothing more to say then.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) {
	err := f.err
	f.err = io.EOF
	return 0, err
}

func TestParseAnnouncementLeavesOtherBodiesAlone(t *testing.T) {
	for _, tt := range []struct {
		status      int
		contentType string
	}{{200, "application/problem+json"}, {404, "application/problem+json"}, {429, "application/json"}, {503, ""}} {
		resp, b := problemResponse(tt.status, strings.NewReader(`{"type":"#abnormal-usage-detected"}`))
		resp.Header.Set("Content-Type", tt.contentType)
		if a := ParseAnnouncement(resp, testNow); a.NoRetry || b.read > 0 || resp.Body != io.ReadCloser(b) {
			t.Errorf("%d %q: %d bytes read: %+v", tt.status, tt.contentType, b.read, a)
		}
	}
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		resp, _ := problemResponse(429, nil)
		resp.Body = body
		if a := ParseAnnouncement(resp, testNow); !a.Refused || resp.Body != body {
			t.Errorf("%+v", a)
		}
	}
	if a := ParseAnnouncement(nil, testNow); a.Refused {
		t.Errorf("no response: %+v", a)
	}
	if a := ParseAnnouncement(&http.Response{StatusCode: 503}, testNow); !a.Refused {
		t.Errorf("bare response: %+v", a)
	}
}
