package heed

import (
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"
)

var testNow = time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)

// fieldsOf makes a header of lines as "Name: value".
func fieldsOf(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}

func announcedBy(status int, lines ...string) Announcement {
	return announcementOf("https://api.example.org", status, fieldsOf(lines...), nil, testNow, nil)
}

// limit is a service limit with a reset in whole seconds, negative if not said.
func limit(policy string, remaining, reset int64, pk ...string) ServiceLimit {
	l := ServiceLimit{Policy: policy, Remaining: remaining, Reset: -1, PartitionKey: strings.Join(pk, "")}
	if reset >= 0 {
		l.Reset, l.Resolution = time.Duration(reset)*time.Second, time.Second
	}
	return l
}

func policy(name string, quota, window int64, pk ...string) Policy {
	return Policy{Name: name, Quota: quota, Window: time.Duration(window) * time.Second, PartitionKey: strings.Join(pk, "")}
}

const (
	policies = "RateLimit-Policy: "
	limits   = "RateLimit: "
)

func TestIETFFields(t *testing.T) {
	clockLimit := func(name string, remaining, reset int64) ServiceLimit {
		l := limit(name, remaining, reset)
		l.Clock = true
		return l
	}
	endless := limit("a", 1, 0)
	endless.Reset = math.MaxInt64
	for _, tt := range []struct {
		name     string
		lines    []string
		policies []Policy
		limits   []ServiceLimit
		dialect  string
	}{
		// The examples of draft-11.
		{"two policies", []string{policies + `"burst";q=100;w=60,"daily";q=1000;w=86400`},
			[]Policy{policy("burst", 100, 60), policy("daily", 1000, 86400)}, nil, "ietf-11"},
		{"partition key of a policy", []string{policies + `"peruser";q=100;w=60;pk=:cHsdsRa894==:`},
			[]Policy{policy("peruser", 100, 60, "p{\x1d\xb1\x16\xbc\xf7")}, nil, "ietf-11"},
		{"quota unit", []string{policies + `"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`},
			[]Policy{{Name: "peruser", Quota: 65535, Window: 10 * time.Second, Unit: UnitContentBytes, PartitionKey: "\xb1\xd7\xe3\x2c\x95\x0e\x50"}}, nil, "ietf-11"},
		{"service limit", []string{limits + `"default";r=50;t=30`}, nil, []ServiceLimit{limit("default", 50, 30)}, "ietf-11"},
		{"partition key of a limit", []string{limits + `"default";r=999;pk=:dHJpYWwxMjEzMjM=:`}, nil, []ServiceLimit{limit("default", 999, -1, "trial121323")}, "ietf-11"},
		{"large", []string{limits + `"default";r=300000000;t=60;pk=:QXBwLTk5OQ==:`}, nil, []ServiceLimit{limit("default", 300000000, 60, "App-999")}, "ietf-11"},
		{"only the tightest limit", []string{policies + `"hour";q=1000;w=3600, "day";q=5000;w=86400`, limits + `"day";r=100;t=36000`},
			[]Policy{policy("hour", 1000, 3600), policy("day", 5000, 86400)}, []ServiceLimit{limit("day", 100, 36000)}, "ietf-11"},
		{"several lines", []string{policies + `"sliding";q=100;w=60;burst=1000`, policies + `"fixed";q=5000;w=3600;burst=0`},
			[]Policy{policy("sliding", 100, 60), policy("fixed", 5000, 3600)}, nil, "ietf-11"},

		// A field that is no list is ignored, and that field only (RFC 9651, section 4.2).
		{"policy field malformed", []string{policies + `"fixed window";"api";q=500;w=300`, limits + `"api";r=499;t=293`}, // Hugging Face
			nil, []ServiceLimit{limit("api", 499, 293)}, "ietf-11"},
		{"limit field malformed", []string{policies + `"a";q=5;w=3`, limits + `"a";r=5;T=3`}, []Policy{policy("a", 5, 3)}, nil, "ietf-11"},
		{"malformed after good items", []string{policies + `"a";q=5;w=3, "b";q=5;w=?`, limits + `"a";r=5;t=3, "b";r=1 ;t=2`}, nil, nil, ""},
		{"one bad line spoils all", []string{limits + `"a";r=5;t=3`, limits + `"b";r = 1`}, nil, nil, ""},
		{"empty second line", []string{limits + `"a";r=5;t=3`, limits}, nil, nil, ""},
		{"empty", []string{policies, limits}, nil, nil, ""},
		{"16 digits", []string{limits + `"a";r=1234567890123456;t=3`}, nil, nil, ""},
		{"plus", []string{limits + `"a";r=+5;t=3`}, nil, nil, ""},
		{"trailing comma", []string{limits + `"a";r=5;t=3,`}, nil, nil, ""},

		// What stands for the name.
		{"token", []string{policies + `default;q=5;w=10`, limits + `default;r=1`}, []Policy{policy("default", 5, 10)}, []ServiceLimit{limit("default", 1, -1)}, "ietf-11"},
		{"number, date, bytes, boolean, display string", []string{limits + `1;r=1, 1.5;r=1, @1;r=1, :aGk=:;r=1, ?1;r=1, %"x";r=1, "ok";r=2`}, nil, []ServiceLimit{limit("ok", 2, -1)}, "ietf-11"},
		{"integer with a window among policies", []string{policies + `100;w=60, "b";q=1;w=2`}, []Policy{policy("100;w=60", 100, 60), policy("b", 1, 2)}, nil, "ietf-11"},
		{"integer without a window", []string{policies + `100`}, nil, nil, ""},
		{"inner list", []string{policies + `("a" "b");q=1;w=2, "c";q=1;w=2`, limits + `("a");r=0, "c";r=3`}, []Policy{policy("c", 1, 2)}, []ServiceLimit{limit("c", 3, -1)}, "ietf-11"},
		{"escapes", []string{limits + `"pol\";r=99999;t=0";r=1;t=3600`}, nil, []ServiceLimit{limit(`pol";r=99999;t=0`, 1, 3600)}, "ietf-11"},
		{"case tells names apart", []string{limits + `"A";r=1, "a";r=2`}, nil, []ServiceLimit{limit("A", 1, -1), limit("a", 2, -1)}, "ietf-11"},

		// Parameters missing, zero or of the wrong type.
		{"no r", []string{limits + `"global-app-quota";t=3200`}, nil, []ServiceLimit{limit("global-app-quota", -1, 3200)}, "ietf-11"},
		{"no t", []string{limits + `"a";r=7`}, nil, []ServiceLimit{limit("a", 7, -1)}, "ietf-11"},
		{"nothing left and no t", []string{limits + `"a";r=0`}, nil, []ServiceLimit{limit("a", 0, -1)}, "ietf-11"},
		{"t is zero", []string{limits + `"a";r=7;t=0`}, nil, []ServiceLimit{limit("a", 7, 0)}, "ietf-11"},
		{"no q", []string{policies + `"a";w=60, "b";q=1;w=2`}, []Policy{policy("b", 1, 2)}, nil, "ietf-11"},
		{"no w", []string{policies + `"a";q=60`}, []Policy{policy("a", 60, 0)}, nil, "ietf-11"},
		{"w is zero", []string{policies + `"a";q=60;w=0`}, []Policy{policy("a", 60, 0)}, nil, "ietf-11"},
		{"q is zero", []string{policies + `"a";q=0;w=60`}, []Policy{policy("a", 0, 60)}, nil, "ietf-11"},
		{"negative", []string{policies + `"a";q=-1;w=60, "b";q=1;w=-60, "c";q=1;w=1`, limits + `"a";r=-1;t=1, "b";r=1;t=-1, "c";r=1;t=1`},
			[]Policy{policy("c", 1, 1)}, []ServiceLimit{limit("c", 1, 1)}, "ietf-11"},
		{"decimal", []string{policies + `"a";q=1.5;w=60, "b";q=1;w=6.5, "c";q=1;w=1`, limits + `"a";r=1.5;t=1, "b";r=1;t=1.5, "c";r=1;t=1`},
			[]Policy{policy("c", 1, 1)}, []ServiceLimit{limit("c", 1, 1)}, "ietf-11"},
		{"string", []string{policies + `"a";q="1";w=60, "b";q=1;w="6", "c";q=1;w=1`, limits + `"a";r="1";t=1, "b";r=1;t="1", "c";r=1;t=1`},
			[]Policy{policy("c", 1, 1)}, []ServiceLimit{limit("c", 1, 1)}, "ietf-11"},
		{"boolean", []string{policies + `"a";q;w=60, "b";q=1;w, "c";q=1;w=1`, limits + `"a";r;t=1, "b";r=1;t=?0, "c";r=1;t=1`},
			[]Policy{policy("c", 1, 1)}, []ServiceLimit{limit("c", 1, 1)}, "ietf-11"},
		{"date", []string{policies + `"a";q=@1;w=60, "c";q=1;w=1`, limits + `"a";r=@1;t=1, "b";r=1;t=@1700000000, "c";r=1;t=1`},
			[]Policy{policy("c", 1, 1)}, []ServiceLimit{limit("c", 1, 1)}, "ietf-11"},
		{"partition key is no byte sequence", []string{policies + `"a";q=1;w=1;pk="x"`, limits + `"a";r=1;t=1;pk=x`}, nil, nil, ""},
		{"unit is no string", []string{policies + `"a";q=1;w=1;qu=5, "b";q=1;w=1;qu`}, nil, nil, ""},
		{"more left than the quota", []string{policies + `"a";q=5;w=60`, limits + `"a";r=500;t=60`}, []Policy{policy("a", 5, 60)}, []ServiceLimit{limit("a", 500, 60)}, "ietf-11"},
		{"longer than any wait", []string{policies + `"a";q=1;w=999999999999999`, limits + `"a";r=1;t=999999999999999`},
			[]Policy{{Name: "a", Quota: 1, Window: math.MaxInt64}}, []ServiceLimit{endless}, "ietf-11"},
		{"leading zeros", []string{limits + `"a";r=01;t=0030`}, nil, []ServiceLimit{limit("a", 1, 30)}, "ietf-11"},
		{"unpadded partition key", []string{limits + `"a";r=1;pk=:aGVsbG8:`}, nil, []ServiceLimit{limit("a", 1, -1, "hello")}, "ietf-11"},
		{"empty partition key", []string{limits + `"a";r=1;pk=::`}, nil, []ServiceLimit{limit("a", 1, -1)}, "ietf-11"},

		// Units.
		{"units", []string{policies + `"a";q=1;qu="requests", "b";q=1;qu="request", "c";q=1;qu="concurrent-requests", "d";q=1;qu="acme-points", "e";q=1;qu=requests, "f";q=1;qu=""`},
			[]Policy{{Name: "a", Quota: 1, Unit: UnitRequests}, {Name: "b", Quota: 1, Unit: UnitRequests}, {Name: "c", Quota: 1, Unit: UnitConcurrentRequests},
				{Name: "d", Quota: 1, Unit: "acme-points"}, {Name: "e", Quota: 1, Unit: UnitRequests}, {Name: "f", Quota: 1}}, nil, "ietf-11"},

		// Duplicates: never a sum.
		{"same policy twice", []string{policies + `"a";q=10;w=60, "a";q=10;w=1, "a";q=5;w=60, "a";q=6;w=60`}, []Policy{policy("a", 5, 60)}, nil, "ietf-11"},
		{"same policy with and without a window", []string{policies + `"a";q=10, "a";q=20;w=60`}, []Policy{policy("a", 10, 0)}, nil, "ietf-11"},
		{"same limit twice", []string{limits + `"a";r=5;t=60, "a";r=3;t=10, "a";r=3;t=20, "a";t=900, "a";r=4;t=99`}, nil, []ServiceLimit{limit("a", 3, 20)}, "ietf-11"},
		{"unknown remaining first", []string{limits + `"a";t=60, "a";r=3;t=10`}, nil, []ServiceLimit{limit("a", 3, 10)}, "ietf-11"},
		{"same name, other partition key", []string{policies + `"a";q=10;w=1;pk=:YQ==:, "a";q=5;w=1;pk=:Yg==:`, limits + `"a";r=1;pk=:YQ==:, "a";r=2;pk=:Yg==:, "a";r=3`},
			[]Policy{policy("a", 10, 1, "a"), policy("a", 5, 1, "b")}, []ServiceLimit{limit("a", 1, -1, "a"), limit("a", 2, -1, "b"), limit("a", 3, -1)}, "ietf-11"},
		{"same parameter twice", []string{limits + `"a";r=1;t=2;r=9`}, nil, []ServiceLimit{limit("a", 9, 2)}, "ietf-11"},

		// Unknown parameters are comments, of whatever type.
		{"unknown parameters", []string{policies + `"a";q=5;w=3;since=@1700000000;note=%"f%c3%bc";x;y=?0;z=:aGk=:;*k=tok;limit=1;r=0`, limits + `"a";q=12;r=6;t=1;limit=0;reset=9`},
			[]Policy{policy("a", 5, 3)}, []ServiceLimit{limit("a", 6, 1)}, "ietf-11"},
		// What the draft's successor calls r and t.
		{"a and w", []string{limits + `"default";a=50;w=30`}, nil, []ServiceLimit{limit("default", 50, 30)}, "ietf-11"},
		{"r and t before a and w", []string{limits + `"default";a=50;w=30;r=1;t=2`}, nil, []ServiceLimit{limit("default", 1, 2)}, "ietf-11"},
		{"a beside a bad r", []string{limits + `"default";a=50;r=?1`}, nil, nil, ""},
		{"successor", []string{`RateLimit-Partition: "api";user_id;method`, limits + `"api";a=99;w=60;c=2;pk=:R0VUH2FsaWNl:`}, nil, []ServiceLimit{limit("api", 99, 60, "GET\x1falice")}, "ietf-11"},
		// express-rate-limit adds a line for each limiter.
		{"draft-8 of express-rate-limit", []string{limits + `"100-in-15min"; r=99; t=900`, limits + `"5-in-1s"; r=4; t=1`, policies + `"100-in-15min"; q=100; w=900; pk=:YTY2NWE0NTkyMDQy:`},
			[]Policy{policy("100-in-15min", 100, 900, "a665a4592042")}, []ServiceLimit{limit("100-in-15min", 99, 900), limit("5-in-1s", 4, 1)}, "ietf-11"},
		{"beta", []string{`Beta-RateLimit-Policy: "global-app-quota";q=65000;w=3600`, `Beta-RateLimit: "global-app-quota";t=3200`},
			[]Policy{policy("global-app-quota", 65000, 3600)}, []ServiceLimit{limit("global-app-quota", -1, 3200)}, "ietf-11"},
		{"beta beside the real ones", []string{`Beta-RateLimit: "a";r=1`, limits + `"b";r=2`}, nil, []ServiceLimit{limit("b", 2, -1)}, "ietf-11"},

		// Draft 07.
		{"draft 07", []string{limits + `limit=100, remaining=50, reset=30`, policies + `100;w=60;burst=1000;comment="sliding window", 5000;w=3600`},
			[]Policy{policy("100;w=60", 100, 60), policy("5000;w=3600", 5000, 3600)}, []ServiceLimit{limit("100;w=60", 50, 30)}, "ietf-07"},
		{"draft 07 without policies", []string{limits + `limit=100, remaining=50, reset=30`}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 50, 30)}, "ietf-07"},
		{"draft 07 without remaining", []string{limits + `limit=100, reset=30`}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", -1, 30)}, "ietf-07"},
		{"draft 07 on two lines", []string{limits + `limit=100, remaining=50, reset=30`, limits + `limit=10, remaining=5, reset=3`}, []Policy{policy("", 10, 0)}, []ServiceLimit{limit("", 5, 3)}, "ietf-07"},
		{"draft 07 with parameters", []string{limits + `limit=100;w=60, remaining=50;x="y", reset=30`}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 50, 30)}, "ietf-07"},
		{"draft 07 with semicolons", []string{limits + `limit=100; remaining=50; reset=30`}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 50, 30)}, "ietf-07"},
		{"draft 07 with a comment that is named like a key", []string{limits + `limit=100, remaining=50, note=1;limit=5;reset=60, reset=30`}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 50, 30)}, "ietf-07"},
		{"draft 07 of wrong types", []string{limits + `limit=100, remaining=many, reset=30`}, nil, nil, ""},
		{"draft 07 negative", []string{limits + `limit=100, remaining=-1, reset=30`}, nil, nil, ""},
		{"draft 07 with an instant", []string{limits + `limit=100, remaining=0, reset=1780394430`}, []Policy{policy("", 100, 0)}, []ServiceLimit{clockLimit("", 0, 30)}, "ietf-07"},
		{"another dictionary", []string{limits + `a=1, b=2`}, nil, nil, ""},
		{"policies of drafts 04 to 07 alone", []string{policies + `100;w=60`}, []Policy{policy("100;w=60", 100, 60)}, nil, "ietf-07"},

		// Drafts 00 to 06.
		{"drafts 00 and 01", []string{"RateLimit-Limit: 10, 10;w=1, 50;w=60, 1000;w=3600", "RateLimit-Remaining: 9", "RateLimit-Reset: 1"},
			[]Policy{policy("10;w=1", 10, 1), policy("50;w=60", 50, 60), policy("1000;w=3600", 1000, 3600)}, []ServiceLimit{limit("10;w=1", 9, 1)}, "ietf-06"},
		{"drafts 02 and 03", []string{"RateLimit-Limit: 100, 100;w=60", "RateLimit-Remaining: 99", "RateLimit-Reset: 50"}, []Policy{policy("100;w=60", 100, 60)}, []ServiceLimit{limit("100;w=60", 99, 50)}, "ietf-06"},
		{"drafts 04 to 06", []string{policies + "100;w=60", "RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 58"}, []Policy{policy("100;w=60", 100, 60)}, []ServiceLimit{limit("100;w=60", 60, 58)}, "ietf-06"},
		{"no policies", []string{"RateLimit-Limit: 960", "RateLimit-Remaining: 0", "RateLimit-Reset: 20"}, []Policy{policy("", 960, 0)}, []ServiceLimit{limit("", 0, 20)}, "ietf-06"},
		{"a limit that is no policy's", []string{"RateLimit-Limit: 8, 10;w=1", "RateLimit-Remaining: 7", "RateLimit-Reset: 1"}, []Policy{policy("10;w=1", 10, 1), policy("", 8, 0)}, []ServiceLimit{limit("", 7, 1)}, "ietf-06"},
		{"the reset tells the windows apart", []string{policies + "100;w=60, 100;w=3600, 100;w=86400", "RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 3000"},
			[]Policy{policy("100;w=60", 100, 60), policy("100;w=3600", 100, 3600), policy("100;w=86400", 100, 86400)}, []ServiceLimit{limit("100;w=3600", 60, 3000)}, "ietf-06"},
		{"the shortest window the reset fits into", []string{policies + "100;w=86400, 100;w=3600, 100;w=60, 100;w=7200", "RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 3000"},
			[]Policy{policy("100;w=86400", 100, 86400), policy("100;w=3600", 100, 3600), policy("100;w=60", 100, 60), policy("100;w=7200", 100, 7200)}, []ServiceLimit{limit("100;w=3600", 60, 3000)}, "ietf-06"},
		{"a reset longer than all windows", []string{policies + "100;w=60, 100;w=3600", "RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 9000"},
			[]Policy{policy("100;w=60", 100, 60), policy("100;w=3600", 100, 3600)}, []ServiceLimit{limit("100;w=3600", 60, 9000)}, "ietf-06"},
		{"same policy again", []string{"RateLimit-Limit: 10, 10;w=1, 10;w=1", "RateLimit-Remaining: 9", "RateLimit-Reset: 1"}, []Policy{policy("10;w=1", 10, 1)}, []ServiceLimit{limit("10;w=1", 9, 1)}, "ietf-06"},
		{"Docker Hub", []string{"RateLimit-Limit: 100;w=21600", "RateLimit-Remaining: 76;w=21600"}, []Policy{policy("100;w=21600", 100, 21600)}, []ServiceLimit{limit("100;w=21600", 76, -1)}, "ietf-06"},
		{"Heroku", []string{"RateLimit-Remaining: 2400"}, nil, []ServiceLimit{limit("", 2400, -1)}, "ietf-06"},
		{"an instant", []string{"Date: Tue, 02 Jun 2026 10:00:00 GMT", "RateLimit-Limit: 800", "RateLimit-Remaining: 799", "RateLimit-Reset: 1780394460"}, []Policy{policy("", 800, 0)}, []ServiceLimit{clockLimit("", 799, 60)}, "ietf-06"},
		{"an instant of the server's clock", []string{"Date: Tue, 02 Jun 2026 09:00:00 GMT", "RateLimit-Limit: 800", "RateLimit-Remaining: 799", "RateLimit-Reset: 1780390860"}, []Policy{policy("", 800, 0)}, []ServiceLimit{clockLimit("", 799, 60)}, "ietf-06"},
		{"a past instant", []string{"RateLimit-Limit: 800", "RateLimit-Remaining: 0", "RateLimit-Reset: 1580393717"}, []Policy{policy("", 800, 0)}, []ServiceLimit{clockLimit("", 0, 0)}, "ietf-06"},
		{"a date", []string{"RateLimit-Limit: 800", "RateLimit-Remaining: 0", "RateLimit-Reset: 2026-06-02 10:01:00 UTC"}, []Policy{policy("", 800, 0)}, []ServiceLimit{clockLimit("", 0, 60)}, "ietf-06"},
		{"several lines of each", []string{"RateLimit-Limit: 100", "RateLimit-Limit: 100", "RateLimit-Remaining: 7", "RateLimit-Remaining: 5", "RateLimit-Reset: 9", "RateLimit-Reset: 11"}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 5, 11)}, "ietf-06"},
		{"several lines of each, the other way round", []string{"RateLimit-Limit: 100", "RateLimit-Remaining: 5", "RateLimit-Remaining: 7", "RateLimit-Reset: 11", "RateLimit-Reset: 9"}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 5, 11)}, "ietf-06"},
		{"unknown remaining", []string{"RateLimit-Limit: 100", "RateLimit-Remaining: -1", "RateLimit-Reset: 9"}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", -1, 9)}, "ietf-06"},
		{"no numbers", []string{"RateLimit-Limit: many", "RateLimit-Remaining: some", "RateLimit-Reset: soon"}, nil, nil, ""},
		{"negative reset", []string{"RateLimit-Limit: 100", "RateLimit-Remaining: 5", "RateLimit-Reset: -5"}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 5, -1)}, "ietf-06"},
		{"decimal limit", []string{"RateLimit-Limit: 1.00", "RateLimit-Remaining: 0", "RateLimit-Reset: 1"}, []Policy{policy("", 1, 0)}, []ServiceLimit{limit("", 0, 1)}, "ietf-06"},
		{"limit of zero", []string{"RateLimit-Limit: 0", "RateLimit-Remaining: 0", "RateLimit-Reset: 1"}, []Policy{policy("", 0, 0)}, []ServiceLimit{limit("", 0, 1)}, "ietf-06"},
		{"malformed limit", []string{"RateLimit-Limit: ?100;w=60", "RateLimit-Remaining: 5", "RateLimit-Reset: 1"}, nil, []ServiceLimit{limit("", 5, 1)}, "ietf-06"},

		// Several generations in one response: the newest that says something.
		{"generations", []string{policies + `"a";q=100;w=60`, limits + `"a";r=60;t=58`, "RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 59"}, []Policy{policy("a", 100, 60)}, []ServiceLimit{limit("a", 60, 58)}, "ietf-11"},
		{"the newest generation malformed", []string{limits + `"a";R=1;t=2`, "RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 58"}, []Policy{policy("", 100, 0)}, []ServiceLimit{limit("", 60, 58)}, "ietf-06"},
		{"named policies, nameless limits", []string{policies + `"a";q=100;w=60`, "RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 58"}, []Policy{policy("a", 100, 60)}, []ServiceLimit{limit("a", 60, 58)}, "ietf-11"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := announcedBy(200, tt.lines...)
			want := Announcement{Policies: tt.policies, Limits: tt.limits, Dialect: tt.dialect}
			for _, line := range tt.lines {
				if v, ok := strings.CutPrefix(line, "Date: "); ok {
					want.Date, _ = parseTime(v)
				}
			}
			a.Policies, a.Limits = nonNil(a.Policies), nonNil(a.Limits)
			want.Policies, want.Limits = nonNil(want.Policies), nonNil(want.Limits)
			if !reflect.DeepEqual(a, want) {
				t.Errorf("%s\n got %+v\nwant %+v", strings.Join(tt.lines, "\n"), a, want)
			}
		})
	}
}

