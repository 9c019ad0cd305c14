package heed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Pool is an [http.RoundTripper] that sends requests with several tokens.
// Each request goes out with the token that has most room at its origin. It
// waits only if none has any: then it stands in line for all of them, or for the
// 16 whose wait is shortest, and goes with the first that has room. If a request
// is refused for a limit and another token has room, it is tried again with that
// one at once, provided that [Transport.Retry] lets it be repeated.
//
// The terms of many services forbid getting around a limit with several accounts
// or tokens, and those who do it lose them. Use a Pool only where the service
// gives each token a quota of its own for your purpose.
//
// A token that an origin answers with status 401 is set aside at that origin,
// which [EventSetAside] reports, and the request is tried again with another
// token. If there is no other, the answer comes back. The token stays set aside
// for as long as Tokens returns it, and for an hour after that.
//
// [Limits.MaxQueue] counts a request that waits in the line of each token. A
// shared [Ledger] is asked for the room of every token, one after the other, for
// each request.
//
// A redirect to another origin goes without a token, as http.Client does not
// pass on credentials either. Tokens are never logged, and no event and no error
// of the Pool contains one.
//
// A Pool may be used by any number of goroutines. Its fields must not be changed
// after first use, and it must not be copied.
type Pool struct {
	// Transport sends the requests, and its Registry keeps the quota of each
	// token. nil: one of its own, with the defaults.
	Transport *Transport

	// Tokens returns the tokens there are; a token that is listed twice counts
	// once. It is called for every request, so it should answer from memory, and
	// by several goroutines at once. RoundTrip returns its error, wrapped. nil is
	// an error of every request.
	Tokens func(context.Context) ([]string, error)

	// Apply puts a token on a request, which is a copy of the caller's. It is
	// called with each token that a request may go with, most of which are then
	// not used, and by several goroutines at once. nil: the token becomes a Bearer
	// token in Authorization.
	Apply func(*http.Request, string)

	own   Transport
	ready sync.Once
	seed  maphash.Seed

	turn atomic.Uint32

	mu    sync.Mutex
	aside map[uint64]time.Time // origins and tokens, hashed, and when Tokens returned them last
}

// ErrNoToken matches, with [errors.Is], the error of a [Pool] that has no token
// for a request: Tokens returned none, or all of them are set aside at the origin.
var ErrNoToken = errors.New("heed: no token")

// Client returns an http.Client that uses p.
func (p *Pool) Client() *http.Client { return &http.Client{Transport: p} }

// CloseIdleConnections closes the idle connections of the base transport.
func (p *Pool) CloseIdleConnections() { p.transport().CloseIdleConnections() }

func (p *Pool) transport() *Transport {
	if p.Transport != nil {
		return p.Transport
	}
	return &p.own
}

// RoundTrip sends one request with the token that has most room. Its error is
// that of Tokens or [ErrNoToken], wrapped, or else as [Transport.RoundTrip]'s.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	t := p.transport()
	serves, tokens, tok, pm, err := p.first(req)
	switch {
	case err != nil:
		return nil, err
	case !serves:
		return t.RoundTrip(req)
	}
	r := poolTries{pool: p, req: req, tokens: tokens, tok: tok, out: t.send(tok.req, pm), attempt: 1}
	panicked := true
	defer func() {
		if panicked {
			r.drop()
		}
	}()
	for r.next() {
		r.send()
	}
	panicked = false
	if r.sameToken {
		r.out.resp, r.out.err = t.tryAgain(r.tok.req, r.out, r.attempt)
	}
	if r.out.resp != nil {
		r.out.resp.Request = req // without the token
	}
	return r.out.resp, r.out.err
}

// serves reports whether a request goes with a token: it is none that steps
// aside, and none that another origin's redirect has led to.
func (p *Pool) serves(req *http.Request) bool {
	if optionsOf(req.Context()).bypass {
		return false
	}
	r := p.transport().registry()
	first := r.firstOrigin(req)
	return first == "" || first == r.nameOf(req)
}

// A token is one choice for a request.
type token struct {
	hash      uint64        // of origin and token
	req       *http.Request // with the token on it
	said      Decision
	prospect  prospect
	notBefore time.Time // it was refused: its own wait before another try; zero: none
	budgets   string    // … and the budgets the refusal named
}

// first gets leave to send req with the best of its tokens, if it goes with any. Where it
// gets none, req's body is closed.
func (p *Pool) first(req *http.Request) (serves bool, tokens []*token, tok *token, pm *Permit, err error) {
	goes := false
	defer func() {
		if !goes && req.Body != nil { // also where a function of the user's panics
			req.Body.Close() // as the contract of RoundTripper asks
		}
	}()
	if serves = p.serves(req); serves {
		if tokens, err = p.choices(req); err == nil {
			tok, pm, err = p.acquire(tokens, ask{attempt: 1})
		}
	}
	goes = err == nil
	return serves, tokens, tok, pm, err
}

