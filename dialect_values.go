package heed

import (
	"strings"
	"time"
)

// maxSpan bounds what a dialect's field can state as a time: far beyond what
// anyone waits for, and far from overflow.
const maxSpan = ages

// A span is a time as a field states it.
type span struct {
	d     time.Duration // from the response's receipt; 0 for what is past
	grain time.Duration // as ServiceLimit.Resolution
	clock bool          // as ServiceLimit.Clock
}

// A decimal is a number as fields write them.
type decimal struct {
	neg   bool
	whole int64
	nanos int64 // the fraction, in billionths; further digits round up
	frac  int   // digits of the fraction
}

// scanDecimal reads a number at the beginning of s,
//
//	number = [ "-" ] ( 1*18DIGIT [ "." *DIGIT ] / "." 1*DIGIT )
//
// and returns what follows it.
func scanDecimal(s string) (n decimal, rest string, ok bool) {
	i := 0
	if i < len(s) && s[i] == '-' {
		n.neg = true
		i++
	}
	start := i
	for ; i < len(s) && isDigit(s[i]); i++ {
		if i-start == 18 {
			return n, s, false
		}
		n.whole = n.whole*10 + int64(s[i]-'0')
	}
	digits := i - start
	if i < len(s) && s[i] == '.' {
		i++
		more := false
		for ; i < len(s) && isDigit(s[i]); i++ {
			if n.frac < 9 {
				n.nanos = n.nanos*10 + int64(s[i]-'0')
				n.frac++
			} else if s[i] != '0' {
				more = true
			}
			digits++
		}
		for f := n.frac; f < 9; f++ {
			n.nanos *= 10
		}
		if more {
			n.nanos++
		}
	}
	return n, s[i:], digits > 0
}

// duration returns n units, maxSpan at most.
func (n decimal) duration(unit time.Duration) time.Duration {
	if n.whole > int64(maxSpan/unit) {
		return maxSpan
	}
	d := time.Duration(n.whole) * unit
	if unit >= time.Second { // a fraction of it in nanoseconds, exactly
		return d + time.Duration(n.nanos)*(unit/time.Second)
	}
	part := n.nanos * int64(unit)
	d += time.Duration(part / 1e9)
	if part%1e9 != 0 {
		d++
	}
	return d
}

// bare removes white space from both ends, and quotation marks, which some put
// around a number.
func bare(s string) string {
	if s = trimOWS(s); len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = trimOWS(s[1 : len(s)-1])
	}
	return s
}

// groupsThousands reports whether the commas in s group the digits of one
// number, "10,000", and do not part several, as proxies join them: of those none
// begins with 0, and they join those of all fields. alone: the other fields have but one.
func groupsThousands(s string, alone bool) bool {
	s = bare(s)
	if strings.IndexByte(s, ',') < 0 || !inThousands(s) {
		return false
	}
	return strings.Contains(s, ",0") || alone && s[0] != '0'
}

// inThousands reports whether s could be one number, whose digits commas group if it has any.
func inThousands(s string) bool {
	first, rest, more := strings.Cut(bare(s), ",")
	if more && (len(first) == 0 || len(first) > 3 || !allDigits(first)) {
		return false
	}
	for more {
		var group string
		if group, rest, more = strings.Cut(rest, ","); len(group) != 3 || !allDigits(group) {
			return false
		}
	}
	return true
}

// parseCount reads a number of units: of several, separated by commas, the
// first. It reports false for what is no number, below zero, or above zero and
// below one.
func parseCount(s string) (int64, bool) {
	n, rest, ok := scanDecimal(bare(s))
	if !ok || n.neg || n.whole == 0 && n.nanos > 0 {
		return -1, false
	}
	if rest = trimOWS(rest); rest != "" && rest[0] != ',' && rest[0] != ';' {
		return -1, false
	}
	return n.whole, true
}

// parseCountPer reads
//
//	count-per = count "/" ( period / unit / word )
//
// a quota and its window in one: "150/15m", "100/hour", "100/h".
func parseCountPer(s string) (n int64, window time.Duration, ok bool) {
	count, per, more := strings.Cut(bare(s), "/")
	if n, ok = parseCount(count); !ok || !more {
		return -1, 0, false
	}
	per = strings.ToLower(trimOWS(per))
	if window = wordWindow(per); window > 0 {
		return n, window, true
	}
	if window, ok = parsePeriod(per); !ok {
		window, ok = parsePeriod("1" + per) // "100/h"
	}
	return n, window, ok && window > 0
}

