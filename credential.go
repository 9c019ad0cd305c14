package heed

import (
	"cmp"
	"encoding/base64"
	"hash/maphash"
	"net/http"
	"strings"
)

// keyHeaders are where APIs take a key that is not in Authorization, in
// canonical form, most usual first.
var keyHeaders = [...]string{"X-Api-Key", "Api-Key", "Private-Token"}

// credentialOf returns the part of a request's credentials that tells one
// holder of a quota from another, "" where there are none. Signatures and
// nonces, which change with each request, are left out. The result is a
// secret: it is hashed at once and never kept.
func credentialOf(req *http.Request) string {
	h := req.Header
	if v := h["Authorization"]; len(v) > 0 && v[0] != "" {
		return credentialOfAuthorization(v[0])
	}
	if req.URL != nil && req.URL.User != nil {
		u := req.URL.User // what http.Client makes Basic credentials of
		password, _ := u.Password()
		return base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + password))
	}
	for _, name := range keyHeaders {
		if v := h[name]; len(v) > 0 && v[0] != "" {
			return v[0]
		}
	}
	return ""
}

// credentialOfAuthorization returns the credential in a value of Authorization. Of a scheme that is not known, what
// follows may change with each request: the scheme stands for it.
func credentialOfAuthorization(v string) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(v), " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"), strings.EqualFold(scheme, "Basic"):
		return strings.TrimLeft(rest, " ")
	case hasPrefixFold(scheme, "AWS4-"): // AWS4-HMAC-SHA256 Credential=AKID/date/region/service/aws4_request, …
		id, _, _ := strings.Cut(parameter(rest, "Credential"), "/")
		return "AWS4 " + id
	case strings.EqualFold(scheme, "Digest"): // RFC 7616, section 3.4
		return "Digest " + cmp.Or(parameter(rest, "username"), parameter(rest, "username*"))
	case strings.EqualFold(scheme, "OAuth"): // RFC 5849, section 3.5.1
		return "OAuth " + parameter(rest, "oauth_consumer_key") + " " + parameter(rest, "oauth_token")
	}
	return schemeOf(v)
}

// schemeOf returns the scheme of a value of Authorization, in lower case (RFC 9110, section 11.1).
func schemeOf(v string) string {
	scheme, _, _ := strings.Cut(strings.TrimSpace(v), " ")
	return strings.ToLower(scheme)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// parameter returns the value of one name=value or name="value" of a list.
func parameter(list, name string) string {
	for list != "" {
		list = strings.TrimLeft(list, " ,\t")
		key, rest, ok := strings.Cut(list, "=")
		if !ok {
			return ""
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			value, list, _ = strings.Cut(rest[1:], `"`)
		} else {
			value, list, _ = strings.Cut(rest, ",")
			value = strings.TrimSpace(value)
		}
		if strings.EqualFold(strings.TrimSpace(key), name) {
			return value
		}
	}
	return ""
}

// A partitionKey stands for the holder of a quota within one origin: a hash
// of the credential under the registry's own seed; 0 where there is none.
type partitionKey uint64

func hashCredential(seed maphash.Seed, credential string) partitionKey {
	if credential == "" {
		return 0
	}
	return partitionKey(maphash.String(seed, credential))
}