func nonNil[T any](s []T) []T { return append([]T{}, s...) }

// The dialects make more of such a field than the draft allows.
func TestMalformedLimitStatesNothing(t *testing.T) {
	var a Announcement
	a.readIETF(fieldsOf("RateLimit-Limit: 100, 100;w=60, 5;W=1", "RateLimit-Remaining: 5"), testNow)
	if len(a.Policies) != 0 || len(a.Limits) != 1 || a.Limits[0] != limit("", 5, -1) {
		t.Errorf("got %+v", a)
	}
}

// A quota stated in the draft's fields and in others is one quota.
func TestQuotaInTwoFamiliesCountsOnce(t *testing.T) {
	a := announcedBy(200,
		`RateLimit-Policy: "100-in-15min"; q=100; w=900; pk=:YTY2NWE0NTkyMDQy:`,
		`RateLimit: "100-in-15min"; r=99; t=900; pk=:YTY2NWE0NTkyMDQy:`,
		"X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 99", "X-RateLimit-Reset: 1780395300")
	if len(a.Policies) != 1 || len(a.Limits) != 1 || a.Limits[0].Reset != 900*time.Second || a.Dialect != "ietf-11" {
		t.Errorf("got %+v", a)
	}
}

func TestFieldsCountOnEveryStatus(t *testing.T) {
	for _, tt := range []struct {
		status  int
		refused bool
	}{{200, false}, {204, false}, {301, false}, {304, false}, {404, false}, {429, true}, {500, false}, {502, false}, {503, true}} {
		a := announcedBy(tt.status, `RateLimit: "a";r=0;t=10`)
		if len(a.Limits) != 1 || a.Limits[0].Remaining != 0 || a.Refused != tt.refused {
			t.Errorf("%d: %+v", tt.status, a)
		}
	}
	if a := announcedBy(429); !a.Refused {
		t.Errorf("429 without fields: %+v", a)
	}
	if a := announcedBy(200); !reflect.DeepEqual(a, Announcement{}) {
		t.Errorf("200 without fields: %+v", a)
	}
}

