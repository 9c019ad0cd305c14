package scorecard

import (
	"math/rand/v2"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A Row is one line of the score card: a claim, and the scenarios that try it.
type Row struct {
	Name       string // short, to pick it by
	Title      string
	Thresholds Thresholds
	Variants   []Variant
	Compare    Condition // under which other clients play; zero: 50 per 5 s, 16 goroutines, 50 ms
}

// A Variant is a scenario without its condition, and the conditions it is
// played under.
type Variant struct {
	Scenario
	Conditions []Condition
}

// Thresholds are what every result of a row must keep to. In none of them may a
// request start before the instant that the newest answer had named. That an answer
// out of a window that is over, which comes late, names a later one is no reason
// to wait: what is newer counts.
type Thresholds struct {
	PerMille   float64 // refused per 1000 accepted, at most
	AfterEvent bool    // PerMille is about refusals after the first event
	PerRun     int64   // refused in a run, at most, whatever PerMille says
	Share      float64 // of what the oracle gets, at least
	Foreign    float64 // of what the foreign client wants, at least
	Jain       float64 // at least
}

// The conditions, all of them combined unless a row says otherwise.
var (
	quotas     = []Quota{{50, 5 * time.Second}, {100, 10 * time.Second}, {1000, 60 * time.Second}}
	goroutines = []int{16, 64, 1000}
	trips      = []Trip{Trip(5 * time.Millisecond), Trip(50 * time.Millisecond), Trip(500 * time.Millisecond), HeavyTail}
)

// announcing are the algorithms whose origins announce what is left.
var announcing = []heedtest.Algorithm{
	heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow,
	heedtest.SlidingCounter, heedtest.TokenBucket, heedtest.GCRA,
}

func conditions(qs []Quota, ns []int, ts []Trip) (all []Condition) {
	for _, q := range qs {
		for _, n := range ns {
			for _, t := range ts {
				all = append(all, Condition{q, n, t})
			}
		}
	}
	return all
}

// Rows returns the score card.
func Rows() []Row {
	all := conditions(quotas, goroutines, trips)
	return []Row{
		{
			Name: "announced", Title: "announced, resets rounded up",
			Thresholds: Thresholds{Share: 0.98},
			Variants:   under(all, byAlgorithm(announcing, "", Scenario{})),
		},
		{
			Name: "rounded", Title: "announced, resets rounded down or cut to 0",
			Thresholds: Thresholds{PerRun: 2, Share: 0.97},
			Variants: under(all,
				byAlgorithm(announcing, " down", Scenario{Origin: heedtest.Config{Rounding: heedtest.RoundDown}}),
				byAlgorithm(announcing, " zero", Scenario{Origin: heedtest.Config{Rounding: heedtest.RoundZero}})),
		},
		{
			Name: "epoch", Title: "announced as epoch, server clock off by up to 10 s",
			Thresholds: Thresholds{Share: 0.97},
			Variants: under(all,
				byAlgorithm(several, " seconds", Scenario{Origin: heedtest.Config{Dialect: heedtest.XRateLimitEpoch}, Vary: skewed}),
				byAlgorithm(several, " millis", Scenario{Origin: heedtest.Config{Dialect: heedtest.XRateLimitEpochMillis}, Vary: skewed})),
		},
		{
			Name: "policies", Title: "two or three policies at once",
			Thresholds: Thresholds{Share: 0.97},
			Variants: append(
				under(conditions([]Quota{{100, 60 * time.Second}}, goroutines, trips),
					byAlgorithm(several, " two", Scenario{Limits: twoLimits}),
					byAlgorithm(several, " three", Scenario{Limits: threeLimits})),
				under(all,
					[]Scenario{
						{Variant: "bytes", Limits: bytesBeside, Bodies: evenBodies},
						{Variant: "bytes drawn", Limits: bytesBeside, Bodies: drawnBodies},
					})...),
		},
		{
			Name: "sparse", Title: "fields only on every tenth answer; only below 20 % left",
			Thresholds: Thresholds{PerMille: 5, Share: 0.95},
			Variants: under(all,
				byAlgorithm(several, " every tenth", Scenario{Origin: heedtest.Config{Every: 10}}),
				byAlgorithm(several, " below a fifth", Scenario{Origin: heedtest.Config{Below: 0.2}})),
		},
		{
			Name: "refusals", Title: "told only when refused",
			Thresholds: Thresholds{PerMille: 10, AfterEvent: true, Share: 0.90},
			Variants: under(all,
				byAlgorithm(several, " exact", retryAfterOnly(heedtest.RetryAfterExact)),
				byAlgorithm(several, " constant 5 s", retryAfterOnly(heedtest.RetryAfterConstant)),
				byAlgorithm(several, " whole window", retryAfterOnly(heedtest.RetryAfterWindow)),
				byAlgorithm(several, " cut short", retryAfterOnly(heedtest.RetryAfterShort)),
				byAlgorithm(several, " fields on refusals", Scenario{Origin: heedtest.Config{OnRefusalsOnly: true}})),
		},
		{
			Name: "silent", Title: "told nothing but refusals",
			Thresholds: Thresholds{PerMille: 20, AfterEvent: true, Share: 0.90},
			Variants: append(
				under(all, []Scenario{
					{Variant: "leaky bucket", Origin: silent(heedtest.LeakyBucket), Skip: 2},
					{Variant: "leaky bucket with burst", Origin: silent(heedtest.LeakyBucket), Limits: withBurst, Skip: 2},
					{Variant: "fixed window", Origin: silent(heedtest.FixedWindow), Skip: 2},
				}),
				under(conditions([]Quota{{4, 5 * time.Second}, {10, 5 * time.Second}}, goroutines, trips[1:]), []Scenario{
					{Variant: "concurrency", Origin: silent(heedtest.Concurrency), Skip: 2},
				})...),
		},
		{
			Name: "foreign", Title: "a foreign client wants 20 % of the same quota",
			Thresholds: Thresholds{PerMille: 5, Share: 0.95, Foreign: 0.95},
			Variants:   under(all, byAlgorithm(announcing, "", Scenario{Foreign: 0.2})),
		},
		{
			Name: "four", Title: "four heed processes that do not know of each other",
			Thresholds: Thresholds{PerMille: 10, Share: 0.95, Jain: 0.95},
			Variants:   under(short(all), byAlgorithm(announcing, "", Scenario{Processes: 4})),
		},
		{
			Name: "change", Title: "quota cut to a fifth, then raised fivefold, mid-run",
			Thresholds: Thresholds{AfterEvent: true, Share: 0.95},
			Variants: under(all, byAlgorithm(announcing, "", Scenario{
				Changes: cutAndRaise, Length: inWindows(60), Measure: changed,
			})),
		},
		{
			Name: "cold", Title: "cold start of all goroutines at once on an unknown origin that announces",
			Thresholds: Thresholds{Share: 0.98},
			Variants: under(conditions(quotas, []int{16, 1000}, trips),
				byAlgorithm(announcing, " ietf-06", Scenario{Origin: heedtest.Config{Dialect: heedtest.IETF06}}),
				byAlgorithm(announcing, " ietf-07", Scenario{Origin: heedtest.Config{Dialect: heedtest.IETF07}}),
				byAlgorithm(announcing, " x-ratelimit", Scenario{Origin: heedtest.Config{Dialect: heedtest.XRateLimit}})),
		},
		{
			Name: "outage", Title: "an hour of 503 with Retry-After: 60 in the middle",
			Thresholds: Thresholds{AfterEvent: true, PerRun: 60, Share: 0.95},
			Variants: append(
				under(all, byAlgorithm(several, "", Scenario{
					Changes: anHourOf503, Measure: restored,
					Length: func(q Quota) time.Duration { return 15*q.Window + time.Hour + 2*time.Minute },
				})),
				under(append(
					conditions([]Quota{{0, 5 * time.Second}}, goroutines, trips[2:3]),
					conditions([]Quota{{0, 5 * time.Second}}, goroutines[:2], trips[1:2])...,
				), []Scenario{{
					Variant: "no limits", Changes: anHourOf503, Measure: restored,
					Length: func(Quota) time.Duration { return 5*time.Second + time.Hour + 70*time.Second },
				}})...),
			Compare: Condition{quotas[0], 16, trips[2]},
		},
		{
			Name: "penalty", Title: "penalty box with exact Retry-After: each refusal renews the block",
			Thresholds: Thresholds{AfterEvent: true, Share: 0.95},
			Variants: under(all, byAlgorithm(several, "", Scenario{
				Vary: func(c *heedtest.Config, _ *rand.Rand) { c.Block = 2 * c.Policies[0].Window },
				Changes: func(q Quota, rng *rand.Rand) []Change {
					return []Change{{At: 5*q.Window + somewhere(q, rng), Drain: true}}
				},
				Length: inWindows(30), Measure: penalized,
			})),
		},
		{
			Name: "burst", Title: "20 requests at once on a known origin with 5 % of 5000 per hour left",
			Thresholds: Thresholds{Share: 1},
			Variants: under(conditions([]Quota{{5000, time.Hour}}, []int{20}, trips),
				byAlgorithm(announcing, "", Scenario{Burst: true, Length: inWindows(1), Measure: undelayed})),
			Compare: Condition{Quota{5000, time.Hour}, 20, trips[1]},
		},
	}
}

// several are algorithms of each kind.
var several = []heedtest.Algorithm{
	heedtest.FixedWindow, heedtest.FixedWindowByClock, heedtest.SlidingWindow, heedtest.TokenBucket,
}

// short returns the conditions whose round trip is at most a fiftieth of the
// window.
func short(all []Condition) (some []Condition) {
	for _, c := range all {
		if c.Trip != HeavyTail && time.Duration(c.Trip) <= c.Quota.Window/50 {
			some = append(some, c)
		}
	}
	return some
}

func under(conditions []Condition, scenarios ...[]Scenario) (vs []Variant) {
	for _, ss := range scenarios {
		for _, s := range ss {
			vs = append(vs, Variant{s, conditions})
		}
	}
	return vs
}

func byAlgorithm(algorithms []heedtest.Algorithm, suffix string, s Scenario) (all []Scenario) {
	for _, a := range algorithms {
		s.Origin.Algorithm, s.Variant = a, string(a)+suffix
		all = append(all, s)
	}
	return all
}

func skewed(c *heedtest.Config, rng *rand.Rand) {
	c.ClockSkew = time.Duration((2*rng.Float64() - 1) * float64(10*time.Second))
}

func twoLimits(q Quota) []heedtest.Policy {
	return []heedtest.Policy{
		{Name: "burst", Quota: 10, Window: time.Second},
		{Name: "sustained", Quota: q.Units, Window: q.Window},
	}
}

func threeLimits(q Quota) []heedtest.Policy {
	return append(twoLimits(q), heedtest.Policy{Name: "middle", Quota: 60, Window: 20 * time.Second})
}

// bytesBeside lets about four fifths of the requests through: the last body
// overdraws the quota by half its size.
func bytesBeside(q Quota) []heedtest.Policy {
	return []heedtest.Policy{
		{Name: "requests", Quota: q.Units, Window: q.Window},
		{Name: "bytes", Unit: heedtest.UnitContentBytes, Quota: q.Units*4/5*bodySize - bodySize/2, Window: q.Window},
	}
}

const bodySize = 10_000

func evenBodies(*rand.Rand) int64 { return bodySize }

func drawnBodies(rng *rand.Rand) int64 { return bodySize/2 + rng.Int64N(bodySize) }

func retryAfterOnly(mode heedtest.RetryAfterMode) Scenario {
	return Scenario{Origin: heedtest.Config{
		Dialect:    heedtest.RetryAfterOnly,
		RetryAfter: heedtest.RetryAfter{Mode: mode, Value: 5 * time.Second},
	}}
}

func silent(a heedtest.Algorithm) heedtest.Config {
	return heedtest.Config{Algorithm: a, Dialect: heedtest.Silent}
}

func withBurst(q Quota) []heedtest.Policy {
	return []heedtest.Policy{{Quota: q.Units, Window: q.Window, Burst: q.Units / 5}}
}

func inWindows(n int) func(Quota) time.Duration {
	return func(q Quota) time.Duration { return time.Duration(n) * q.Window }
}

// somewhere is an instant within a window.
func somewhere(q Quota, rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(q.Window)))
}

