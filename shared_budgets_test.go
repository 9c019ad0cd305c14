package heed

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Budgets of some requests only are kept to by each process by itself: the
// shared ledger would hold all requests to them. What holds all is passed on,
// and so is a pause.
func TestBudgetsOfSomeRequestsAreNotShared(t *testing.T) {
	for _, tt := range []struct {
		name, url string
		status    int
		fields    []string
		policies  []string // passed on
		limits    int
		pause     time.Duration
	}{
		{"no budget named", "https://api.example.org/x", 200,
			[]string{"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "40"}, []string{""}, 1, 0},
		{"a budget named", "https://api.example.org/x", 200,
			[]string{"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "40", "X-RateLimit-Resource", "search"}, nil, 0, 0},
		{"methods have their own, applications do not", "https://euw1.api.riotgames.com/lol/x", 200,
			[]string{"X-App-Rate-Limit", "20:1", "X-App-Rate-Limit-Count", "3:1", "X-Method-Rate-Limit", "20:10", "X-Method-Rate-Limit-Count", "1:10"},
			[]string{"app-second"}, 1, 0},
		{"every endpoint has its own", "https://api.x.com/2/tweets", 200,
			[]string{"X-Rate-Limit-Limit", "50", "X-Rate-Limit-Remaining", "40"}, nil, 0, 0},
		{"a refusal in one budget", "https://discord.com/api/v10/channels/1/messages", 429,
			[]string{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "3", "X-RateLimit-Bucket", "b", "Retry-After", "7"}, nil, 0, 0},
		{"a refusal of everything", "https://discord.com/api/v10/channels/1/messages", 429,
			[]string{"X-RateLimit-Bucket", "b", "X-RateLimit-Global", "true", "Retry-After", "7"}, nil, 0, 7 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &books{}
				r, err := NewRegistry(Config{Ledger: b.process(), Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				req, _ := http.NewRequest("GET", tt.url, nil)
				pm, err := r.Acquire(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				resp := &http.Response{StatusCode: tt.status, Header: http.Header{}, Body: http.NoBody}
				for i := 0; i < len(tt.fields); i += 2 {
					resp.Header.Set(tt.fields[i], tt.fields[i+1])
				}
				pm.Observe(resp)
				pm.Release()
				b.mu.Lock()
				defer b.mu.Unlock()
				if len(b.heard) != 1 {
					t.Fatalf("heard %d times", len(b.heard))
				}
				h := b.heard[0]
				var names []string
				for _, p := range h.Announcement.Policies {
					names = append(names, p.Name)
				}
				if fmt.Sprint(names) != fmt.Sprint(tt.policies) || len(h.Announcement.Limits) != tt.limits {
					t.Errorf("passed on: %+v, want policies %q and %d limits", h.Announcement, tt.policies, tt.limits)
				}
				if h.Pause < tt.pause || h.Pause > tt.pause+tt.pause/10 {
					t.Errorf("passed on a pause of %v, want %v", h.Pause, tt.pause)
				}
			})
		})
	}
}