func TestForbiddenForALimitIsARefusal(t *testing.T) {
	for _, tt := range []struct {
		lines   []string
		refused bool
	}{
		{nil, false},
		{[]string{`RateLimit: "a";r=1;t=10`}, false},
		{[]string{`RateLimit: "a";r=0;t=10`}, true},
		{[]string{"RateLimit-Remaining: 0"}, true},
		{[]string{"Retry-After: 5"}, true},
		{[]string{"Retry-After: never"}, false},
	} {
		if a := announcedBy(403, tt.lines...); a.Refused != tt.refused {
			t.Errorf("%q: %+v", tt.lines, a)
		}
	}
}

// draft-11, section 7.3. What a refusal says about itself still counts.
func TestAnswersFromACacheAnnounceNothing(t *testing.T) {
	for _, tt := range []struct {
		age    string
		cached bool
	}{{"1", true}, {"0001", true}, {" 60 ", true}, {"99999999999999999999999999", true},
		{"0", false}, {"000", false}, {"", false}, {"-1", false}, {"old", false}, {"1.5", false}} {
		lines := []string{"Age: " + tt.age, `RateLimit-Policy: "a";q=5;w=10`, `RateLimit: "a";r=0;t=10`, "X-RateLimit-Limit: 9", "X-RateLimit-Remaining: 0", "Retry-After: 7"}
		a := announcedBy(503, lines...)
		if a.Cached != tt.cached || (len(a.Policies) == 0 && len(a.Limits) == 0) != tt.cached || (a.Dialect == "") != tt.cached {
			t.Errorf("Age %q: %+v", tt.age, a)
		}
		if !a.Refused || a.RetryAfter != 7*time.Second {
			t.Errorf("Age %q: the refusal is lost: %+v", tt.age, a)
		}
		if a := announcedBy(200, lines[0]); a.Cached != tt.cached {
			t.Errorf("Age %q without limits: %+v", tt.age, a)
		}
		// GitHub refuses with this status, too; what a cache keeps of it was an answer.
		if a := announcedBy(200, lines[0], "Retry-After: 7", "X-GitHub-Media-Type: github.v3"); a.Refused == tt.cached {
			t.Errorf("Age %q, a status 200 of GitHub's: %+v", tt.age, a)
		}
	}
}

