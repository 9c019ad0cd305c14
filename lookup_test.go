package heed

import "testing"

// Ten thousand ways to write an origin are one origin, and are not all kept.
func TestSpellingsAreBounded(t *testing.T) {
	var r Registry
	for i := range 10_000 {
		host := []byte("aaaaaaaaaaaaaaaa.example")
		for bit := range 16 {
			if i>>bit&1 > 0 {
				host[bit] = 'A'
			}
		}
		pm, err := r.Acquire(t.Context(), chaosTo("https://"+string(host), "", "/"))
		if err != nil {
			t.Fatal(err)
		}
		pm.Release()
	}
	if len(r.origins) != 1 || r.size.Load() != 1 {
		t.Errorf("%d origins and %d partitions are known", len(r.origins), r.size.Load())
	}
	most := mostSpellings + 2
	for _, o := range r.origins {
		if len(r.spellings) > most || len(o.spellings) != len(r.spellings) {
			t.Errorf("%d spellings are kept, %d of the origin's own; want %d at the most", len(r.spellings), len(o.spellings), most)
		}
	}
}
