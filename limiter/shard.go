package limiter

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// slabSize slots are allocated at a time, so that a growing table never copies
	// what it has: a copy of a whole shard would be a pause for everybody in it.
	slabSize = 64

	// unshelved marks a slot that is on no list.
	unshelved = -1
)

// epoch is what the buckets take for the moment the table was made. It has neither
// a monotonic reading nor a location, so that a slot holds no pointers to follow.
var epoch = time.Unix(0, 0).UTC()

// shard is a part of a table, under one lock.
//
// Every slot in use is on exactly one list: on full, if its bucket is known to be
// full, else on the shelf of the moment when it will be. A charge moves it to a
// later shelf; a shelf whose moment has come is hung onto full as a whole. That
// makes the bucket nearest to full findable in a bounded number of steps, where a
// list by last use would not: a bucket drained long ago can miss more than one
// touched just now.
type shard[K comparable] struct {
	terms
	room int32 // slots at most

	mu        sync.Mutex
	index     map[K]int32
	slabs     []*[slabSize]slot[K]
	used      int32         // slots in use, all of them below this
	latest    time.Duration // since the table was made
	passed    int64         // number of the last shelf whose moment has come
	full      list
	shelves   [shelfCount + 2]list // shelf n is at n modulo the length
	forgotten uint64
}

type slot[K comparable] struct {
	key        K
	bucket     rate.Limiter
	shelf      int64 // its number; at most shard.passed: it is on the full list
	prev, next int32
}

func newShard[K comparable](t terms, room int) *shard[K] {
	s := &shard[K]{terms: t, room: int32(room), index: make(map[K]int32), full: emptyList}
	for i := range s.shelves {
		s.shelves[i] = emptyList
	}
	return s
}

// allow takes a token from the bucket of key at now, counted from the making of
// the table.
func (s *shard[K]) allow(key K, now time.Duration) (bool, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	now = s.advance(now)
	at := epoch.Add(now)
	i, known := s.index[key]
	if !known {
		i = s.admit(key, at)
	}
	// The library's bucket has a lock of its own, which nobody contends for here.
	bucket := &s.slot(i).bucket
	if !bucket.AllowN(at, 1) {
		return false, s.untilOne(bucket.TokensAt(at))
	}
	s.shelve(i, s.shelfOf(now+s.untilFull(bucket.TokensAt(at))))
	return true, 0
}

// advance brings the shard to now and returns the shard's own now, which never
// goes back: the caller read the clock before it had the lock, so of two callers
// the earlier reading may come second. A library bucket that is shown an earlier
// time takes it for its last update, and would count the time in between twice.
func (s *shard[K]) advance(now time.Duration) time.Duration {
	s.latest = max(s.latest, now)
	passed := int64(s.latest / s.width)
	// However long nobody came, a round over the shelves is all there is to do.
	last := min(passed, s.passed+int64(len(s.shelves)))
	for n := s.passed + 1; n <= last; n++ {
		splice(s, &s.full, s.at(n))
	}
	s.passed = passed
	return s.latest
}

// admit gives key a full bucket at the time at, in the slot of a full one, else in
// a fresh slot, else in the slot of the bucket that is nearest to full.
func (s *shard[K]) admit(key K, at time.Time) int32 {
	i := s.full.head
	if i == none && s.used < s.room {
		if int(s.used) == len(s.slabs)*slabSize {
			s.slabs = append(s.slabs, new([slabSize]slot[K]))
		}
		i = s.used
		s.used++
	} else {
		for n := s.passed + 1; i == none; n++ {
			i = s.at(n).head
		}
		old := s.slot(i)
		if old.shelf > s.passed && old.bucket.TokensAt(at) < float64(s.rate.Burst) {
			s.forgotten++
		}
		s.unshelve(i)
		delete(s.index, old.key)
	}
	s.index[key] = i
	b := s.slot(i)
	b.key, b.shelf = key, unshelved

	// A Limiter cannot be told how many tokens it has. An empty one that was last
	// updated two refills ago is full.
	long := at.Add(-2 * s.refill)
	b.bucket = rate.Limiter{}
	b.bucket.SetBurstAt(long, s.rate.Burst)
	b.bucket.SetLimitAt(long, s.rate.limit())
	return i
}

func (s *shard[K]) slot(i int32) *slot[K] {
	return &s.slabs[i/slabSize][i%slabSize]
}

func (s *shard[K]) stats() (keys int, forgotten uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.index), s.forgotten
}
