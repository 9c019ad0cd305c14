package heed

import (
	"net/netip"
	"net/url"
	"strings"
	"unicode"
)

// unknownOrigin is what requests without a usable host share.
const unknownOrigin = "unknown"

// longestHost is how long a host may be (RFC 1035, section 2.3.4): redirects
// come from servers, and names are remembered.
const longestHost = 255

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
	if scheme != "" {
		scheme += ":"
	}
	if port != "" {
		port = ":" + port
	}
	return scheme + "//" + host + port
}

// splitHostPort is net.SplitHostPort without its errors: what is no port
// stays with the host. An IPv6 address keeps no brackets.
func splitHostPort(s string) (host, port string) {
	host = s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.Contains(s[i:], "]") && (i == len(s)-1 || allDigits(s[i+1:])) {
		host, port = s[:i], s[i+1:]
		for len(port) > 1 && port[0] == '0' {
			port = port[1:]
		}
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		host, port = s, "" // an IPv6 address without its brackets
	}
	return host, port
}

// dots are what IDNA takes for a dot between labels (RFC 3490, section 3.1).
var dots = strings.NewReplacer("\u3002", ".", "\uff0e", ".", "\uff61", ".")

// canonicalHost returns a host as it stands in an origin; false where it is
// none. It goes as far as telling one host from another needs: what IDNA's
// tables would map or refuse is encoded as it is.
func canonicalHost(host string) (string, bool) {
	if len(host) > longestHost {
		return "", false
	}
	if !ascii(host) {
		host = dots.Replace(host)
	}
	host = strings.TrimRight(host, ".")
	if host == "" {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return canonicalAddr(a)
	}
	for i := range len(host) {
		if c := host[i]; c <= ' ' || c == 0x7f || strings.IndexByte(notInHosts, c) >= 0 {
			return "", false
		}
	}
	if ascii(host) {
		return strings.ToLower(host), true
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

// notInHosts are the characters of ASCII that no host has, with "*", which
// stands for hosts in patterns.
const notInHosts = "\"#%*/:<>?@[\\]^`{|}"

// canonicalAddr returns an address as RFC 5952 has it, with brackets around
// it and its zone escaped (RFC 6874) where it is one of IPv6.
func canonicalAddr(a netip.Addr) (string, bool) {
	if a.Is4() {
		return a.String(), true
	}
	zone := a.Zone()
	for i := range len(zone) {
		if c := zone[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(notInHosts, c) >= 0 {
			return "", false
		}
	}
	if zone != "" {
		zone = "%25" + zone
	}
	return "[" + a.WithZone("").String() + zone + "]", true
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
