package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"flashgate/internal/sale"
)

// lossless is an item of two shards, of which shard 0 has a buyer from before the load, one whose event is in Kafka and one
// who waits in the outbox. It returns their orders by user; users of shard 0 have even numbers.
func lossless(l *lab, s *Stock, layout Layout) map[string]sale.OrderID {
	l.Helper()
	orders := map[string]sale.OrderID{"0": sale.NewOrderID(layout.Item)}
	l.load(s, layout, 1, 20, map[string]sale.Mark{"0": heldMark(orders["0"])})
	buy := func(s *Stock, user string) {
		r := s.Reserve(l.ctx, layout, request(layout, user, 1, "k"))
		if r.Outcome != sale.Reserved {
			l.Fatalf("reserve: %+v", r)
		}
		orders[user] = r.OrderID
	}
	buy(s, "2")
	l.rest(layout)
	buy(l.stock(&broker{refuse: context.DeadlineExceeded}), "4")
	return orders
}

// Buyers that are gone, all or some, are found out by whoever needs them, and by whoever reads the shard: nobody buys twice,
// no order is released into nothing, no buyer is told that he is none. A load makes it good.
func TestLostBuyers(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		layout := Layout{Item: 50, Shards: 2}
		k := keysOf(layout.Item, 0)
		stranger := encodeMark(heldMark(sale.NewOrderID(layout.Item)))
		for name, commands := range map[string][][]string{
			"all":                   {{"DEL", k.buyers}},
			"one":                   {{"HDEL", k.buyers, "2"}},
			"all but one":           {{"HDEL", k.buyers, "2", "4"}},
			"one that was not made": {{"HSET", k.buyers, "6", stranger}},
			"another type":          {{"DEL", k.buyers}, {"SET", k.buyers, "x"}},
		} {
			t.Run(name, func(t *testing.T) {
				l := newLab(t, b)
				s := l.stock(&broker{})
				orders := lossless(l, s, layout)
				for _, c := range commands {
					l.do(c...)
				}
				before := l.dump()
				for _, user := range []string{"0", "2", "4", "8"} {
					if r := s.Reserve(l.ctx, layout, request(layout, user, 1, "k")); r.Outcome != sale.Unreadable || !errors.Is(r.Err, ErrUnreadable) {
						t.Errorf("user %s: %+v", user, r)
					}
				}
				for user, order := range orders {
					c := Correction{User: user, OrderID: order, Epoch: 1}
					if got, err := s.Release(l.ctx, layout, c); err != nil || got != Unreadable {
						t.Errorf("release of user %s: %v, %v", user, got, err)
					}
					if got, err := s.Void(l.ctx, layout, c); err != nil || got != Unreadable {
						t.Errorf("void of user %s: %v, %v", user, got, err)
					}
					if mark, ok, err := s.Mark(l.ctx, layout, user); ok != (err == nil) || ok && mark.OrderID != order || !ok && !errors.Is(err, ErrUnreadable) {
						t.Errorf("mark of user %s: %+v, %v, %v", user, mark, ok, err)
					}
				}
				if _, _, err := s.Mark(l.ctx, layout, "8"); !errors.Is(err, ErrUnreadable) {
					t.Errorf("mark of nobody: %v", err)
				}
				if p, err := s.Prove(l.ctx, layout); !errors.Is(err, ErrUnreadable) {
					t.Errorf("proven: %+v, %v", p, err)
				}
				if after := l.dump(); after != before {
					t.Errorf("changed from\n%s\nto\n%s", before, after)
				}
				readings, err := s.Read(l.ctx, layout)
				if err != nil || !errors.Is(readings[0].Fault, ErrUnreadable) || !strings.Contains(readings[0].Fault.Error(), "buyers") || readings[0].Readable {
					t.Errorf("read %+v, %v", readings, err)
				} else if !readings[0].Loaded || *readings[0].Stock != 8 {
					t.Errorf("the stock is lost with the buyers: %+v", readings[0])
				}
				if r := readings[1]; !r.Readable || r.Fault != nil {
					t.Errorf("the other shard: %+v", r)
				}
				if r := s.Reserve(l.ctx, layout, request(layout, "1", 1, "")); r.Outcome != sale.Reserved {
					t.Errorf("the other shard: %+v", r)
				}
				l.load(s, layout, 2, 16, map[string]sale.Mark{"0": heldMark(orders["0"]), "2": heldMark(orders["2"])})
				if got := l.totals(layout); got.marks != 2 {
					t.Errorf("after a load: %+v", got)
				}
				if got, err := s.Release(l.ctx, layout, Correction{User: "2", OrderID: orders["2"], Epoch: 2}); err != nil || got != Done {
					t.Errorf("release after a load: %v, %v", got, err)
				}
				if got := l.totals(layout); got.free != 17 || got.marks != 1 {
					t.Errorf("after a release: %+v", got)
				}
			})
		}
	})
}

