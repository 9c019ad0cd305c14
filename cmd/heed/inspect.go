package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/heedhttp/heed"
)

const inspectHelp = `Usage: heed inspect [FLAGS] URL

Asks for a URL once and says in words what limits the answer announces: in the
IETF's RateLimit fields, in the fields of the services heed knows, in
Retry-After, and in the problem document of a refusal. Redirects are followed,
and what each hop announces is said too; each is its own origin. Nothing is
tried again.

Exit status: 0 if the answer, or that of a hop on the way, announced anything,
1 if there was no answer, 2 for a command line that makes no sense, 3 if
nothing was announced, 130 if it was interrupted.
`

const exitNothing = 3

func inspect(ctx context.Context, s streams, args []string) int {
	f := s.flagSet("inspect", inspectHelp)
	method := f.StringP("method", "X", http.MethodGet, "the method of the request, such as HEAD")
	fields := f.StringArrayP("header", "H", nil, "a field to send, as \"Name: value\"; may be given several times")
	timeout := f.Duration("timeout", 30*time.Second, "how long to wait for the answer, redirects included")
	asJSON := f.Bool("json", false, "print JSON, with times in seconds")
	if status, ok := s.parse(f, args); !ok {
		return status
	}
	switch {
	case f.NArg() != 1:
		return s.misused(f, errors.New("it takes one URL"))
	case *timeout <= 0:
		return s.misused(f, errors.New("--timeout must be above 0"))
	}
	req, err := inspectRequest(*method, f.Arg(0), *fields)
	if err != nil {
		return s.misused(f, err)
	}
	timed, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("no answer within %v", *timeout))
	defer cancel()

	report, err := ask(timed, s.err, req)
	if *asJSON {
		if err != nil {
			report.Error = err.Error()
		}
		err = errors.Join(err, s.printJSON(report))
	} else {
		err = errors.Join(err, s.print(report.print))
	}
	if err != nil {
		fmt.Fprintln(s.err, "heed inspect:", err)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		return exitFailed
	case !report.Announced:
		return exitNothing
	}
	return exitOK
}

// ask sends req through heed and reports what every answer on the way said. It
// reports what it has where there is an error too. What it waits for it says to w.
func ask(ctx context.Context, w io.Writer, req *http.Request) (report, error) {
	registry, err := heed.NewRegistry(heed.Config{Logger: slog.New(slog.DiscardHandler), OnEvent: func(e heed.Event) {
		if e.Kind == heed.EventWaiting {
			fmt.Fprintf(w, "heed inspect: waiting for %s, as %s asks, before following it further\n", span(e.Wait), e.Origin)
		}
	}})
	if err != nil {
		return report{}, err
	}
	defer registry.Close()
	tap := &tap{base: http.DefaultTransport, registry: registry, hops: []hop{}}
	client := &http.Client{Transport: &heed.Transport{Base: tap, Registry: registry, Retry: heed.Retry{Max: -1}}, CheckRedirect: redirected}
	resp, err := client.Do(req.WithContext(ctx))
	if err == nil {
		io.CopyN(io.Discard, resp.Body, 16<<10) // some services state limits there
		resp.Body.Close()
	}
	r := report{Hops: tap.hops}
	learned := registry.Snapshot()
	for i := range r.Hops {
		h := &r.Hops[i]
		if i == len(r.Hops)-1 && len(h.Policies) == 0 && !h.Cached {
			h.readBody(learned)
		}
		h.Next = nextFrom(registry.Check(h.request))
		r.Announced = r.Announced || h.announced()
	}
	return r, err
}

// readBody adds what heed has learned of the hop's origin since the request was sent, though its fields
// announced nothing: what the body said.
func (h *hop) readBody(learned []heed.OriginState) {
	for _, o := range learned {
		if o.Origin != h.Origin {
			continue
		}
		for _, p := range o.Partitions[len(o.Partitions)-1].Policies {
			if p.Source != heed.SourceAnnounced || h.before[policyName{o.Origin, p.Name, p.Unit}] {
				continue
			}
			said := policySaid{Name: p.Name, Unit: string(p.Unit)}
			if p.Quota > 0 {
				said.Quota = new(p.Quota)
			}
			if p.Window > 0 {
				said.Window = new(p.Window.Seconds())
			}
			if p.Remaining >= 0 {
				said.Remaining = new(p.Remaining)
			}
			h.Policies, h.Dialect = append(h.Policies, said), inBody
		}
	}
}

// inBody is shown for the dialect of what a body says.
const inBody = "body"

// A policyName tells a policy of an origin from others.
type policyName struct {
	origin, name string
	unit         heed.Unit
}

// announcedIn is the policies that origins have announced.
func announcedIn(learned []heed.OriginState) map[policyName]bool {
	all := map[policyName]bool{}
	for _, o := range learned {
		for _, partition := range o.Partitions {
			for _, p := range partition.Policies {
				if p.Source == heed.SourceAnnounced {
					all[policyName{o.Origin, p.Name, p.Unit}] = true
				}
			}
		}
	}
	return all
}

// A tap is a RoundTripper that writes down what the answers it passes on say.
type tap struct {
	base     http.RoundTripper
	registry *heed.Registry
	hops     []hop
}