func TestShouldRetry(t *testing.T) {
	for value, noRetry := range map[string]bool{"false": true, " False ": true, "true": false, "": false, "0": false} {
		if a := announcedBy(429, "X-Should-Retry: "+value); a.NoRetry != noRetry {
			t.Errorf("x-should-retry: %q: %+v", value, a)
		}
	}
}

func TestTrailersAreNotRead(t *testing.T) {
	resp := &http.Response{
		StatusCode: 200, Header: http.Header{}, Body: http.NoBody,
		Trailer: fieldsOf(`RateLimit: "a";r=0;t=10`, "Retry-After: 5", `RateLimit-Policy: "a";q=1;w=1`),
	}
	if a := ParseAnnouncement(resp, testNow); !reflect.DeepEqual(a, Announcement{}) {
		t.Errorf("got %+v", a)
	}
}

// Whatever a server sends, what is kept of it is small.
func TestBombsAreBounded(t *testing.T) {
	many := func(n int, format func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(format(i))
		}
		return b.String()
	}
	item := func(params string) func(int) string {
		return func(i int) string { return `"p` + strconv.Itoa(i) + `"` + params }
	}
	long := strings.Repeat("n", 64<<10)
	huge := strings.Repeat("x", 10<<20)
	for _, tt := range []struct {
		name             string
		policies, limits int
		lines            []string
	}{
		{"1024 of each", 64, 64, []string{policies + many(1024, item(";q=5;w=10")), limits + many(1024, item(";r=5;t=10"))}},
		{"10 000 of each", 0, 0, []string{policies + many(10_000, item(";q=5;w=10")), limits + many(10_000, item(";r=5;t=10"))}},
		{"1024 of drafts 04 to 07", 64, 0, []string{policies + many(1024, func(i int) string { return strconv.Itoa(i) + ";w=60" })}},
		{"1024 of draft 00", 64, 1, []string{"RateLimit-Limit: " + many(1024, func(i int) string { return strconv.Itoa(i) + ";w=60" }), "RateLimit-Remaining: 1"}},
		{"256 parameters", 1, 1, []string{policies + `"a";q=5;w=10;` + strings.ReplaceAll(many(256, func(i int) string { return "k" + strconv.Itoa(i) }), ", ", ";"), limits + `"a";r=5`}},
		{"names of 64 KiB", 0, 0, []string{policies + `"` + long + `";q=5;w=10`, limits + `"` + long + `";r=5;t=10`}},
		{"names of 32 KiB", 1, 1, []string{policies + `"` + long[:32<<10] + `";q=5;w=10, "b";q=1;w=1`, limits + `"` + long[:32<<10] + `";r=5;t=10, "b";r=1`}},
		{"names of 1 KiB", 1, 1, []string{policies + `"` + long[:1024] + `";q=5;w=10`, limits + `"` + long[:1024] + `";r=5;t=10`}},
		{"names of 1 KiB, escaped", 1, 1, []string{policies + `"` + strings.Repeat(`\"`, 1024) + `";q=5;w=10`, limits + `"` + strings.Repeat(`\\`, 1024) + `";r=5;t=10`}},
		{"names of 1025 bytes", 0, 0, []string{policies + `"` + long[:1025] + `";q=5;w=10`, limits + `"` + long[:1025] + `";r=5;t=10`}},
		{"units of 2 KiB", 0, 0, []string{policies + `"a";q=5;w=10;qu="` + long[:2048] + `"`}},
		{"partition keys of 16 KiB", 1, 1, []string{policies + `"a";q=5;w=10;pk=:` + strings.Repeat("aaaa", 6000) + `:, "b";q=1`, limits + `"a";r=5;pk=:` + strings.Repeat("aaaa", 6000) + `:, "b";r=1`}},
		{"10 MiB of everything", 0, 0, []string{policies + huge, limits + huge, "RateLimit-Limit: " + huge, "RateLimit-Remaining: " + huge, "RateLimit-Reset: " + huge,
			"Retry-After: " + huge, "Retry-After-Ms: " + huge, "X-Retry-In: " + huge, "X-Should-Retry: " + huge, "Date: " + huge, "Age: " + huge, "X-RateLimit-Limit: " + huge, "X-RateLimit-Reset: " + huge}},
		{"10 MiB of commas", 0, 0, []string{policies + strings.Repeat(",", 10<<20), limits + strings.Repeat(",", 10<<20), "Retry-After: " + strings.Repeat(",", 10<<20)}},
		{"10 MiB of digits", 0, 0, []string{limits + strings.Repeat("9", 10<<20), "Retry-After: " + strings.Repeat("9", 10<<20), "RateLimit-Reset: " + strings.Repeat("9", 10<<20)}},
		{"deep inner lists", 0, 0, []string{policies + strings.Repeat("(", 32<<10), limits + strings.Repeat("(", 32<<10)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := fieldsOf(tt.lines...)
			a := announcementOf("https://api.example.org", 429, h, nil, testNow, nil)
			if len(a.Policies) != tt.policies || len(a.Limits) != tt.limits || a.RetryAfter != 0 {
				t.Errorf("%d policies, %d limits, Retry-After %v; want %d and %d and none", len(a.Policies), len(a.Limits), a.RetryAfter, tt.policies, tt.limits)
			}
			if n := testing.AllocsPerRun(1, func() { announcementOf("", 429, h, nil, testNow, nil) }); n > 1000 {
				t.Errorf("%v allocations", n)
			}
		})
	}
	t.Run("100 000 lines", func(t *testing.T) {
		h := http.Header{}
		for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Retry-After"} {
			for range 100_000 {
				h[name] = append(h[name], "5")
			}
		}
		a := announcementOf("https://api.example.org", 429, h, nil, testNow, nil)
		if len(a.Policies) > 1 || len(a.Limits) > 1 || a.RetryAfter != 5*time.Second {
			t.Errorf("got %+v", a)
		}
	})
}

