package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed"
)

func (r report) print(w io.Writer) {
	for i := range r.Hops {
		if i > 0 {
			fmt.Fprintln(w)
		}
		r.Hops[i].print(w)
	}
}

func (h *hop) print(w io.Writer) {
	fmt.Fprintf(w, "%s %s\n", h.Method, h.URL)
	fmt.Fprintf(w, "  answered %d %s after %s", h.Status, http.StatusText(h.Status), span(seconds(h.Seconds)))
	if h.Location != "" {
		fmt.Fprintf(w, ", and leads on to %s", printable(h.Location))
	}
	fmt.Fprintln(w, ".")
	if h.Cached {
		fmt.Fprintln(w, "  It came out of a cache, so that what it says of limits does not count.")
	}
	if h.Refused {
		fmt.Fprintln(w, "  "+h.refusal())
	}
	if p := h.Problem; p != nil {
		fmt.Fprintf(w, "  Its problem document is of type %s", printable(p.Type))
		if text := cmp.Or(p.Title, p.Detail); text != "" {
			fmt.Fprintf(w, ": %s", printable(text))
		}
		fmt.Fprintln(w)
	}
	if h.RetryAfter != nil {
		fmt.Fprintf(w, "  It asks to come back in %s (Retry-After).\n", span(seconds(*h.RetryAfter)))
	}
	if h.NoRetry {
		fmt.Fprintln(w, "  It does not want this request again.")
	}
	if h.Reduced {
		fmt.Fprintln(w, "  It is short of capacity, and wants less at once.")
	}
	if !h.announced() {
		fmt.Fprintf(w, "  %s announces no limits here.\n", h.Origin)
	} else {
		if len(h.Policies) > 0 {
			fmt.Fprintf(w, "  %s announces in the dialect %s, %s:\n", h.Origin, cmp.Or(h.Dialect, "(unknown)"), dialectWords(h.Dialect))
		}
		for _, p := range h.Policies {
			fmt.Fprintln(w, "    "+p.sentence(!strings.HasPrefix(h.Dialect, "ietf-")))
		}
		switch {
		case h.Refused && h.Global:
			fmt.Fprintln(w, "  The refusal holds for all requests with these credentials, whatever they ask for.")
		case h.Refused && h.Route:
			fmt.Fprintln(w, "  The refusal holds for requests of the same method and a path of the same shape.")
		case h.Bucket != "":
			fmt.Fprintf(w, "  The request was counted in the budget %q. The origin has others: where this one is used up, heed\n", h.Bucket)
			fmt.Fprintln(w, "  holds only requests of the same method and a path of the same shape, and those counted with them.")
		}
	}
	fmt.Fprintln(w, "  "+h.Next.sentence())
}

// refusal says why a request was turned away.
func (h *hop) refusal() string {
	if len(h.Violated) == 0 {
		return "The request was turned away for a limit."
	}
	return fmt.Sprintf("The request was turned away for going beyond %s.", quotedList(h.Violated))
}

// sentence says a policy in words: `"burst": 20 requests per second; 19 left,
// all of it back in 1s.` known: it is in the dialect of a service.
func (p policySaid) sentence(known bool) string {
	var b strings.Builder
	if p.Name != "" {
		fmt.Fprintf(&b, "%q: ", p.Name)
	}
	words := unitWords(p.Unit)
	switch {
	case p.Quota == nil:
		fmt.Fprintf(&b, "a limit on %s", words)
	case *p.Quota == 1:
		fmt.Fprintf(&b, "1 %s", strings.Replace(words, "requests", "request", 1))
	default:
		fmt.Fprintf(&b, "%s %s", grouped(*p.Quota), words)
	}
	if p.Window != nil {
		fmt.Fprintf(&b, " per %s", every(seconds(*p.Window)))
	}
	if len(p.PartitionKey) > 0 {
		b.WriteString(" for a part of its users")
	}
	if p.PerRoute {
		b.WriteString(", for each method and shape of path")
	}
	if p.Remaining != nil {
		fmt.Fprintf(&b, "; %s left", grouped(*p.Remaining))
	}
	if p.Reset != nil {
		fmt.Fprintf(&b, "; reset in %s", span(seconds(*p.Reset)))
	}
	b.WriteString(".")
	switch {
	case enforced(p.Unit):
	case known && (p.Unit == "tokens" || p.Unit == "percent"):
		b.WriteString(" (heed cannot count these, and waits only where none is left.)")
	default:
		b.WriteString(" (heed does not know this unit, and only shows it.)")
	}
	return b.String()
}

func enforced(unit string) bool {
	switch heed.Unit(unit) {
	case heed.UnitRequests, heed.UnitContentBytes, heed.UnitConcurrentRequests:
		return true
	}
	return false
}

func unitWords(unit string) string {
	switch heed.Unit(unit) {
	case heed.UnitRequests:
		return "requests"
	case heed.UnitContentBytes:
		return "bytes of content"
	case heed.UnitConcurrentRequests:
		return "requests at once"
	}
	return unit
}

func (n next) sentence() string {
	switch {
	case n.Allowed:
		return "Another request could go now."
	case n.Wait == 0:
		return "heed would hold another request until those in flight are answered."
	case n.Policy != "":
		return fmt.Sprintf("heed would hold another request for %s, for the policy %q.", span(seconds(n.Wait)), n.Policy)
	}
	return fmt.Sprintf("heed would hold another request for %s (%s).", span(seconds(n.Wait)), n.Cause)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(quoted, " and ")
}
