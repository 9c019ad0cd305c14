package heedtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/heedhttp/heed/heedtest"
)

// fields returns the fields of an answer that concern limits, in one line.
func fields(resp *http.Response) string {
	var lines []string
	for _, name := range []string{
		"RateLimit-Policy", "RateLimit", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset",
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Used", "X-RateLimit-Reset", "X-RateLimit-Resource", "Retry-After",
	} {
		for _, v := range resp.Header.Values(name) {
			lines = append(lines, strings.TrimPrefix(name, "X-")+": "+v)
		}
	}
	return strings.Join(lines, " | ")
}

// In a bubble the time is 946684800 s after the epoch. Two policies; half a
// second after the first request three answers: one left, none left, refused.
func TestDialects(t *testing.T) {
	policies := []Policy{{Name: "a", Quota: 3, Window: 5 * time.Second}, {Name: "day", Quota: 100, Window: 24 * time.Hour}}
	for _, test := range []struct {
		dialect Dialect
		status  int
		want    [3]string
	}{
		{"", 429, [3]string{
			`RateLimit-Policy: "a";q=3;w=5, "day";q=100;w=86400 | RateLimit: "a";r=1;t=5, "day";r=98;t=86400`,
			`RateLimit-Policy: "a";q=3;w=5, "day";q=100;w=86400 | RateLimit: "a";r=0;t=5, "day";r=97;t=86400`,
			`RateLimit-Policy: "a";q=3;w=5, "day";q=100;w=86400 | RateLimit: "a";r=0;t=5, "day";r=97;t=86400 | Retry-After: 5`,
		}},
		{IETF07, 429, [3]string{
			`RateLimit-Policy: 3;w=5, 100;w=86400 | RateLimit: limit=3, remaining=1, reset=5`,
			`RateLimit-Policy: 3;w=5, 100;w=86400 | RateLimit: limit=3, remaining=0, reset=5`,
			`RateLimit-Policy: 3;w=5, 100;w=86400 | RateLimit: limit=3, remaining=0, reset=5 | Retry-After: 5`,
		}},
		{IETF06, 429, [3]string{
			`RateLimit-Policy: 3;w=5, 100;w=86400 | RateLimit-Limit: 3 | RateLimit-Remaining: 1 | RateLimit-Reset: 5`,
			`RateLimit-Policy: 3;w=5, 100;w=86400 | RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 5`,
			`RateLimit-Policy: 3;w=5, 100;w=86400 | RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 5 | Retry-After: 5`,
		}},
		{XRateLimit, 429, [3]string{
			`RateLimit-Limit: 3 | RateLimit-Remaining: 1 | RateLimit-Reset: 5`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 5`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 5 | Retry-After: 5`,
		}},
		{XRateLimitEpoch, 429, [3]string{
			`RateLimit-Limit: 3 | RateLimit-Remaining: 1 | RateLimit-Reset: 946684805`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 946684805`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 946684805 | Retry-After: 5`,
		}},
		{XRateLimitEpochMillis, 429, [3]string{
			`RateLimit-Limit: 3 | RateLimit-Remaining: 1 | RateLimit-Reset: 946684805000`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 946684805000`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Reset: 946684805000 | Retry-After: 5`,
		}},
		{GitHub, 403, [3]string{
			`RateLimit-Limit: 3 | RateLimit-Remaining: 1 | RateLimit-Used: 2 | RateLimit-Reset: 946684805 | RateLimit-Resource: a`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Used: 3 | RateLimit-Reset: 946684805 | RateLimit-Resource: a`,
			`RateLimit-Limit: 3 | RateLimit-Remaining: 0 | RateLimit-Used: 3 | RateLimit-Reset: 946684805 | RateLimit-Resource: a`,
		}},
		{RetryAfterOnly, 429, [3]string{"", "", "Retry-After: 5"}},
		{Silent, 429, [3]string{}},
	} {
		t.Run(string(test.dialect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := NewOrigin(Config{Dialect: test.dialect, Policies: policies})
				get(t, o)
				time.Sleep(500 * ms)
				for i, want := range test.want {
					resp := get(t, o)
					if got := fields(resp); got != want {
						t.Errorf("answer %d\n got %s\nwant %s", i, got, want)
					}
					if i == 2 && resp.StatusCode != test.status {
						t.Errorf("refused with %d", resp.StatusCode)
					}
				}
			})
		})
	}
}

// A window of 5 s opened at 0 and its reset as announced at 1.3 and 1.7 s.
func TestRounding(t *testing.T) {
	for _, test := range []struct {
		dialect  Dialect
		rounding Rounding
		want     [2]string
	}{
		{XRateLimit, "", [2]string{"4", "4"}},
		{XRateLimit, RoundDown, [2]string{"3", "3"}},
		{XRateLimit, RoundNearest, [2]string{"4", "3"}},
		{XRateLimit, RoundZero, [2]string{"0", "0"}},
		{XRateLimit, Exact, [2]string{"3.7", "3.3"}},
		{IETF11, Exact, [2]string{"4", "4"}},
		{XRateLimitEpoch, RoundUp, [2]string{"946684806", "946684806"}}, // the window began at …00.25
		{XRateLimitEpoch, RoundDown, [2]string{"946684805", "946684805"}},
		{XRateLimitEpoch, RoundNearest, [2]string{"946684805", "946684805"}},
		{XRateLimitEpoch, RoundZero, [2]string{"946684801", "946684801"}},
		{XRateLimitEpoch, Exact, [2]string{"946684805.25", "946684805.25"}},
		{XRateLimitEpochMillis, Exact, [2]string{"946684805250", "946684805250"}},
		{XRateLimitEpochMillis, RoundZero, [2]string{"946684801550", "946684801950"}},
	} {
		t.Run(fmt.Sprint(test.dialect, " ", test.rounding), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(250 * ms)
				o := NewOrigin(Config{Dialect: test.dialect, Rounding: test.rounding, Policies: []Policy{{Quota: 9, Window: 5 * time.Second}}})
				get(t, o)
				for i, at := range []time.Duration{1300 * ms, 400 * ms} {
					time.Sleep(at)
					resp := get(t, o)
					got := resp.Header.Get("X-RateLimit-Reset")
					if test.dialect == IETF11 {
						_, got, _ = strings.Cut(resp.Header.Get("RateLimit"), ";t=")
					}
					if got != test.want[i] {
						t.Errorf("reset %s, want %s", got, test.want[i])
					}
				}
			})
		})
	}
}

// Ten per ten seconds. Three are used at 0 s, a fourth at 2.5 s, and there too
// the other six.
func TestResetMeans(t *testing.T) {
	for _, test := range []struct {
		algorithm Algorithm
		left      [3]string // usual, next and full after the fourth
		none      [3]string // after the last
	}{
		{FixedWindow, [3]string{"7.5", "7.5", "7.5"}, [3]string{"7.5", "7.5", "7.5"}},
		{FixedWindowByClock, [3]string{"7.5", "7.5", "7.5"}, [3]string{"7.5", "7.5", "7.5"}},
		{SlidingWindow, [3]string{"7.5", "7.5", "10"}, [3]string{"7.5", "7.5", "10"}},
		// The estimate falls by one when 4·(1 - e/10) <= 3, after 2.5 s of the next
		// window, and when 10·(1 - e/10) <= 9, after 1 s of it.
		{SlidingCounter, [3]string{"7.5", "10", "17.5"}, [3]string{"8.5", "8.5", "17.5"}},
		// Of the first three, 2.5 have flowed back: 1.5 are missing, then 9.5 (half
		// a token left) with none whole.
		{TokenBucket, [3]string{"1.5", "0.5", "1.5"}, [3]string{"0.5", "0.5", "9.5"}},
		{GCRA, [3]string{"1.5", "0.5", "1.5"}, [3]string{"0.5", "0.5", "9.5"}},
	} {
		for i, mode := range []Reset{"", ResetNext, ResetFull} {
			synctest.Test(t, func(t *testing.T) {
				o := NewOrigin(Config{Algorithm: test.algorithm, Reset: mode, Dialect: XRateLimit, Rounding: Exact,
					Policies: []Policy{{Quota: 10, Window: 10 * time.Second}}})
				statuses(t, o, 3)
				time.Sleep(2500 * ms)
				h := get(t, o).Header
				if got := h.Get("X-RateLimit-Reset"); got != test.left[i] {
					t.Errorf("%s, reset %q, %s left: %s, want %s", test.algorithm, mode, h.Get("X-RateLimit-Remaining"), got, test.left[i])
				}
				for h.Get("X-RateLimit-Remaining") != "0" {
					h = get(t, o).Header
				}
				if got := h.Get("X-RateLimit-Reset"); got != test.none[i] {
					t.Errorf("%s, reset %q, none left: %s, want %s", test.algorithm, mode, got, test.none[i])
				}
			})
		}
	}
}

func TestConcurrencyIsAnnouncedWithoutReset(t *testing.T) {
	for dialect, want := range map[Dialect]string{
		IETF11:     `RateLimit-Policy: "c";q=4;qu="concurrent-requests" | RateLimit: "c";r=3`,
		IETF07:     `RateLimit: limit=4, remaining=3`,
		XRateLimit: `RateLimit-Limit: 4 | RateLimit-Remaining: 3`,
	} {
		o := NewOrigin(Config{Dialect: dialect, Algorithm: Concurrency, Policies: []Policy{{Name: "c", Quota: 4}}})
		if got := fields(get(t, o)); got != want {
			t.Errorf("%s: %s", dialect, got)
		}
		// Beside others, where the dialect has no unit, it is not announced.
		o = NewOrigin(Config{Dialect: dialect, Policies: []Policy{{Name: "c", Quota: 2, Unit: UnitConcurrentRequests}, {Name: "r", Quota: 9, Window: time.Second}}})
		if got := fields(get(t, o)); dialect != IETF11 && !strings.HasSuffix(got, "8 | RateLimit-Reset: 1") && !strings.HasSuffix(got, "remaining=8, reset=1") {
			t.Errorf("%s: %s", dialect, got)
		}
	}
}

func TestUnitsAndNamesAreQuoted(t *testing.T) {
	o := NewOrigin(Config{Policies: []Policy{
		{Name: `a"b\cé`, Quota: 5, Window: 1500 * ms, Unit: "points"}, {Quota: 6, Window: time.Second, Unit: UnitContentBytes},
	}})
	want := `RateLimit-Policy: "a\"b\\c??";q=5;qu="points";w=2, "policy-2";q=6;qu="content-bytes";w=1 | RateLimit: "a\"b\\c??";r=4;t=2, "policy-2";r=6;t=1`
	if got := fields(get(t, o)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestOnWhichAnswersFieldsAppear(t *testing.T) {
	policies := []Policy{{Quota: 10, Window: time.Hour}}
	for name, test := range map[string]struct {
		config Config
		want   string // of 12 answers, the last two of them refusals
	}{
		"all":                 {Config{}, "xxxxxxxxxxxx"},
		"every fifth":         {Config{Every: 5}, "x....x....x."},
		"below a third":       {Config{Below: 0.3}, ".......xxxxx"},
		"refusals":            {Config{OnRefusalsOnly: true}, "..........xx"},
		"refusals, if at all": {Config{OnRefusalsOnly: true, Every: 11}, "...........x"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.config.Policies = policies
				o := NewOrigin(test.config)
				got := ""
				for i := range 12 {
					resp := get(t, o)
					if (resp.Header.Get("Retry-After") != "") != (i >= 10) {
						t.Errorf("answer %d: Retry-After %q", i, resp.Header.Get("Retry-After"))
					}
					got += map[bool]string{true: "x", false: "."}[resp.Header.Get("RateLimit") != ""]
				}
				if got != test.want {
					t.Errorf("fields on %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestTightestPolicyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Tightest: true, Policies: []Policy{
			{Name: "long", Quota: 10, Window: time.Minute}, {Name: "short", Quota: 4, Window: time.Second},
		}})
		for i, want := range []string{
			`"short";q=4;w=1 "short";r=3;t=1`, `"short";q=4;w=1 "short";r=2;t=1`, `"short";q=4;w=1 "short";r=1;t=1`,
			`"short";q=4;w=1 "short";r=0;t=1`, `"short";q=4;w=1 "short";r=0;t=1`,
			`"long";q=10;w=60 "long";r=5;t=59`, // a half left, of the other three quarters
		} {
			if i == 5 {
				time.Sleep(time.Second)
			}
			h := get(t, o).Header
			if got := h.Get("RateLimit-Policy") + " " + h.Get("RateLimit"); got != want {
				t.Errorf("answer %d: %s, want %s", i, got, want)
			}
		}
	})
}

func TestThePolicyThatHoldsLongestIsTheTightest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Dialect: XRateLimit, Policies: []Policy{
			{Quota: 1, Window: time.Second}, {Quota: 1, Window: time.Minute}, {Quota: 1, Window: time.Second},
		}})
		if got := fields(get(t, o)); got != "RateLimit-Limit: 1 | RateLimit-Remaining: 0 | RateLimit-Reset: 60" {
			t.Error(got)
		}
	})
}