// A name must not hold on to the header it was read from: net/http makes one
// string of all of it.
func TestNothingIsKeptOfTheHeader(t *testing.T) {
	p, l := `"name";q=5;w=10;qu="unit";pk=:aGk=:`, `"name";r=1;pk=:aGk=:, "other";r=2`
	a := announcementOf("", 200, http.Header{"Ratelimit-Policy": {p}, "Ratelimit": {l}}, nil, testNow, nil)
	if len(a.Policies) != 1 || len(a.Limits) != 2 {
		t.Fatalf("got %+v", a)
	}
	for _, kept := range []string{a.Policies[0].Name, string(a.Policies[0].Unit), a.Policies[0].PartitionKey, a.Limits[0].Policy, a.Limits[0].PartitionKey, a.Limits[1].Policy} {
		at := uintptr(unsafe.Pointer(unsafe.StringData(kept)))
		for _, field := range []string{p, l} {
			begin := uintptr(unsafe.Pointer(unsafe.StringData(field)))
			if at >= begin && at < begin+uintptr(len(field)) {
				t.Errorf("%q is a part of %q", kept, field)
			}
		}
	}
}

// ietfSeeds are values of the draft's fields, from its text and from real
// services.
var ietfSeeds = []string{
	`"burst";q=100;w=60,"daily";q=1000;w=86400`,
	`"peruser";q=100;w=60;pk=:cHsdsRa894==:`,
	`"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`,
	`"default";r=50;t=30`,
	`"default";r=999;pk=:dHJpYWwxMjEzMjM=:`,
	`"sliding";q=100;w=60;burst=1000, "fixed";q=5000;w=3600;burst=0`,
	`"100-in-15min"; r=99; t=900`,
	`"100-in-15min"; q=100; w=900; pk=:YTY2NWE0NTkyMDQy:`,
	`"api";r=499;t=293`,
	`"fixed window";"api";q=500;w=300`,
	`"global-app-quota";t=3200`,
	`"default";a=50;w=30`,
	`quota;t=1`,
	`limit=100, remaining=50, reset=30`,
	`100;w=60;burst=1000;comment="sliding window", 5000;w=3600`,
	`10, 10;w=1, 50;w=60, 1000;w=3600`,
	`100;w=21600`,
}

