package redisheed

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed decide/*.lua
var parts embed.FS

// script is the files of decide, one after the other.
var script = redis.NewScript(joined(parts))

func joined(parts fs.FS) string {
	names, _ := fs.Glob(parts, "decide/*.lua") // in order of their names
	var b strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(parts, name)
		if err != nil {
			panic(err) // it was embedded
		}
		b.Write(text)
	}
	return b.String()
}

// A question is what the script is asked; docs/redis.md says what its fields
// mean.
type question struct {
	Do string `json:"do"` // ask, check, tell, pause, reset
	V  int    `json:"v"`

	Origin    string `json:"o"`
	Partition string `json:"p"`
	Channel   string `json:"ch"`
	Client    string `json:"c"`

	Birth   string `json:"g"`
	Begun   string `json:"pg,omitempty"`
	History int    `json:"hist"`
	Grace   int64  `json:"grace"`

	Need  int64 `json:"need"`
	Imm   int64 `json:"imm"`
	Want  int64 `json:"want"`
	More  int64 `json:"more,omitempty"`
	Extra int64 `json:"extra"`
	Queue int   `json:"queue"`

	Hold    int64 `json:"hold"`
	Latency int64 `json:"lat"`
	RTT     int64 `json:"rtt"`

	Requests   int64 `json:"req"`
	Bytes      int64 `json:"bytes"`
	Concurrent int64 `json:"conc"`

	Limits      []limit `json:"lim,omitempty"`
	Announced   []limit `json:"ann,omitempty"`
	Deaf        bool    `json:"deaf,omitempty"`
	Most        int64   `json:"most,omitempty"`
	MinInterval int64   `json:"iv,omitempty"`
	MinPause    int64   `json:"mp,omitempty"`
	MaxInFlight int64   `json:"mc,omitempty"`

	Velocity float64 `json:"vel,omitempty"`

	SlotsHere  *int64 `json:"sp,omitempty"`
	SlotsThere *int64 `json:"so,omitempty"`
	Seq        int64  `json:"seq"`
	SlotLease  int64  `json:"lease"`
	Away       int64  `json:"away,omitempty"`

	Flight int64 `json:"n,omitempty"`     // its number …
	Heard  int64 `json:"heard,omitempty"` // … and that of the latest whose answer arrived

	Batch int64 `json:"batch,omitempty"`
	Ops   []op  `json:"ops,omitempty"`

	D int64 `json:"d"`

	pending bool // it counts a request in flight that may yet be refused
}

// An op is something that happened: its kind and its numbers and names.
type op []any

// A limit is a configured policy as the script reads it.
type limit struct {
	id     string // name, a newline, and the partition key in base64
	unit   byte   // 'r', 'b' or 'c'
	quota  int64
	window int64 // microseconds
	burst  int64
}

func (l limit) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(l.id)
	if err != nil {
		return nil, err
	}
	b = append(append([]byte{'['}, b...), ',', '"', l.unit, '"')
	for _, n := range [...]int64{l.quota, l.window, l.burst} {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	return append(b, ']'), nil
}

// What a reply says the question's fate was.
const (
	refused = 0
	granted = 1
	tell    = 2 // Redis has forgotten what this process used: say it first
)

// A reply is what the script answers.
type reply struct {
	status    int64
	birth     string // of the origin's key
	begun     string // … and the partition's
	resets    int64
	now       int64 // of Redis
	now0, x0  int64 // requests that may go at once, and the instant they are booked at
	later, x1 int64 // … and those kept in hand
	wait      time.Duration
	cause     string
	policy    string
	left      int64
	clients   int64 // processes that share the partition
	waiting   int64 // of them, others that wait
	pause     time.Duration
	doubt     bool
	whole     time.Duration
	manual    bool
	wdoubt    bool
	shut      bool // what holds all of the origin refused it
	announced []*announced

	sent, came time.Time // of this process
}

// announced is the state of an announced policy when a request was granted.
type announced struct {
	id            string
	unit          byte
	quota, window int64
	epoch         int64
	sent, used    int64
}

var errReply = errors.New("redisheed: Redis gave a reply that is none of the script's")

func readReply(v any) (r *reply, err error) {
	f := &fields{}
	f.list, f.ok = v.([]any)
	r = &reply{status: f.int(), birth: f.string(), resets: f.int()}
	if f.ok && len(f.list) > 0 {
		r.now = f.int()
	}
	if f.ok && len(f.list) > 1 {
		r.now0, r.x0, r.later, r.x1 = f.int(), f.int(), f.int(), f.int()
		r.wait = f.span()
		r.cause, r.policy = f.string(), f.string()
		r.left, r.clients, r.waiting = f.int(), f.int(), f.int()
		r.pause, r.doubt = f.span(), f.int() == 1
		r.whole = f.span()
		flags := f.int()
		r.manual, r.wdoubt, r.shut = flags&1 != 0, flags&2 != 0, flags&4 != 0
		for _, e := range f.slice() {
			g := &fields{}
			g.list, g.ok = e.([]any)
			a := &announced{id: g.string()}
			if u := g.string(); len(u) == 1 {
				a.unit = u[0]
			}
			a.quota, a.window, a.epoch, a.sent, a.used = g.int(), g.int(), g.int(), g.int(), g.int()
			f.ok = f.ok && g.ok
			r.announced = append(r.announced, a)
		}
	}
	if f.ok && len(f.list) > 0 {
		r.begun = f.string()
	}
	if !f.ok {
		return nil, errReply
	}
	return r, nil
}

// fields reads a list from its front.
type fields struct {
	list []any
	ok   bool
}

func (f *fields) next() any {
	if !f.ok || len(f.list) == 0 {
		f.ok = false
		return nil
	}
	v := f.list[0]
	f.list = f.list[1:]
	return v
}

func (f *fields) int() int64 {
	switch v := f.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		f.ok = f.ok && err == nil
		return n
	}
	f.ok = false
	return 0
}

func (f *fields) string() string {
	s, ok := f.next().(string)
	f.ok = f.ok && ok
	return s
}

func (f *fields) slice() []any {
	s, ok := f.next().([]any)
	f.ok = f.ok && ok
	return s
}

func (f *fields) span() time.Duration { return time.Duration(f.int()) * time.Microsecond }

// moving is how often who asks tries anew while the slot of its keys moves to another master …
const moving = 50 * time.Millisecond

// … which is why Redis gave err: the client has followed it as often as it does by itself.
func moves(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// run asks the script one question. A reply that comes after run has given up
// on it goes to late, on another goroutine.
func (l *Ledger) run(ctx context.Context, origin, partition string, q *question, late func(*reply)) (*reply, error) {
	if l.bad != nil {
		return nil, l.bad
	}
	if strings.HasPrefix(partition, ownName) {
		return nil, l.noSeed()
	}
	q.V, q.Origin, q.Partition = 1, origin, partition
	q.Channel, q.Client, q.Grace = l.o.Prefix+":news", l.id, micros(grace)
	q.SlotLease = micros(l.o.SlotLease)
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	keys := l.keys(origin, partition)
	until := time.Now().Add(l.o.Timeout)
	ask := func(ctx context.Context) (*reply, error) {
		sent := time.Now()
		v, err := script.Run(ctx, l.c, keys, text).Result()
		for moves(err) && sent.Before(until) {
			time.Sleep(moving)
			sent = time.Now()
			v, err = script.Run(ctx, l.c, keys, text).Result()
		}
		if err != nil {
			return nil, err
		}
		r, err := readReply(v)
		if err == nil {
			r.sent, r.came = sent, time.Now()
		}
		return r, err
	}
	r, err := call(ctx, l, l.o.Timeout, ask, late)
	l.note(ctx, err)
	return r, err
}

// noAnswer is the error where Redis did not answer within a time since an instant: that of connecting to
// it, if that is why.
func (l *Ledger) noAnswer(since time.Time, within time.Duration) error {
	why := l.dials.failedSince(since)
	if why == nil {
		why = context.DeadlineExceeded
	}
	return fmt.Errorf("redisheed: no answer from Redis within %v: %w", within, why)
}

var errTimeout = errors.New("redisheed: Redis took too long")

// call calls f, for no longer than ctx and the timeout allow, whatever the
// client makes of either. What f returns too late goes to late.
func call[T any](ctx context.Context, l *Ledger, timeout time.Duration, f func(context.Context) (T, error), late func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	done := make(chan result, 1)
	go func() {
		// The command itself is not cancelled: what it did must become known.
		v, err := f(context.WithoutCancel(ctx))
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		cancel()
		return r.v, r.err
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	if err == errTimeout {
		err = l.noAnswer(began, timeout)
	}
	cancel()
	go func() {
		if r := <-done; r.err == nil && late != nil {
			late(r.v)
		}
	}()
	var none T
	return none, err
}
