package heed

// A window lets through whatever pace was kept up for as long as one. A bucket need not: it may have
// gathered meanwhile what went beyond its rate, and be empty only when all of that is gone. So such a
// pace is believed only until it is refused itself. Then it is a bucket, and what it let through from
// one refusal to another, at both of which it was empty, is its rate.
type keptUp struct {
	proven float64 // what came from refusal to refusal at most, while a faster pace is believed; 0: none is
	bucket bool    // one was refused
}

// believe reports whether a pace that was kept up for a cycle is to be believed, where one that rose
// further was refused. low is the rate that was known, or is proven by now. What a bucket gathered is
// gone before the pace is twice its rate.
func (k *keptUp) believe(pace, tooFast, low float64) bool {
	if pace <= low || k.bucket && tooFast <= 2*low {
		return false
	}
	if k.proven == 0 {
		k.proven = low
	}
	return true
}

// proves takes in that so much came from one refusal to another.
func (k *keptUp) proves(least float64) {
	if k.proven > 0 {
		k.proven = max(k.proven, least)
	}
}

// refused takes in that the pace that was believed is refused, and returns what is proven.
func (k *keptUp) refused() float64 {
	proven := k.proven
	*k = keptUp{bucket: true}
	return proven
}