// choices returns the tokens for a request that are not set aside.
func (p *Pool) choices(req *http.Request) ([]*token, error) {
	p.ready.Do(func() { p.seed, p.aside = maphash.MakeSeed(), map[uint64]time.Time{} })
	r := p.transport().registry()
	r.init()
	if p.Tokens == nil {
		return nil, fmt.Errorf("%w: Pool.Tokens is nil", ErrNoToken)
	}
	names, err := p.Tokens(req.Context())
	if err != nil {
		return nil, fmt.Errorf("heed: tokens: %w", err)
	}
	now, origin, plain := time.Now(), r.nameOf(req), r.credential(req)
	tokens := make([]*token, 0, len(names))
	met := make(map[uint64]bool, len(names))
	for _, name := range names {
		hash := maphash.String(p.seed, origin+"\x00"+name)
		if met[hash] {
			continue
		}
		met[hash] = true
		if p.isAside(now, hash) {
			continue
		}
		c := req.Clone(req.Context())
		if c.Header == nil {
			c.Header = http.Header{}
		}
		if p.Apply != nil {
			p.Apply(c, name)
		} else {
			c.Header.Set("Authorization", "Bearer "+name)
		}
		if own := r.credential(c); own == plain || own == schemeOf(c.Header.Get("Authorization")) { // nobody looks where it is put
			c = c.WithContext(with(c.Context(), func(o *options) { o.credential = name }))
		}
		tokens = append(tokens, &token{hash: hash, req: c})
	}
	switch {
	case len(tokens) > 0:
		return tokens, nil
	case len(names) > 0:
		return nil, fmt.Errorf("%w: all %d are set aside at %s, which answered them with status 401", ErrNoToken, len(met), origin)
	}
	return nil, fmt.Errorf("%w: Pool.Tokens returned none", ErrNoToken)
}

// acquire waits for leave to send a request with one of its tokens: now with the one
// that has most room, else with the first that has any.
func (p *Pool) acquire(tokens []*token, a ask) (*token, *Permit, error) {
	if tok, pm := p.withRoom(tokens, a); pm != nil {
		return tok, pm, nil
	}
	return p.soonest(tokens, a)
}

// withRoom takes leave to send a request now, with the token that has most
// room; nil where none has any.
func (p *Pool) withRoom(tokens []*token, a ask) (*token, *Permit) {
	r := p.transport().registry()
	free := make([]*token, 0, len(tokens))
	would := ask{lines: linesOf(tokens), share: min(len(tokens), mostLines)}
	first := int((p.turn.Add(1) - 1) % uint32(len(tokens)))
	for i := range tokens { // where all have as much, each in its turn
		tok := tokens[(first+i)%len(tokens)]
		if tok.said, tok.prospect = r.look(tok.req, would); tok.said.Allowed && !tok.notBefore.After(time.Now()) {
			free = append(free, tok)
		}
	}
	slices.SortStableFunc(free, func(a, b *token) int { return cmp.Compare(b.room(), a.room()) })
	for _, tok := range free {
		a.budgets = tok.budgets
		if pm, err := r.acquire(NoWait(tok.req.Context()), tok.req, a); err == nil {
			return tok, pm
		} // else another request has taken what was left
	}
	return nil, nil
}

// room is how much is left of what the token may do.
func (t *token) room() int64 {
	if t.said.Remaining < 0 {
		return math.MaxInt64
	}
	return t.said.Remaining
}

// mostLines bounds the tokens whose room one request waits for.
const mostLines = 16

