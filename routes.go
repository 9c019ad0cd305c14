package heed

import (
	"slices"
	"strings"
	"time"
)

// A budget in an origin that has several is told by what the origin calls it.
// Requests belong to the budgets that the answers to their like were counted
// in: to requests of the same method and a path of the same shape.
//
// Users know a budget as a Bucket, as most services call it. Here a bucket is a
// token bucket, and nothing else.

// routes is what is known of which requests are counted in which budgets.
type routes struct {
	known map[string]string // by route, the key of its lane; "": no budget was named
	areas map[string]area   // by the beginning of the path
}

// An area is what the routes have in common whose paths begin alike.
type area struct {
	key    string // of the lane of all of them
	routes int
	mixed  bool // they have more than one
}

const (
	mostRoutes  = 1024 // remembered for one origin
	longestPath = 256  // of a route; what follows does not tell routes apart
	enoughAlike = 3    // routes of one area that make it likely that the next one is as they are
	budgetSep   = "\x00"
)

// appendRoute appends a method and the shape of a path: segments that look as
// if they named one thing among many are folded to "*".
func appendRoute(b []byte, method, path string) []byte {
	if method == "" {
		method = "GET"
	}
	b = append(b, method...)
	b = append(b, ' ')
	for segment := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if len(b) >= longestPath {
			break
		}
		b = append(b, '/')
		stem, ext := segment, ""
		if i := strings.LastIndexByte(segment, '.'); i > 0 && !allDigits(segment[i+1:]) {
			stem, ext = segment[:i], segment[i:]
		}
		if isID(stem) || len(segment) > longestPath/2 {
			b = append(b, '*')
			segment = ext
		}
		b = append(b, segment[:min(len(segment), longestPath/2)]...)
	}
	return b
}

// routeOf is what requests of one method to paths of one shape have in common.
func routeOf(method, path string) string { return string(appendRoute(nil, method, path)) }

// isID reports whether a segment of a path looks as if it named one thing
// among many: a number, a UUID, 16 hexadecimal digits and more, or what holds a
// number of six digits and more, or is long and has digits.
func isID(s string) bool {
	digits, longest, run := 0, 0, 0
	for i := range len(s) {
		run++
		if !isDigit(s[i]) {
			run = 0
			continue
		}
		digits++
		longest = max(longest, run)
	}
	if digits == 0 {
		return false
	}
	if digits == len(s) || longest >= 6 || len(s) >= 32 {
		return true
	}
	hex := 0
	for i := range len(s) {
		switch c := s[i]; {
		case isDigit(c):
			hex++
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			hex++
		case c == '-' && (i == 8 || i == 13 || i == 18 || i == 23) && len(s) == 36:
		default:
			return false
		}
	}
	return hex >= 16
}

func allDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// areaOf returns the beginning of a path up to the first segment that is not
// "api" or a version.
func areaOf(path string) string {
	end := 0
	for end < len(path) {
		for end < len(path) && path[end] == '/' {
			end++
		}
		start := end
		for end < len(path) && path[end] != '/' {
			end++
		}
		switch segment := path[start:end]; {
		case segment == "api", segment == "rest", strings.Trim(segment, "v.0123456789") == "":
		default:
			return path[:min(end, longestPath)]
		}
	}
	return path[:min(end, longestPath)]
}

// lookUp returns the key of the lane of a request; where its route is not known,
// that of those whose paths begin as its own does, if they agree.
func (t *routes) lookUp(method, path string) (key string, known bool) {
	var buf [longestPath]byte
	if key, known = t.known[string(appendRoute(buf[:0], method, path))]; known {
		return key, true
	}
	if a := t.areas[areaOf(path)]; a.routes >= enoughAlike && !a.mixed && a.key != "" {
		return a.key, true
	}
	return "", false
}

// learn notes the key of the lane of requests such as one.
func (t *routes) learn(method, path, key string) {
	var buf [longestPath]byte
	route := appendRoute(buf[:0], method, path)
	before, known := t.known[string(route)]
	if known && before == key {
		return
	}
	if len(t.known) >= mostRoutes || len(t.areas) >= mostRoutes {
		clear(t.known)
		clear(t.areas)
	}
	t.known[string(route)] = key
	name := areaOf(path)
	a, met := t.areas[name]
	switch {
	case !met:
		a = area{key: key, routes: 1}
		name = strings.Clone(name)
	case a.key != key, known:
		a.mixed = true
	default:
		a.routes++
	}
	t.areas[name] = a
}

// majorSep stands between a budget's name and what of a path tells it from
// others of that name.
const majorSep = "\x02"

// ownBudgets gives the budgets that a key names what the path of a request adds
// to their names, where the origin's dialect tells them apart by that.
func (o *origin) ownBudgets(key, path string) string {
	if o.majors == nil || key == "" {
		return key
	}
	major := majorOf(o.majors, path)
	if major == "" {
		return key
	}
	return strings.ReplaceAll(key, budgetSep, majorSep+major+budgetSep) + majorSep + major
}

// majorOf returns the first of some segments of a path that another one
// follows, and that one: "channels/41".
func majorOf(majors []string, path string) string {
	for path != "" {
		segment, rest, _ := strings.Cut(path, "/")
		if id, _, _ := strings.Cut(rest, "/"); id != "" && slices.Contains(majors, segment) {
			return path[:min(len(segment)+1+len(id), longestPath)]
		}
		path = rest
	}
	return ""
}

// table returns the origin's table, made where there is none: from then on lanes tell routes apart, and no partitions
// do. heard is the one that goes on.
func (o *origin) table(now time.Time, heard *partition) *routes {
	if o.routes == nil {
		o.rejoin(now, heard)
		o.routes = newRoutes()
	}
	return o.routes
}

func newRoutes() *routes { return &routes{known: map[string]string{}, areas: map[string]area{}} }

// joinBudgets returns the key of the lane of requests that are counted in
// several budgets.
func joinBudgets(budgets []string) string {
	slices.Sort(budgets)
	return strings.Join(slices.Compact(budgets), budgetSep)
}