func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	before := announcedIn(t.registry.Snapshot())
	began := time.Now()
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.Request == nil {
		resp.Request = req
	}
	now := time.Now()
	h := hopFrom(heed.ParseAnnouncement(resp, now))
	h.request, h.before, h.Method, h.URL, h.Origin = req, before, req.Method, req.URL.Redacted(), heed.OriginOf(req.URL)
	h.Status, h.Seconds = resp.StatusCode, now.Sub(began).Seconds()
	h.Location = withoutPassword(resp.Header.Get("Location"))
	h.Problem = problemIn(resp)
	t.hops = append(t.hops, h)
	return resp, nil
}

func (t *tap) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A report is all that was said on the way to a URL. Its JSON form is what
// --json prints.
type report struct {
	Announced bool   `json:"announced"`
	Hops      []hop  `json:"hops"` // the last one is the answer
	Error     string `json:"error,omitempty"`
}

// A hop is one answer and what it said.
type hop struct {
	request *http.Request
	before  map[policyName]bool // announced before the request was sent

	Method     string           `json:"method"`
	URL        string           `json:"url"`
	Origin     string           `json:"origin"`
	Status     int              `json:"status"`
	Location   string           `json:"location,omitempty"`
	Seconds    float64          `json:"seconds"` // from the request to the answer
	Dialect    string           `json:"dialect,omitempty"`
	Policies   []policySaid     `json:"policies"`
	RetryAfter *float64         `json:"retry_after,omitempty"`
	Refused    bool             `json:"refused"`
	NoRetry    bool             `json:"no_retry,omitempty"`
	Reduced    bool             `json:"reduced,omitempty"`
	Cached     bool             `json:"cached,omitempty"`
	Bucket     string           `json:"bucket,omitempty"` // the budget the request was counted in
	Global     bool             `json:"global,omitempty"` // the refusal holds for all budgets
	Route      bool             `json:"route,omitempty"`  // the refusal holds for its route only
	Violated   []string         `json:"violated,omitempty"`
	Problem    *problemDocument `json:"problem,omitempty"`
	Next       next             `json:"next"` // what heed would do with another request just now
}

// policySaid is what was said of one policy: what it is, what is left of it,
// or both. What was not said is null.
type policySaid struct {
	Name         string   `json:"name"`
	Unit         string   `json:"unit"`
	Quota        *int64   `json:"quota"`
	Window       *float64 `json:"window"`
	Remaining    *int64   `json:"remaining"`
	Reset        *float64 `json:"reset"`
	PartitionKey []byte   `json:"partition_key,omitempty"`
	PerRoute     bool     `json:"per_route,omitempty"` // every route has it to itself
}

// next is what would hold another request.
type next struct {
	Allowed bool    `json:"allowed"`
	Wait    float64 `json:"wait"`
	Cause   string  `json:"cause,omitempty"`
	Policy  string  `json:"policy,omitempty"`
}

func nextFrom(d heed.Decision) next {
	n := next{Allowed: d.Allowed, Wait: max(d.Wait, 0).Seconds()}
	if !d.Allowed {
		n.Cause, n.Policy = d.Cause.String(), d.Policy
	}
	return n
}

func hopFrom(a heed.Announcement) hop {
	h := hop{
		Dialect: a.Dialect, Refused: a.Refused, NoRetry: a.NoRetry, Reduced: a.Reduced,
		Cached: a.Cached, Bucket: a.Bucket, Global: a.Global, Route: a.Route, Violated: a.Violated, Policies: []policySaid{},
	}
	if a.RetryAfter > 0 {
		h.RetryAfter = new(a.RetryAfter.Seconds())
	}
	place := map[[2]string]int{}
	for _, p := range a.Policies {
		said := policySaid{Name: p.Name, Unit: string(cmp.Or(p.Unit, heed.UnitRequests)), Quota: new(p.Quota), PartitionKey: []byte(p.PartitionKey)}
		if p.Window > 0 {
			said.Window = new(p.Window.Seconds())
		}
		place[[2]string{p.Name, p.PartitionKey}] = len(h.Policies)
		h.Policies = append(h.Policies, said)
	}
	for _, l := range a.Limits {
		i, ok := place[[2]string{l.Policy, l.PartitionKey}]
		if !ok {
			i = len(h.Policies)
			h.Policies = append(h.Policies, policySaid{Name: l.Policy, Unit: string(cmp.Or(l.Unit, heed.UnitRequests)), PartitionKey: []byte(l.PartitionKey)})
		}
		if l.Remaining >= 0 {
			h.Policies[i].Remaining = new(l.Remaining)
		}
		if l.Reset >= 0 {
			h.Policies[i].Reset = new(l.Reset.Seconds())
		}
	}
	for i := range h.Policies {
		h.Policies[i].PerRoute = slices.Contains(a.PerRoute, h.Policies[i].Name)
	}
	return h
}

// announced reports whether a hop said anything about limits. That it was a
// refusal says that there is one, but not which.
func (h *hop) announced() bool {
	return len(h.Policies) > 0 || h.RetryAfter != nil || len(h.Violated) > 0
}

// A problemDocument is what a problem document (RFC 9457) says for people.
type problemDocument struct {
	Type   string `json:"type"`
	Title  string `json:"title,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// problemIn returns the problem document in a response, nil where there is
// none. The body can be read as before.
func problemIn(resp *http.Response) *problemDocument {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if t != "application/problem+json" || resp.Body == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if err != nil {
		return nil
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	p := &problemDocument{}
	if json.Unmarshal(body, p) != nil {
		return nil
	}
	p.Type = cmp.Or(p.Type, "about:blank") // RFC 9457, section 3.1.1
	return p
}
