package heed

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// An sfKind is the type of a bare item of a structured field (RFC 9651,
// section 3.3). sfAbsent is none at all.
type sfKind uint8

const (
	sfAbsent sfKind = iota
	sfInteger
	sfDecimal
	sfString
	sfToken
	sfBytes
	sfBool
	sfDate
	sfDisplay
	sfInner // an inner list, which is no bare item but stands where one can
)

// An sfValue is a bare item that was found well-formed. Its text is decoded
// only when somebody asks for it.
type sfValue struct {
	kind    sfKind
	escaped bool  // a String with backslashes in it
	n       int64 // Integer, Date; Decimal: thousandths; Boolean: 1 or 0
	raw     string
}

// text returns what a String or a Token says.
func (v sfValue) text() (string, bool) {
	switch {
	case v.kind == sfToken, v.kind == sfString && !v.escaped:
		return v.raw, true
	case v.kind == sfString:
		var b strings.Builder
		for i := 0; i < len(v.raw); i++ {
			if v.raw[i] == '\\' {
				i++
			}
			b.WriteByte(v.raw[i])
		}
		return b.String(), true
	}
	return "", false
}

// bytes returns the octets of a Byte Sequence.
func (v sfValue) bytes() (string, bool) {
	if v.kind != sfBytes {
		return "", false
	}
	// The padding bits may be anything (RFC 9651, section 4.2.7); the draft's
	// own examples have some set.
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v.raw, "="))
	return string(b), err == nil
}

// An sfScanner reads a structured field from the left, one member at a time:
//
//	p := sfScanner{s: field}
//	for p.more() {
//		v := p.member()
//		for key, pv, ok := p.param(); ok; key, pv, ok = p.param() {
//			…
//		}
//	}
//	if p.bad { forget all of it }
//
// Only at the end is it known whether the field is one at all, and if it is not
// then all of it has to be ignored (RFC 9651, section 4.2). The grammar is that
// of RFC 9651, section 4.2, and every method names its part of it.
type sfScanner struct {
	s     string
	i     int
	begun bool
	bad   bool
}

func (p *sfScanner) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0 // which no field can contain where it would matter
}

func (p *sfScanner) fail() sfValue {
	p.bad = true
	p.i = len(p.s)
	return sfValue{}
}

// more reports whether there is another member, and goes to it. An empty field
// has none (section 4.2.1):
//
//	sf-list = list-member *( OWS "," OWS list-member )
func (p *sfScanner) more() bool {
	if !p.begun {
		p.begun = true
		p.spaces()
		return p.i < len(p.s)
	}
	if p.bad {
		return false
	}
	p.ows()
	if p.i == len(p.s) {
		return false
	}
	if p.s[p.i] != ',' {
		p.fail()
		return false
	}
	p.i++
	p.ows()
	if p.i == len(p.s) { // a trailing comma
		p.fail()
		return false
	}
	return true
}

// member reads a member of a List, without its parameters (section 4.2.1.1). An
// inner list comes back as its text, which has been checked.
func (p *sfScanner) member() sfValue {
	if p.peek() != '(' {
		return p.bareItem()
	}
	start := p.i
	p.innerList()
	if p.bad {
		return sfValue{}
	}
	return sfValue{kind: sfInner, raw: p.s[start:p.i]}
}

// dictMember reads a member of a Dictionary, without its parameters
// (section 4.2.2):
//
//	dict-member = member-key ( parameters / "=" member-value )
//
// A key alone stands for true.
func (p *sfScanner) dictMember() (string, sfValue) {
	key := p.key()
	if p.bad || p.peek() != '=' {
		return key, sfValue{kind: sfBool, n: 1}
	}
	p.i++
	return key, p.member()
}

// innerList passes over an inner list (section 4.2.1.2):
//
//	inner-list = "(" *SP [ sf-item *( 1*SP sf-item ) *SP ] ")"
func (p *sfScanner) innerList() {
	p.i++
	for !p.bad {
		p.spaces()
		if p.peek() == ')' {
			p.i++
			return
		}
		p.bareItem()
		for _, _, ok := p.param(); ok; _, _, ok = p.param() {
		}
		if c := p.peek(); c != ' ' && c != ')' {
			p.fail()
		}
	}
}

// param reads a parameter, if one comes next (section 4.2.3.2):
//
//	parameters = *( ";" *SP param-key [ "=" bare-item ] )
//
// One without a value is true. Of several with the same key the last counts.
func (p *sfScanner) param() (key string, v sfValue, ok bool) {
	if p.bad || p.peek() != ';' {
		return "", sfValue{}, false
	}
	p.i++
	p.spaces()
	key = p.key()
	v = sfValue{kind: sfBool, n: 1}
	if !p.bad && p.peek() == '=' {
		p.i++
		v = p.bareItem()
	}
	return key, v, !p.bad
}

// key reads a key (section 4.2.3.3):
//
//	key = ( lcalpha / "*" ) *( lcalpha / DIGIT / "_" / "-" / "." / "*" )
func (p *sfScanner) key() string {
	start := p.i
	for ; p.i < len(p.s); p.i++ {
		c := p.s[p.i]
		if 'a' <= c && c <= 'z' || c == '*' {
			continue
		}
		if p.i == start || !isDigit(c) && c != '_' && c != '-' && c != '.' {
			break
		}
	}
	if p.i == start {
		p.fail()
		return ""
	}
	return p.s[start:p.i]
}

