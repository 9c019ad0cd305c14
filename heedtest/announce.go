package heedtest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const second = int64(time.Second)

// A statement is what an answer's fields told the client to do.
type statement struct {
	spoke bool  // there were fields
	after int64 // start nothing for this long after the delivery; 0: not said
	until int64 // start nothing before this instant; 0: not said
}

// reading is what is announced of one policy.
type reading struct {
	policy *policyState
	left   int64
	reset  int64 // nanoseconds from now; negative: none
	wait   int64 // until a request would be accepted
}

// stamp writes the fields of an answer given now. v is the verdict on a refusal,
// nil for an accepted request.
func (k *keyed) stamp(o *Origin, now int64, h http.Header, v *verdict) statement {
	s := k.stampFields(o, now, h, v != nil)
	if v != nil {
		if after, ok := o.retryAfter(*v); ok {
			// It takes precedence over any reset beside it (section 7 of the draft).
			s = o.setRetryAfter(h, now, after)
		}
	}
	return s
}

func (k *keyed) stampFields(o *Origin, now int64, h http.Header, refused bool) (s statement) {
	c := &o.config
	turn := o.answers
	o.answers++
	switch {
	case c.Dialect == Silent, c.Dialect == RetryAfterOnly, len(o.policies) == 0,
		c.OnRefusalsOnly && !refused,
		c.Every > 1 && turn%int64(c.Every) != 0:
		return s
	}
	var array [4]reading
	readings := array[:0]
	for i := range o.policies {
		readings = append(readings, k.read(o, now, i))
	}
	tight := tightest(readings, c.Dialect != IETF11)
	if t := &readings[tight]; c.Below > 0 && t.left > 0 && float64(t.left) >= c.Below*float64(t.policy.Quota) {
		return s
	}
	shown, policies := readings, o.header
	if c.Tightest {
		shown = readings[tight : tight+1]
		policies = policyHeader(c.Dialect, []*policyState{shown[0].policy})
	}
	switch c.Dialect {
	case IETF11, IETF07, IETF06:
		if policies != "" {
			h["Ratelimit-Policy"] = []string{policies}
		}
	}
	if c.Dialect == IETF11 {
		return stampItems(h, shown, c.Rounding)
	}
	return stampNumbers(h, c, now, readings[tight])
}

// stampItems writes the RateLimit field of draft 08 and later.
func stampItems(h http.Header, shown []reading, rounding Rounding) statement {
	s := statement{spoke: true}
	var space [128]byte
	b := space[:0]
	for i, r := range shown {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendString(b, r.policy.Name)
		b = append(b, ";r="...)
		b = strconv.AppendInt(b, r.left, 10)
		if r.reset >= 0 {
			t := round(r.reset, second, rounding)
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, t/second, 10)
			s.name(r.left, t)
		}
	}
	h["Ratelimit"] = []string{string(b)}
	return s
}

// stampNumbers writes the limit, remaining and reset of one policy, the way of
// all other dialects.
func stampNumbers(h http.Header, c *Config, now int64, r reading) statement {
	s := statement{spoke: true}
	quota, left := strconv.FormatInt(r.policy.Quota, 10), strconv.FormatInt(r.left, 10)
	reset := ""
	switch {
	case r.reset < 0:
	case c.Dialect == IETF07, c.Dialect == IETF06, c.Dialect == XRateLimit:
		t := r.reset
		if c.Rounding != Exact || c.Dialect != XRateLimit {
			t = round(t, second, c.Rounding)
		}
		reset = decimal(t)
		s.name(r.left, t)
	default:
		t := epoch(c, now, r.reset)
		if c.Dialect == XRateLimitEpochMillis {
			reset = strconv.FormatInt(t/int64(time.Millisecond), 10)
		} else {
			reset = decimal(t)
		}
		if r.left == 0 {
			s.until = t - int64(c.ClockSkew)
		}
	}
	if c.Dialect == IETF07 {
		field := "limit=" + quota + ", remaining=" + left
		if reset != "" {
			field += ", reset=" + reset
		}
		h["Ratelimit"] = []string{field}
		return s
	}
	if c.Dialect == IETF06 {
		h["Ratelimit-Limit"], h["Ratelimit-Remaining"] = []string{quota}, []string{left}
		if reset != "" {
			h["Ratelimit-Reset"] = []string{reset}
		}
		return s
	}
	h["X-Ratelimit-Limit"], h["X-Ratelimit-Remaining"] = []string{quota}, []string{left}
	if reset != "" {
		h["X-Ratelimit-Reset"] = []string{reset}
	}
	if c.Dialect == GitHub {
		h["X-Ratelimit-Used"] = []string{strconv.FormatInt(max(0, r.policy.Quota-r.left), 10)}
		h["X-Ratelimit-Resource"] = []string{r.policy.Name}
	}
	return s
}

// epoch returns the instant on the origin's clock that a reset is announced as.
func epoch(c *Config, now, reset int64) int64 {
	clock, grain := now+int64(c.ClockSkew), second
	if c.Dialect == XRateLimitEpochMillis {
		grain = int64(time.Millisecond)
	}
	switch {
	case c.Rounding == RoundZero:
		return round(clock, grain, RoundDown)
	case c.Rounding == Exact && grain == second:
		return clock + reset
	}
	return round(clock+reset, grain, c.Rounding)
}

// name notes that nothing should start before a reset while nothing is left.
func (s *statement) name(left, reset int64) {
	if left == 0 {
		s.after = max(s.after, reset)
	}
}

