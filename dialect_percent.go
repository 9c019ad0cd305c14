package heed

import (
	"encoding/json"
	"strings"
	"time"
)

// emitPercent reads a JSON object, or an object of lists of objects, whose
// numbers are percent of quotas, as Meta writes them:
//
//	{"call_count":28,"total_time":25,"total_cputime":25}
//	{"66782684":[{"type":"ads_management","call_count":95,…,"estimated_time_to_regain_access":0}]}
func (r *dialectReader) emitPercent(g *quotaGroup, p Policy, l ServiceLimit) {
	p.Quota, p.Unit = 100, "percent"
	for _, line := range r.compound(g, roleUsed) {
		var o percentObject
		walkJSON(line, func(key string, value json.Token) {
			switch v := value.(type) {
			case string:
				if key == "type" {
					o.kind = percentName(v)
				}
			case json.Number:
				r.readPercent(&o, key, v)
			}
		}, func() {
			r.emitUses(g, p, l, &o)
			o = percentObject{uses: o.uses[:0]}
		})
	}
}

// A percentObject is what one of those objects says.
type percentObject struct {
	kind  string // "": it has no type
	uses  []percentUse
	reset time.Duration // 0: not said
	grain time.Duration
}

// A percentUse is how much of one quota is used.
type percentUse struct {
	name    string
	percent decimal
}

// percentName makes a policy's name of one of Meta's.
func percentName(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }

// readPercent reads one number of an object. The time to regain access is in
// minutes, reset_time_duration in seconds.
func (r *dialectReader) readPercent(o *percentObject, key string, number json.Number) {
	n, rest, ok := scanDecimal(number.String())
	if !ok || n.neg || rest != "" {
		return
	}
	switch key {
	case "estimated_time_to_regain_access":
		if d := n.duration(time.Minute); d > 0 {
			o.reset, o.grain = d, time.Minute
			if r.status >= 400 {
				r.a.RetryAfter = max(r.a.RetryAfter, d)
			}
		}
	case "reset_time_duration":
		if d := n.duration(time.Second); d > 0 {
			o.reset, o.grain = d, time.Second
		}
	default:
		if len(o.uses) < maxItems {
			o.uses = append(o.uses, percentUse{percentName(key), n})
		}
	}
}

// emitUses states a quota for each use in an object.
func (r *dialectReader) emitUses(g *quotaGroup, p Policy, l ServiceLimit, o *percentObject) {
	if o.reset > 0 {
		l.Reset, l.Resolution = o.reset, o.grain
	}
	base := joinName(p.Name, o.kind)
	for _, u := range o.uses {
		p.Name = joinName(base, u.name)
		l.Used = u.percent.whole
		l.Remaining = max(0, 100-l.Used)
		if u.percent.nanos > 0 { // a percent that is begun counts as used
			l.Remaining = max(0, l.Remaining-1)
		}
		r.state(g, p, l)
	}
}

// walkJSON calls value with every string, number, boolean and null of a text
// and the key it stands under, and end wherever an object ends. It stops at
// the first error.
func walkJSON(text string, value func(key string, v json.Token), end func()) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	key, isKey := "", true
	for {
		tok, err := dec.Token()
		if err != nil {
			return
		}
		delim, isDelim := tok.(json.Delim)
		name, isString := tok.(string)
		switch {
		case isDelim:
			if delim == '}' {
				end()
			}
			isKey = delim != '['
		case isString && isKey:
			key, isKey = name, false
		default:
			value(key, tok)
			isKey = true
		}
	}
}
