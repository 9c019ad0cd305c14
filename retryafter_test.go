package heed

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	const (
		date = "Date: Tue, 02 Jun 2026 10:00:00 GMT"
		// An hour behind our clock.
		slow = "Date: Tue, 02 Jun 2026 09:00:00 GMT"
	)
	for _, tt := range []struct {
		lines string // several separated by "|"
		want  time.Duration
	}{
		{"Retry-After: 30", 30 * time.Second},
		{"Retry-After: 030", 30 * time.Second},
		{"Retry-After:  30\t", 30 * time.Second},
		{"Retry-After: 331775", 331775 * time.Second},
		{"Retry-After: 2.0", 2 * time.Second},
		{"Retry-After: 0.25", 250 * time.Millisecond},
		{"Retry-After: .5", 500 * time.Millisecond},
		{"Retry-After: 1.0000000001", time.Second + 1}, // never early
		{"Retry-After: 0", 0},
		{"Retry-After: 0.0", 0},

		// No hints.
		{"Retry-After: ", 0},
		{"Retry-After: -1", 0},
		{"Retry-After: -0.5", 0},
		{"Retry-After: +5", 0},
		{"Retry-After: 1e3", 0},
		{"Retry-After: 0x10", 0},
		{"Retry-After: 30s", 0},
		{"Retry-After: 30 seconds", 0},
		{"Retry-After: 3 0", 0},
		{"Retry-After: NaN", 0},
		{"Retry-After: Inf", 0},
		{"Retry-After: soon", 0},
		{"Retry-After: ٣٠", 0},
		{"Retry-After: 1_000", 0},

		// Long ones do not wrap.
		{"Retry-After: 9223372036", 9223372036 * time.Second},
		{"Retry-After: 9223372036.854775807", math.MaxInt64},
		{"Retry-After: 9223372037", math.MaxInt64},
		{"Retry-After: 18446744074", math.MaxInt64},
		{"Retry-After: 1000000000000", math.MaxInt64},
		{"Retry-After: 9223372036.854775808", math.MaxInt64},
		{"Retry-After: 1000000000001", 0},
		{"Retry-After: 9223372036854775807", 0},
		{"Retry-After: 18446744073709551616", 0},
		{"Retry-After: 99999999999999999999999999999999", 0},

		// Dates, by the clock of the server, or by ours where it shows none.
		{"Retry-After: Tue, 02 Jun 2026 10:02:00 GMT", 2 * time.Minute},
		{"Retry-After: Tuesday, 02-Jun-26 10:02:00 GMT", 2 * time.Minute},
		{"Retry-After: Tue Jun  2 10:02:00 2026", 2 * time.Minute},
		{"Retry-After: Tue, 02 Jun 2026 10:02:00 UTC", 2 * time.Minute},
		{"Retry-After: Tue, 02 Jun 2026 12:02:00 +0200", 2 * time.Minute},
		{"Retry-After: Tue, 02 Jun 2026 05:02:00 EST", 2 * time.Minute},
		{"Retry-After: 2026-06-02T10:02:00Z", 2 * time.Minute},
		{"Retry-After: 2026-06-02T10:02Z", 2 * time.Minute},
		{"Retry-After: 2026-06-02T12:02:00.5+02:00", 2*time.Minute + 500*time.Millisecond},
		{date + "|Retry-After: Tue, 02 Jun 2026 10:02:00 GMT", 2 * time.Minute},
		{slow + "|Retry-After: Tue, 02 Jun 2026 09:02:00 GMT", 2 * time.Minute},
		{slow + "|Retry-After: Tue, 02 Jun 2026 10:02:00 GMT", 62 * time.Minute},
		{slow + "|Retry-After: 30", 30 * time.Second},
		{"Date: yesterday|Retry-After: Tue, 02 Jun 2026 10:02:00 GMT", 2 * time.Minute},
		{"Retry-After: Tue, 02 Jun 2026 09:59:59 GMT", 0},
		{"Retry-After: Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", math.MaxInt64},
		{"Retry-After: 0001-01-01T00:00:00Z", 0},
		{"Retry-After: Tue, 02 Jun 2026", 0},
		{"Retry-After: Tue, 02 Jun 2026 10:02:00", 0},

		// Several values: the longest valid one.
		{"Retry-After: 5|Retry-After: 30|Retry-After: 7", 30 * time.Second},
		{"Retry-After: 5, 30,7", 30 * time.Second},
		{"Retry-After: 5|Retry-After: never", 5 * time.Second},
		{"Retry-After: never|Retry-After: 5", 5 * time.Second},
		{"Retry-After: |Retry-After: 5", 5 * time.Second},
		{"Retry-After: -5|Retry-After: 5", 5 * time.Second},
		{"Retry-After: 1|Retry-After: Tue, 02 Jun 2026 10:02:00 GMT", 2 * time.Minute},
		{"Retry-After: Tue, 02 Jun 2026 10:02:00 GMT, 1", 2 * time.Minute},
		{"Retry-After: 1, Tue, 02 Jun 2026 10:02:00 GMT", 2 * time.Minute},
		{"Retry-After: Tue, 02 Jun 2026 10:02:00 GMT, Tue, 02 Jun 2026 10:03:00 GMT", 3 * time.Minute},
		{"Retry-After: Tue, 02 Jun 2026 10:02:00 GMT,", 2 * time.Minute},
		{"Retry-After: Tue,", 0},
		{"Retry-After: ,,,5,,", 5 * time.Second},
		{"Retry-After: 1000000000001, 5", 5 * time.Second},

		// The siblings come first, the milliseconds before all.
		{"Retry-After-Ms: 1500", 1500 * time.Millisecond},
		{"Retry-After-Ms: 0.5", 500 * time.Microsecond},
		{"Retry-After-Ms: 0.0000001", 1},
		{"X-Ms-Retry-After-Ms: 250", 250 * time.Millisecond},
		{"X-Retry-In: 565.087221ms", 565087221},
		{"X-Retry-In: 2m59.56s", 2*time.Minute + 59560*time.Millisecond},
		{"Retry-After: 2|Retry-After-Ms: 1500", 1500 * time.Millisecond},
		{"Retry-After: 1|X-Retry-In: 565ms", 565 * time.Millisecond},
		{"Retry-After-Ms: 1500|X-Ms-Retry-After-Ms: 250|X-Retry-In: 9s|Retry-After: 7", 1500 * time.Millisecond},
		{"X-Ms-Retry-After-Ms: 250|X-Retry-In: 9s|Retry-After: 7", 250 * time.Millisecond},
		{"Retry-After-Ms: 10|Retry-After-Ms: 20", 20 * time.Millisecond},
		{"Retry-After-Ms: soon|Retry-After: 7", 7 * time.Second},
		{"Retry-After-Ms: -1|Retry-After: 7", 7 * time.Second},
		{"Retry-After-Ms: 0|Retry-After: 7", 7 * time.Second},
		{"X-Retry-In: -5s|Retry-After: 7", 7 * time.Second},
		{"X-Retry-In: 9999999h|Retry-After: 7", 7 * time.Second},
		{"Retry-After-Ms: 9223372036855", math.MaxInt64},
		{"Retry-After-Ms: 1000000000000000", math.MaxInt64},
		{"Retry-After-Ms: 1000000000000001", 0},
	} {
		a := announcedBy(429, strings.Split(tt.lines, "|")...)
		if a.RetryAfter != tt.want {
			t.Errorf("%q: %v, want %v", tt.lines, a.RetryAfter, tt.want)
		}
	}
}

