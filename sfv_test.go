package heed

import (
	"encoding/base32"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// What a field says, in a form that two readers can be compared in: a member is
// a sfMember, a bare item one of the types of encoding/json or of these.
type (
	sfMember struct {
		value  any // a bare item, or a []any of sfMember
		params map[string]any
	}
	sfTok   string
	sfBin   string
	sfDay   int64
	sfShown string
)

func (p *sfScanner) testParams() map[string]any {
	m := map[string]any{}
	for key, v, ok := p.param(); ok; key, v, ok = p.param() {
		m[key] = testValue(v)
	}
	return m
}

func testValue(v sfValue) any {
	switch v.kind {
	case sfInteger:
		return float64(v.n)
	case sfDecimal:
		return float64(v.n) / 1000
	case sfString:
		s, _ := v.text()
		return s
	case sfToken:
		s, _ := v.text()
		return sfTok(s)
	case sfBytes:
		b, ok := v.bytes()
		if !ok {
			panic("a Byte Sequence that was found well-formed is not")
		}
		return sfBin(b)
	case sfBool:
		return v.n == 1
	case sfDate:
		return sfDay(v.n)
	case sfDisplay:
		return sfShown(v.raw)
	case sfInner:
		list := []any{}
		p := sfScanner{s: v.raw[1 : len(v.raw)-1]}
		for p.spaces(); p.i < len(p.s); p.spaces() {
			v := p.bareItem()
			list = append(list, sfMember{testValue(v), p.testParams()})
		}
		return list
	}
	return nil
}

// scanField reads a field as heed does.
func scanField(lines []string, dictionary bool) (any, bool) {
	s, ok := joinLines(lines)
	if !ok {
		return nil, false
	}
	p := sfScanner{s: s}
	list, dict := []any{}, map[string]any{}
	for p.more() {
		if dictionary {
			key, v := p.dictMember()
			dict[key] = sfMember{testValue(v), p.testParams()}
		} else {
			v := p.member()
			list = append(list, sfMember{testValue(v), p.testParams()})
		}
	}
	if p.bad {
		return nil, false
	}
	if dictionary {
		return dict, true
	}
	return list, true
}

// expectedMember turns a case's expectation into the form of scanField.
func expectedMember(t *testing.T, v any) sfMember {
	pair := v.([]any)
	m := sfMember{params: map[string]any{}}
	if list, ok := pair[0].([]any); ok {
		inner := []any{}
		for _, item := range list {
			inner = append(inner, expectedMember(t, item))
		}
		m.value = inner
	} else {
		m.value = expectedValue(t, pair[0])
	}
	for _, param := range pair[1].([]any) {
		kv := param.([]any)
		m.params[kv[0].(string)] = expectedValue(t, kv[1])
	}
	return m
}

func expectedValue(t *testing.T, v any) any {
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	switch o["__type"] {
	case "token":
		return sfTok(o["value"].(string))
	case "binary":
		b, err := base32.StdEncoding.DecodeString(o["value"].(string))
		if err != nil {
			t.Fatal(err)
		}
		return sfBin(b)
	case "date":
		return sfDay(o["value"].(float64))
	case "displaystring":
		return sfShown(o["value"].(string))
	}
	t.Fatalf("unknown type %v", o)
	return nil
}

// decodeShown decodes the Display Strings of what scanField returned; heed has
// no use for them but to pass over them.
func decodeShown(v any) any {
	switch v := v.(type) {
	case sfShown:
		var b strings.Builder
		for i := 0; i < len(v); i++ {
			if v[i] == '%' {
				hi, _ := lowerHex(v[i+1])
				lo, _ := lowerHex(v[i+2])
				b.WriteByte(hi<<4 | lo)
				i += 2
			} else {
				b.WriteByte(v[i])
			}
		}
		return sfShown(b.String())
	case sfMember:
		v.value = decodeShown(v.value)
		for k := range v.params {
			v.params[k] = decodeShown(v.params[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = decodeShown(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = decodeShown(v[k])
		}
	}
	return v
}

func TestStructuredFieldCases(t *testing.T) {
	files, err := filepath.Glob("testdata/sfv/*.json")
	if err != nil || len(files) < 12 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var cases []struct {
				Name     string
				Raw      []string
				Type     string `json:"header_type"`
				Expected any
				MustFail bool `json:"must_fail"`
			}
			if err := json.Unmarshal(data, &cases); err != nil {
				t.Fatal(err)
			}
			for _, c := range cases {
				var want any
				if !c.MustFail {
					switch c.Type {
					case "list":
						list := []any{}
						for _, m := range c.Expected.([]any) {
							list = append(list, expectedMember(t, m))
						}
						want = list
					case "dictionary":
						dict := map[string]any{}
						for _, m := range c.Expected.([]any) {
							kv := m.([]any)
							dict[kv[0].(string)] = expectedMember(t, kv[1])
						}
						want = dict
					case "item":
						want = []any{expectedMember(t, c.Expected)}
					}
				}
				got, ok := scanField(c.Raw, c.Type == "dictionary")
				if list, is := got.([]any); c.Type == "item" && is {
					// heed reads no fields that are Items: one is a List of one,
					// and only a List may have several members or inner lists.
					ok = ok && len(list) == 1
					if ok {
						_, inner := list[0].(sfMember).value.([]any)
						ok = !inner
					}
				}
				if ok == c.MustFail {
					t.Errorf("%s: %q is well-formed: %v, want %v", c.Name, c.Raw, ok, !c.MustFail)
				} else if ok && !reflect.DeepEqual(decodeShown(got), want) {
					t.Errorf("%s: %q = %#v, want %#v", c.Name, c.Raw, got, want)
				}
			}
		})
	}
}

// Every character at the start and in the middle of a string, a token and a
// key, and every size that a reader has to take (RFC 9651, section 3).
func TestStructuredFieldCharactersAndSizes(t *testing.T) {
	valid := func(field string, dictionary, want bool) {
		t.Helper()
		if _, ok := scanField([]string{field}, dictionary); ok != want {
			t.Errorf("%.40q is well-formed: %v, want %v", field, ok, want)
		}
	}
	in := func(c byte, set string) bool { return strings.IndexByte(set, c) >= 0 }
	const lower, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
	alpha := lower + strings.ToUpper(lower)
	for i := range 256 {
		c := byte(i)
		s := string([]byte{c})
		valid(`" `+s+` "`, false, c >= 0x20 && c < 0x7f && !in(c, `"\`))
		valid(`"\`+s+`"`, false, in(c, `"\`))
		valid("a"+s+"a", false, in(c, alpha+digits+"!#$%&'*+-.^_`|~:/,;"))
		valid(s+"a", false, in(c, alpha+"* "))
		valid("a"+s+"a=1", true, in(c, lower+digits+"_-.*,;"))
		valid(s+"a=1", true, in(c, lower+"* "))
		valid("foo; a"+s+"a=1", false, in(c, lower+digits+"_-.*;"))
		valid("foo; "+s+"a=1", false, in(c, lower+"* "))
		valid(":aaa"+s+":", false, in(c, alpha+digits+"+/="))
	}
	repeat := func(n int, sep string, f func(int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteString(sep)
			}
			b.WriteString(f(i))
		}
		return b.String()
	}
	valid(repeat(1024, ", ", func(i int) string { return fmt.Sprintf("a%d=1", i) }), true, true)
	valid(repeat(1024, ", ", func(i int) string { return fmt.Sprintf("a%d", i) }), false, true)
	valid(repeat(1024, ", ", func(i int) string { return fmt.Sprintf("foo;a%d=1", i) }), false, true)
	valid("foo;"+repeat(256, ";", func(i int) string { return fmt.Sprintf("a%d=1", i) }), false, true)
	valid("("+repeat(256, " ", func(i int) string { return fmt.Sprintf("a%d", i) })+")", false, true)
	valid("foo;"+strings.Repeat("a", 64)+"=1", false, true)
	valid(`"`+strings.Repeat("=", 1024)+`"`, false, true)
	valid(`"`+strings.Repeat(`\"`, 1024)+`"`, false, true)
	valid(strings.Repeat("a", 512), false, true)
	valid(":"+strings.Repeat("aaaa", 16384/3+1)+":", false, true)
	for n := 1; n <= 20; n++ {
		for _, d := range []string{"0", "1", "9"} {
			valid(strings.Repeat(d, n), false, n <= 15)
			valid("-"+strings.Repeat(d, n), false, n <= 15)
			for f := 1; f <= 5; f++ {
				valid(strings.Repeat(d, n)+"."+strings.Repeat(d, f), false, n <= 12 && f <= 3)
			}
		}
	}
}

// repairPadding completes the padding of Byte Sequences, as RFC 9651, section
// 4.2.7, advises and httpsfv does not.
func repairPadding(s string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		b.WriteByte(c)
		switch {
		case quoted && c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case c == '"':
			quoted = !quoted
		case c == ':' && !quoted && (i == 0 || strings.IndexByte("=, \t(", s[i-1]) >= 0): // not within a token
			n := strings.IndexByte(s[i+1:], ':')
			if n < 0 {
				continue
			}
			data := s[i+1 : i+1+n]
			if strings.Trim(data, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != "" {
				continue
			}
			b.WriteString(data)
			for j := n; j%4 != 0; j++ {
				b.WriteByte('=')
			}
			b.WriteByte(':')
			i += n + 1
		}
	}
	return b.String()
}

func libraryMember(m httpsfv.Member) sfMember {
	params := func(p *httpsfv.Params) map[string]any {
		out := map[string]any{}
		for _, name := range p.Names() {
			v, _ := p.Get(name)
			out[name] = libraryValue(v)
		}
		return out
	}
	switch m := m.(type) {
	case httpsfv.Item:
		return sfMember{libraryValue(m.Value), params(m.Params)}
	case httpsfv.InnerList:
		list := []any{}
		for _, item := range m.Items {
			list = append(list, libraryMember(item))
		}
		return sfMember{list, params(m.Params)}
	}
	panic("no member")
}

func libraryValue(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	case string:
		return v
	case httpsfv.Token:
		return sfTok(v)
	case []byte:
		return sfBin(v)
	case bool:
		return v
	case time.Time:
		return sfDay(v.Unix())
	case httpsfv.DisplayString:
		return sfShown(v)
	}
	panic(fmt.Sprintf("unknown %T", v))
}

// FuzzStructuredFields holds the scanner equal to github.com/dunglas/httpsfv.
func FuzzStructuredFields(f *testing.F) {
	files, _ := filepath.Glob("testdata/sfv/*.json")
	for _, file := range files {
		var cases []struct{ Raw []string }
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &cases)
		}
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range cases {
			f.Add(strings.Join(c.Raw, ", "))
		}
	}
	for _, s := range ietfSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > maxFieldLen/2 {
			return
		}
		repaired := []string{repairPadding(s)}
		{
			got, ok := scanField([]string{s}, false)
			list, err := httpsfv.UnmarshalList(repaired)
			if ok != (err == nil) {
				t.Fatalf("list %q: heed says %v, httpsfv %v", s, ok, err)
			}
			if ok {
				want := []any{}
				for _, m := range list {
					want = append(want, libraryMember(m))
				}
				if !reflect.DeepEqual(decodeShown(got), any(want)) {
					t.Fatalf("list %q: heed reads %#v, httpsfv %#v", s, got, want)
				}
			}
		}
		got, ok := scanField([]string{s}, true)
		dict, err := httpsfv.UnmarshalDictionary(repaired)
		if ok != (err == nil) {
			t.Fatalf("dictionary %q: heed says %v, httpsfv %v", s, ok, err)
		}
		if ok {
			want := map[string]any{}
			for _, key := range dict.Names() {
				m, _ := dict.Get(key)
				want[key] = libraryMember(m)
			}
			if !reflect.DeepEqual(decodeShown(got), any(want)) {
				t.Fatalf("dictionary %q: heed reads %#v, httpsfv %#v", s, got, want)
			}
		}
	})
}