// A shard without some of its marks has units all the same, and buyers of other shards get them.
func TestUnitsBesideLostBuyers(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 51, Shards: 2}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 3, map[string]sale.Mark{"0": heldMark(sale.NewOrderID(layout.Item))})
		l.do("DEL", keysOf(layout.Item, 0).buyers)
		for i, user := range []string{"1", "3", "5", "7"} {
			want := sale.Reserved
			if i == 3 {
				want = sale.NoStock
			}
			if r := s.Reserve(l.ctx, layout, request(layout, user, 1, "")); r.Outcome != want {
				t.Errorf("user %s: %+v, want %v", user, r, want)
			}
		}
	})
}

// A flagged item whose buyers are lost is not proven again: its flag would be answered with the buyers that there are.
func TestReproveWithLostBuyers(t *testing.T) {
	l := newLab(t, onMini)
	layout := Layout{Item: 51, Shards: 2}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 0, map[string]sale.Mark{"0": heldMark(sale.NewOrderID(layout.Item))})
	proof, err := s.Prove(l.ctx, layout)
	if err != nil || !proof.Empty {
		t.Fatalf("%+v, %v", proof, err)
	}
	if same, _, _, err := s.Reprove(l.ctx, layout, proof); err != nil || !same {
		t.Fatalf("again: %v, %v", same, err)
	}
	l.do("DEL", keysOf(layout.Item, 0).buyers)
	if same, _, _, err := s.Reprove(l.ctx, layout, proof); !errors.Is(err, ErrUnreadable) || same {
		t.Errorf("with lost buyers: %v, %v", same, err)
	}
}

// Outbox entries that are gone without having been removed, all or one, are found out, also when the others have been removed
// since; an outbox that was emptied is not taken for one that was lost.
func TestLostOutbox(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		layout := Layout{Item: 52, Shards: 2}
		k := keysOf(layout.Item, 0)
		for name, lose := range map[string]func(*lab, []Entry) []Entry{
			"nothing": func(_ *lab, entries []Entry) []Entry { return entries },
			"all":     func(l *lab, _ []Entry) []Entry { l.do("DEL", k.pending); return nil },
			"one":     func(l *lab, entries []Entry) []Entry { l.do("HDEL", k.pending, entries[0].Batch); return entries[1:] },
		} {
			t.Run(name, func(t *testing.T) {
				l := newLab(t, b)
				s := l.stock(&broker{})
				lossless(l, s, layout)
				if r := l.stock(&broker{refuse: context.DeadlineExceeded}).Reserve(l.ctx, layout, request(layout, "6", 1, "")); r.Outcome != sale.Reserved {
					t.Fatalf("reserve: %+v", r)
				}
				outbox, err := s.Outbox(l.ctx, layout, 0)
				if err != nil || len(outbox.Entries) != 2 {
					t.Fatalf("outbox %+v, %v", outbox, err)
				}
				check := func(when string) {
					t.Helper()
					readings, err := s.Read(l.ctx, layout)
					if err != nil || !readings[0].Loaded || *readings[0].Stock != 7 || readings[1].Fault != nil {
						t.Fatalf("%s: read %+v, %v", when, readings, err)
					}
					fault := readings[0].Fault
					if name == "nothing" && fault != nil || name != "nothing" && (!errors.Is(fault, ErrUnreadable) || !strings.Contains(fault.Error(), "pending")) {
						t.Errorf("%s: %v", when, fault)
					}
				}
				left := lose(l, outbox.Entries)
				check("at once")
				for _, entry := range left {
					if err := s.Forget(l.ctx, layout.Item, 0, entry.Batch, entry.Batch); err != nil {
						t.Fatal(err)
					}
				}
				check("when the others are removed")
				s.Reserve(l.ctx, layout, request(layout, "1", 1, "")) // of another shard
				check("later")
				l.load(s, layout, 2, 15, nil)
				if got := l.totals(layout); got != (totals{free: 15}) {
					t.Errorf("after a load: %+v", got)
				}
			})
		}
	})
}