func TestQuotaZeroIsAnnounced(t *testing.T) {
	o := NewOrigin(Config{Below: 0.5, Policies: []Policy{{Quota: 0, Window: time.Minute}}})
	want := `RateLimit-Policy: "default";q=0;w=60 | RateLimit: "default";r=0;t=60`
	if got := fields(get(t, o)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// The last request is refused 2.4 s into a window of 10 s.
func TestRetryAfter(t *testing.T) {
	for _, test := range []struct {
		retryAfter RetryAfter
		want       string
	}{
		{RetryAfter{}, "8"},
		{RetryAfter{Mode: RetryAfterNone}, ""},
		{RetryAfter{Mode: RetryAfterConstant, Value: 4500 * ms}, "5"},
		{RetryAfter{Mode: RetryAfterWindow}, "10"},
		{RetryAfter{Mode: RetryAfterShort}, "3"},
		{RetryAfter{Mode: RetryAfterShort, Share: 1}, "7"},
		{RetryAfter{Mode: RetryAfterShort, Share: 0.01}, "0"},
		{RetryAfter{HTTPDate: true}, "Sat, 01 Jan 2000 00:00:13 GMT"}, // its clock is 3 s ahead
		{RetryAfter{Mode: RetryAfterShort, Share: 1, HTTPDate: true}, "Sat, 01 Jan 2000 00:00:12 GMT"},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := NewOrigin(Config{RetryAfter: test.retryAfter, ClockSkew: 3 * time.Second, Policies: []Policy{{Quota: 1, Window: 10 * time.Second}}})
			get(t, o)
			time.Sleep(2400 * ms)
			if got := get(t, o).Header.Get("Retry-After"); got != test.want {
				t.Errorf("%+v: %q, want %q", test.retryAfter, got, test.want)
			}
		})
	}
}

func TestSkewedClockShowsInDateAndEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{ClockSkew: -7 * time.Second, Dialect: XRateLimitEpoch, Algorithm: FixedWindowByClock,
			Policies: []Policy{{Quota: 1, Window: 10 * time.Second}}})
		h := get(t, o).Header // its clock says 23:59:53, the window has 7 s to go
		if h.Get("Date") != "Fri, 31 Dec 1999 23:59:53 GMT" || h.Get("X-RateLimit-Reset") != "946684800" {
			t.Error(h)
		}
		time.Sleep(7*time.Second - 1)
		wantStatuses(t, statuses(t, o, 1), 429)
		time.Sleep(time.Nanosecond)
		wantStatuses(t, statuses(t, o, 1), 200)
	})
}

func TestPhaseMovesWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(Config{Phase: 3 * time.Second, Algorithm: FixedWindowByClock, Policies: []Policy{{Quota: 1, Window: 10 * time.Second}}})
		if got := get(t, o).Header.Get("RateLimit"); got != `"default";r=0;t=3` {
			t.Error(got)
		}
	})
}