// read returns what there is to announce of a policy.
func (k *keyed) read(o *Origin, now int64, i int) reading {
	p, l := o.policies[i], k.limiters[i]
	level := l.look(now)
	r := reading{policy: p, left: level.left, reset: -1}
	if p.Unit == UnitConcurrentRequests {
		return r // a slot comes free when it does
	}
	mode := o.config.Reset
	if mode == ResetUsual && level.left == 0 {
		mode = ResetNext
	}
	r.reset = level.usual
	if level.left == 0 {
		r.wait = l.wait(now, 1)
	}
	switch mode {
	case ResetFull:
		r.reset = level.full
	case ResetNext:
		if next := l.wait(now, level.left+1); next != never {
			r.reset = next
		} else if level.left > 0 {
			r.reset = level.full // all there is, is left
		}
	}
	if now < k.blocked {
		r.left = 0
		r.wait = max(r.wait, k.blocked-now)
		r.reset = max(r.reset, k.blocked-now)
	}
	return r
}

// tightest returns the index of the policy that binds first. Requests in flight
// come last where the dialect cannot tell them from others.
func tightest(readings []reading, flightLast bool) int {
	best := 0
	for i := 1; i < len(readings); i++ {
		a, b := &readings[i], &readings[best]
		inFlight, other := a.policy.Unit == UnitConcurrentRequests, b.policy.Unit == UnitConcurrentRequests
		switch {
		case flightLast && inFlight != other:
			if other {
				best = i
			}
		case a.wait != b.wait:
			if a.wait > b.wait {
				best = i
			}
		case float64(a.left)*float64(b.policy.Quota) < float64(b.left)*float64(a.policy.Quota):
			best = i
		}
	}
	return best
}

// retryAfter returns how long a refusal asks to wait, before rounding up, and
// whether it asks at all.
func (o *Origin) retryAfter(v verdict) (after int64, ok bool) {
	if o.config.Dialect == Silent {
		return 0, false
	}
	switch ra := &o.config.RetryAfter; ra.Mode {
	case RetryAfterConstant:
		return int64(ra.Value), true
	case RetryAfterWindow:
		window := int64(o.config.Block)
		if v.worst >= 0 {
			window = max(window, int64(o.policies[v.worst].Window))
		}
		return window, window > 0
	case RetryAfterExact:
		return v.wait, v.wait != never
	case RetryAfterShort:
		if v.wait == never {
			return 0, false
		}
		short := int64(float64(v.wait) * ra.Share)
		return short - short%second, true
	}
	return 0, false
}

func (o *Origin) setRetryAfter(h http.Header, now, after int64) statement {
	s := statement{spoke: true}
	if o.config.RetryAfter.HTTPDate {
		grain := RoundUp
		if o.config.RetryAfter.Mode == RetryAfterShort {
			grain = RoundDown
		}
		skew := int64(o.config.ClockSkew)
		t := round(now+skew+after, second, grain)
		h["Retry-After"] = []string{httpDate(t)}
		s.until = t - skew
		return s
	}
	s.after = round(after, second, RoundUp)
	h["Retry-After"] = []string{strconv.FormatInt(s.after/second, 10)}
	return s
}

func (o *Origin) stampOutage(h http.Header) statement {
	h["Content-Type"] = textPlain
	if o.outage.retryAfter <= 0 {
		return statement{}
	}
	s := statement{spoke: true, after: round(int64(o.outage.retryAfter), second, RoundUp)}
	h["Retry-After"] = []string{strconv.FormatInt(s.after/second, 10)}
	return s
}

// round rounds t to a multiple of grain.
func round(t, grain int64, r Rounding) int64 {
	into := t % grain
	if into < 0 {
		into += grain
	}
	switch {
	case r == RoundZero:
		return 0
	case into == 0:
		return t
	case r == RoundDown, r == RoundNearest && into < grain-into:
		return t - into
	}
	return t - into + grain
}

// decimal writes nanoseconds as seconds.
func decimal(t int64) string {
	whole, part := t/second, t%second
	if part == 0 {
		return strconv.FormatInt(whole, 10)
	}
	digits := strconv.FormatInt(second+part, 10)[1:]
	return strconv.FormatInt(whole, 10) + "." + strings.TrimRight(digits, "0")
}

// policyHeader returns the value of the RateLimit-Policy field.
func policyHeader(d Dialect, policies []*policyState) string {
	var items []string
	for _, p := range policies {
		switch {
		case d == IETF11:
			items = append(items, p.item)
		case p.Unit != UnitConcurrentRequests:
			items = append(items, strconv.FormatInt(p.Quota, 10)+windowParameter(p.Policy))
		}
	}
	return strings.Join(items, ", ")
}

// policyItem returns a policy as draft 08 and later have it.
func policyItem(p Policy) string {
	item := string(appendString(nil, p.Name)) + ";q=" + strconv.FormatInt(p.Quota, 10)
	if p.Unit != UnitRequests {
		item += ";qu=" + string(appendString(nil, p.Unit))
	}
	if p.Unit != UnitConcurrentRequests {
		item += windowParameter(p)
	}
	return item
}

// windowParameter rounds up to whole seconds: the draft has no others.
func windowParameter(p Policy) string {
	return ";w=" + strconv.FormatInt(round(int64(p.Window), second, RoundUp)/second, 10)
}

// appendString appends a structured field string (RFC 9651, section 3.3.3).
// What it cannot hold becomes a question mark.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c > 0x7e:
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// dateCache spares formatting a date for each of the many answers of a second.
type dateCache struct {
	second int64
	value  string
}

func (d *dateCache) at(clock int64) []string {
	if s := clock / second; s != d.second || d.value == "" {
		d.second, d.value = s, httpDate(clock)
	}
	return []string{d.value}
}

func httpDate(clock int64) string { return time.Unix(0, clock).UTC().Format(http.TimeFormat) }