// Entries that are none are reported apart and can be removed; the counters are right again when the outbox is empty.
func TestUnreadableOutbox(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{37, 1}
		s := l.stock(&broker{refuse: context.DeadlineExceeded})
		l.load(s, layout, 1, 8, nil)
		l.buyers(layout, numbered(1, 3, 1), 1, s)
		k := keysOf(37, 0)
		l.do("HSET", k.pending, "odd", "nonsense")
		outbox, err := s.Outbox(l.ctx, layout, 0)
		if err != nil || len(outbox.Bad) != 1 || outbox.Bad[0].Batch != "odd" || outbox.Bad[0].Blob != "nonsense" || outbox.Bad[0].Fault == nil {
			t.Fatalf("%+v, %v", outbox, err)
		}
		batches := []string{"odd", "unknown"}
		for _, e := range outbox.Entries {
			batches = append(batches, e.Batch)
		}
		l.do("HINCRBY", k.meta, "waiting", "5") // what an entry that was not read kept to itself
		for range 2 {
			if err := s.Forget(l.ctx, 37, 0, batches...); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.totals(layout); got.waiting != 0 || got.pending != 0 {
			t.Errorf("Redis holds %+v", got)
		}
		l.do("DEL", k.meta)
		l.do("HSET", k.pending, "odd", "nonsense")
		if err := s.Forget(l.ctx, 37, 0, "odd"); err != nil || l.do("EXISTS", k.meta) != "0" {
			t.Errorf("without meta: %v, meta exists %s", err, l.do("EXISTS", k.meta))
		}
		l.do("SET", k.pending, "x")
		if _, err := s.Outbox(l.ctx, layout, 0); !errors.Is(err, ErrUnreadable) {
			t.Errorf("an outbox that is none: %v", err)
		}
	})
}

// oddMarks are texts that are no marks, each in one way.
func oddMarks() map[string]string {
	good := strings.Split(encodeMark(sale.Mark{OrderID: sale.NewOrderID(53), Quantity: 2, Price: "5", Currency: "EUR", KeyHash: "h", ReservedAt: heldMark(sale.OrderID{}).ReservedAt}), "\t")
	with := func(i int, text string) string {
		fields := slices.Clone(good)
		fields[i] = text
		return strings.Join(fields, "\t")
	}
	id := good[0]
	odd := map[string]string{
		"nothing": "", "text": "x", "two fields": "a\tb", "tabs": strings.Repeat("\t", 6),
		"a field less": strings.Join(good[:6], "\t"), "a field more": strings.Join(good, "\t") + "\t",
		"no id": with(0, ""), "half an id": with(0, id[:35]), "a longer id": with(0, id+"0"), "no hexadecimal id": with(0, "g"+id[1:]),
		"an id without hyphens": with(0, strings.Replace(id, "-", "0", 1)), "a hyphen elsewhere": with(0, id[:7]+"-"+id[8:]),
	}
	for i, field := range map[int]string{1: "quantity", 4: "time"} {
		for _, text := range []string{"", "-1", "+1", "01", "1e1", "0x1", " 1", "1 ", "1.0", "9007199254740992", "99999999999999999999"} {
			odd[field+" "+text] = with(i, text)
		}
	}
	odd["quantity 0"] = with(1, "0")
	return odd
}

// What the scripts take for a mark and what this package does are the same: else a mark could be unreadable to the one and
// nothing to note for the other.
func TestMarksAreReadAlike(t *testing.T) {
	texts := oddMarks()
	mark := heldMark(sale.NewOrderID(53))
	texts["a mark"] = encodeMark(mark)
	texts["upper case"] = strings.ToUpper(texts["a mark"])
	mark.Quantity, mark.Price, mark.Currency, mark.KeyHash, mark.Batch = sale.MaxQuantity, "", "€\x00 ", "h\n", "b"
	texts["odd fields that nobody reads"] = encodeMark(mark)
	texts["at time 0"] = strings.Replace(texts["a mark"], formatInt(mark.ReservedAt.UnixMilli()), "0", 1)
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 53, Shards: 1}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 10, map[string]sale.Mark{"u": heldMark(sale.NewOrderID(53))})
		k := keysOf(layout.Item, 0)
		for name, text := range texts {
			l.do("HSET", k.buyers, "u", text)
			_, err := decodeMark(text)
			r, callErr := s.run(l.ctx, call{scriptReserve, k.all(), []string{"1", "b", "9", "u", sale.NewOrderID(53).String(), "1", "h", "1", "JPY", ""}})
			if callErr != nil || r.code != "OK" || (r.values[3] == "C") != (err != nil) {
				t.Errorf("%s: the script says %+v, %v; decodeMark %v", name, r, callErr, err)
			}
		}
	})
}