func cutAndRaise(q Quota, rng *rand.Rand) []Change {
	return []Change{
		{At: 20*q.Window + somewhere(q, rng), Policies: []heedtest.Policy{{Quota: q.Units / 5, Window: q.Window}}},
		{At: 40*q.Window + somewhere(q, rng), Policies: []heedtest.Policy{{Quota: q.Units, Window: q.Window}}},
	}
}

func anHourOf503(q Quota, _ *rand.Rand) []Change {
	return []Change{{At: q.Window, Outage: time.Hour, RetryAfter: time.Minute}}
}

// Fails says what of a result breaks the thresholds; nothing: it keeps to them.
func (t Thresholds) Fails(r Result) (why []string) {
	refused := r.Refused
	if t.AfterEvent {
		refused = r.After
	}
	if t.tooMany(refused, r.Accepted) {
		why = append(why, "refused")
	}
	if r.Share < t.Share {
		why = append(why, "share")
	}
	if r.EarlyStanding > 0 {
		why = append(why, "early")
	}
	if r.ForeignServed < t.Foreign {
		why = append(why, "foreign")
	}
	if r.Jain < t.Jain {
		why = append(why, "jain")
	}
	if len(r.Problems) > 0 {
		why = append(why, r.Problems[0])
	}
	return why
}

func (t Thresholds) tooMany(refused, accepted int64) bool {
	return refused > t.PerRun && perMille(refused, accepted) > t.PerMille
}

// OutOfReach reports whether of the thresholds that a result breaks, each is one
// that an oracle breaks, too: one that keeps a client's pace and meets an origin as
// a client does (rules), or one that is not clairvoyant.
func (t Thresholds) OutOfReach(r Result) bool {
	misses := func(share float64) bool { return share > 0 && share < t.Share }
	broken := t.Fails(r)
	for _, why := range broken {
		switch {
		case why == "refused" && t.tooMany(r.ReachRefused, r.Accepted):
		case why == "share" && (misses(r.Reach) || misses(r.Nonclairvoyant)):
		default:
			return false
		}
	}
	return len(broken) > 0
}
