package heed

import "time"

// fixdate reads the form that nearly all dates have, IMF-fixdate as RFC 9110
// (section 5.6.7) writes it: "Sun, 06 Nov 1994 08:49:37 GMT". It says no to
// whatever it is not sure of.
func fixdate(s string) (time.Time, bool) {
	if len(s) != 29 || s[3] != ',' || s[4] != ' ' || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' || s[19] != ':' || s[22] != ':' || s[25:] != " GMT" {
		return time.Time{}, false
	}
	switch s[:3] {
	case "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun":
	default:
		return time.Time{}, false
	}
	month := 0
	switch s[8:11] {
	case "Jan":
		month = 1
	case "Feb":
		month = 2
	case "Mar":
		month = 3
	case "Apr":
		month = 4
	case "May":
		month = 5
	case "Jun":
		month = 6
	case "Jul":
		month = 7
	case "Aug":
		month = 8
	case "Sep":
		month = 9
	case "Oct":
		month = 10
	case "Nov":
		month = 11
	case "Dec":
		month = 12
	default:
		return time.Time{}, false
	}
	day, century, year := twoDigits(s, 5), twoDigits(s, 12), twoDigits(s, 14)
	hour, min, sec := twoDigits(s, 17), twoDigits(s, 20), twoDigits(s, 23)
	if day < 1 || day > 28 || century < 0 || year < 0 || uint(hour) > 23 || uint(min) > 59 || uint(sec) > 59 {
		return time.Time{}, false // the last days of a month are for those who know how long it is
	}
	// Days since 1 March of the year 0, counted in years that begin in March.
	y, m := 100*century+year, month-3
	if m < 0 {
		y, m = y-1, m+12
	}
	if y < 0 {
		return time.Time{}, false
	}
	days := 365*y + y/4 - y/100 + y/400 + (153*m+2)/5 + day - 1
	const epoch = 719468 // 1 January 1970
	return time.Unix(int64(days-epoch)*86400+int64(hour*3600+min*60+sec), 0).UTC(), true
}

// twoDigits reads the number of two digits at i; below 0: it is none.
func twoDigits(s string, i int) int {
	a, b := s[i]-'0', s[i+1]-'0'
	if a > 9 || b > 9 {
		return -1
	}
	return int(a)*10 + int(b)
}
