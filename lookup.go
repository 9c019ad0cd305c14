package heed

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A spelling is an origin as a request writes it.
type spelling struct{ scheme, host string }

// mostSpellings bounds how many ways to write an origin are remembered.
const mostSpellings = 4096

// enter returns the partition a request belongs to, with its origin locked,
// and completes what is asked for it, which it is from now on.
func (r *Registry) enter(req *http.Request, a *ask) *partition {
	now := time.Now()
	r.sweep(now)
	a.req = req
	if req.URL != nil {
		a.path, a.route = req.URL.Path, ""
	}
	key := r.partitionOf(req)
	first := "" // the origin that a cost set for the request is for
	if a.charged = len(a.opts.costs) > 0; a.charged {
		first = r.firstOrigin(req)
	}
	for {
		o := r.originFor(req, now)
		if p := r.lockPartition(o, key, a); p != nil {
			a.charged = a.charged && (first == "" || first == o.name)
			if at := followedFrom(req, a.arrived, o.limits.MaxRetryAfter); a.attempt <= 1 && at.After(a.notBefore) {
				a.notBefore, a.follows = at, true
			}
			return p
		}
	}
}

// followedFrom is from when on a redirect may be followed that asks to wait (RFC 9110, section 10.2.3), where req does that; it is
// followed as it comes. Nobody else waits for that.
func followedFrom(req *http.Request, now time.Time, most time.Duration) time.Time {
	prev := req.Response
	if prev == nil || prev.StatusCode < 300 || prev.StatusCode > 399 {
		return time.Time{}
	}
	wait := announcementOf("", prev.StatusCode, prev.Header, nil, now, nil).RetryAfter
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(min(wait, most))
}

// firstOrigin returns the origin that a chain of redirects began at, "" where
// req is no redirect.
func (r *Registry) firstOrigin(req *http.Request) string {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if first == req {
		return ""
	}
	return r.nameOf(first)
}

// nameOf returns the name of the origin whose limits a request shares. One that the user gives
// is written as [Registry.SetLimits] and the others understand it, or it would be another one there.
func (r *Registry) nameOf(req *http.Request) string {
	if r.config.Origin == nil {
		return OriginOf(req.URL)
	}
	return r.named(r.config.Origin(req))
}

// named is nameOf for a name that the user gives.
func (r *Registry) named(name string) string {
	name, err := r.pattern(name)
	if err != nil {
		return unknownOrigin
	}
	return name
}

// spokenAt returns the origin by which the dialects of an answer are known.
func (r *Registry) spokenAt(o *origin, req *http.Request) string {
	if r.config.Origin != nil && req != nil && req.URL != nil && req.URL.Host != "" {
		return spokenOrigin(req.URL) // the name is the user's
	}
	return o.name
}

// bodyDialects returns the dialects that read an answer's body.
func (r *Registry) bodyDialects(o *origin, req *http.Request) []*Dialect {
	if r.config.Origin != nil {
		return bodyDialects(r.spokenAt(o, req), r.config.Dialects)
	}
	return o.bodies
}

// partitionOf returns what tells the holder of a quota from another.
func (r *Registry) partitionOf(req *http.Request) partitionKey {
	return hashCredential(r.seed, r.credential(req))
}

// credential returns what a request's partition is told by: a secret.
func (r *Registry) credential(req *http.Request) string {
	if c := optionsOf(req.Context()).credential; c != "" {
		return c
	}
	if r.config.Partition != nil {
		return r.config.Partition(req)
	}
	return credentialOf(req)
}

// originFor returns the state of a request's origin, made where there is none.
func (r *Registry) originFor(req *http.Request, now time.Time) *origin {
	if r.config.Origin != nil {
		name := r.config.Origin(req)
		if o := r.known(name); o != nil { // mostly it is written as it is kept
			return o
		}
		return r.originNamed(r.named(name), now)
	}
	u := req.URL
	if u == nil {
		u = &url.URL{}
	}
	s := spelling{u.Scheme, u.Host}
	r.mu.RLock()
	o := r.spellings[s]
	r.mu.RUnlock()
	if o != nil {
		return o
	}
	o = r.originNamed(OriginOf(u), now)
	if len(s.scheme)+len(s.host) > longestHost {
		return o
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spellings) >= mostSpellings+2*len(r.origins) {
		clear(r.spellings)
		for _, o := range r.origins {
			o.spellings = nil
		}
	}
	if r.origins[o.name] == o && r.spellings[s] == nil {
		s = spelling{strings.Clone(s.scheme), strings.Clone(s.host)} // not the URL they are part of
		r.spellings[s] = o
		o.spellings = append(o.spellings, s)
	}
	return o
}

// known returns the state of an origin that has been met, nil where it has not.
func (r *Registry) known(name string) *origin {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.origins[name]
}

// originNamed returns the state of an origin, made where there is none.
func (r *Registry) originNamed(name string, now time.Time) *origin {
	if o := r.known(name); o != nil {
		return o
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.origins[name]; o != nil {
		return o
	}
	o := &origin{reg: r, name: name, lastUsed: now}
	if r.config.Origin == nil {
		o.bodies = bodyDialects(name, r.config.Dialects)
	}
	o.refresh(now)
	r.origins[name] = o
	return o
}

// lockPartition locks o and returns the partition of a, which is a holder's, made where there is none;
// nil, with nothing locked, where o was forgotten meanwhile.
func (r *Registry) lockPartition(o *origin, holder partitionKey, a *ask) *partition {
	for roomy := false; ; roomy = true {
		now := o.lock()
		a.arrived = now
		if o.gone {
			o.mu.Unlock()
			return nil
		}
		o.refresh(now)
		key, route := o.keyOf(holder, a)
		if p := o.partition(key); p != nil {
			return p
		}
		if roomy {
			return o.newPartition(key, route, now)
		}
		o.mu.Unlock()
		r.makeRoom(now, o)
	}
}

// lockNamed returns the origin of that name, locked; made where there is
// none, so that what is asked of it holds from its first request on.
func (r *Registry) lockNamed(name string) (o *origin, now time.Time, err error) {
	r.init()
	if name, err = r.pattern(name); err != nil {
		return nil, time.Time{}, err
	}
	if name == everyOrigin || r.config.Origin == nil && strings.Contains(name, wildcard) {
		return nil, time.Time{}, fmt.Errorf("heed: %q is not one origin", name)
	}
	for {
		o = r.originNamed(name, time.Now())
		now = o.lock()
		if !o.gone && len(o.partitions) > 0 {
			o.refresh(now)
			return o, now, nil
		}
		o.mu.Unlock()
		var a ask
		if p := r.lockPartition(o, 0, &a); p != nil {
			return o, a.arrived, nil
		}
	}
}

// all returns every origin.
func (r *Registry) all() []*origin {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.AppendSeq(make([]*origin, 0, len(r.origins)), maps.Values(r.origins))
}
