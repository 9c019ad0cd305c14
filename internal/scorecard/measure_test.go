package scorecard

import (
	"testing"
	"time"
)

func TestJain(t *testing.T) {
	for _, test := range []struct {
		got  []float64
		want float64
	}{
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{9, 0, 0, 0}, 0.25},
		{[]float64{3, 1}, 0.8},
		{[]float64{0, 0}, 1},
	} {
		if got := jain(test.got); got != test.want {
			t.Errorf("jain(%v) = %v, want %v", test.got, got, test.want)
		}
	}
}

// A rate must not depend on where in a window one begins to count.
func TestFadingIgnoresPhase(t *testing.T) {
	var bursts []time.Duration
	for w := range 20 {
		for range 10 {
			bursts = append(bursts, time.Duration(w)*time.Second)
		}
	}
	for _, phase := range []time.Duration{0, 1, 300 * time.Millisecond, 999 * time.Millisecond} {
		from := 2*time.Second + phase
		if got := fading(bursts, from, from+10*time.Second, time.Second); got < 89.9 || got > 90.1 {
			t.Errorf("from %v on: %v in 10 s, want 90", from, got)
		}
	}
}

func TestSpread(t *testing.T) {
	var waits []time.Duration
	for i := range 200 {
		waits = append(waits, time.Duration(200-i))
	}
	mean, p99, most := spread(waits)
	if mean != 100 || p99 != 199 || most != 200 {
		t.Errorf("mean %d, p99 %d, max %d", mean, p99, most)
	}
}