// left reads what is left of a quota, negative where that is not said. Of
// several limiters that are not told apart the tightest counts.
func (r *dialectReader) left(g *quotaGroup, grouped, quotaKnown bool) int64 {
	left := int64(-1)
	if g.name[roleRemaining] == "" {
		return left
	}
	lines := r.h[g.name[roleRemaining]]
	if r.stacked > 0 {
		lines = apartLines(lines, ",")[r.line : r.line+1]
	}
	for _, line := range lines {
		if grouped {
			line = strings.ReplaceAll(line, ",", "")
		}
		n, ok := parseLeft(line)
		if !ok && r.refused && quotaKnown && strings.HasPrefix(line, "-") {
			n, ok = 0, true // refused requests are counted too
		}
		if ok && (left < 0 || n < left) {
			left = n
		}
	}
	return left
}

// parseLeft reads what is left of a quota. Of several numbers, as a proxy joins
// them, the least counts; less than one unit left is nothing left.
func parseLeft(s string) (int64, bool) {
	left := int64(-1)
	s = bare(s)
	for {
		n, rest, ok := scanDecimal(trimOWS(s))
		if rest = trimOWS(rest); !ok || n.neg || rest != "" && rest[0] != ',' && rest[0] != ';' {
			return left, left >= 0
		}
		if left < 0 || n.whole < left {
			left = n.whole
		}
		_, s, ok = strings.Cut(rest, ",")
		if !ok {
			return left, true
		}
	}
}

// parseSpan reads a time, of several numbers that a proxy joined the longest; ref is the server's clock at the response's receipt.
// It reports false for what says nothing: no time at all, a negative span, an
// instant too far from now to be one.
func parseSpan(s string, form TimeForm, ref time.Time) (span, bool) {
	s = bare(s)
	if s == "" {
		return span{}, false
	}
	if n, rest, ok := scanDecimal(s); ok {
		if rest = trimOWS(rest); rest == "" || rest[0] == ',' || rest[0] == ';' {
			return n.longest(rest, form, ref)
		}
		if d, ok := parsePeriod(s); ok {
			return span{d: d}, true
		}
	}
	t, ok := parseTime(s)
	if !ok {
		return span{}, false
	}
	grain := time.Second
	switch {
	case t.Nanosecond() != 0 || strings.Contains(s, "."):
		grain = time.Millisecond
	case strings.Count(s, ":") == 1: // no seconds
		grain = time.Minute
	}
	return until(t, ref, grain)
}

// firstEpoch is the least number of seconds taken for an instant and not for a
// span: a span would be of more than 15 years, an instant is after 1985.
const firstEpoch = 5e8

// span reads a plain number as form says.
func (n decimal) span(form TimeForm, ref time.Time) (span, bool) {
	if n.neg || n.whole >= 1e14 {
		return span{}, false
	}
	unit := time.Second
	if form == TimeMilliseconds && n.whole < 1e11 || n.whole >= 1e11 {
		unit = time.Millisecond
	}
	grain := unit
	if n.frac > 0 {
		grain = time.Millisecond
	}
	if n.whole >= firstEpoch && (form == TimeAuto || n.whole >= 1e11) {
		if unit == time.Second {
			return until(time.Unix(n.whole, n.nanos), ref, grain)
		}
		return until(time.UnixMilli(n.whole).Add(time.Duration(n.nanos/1000)), ref, grain)
	}
	d := n.duration(unit)
	return span{d: d, grain: grain}, true
}

// longest is the longest of n and the numbers that follow it, each after a comma.
func (n decimal) longest(rest string, form TimeForm, ref time.Time) (span, bool) {
	most, known := n.span(form, ref)
	for range maxStacked {
		_, more, _ := strings.Cut(rest, ",")
		n, after, ok := scanDecimal(trimOWS(more))
		if !ok {
			break
		}
		if s, ok := n.span(form, ref); ok && (!known || s.d > most.d) {
			most, known = s, true
		}
		rest = after
	}
	return most, known
}

// until is the span to an instant of the server's clock.
func until(t, ref time.Time, grain time.Duration) (span, bool) {
	return span{d: min(max(0, t.Sub(ref)), maxSpan), grain: grain, clock: true}, true
}

