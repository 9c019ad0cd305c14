package heed

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/dialects.md anew")

const dialectPage = "docs/dialects.md"

// TestDialectPage holds the page of documentation to the table and the
// fixtures it is made from. -update writes it.
func TestDialectPage(t *testing.T) {
	want := writeDialectPage(readFixtures(t))
	if *update {
		if err := os.MkdirAll("docs", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dialectPage, want, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(dialectPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: go test -run TestDialectPage -update", dialectPage)
	}
}

func writeDialectPage(fixtures []fixture) []byte {
	var b bytes.Buffer
	byDialect := map[string][]fixture{}
	services := map[string]bool{}
	for _, f := range fixtures {
		byDialect[f.dialect()] = append(byDialect[f.dialect()], f)
		services[f.key["service"]] = true
	}
	fmt.Fprintf(&b, `# Dialects

<!-- Written by "go test -run TestDialectPage -update" from the table in dialect_table.go and the fixtures in
testdata/dialects. Do not edit. -->

What heed understands of the limits that servers announce: the fields of the IETF drafts, Retry-After and its siblings,
and %d dialects of services and families of services. %d services' responses are kept as fixtures, each with its source
and with what it means, and every one is tried in every test run.

A dialect is spoken at the origins listed, and wherever its sign is sent; one marked "anywhere", or with neither, is
spoken by whoever sends its fields. Where a response states a quota in the fields of the IETF drafts and in a dialect,
it counts once: the drafts' fields come first, and the dialect adds what they lack. In the names of fields * stands for
the name of the policy. How long a refusal holds "without a hint" doubles with each in a row, up to MaxBackoff.

Policies are named after their dimension, as the service writes it, in lower case ("requests", "input-tokens",
"minute"). Where there is none they are named after their window ("15m"), as the early drafts do ("100;w=60"), or, if
they are a service's only quota, "".

How sure we are of a service:

| mark | source |
|---|---|
| V | the service's own documentation or source code |
| W | a capture of its responses, or its documentation as others quote it |
| S | a survey of vendors' documentation |

The marks are about names, forms and meaning; the numbers in a fixture are partly made up.

`, len(dialectTable), len(services))

	fmt.Fprint(&b, "## The IETF drafts\n\n")
	for _, d := range []struct{ name, text string }{
		{dialectIETF11, "`RateLimit-Policy` and `RateLimit` of drafts 08 to 11, structured fields with named policies; also with the prefix `Beta-`."},
		{dialectIETF07, "`RateLimit-Policy` and `RateLimit` of draft 07, a dictionary."},
		{dialectIETF06, "`RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of drafts 00 to 06, whose reset is a span, or, at many who only borrowed the names, an instant."},
	} {
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", d.name, d.text)
		writeServices(&b, byDialect[d.name])
	}
	fmt.Fprint(&b, "## Retry-After alone\n\nServices that say nothing before they refuse.\n\n")
	writeServices(&b, byDialect[""])

	fmt.Fprint(&b, "## Dialects\n\n")
	for i := range dialectTable {
		d := &dialectTable[i]
		fmt.Fprintf(&b, "### %s\n\n", d.Name)
		writeSpoken(&b, d)
		writeQuotas(&b, d)
		writeRefusals(&b, d)
		writeServices(&b, byDialect[d.Name])
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

// dialect is the one that explains the fixture: that of its meaning, or of its
// origin.
func (f *fixture) dialect() string {
	for _, m := range f.meaning {
		if name, ok := strings.CutPrefix(m, "dialect "); ok {
			return name
		}
	}
	for i := range dialectTable {
		if dialectTable[i].spokenAt(f.origin) {
			return dialectTable[i].Name
		}
	}
	if f.header.Get("X-RateLimit-Limit") != "" {
		return "x-ratelimit"
	}
	return ""
}

func writeSpoken(b *bytes.Buffer, d *Dialect) {
	var where []string
	for _, o := range d.Origins {
		where = append(where, code(o))
	}
	if d.Sign != "" {
		where = append(where, "wherever "+code(d.Sign)+" is sent")
	}
	if d.anywhere() {
		where = append(where, "anywhere")
	}
	fmt.Fprintf(b, "Spoken at: %s.\n", strings.Join(where, ", "))
	if d.Bucket != "" {
		fmt.Fprintf(b, "The budget's name: %s.\n", alternatives(d.Bucket))
	}
	if d.Named {
		fmt.Fprint(b, "The names of policies are budgets.\n")
	}
	if len(d.Majors) > 0 {
		fmt.Fprintf(b, "Each has budgets of its own: %s.\n", codes(d.Majors))
	}
	if len(d.Global) > 0 {
		fmt.Fprintf(b, "Holds for everything: %s.\n", codes(d.Global))
	}
	if len(d.Route) > 0 {
		fmt.Fprintf(b, "Holds for its route: %s.\n", codes(d.Route))
	}
	if len(d.NoRetry) > 0 {
		fmt.Fprintf(b, "Not to be retried: %s.\n", codes(d.NoRetry))
	}
	if d.Body != nil {
		fmt.Fprint(b, "Limits are stated in the body.\n")
	}
	fmt.Fprintln(b)
}

var forms = map[Form]string{
	FormRatio: "used/quota", FormWindows: "quota:seconds", FormPositions: "one for each window", FormKeys: "key=value",
	FormNamed: "name;remaining", FormCategories: "seconds:categories", FormPercent: "percent, as JSON",
	FormScopes: "scope:number",
}

func writeQuotas(b *bytes.Buffer, d *Dialect) {
	if len(d.Quotas) == 0 {
		return
	}
	fmt.Fprint(b, "| policy | says | fields |\n|---|---|---|\n")
	for i := range d.Quotas {
		q := &d.Quotas[i]
		name := q.Policy
		if name == "" && strings.Contains(q.names(roleLimit)+q.names(roleRemaining)+q.names(roleUsed), "*") {
			name = "*"
		}
		if q.Form != FormNumber && name == "" && q.Form != FormRatio {
			name = "as stated"
		}
		var facts []string
		if q.Unit != "" {
			facts = append(facts, "in "+string(q.Unit))
		}
		if q.PerRoute {
			facts = append(facts, "for each route")
		}
		if q.Window != 0 {
			facts = append(facts, "per "+windowName(q.Window))
		}
		for _, w := range q.Windows {
			facts = append(facts, "per "+windowName(w))
		}
		if q.Form != FormNumber {
			facts = append(facts, "written "+forms[q.Form])
		}
		title := "`" + name + "`"
		if name == "" {
			title = "`\"\"`"
		}
		if len(facts) > 0 {
			title += ", " + strings.Join(facts, ", ")
		}
		for _, r := range []struct {
			role role
			text string
			form TimeForm
		}{
			{roleLimit, "the quota", 0}, {roleRemaining, "what is left", 0}, {roleUsed, "what is used", 0},
			{roleReset, "the reset", q.ResetForm}, {roleResetAfter, "the reset, in seconds", 0},
			{roleRetryAfter, "when to come back", q.RetryAfterForm}, {roleInterval, "the window", q.IntervalForm},
			{roleRate, "the rate", 0},
		} {
			if names := q.names(r.role); names != "" {
				text := r.text
				if r.form == TimeMilliseconds {
					text += ", in milliseconds"
				}
				if r.role == roleReset && q.ResetIfExceeded {
					text += " once it was exceeded, else the present"
				}
				fmt.Fprintf(b, "| %s | %s | %s |\n", title, text, alternatives(names))
				title = ""
			}
		}
	}
	fmt.Fprintln(b)
}

func writeRefusals(b *bytes.Buffer, d *Dialect) {
	for _, f := range d.Refusals {
		var when []string
		if f.RetryAfter {
			when = append(when, "it says when to come back")
		}
		if f.Exhausted {
			when = append(when, "nothing is left")
		}
		if f.Body != "" {
			when = append(when, "its body contains "+code(f.Body))
		}
		line := fmt.Sprintf("- Status %d is a refusal", f.Status)
		if len(when) > 0 {
			line += " if " + strings.Join(when, " or ")
		}
		if f.NoRetry {
			line += "; it is not retried"
		}
		if f.Global {
			line += "; it holds for everything"
		}
		if f.Member != "" {
			line += "; its body's " + code(f.Member) + " says when to come back"
		}
		if f.Wait > 0 {
			line += fmt.Sprintf("; without a hint, for %v", f.Wait)
		}
		fmt.Fprintln(b, line+".")
	}
	if len(d.Refusals) > 0 {
		fmt.Fprintln(b)
	}
}

// writeServices lists services, and the surest of what is known of each.
func writeServices(b *bytes.Buffer, fixtures []fixture) {
	type service struct {
		name, checked, source string
		notes                 []string
	}
	var all []service
	for _, f := range fixtures {
		i := slices.IndexFunc(all, func(s service) bool { return s.name == f.key["service"] })
		if i < 0 {
			i = len(all)
			all = append(all, service{name: f.key["service"], checked: f.key["checked"], source: f.key["source"]})
		}
		if strings.Index("SWV", f.key["checked"]) > strings.Index("SWV", all[i].checked) {
			all[i].checked, all[i].source = f.key["checked"], f.key["source"]
		}
		if note := f.key["note"]; note != "" && !slices.Contains(all[i].notes, note) {
			all[i].notes = append(all[i].notes, note)
		}
	}
	if len(all) == 0 {
		return
	}
	sort.Slice(all, func(i, j int) bool { return strings.ToLower(all[i].name) < strings.ToLower(all[j].name) })
	fmt.Fprint(b, "| service | sure | source | notes |\n|---|---|---|---|\n")
	for _, s := range all {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", s.name, s.checked, s.source, strings.Join(s.notes, "; "))
	}
	fmt.Fprintln(b)
}

func alternatives(names string) string { return codes(strings.Fields(names)) }

func codes(list []string) string {
	var all []string
	for _, s := range list {
		all = append(all, code(s))
	}
	return strings.Join(all, ", ")
}

func code(s string) string { return "`" + s + "`" }
