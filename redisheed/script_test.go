package redisheed

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// A sim runs the script in a Redis whose clock the test sets.
type sim struct {
	t   testing.TB
	m   *miniredis.Miniredis
	c   *redis.Client
	now time.Time
}

func newSim(t testing.TB) *sim {
	s := &sim{t: t, m: miniredis.RunT(t), now: time.Unix(1_800_000_000, 0)}
	s.c = redis.NewClient(&redis.Options{Addr: s.m.Addr()})
	t.Cleanup(func() { s.c.Close() })
	s.m.SetTime(s.now)
	return s
}

func (s *sim) advance(d time.Duration) {
	s.now = s.now.Add(d)
	s.m.SetTime(s.now)
	s.m.FastForward(d)
}

func (s *sim) micro() int64 { return s.now.UnixMicro() }

// ask runs the script for one client.
func (s *sim) ask(client string, q question) *reply {
	s.t.Helper()
	q.Origin, q.Partition, q.Channel, q.Client = "o", "p", "news", client
	if q.Do == "" {
		q.Do = "ask"
	}
	if q.Do != "tell" && q.Need == 0 {
		q.Need = 1
	}
	q.Imm, q.Want = max(q.Imm, 1), max(q.Want, q.Need)
	if q.Requests == 0 {
		q.Requests = 1
	}
	q.Concurrent, q.SlotLease, q.Grace = 1, micros(5*time.Second), micros(grace)
	text, err := json.Marshal(&q)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := script.Run(s.t.Context(), s.c, []string{"{o}", "{o}:p"}, text).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := readReply(v)
	if err != nil {
		s.t.Fatalf("%v: %v", v, err)
	}
	return r
}

func perWindow(quota int64, w time.Duration) []limit {
	return []limit{{"p\n", 'r', quota, micros(w), 0}}
}

func TestScriptSaysTheExactWait(t *testing.T) {
	s := newSim(t)
	q := question{Limits: perWindow(4, time.Second), Queue: 1}
	for i := range 4 {
		if r := s.ask("a", q); r.status != granted || r.now0 != 1 || r.left != int64(3-i) || r.x0 != s.micro() {
			t.Fatalf("%d: %+v", i, r)
		}
		s.advance(100 * time.Millisecond)
	}
	r := s.ask("a", q)
	if r.status != refused || r.wait != 600*time.Millisecond || r.cause != "policy" || r.policy != "p" {
		t.Fatalf("%+v", r)
	}
	s.advance(r.wait - 10*time.Microsecond) // a step of the log
	if r := s.ask("a", q); r.status != refused {
		t.Fatalf("early: %+v", r)
	}
	s.advance(10 * time.Microsecond)
	if r := s.ask("a", q); r.status != granted {
		t.Fatalf("%+v", r)
	}
}

func TestUnitsAreBookedAtTheLatestInstantTheyCanBeAnsweredBy(t *testing.T) {
	s := newSim(t)
	r := s.ask("a", question{Limits: perWindow(1000, time.Minute), Need: 3, Imm: 1, Extra: 4, RTT: 1000, Latency: 200_000, Hold: 250_000})
	if r.now0 != 1 || r.later != 6 || r.x0 != s.micro()+201_000 || r.x1 != s.micro()+451_000 {
		t.Errorf("%+v", r)
	}
}

func TestScriptSharesEvenlyWhatComesBack(t *testing.T) {
	s := newSim(t)
	lim := perWindow(100, 10*time.Second)
	// One takes it all; then it and two others want more, one of them little.
	if r := s.ask("greedy", question{Limits: lim, Need: 100, Imm: 100, Queue: 1}); r.now0 != 100 {
		t.Fatalf("%+v", r)
	}
	s.advance(time.Second)
	for _, c := range []string{"greedy", "modest", "eager"} {
		need := int64(100)
		if c == "modest" {
			need = 5
		}
		if r := s.ask(c, question{Limits: lim, Need: need, Imm: need, Queue: 1}); r.status != refused || r.wait > 9*time.Second {
			t.Fatalf("%+v", r)
		}
	}
	s.advance(9 * time.Second)
	got := map[string]int64{}
	for range 10 {
		s.advance(50 * time.Millisecond) // what the modest one leaves is not kept for it for long
		for _, c := range []string{"greedy", "eager", "modest"} {
			need := int64(100)
			if c == "modest" {
				need = 5 - got[c]
			}
			if need > 0 {
				got[c] += s.ask(c, question{Limits: lim, Need: need, Imm: need, Queue: 1}).now0
			}
		}
	}
	if got["modest"] != 5 || got["eager"] < got["greedy"]+30 || got["eager"]+got["greedy"]+got["modest"] != 100 {
		t.Errorf("%v: want all that the modest one asks for, and more for the other, which had nothing, than for the greedy one", got)
	}
}

