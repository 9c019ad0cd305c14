package heed

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
)

// A role is what a field says about its quota.
type role uint8

const (
	roleLimit role = iota
	roleRemaining
	roleUsed
	roleReset
	roleResetAfter
	roleRetryAfter
	roleInterval
	roleRate
	numRoles
)

// names returns the fields that play a role, separated by spaces.
func (q *QuotaFields) names(r role) string {
	switch r {
	case roleLimit:
		return q.Limit
	case roleRemaining:
		return q.Remaining
	case roleUsed:
		return q.Used
	case roleReset:
		return q.Reset
	case roleResetAfter:
		return q.ResetAfter
	case roleRetryAfter:
		return q.RetryAfter
	case roleInterval:
		return q.Interval
	default:
		return q.Rate
	}
}

// maxFields bounds the fields about limits that are looked at in one response.
const maxFields = 64

// limitFields appends to buf the names of the fields of h that look as if they
// spoke of limits, the standard Retry-After and x-should-retry among them. It
// decides what every response costs that says nothing about limits.
func limitFields(h http.Header, buf []string) []string {
	for name, lines := range h {
		if ordinary(name) || len(lines) == 0 || !speaksOfLimits(name) || len(buf) == maxFields {
			continue
		}
		buf = append(buf, name)
	}
	return buf
}

// ordinary reports whether a field is one of those that most responses have,
// which is cheaper than to look at the name's words.
func ordinary(name string) bool {
	switch name {
	case "Accept-Ranges", "Access-Control-Allow-Credentials", "Access-Control-Allow-Headers",
		"Access-Control-Allow-Methods", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
		"Access-Control-Max-Age", "Age", "Alt-Svc", "Cache-Control", "Cf-Cache-Status", "Cf-Ray", "Connection",
		"Content-Encoding", "Content-Language", "Content-Length", "Content-Security-Policy", "Content-Type", "Date",
		"Etag", "Expires", "Keep-Alive", "Last-Modified", "Link", "Location", "Nel", "Pragma", "Referrer-Policy",
		"Report-To", "Server", "Server-Timing", "Set-Cookie", "Strict-Transport-Security", "Transfer-Encoding",
		"Vary", "Via", "X-Amz-Cf-Id", "X-Amz-Cf-Pop", "X-Amz-Id-2", "X-Amz-Request-Id", "X-Cache", "X-Cache-Hits",
		"X-Content-Type-Options", "X-Download-Options", "X-Frame-Options", "X-Permitted-Cross-Domain-Policies",
		"X-Powered-By", "X-Request-Id", "X-Runtime", "X-Served-By", "X-Timer", "X-Xss-Protection":
		return true
	}
	return false
}

// speaksOfLimits reports whether a word of a field's canonical name begins with
// Concurren(t), Limit, Mbx, Quota, Rate, Remain, Reset, Retry, Usage or Used, or
// is the name of a service that signs its responses, Github or Openai.
func speaksOfLimits(name string) bool {
	for i := 0; i+3 < len(name); i++ {
		if name[i] >= 'a' { // capitals begin a word
			continue
		}
		switch name[i] {
		case 'C', 'G', 'L', 'M', 'O', 'Q', 'R', 'U':
			switch name[i : i+4] {
			case "Conc", "Gith", "Limi", "Mbx-", "Open", "Quot", "Rate", "Rema", "Rese", "Retr", "Usag", "Used":
				return true
			}
		}
	}
	return false
}

// A fieldUse is one use the table makes of a field.
type fieldUse struct {
	dialect *Dialect
	quota   *QuotaFields // nil: it shows the dialect, and states no quota
	role    role
	alt     uint8  // which of the role's alternatives; less is better
	order   uint16 // of the quota in the table
}

// A fieldPattern is a name with a "*".
type fieldPattern struct {
	prefix, suffix string
	use            fieldUse
}

// match returns what "*" stands for in name.
func (p *fieldPattern) match(name string) (dim string, ok bool) {
	if len(name) <= len(p.prefix)+len(p.suffix) || !strings.HasPrefix(name, p.prefix) || !strings.HasSuffix(name, p.suffix) {
		return "", false
	}
	dim = name[len(p.prefix) : len(name)-len(p.suffix)]
	if len(dim) > 64 {
		return "", false
	}
	switch dim {
	case "Limit", "Remaining", "Reset", "Used", "After", "Policy", "Ms", "Currentrequest":
		return "", false // another role of the quota without a dimension
	}
	return dim, true
}

// A dialectIndex finds the dialects of a table by what a response shows.
type dialectIndex struct {
	origins  map[string][]dialectOrigin // by the last two labels of the host
	signs    []dialectSign
	fields   map[string][]fieldUse     // of dialects that anybody may speak, as all below
	patterns map[string][]fieldPattern // by the first patternKey bytes of the prefix
	rest     []fieldPattern            // with shorter prefixes
	order    map[*Dialect]uint16       // of the first quota
}

// A dialectSign is a field that tells a dialect.
type dialectSign struct {
	name    string
	dialect *Dialect
}

// patternKey is how many bytes of a name choose the patterns to try.
const patternKey = 8

// knownDialects is the index of the built-in table.
var knownDialects = indexDialects(dialectTable)