// FuzzAnnouncement feeds whole responses, a field to a line, and a body after
// an empty one.
func FuzzAnnouncement(f *testing.F) {
	for _, s := range ietfSeeds {
		f.Add(200, "Ratelimit: "+s+"\nRatelimit-Policy: "+s+"\nRatelimit-Limit: "+s)
	}
	for _, s := range []string{
		"Retry-After: 30", "Retry-After: Tue, 02 Jun 2026 10:02:00 GMT\nDate: Tue, 02 Jun 2026 10:00:00 GMT", "Retry-After: 2.0\nRetry-After-Ms: 1500",
		"Ratelimit-Limit: 600\nRatelimit-Name: throttle_authenticated_api\nRatelimit-Observed: 5\nRatelimit-Remaining: 595\nRatelimit-Reset: 1580393717\nRatelimit-Resettime: Thu, 30 Jan 2020 14:15:17 GMT",
		"Ratelimit-Limit: 100;w=21600\nRatelimit-Remaining: 76;w=21600",
		"Ratelimit-Limit: 3\nRatelimit-Remaining: 2\nRatelimit-Reset: 41\nX-Ratelimit-Limit-Minute: 3\nX-Ratelimit-Remaining-Minute: 2",
		"X-Ratelimit-Limit: 10, 10;w=1;name=\"per-ip\", 1000;w=3600\nX-Ratelimit-Remaining: 9\nX-Ratelimit-Reset: 1",
		"X-Ratelimit-Limit-Requests: 60\nX-Ratelimit-Remaining-Requests: 59\nX-Ratelimit-Reset-Requests: 1s\nX-Ratelimit-Reset-Tokens: 6m0s",
		"X-App-Rate-Limit: 20:1,100:120\nX-App-Rate-Limit-Count: 3:1,57:120", "X-Retry-In: 565.087221ms\nRetry-After: 1",
		"X-Ratelimit-Reset: Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)",
		"Age: 5\nRatelimit: \"a\";r=1", "Content-Type: application/problem+json\n\n{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"violated-policies\":[\"a\"]}",
	} {
		f.Add(200, s)
		f.Add(429, s)
		f.Add(403, s)
	}
	f.Fuzz(func(t *testing.T, status int, s string) {
		head, body, _ := strings.Cut(s, "\n\n")
		h := http.Header{}
		for line := range strings.SplitSeq(head, "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && len(h) < 100 {
				h.Add(name, value)
			}
		}
		a := announcementOf("https://api.example.org", status, h, []byte(body), testNow, nil)
		checkAnnouncement(t, a)
		if (status == 429 || status == 503) && !a.Refused {
			t.Errorf("%d is no refusal", status)
		}
		again := announcementOf("https://api.example.org", status, h, []byte(body), testNow, nil)
		if len(h) < maxFields && !reflect.DeepEqual(a, again) {
			t.Errorf("%q is read in two ways: %+v and %+v", s, a, again)
		}
	})
}

