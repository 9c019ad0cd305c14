package heed

import (
	"iter"
	"strings"
	"time"
)

// emitForm reads a quota whose numbers are not one to a field. p and l are what
// its other fields say.
func (r *dialectReader) emitForm(g *quotaGroup, p Policy, l ServiceLimit) {
	switch g.quota.Form {
	case FormRatio:
		r.emitRatios(g, p, l)
	case FormWindows:
		r.emitWindows(g, p, l)
	case FormPositions:
		r.emitPositions(g, p, l)
	case FormKeys:
		r.emitKeys(g, p, l)
	case FormNamed:
		r.emitNamed(g, p, l)
	case FormCategories:
		r.emitCategories(g)
	case FormPercent:
		r.emitPercent(g, p, l)
	case FormScopes:
		r.emitScopes(g, p, l)
	}
}

// maxValue bounds the compound values that are looked at.
const maxValue = 8 << 10

// compound returns the lines of the field that plays a role, without those that
// are too long.
func (r *dialectReader) compound(g *quotaGroup, rl role) []string {
	if g.name[rl] == "" {
		return nil
	}
	lines := r.h[g.name[rl]]
	for i, line := range lines {
		if len(line) > maxValue || i == maxFields {
			return lines[:i]
		}
	}
	return lines
}

// firstItems yields the items of a compound value, no more than are kept of a response,
// for those that are looked up in each other.
func firstItems(s, sep string) iter.Seq[string] {
	return func(yield func(string) bool) {
		n := 0
		for item := range strings.SplitSeq(s, sep) {
			if n++; n > 2*maxItems || !yield(item) {
				return
			}
		}
	}
}

// emitRatios reads
//
//	ratios = ratio *( ( ";" / "," ) ratio )
//	ratio  = [ name "=" ] used "/" quota [ "(" … ")" ]
//
// as Shopify ("32/40") and Salesforce ("api-usage=18/5000;
// per-app-api-usage=17/250(appName=sample)") write it. The window of the
// table is that of the policy of the table.
func (r *dialectReader) emitRatios(g *quotaGroup, p Policy, l ServiceLimit) {
	for _, line := range r.compound(g, roleUsed) {
		for item := range strings.FieldsFuncSeq(line, func(c rune) bool { return c == ';' || c == ',' }) {
			p, l := p, l
			if name, rest, ok := strings.Cut(item, "="); ok && !strings.Contains(name, "/") {
				if name = strings.ToLower(trimOWS(name)); name != p.Name {
					p.Name, p.Window = name, wordWindow(name)
				}
				item = rest
			}
			usedText, quotaText, ok := strings.Cut(item, "/")
			if !ok {
				continue
			}
			quotaText, _, _ = strings.Cut(quotaText, "(")
			used, ok1 := parseCount(usedText)
			quota, ok2 := parseCount(quotaText)
			if !ok1 || !ok2 {
				continue
			}
			p.Quota, l.Used, l.Remaining = quota, used, max(0, quota-used)
			r.state(g, p, l)
		}
	}
}

// emitWindows reads
//
//	windows = quota ":" seconds *( "," quota ":" seconds )
//
// as Riot writes it, and the same list of what is used.
func (r *dialectReader) emitWindows(g *quotaGroup, p Policy, l ServiceLimit) {
	used := r.value(g, roleUsed)
	for _, line := range r.compound(g, roleLimit) {
		for item := range firstItems(line, ",") {
			p, l := p, l
			var ok bool
			if p.Quota, p.Window, ok = parseWindow(item); !ok {
				continue
			}
			p.Name = joinName(p.Name, windowName(p.Window))
			if len(used) <= maxValue {
				for item := range firstItems(used, ",") {
					if n, w, ok := parseWindow(item); ok && w == p.Window {
						l.Used, l.Remaining = n, max(0, p.Quota-n)
					}
				}
			}
			r.state(g, p, l)
		}
	}
}

func parseWindow(s string) (n int64, window time.Duration, ok bool) {
	count, seconds, ok := strings.Cut(s, ":")
	if !ok {
		return 0, 0, false
	}
	n, ok = parseCount(count)
	if !ok {
		return 0, 0, false
	}
	w, rest, ok := scanDecimal(trimOWS(seconds))
	if !ok || w.neg || trimOWS(rest) != "" {
		return 0, 0, false
	}
	window = w.duration(time.Second)
	return n, window, window > 0
}

// emitPositions reads lists in which the position tells the window, as Strava
// writes them.
func (r *dialectReader) emitPositions(g *quotaGroup, p Policy, l ServiceLimit) {
	limit, used := r.value(g, roleLimit), r.value(g, roleUsed)
	for _, window := range g.quota.Windows {
		p, l := p, l
		var item string
		item, limit, _ = strings.Cut(limit, ",")
		quota, ok := parseCount(item)
		if !ok {
			continue
		}
		p.Quota, p.Window, p.Name = quota, window, joinName(p.Name, windowName(window))
		item, used, _ = strings.Cut(used, ",")
		if n, ok := parseCount(item); ok {
			l.Used, l.Remaining = n, max(0, quota-n)
		}
		r.state(g, p, l)
	}
}

