package heed

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// A fixture is a response as a service sends it, and what it means. The file
// begins with lines of the form "# key: value":
//
//	service   whose response it is
//	source    where it was found
//	date      when that was written, or looked at
//	checked   how sure we are: V the service's own documentation or source code,
//	          W a capture of its traffic or a quotation of its documentation,
//	          S a survey
//	note      anything a reader should know
//	url       of the request
//	at        when the response was received
//	means     one statement of what it means, as statements writes it
//
// and goes on with the response.
type fixture struct {
	file    string
	key     map[string]string
	origin  string
	at      time.Time
	status  int
	header  http.Header
	body    []byte
	meaning []string
}

func readFixtures(t testing.TB) []fixture {
	t.Helper()
	files, err := filepath.Glob("testdata/dialects/*.http")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	var all []fixture
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := fixture{file: strings.TrimSuffix(filepath.Base(file), ".http"), key: map[string]string{}}
		for bytes.HasPrefix(text, []byte("#")) {
			line, rest, _ := bytes.Cut(text, []byte("\n"))
			text = rest
			key, value, ok := strings.Cut(strings.TrimPrefix(string(line), "# "), ": ")
			if !ok {
				t.Fatalf("%s: no key in %q", file, line)
			}
			if key == "means" {
				f.meaning = append(f.meaning, value)
			} else {
				f.key[key] = value
			}
		}
		for _, key := range []string{"service", "source", "date", "checked", "url", "at"} {
			if f.key[key] == "" {
				t.Errorf("%s: no %s", file, key)
			}
		}
		if f.at, err = time.Parse(time.RFC3339, f.key["at"]); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		u, err := url.Parse(f.key["url"])
		if err != nil || u.Host == "" {
			t.Fatalf("%s: url %q: %v", file, f.key["url"], err)
		}
		f.origin = u.Scheme + "://" + u.Host
		head, body, _ := bytes.Cut(text, []byte("\n\n"))
		resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("\n\n"))), nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		f.status, f.header, f.body = resp.StatusCode, resp.Header, bytes.TrimSpace(body)
		all = append(all, f)
	}
	return all
}

// statements puts an announcement into words, in the order of their kinds:
//
//	dialect NAME
//	policy "NAME": QUOTA UNIT [per WINDOW]
//	limit "NAME": [N left,] [N used,] [reset in SPAN [to GRAIN] [by the clock]]
//	refused | not to be retried | for all | bucket NAME | retry after SPAN | reduced | cached
func statements(a Announcement) []string {
	var s []string
	if a.Dialect != "" {
		s = append(s, "dialect "+a.Dialect)
	}
	unit := func(u Unit) string {
		if u == "" {
			u = UnitRequests
		}
		return string(u)
	}
	for _, p := range a.Policies {
		line := fmt.Sprintf("policy %q: %d %s", p.Name, p.Quota, unit(p.Unit))
		if p.Window != 0 {
			line += " per " + p.Window.String()
		}
		s = append(s, line)
	}
	for _, l := range a.Limits {
		var parts []string
		if l.Remaining >= 0 {
			parts = append(parts, fmt.Sprintf("%d left", l.Remaining))
		}
		if l.Used != 0 {
			parts = append(parts, fmt.Sprintf("%d used", l.Used))
		}
		if l.Reset >= 0 {
			part := "reset in " + l.Reset.String()
			if l.Resolution != 0 {
				part += " to " + l.Resolution.String()
			}
			if l.Clock {
				part += " by the clock"
			}
			parts = append(parts, part)
		}
		line := fmt.Sprintf("limit %q: %s", l.Policy, strings.Join(parts, ", "))
		if u := unit(l.Unit); u != string(UnitRequests) && !slices.ContainsFunc(a.Policies, func(p Policy) bool { return p.Name == l.Policy }) {
			line += " (" + u + ")"
		}
		s = append(s, line)
	}
	for _, flag := range []struct {
		set  bool
		text string
	}{
		{a.Refused, "refused"},
		{a.NoRetry, "not to be retried"},
		{a.Global, "for all"},
		{a.Bucket != "", "bucket " + a.Bucket},
		{a.RetryAfter > 0, "retry after " + a.RetryAfter.String()},
		{a.Reduced, "reduced"},
		{a.Cached, "cached"},
	} {
		if flag.set {
			s = append(s, flag.text)
		}
	}
	for _, v := range a.Violated {
		s = append(s, "violated "+v)
	}
	return s
}

func TestFixturesMeanWhatTheySay(t *testing.T) {
	services := map[string]bool{}
	for _, f := range readFixtures(t) {
		services[f.key["service"]] = true
		t.Run(f.file, func(t *testing.T) {
			if c := f.key["checked"]; c != "V" && c != "W" && c != "S" {
				t.Errorf("checked: %q", c)
			}
			a := announcementOf(f.origin, f.status, f.header, f.body, f.at, nil)
			for _, d := range bodyDialects(f.origin, nil) {
				if more, ok := d.Body(f.status, f.header, f.body); ok {
					a = more
				}
			}
			got, want := statements(a), f.meaning
			if !reflect.DeepEqual(got, want) {
				t.Errorf("means\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		})
	}
	if len(services) < 90 {
		t.Errorf("%d services, want 90", len(services))
	}
}
