package shard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	"flashgate/internal/sale"
)

// unreadable is an item of one shard with many marks and two entries in its outbox, of which the one that is returned, as it
// was, is not to be read any more.
func unreadable(l *lab, s *Stock, layout Layout, blob string) Entry {
	l.Helper()
	held := make(map[string]sale.Mark)
	for i := range 3 * scanMarks {
		held["old"+strconv.Itoa(i)] = heldMark(sale.NewOrderID(layout.Item))
	}
	l.load(s, layout, 1, 20, held)
	if r := s.Reserve(l.ctx, layout, request(layout, "done", 1, "k")); r.Outcome != sale.Reserved {
		l.Fatalf("reserve: %+v", r)
	}
	l.rest(layout)
	dead := l.stock(&broker{refuse: context.DeadlineExceeded})
	if r := dead.Reserve(l.ctx, layout, request(layout, "beside", 1, "k")); r.Outcome != sale.Reserved {
		l.Fatalf("reserve: %+v", r)
	}
	results, _ := l.crowdedBatch(dead, layout, 3, func() {})
	outbox, err := s.Outbox(l.ctx, layout, 0)
	if err != nil || len(outbox.Entries) != 2 || len(results) != 3 {
		l.Fatalf("outbox %+v, %v", outbox, err)
	}
	entry := outbox.Entries[slices.IndexFunc(outbox.Entries, func(e Entry) bool { return len(e.Events) == 3 })]
	l.do("HSET", keysOf(layout.Item, 0).pending, entry.Batch, blob)
	return entry
}

// sameEntry compares entries but for the traces, which marks have not.
func sameEntry(a, b Entry) bool {
	order := func(events []sale.Event) []sale.Event {
		events = slices.Clone(events)
		for i := range events {
			events[i].Trace = ""
		}
		slices.SortFunc(events, func(a, b sale.Event) int { return cmp.Compare(a.OrderID.String(), b.OrderID.String()) })
		return events
	}
	return a.Batch == b.Batch && a.At.Equal(b.At) && a.Epoch == b.Epoch && slices.Equal(order(a.Events), order(b.Events))
}

// What an entry held is found in the marks, to the last field, whatever has become of its text, and also behind a fence.
func TestRebuild(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, blob := range []string{"", "nonsense", "1\t2\t3\t4\t5\n", "1764449000\t1\t3", "\x00"} {
			l := newLab(t, b)
			layout := Layout{Item: 81, Shards: 1}
			s := l.stock(&broker{})
			entry := unreadable(l, s, layout, blob)
			outbox, err := s.Outbox(l.ctx, layout, 0)
			if err != nil || len(outbox.Bad) != 1 || outbox.Bad[0].Batch != entry.Batch || outbox.Bad[0].Foreign {
				t.Fatalf("%q: outbox %+v, %v", blob, outbox, err)
			}
			before := l.dump()
			made, err := s.Rebuild(l.ctx, layout.Item, 0, "unknown", entry.Batch)
			if err != nil || len(made) != 1 || !sameEntry(made[0], entry) {
				t.Errorf("%q: made %+v, %v, want %+v", blob, made, err, entry)
			}
			if after := l.dump(); after != before {
				t.Errorf("%q: changed from\n%s\nto\n%s", blob, before, after)
			}
			if ok, err := s.Fence(l.ctx, layout.Item, 1, 2); err != nil || !ok {
				t.Fatalf("fence: %v, %v", ok, err)
			}
			if made, err := s.Rebuild(l.ctx, layout.Item, 0, entry.Batch); err != nil || len(made) != 1 || !sameEntry(made[0], entry) {
				t.Errorf("%q: behind a fence: made %+v, %v", blob, made, err)
			}
		}
	})
}

// What has ended has a row: it is not in the entry any more, and when all have, the entry is settled.
func TestRebuildWithoutTheEnded(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 82, Shards: 1}
		s := l.stock(&broker{})
		entry := unreadable(l, s, layout, "nonsense")
		for i, e := range entry.Events {
			undo := s.Release
			if i == 1 {
				undo = s.Void
			}
			if got, err := undo(l.ctx, layout, Correction{User: e.UserID, OrderID: e.OrderID, Epoch: 1}); err != nil || got != Done {
				t.Fatalf("undo: %v, %v", got, err)
			}
			made, err := s.Rebuild(l.ctx, layout.Item, 0, entry.Batch)
			if err != nil || len(made) != 1 || len(made[0].Events) != len(entry.Events)-1-i {
				t.Fatalf("without %d: %+v, %v", i+1, made, err)
			}
			for _, left := range made[0].Events {
				if left.OrderID == e.OrderID {
					t.Errorf("the entry has an order that has ended: %+v", left)
				}
			}
		}
		if err := s.Forget(l.ctx, layout.Item, 0, entry.Batch); err != nil {
			t.Fatal(err)
		}
		if made, err := s.Rebuild(l.ctx, layout.Item, 0, entry.Batch); err != nil || len(made) != 0 {
			t.Errorf("of one that is gone: %+v, %v", made, err)
		}
	})
}

