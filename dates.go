package heed

import "time"

// maxDateLen bounds the text looked at for a date. The longest forms met, those
// of JavaScript's Date.toString, spell out the name of the time zone.
const maxDateLen = 128

// century settles the century of two-digit years for callers without a clock.
var century = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// parseTime parses an instant as servers write them: the three HTTP-date forms,
// RFC 1123 with other zones than GMT, RFC 3339 and its relatives, and
// JavaScript's Date.toString. The result is in UTC. A number alone is no
// instant, and neither is a date without a time.
//
// Names of days and months are matched in any case, and a day of the week that
// disagrees with the date is overlooked.
func parseTime(s string) (time.Time, bool) { return parseTimeNear(s, century) }

// parseTimeNear is parseTime for a caller that knows the time: a two-digit year
// more than 50 years ahead of now means the past (RFC 9110, section 5.6.7).
func parseTimeNear(s string, now time.Time) (time.Time, bool) {
	s = trimOWS(s)
	if len(s) == 0 || len(s) > maxDateLen {
		return time.Time{}, false
	}
	if t, ok := fixdate(s); ok {
		return t, true
	}
	return scanTime(s, now)
}

// scanTime is parseTimeNear for all forms, s without white space around it.
func scanTime(s string, now time.Time) (time.Time, bool) {
	d := dateScanner{s: s}
	if isDigit(s[0]) {
		return d.iso()
	}
	return d.http(now)
}

// A dateScanner reads one date from the left.
type dateScanner struct {
	s string
	i int
}

// http reads the dates that begin with the day of the week:
//
//	IMF-fixdate = day-name "," SP day SP month SP year SP time SP "GMT"
//	rfc850-date = day-name-l "," SP day "-" month "-" 2DIGIT SP time SP "GMT"
//	asctime     = day-name SP month SP ( 2DIGIT / SP 1DIGIT ) SP time SP year
//	js-date     = day-name SP month SP day SP year SP time SP zone [ SP "(" … ")" ]
//	java-date   = day-name SP month SP day SP time SP zone SP year
//
// (RFC 9110, section 5.6.7; ECMA-262, section 21.4.4.41.1), where GMT may be
// any zone and a day has one digit or two.
func (d *dateScanner) http(now time.Time) (time.Time, bool) {
	if !isWeekday(d.word()) {
		return time.Time{}, false
	}
	comma := d.eat(',')
	if !d.spaces() && !comma {
		return time.Time{}, false
	}
	if comma {
		return d.dayFirst(now)
	}
	return d.monthFirst()
}

// dayFirst reads the rest of an IMF-fixdate or an rfc850-date.
func (d *dateScanner) dayFirst(now time.Time) (time.Time, bool) {
	day, n, ok := d.number(2)
	sep := d.peek()
	if !ok || n == 0 || sep != ' ' && sep != '-' {
		return time.Time{}, false
	}
	d.i++
	month, ok := monthOf(d.word())
	if !ok || !d.eat(sep) {
		return time.Time{}, false
	}
	year, digits, ok := d.number(4)
	if !ok || digits != 2 && digits != 4 || !d.spaces() {
		return time.Time{}, false
	}
	c, zone, ok := d.clockInZone()
	if !ok || !d.done() {
		return time.Time{}, false
	}
	if digits == 2 {
		year += now.UTC().Year() / 100 * 100
		switch ahead := year - now.UTC().Year(); {
		case ahead < -50:
			year += 100
		case ahead > 50:
			year -= 100
		case ahead == 50:
			if t, ok := c.on(year, month, day, zone); ok && t.After(now.AddDate(50, 0, 0)) {
				year -= 100
			}
		}
	}
	return c.on(year, month, day, zone)
}