// checkAnnouncement checks what holds of every announcement.
func checkAnnouncement(t *testing.T, a Announcement) {
	t.Helper()
	if len(a.Policies) > maxItems || len(a.Limits) > maxItems || len(a.Violated) > maxItems {
		t.Errorf("%d policies, %d limits, %d violated", len(a.Policies), len(a.Limits), len(a.Violated))
	}
	if a.RetryAfter < 0 {
		t.Errorf("Retry-After %v", a.RetryAfter)
	}
	if a.Cached && len(a.Policies)+len(a.Limits) > 0 {
		t.Errorf("out of a cache: %+v", a)
	}
	for _, p := range a.Policies {
		if p.Quota < 0 || p.Window < 0 || p.Burst != 0 || len(p.Name) > maxNameLen || len(p.Unit) > maxNameLen || len(p.PartitionKey) > maxNameLen {
			t.Errorf("policy %+v", p)
		}
	}
	for _, l := range a.Limits {
		if l.Remaining < -1 || l.Reset < -1 || l.Used < 0 || l.Resolution < 0 || len(l.Policy) > maxNameLen || len(l.PartitionKey) > maxNameLen {
			t.Errorf("limit %+v", l)
		}
		if l.Reset == -1 && (l.Clock || l.Resolution != 0) {
			t.Errorf("limit without a reset: %+v", l)
		}
	}
}
