package heed

import (
	"net/http"
	"slices"
	"time"
)

// poolTries is the attempts at one request of a [Pool], each with a token that
// has room.
type poolTries struct {
	pool      *Pool
	req       *http.Request
	tokens    []*token      // that are not set aside
	tok       *token        // of the latest attempt …
	out       outcome       // … and what became of it
	attempt   int           // its number, from 1; those with a token that was set aside do not count
	sameToken bool          // another attempt is for the Transport to make, with this token
	permit    *Permit       // for the next attempt; nil: none yet
	again     *http.Request // to send then
}

// next decides whether there is another attempt, and waits for leave to make it with
// the refusal in hand: where it cannot start in time, the refusal goes back whole.
func (r *poolTries) next() bool {
	if !r.worthwhile() {
		return false
	}
	r.out.permit.Release() // the next attempt must not wait for the slot of this one
	a := r.out.another(r.attempt)
	refused := r.tok
	refused.notBefore, refused.budgets = r.out.permit.ownRetryAt(), a.budgets
	tok, pm, err := r.pool.acquire(r.tokens, a)
	if err != nil {
		r.out.cancelledBy(r.req.Context()) // else the latest outcome goes back
		return false
	}
	refused.notBefore = time.Time{}
	r.permit = pm
	if r.again, err = replay(tok.req); err != nil {
		pm.Cancel()
		return false
	}
	r.tok = tok
	return true
}

// worthwhile reports whether what became of the latest attempt is worth another one
// with whatever token has room.
func (r *poolTries) worthwhile() bool {
	t := r.pool.transport()
	if r.out.err == nil && r.out.resp.StatusCode == http.StatusUnauthorized {
		r.pool.setAside(r.tok, r.out.permit)
		r.tokens = slices.DeleteFunc(r.tokens, func(other *token) bool { return other == r.tok })
		return len(r.tokens) > 0 && r.repeatable()
	}
	if r.attempt > t.Retry.max() || !t.triesAgain(r.tok.req, &r.out) {
		return false
	}
	if !r.out.said.Refused || r.out.said.Global { // another token would fare no better
		r.sameToken = true
		return false
	}
	r.attempt++
	return true
}

// repeatable reports whether a request that was answered 401 can be sent again.
func (r *poolTries) repeatable() bool {
	ctx := r.req.Context()
	return r.pool.transport().Retry.Max >= 0 && !optionsOf(ctx).noRetry && replayable(r.req) && ctx.Err() == nil
}

// send makes the attempt that next has got leave for.
func (r *poolTries) send() {
	r.out.discard()
	req, pm := r.again, r.permit
	r.again, r.permit = nil, nil // send's
	r.out = r.pool.transport().send(req, pm)
}

// drop lets go of all that the attempts hold, where the user's code panicked.
func (r *poolTries) drop() {
	defer r.out.drop()
	if r.again != nil && r.again.Body != nil {
		r.again.Body.Close()
	}
	if r.permit != nil {
		r.permit.Cancel()
	}
}
