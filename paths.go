package heed

import "hash/maphash"

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

func (ps *paths) add(path string) {
	if h, i := ps.index(path); i < 0 {
		ps.hashes[ps.next] = h
		ps.next = (ps.next + 1) % len(ps.hashes)
	}
}

func (ps *paths) remove(path string) {
	if _, i := ps.index(path); i >= 0 {
		ps.hashes[i] = 0
	}
}
