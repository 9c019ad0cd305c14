package heed

import (
	"net/http"
	"testing"
	"time"
)

// A request that goes on in another partition is still one of those that the origin's opening let go.
func TestRequestThatGoesOnElsewhereIsStillOneOfTheOriginsOpening(t *testing.T) {
	r, err := NewRegistry(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.init()
	req, _ := http.NewRequest("GET", "https://api.example.org/search", nil)
	p := r.enter(req, &ask{opts: &noOptions})
	o := p.origin
	defer o.unlock()
	now := time.Now()
	o.opening = opening{limit: 16, serial: 1}
	p.opening = opening{}
	var all []*Permit
	for _, path := range []string{"/search", "/other", "/other"} {
		all = append(all, p.admit(now, &ask{opts: &noOptions, path: path, req: req, arrived: now}))
	}
	p.suspect = &suspect{routes: []accused{{route: all[0].route()}}}
	p.split(now)
	if n := o.opening.flying; n != 3 {
		t.Errorf("%d of 3 unanswered count after the split", n)
	}
	for _, pm := range all {
		pm.p.answered(0, pm)
	}
	if n := o.opening.flying; n != 0 {
		t.Errorf("%d count after their answers", n)
	}
}