// soonest waits for leave to send a request with whatever token has room first,
// in the lines of all tokens. Where no line takes it, the error is that of the
// one that would have been shortest.
func (p *Pool) soonest(tokens []*token, a ask) (tok *token, pm *Permit, err error) {
	tokens = slices.SortedStableFunc(slices.Values(tokens), func(a, b *token) int { return cmp.Compare(a.said.Wait, b.said.Wait) })
	tokens = tokens[:min(len(tokens), mostLines)]
	r, ctx := p.transport().registry(), tokens[0].req.Context()
	if a.number == 0 {
		a.number = r.number.Add(1)
	}
	var (
		waiting []*waiter
		whose   []*token
		refused error
		inLine  = a.inLine
	)
	over, told := false, false
	defer func() {
		if pm != nil && !told { // the user's OnEvent panicked
			pm.Cancel()
		}
	}()
	defer func() {
		giveUp(waiting)
		told = over
	}()
	a.inLine, a.went = nil, new(atomic.Bool)
	a.lines, a.peers = linesOf(tokens), &peers{}
	a.share = p.hopeless(tokens, &a)
	for _, tok := range tokens {
		a.notBefore, a.budgets, a.again = tok.notBefore, tok.budgets, len(waiting) > 0
		var w *waiter
		w, pm, err = r.begin(tok.req.Context(), tok.req, a)
		switch {
		case pm != nil:
			over = true
			return tok, pm, nil
		case w != nil:
			waiting, whose = append(waiting, w), append(whose, tok)
		case refused == nil:
			refused = err
		}
	}
	a.peers.take(len(tokens))
	if inLine != nil && len(waiting) > 0 {
		inLine()
	}
	for len(waiting) > 0 {
		i := firstOf(ctx, waiting)
		w, tok := waiting[i], whose[i]
		pm, err = w.wait(ctx)
		waiting, whose = slices.Delete(waiting, i, i+1), slices.Delete(whose, i, i+1)
		if pm != nil || len(waiting) == 0 {
			optionsOf(ctx).trace.waited(time.Since(w.arrived), w.held)
		}
		if pm != nil {
			w.origin.flush()
			over = true
			return tok, pm, nil
		}
		if err != errWentElsewhere && (refused == nil || ctx.Err() != nil) {
			refused = err
		}
		w.origin.flush()
	}
	return nil, nil, refused
}

// linesOf are the lines of tokens.
func linesOf(tokens []*token) lines {
	l := lines{n: len(tokens)}
	for _, tok := range tokens {
		l.id ^= tok.hash
	}
	return l
}

// hopeless returns of how many lines each is to let go its share of those before a request, where it is certain that not
// even so it could go in time: then all lines refuse it. Else it returns 0: it is too late in none of them for what may
// go from others.
func (p *Pool) hopeless(tokens []*token, a *ask) (share int) {
	opts := optionsOf(tokens[0].req.Context())
	switch {
	case opts.noWait: // it is refused anyway, and told how long it would have had to wait
		return len(tokens)
	case a.attempt > 1 || opts.minInterval > 0: // others do not wait for what it waits for
		return 0
	}
	open := slices.DeleteFunc(slices.Clone(tokens), func(tok *token) bool { return tok.prospect.alone })
	if len(open) == 0 { // each of the lines refuses it by itself
		return 0
	}
	if share = len(tokens); len(open) < share && len(opts.costs) == 0 { // where it cannot go, none of them can
		share = len(open)
		for _, tok := range open {
			_, tok.prospect = p.transport().registry().look(tok.req, ask{lines: a.lines, share: share})
		}
	}
	for _, tok := range open {
		if pr := &tok.prospect; !pr.late || pr.abreast < 0 || pr.abreast != open[0].prospect.abreast {
			return 0
		}
	}
	return share
}

// giveUp has all of them leave their lines, whatever the user's OnEvent panics
// with.
func giveUp(waiting []*waiter) {
	if len(waiting) == 0 {
		return
	}
	defer giveUp(waiting[1:])
	waiting[0].giveUp(false)
	waiting[0].origin.flush()
}

// firstOf returns which of those that wait is the first whose wait is over; any
// of them once the context is.
func firstOf(ctx context.Context, all []*waiter) int {
	cases := make([]reflect.SelectCase, len(all)+1)
	for i, w := range all {
		cases[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(w.ready)}
	}
	cases[len(all)] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}
	i, _, _ := reflect.Select(cases)
	return min(i, len(all)-1)
}

// setAside leaves a token out at its origin from now on.
func (p *Pool) setAside(tok *token, pm *Permit) {
	p.mu.Lock()
	_, met := p.aside[tok.hash]
	if len(p.aside) >= mostAside {
		clear(p.aside) // each is found out again
	}
	p.aside[tok.hash] = time.Now()
	p.mu.Unlock()
	if met || pm.origin == nil {
		return
	}
	o := pm.origin
	now := o.lock()
	defer o.unlock()
	pm.p.emit(Event{Kind: EventSetAside, Time: now, Status: http.StatusUnauthorized, Attempt: pm.attempt})
}

// isAside reports whether a token that Tokens returns now is set aside. One that it had not
// returned for long may have been made valid meanwhile.
func (p *Pool) isAside(now time.Time, hash uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, aside := p.aside[hash]
	if aside = aside && now.Sub(last) < defaultIdleAfter; aside {
		p.aside[hash] = now
	} else {
		delete(p.aside, hash)
	}
	return aside
}

// mostAside bounds the tokens remembered as set aside.
const mostAside = 4096