func TestAProcessThatComesBackLateFindsItsShare(t *testing.T) {
	s := newSim(t)
	lim := perWindow(100, 10*time.Second)
	ask := func(c string, need, more int64) *reply {
		return s.ask(c, question{Limits: lim, Need: need, Imm: need, More: more, Queue: 1})
	}
	ask("before", 100, 0)
	ask("quick", 16, 0)
	ask("slow", 4, 12) // it has more on its way
	s.advance(10*time.Second + time.Millisecond)
	var quick int64
	for range 10 {
		quick += ask("quick", 16, 0).now0
	}
	if r := ask("slow", 16, 0); r.now0 != 16 {
		t.Errorf("it finds %d of its 16 units; the other had %d", r.now0, quick)
	}
	for range 10 {
		quick += ask("quick", 16, 0).now0
	}
	if quick > 68 {
		t.Errorf("the other had %d before it came again, of 100, 16 of them used", quick)
	}
	s.advance(300 * time.Millisecond) // then its turn has passed
	for range 10 {
		quick += ask("quick", 16, 0).now0
	}
	if quick != 100-16 {
		t.Errorf("the other had %d of the 84 that are left", quick)
	}
}

func TestWhoWaitsForAnAnswerAsksWhenItMayHaveCome(t *testing.T) {
	s := newSim(t)
	lim := perWindow(1, 10*time.Second)
	r := s.ask("a", question{Limits: lim, Latency: 3_000_000})
	if r.x0 != s.micro()+3_000_000 {
		t.Fatalf("%+v", r)
	}
	if r := s.ask("b", question{Limits: lim, Queue: 1}); r.status != refused || r.wait != 10*time.Second {
		t.Errorf("%+v, want to wait one window", r)
	}
	s.advance(10 * time.Second) // no answer yet, as far as is known
	if r := s.ask("b", question{Limits: lim, Queue: 1}); r.status != refused || r.wait != 3*time.Second {
		t.Errorf("%+v", r)
	}
}

func TestUnitsOfAProcessThatStoodStillAreBookedAgain(t *testing.T) {
	s := newSim(t)
	lim := perWindow(2, time.Second)
	x := s.ask("a", question{Limits: lim, Need: 2, Imm: 2}).x0
	s.advance(1500 * time.Millisecond) // it could tell nothing meanwhile, and was answered just now
	s.ask("a", question{Do: "tell", Limits: lim, Ops: []op{{"m", x, s.micro(), 2, 1, 0, 0}}, Batch: 1})
	if r := s.ask("b", question{Limits: lim}); r.status != refused || r.wait != time.Second {
		t.Errorf("%+v", r)
	}
}

func TestALargeCostIsNotStarved(t *testing.T) {
	s := newSim(t)
	lim := perWindow(10, 10*time.Second)
	for range 10 {
		s.ask("small", question{Limits: lim, Queue: 1})
		s.advance(100 * time.Millisecond)
	}
	big := func() *reply { return s.ask("big", question{Limits: lim, Requests: 10, Queue: 1}) }
	r := big()
	for i := 0; r.status != granted; i++ {
		if i > 200 {
			t.Fatal("it never had its turn")
		}
		s.advance(min(r.wait, 500*time.Millisecond))
		s.ask("small", question{Limits: lim, Queue: 1})
		r = big()
	}
}

func TestADeadClientsTurnPasses(t *testing.T) {
	s := newSim(t)
	lim := perWindow(1, time.Second)
	s.ask("a", question{Limits: lim, Queue: 1})
	s.ask("dead", question{Limits: lim, Queue: 1})
	s.ask("a", question{Limits: lim, Queue: 1})
	s.advance(time.Second)
	r := s.ask("a", question{Limits: lim, Queue: 1})
	for i := 0; r.status != granted; i++ {
		if i > 3 {
			t.Fatalf("%+v", r)
		}
		s.advance(r.wait)
		r = s.ask("a", question{Limits: lim, Queue: 1})
	}
	if d := s.now.Sub(time.Unix(1_800_000_000, 0)); d > 1100*time.Millisecond {
		t.Errorf("it went after %v", d)
	}
}

