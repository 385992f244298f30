package limiter

import "time"

// shelfCount is the number of shelves in a refill time: how finely the shard tells
// nearly full buckets from emptier ones.
const shelfCount = 32

// none is the slot number that ends a list.
const none = -1

// list is a doubly linked list through the slots of a shard, oldest first.
type list struct{ head, tail int32 }

var emptyList = list{none, none}

// shelfOf is the number of the shelf for a bucket that is full at the time full.
// Shelf n takes those of (n-1)·width to n·width, so that all of them are full when
// n·width has come. A bucket is full a refill from now at the latest, and later
// than now, since it was just charged: the bounds only take off what rounding may
// have added, and keep every number within one round of the shelves.
func (s *shard[K]) shelfOf(full time.Duration) int64 {
	n := int64((full + s.width - 1) / s.width)
	return min(max(n, s.passed+1), s.passed+int64(len(s.shelves))-1)
}

func (s *shard[K]) at(shelf int64) *list {
	return &s.shelves[shelf%int64(len(s.shelves))]
}

// home is the list that a slot is on.
func (s *shard[K]) home(i int32) *list {
	if shelf := s.slot(i).shelf; shelf > s.passed {
		return s.at(shelf)
	}
	return &s.full
}

// shelve moves the slot to the end of a shelf that is still to come.
func (s *shard[K]) shelve(i int32, shelf int64) {
	b := s.slot(i)
	if b.shelf == shelf && b.next == none {
		return
	}
	if b.shelf != unshelved {
		s.unshelve(i)
	}
	l := s.at(shelf)
	b.shelf, b.prev, b.next = shelf, l.tail, none
	if l.tail == none {
		l.head = i
	} else {
		s.slot(l.tail).next = i
	}
	l.tail = i
}

// unshelve takes the slot off the list that it is on.
func (s *shard[K]) unshelve(i int32) {
	l, b := s.home(i), s.slot(i)
	if b.prev == none {
		l.head = b.next
	} else {
		s.slot(b.prev).next = b.next
	}
	if b.next == none {
		l.tail = b.prev
	} else {
		s.slot(b.next).prev = b.prev
	}
	b.shelf = unshelved
}

// splice hangs all of from onto the end of to.
func splice[K comparable](s *shard[K], to, from *list) {
	if from.head == none {
		return
	}
	if to.tail == none {
		to.head = from.head
	} else {
		s.slot(to.tail).next = from.head
		s.slot(from.head).prev = to.tail
	}
	to.tail = from.tail
	*from = emptyList
}
