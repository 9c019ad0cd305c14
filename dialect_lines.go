package heed

import (
	"slices"
	"strings"
)

// A field may come in several lines: from a proxy and from the application behind it, or
// from several limiters, one behind the other.

// maxStacked bounds the limiters that are told apart by the lines they add.
const maxStacked = 8

// value returns the line at hand of the field that plays a role.
func (r *dialectReader) value(g *quotaGroup, rl role) string {
	if g.name[rl] == "" {
		return ""
	}
	return r.lineOf(g.name[rl])
}

// lineOf returns the line at hand of a field, the first where there are not as many.
func (r *dialectReader) lineOf(name string) string {
	if lines := r.h[name]; r.line < len(lines) {
		return lines[r.line]
	}
	return r.h[name][0]
}

// stack returns how many limiters, one behind the other, have each added lines of their
// own for a quota that none of them has a name for: as many different quotas as there
// are lines of what is left and, if sent, of when it is restored. 0: they have not.
func (r *dialectReader) stack(g *quotaGroup) int {
	if g.quota.Form != FormNumber || g.quota.Policy != "" || g.name[roleLimit] == "" || g.name[roleRemaining] == "" {
		return 0
	}
	limits := r.h[g.name[roleLimit]]
	n := len(limits)
	if n < 2 || n > maxStacked || len(r.h[g.name[roleRemaining]]) != n || g.name[roleReset] != "" && len(r.h[g.name[roleReset]]) != n {
		return 0
	}
	var quotas [maxStacked]int64
	for i, limit := range limits {
		q, ok := parseCount(limit)
		if _, left := parseCount(r.h[g.name[roleRemaining]][i]); !ok || !left || slices.Contains(quotas[:i], q) {
			return 0
		}
		quotas[i] = q
	}
	return n
}

// span reads the time in the field that plays a role: of several lines, which
// limits of an application's own and of a proxy's leave, the longest.
func (r *dialectReader) span(g *quotaGroup, rl role, form TimeForm) (s span, ok bool) {
	name := g.name[rl]
	if name == "" {
		return span{}, false
	}
	if strings.HasSuffix(name, "-Ms") || strings.HasSuffix(name, "-Milliseconds") {
		form = TimeMilliseconds
	}
	if r.stacked > 0 {
		return parseSpan(r.lineOf(name), form, r.ref)
	}
	for _, line := range bounded(r.h[name]) {
		if v, valid := parseSpan(line, form, r.ref); valid && (!ok || v.d > s.d) {
			s, ok = v, true
		}
	}
	return s, ok
}
