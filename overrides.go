package heed

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// everyOrigin is the name under which the limits of all origins without
// limits of their own are set.
const everyOrigin = "*"

// wildcard is what stands before the host in the name of limits for all hosts under it.
const wildcard = "//*."

// overrides are the limits in force, by pattern; everyOrigin is always among them. A
// crawler sets some for each of very many origins, so that setting one's touches no other's.
type overrides struct {
	mu      sync.RWMutex // nothing else is locked while it is held
	by      map[string]*Limits
	version atomic.Uint64 // rises with each change
}

// edit changes them.
func (all *overrides) edit(change func(map[string]*Limits)) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.by == nil {
		all.by = make(map[string]*Limits)
	}
	change(all.by)
	if all.by[everyOrigin] == nil {
		all.by[everyOrigin] = Limits{}.withDefaults()
	}
	all.version.Add(1)
}

// SetLimits sets the limits of one origin ("https://api.example.org"), of the
// hosts under one ("https://*.example.org"), or of all that have none of
// their own ("*"). The most specific wins, and replaces the others whole.
// Requests that wait are judged again at once. A bad origin or limit is an
// error, and nothing changes. Limits stay set until others replace them or
// ClearLimits takes them back, even if the origin's state is forgotten.
func (r *Registry) SetLimits(origin string, l Limits) error {
	name, err := r.pattern(origin)
	if err == nil {
		err = l.check(name)
	}
	if err != nil {
		return err
	}
	r.change(name, func(all map[string]*Limits) { all[name] = l.withDefaults() })
	r.logLimits(name, l)
	return nil
}

// logLimits says that limits were set, and warns of policies in units that nobody
// counts: whoever sets one takes it to be kept to.
func (r *Registry) logLimits(name string, l Limits) {
	r.log().Debug("heed: limits set", "origin", name, "limits", l)
	for _, p := range l.Policies {
		switch p.Unit {
		case "", UnitRequests, UnitContentBytes, UnitConcurrentRequests:
		default:
			r.log().Warn("heed: a configured policy is not kept to: heed counts only requests, content-bytes and concurrent-requests",
				"origin", name, "policy", p.Name, "unit", string(p.Unit))
		}
	}
}

// ClearLimits takes back what SetLimits, SetAllLimits or Config set for an
// origin, so that the next less specific limits hold for it; "*" takes back
// the default. What was never set, or does not parse, changes nothing.
func (r *Registry) ClearLimits(origin string) {
	name, err := r.pattern(origin)
	if err != nil {
		return
	}
	r.change(name, func(all map[string]*Limits) { delete(all, name) })
	r.log().Debug("heed: limits cleared", "origin", name)
}

// SetAllLimits replaces all limits at once: def is for origins that origins
// does not name. Where any of them is bad, or two names are one origin's, it
// is an error and nothing changes.
func (r *Registry) SetAllLimits(def Limits, origins map[string]Limits) error {
	if err := def.check(everyOrigin); err != nil {
		return err
	}
	all := map[string]*Limits{everyOrigin: def.withDefaults()}
	given := map[string]string{everyOrigin: everyOrigin}       // as they are spelled, by what they mean
	for _, origin := range slices.Sorted(maps.Keys(origins)) { // the same error each time
		l := origins[origin]
		name, err := r.pattern(origin)
		if err == nil {
			err = l.check(name)
		}
		if err != nil {
			return err
		}
		if name == everyOrigin && !reflect.ValueOf(def).IsZero() {
			return fmt.Errorf("heed: the default limits are given twice, by themselves and for %q", origin)
		}
		if other, ok := given[name]; ok && other != origin {
			return fmt.Errorf("heed: limits for %q and for %q are limits for one origin", other, origin)
		}
		given[name] = origin
		all[name] = l.withDefaults()
	}
	r.change(everyOrigin, func(now map[string]*Limits) {
		clear(now)
		maps.Copy(now, all)
	})
	for _, name := range slices.Sorted(maps.Keys(given)) {
		l, ok := origins[given[name]]
		if !ok {
			l = def
		}
		r.logLimits(name, l)
	}
	return nil
}

// change edits the limits and has the origins judged again that a name is of.
func (r *Registry) change(name string, edit func(map[string]*Limits)) {
	r.init()
	r.limits.edit(edit)
	var heard []*origin
	for _, o := range r.covered(name) {
		now := o.lock()
		o.refresh(now)
		o.wakeAll(now)
		if len(o.pending) > 0 {
			heard = append(heard, o)
		}
		o.mu.Unlock()
	}
	for _, o := range heard { // last, for the user's OnEvent may panic
		o.flush()
	}
}

