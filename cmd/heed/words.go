package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/heedhttp/heed/heedtest"
)

// grouped writes n with its thousands apart: 12,345.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// every writes a window as a rate does: "second", "10 seconds", "hour".
func every(d time.Duration) string {
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		switch {
		case d == u.d:
			return u.name
		case d > u.d && d%u.d == 0:
			return fmt.Sprintf("%d %ss", d/u.d, u.name)
		}
	}
	return d.String()
}

// span writes a length of time for people: to the second from ten seconds on.
func span(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		s := d.Round(time.Second).String() // 1h0m0s
		if strings.HasSuffix(s, "m0s") {
			s = s[:len(s)-2]
		}
		if strings.HasSuffix(s, "h0m") {
			s = s[:len(s)-2]
		}
		return s
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// printable is a server's text with a mark for each character that a terminal
// would not show but obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// inWords writes policies as a list.
func inWords(policies []heedtest.Policy) string {
	var parts []string
	for _, p := range policies {
		parts = append(parts, fmt.Sprintf("%s requests per %s", grouped(p.Quota), every(p.Window)))
	}
	return strings.Join(parts, " and ")
}

// dialectWords says in which fields limits are stated, by the name of the
// dialect.
func dialectWords(name string) string {
	switch name {
	case "ietf-11":
		return "the IETF's RateLimit and RateLimit-Policy fields (drafts 08 to 11)"
	case "ietf-07":
		return "the IETF's RateLimit fields as of draft 07"
	case "ietf-06":
		return "the three RateLimit fields of the IETF's drafts up to 06"
	case "x-ratelimit":
		return "the X-RateLimit fields that many services send"
	case "x-rate-limit":
		return "the X-Rate-Limit fields that many services send"
	case "rate-limit":
		return "the Rate-Limit fields that some services send"
	case "ratelimit":
		return "fields named as the IETF's, with meanings of their own"
	case "vendor":
		return "the usual fields behind a prefix of its own"
	case inBody:
		return "in the body of the answer"
	case "":
		return "in fields nobody has described"
	}
	return "the fields that " + name + " is known to send"
}