// parsePeriod reads a duration with units, as Go and others write it:
//
//	period = 1*( number unit )
//	unit   = "ns" / "us" / "µs" / "ms" / "s" / "m" / "h" / "d"
func parsePeriod(s string) (time.Duration, bool) {
	var sum time.Duration
	for s != "" {
		n, rest, ok := scanDecimal(s)
		if !ok || n.neg {
			return 0, false
		}
		var unit time.Duration
		switch {
		case strings.HasPrefix(rest, "ns"):
			unit, s = time.Nanosecond, rest[2:]
		case strings.HasPrefix(rest, "us"):
			unit, s = time.Microsecond, rest[2:]
		case strings.HasPrefix(rest, "µs"), strings.HasPrefix(rest, "μs"):
			unit, s = time.Microsecond, rest[3:]
		case strings.HasPrefix(rest, "ms"):
			unit, s = time.Millisecond, rest[2:]
		case strings.HasPrefix(rest, "s"):
			unit, s = time.Second, rest[1:]
		case strings.HasPrefix(rest, "m"):
			unit, s = time.Minute, rest[1:]
		case strings.HasPrefix(rest, "h"):
			unit, s = time.Hour, rest[1:]
		case strings.HasPrefix(rest, "d"):
			unit, s = day, rest[1:]
		default:
			return 0, false
		}
		d := n.duration(unit)
		sum = min(sum+d, maxSpan)
	}
	return sum, true
}

// windowName names a policy that has no name but its window: "second",
// "minute", "hour", "day", "week", or the length, "15m".
func windowName(w time.Duration) string {
	switch w {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case day:
		return "day"
	case 7 * day:
		return "week"
	}
	s := w.String() // "15m0s", "6h0m0s"
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// wordWindow returns the window that the name of a dimension tells by one of
// its words ("minute", "perday", "15min", "req-minute", "used-weight-1m"), 0 for
// none. A number that is a word of its own says how many only where the name begins
// with it ("24-hour"): further on it is part of an address, a version, somebody's
// number. A month is 30 days, a year 365.
func wordWindow(dim string) time.Duration {
	next, begun := int64(1), false
	for word := range strings.FieldsFuncSeq(dim, isDash) {
		count := next
		next = 1
		if n, rest, ok := scanDecimal(word); ok && n.whole > 0 && n.frac == 0 {
			if d, ok := parsePeriod(word); ok {
				return d
			}
			if rest == "" && !begun {
				next = n.whole
			}
			count, word = n.whole, rest
		}
		if unit := wordTime(strings.TrimPrefix(word, "per")); unit > 0 {
			return min(times(count, unit), maxSpan)
		}
		begun = true
	}
	return 0
}

// wordTime is the length of what a word names, 0 where that is no time.
func wordTime(word string) time.Duration {
	switch word {
	case "second", "secondly", "sec":
		return time.Second
	case "minute", "minutely", "min":
		return time.Minute
	case "hour", "hourly":
		return time.Hour
	case "day", "daily":
		return day
	case "week", "weekly":
		return 7 * day
	case "month", "monthly":
		return 30 * day
	case "year", "yearly":
		return 365 * day
	}
	return 0
}

// wordUnit returns the unit that the name of a dimension tells by one of its
// words, "" for requests.
func wordUnit(dim string) Unit {
	for word := range strings.FieldsFuncSeq(dim, isDash) {
		switch word {
		case "token", "tokens":
			return "tokens"
		case "image", "images":
			return "images"
		case "complexity", "credits", "points", "weight", "cost", "characters", "pages", "neurons":
			return Unit(word)
		case "bytes":
			return UnitContentBytes
		case "concurrent", "concurrency":
			return UnitConcurrentRequests
		}
	}
	return ""
}

func isDash(r rune) bool { return r == '-' || r == '_' || r == '.' }

// setRate gives a policy the rate a field states in units per window, or per
// second where there is none: of its quota where it has one, or else as so many
// in that time, or one in so long.
func setRate(p *Policy, value string, sure bool) {
	n, rest, ok := scanDecimal(trimOWS(value))
	if !ok || n.neg || trimOWS(rest) != "" {
		return
	}
	rate := float64(n.whole) + float64(n.nanos)/1e9
	if p.Window > 0 {
		rate /= p.Window.Seconds()
	}
	if rate <= 0 {
		return
	}
	switch {
	case !sure && p.Window == 0 && p.Quota > 0 && rate >= float64(p.Quota): // the quota once more, by another name
		return
	case p.Quota > 0:
	case rate < 1:
		p.Quota = 1
	default:
		p.Quota = n.whole // the window makes the rate exact
	}
	setRefill(p, rate)
}

// setRefill makes the window of a policy so long that its quota is given back
// in it, at so many units a second.
func setRefill(p *Policy, rate float64) {
	if p.Quota > 0 && rate > 0 {
		p.Window = time.Duration(min(float64(p.Quota)/rate*1e9, float64(maxSpan)))
	}
}