func TestSlotsComeBackByThemselves(t *testing.T) {
	s := newSim(t)
	slots := func(n int64) *int64 { return &n }
	ask := func(c string, held, seq int64) *reply {
		return s.ask(c, question{MaxInFlight: 2, SlotsHere: slots(held), SlotsThere: slots(held), Seq: seq})
	}
	if r := ask("a", 1, 1); r.status != granted || r.left != -1 { // of policies, of which there are none
		t.Fatalf("%+v", r)
	}
	if r := ask("b", 1, 1); r.status != granted {
		t.Fatalf("%+v", r)
	}
	r := ask("c", 1, 1)
	if r.status != refused || r.cause != "concurrency" {
		t.Fatalf("%+v", r)
	}
	// a's message that it holds none is overtaken by an older one.
	s.ask("a", question{Do: "tell", SlotsHere: slots(0), SlotsThere: slots(0), Seq: 3})
	s.ask("a", question{Do: "tell", SlotsHere: slots(1), SlotsThere: slots(1), Seq: 2})
	if r := ask("c", 1, 2); r.status != granted {
		t.Fatalf("a's slot is free: %+v", r)
	}
	if r := ask("d", 1, 1); r.status != refused {
		t.Fatalf("%+v", r)
	}
	s.advance(5 * time.Second) // nobody is heard of
	if r := ask("d", 1, 2); r.status != granted {
		t.Fatalf("%+v", r)
	}
}

func TestWhoForgotIsToldBeforeItGrants(t *testing.T) {
	s := newSim(t)
	lim := perWindow(10, 10*time.Second)
	r := s.ask("a", question{Limits: lim, Need: 10, Imm: 10})
	s.m.FlushAll()
	s.advance(time.Second)
	q := question{Limits: lim, Birth: r.birth, History: 1}
	again := s.ask("a", q)
	if again.status != tell || again.birth == r.birth {
		t.Fatalf("%+v", again)
	}
	if r := s.ask("new", question{Limits: lim}); r.status != refused || r.wait > grace {
		t.Fatalf("while others have time to tell: %+v", r)
	}
	q = question{Limits: lim, Birth: again.birth, History: 1, Batch: 1, Ops: []op{{"a", "w:p\n", r.x0, 10}}}
	if r := s.ask("a", q); r.status != refused {
		t.Fatalf("%+v", r)
	}
	s.advance(grace)
	if r := s.ask("new", question{Limits: lim}); r.status != refused || r.wait != 9*time.Second-grace {
		t.Fatalf("%+v", r)
	}
}

func TestAnOriginThatIsNewToRedisHasOthersTell(t *testing.T) {
	s := newSim(t)
	sub := s.c.Subscribe(t.Context(), "news")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil { // it has begun
		t.Fatal(err)
	}
	s.ask("a", question{Limits: perWindow(10, 10*time.Second)})
	s.ask("a", question{Limits: perWindow(10, 10*time.Second)})
	s.m.Publish("news", "the end")
	var got []string
	for {
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload == "the end" {
			break
		}
		var news message
		if err := json.Unmarshal([]byte(m.Payload), &news); err != nil {
			t.Fatal(err)
		}
		got = append(got, news.Kind)
	}
	if !slices.Equal(got, []string{"lost"}) {
		t.Errorf("it published %q", got)
	}
}

