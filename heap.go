package heed

// A heap keeps items in an order of which only the first matters. An item knows
// its own place there, so that it can be moved and taken out.
type heap[T any, O order[T]] struct{ items []T }

// An order says which of two items comes first. seat is where an item notes its
// place: 0, where it is not in the heap.
type order[T any] interface {
	before(a, b T) bool
	seat(T) *int
}

func (h *heap[T, O]) len() int { return len(h.items) }

// first returns the first item of a heap that has any.
func (h *heap[T, O]) first() T { return h.items[0] }

// put puts an item in, or where its order has changed, in its place.
func (h *heap[T, O]) put(x T) {
	var o O
	if *o.seat(x) == 0 {
		h.items = append(h.items, x)
		*o.seat(x) = len(h.items)
	}
	h.settle(*o.seat(x) - 1)
}

// drop takes an item out, if it is in.
func (h *heap[T, O]) drop(x T) {
	var o O
	var none T
	i, last := *o.seat(x)-1, len(h.items)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	*o.seat(x) = 0
	h.items[last] = none
	if h.items = h.items[:last]; i < last {
		h.settle(i)
	}
}

// settle moves the i-th item up or down to where it belongs.
func (h *heap[T, O]) settle(i int) {
	var o O
	for i > 0 && o.before(h.items[i], h.items[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		next := 2*i + 1
		if next+1 < len(h.items) && o.before(h.items[next+1], h.items[next]) {
			next++
		}
		if next >= len(h.items) || !o.before(h.items[next], h.items[i]) {
			return
		}
		h.swap(i, next)
		i = next
	}
}

func (h *heap[T, O]) swap(i, j int) {
	var o O
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*o.seat(h.items[i]), *o.seat(h.items[j]) = i+1, j+1
}