// monthFirst reads the rest of an asctime, of a java-date, or of a js-date, where the year comes before the time.
func (d *dateScanner) monthFirst() (time.Time, bool) {
	month, ok := monthOf(d.word())
	if !ok || !d.spaces() {
		return time.Time{}, false
	}
	day, _, ok := d.number(2)
	if !ok || !d.spaces() {
		return time.Time{}, false
	}
	javaScript := d.i+2 < len(d.s) && isDigit(d.s[d.i+1]) && isDigit(d.s[d.i+2])
	if !javaScript {
		c, ok := d.clock()
		if !ok || !d.spaces() {
			return time.Time{}, false
		}
		zone := 0
		if isAlpha(d.peek()) { // Java
			if zone, ok = d.zone(); !ok || !d.spaces() {
				return time.Time{}, false
			}
		}
		year, digits, ok := d.number(4)
		if !ok || digits != 4 || !d.done() {
			return time.Time{}, false
		}
		return c.on(year, month, day, zone)
	}
	year, digits, ok := d.number(4)
	if !ok || digits != 4 || !d.spaces() {
		return time.Time{}, false
	}
	c, zone, ok := d.clockInZone()
	if !ok || !d.comment() || !d.done() {
		return time.Time{}, false
	}
	return c.on(year, month, day, zone)
}

// iso reads
//
//	date-time = 4DIGIT "-" 2DIGIT "-" 2DIGIT ( "T" / "t" / 1*SP ) time [ *SP zone [ go ] ]
//	go        = 1*SP name [ 1*SP "m=" … ]
//
// which is RFC 3339 (section 5.6), with what is seen beside it: no seconds, a
// space for the T, offsets without a colon, the name of a zone, and behind an offset
// what Go's Time.String has there. Servers that leave the zone out mean UTC.
func (d *dateScanner) iso() (time.Time, bool) {
	year, n, ok := d.number(4)
	if !ok || n != 4 || !d.eat('-') {
		return time.Time{}, false
	}
	month, n, ok := d.number(2)
	if !ok || n != 2 || month < 1 || month > 12 || !d.eat('-') {
		return time.Time{}, false
	}
	day, n, ok := d.number(2)
	if !ok || n != 2 || !(d.eat('T') || d.eat('t') || d.spaces()) {
		return time.Time{}, false
	}
	c, ok := d.clock()
	if !ok {
		return time.Time{}, false
	}
	d.spaces()
	zone := 0
	if !d.done() {
		if zone, ok = d.zone(); !ok || !d.done() && !d.goTail() {
			return time.Time{}, false
		}
	}
	return c.on(year, time.Month(month), day, zone)
}

// A clock is a time of day.
type clock struct{ hour, min, sec, nsec int }

// clockInZone reads time SP zone, as in an IMF-fixdate; spaces between them may be missing.
func (d *dateScanner) clockInZone() (c clock, zone int, ok bool) {
	if c, ok = d.clock(); !ok {
		return c, 0, false
	}
	d.spaces()
	zone, ok = d.zone()
	return c, zone, ok
}

// clock reads
//
//	time = 1*2DIGIT ":" 2DIGIT [ ":" 2DIGIT [ ( "." / "," ) 1*DIGIT ] ]
//
// Digits past the nanosecond round up: a client that starts late breaks
// nothing.
func (d *dateScanner) clock() (clock, bool) {
	var c clock
	var n int
	var ok bool
	if c.hour, _, ok = d.number(2); !ok || c.hour > 23 || !d.eat(':') {
		return c, false
	}
	if c.min, n, ok = d.number(2); !ok || n != 2 || c.min > 59 {
		return c, false
	}
	if !d.eat(':') {
		return c, true
	}
	if c.sec, n, ok = d.number(2); !ok || n != 2 || c.sec > 60 { // 60: a leap second
		return c, false
	}
	if !d.eat('.') && !d.eat(',') {
		return c, true
	}
	digits, more := 0, false
	for ; isDigit(d.peek()); d.i++ {
		if digits < 9 {
			c.nsec = c.nsec*10 + int(d.peek()-'0')
		} else if d.peek() != '0' {
			more = true
		}
		digits++
	}
	for n := digits; n < 9; n++ {
		c.nsec *= 10
	}
	if more {
		c.nsec++
	}
	return c, digits > 0
}

// on puts the time of day on a date, zone seconds east of Greenwich.
func (c clock) on(year int, month time.Month, day, zone int) (time.Time, bool) {
	if day < 1 || day > daysIn(year, month) {
		return time.Time{}, false
	}
	return time.Date(year, month, day, c.hour, c.min, c.sec-zone, c.nsec, time.UTC), true
}

