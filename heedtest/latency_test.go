package heedtest

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestRoundTripIsHalfUpHalfDown(t *testing.T) {
	up, down := RoundTrip(51 * time.Nanosecond)(7)
	if up != 25 || down != 26 {
		t.Errorf("up %d, down %d", up, down)
	}
}

func TestHeavyTailIsLognormalAndRepeatable(t *testing.T) {
	const n = 20_000
	median, cut := 30*time.Millisecond, 5*time.Second
	draw := HeavyTail(median, 1.7, cut, 42)
	var logs []float64
	atCut := 0
	for i := range int64(n) {
		up, down := draw(i)
		if up2, down2 := draw(i); up2 != up || down2 != down {
			t.Fatal("two draws of the same number differ")
		}
		if diff := down - up; diff < 0 || diff > 1 {
			t.Fatalf("up %v, down %v", up, down)
		}
		if up+down > cut {
			t.Fatalf("%v is longer than the cut", up+down)
		}
		if up+down == cut {
			atCut++
		}
		logs = append(logs, math.Log(float64(up+down)/float64(median)))
	}
	slices.Sort(logs)
	// The quartiles of a normal distribution lie 0.6745 sigma from the median;
	// three standard errors are allowed.
	for _, q := range []struct{ share, z, tolerance float64 }{{0.5, 0, 0.05}, {0.25, -0.6745, 0.05}, {0.75, 0.6745, 0.05}, {0.9772, 2, 0.12}} {
		if got := logs[int(q.share*n)] / 1.7; math.Abs(got-q.z) > q.tolerance {
			t.Errorf("quantile %v at %.3f sigma, want %.3f", q.share, got, q.z)
		}
	}
	// ln(5 s/30 ms)/1.7 = 3.01 sigma: 0.13 % are cut.
	if atCut < 8 || atCut > 52 {
		t.Errorf("%d of %d cut", atCut, n)
	}
	other := HeavyTail(median, 1.7, cut, 43)
	if a, _ := draw(0); func() time.Duration { b, _ := other(0); return b }() == a {
		t.Error("another seed, the same draw")
	}
}
