package heed

import (
	"hash/maphash"
	"time"
)

// paths remembers the hashes of a few paths.
type paths struct {
	hashes [8]uint64
	next   int
}

var pathSeed = maphash.MakeSeed()

func (ps *paths) index(path string) (hash uint64, i int) {
	hash = maphash.String(pathSeed, path) | 1 // 0 is no path
	for i, h := range ps.hashes {
		if h == hash {
			return hash, i
		}
	}
	return hash, -1
}

func (ps *paths) has(path string) bool {
	_, i := ps.index(path)
	return i >= 0
}

// add remembers a path, and returns its place.
func (ps *paths) add(path string) int {
	h, i := ps.index(path)
	if i < 0 {
		i = ps.next
		ps.hashes[i] = h
		ps.next = (i + 1) % len(ps.hashes)
	}
	return i
}

// remove forgets a path, and reports whether it was remembered.
func (ps *paths) remove(path string) bool {
	_, i := ps.index(path)
	if i >= 0 {
		ps.hashes[i] = 0
	}
	return i >= 0
}

// outPaths tells what a 503 is worth on a path that was not accepted lately. Who asks for each path but once gets no
// others: it may be the path that is out of order, or a limit. A path that is accepted when it is asked for again was not
// sick; one that is refused again is, if others were accepted that went meanwhile, until it is accepted after all. Where
// more got over it of late than did not, time and again, the next 503 may tell of a limit as well. Whether it came by
// chance, or in an outage, is told then as on a path that is known to be well. A time in which nothing was accepted counts
// for one path, however many were refused in it, for outages end as well; and for none after so many that hardly any
// limit lets them through in a row.
type outPaths struct {
	paths
	at   [len(paths{}.hashes)]time.Time // when each was refused last …
	last time.Time                      // … and any of them
	ill  [len(paths{}.hashes)]int       // how often each was counted as one that did not get over it
	well time.Time                      // when the latest request was sent that was accepted …
	open int                            // … and so many were, since nothing was for a while …
	shut time.Time                      // … until then …
	many bool                           // … after very many
	over int                            // got over it, less those that did not: of late, so no more than are remembered
}

// accepted takes in that a request for path was accepted, sent at start.
func (o *outPaths) accepted(path string, start time.Time) {
	if o == nil {
		return
	}
	if o.last.After(o.well) && start.Sub(o.well) >= idleGap {
		o.shut, o.many, o.open = start, o.open > largeBurst, 0
	}
	o.well = latest(o.well, start)
	o.open++
	_, i := o.index(path)
	if i < 0 {
		return
	}
	o.hashes[i] = 0
	before := o.at[i].Before(o.shut)
	if !before || !o.many {
		o.over = min(o.over+1+o.ill[i], len(o.at)) // that it had not yet was no illness
	}
	if before { // for all of those
		for k := range o.at {
			if o.at[k].Before(o.shut) {
				o.hashes[k] = 0
			}
		}
	}
}

// refused takes in that a request for path, sent at start, was refused with a 503, and reports whether that may tell of a limit. Of
// many that were on their way those that were refused first are tried again first: as long as nothing is accepted, they are the ones
// to remember, until one is refused that went later.
func (o *outPaths) refused(now, start time.Time, path string) bool {
	o.last = now
	_, i := o.index(path)
	again := i >= 0
	switch {
	case again && o.well.After(o.at[i]) && o.over > 0:
		o.over, o.ill[i] = o.over-1, o.ill[i]+1
	case !again && (o.hashes[o.next] == 0 || !o.at[o.next].After(latest(o.well, start))):
		i = o.add(path)
		o.ill[i] = 0
	}
	if i >= 0 {
		o.at[i] = now
	}
	return !again && o.over > timeAndAgain
}
