package heed

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	utc := func(y int, m time.Month, d, h, min, s, ns int) time.Time {
		return time.Date(y, m, d, h, min, s, ns, time.UTC)
	}
	nov6 := utc(1994, 11, 6, 8, 49, 37, 0)
	for _, tt := range []struct {
		in   string
		want time.Time // zero: no instant
	}{
		// RFC 9110, section 5.6.7.
		{"Sun, 06 Nov 1994 08:49:37 GMT", nov6},
		{"Sunday, 06-Nov-94 08:49:37 GMT", nov6},
		{"Sun Nov  6 08:49:37 1994", nov6},
		{"Mon Nov 16 08:49:37 2026", utc(2026, 11, 16, 8, 49, 37, 0)},
		{"Sunday, 06-Nov-76 08:49:37 GMT", utc(1976, 11, 6, 8, 49, 37, 0)},
		{"Sunday, 06-Nov-75 08:49:37 GMT", utc(2075, 11, 6, 8, 49, 37, 0)},
		{"Sunday, 06-Nov-00 08:49:37 GMT", utc(2000, 11, 6, 8, 49, 37, 0)},
		{"Tuesday, 29-Feb-00 08:49:37 GMT", utc(2000, 2, 29, 8, 49, 37, 0)},
		// Other zones, one-digit days, any case, space around.
		{"Mon, 02 Jan 2006 15:04:05 UTC", utc(2006, 1, 2, 15, 4, 5, 0)},
		{"Mon, 02 Jan 2006 15:04:05 +0000", utc(2006, 1, 2, 15, 4, 5, 0)},
		{"Mon, 02 Jan 2006 15:04:05 -0700", utc(2006, 1, 2, 22, 4, 5, 0)},
		{"Mon, 02 Jan 2006 15:04:05 +05:30", utc(2006, 1, 2, 9, 34, 5, 0)},
		{"Mon, 02 Jan 2006 15:04:05 EST", utc(2006, 1, 2, 20, 4, 5, 0)},
		{"Mon, 2 Jan 2006 15:04:05 PDT", utc(2006, 1, 2, 22, 4, 5, 0)},
		{"Mon, 02 Jan 2006 15:04 UT", utc(2006, 1, 2, 15, 4, 0, 0)},
		{" mon, 02 jan 2006 15:04:05 gmt\t", utc(2006, 1, 2, 15, 4, 5, 0)},
		{"Fri, 31 Dec 9999 23:59:59 GMT", utc(9999, 12, 31, 23, 59, 59, 0)},
		{"Sat, 31 Dec 2016 23:59:60 GMT", utc(2017, 1, 1, 0, 0, 0, 0)},
		// RFC 3339 and its relatives.
		{"2021-07-08T00:00:00+00:00", utc(2021, 7, 8, 0, 0, 0, 0)},
		{"2025-10-08T15:00:00Z", utc(2025, 10, 8, 15, 0, 0, 0)},
		{"2025-10-08T15:00Z", utc(2025, 10, 8, 15, 0, 0, 0)},
		{"2026-01-01T00:00:00.000Z", utc(2026, 1, 1, 0, 0, 0, 0)},
		{"2026-01-01T00:00:00.5z", utc(2026, 1, 1, 0, 0, 0, 5e8)},
		{"2026-01-01t00:00:00.1234567Z", utc(2026, 1, 1, 0, 0, 0, 123456700)},
		{"2026-01-01T00:00:00.1234567891Z", utc(2026, 1, 1, 0, 0, 0, 123456790)},
		{"2026-01-01T00:00:00.999999999999Z", utc(2026, 1, 1, 0, 0, 1, 0)},
		{"2026-01-01T01:00:00+0100", utc(2026, 1, 1, 0, 0, 0, 0)},
		{"2026-01-01T01:00:00+01", utc(2026, 1, 1, 0, 0, 0, 0)},
		{"2026-01-01T01:00:00", utc(2026, 1, 1, 1, 0, 0, 0)},
		{"2016-12-06 05:51:23 UTC", utc(2016, 12, 6, 5, 51, 23, 0)},
		{"2016-12-06 05:51:23 +0100", utc(2016, 12, 6, 4, 51, 23, 0)},
		// ECMAScript.
		{"Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)", utc(2021, 2, 16, 8, 2, 42, 0)},
		// Java's and Go's.
		{"Tue Feb 16 09:02:42 UTC 2021", utc(2021, 2, 16, 9, 2, 42, 0)},
		{"Tue Feb 16 09:02:42 EST 2021", utc(2021, 2, 16, 14, 2, 42, 0)},
		{"2021-02-16 09:02:42.5 +0000 UTC", utc(2021, 2, 16, 9, 2, 42, 5e8)},
		{"2021-02-16 09:02:42 +0100 CET m=+12.345", utc(2021, 2, 16, 8, 2, 42, 0)},
		{in: "Tue Feb 16 09:02:42 CET 2021"},
		{in: "2021-02-16 09:02:42 +0100 CET x=1"},
		{"2021-02-16 09:02:42 -0300 -03 m=+12.345", utc(2021, 2, 16, 12, 2, 42, 0)},
		{"2021-02-16 09:02:42 +0545 +0545", utc(2021, 2, 16, 3, 17, 42, 0)},
		{in: "2021-02-16 09:02:42 -0300 -"},
		{in: "2021-02-16 09:02:42 -0300 -3"},
		{in: "2021-02-16 09:02:42 +0100 m=+12.345"},
		{"Tue Feb 16 2021 09:02:42 GMT+0100", utc(2021, 2, 16, 8, 2, 42, 0)},
		{"Tue Feb 16 2021 09:02:42 GMT-0330 (Newfoundland)", utc(2021, 2, 16, 12, 32, 42, 0)},
		{"Tue Feb 16 2021 09:02:42 UTC", utc(2021, 2, 16, 9, 2, 42, 0)},
		{"Mon, 02 Jan 2006 5:04:05 GMT", utc(2006, 1, 2, 5, 4, 5, 0)},
		{"Mon Jan  2 5:04:05 2006", utc(2006, 1, 2, 5, 4, 5, 0)},
		// No instants.
		{in: ""},
		{in: "30"},
		{in: "1700000000"},
		{in: "2021"},
		{in: "2021-07-08"},
		{in: "soon"},
		{in: "Sun"},
		{in: "Sun,"},
		{in: "Sun, 06 Nov 1994"},
		{in: "Sun, 06 Nov 1994 08:49:37"},
		{in: "Sun, 06 Nov 1994 08:49:37 XYZ"},
		{in: "Sun, 06 Nov 1994 08:49:37 IST"},
		{in: "Sun, 06 Nov 1994 08:49:37 GMT x"},
		{in: "Sun, 06-Nov 1994 08:49:37 GMT"},
		{in: "Sun, 06 Nov 994 08:49:37 GMT"},
		{in: "Sun, 06 Foo 1994 08:49:37 GMT"},
		{in: "Sun, 00 Nov 1994 08:49:37 GMT"},
		{in: "Sun, 31 Nov 1994 08:49:37 GMT"},
		{in: "Sun, 06 Nov 1994 24:49:37 GMT"},
		{in: "Sun, 06 Nov 1994 08:60:37 GMT"},
		{in: "Sun, 06 Nov 1994 08:49:61 GMT"},
		{in: "Xun, 06 Nov 1994 08:49:37 GMT"},
		{in: "Sun Nov  6 08:49:37"},
		{in: "Sun Nov  6 08:49:37 1994 GMT"},
		{in: "2023-02-29T00:00:00Z"},
		{in: "2023-13-01T00:00:00Z"},
		{in: "2023-00-01T00:00:00Z"},
		{in: "2023-01-01T00:00:00."},
		{in: "2023-01-01T00:00:00Zed"},
		{in: "2023-01-01T00:00:00+24:00"},
		{in: "2023-01-01T00:00:00+01:60"},
		{in: "Tue Feb 16 2021 09:02:42 GMT+0100 (Central"},
		{in: "12023-01-01T00:00:00Z"},
	} {
		got, ok := parseTime(tt.in)
		if ok == tt.want.IsZero() || !got.Equal(tt.want) {
			t.Errorf("parseTime(%q) = %v, %v; want %v", tt.in, got, ok, tt.want)
		}
	}
}

