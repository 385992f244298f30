package shard

import "sync"

// lanes collects items by key and hands them to run in groups: whatever came in while the previous run of the same key
// was under way, up to size at once. A key has a goroutine and a queue only while there is work for it, so an item that
// is not for sale costs nothing.
type lanes[K comparable, T any] struct {
	size  int          // most items in one run; 0: all there are
	limit int          // most items that may wait for one key; 0: no bound
	run   func(K, []T) // never called twice at once for one key
	track *tracker     // counts the goroutines

	mu     sync.Mutex
	queues map[K]*[]T // a key is here while its goroutine runs
}

// push adds an item to its lane; false means that the lane is full.
func (l *lanes[K, T]) push(key K, item T) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, busy := l.queues[key]
	if !busy {
		queue = new([]T)
		if l.queues == nil {
			l.queues = make(map[K]*[]T)
		}
		l.queues[key] = queue
	}
	if l.limit > 0 && len(*queue) >= l.limit {
		return false
	}
	*queue = append(*queue, item)
	if !busy {
		l.track.add()
		go l.work(key, queue)
	}
	return true
}

func (l *lanes[K, T]) work(key K, queue *[]T) {
	defer l.track.leave()
	for {
		items := l.next(key, queue)
		if items == nil {
			return
		}
		l.run(key, items)
	}
}

// next takes the oldest items off the queue. With an empty queue it closes the lane, in the same critical section: an
// item that is pushed afterwards opens it anew, and none can slip in between.
func (l *lanes[K, T]) next(key K, queue *[]T) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(*queue)
	if n == 0 {
		delete(l.queues, key)
		return nil
	}
	if l.size > 0 && n > l.size {
		n = l.size
	}
	items := (*queue)[:n:n]
	if n == len(*queue) {
		*queue = nil
	} else {
		*queue = (*queue)[n:]
	}
	return items
}

// waiting counts the items in all queues.
func (l *lanes[K, T]) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, queue := range l.queues {
		n += len(*queue)
	}
	return n
}