// bareItem reads a bare item (section 4.2.3.1).
func (p *sfScanner) bareItem() sfValue {
	switch c := p.peek(); {
	case isDigit(c) || c == '-':
		return p.number()
	case c == '"':
		return p.string()
	case isAlpha(c) || c == '*':
		return p.token()
	case c == ':':
		return p.byteSequence()
	case c == '?':
		return p.boolean()
	case c == '@':
		return p.date()
	case c == '%':
		return p.displayString()
	}
	return p.fail()
}

// number reads an Integer or a Decimal (section 4.2.4):
//
//	sf-integer = ["-"] 1*15DIGIT
//	sf-decimal = ["-"] 1*12DIGIT "." 1*3DIGIT
func (p *sfScanner) number() sfValue {
	begin := p.i
	negative := p.peek() == '-'
	if negative {
		p.i++
	}
	var n int64
	start := p.i
	for isDigit(p.peek()) {
		if p.i-start == 15 {
			return p.fail()
		}
		n = n*10 + int64(p.s[p.i]-'0')
		p.i++
	}
	digits := p.i - start
	if digits == 0 {
		return p.fail()
	}
	kind := sfInteger
	if p.peek() == '.' {
		kind = sfDecimal
		p.i++
		point := p.i
		for isDigit(p.peek()) {
			if p.i-point == 3 {
				return p.fail()
			}
			n = n*10 + int64(p.s[p.i]-'0')
			p.i++
		}
		if digits > 12 || p.i == point {
			return p.fail()
		}
		for i := p.i - point; i < 3; i++ {
			n *= 10
		}
	}
	if negative {
		n = -n
	}
	return sfValue{kind: kind, n: n, raw: p.s[begin:p.i]}
}

// string reads a String (section 4.2.5):
//
//	sf-string = DQUOTE *( %x20-21 / %x23-5B / %x5D-7E / "\" ( DQUOTE / "\" ) ) DQUOTE
func (p *sfScanner) string() sfValue {
	p.i++
	v := sfValue{kind: sfString}
	for start := p.i; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; {
		case c == '"':
			v.raw = p.s[start:p.i]
			p.i++
			return v
		case c == '\\':
			p.i++
			if c := p.peek(); c != '"' && c != '\\' {
				return p.fail()
			}
			v.escaped = true
		case c < 0x20 || c > 0x7e:
			return p.fail()
		}
	}
	return p.fail()
}

// token reads a Token (section 4.2.6):
//
//	sf-token = ( ALPHA / "*" ) *( tchar / ":" / "/" )
func (p *sfScanner) token() sfValue {
	start := p.i
	for p.i++; isTokenChar(p.peek()); p.i++ {
	}
	return sfValue{kind: sfToken, raw: p.s[start:p.i]}
}

// byteSequence reads a Byte Sequence (section 4.2.7):
//
//	sf-binary = ":" *( ALPHA / DIGIT / "+" / "/" / "=" ) ":"
//
// Missing padding is forgiven, as that section advises.
func (p *sfScanner) byteSequence() sfValue {
	p.i++
	start, data := p.i, 0
	for ; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; {
		case c == ':':
			v := sfValue{kind: sfBytes, raw: p.s[start:p.i]}
			if data%4 == 1 || len(v.raw)-data > (4-data%4)%4 {
				return p.fail()
			}
			p.i++
			return v
		case isAlpha(c) || isDigit(c) || c == '+' || c == '/':
			if p.i-start != data { // after the padding
				return p.fail()
			}
			data++
		case c != '=':
			return p.fail()
		}
	}
	return p.fail()
}

// boolean reads a Boolean (section 4.2.8):
//
//	sf-boolean = "?" ( "0" / "1" )
func (p *sfScanner) boolean() sfValue {
	p.i++
	c := p.peek()
	if c != '0' && c != '1' {
		return p.fail()
	}
	p.i++
	return sfValue{kind: sfBool, n: int64(c - '0')}
}

// date reads a Date (section 4.2.9):
//
//	sf-date = "@" sf-integer
func (p *sfScanner) date() sfValue {
	p.i++
	v := p.number()
	if v.kind != sfInteger {
		return p.fail()
	}
	v.kind = sfDate
	return v
}

// displayString reads a Display String (section 4.2.10):
//
//	sf-displaystring = "%" DQUOTE *( %x20-21 / %x23-24 / %x26-7E / "%" 2lc-hexdig ) DQUOTE
//
// whose octets are UTF-8.
func (p *sfScanner) displayString() sfValue {
	p.i++
	if p.peek() != '"' {
		return p.fail()
	}
	p.i++
	var b []byte
	for start := p.i; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; {
		case c == '"':
			if !utf8.Valid(b) {
				return p.fail()
			}
			p.i++
			return sfValue{kind: sfDisplay, raw: p.s[start : p.i-1]}
		case c == '%':
			if p.i+2 >= len(p.s) {
				return p.fail()
			}
			hi, ok1 := lowerHex(p.s[p.i+1])
			lo, ok2 := lowerHex(p.s[p.i+2])
			if !ok1 || !ok2 {
				return p.fail()
			}
			b = append(b, hi<<4|lo)
			p.i += 2
		case c < 0x20 || c > 0x7e:
			return p.fail()
		default:
			b = append(b, c)
		}
	}
	return p.fail()
}

func (p *sfScanner) spaces() {
	for p.peek() == ' ' {
		p.i++
	}
}

func (p *sfScanner) ows() {
	for p.peek() == ' ' || p.peek() == '\t' {
		p.i++
	}
}

func isTokenChar(c byte) bool {
	return isAlpha(c) || isDigit(c) || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func lowerHex(c byte) (byte, bool) {
	switch {
	case isDigit(c):
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