// Marks that do not tell: one that is gone, one that cannot be read, which may be of this entry or not, no hash, nobody who
// counted. Nothing is made of those, because what is made may be forgotten.
func TestRebuildFromBadMarks(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		k := keysOf(83, 0)
		for name, spoil := range map[string][][]string{
			"one of it is gone":          {{"HDEL", k.buyers, "user1"}},
			"another is gone":            {{"HDEL", k.buyers, "old1"}},
			"one of it cannot be read":   {{"HSET", k.buyers, "user1", "x"}},
			"another cannot be read":     {{"HSET", k.buyers, "old1", "x"}},
			"one is of another item":     {{"HSET", k.buyers, "old1", encodeMark(heldMark(sale.NewOrderID(84)))}},
			"a user that is none":        {{"HDEL", k.buyers, "old1"}, {"HSET", k.buyers, "\t", encodeMark(heldMark(sale.NewOrderID(83)))}},
			"no marks":                   {{"DEL", k.buyers}},
			"no hash":                    {{"DEL", k.buyers}, {"SET", k.buyers, "x"}},
			"no count":                   {{"HDEL", k.meta, "marks"}},
			"no epoch":                   {{"HDEL", k.meta, "epoch"}},
			"no outbox":                  {{"DEL", k.pending}, {"SET", k.pending, "x"}},
			"no meta, and a fence on it": {{"DEL", k.meta}, {"HSET", k.meta, "token", "2"}, {"DEL", k.stock}},
		} {
			t.Run(name, func(t *testing.T) {
				l := newLab(t, b)
				layout := Layout{Item: 83, Shards: 1}
				s := l.stock(&broker{})
				entry := unreadable(l, s, layout, "nonsense")
				for _, c := range spoil {
					l.do(c...)
				}
				if made, err := s.Rebuild(l.ctx, layout.Item, 0, entry.Batch); !errors.Is(err, ErrUnreadable) || len(made) != 0 {
					t.Errorf("made %+v, %v", made, err)
				}
			})
		}
	})
}

// A load in the midst of the reading: the entry is gone, and nothing of the new epoch is said about it. An entry that its
// gateway removes in the midst of it is published once more, with its true epoch.
func TestRebuildWithALoadInBetween(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, step := range []string{scriptReadBack.sha, "HSCAN", scriptState.sha} {
			for _, loads := range []bool{true, false} {
				l := newLab(t, b)
				layout := Layout{Item: 85, Shards: 1}
				s := l.stock(&broker{})
				entry := unreadable(l, s, layout, "nonsense")
				p := newProxy(t, l.url)
				keeper := l.stockAt(p.URL(), nil)
				if made, err := keeper.Rebuild(l.ctx, layout.Item, 0, entry.Batch); err != nil || len(made) != 1 { // the server knows the scripts
					t.Fatalf("made %+v, %v", made, err)
				}
				p.next(step, keepReply, func() {
					defer p.letGo()
					if !loads {
						if err := s.Forget(l.ctx, layout.Item, 0, entry.Batch); err != nil {
							t.Error(err)
						}
						return
					}
					held := map[string]sale.Mark{}
					for _, e := range entry.Events {
						held[e.UserID] = heldMark(e.OrderID)
					}
					l.load(s, layout, 2, 5, held)
				})
				made, err := keeper.Rebuild(l.ctx, layout.Item, 0, entry.Batch)
				switch {
				case err != nil:
					t.Errorf("%s, load %v: %v", step, loads, err)
				case !loads && (len(made) != 1 || !sameEntry(made[0], entry)), loads && step != scriptState.sha && len(made) != 0:
					t.Errorf("%s, load %v: made %+v", step, loads, made)
				case len(made) == 1 && made[0].Epoch != 1:
					t.Errorf("%s, load %v: made with epoch %d", step, loads, made[0].Epoch)
				}
			}
		}
	})
}

// An entry of another version is no damage.
func TestForeignEntry(t *testing.T) {
	l := newLab(t, onMini)
	layout := Layout{Item: 86, Shards: 1}
	s := l.stock(&broker{})
	for blob, foreign := range map[string]bool{"2\tfrom\tthe\tfuture": true, "10\ta": true, "2": false, "01\ta": false, "100\ta": false, "1\ta": false, "": false} {
		l.do("HSET", keysOf(86, 0).pending, "b", blob)
		if outbox, err := s.Outbox(l.ctx, layout, 0); err != nil || len(outbox.Bad) != 1 || outbox.Bad[0].Foreign != foreign {
			t.Errorf("%q: %+v, %v", blob, outbox, err)
		}
	}
}