func indexDialects(table []Dialect) *dialectIndex {
	x := &dialectIndex{
		origins:  map[string][]dialectOrigin{},
		fields:   map[string][]fieldUse{},
		patterns: map[string][]fieldPattern{},
		order:    map[*Dialect]uint16{},
	}
	order := uint16(1 << 13) // after the dialects recognised by origin or sign
	for i := range table {
		d := &table[i]
		x.order[d] = order - 1<<13
		for _, o := range d.Origins {
			key := domain(o)
			x.origins[key] = append(x.origins[key], dialectOrigin{o, d})
		}
		if d.Sign != "" {
			name := http.CanonicalHeaderKey(d.Sign)
			x.signs = append(x.signs, dialectSign{name, d})
		}
		if d.anywhere() {
			shows := fieldUse{dialect: d, order: order}
			for name := range strings.FieldsSeq(d.Bucket) {
				x.fields[name] = append(x.fields[name], shows)
			}
			for _, shown := range slices.Concat(d.Global, d.Route, d.NoRetry) {
				name, _, _ := strings.Cut(shown, ":")
				x.fields[name] = append(x.fields[name], shows)
			}
			for name, use := range d.uses(order+1, true) {
				x.addField(name, use)
			}
		}
		order += uint16(len(d.Quotas))
	}
	return x
}

// addField has the index find what a field of that name, or of names like it, is for.
func (x *dialectIndex) addField(name string, use fieldUse) {
	prefix, suffix, star := strings.Cut(name, "*")
	switch {
	case !star:
		x.fields[name] = append(x.fields[name], use)
	case len(prefix) >= patternKey:
		key := prefix[:patternKey]
		x.patterns[key] = append(x.patterns[key], fieldPattern{prefix, suffix, use})
	default:
		x.rest = append(x.rest, fieldPattern{prefix, suffix, use})
	}
}

// uses yields the names of the fields in which a dialect states its quotas, and what
// each is for. order is that of the first quota. canonical: the names are yielded in
// the form in which net/http keys them, however they are written.
func (d *Dialect) uses(order uint16, canonical bool) iter.Seq2[string, fieldUse] {
	return func(yield func(string, fieldUse) bool) {
		for i := range d.Quotas {
			q := &d.Quotas[i]
			for rl := range numRoles {
				use := fieldUse{d, q, rl, 0, order + uint16(i)}
				for name, more := cutWord(q.names(rl)); name != ""; name, more = cutWord(more) {
					if canonical {
						name = http.CanonicalHeaderKey(name)
					}
					if !yield(name, use) {
						return
					}
					use.alt++
				}
			}
		}
	}
}

// at calls f with the dialects spoken at an origin.
func (x *dialectIndex) at(origin string, f func(*Dialect)) {
	host := originHost(origin)
	for i := range x.origins[domain(host)] {
		if o := &x.origins[domain(host)][i]; o.covers(host) {
			f(o.dialect)
		}
	}
}

// A dialectOrigin is a host where a dialect is spoken, or "*.example.org" for
// those below a domain.
type dialectOrigin struct {
	pattern string
	dialect *Dialect
}

func (o *dialectOrigin) covers(host string) bool {
	if o.pattern[0] == '*' {
		return len(host) >= len(o.pattern) && strings.HasSuffix(host, o.pattern[1:])
	}
	return host == o.pattern
}

// domain returns the last two labels of a host.
func domain(host string) string {
	dots := 0
	for i := len(host) - 1; i >= 0; i-- {
		if host[i] == '.' {
			if dots++; dots == 2 {
				return host[i+1:]
			}
		}
	}
	return host
}

// originHost returns an origin's host, without scheme and port.
func originHost(origin string) string {
	if _, host, ok := strings.Cut(origin, "://"); ok {
		origin = host
	}
	if i := strings.LastIndexByte(origin, ':'); i > 0 && origin[i-1] != ':' && !strings.HasSuffix(origin, "]") {
		origin = origin[:i]
	}
	return origin
}

// anywhere reports whether a dialect may be spoken by anybody who sends its
// fields.
func (d *Dialect) anywhere() bool {
	return d.Anywhere || len(d.Origins) == 0 && d.Sign == ""
}

// spokenAt reports whether one of a dialect's Origins covers an origin.
func (d *Dialect) spokenAt(origin string) bool {
	for _, pattern := range d.Origins {
		if originMatches(pattern, origin) {
			return true
		}
	}
	return false
}

// check reports the first of a dialect's Origins that covers no origin as
// [OriginOf] names them: it is a mistake, and the dialect would never be spoken.
func (d *Dialect) check() error {
	for _, pattern := range d.Origins {
		name := pattern
		if !strings.Contains(name, "://") {
			name = "any://" + name // which has no port of its own
		}
		scheme, host, _ := strings.Cut(name, "://")
		if host == "*" {
			continue
		}
		name = scheme + "://" + strings.TrimPrefix(strings.TrimPrefix(host, "*"), ".")
		if canonical, ok := canonicalPattern(name); !ok || !equalASCII(canonical, name) {
			return fmt.Errorf("heed: dialect %q: no origin is %q: want scheme://host[:port] or host[:port], in ASCII and without the scheme's own port; *.host for all hosts under one; or *",
				d.Name, withoutSecrets(pattern))
		}
	}
	return nil
}

// originMatches reports whether a pattern, as in Dialect.Origins, covers an
// origin.
func originMatches(pattern, origin string) bool {
	if pattern == "*" || equalASCII(pattern, origin) {
		return true
	}
	scheme, host, ok := strings.Cut(pattern, "://")
	if ok {
		s, rest, ok := strings.Cut(origin, "://")
		if !ok || !equalASCII(s, scheme) {
			return false
		}
		origin = rest
	} else {
		host = pattern
		if _, rest, ok := strings.Cut(origin, "://"); ok {
			origin = rest
		}
		if strings.LastIndexByte(host, ':') <= strings.LastIndexByte(host, ']') { // any port
			origin = originHost(origin)
		}
	}
	if below, ok := strings.CutPrefix(host, "*"); ok {
		return len(origin) > len(below) && equalASCII(origin[len(origin)-len(below):], below)
	}
	return equalASCII(origin, host)
}