// covered returns the origins that limits set under a name may hold for.
func (r *Registry) covered(name string) []*origin {
	if name == everyOrigin || strings.Contains(name, wildcard) {
		return r.all()
	}
	if o := r.known(name); o != nil {
		return []*origin{o}
	}
	return nil
}

// refresh brings an origin's limits up to date. o.mu is held.
func (o *origin) refresh(now time.Time) {
	version := o.reg.limits.version.Load()
	if version == o.version {
		return
	}
	o.version = version
	l := o.reg.limits.of(o.name)
	if l == o.limits {
		return
	}
	lower := o.limits != nil && l.MaxRetryAfter < o.limits.MaxRetryAfter
	o.limits, o.stirred = l, true
	if len(l.Policies) > 0 {
		o.rejoin(now, nil) // they hold for all routes
	}
	if lower {
		o.pause.limit(l.MaxRetryAfter)
	}
	o.shared.until = time.Time{} // it judged by other limits
	for _, p := range o.partitions {
		p.configure(now, true)
		p.limitWaits()
		if lower {
			p.limitPauses()
		}
		if p.shared != nil {
			p.shared.until = time.Time{}
		}
		p.news = true
	}
}

// limitPauses has what the server asked the partition for keep to a MaxRetryAfter that is lower now.
func (p *partition) limitPauses() {
	most := p.origin.limits.MaxRetryAfter
	p.pause.limit(most)
	if s := p.suspect; s != nil {
		s.others.limit(most)
	}
	for _, l := range p.lanes {
		l.pause.limit(most)
	}
	for _, s := range p.slots {
		if end := s.ledger.said.Add(most); !s.enforced() && end.Before(s.ledger.closed) { // else a request goes to see: see dare
			s.ledger.closed = end
		}
	}
}

// pattern brings the name under which limits are set into the form that
// origins have: an origin, an origin whose host starts with "*.", "*", or,
// where users name their origins themselves, any name.
func (r *Registry) pattern(name string) (string, error) {
	if name == everyOrigin || name == unknownOrigin {
		return name, nil
	}
	if p, ok := canonicalPattern(name); ok {
		return p, nil
	}
	if r.config.Origin != nil && name != "" {
		return name, nil
	}
	return "", fmt.Errorf("heed: %q is not an origin: want scheme://host[:port], scheme://*.host[:port] or *", withoutSecrets(name))
}

// withoutSecrets is what may be shown of what was to be an origin, and may be a whole URL, in whatever
// form: neither query nor fragment, and neither user nor password, for each can be a token.
func withoutSecrets(name string) string {
	if i := strings.IndexAny(name, "?#"); i >= 0 {
		name = name[:i]
	}
	if i := strings.LastIndexByte(name, '@'); i >= 0 {
		scheme, _, ok := strings.Cut(name[:i], "//")
		if ok {
			scheme += "//"
		} else {
			scheme = ""
		}
		name = scheme + "xxxxx" + name[i:]
	}
	return name
}

func canonicalPattern(name string) (string, bool) {
	scheme, rest, ok := strings.Cut(name, "//")
	if !ok || scheme == ":" || scheme != "" && !strings.HasSuffix(scheme, ":") {
		return "", false
	}
	host, wild := strings.CutPrefix(strings.TrimSuffix(rest, "/"), "*.")
	origin := unknownOrigin
	if u, err := url.Parse(scheme + "//" + host); err != nil {
		origin = originOf(strings.TrimSuffix(scheme, ":"), host)
	} else if u.User == nil && u.Path == "" && u.RawQuery == "" && !u.ForceQuery && u.Fragment == "" {
		origin = OriginOf(u)
	}
	if wild {
		origin = strings.Replace(origin, "//", wildcard, 1)
	}
	return origin, origin != unknownOrigin
}

// of returns the limits of the most specific pattern that holds for an origin: its own name, the
// longest wildcard, "*".
func (all *overrides) of(origin string) *Limits {
	all.mu.RLock()
	defer all.mu.RUnlock()
	if l := all.by[origin]; l != nil {
		return l
	}
	if scheme, host, ok := strings.Cut(origin, "//"); ok && len(all.by) > 1 {
		for {
			_, parent, ok := strings.Cut(host, ".")
			if !ok {
				break
			}
			if l := all.by[scheme+wildcard+parent]; l != nil {
				return l
			}
			host = parent
		}
	}
	return all.by[everyOrigin]
}