// RFC 9110, section 10.2.3, takes whole seconds of Date and Retry-After: what is
// left of Date's second is waited, not saved.
func TestDatesAreNeverReadEarly(t *testing.T) {
	start := testNow
	for _, into := range []time.Duration{0, 1, 999 * time.Millisecond} {
		made := start.Add(into)
		h := fieldsOf("Date: "+made.Format("Mon, 02 Jan 2006 15:04:05 GMT"), "Retry-After: Tue, 02 Jun 2026 10:00:30 GMT")
		a := announcementOf("", 429, h, nil, made, nil)
		if until := made.Add(a.RetryAfter); until.Before(start.Add(30 * time.Second)) {
			t.Errorf("made %v into the second: free at %v", into, until)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"30", "2.0", "0.25", "0", "-1", "331775", "9223372037", "18446744074", "1000000000000",
		"Tue, 02 Jun 2026 10:02:00 GMT", "Tuesday, 02-Jun-26 10:02:00 GMT", "Tue Jun  2 10:02:00 2026", "2026-06-02T10:02Z", "565.08ms", "5, 30,7",
		"1, Tue, 02 Jun 2026 10:02:00 GMT", ",,,"} {
		f.Add(s, "Tue, 02 Jun 2026 09:00:00 GMT")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, s, date string) {
		for _, name := range []string{fieldRetryAfter, fieldRetryAfterMs, fieldMsRetryAfterMs, fieldRetryIn} {
			h := map[string][]string{name: {s}, "Date": {date}}
			a := announcementOf("", 429, h, nil, testNow, nil)
			if a.RetryAfter < 0 {
				t.Errorf("%s: %q is %v", name, s, a.RetryAfter)
			}
			// One more value can only make it longer.
			h[name] = []string{s, "7"}
			more := announcementOf("", 429, h, nil, testNow, nil).RetryAfter
			if more < a.RetryAfter || name == fieldRetryAfter && more < 7*time.Second {
				t.Errorf("%s: %q is %v, with 7 beside it %v", name, s, a.RetryAfter, more)
			}
		}
	})
}
