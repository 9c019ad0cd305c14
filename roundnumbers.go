package heed

import (
	"math"
	"slices"
)

// Quotas are mostly round numbers. So where a few requests more may have been let through than one window's, for two met or a bucket
// was refilled meanwhile, it is taken to be such a number; and what was let through that is one is hardly a part of more.

// roundNumbers are those that quotas mostly are, times a power of ten.
var roundNumbers = [...]float64{1, 1.2, 1.5, 1.8, 2, 2.4, 2.5, 3, 3.6, 4, 4.5, 5, 6, 7.5, 8, 9}

const (
	tellsRound = 20   // requests: of fewer too many numbers are round
	hardlyMore = 0.16 // the part of a quota by which more may have been counted …
	justBelow  = 0.05 // … and less
)

// roundCount is the largest number up to n that quotas mostly are, if n is hardly more than that, and not just below the next; else n.
func roundCount(n int64) int64 {
	if n < tellsRound {
		return n
	}
	scale := math.Pow10(int(math.Log10(float64(n))))
	round, next := int64(0), int64(10*scale)
	for _, x := range roundNumbers {
		if c := int64(math.Round(x * scale)); c <= n {
			round = c
		} else {
			next = c
			break
		}
	}
	if float64(n) <= float64(round)*(1+hardlyMore) && float64(n) < float64(next)*(1-justBelow) {
		return round
	}
	return n
}

// isRound reports whether it is more likely that a quota is just so many than that so many were counted by chance.
func isRound(n int64) bool {
	if n < tellsRound {
		return false
	}
	for n >= 10 && n%10 == 0 {
		n /= 10
	}
	return slices.Contains([]int64{1, 2, 3, 5, 6}, n)
}

// roundestCount is the roundest number from least to most.
func roundestCount(least, most int64) int64 {
	for step := int64(math.Pow10(18)); step >= 10; step /= 10 {
		for _, part := range []int64{1, 2, 4, 5} { // of the same roundness, mostly
			if s := step / part; most/s > (least-1)/s {
				return most / s * s
			}
		}
	}
	return most
}