// A mark that is none is the trouble of its user alone, and not for ever: whoever comes upon it makes a load due, and whoever
// only reads it changes nothing.
func TestUnreadableMark(t *testing.T) {
	order := sale.NewOrderID(53)
	meets := map[string]func(*lab, *Stock, Layout, Correction) bool{
		"reserve": func(l *lab, s *Stock, layout Layout, _ Correction) bool {
			r := s.Reserve(l.ctx, layout, request(layout, "u", 1, "k"))
			return r.Outcome == sale.Unreadable && errors.Is(r.Err, ErrUnreadable)
		},
		"release": func(l *lab, s *Stock, layout Layout, c Correction) bool {
			got, err := s.Release(l.ctx, layout, c)
			return got == Unreadable && err == nil
		},
		"void": func(l *lab, s *Stock, layout Layout, c Correction) bool {
			got, err := s.Void(l.ctx, layout, c)
			return got == Unreadable && err == nil
		},
	}
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 53, Shards: 1}
		s := l.stock(&broker{})
		token := int64(0)
		for what, text := range oddMarks() {
			for who, meet := range meets {
				token++
				l.load(s, layout, token, 10, map[string]sale.Mark{"u": heldMark(order)})
				l.do("HSET", keysOf(layout.Item, 0).buyers, "u", text)
				before := l.dump()
				if _, _, err := s.Mark(l.ctx, layout, "u"); !errors.Is(err, ErrUnreadable) {
					t.Errorf("%s: mark: %v", what, err)
				}
				if after := l.dump(); after != before {
					t.Errorf("%s: reading a mark changed\n%s\nto\n%s", what, before, after)
				}
				if got := l.totals(layout); got != (totals{free: 10, marks: 1}) { // the load has forgotten the mark before this one
					t.Errorf("%s: Redis holds %+v before anybody came upon it", what, got)
				}
				if !meet(l, s, layout, Correction{"u", order, token}) {
					t.Errorf("%s is nothing to %s", what, who)
				}
				readings, err := s.Read(l.ctx, layout)
				if err != nil || !errors.Is(readings[0].Fault, ErrUnreadable) || !readings[0].Loaded || *readings[0].Stock != 10 {
					t.Errorf("%s makes no load due after %s: %+v, %v", what, who, readings, err)
				}
				if r := s.Reserve(l.ctx, layout, request(layout, "v", 1, "")); r.Outcome != sale.Reserved {
					t.Errorf("%s: another user: %+v", what, r)
				}
			}
		}
	})
}

// A full Redis does not take the note, and says no less to anybody.
func TestUnreadableMarkOnFullRedis(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 53, Shards: 1}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 10, map[string]sale.Mark{"u": heldMark(sale.NewOrderID(53))})
	s.warm(l, layout)
	l.do("HSET", keysOf(layout.Item, 0).buyers, "u", "x")
	l.do("CONFIG", "SET", "maxmemory", "1mb")
	for range 2 {
		if r := s.Reserve(l.ctx, layout, request(layout, "u", 1, "k")); r.Outcome != sale.Unreadable {
			t.Errorf("got %+v", r)
		}
		l.do("CONFIG", "SET", "maxmemory", "0")
	}
	if readings, err := s.Read(l.ctx, layout); err != nil || !errors.Is(readings[0].Fault, ErrUnreadable) {
		t.Errorf("read %+v, %v", readings, err)
	}
}

// One mark that cannot be read hides no other. It is counted, and its user is not named: the error ends in a log.
func TestHoldingsBesideABadMark(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 54, Shards: 2}
		s := l.stock(&broker{})
		marks := map[string]sale.Mark{}
		for _, user := range numbered(0, 20, 1) {
			marks[user] = heldMark(sale.NewOrderID(54))
		}
		l.load(s, layout, 1, 20, marks)
		k := keysOf(layout.Item, 0)
		for _, c := range []struct {
			users []string
			says  []string
			not   string
		}{
			{nil, nil, "shard"},
			{[]string{"4"}, []string{"1 of 10 marks", "shard 0"}, "shard 1"},
			{[]string{"0", "2", "6", "8", "10", "12"}, []string{"7 of 10 marks"}, "shard 1"},
		} {
			for _, user := range c.users {
				l.do("HSET", k.buyers, user, "x")
				delete(marks, user)
			}
			got, err := s.Holdings(l.ctx, layout)
			if len(got) != 2 || (err == nil) != (c.users == nil) || err != nil && !errors.Is(err, ErrUnreadable) {
				t.Fatalf("holdings %+v, %v", got, err)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in: %v", text, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), c.not) {
				t.Errorf("%q is in: %v", c.not, err)
			}
			if got[0].Whole != (c.users == nil) || !got[1].Whole || len(got[0].Marks)+len(got[1].Marks) != len(marks) {
				t.Errorf("holdings %+v, want %d marks", got, len(marks))
			}
		}
	})
}