// emitKeys reads
//
//	keys = key "=" number *( ";" key "=" number )
//
// as Zendesk writes it: "total=100; remaining=99; resets=41".
func (r *dialectReader) emitKeys(g *quotaGroup, p Policy, l ServiceLimit) {
	for _, line := range r.compound(g, roleLimit) {
		p, l, said := p, l, false
		for item := range strings.FieldsFuncSeq(line, func(c rune) bool { return c == ';' || c == ',' }) {
			key, value, _ := strings.Cut(item, "=")
			switch strings.ToLower(trimOWS(key)) {
			case "total", "limit":
				if n, ok := parseCount(value); ok {
					p.Quota, said = n, true
				}
			case "remaining":
				if n, ok := parseCount(value); ok {
					l.Remaining, said = n, true
				}
			case "used":
				if n, ok := parseCount(value); ok {
					l.Used, said = n, true
				}
			case "resets", "reset":
				if s, ok := parseSpan(value, g.quota.ResetForm, r.ref); ok {
					l.Reset, l.Resolution, l.Clock = s.d, s.grain, s.clock
				}
			}
		}
		if l.Remaining < 0 && p.Quota >= 0 && l.Used > 0 {
			l.Remaining = max(0, p.Quota-l.Used)
		}
		if said {
			r.state(g, p, l)
		}
	}
}

// emitNamed reads
//
//	named = name ";" remaining *( "," name ";" remaining )
//
// as Azure Resource Manager writes it.
func (r *dialectReader) emitNamed(g *quotaGroup, p Policy, l ServiceLimit) {
	for _, line := range r.compound(g, roleRemaining) {
		for item := range strings.SplitSeq(line, ",") {
			name, left, ok := strings.Cut(item, ";")
			n, ok2 := parseCount(left)
			if name = trimOWS(name); !ok || !ok2 || name == "" {
				continue
			}
			p, l := p, l
			p.Name, l.Remaining = strings.ToLower(name), n
			r.state(g, p, l)
		}
	}
}

// emitCategories reads
//
//	categories = hold *( "," hold )
//	hold       = seconds ":" [ category *( ";" category ) ] ":" scope *( ":" … )
//
// as Sentry's ingestion writes it: for how long it takes no events of these
// categories. They are units, not budgets of requests, save where no category
// means all of them.
func (r *dialectReader) emitCategories(g *quotaGroup) {
	for _, line := range r.compound(g, roleLimit) {
		for hold := range strings.SplitSeq(line, ",") {
			seconds, rest, ok := strings.Cut(trimOWS(hold), ":")
			n, more, ok2 := scanDecimal(seconds)
			if !ok || !ok2 || n.neg || more != "" {
				continue
			}
			d := n.duration(time.Second)
			list, _, _ := strings.Cut(rest, ":")
			l := ServiceLimit{Reset: d, Resolution: time.Second}
			if list == "" {
				r.add(g.dialect, Policy{Name: "all", Quota: -1}, l)
				continue
			}
			if r.a.Bucket == "" && r.refused {
				r.a.Bucket = list
			}
			for category := range strings.SplitSeq(list, ";") {
				if category != "" {
					r.add(g.dialect, Policy{Name: category, Quota: -1, Unit: Unit(category)}, l)
				}
			}
		}
	}
}

// emitScopes reads
//
//	scopes = scope "-lim:" quota ";" scope "-rem:" remaining ";" …
//
// as the App Store Connect API writes it. A scope's name tells its window.
func (r *dialectReader) emitScopes(g *quotaGroup, p Policy, l ServiceLimit) {
	for _, line := range r.compound(g, roleLimit) {
		for item := range firstItems(line, ";") {
			name, value, _ := strings.Cut(item, ":")
			scope, is := strings.CutSuffix(strings.ToLower(trimOWS(name)), "-lim")
			quota, ok := parseCount(value)
			if !is || !ok {
				continue
			}
			p, l := p, l
			p.Name, p.Quota, p.Window = scope, quota, wordWindow(scope)
			for item := range firstItems(line, ";") {
				if name, value, _ := strings.Cut(item, ":"); equalASCII(trimOWS(name), scope+"-rem") {
					l.Remaining, _ = parseCount(value)
				}
			}
			r.state(g, p, l)
		}
	}
}

// joinName joins the parts of a policy's name.
func joinName(a, b string) string {
	if a == "" {
		return b
	}
	if b == "" {
		return a
	}
	return a + "-" + b
}
