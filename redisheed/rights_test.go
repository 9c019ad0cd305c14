package redisheed

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/redis/go-redis/v9"
)

// A user with the rights that docs/redis.md names can do all there is to do, and hears of others.
func TestTheRightsThatAreDocumentedAreEnough(t *testing.T) {
	s := startServer(t)
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)ACL SETUSER … (.*?)\n\n`).FindSubmatch(page)
	if m == nil {
		t.Fatal("the page names no rights")
	}
	args := []any{"ACL", "SETUSER", "ours", "on", ">secret"}
	for _, right := range strings.Fields(string(m[1])) {
		args = append(args, right)
	}
	s.do(args...)
	var all []*heed.Registry
	for range 2 {
		c := redis.NewClient(&redis.Options{Addr: s.addr, Username: "ours", Password: "secret"})
		defer c.Close()
		all = append(all, newRegistry(t, c, Options{}, heed.Limits{
			Policies: []heed.Policy{{Name: "p", Quota: 10, Window: time.Hour}}, MaxConcurrent: 5,
		}))
	}
	req := request()
	req.Header.Set("Authorization", "Bearer token")
	for _, r := range all {
		pm, err := r.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		answer(pm, 200, "RateLimit-Policy", `"q";q=100;w=60`, "RateLimit", `"q";r=50;t=30`)
		pm.Release()
	}
	if err := all[0].Pause(testOrigin, time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the other one hears of the pause", func() bool { return all[1].Check(req).Cause == heed.CausePause })
	if err := all[0].Reset(testOrigin); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the other one hears of the reset", func() bool { return all[1].Check(req).Allowed })
}