// zone reads
//
//	zone   = "Z" / name / [ ( "GMT" / "UTC" ) ] offset
//	offset = ( "+" / "-" ) 2DIGIT [ [ ":" ] 2DIGIT ]
//
// as seconds east of Greenwich. Names are known to be unsafe: only those that
// RFC 5322 (section 4.3) gives a meaning are taken.
func (d *dateScanner) zone() (int, bool) {
	zone := 0
	if isAlpha(d.peek()) {
		name := d.word()
		known := false
		for _, z := range zones {
			if equalASCII(name, z.name) {
				zone, known = z.hours*3600, true
				break
			}
		}
		if !known {
			return 0, false
		}
		if zone != 0 || len(name) == 1 || d.peek() != '+' && d.peek() != '-' {
			return zone, true
		}
	}
	sign := 1
	if d.eat('-') {
		sign = -1
	} else if !d.eat('+') {
		return 0, false
	}
	hours, n, ok := d.number(2)
	if !ok || n != 2 || hours > 23 {
		return 0, false
	}
	minutes := 0
	if d.eat(':') || isDigit(d.peek()) {
		if minutes, n, ok = d.number(2); !ok || n != 2 || minutes > 59 {
			return 0, false
		}
	}
	return sign * (hours*3600 + minutes*60), true
}

var zones = [...]struct {
	name  string
	hours int
}{
	{"GMT", 0}, {"UTC", 0}, {"UT", 0}, {"Z", 0},
	{"EST", -5}, {"EDT", -4}, {"CST", -6}, {"CDT", -5},
	{"MST", -7}, {"MDT", -6}, {"PST", -8}, {"PDT", -7},
}

// comment passes over the parenthesised name of a time zone, if there is one.
func (d *dateScanner) comment() bool {
	d.spaces()
	if !d.eat('(') {
		return true
	}
	for !d.done() {
		d.i++
		if d.s[d.i-1] == ')' {
			return true
		}
	}
	return false
}

// goTail passes over what Go's Time.String writes behind an offset: the zone's name, which is another offset where it
// has none ("-03"), and the reading of its monotonic clock.
func (d *dateScanner) goTail() bool {
	if !d.spaces() {
		return false
	}
	if d.word() == "" {
		if !d.eat('+') && !d.eat('-') {
			return false
		}
		if _, digits, ok := d.number(4); !ok || digits%2 != 0 {
			return false
		}
	}
	if d.spaces() && d.eat('m') && d.eat('=') {
		d.i = len(d.s)
	}
	return d.done()
}

// number reads up to max digits and says how many there were.
func (d *dateScanner) number(max int) (v, digits int, ok bool) {
	for ; digits < max && isDigit(d.peek()); digits++ {
		v = v*10 + int(d.peek()-'0')
		d.i++
	}
	return v, digits, digits > 0
}

// word reads letters.
func (d *dateScanner) word() string {
	start := d.i
	for isAlpha(d.peek()) {
		d.i++
	}
	return d.s[start:d.i]
}

// spaces passes over spaces and reports whether there were any.
func (d *dateScanner) spaces() bool {
	start := d.i
	for d.peek() == ' ' {
		d.i++
	}
	return d.i > start
}

// eat passes over c if it comes next.
func (d *dateScanner) eat(c byte) bool {
	if d.peek() != c || c == 0 {
		return false
	}
	d.i++
	return true
}

// peek returns the next byte, 0 at the end.
func (d *dateScanner) peek() byte {
	if d.done() {
		return 0
	}
	return d.s[d.i]
}

func (d *dateScanner) done() bool { return d.i >= len(d.s) }

var weekdays = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

func isWeekday(s string) bool {
	for _, w := range weekdays {
		if equalASCII(s, w) || equalASCII(s, w[:3]) {
			return true
		}
	}
	return false
}

const months = "janfebmaraprmayjunjulaugsepoctnovdec"

func monthOf(s string) (time.Month, bool) {
	if len(s) != 3 {
		return 0, false
	}
	for m := 0; m < 12; m++ {
		if equalASCII(s, months[3*m:3*m+3]) {
			return time.Month(m + 1), true
		}
	}
	return 0, false
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}
