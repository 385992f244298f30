package shard

import (
	"strings"
	"testing"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

func TestRemove(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		pub := &broker{hold: true}
		s := l.stock(pub)
		gone, other := Layout{40, 4}, Layout{41, 2}
		l.load(s, gone, 1, 8, map[string]sale.Mark{"77": heldMark(sale.NewOrderID(40))})
		l.load(s, other, 1, 3, nil)
		for _, user := range []string{"1", "2", "3"} {
			l.buyers(gone, []string{user}, 1, s)
		}
		pub.letGo(nil)
		l.rest(gone)
		l.do("SET", "{item:40:9}:pending", "of a larger layout")
		before := l.dump()
		if n, err := s.Extent(l.ctx, 40); err != nil || n != 10 {
			t.Errorf("extent %d, %v, want 10", n, err)
		}
		for range 2 {
			if err := s.Remove(l.ctx, 40, 10); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := s.Extent(l.ctx, 40); err != nil || n != 0 {
			t.Errorf("extent %d, %v, want 0", n, err)
		}
		if n, err := s.Extent(l.ctx, 41); err != nil || n != 2 {
			t.Errorf("extent of the other item %d, %v, want 2", n, err)
		}
		after := l.dump()
		if strings.Contains(after, "item:40:") {
			t.Errorf("left:\n%s", after)
		}
		for line := range strings.Lines(before) {
			if strings.Contains(line, "item:41:") && !strings.Contains(after, line) {
				t.Errorf("the other item lost %s", line)
			}
		}
	})
}

// Whoever comes after the removal is refused, and leaves nothing behind.
func TestNothingMakesRemovedKeysAnew(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		s := l.stock(&broker{})
		layout := Layout{42, 3}
		l.load(s, layout, 1, 9, nil)
		id := s.Reserve(l.ctx, layout, request(layout, "1", 1, "")).OrderID
		l.rest(layout)
		if err := s.Remove(l.ctx, 42, 3); err != nil {
			t.Fatal(err)
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "2", 1, "")); r.Outcome != sale.NotLoaded {
			t.Errorf("reserve: %+v", r)
		}
		for name, correct := range map[string]func() (Applied, error){
			"release":  func() (Applied, error) { return s.Release(l.ctx, layout, Correction{"1", id, 1}) },
			"void":     func() (Applied, error) { return s.Void(l.ctx, layout, Correction{"1", id, 1}) },
			"increase": func() (Applied, error) { return s.Increase(l.ctx, layout, "op", 5, 1) },
		} {
			if got, err := correct(); got != NotLoaded || err != nil {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		if err := s.Forget(l.ctx, 42, 0, "a batch"); err != nil {
			t.Errorf("forget: %v", err)
		}
		if err := s.FinishTransfers(l.ctx, layout, 0); err != nil {
			t.Errorf("finish transfers: %v", err)
		}
		if ok, err := s.Load(l.ctx, layout, Image{Token: 1, Free: 9}); ok || err != nil {
			t.Errorf("load without a fence: %v, %v", ok, err)
		}
		if got := l.dump(); got != "" {
			t.Errorf("left:\n%s", got)
		}
	})
}

// A server that does not answer is not taken for one that holds nothing.
func TestRemoveFromASilentServer(t *testing.T) {
	redis := devtest.Redis(t)
	l := labAt(t, onReal, redis.URL())
	s := l.stock(&broker{}, func(c *Config) { c.CallTimeout = timeout / 100 })
	l.load(s, Layout{43, 2}, 1, 1, nil)
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Extent(l.ctx, 43); err == nil || n != 0 {
		t.Errorf("extent %d, %v", n, err)
	}
	if err := s.Remove(l.ctx, 43, 2); err == nil {
		t.Error("removed from a server that does not answer")
	}
	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() bool { return s.Remove(l.ctx, 43, 2) == nil }, "removed")
	if got := l.dump(); got != "" {
		t.Errorf("left:\n%s", got)
	}
}

func TestRemoveChecksItsLayout(t *testing.T) {
	s := newLab(t, onMini).stock(&broker{})
	for _, layout := range []Layout{{0, 1}, {1, 0}, {1, sale.MaxShards + 1}} {
		if err := s.Remove(t.Context(), layout.Item, layout.Shards); err == nil {
			t.Errorf("%+v was accepted", layout)
		}
	}
}
