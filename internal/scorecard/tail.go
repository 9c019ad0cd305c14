package scorecard

import (
	"math"
	"sync"
	"time"
)

// ways is the distribution of the time that a request is on its way up.
type ways struct {
	over          []float64 // the probability that it is longer than so many grains
	typical       []int64   // one of each of equal shares
	mean, longest int64
}

const wayGrain = int64(250 * time.Microsecond)

// tail is the distribution under the heavy tail, where the way up is half of the
// round trip.
var tail = sync.OnceValue(func() *ways {
	w := &ways{longest: int64(tailCut / 2)}
	const shares = 24
	for up := int64(0); up < w.longest; up += wayGrain {
		over := math.Erfc(math.Log(2*float64(up)/float64(tailMedian))/tailSigma/math.Sqrt2) / 2
		w.over = append(w.over, over)
		w.mean += int64(over * float64(wayGrain))
		for 1-over > (float64(len(w.typical))+0.5)/shares {
			w.typical = append(w.typical, up)
		}
	}
	w.over = append(w.over, 0)
	return w
})

// between returns the probability that a way is longer than one time, but not
// longer than another, if it is longer than a third.
func (w *ways) between(longer, atMost, known int64) float64 {
	longer = max(longer, known)
	if atMost <= longer || known >= w.longest {
		return 0
	}
	return (w.longer(longer) - w.longer(atMost)) / w.longer(known)
}

func (w *ways) longer(t int64) float64 {
	i := t / wayGrain
	switch {
	case t <= 0:
		return 1
	case i >= int64(len(w.over)-1):
		return 0
	}
	return w.over[i] + (w.over[i+1]-w.over[i])*float64(t%wayGrain)/float64(wayGrain)
}
