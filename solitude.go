package heed

import "time"

// A solitude is what shows that nobody else uses a quota: no more of it is gone since the first word
// of an epoch than what this process has sent since. Answers to requests that go together may come in
// any order, and those that come first leave room for others. So that is judged when all of them are there.
type solitude struct {
	left, of int64     // what the first word said is left, and of which request it was: sent, when it went; 0: none yet
	gone     int64     // since then, by what was said
	batch    int64     // sent, when the last of those went that are judged together …
	began    time.Time // … and when the first of them did
	alone    int64     // units that are gone since, and none of them by others
}

// went takes in that a request went, the last of so many units sent; answered are those heard of.
func (a *solitude) went(now time.Time, sent, answered int64, quickest time.Duration) {
	switch {
	case a.of == 0:
	case answered >= a.batch:
		a.batch, a.began = sent, now
	case now.Sub(a.began) <= quickest/4:
		a.batch = sent
	}
}

// hear takes in that so many units are left by the answer to a request that was the last of so many
// units sent, and how many have been answered by now. Once others took any, more is gone for the rest of the
// epoch than this process can have used.
func (a *solitude) hear(left, of, answered int64) {
	if a.of == 0 {
		a.left, a.of = left, of
		return
	}
	a.gone = max(a.gone, a.left-left)
	if answered >= a.batch && a.gone <= a.batch-a.of {
		a.alone = a.gone
	}
}
