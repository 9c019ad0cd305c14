package heed

import "container/heap"

// A ranking keeps items in an order of which only the first matters. An item
// knows its own place there, so that it can be moved and taken out.
type ranking[T any, O order[T]] struct{ items []T }

// An order says which of two items comes first. seat is where an item notes its
// place: 0, where it is in no ranking.
type order[T any] interface {
	before(a, b T) bool
	seat(T) *int
}

func (r *ranking[T, O]) len() int { return len(r.items) }

// first returns the first item of a ranking that has any.
func (r *ranking[T, O]) first() T { return r.items[0] }

// put puts an item in, or where its order has changed, in its place.
func (r *ranking[T, O]) put(x T) {
	var o O
	if at := *o.seat(x); at > 0 {
		heap.Fix((*heapOf[T, O])(r), at-1)
	} else {
		heap.Push((*heapOf[T, O])(r), x)
	}
}

// drop takes an item out, if it is in.
func (r *ranking[T, O]) drop(x T) {
	var o O
	if at := *o.seat(x); at > 0 {
		heap.Remove((*heapOf[T, O])(r), at-1)
	}
}

// heapOf is a ranking as package heap wants it.
type heapOf[T any, O order[T]] ranking[T, O]

func (h *heapOf[T, O]) Len() int { return len(h.items) }

func (h *heapOf[T, O]) Less(i, j int) bool {
	var o O
	return o.before(h.items[i], h.items[j])
}

func (h *heapOf[T, O]) Swap(i, j int) {
	var o O
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*o.seat(h.items[i]), *o.seat(h.items[j]) = i+1, j+1
}

func (h *heapOf[T, O]) Push(x any) {
	var o O
	h.items = append(h.items, x.(T))
	*o.seat(x.(T)) = len(h.items)
}

func (h *heapOf[T, O]) Pop() any {
	var o O
	var none T
	last := len(h.items) - 1
	x := h.items[last]
	*o.seat(x) = 0
	h.items[last] = none
	h.items = h.items[:last]
	return x
}
