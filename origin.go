package heed

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
)

// unknownOrigin is what requests without a usable host share.
const unknownOrigin = "unknown"

// OriginOf returns the origin of u (RFC 6454): scheme, host and port as in
// "https://api.example.org" or "http://[::1]:8080". The host is in lower
// case and in its ASCII form (RFC 3492), without a trailing dot; a scheme's
// default port is left out. It returns "unknown" where u has no usable host.
func OriginOf(u *url.URL) string {
	if u == nil {
		return unknownOrigin
	}
	return originOf(u.Scheme, u.Host)
}

func originOf(scheme, hostport string) string {
	host, port := splitHostPort(hostport)
	host, ok := canonicalHost(host)
	if !ok {
		return unknownOrigin
	}
	scheme = strings.ToLower(scheme)
	if scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		port = ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	return scheme + "://" + host
}

// splitHostPort is net.SplitHostPort without its errors: what is no port
// stays with the host.
func splitHostPort(s string) (host, port string) {
	host = s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.Contains(s[i:], "]") && digits(s[i+1:]) {
		host, port = s[:i], strings.TrimLeft(s[i+1:], "0")
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		host, port = s, "" // an IPv6 address without its brackets
	}
	return host, port
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func canonicalHost(host string) (string, bool) {
	host = strings.TrimSuffix(host, ".")
	if host == "" {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return strings.ToLower(a.String()), true
	}
	if strings.ContainsAny(host, " \t\r\n/\\?#@:[]<>\"") {
		return "", false
	}
	labels := strings.Split(host, ".")
	for i, l := range labels {
		l = strings.ToLower(l)
		if !ascii(l) {
			a, ok := punycode(l)
			if !ok {
				return "", false
			}
			l = "xn--" + a
		}
		labels[i] = l
	}
	return strings.Join(labels, "."), true
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// punycode encodes one label as RFC 3492, section 6.3, describes.
func punycode(label string) (string, bool) {
	const (
		base, tmin, tmax, skew, damp = 36, 1, 26, 38, 700
		initialBias, initialN        = 72, 0x80
		digits                       = "abcdefghijklmnopqrstuvwxyz0123456789"
		longest                      = 63 // RFC 1035, section 2.3.4
	)
	runes := []rune(label)
	if len(runes) > longest {
		return "", false
	}
	var out []byte
	for _, r := range runes {
		if r < initialN {
			out = append(out, byte(r))
		}
	}
	basic, handled := len(out), len(out)
	if basic > 0 {
		out = append(out, '-')
	}
	n, delta, bias := rune(initialN), 0, initialBias
	for handled < len(runes) {
		next := rune(unicode.MaxRune)
		for _, r := range runes {
			if r >= n {
				next = min(next, r)
			}
		}
		delta += int(next-n) * (handled + 1)
		n = next
		for _, r := range runes {
			if r < n {
				delta++
			}
			if r != n {
				continue
			}
			q := delta
			for k := base; ; k += base {
				t := min(max(k-bias, tmin), tmax)
				if q < t {
					break
				}
				out = append(out, digits[t+(q-t)%(base-t)])
				q = (q - t) / (base - t)
			}
			out = append(out, digits[q])
			if handled == basic {
				delta /= damp
			} else {
				delta /= 2
			}
			handled++
			delta += delta / handled
			k := 0
			for ; delta > (base-tmin)*tmax/2; k += base {
				delta /= base - tmin
			}
			bias = k + (base-tmin+1)*delta/(delta+skew)
			delta = 0
		}
		delta++
		n++
	}
	return string(out), true
}

// everyOrigin is the name under which the limits of all origins without
// limits of their own are set.
const everyOrigin = "*"

// canonicalPattern brings the name under which limits are set into the form
// that origins have: an origin, an origin whose host starts with "*.", "*",
// or, where users name their origins themselves, any name.
func canonicalPattern(name string, ownNames bool) (string, error) {
	if name == everyOrigin || name == unknownOrigin {
		return name, nil
	}
	scheme, rest, ok := strings.Cut(name, "://")
	rest = strings.TrimSuffix(rest, "/")
	wild := strings.HasPrefix(rest, "*.")
	host := strings.TrimPrefix(rest, "*.")
	if ok && scheme != "" && !strings.Contains(host, "*") {
		if o := originOf(scheme, host); o != unknownOrigin {
			if wild {
				o = strings.Replace(o, "://", "://*.", 1)
			}
			return o, nil
		}
	}
	if ownNames && name != "" {
		return name, nil
	}
	return "", fmt.Errorf("heed: %q is not an origin: want scheme://host[:port], scheme://*.host[:port] or *", name)
}

// lookUp returns the value of the most specific pattern that holds for
// origin: its own name, the longest wildcard, "*".
func lookUp[V any](m map[string]V, origin string) (V, bool) {
	if v, ok := m[origin]; ok {
		return v, true
	}
	if scheme, host, ok := strings.Cut(origin, "://"); ok {
		for {
			_, parent, ok := strings.Cut(host, ".")
			if !ok {
				break
			}
			if v, ok := m[scheme+"://*."+parent]; ok {
				return v, true
			}
			host = parent
		}
	}
	v, ok := m[everyOrigin]
	return v, ok
}
