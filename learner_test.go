package heed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

func TestOneRefusalDoesNotSlowALoneClientForGood(t *testing.T) {
	for _, answer := range []string{"429 Retry-After: 60", "503 Retry-After: 60", "429", "503"} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []string{"200", answer, "200"}}
			tr := quiet(t, base, heed.Limits{})
			for range 30 {
				sendOne(t, tr, get(t.Context(), site))
				time.Sleep(time.Second)
			}
			if gaps := base.gaps(); gaps[len(gaps)-1] > 2*time.Second {
				t.Errorf("%s: intervals %v", answer, gaps)
			}
		})
	}
}
