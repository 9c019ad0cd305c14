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
	lines := r.h[name]
	if r.stacked > 0 {
		lines = apartLines(lines, ",")
	}
	if r.line < len(lines) {
		return lines[r.line]
	}
	return lines[0]
}

// stack returns how many limiters, one behind the other, have each added lines of their
// own for a quota that none of them has a name for. 0: they have not.
func (r *dialectReader) stack(g *quotaGroup) int {
	if g.quota.Form != FormNumber || g.quota.Policy != "" {
		return 0
	}
	return stackedLines(r.h[g.name[roleLimit]], r.h[g.name[roleRemaining]], r.h[g.name[roleReset]])
}

// stackedLines returns how many limiters have added lines of their own: as many
// different quotas as there are lines of what is left and, if sent, of when it is
// restored. 0: they have not.
func stackedLines(limits, remaining, resets []string) int {
	sep := ","
	if len(resets) == 0 {
		sep = ", " // others may group thousands
	}
	limits, remaining, resets = apartLines(limits, sep), apartLines(remaining, sep), apartLines(resets, sep)
	n := len(limits)
	if n < 2 || n > maxStacked || len(remaining) != n || len(resets) > 0 && len(resets) != n {
		return 0
	}
	var quotas [maxStacked]int64
	for i, limit := range limits {
		q, ok := parseCount(limit)
		if _, left := parseCount(remaining[i]); !ok || !left || slices.Contains(quotas[:i], q) {
			return 0
		}
		quotas[i] = q
	}
	return n
}

// apartLines returns the lines of a field, those of numbers that a proxy has joined
// by a separator apart again (RFC 9110, section 5.3).
func apartLines(lines []string, sep string) []string {
	if len(lines) != 1 || len(lines[0]) > maxValueLen || !strings.Contains(lines[0], sep) {
		return lines
	}
	parts := strings.Split(lines[0], sep)
	for i, part := range parts {
		parts[i] = trimOWS(part)
		if _, rest, ok := scanDecimal(parts[i]); !ok || rest != "" {
			return lines
		}
	}
	return parts
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