// RFC 9110, section 5.6.7: a two-digit year more than 50 years ahead is the
// most recent past year with the same digits.
func TestTwoDigitYearsAreReadNearNow(t *testing.T) {
	for _, tt := range []struct {
		now  string
		in   string
		want int
	}{
		{"2026-11-20T00:00:00Z", "Friday, 20-Nov-26 00:00:01 GMT", 2026},
		{"2026-11-20T00:00:00Z", "Friday, 20-Nov-76 00:00:00 GMT", 2076},
		{"2026-11-20T00:00:00Z", "Friday, 20-Nov-76 00:00:01 GMT", 1976},
		{"2026-11-20T00:00:00Z", "Friday, 20-Nov-77 00:00:00 GMT", 1977},
		{"2026-11-20T00:00:00Z", "Friday, 20-Nov-99 00:00:01 GMT", 1999},
		{"2099-12-31T23:59:59Z", "Friday, 01-Jan-00 00:00:01 GMT", 2100},
		{"2099-12-31T23:59:59Z", "Friday, 01-Jan-48 00:00:01 GMT", 2148},
		{"2099-12-31T23:59:59Z", "Friday, 01-Jan-60 00:00:01 GMT", 2060},
	} {
		now, _ := parseTime(tt.now)
		got, ok := parseTimeNear(tt.in, now)
		if !ok || got.Year() != tt.want {
			t.Errorf("at %s, %q = %v, %v; want the year %d", tt.now, tt.in, got, ok, tt.want)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sunday, 01-Nov-70 00:00:00 GMT",
		"Mon, 02 Jan 2006 15:04:05 UTC", "Mon, 02 Jan 2006 15:04:05 -0700", "2025-10-08T15:00Z",
		"2021-07-08T00:00:00.123+00:00", "2016-12-06 05:51:23 UTC",
		"Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)", "1700000000", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := parseTime(s)
		if !ok {
			if !got.IsZero() {
				t.Errorf("parseTime(%q) = %v without ok", s, got)
			}
			// net/http takes any name for a zone; hold it only to what it
			// would write itself.
			std, err := http.ParseTime(s)
			for _, layout := range []string{http.TimeFormat, time.RFC850, time.ANSIC} {
				if err == nil && std.UTC().Format(layout) == s {
					t.Errorf("parseTime(%q) refuses what net/http reads as %v", s, std)
				}
			}
			return
		}
		if got.Location() != time.UTC || got.Year() < -1 || got.Year() > 10000 {
			t.Errorf("parseTime(%q) = %v", s, got)
		}
		if std, err := http.ParseTime(s); err == nil && strings.HasSuffix(s, "GMT") && !std.Equal(got) &&
			!std.AddDate(100, 0, 0).Equal(got) && !std.AddDate(-100, 0, 0).Equal(got) { // of two digits it takes a century by a rule of its own
			t.Errorf("parseTime(%q) = %v, net/http %v", s, got, std)
		}
		again, ok := parseTime(got.Format("2006-01-02T15:04:05.999999999Z07:00"))
		if got.Year() >= 0 && got.Year() <= 9999 && (!ok || !again.Equal(got)) {
			t.Errorf("parseTime(%q) = %v, formatted and read again %v, %v", s, got, again, ok)
		}
	})
}

// The quick way to read the usual form gives what the slow one gives.
func TestFixdateAgreesWithTheScanner(t *testing.T) {
	for at := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 10000; at = at.Add(1000003 * 7 * time.Second) {
		checkFixdate(t, at.Format(http.TimeFormat))
	}
}

func FuzzFixdate(f *testing.F) {
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "Tue, 29 Feb 2000 24:00:00 GMT", "Thu, 01 Jan 0000 00:00:00 GMT",
		"Wed, 01 Mar 0000 00:00:60 GMT", "sun, 06 nov 1994 08:49:37 gmt", "Mon, 28 Feb 9999 23:59:59 GMT", "Sun, 06-Nov-1994 08:49:37 GMT",
	} {
		f.Add(s)
	}
	f.Fuzz(checkFixdate)
}

func checkFixdate(t *testing.T, s string) {
	got, ok := fixdate(s)
	if !ok {
		return
	}
	if want, ok := scanTime(s, century); !ok || !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("fixdate(%q) = %v, the scanner says %v, %v", s, got, want, ok)
	}
}
