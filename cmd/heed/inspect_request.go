package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// inspectRequest builds the request from the command line.
func inspectRequest(method, address string, fields []string) (*http.Request, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("%q is not a URL of the web", address)
	}
	req, err := http.NewRequest(strings.ToUpper(method), address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "heed/"+version())
	for _, field := range fields {
		name, value, ok := strings.Cut(field, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || !isToken(name) || !isFieldValue(value):
			return nil, fmt.Errorf("%q is not a field: it must read \"Name: value\"", field)
		case http.CanonicalHeaderKey(name) == "Host":
			if u, err := url.Parse("http://" + value); err != nil || u.Host != value || value == "" {
				return nil, fmt.Errorf("%q does not name a host", field)
			}
			req.Host = value
		default:
			req.Header.Add(name, value)
		}
	}
	if agents := req.Header["User-Agent"]; len(agents) > 1 {
		req.Header["User-Agent"] = agents[1:] // given with -H
	}
	return req, nil
}

// isToken reports whether s can be a field's name (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// isFieldValue reports whether s can be a field's value (RFC 9110, section 5.5).
func isFieldValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == '\x7f' })
}

// keyFields are those that credentials are sent in beside the fields that net/http takes for such.
var keyFields = []string{"X-Api-Key", "Api-Key", "Private-Token"}

// redirected follows as many redirects as net/http does, and keeps keys from hosts that they were not given for.
func redirected(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	elsewhere := func(r *http.Request) bool { return !strings.EqualFold(r.URL.Hostname(), via[0].URL.Hostname()) }
	if elsewhere(req) || slices.ContainsFunc(via, elsewhere) { // who was once sent away may be sent back by anyone
		for _, name := range keyFields {
			req.Header.Del(name)
		}
	}
	return nil
}

// withoutPassword is a reference whose password, where it has one, is not to be read.
func withoutPassword(location string) string {
	if u, err := url.Parse(location); err == nil && u.User != nil {
		return u.Redacted()
	}
	return location
}