func TestAnnouncedPolicies(t *testing.T) {
	second := int64(1_000_000)
	said := func(quota, window, remaining, reset int64, n, sent, used int64) op {
		return op{"s", "p\n", "r", quota, window, remaining, reset, second, 0, 1000, 2000, n, 0, sent, used, 3600 * second}
	}
	t.Run("what others use is left to them", func(t *testing.T) {
		s := newSim(t)
		r := s.ask("a", question{Ops: []op{said(10, 60*second, 4, 50*second, 1, -1, 0)}, Batch: 1})
		if r.status != granted || r.left != 3 || len(r.announced) != 1 {
			t.Fatalf("%+v", r)
		}
		for range 3 {
			s.advance(time.Millisecond)
			if r := s.ask("b", question{}); r.status != granted {
				t.Fatalf("%+v", r)
			}
		}
		if r := s.ask("b", question{}); r.status != refused || r.policy != "p" {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("nothing left closes until the reset", func(t *testing.T) {
		s := newSim(t)
		r := s.ask("a", question{Ops: []op{said(10, 60*second, 0, 50*second, 1, -1, 0)}, Batch: 1})
		if want := 50*time.Second - time.Millisecond; r.status != refused || r.wait != want {
			t.Fatalf("%+v, want to wait %v", r, want)
		}
	})
	t.Run("without a window it is counted down until the reset", func(t *testing.T) {
		s := newSim(t)
		s.ask("a", question{Do: "tell", Ops: []op{said(10, -1, 2, 30*second, 1, -1, 0)}, Batch: 1})
		for range 2 {
			if r := s.ask("a", question{}); r.status != granted {
				t.Fatalf("%+v", r)
			}
		}
		r := s.ask("a", question{})
		if r.status != refused || r.wait != 30*time.Second-time.Millisecond {
			t.Fatalf("%+v", r)
		}
		s.advance(r.wait)
		if r := s.ask("a", question{}); r.status != granted {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("lost writes are repaired by the next announcement", func(t *testing.T) {
		s := newSim(t)
		r := s.ask("a", question{Need: 6, Imm: 6, Ops: []op{said(10, 60*second, 9, 50*second, 1, -1, 0)}, Batch: 1})
		if r.now0 != 6 {
			t.Fatalf("%+v", r)
		}
		s.m.Del("{o}:p") // as a failover may
		r = s.ask("a", question{Ops: []op{said(10, 60*second, 3, 50*second, 1, -1, 0)}, Batch: 2})
		if r.status != granted || r.left != 2 {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("what a process knows is kept to though Redis forgot it", func(t *testing.T) {
		s := newSim(t)
		known := question{Announced: perWindow(2, time.Second)}
		for i, want := range []int64{granted, granted, refused} {
			if r := s.ask("a", known); r.status != want {
				t.Fatalf("%d: %+v", i, r)
			}
		}
		s.advance(1500 * time.Millisecond) // a window without an answer: no reason to forget
		for i, want := range []int64{granted, granted, refused} {
			if r := s.ask("b", question{}); r.status != want {
				t.Fatalf("%d: %+v", i, r)
			}
		}
	})
	t.Run("a policy no longer announced fades", func(t *testing.T) {
		s := newSim(t)
		s.ask("a", question{Limits: perWindow(100, time.Hour), Ops: []op{said(1, 2*second, 0, second, 1, -1, 0)}, Batch: 1})
		s.advance(10 * time.Second)
		answered := question{Limits: perWindow(100, time.Hour), Batch: 2, Ops: []op{{"m", s.micro(), s.micro(), 1, 1, 0, 0}}}
		if r := s.ask("a", answered); r.status != granted {
			t.Fatalf("%+v", r)
		}
		if r := s.ask("a", question{Limits: perWindow(100, time.Hour)}); len(r.announced) != 0 {
			t.Errorf("%+v", r.announced[0])
		}
	})
}

func TestBucketsInTheScript(t *testing.T) {
	s := newSim(t)
	q := question{Limits: []limit{{"p\n", 'r', 10, 1_000_000, 3}}, Queue: 1}
	for range 3 {
		if r := s.ask("a", q); r.status != granted {
			t.Fatalf("%+v", r)
		}
	}
	r := s.ask("a", q)
	if r.status != refused || r.wait != 100*time.Millisecond {
		t.Fatalf("%+v", r)
	}
	s.advance(r.wait)
	if r := s.ask("a", q); r.status != granted {
		t.Fatalf("%+v", r)
	}
	back := q
	back.Ops, back.Batch = []op{{"m", r.x0, 0, 2, 1, 0, 0}}, 1
	if r := s.ask("a", back); r.status != granted || r.left != 1 {
		t.Fatalf("two given back and one taken: %+v", r)
	}
}

func TestIntervalsInTheScript(t *testing.T) {
	s := newSim(t)
	q := question{MinInterval: 1_000_000}
	if r := s.ask("a", q); r.status != granted {
		t.Fatalf("%+v", r)
	}
	s.advance(300 * time.Millisecond)
	if r := s.ask("b", q); r.status != refused || r.wait != 700*time.Millisecond || r.cause != "interval" {
		t.Fatalf("%+v", r)
	}
	one := int64(1)
	zero := int64(0)
	p := question{MinPause: 1_000_000, SlotsHere: &one, SlotsThere: &one, Seq: 1}
	s = newSim(t)
	if r := s.ask("a", p); r.status != granted {
		t.Fatalf("%+v", r)
	}
	if r := s.ask("b", p); r.status != refused || r.cause != "interval" {
		t.Fatalf("%+v", r)
	}
	s.ask("a", question{Do: "tell", MinPause: 1_000_000, SlotsHere: &zero, SlotsThere: &zero, Seq: 2})
	p.Seq = 2
	if r := s.ask("b", p); r.status != refused || r.wait != time.Second {
		t.Fatalf("%+v", r)
	}
	s.advance(time.Second)
	p.Seq = 3
	if r := s.ask("b", p); r.status != granted {
		t.Fatalf("%+v", r)
	}
}
