package shard

import (
	"context"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Items keep their order within a key, every one is run once, never two runs of a key at a time, and no run is too large.
func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		n := rapid.IntRange(1, 60).Draw(t, "items")
		var mu sync.Mutex
		got, running := map[int][]int{}, map[int]bool{}
		track := newTracker()
		l := lanes[int, int]{size: size, track: track}
		l.run = func(key int, items []int) {
			mu.Lock()
			if running[key] || len(items) > size || len(items) == 0 {
				t.Errorf("run of %v while running: %v", items, running[key])
			}
			running[key] = true
			got[key] = append(got[key], items...)
			mu.Unlock()
			mu.Lock()
			running[key] = false
			mu.Unlock()
		}
		for i := range n {
			if !l.push(i%3, i) {
				t.Errorf("no room for %d", i)
			}
		}
		if err := track.close(context.Background()); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for key, items := range got {
			for i, item := range items {
				if item != key+3*i {
					t.Fatalf("lane %d ran %v", key, items)
				}
				seen++
			}
		}
		if seen != n || l.waiting() != 0 || len(l.queues) != 0 {
			t.Errorf("%d of %d items, %d waiting, %d lanes left", seen, n, l.waiting(), len(l.queues))
		}
	})
}

func TestLanesLimit(t *testing.T) {
	busy, free := make(chan struct{}), make(chan struct{})
	track := newTracker()
	l := lanes[string, int]{size: 1, limit: 2, track: track}
	l.run = func(_ string, items []int) {
		if items[0] == 0 {
			close(busy)
			<-free
		}
	}
	l.push("a", 0)
	<-busy
	if !l.push("a", 1) || !l.push("a", 2) || l.push("a", 3) {
		t.Error("a lane of two does not take two and refuse the third")
	}
	if !l.push("b", 9) {
		t.Error("another lane is full too")
	}
	close(free)
	if err := track.close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestTrackerRefusesAfterClose(t *testing.T) {
	track := newTracker()
	if !track.enter() {
		t.Fatal("refused")
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if err := track.close(ended); err == nil {
		t.Error("closed while somebody was in")
	}
	if track.enter() {
		t.Error("let in after close")
	}
	track.add() // by whoever is in
	track.leave()
	track.leave()
	for range 2 {
		if err := track.close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
