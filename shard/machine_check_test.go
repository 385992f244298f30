package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

// check compares all of Redis with the model, and counts the units.
func (m *machine) check(t *rapid.T) {
	whole := true
	var free, transit, held int64
	texts := m.redis(t)
	for i, sh := range m.shards {
		if got, want := texts[i], sh.text(); got != want {
			t.Fatalf("shard %d holds\n%s\nwant\n%s", i, got, want)
		}
		if int64(i) >= m.k {
			continue
		}
		whole = whole && sh.loaded && sh.epoch == m.epoch
		free += max(0, sh.stock)
		for _, tr := range sh.transfers {
			if to := m.shards[tr.to]; to.ops != nil && !to.ops[tr.id] {
				transit += tr.units
			}
		}
		for _, o := range sh.marks {
			if !o.voided {
				held += o.units
			}
		}
	}
	if !whole {
		return
	}
	coming := int64(0) // restocks not yet in the shards
	for _, c := range m.corrections {
		for i := range int(m.k) {
			if c.op == "increase" && c.epoch == m.epoch && !m.shards[i].ops[c.id] {
				coming += spread(c.units, int(m.k), i)
			}
		}
	}
	if free+transit+held+coming != m.quantity {
		t.Fatalf("%d free + %d in transfer + %d held + %d to come are not the %d there are", free, transit, held, coming, m.quantity)
	}
	for _, o := range m.orders {
		if o.live && m.shards[sale.Home(o.user, int(m.k))].marks[o.user] != o {
			t.Fatalf("live order %+v has no mark", o)
		}
	}
}

// text is what Redis should hold of a shard.
func (sh *mShard) text() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if sh.loaded {
		add("stock %d", sh.stock)
	}
	if sh.token > 0 {
		add("meta token %d", sh.token)
	}
	if sh.ops != nil {
		add("meta k %d", sh.k)
		add("meta epoch %d", sh.epoch)
		add("meta adds %d", sh.adds)
		add("meta bver %d", sh.bver)
		add("meta marks %d", len(sh.marks))
		add("meta entries %d", len(sh.pending))
		add("meta waiting %d", sh.waiting)
		add("meta units %d", sh.units)
		add("meta moving %d", sh.moving())
	}
	for op := range sh.ops {
		add("meta op:%s 1", op)
	}
	for id, tr := range sh.transfers {
		add("meta tr:%s %d %d %d", id, tr.to, tr.units, tr.epoch)
	}
	for user, o := range sh.marks {
		add("mark %s %s %d %s", user, o.id, o.units, o.key)
	}
	for batch, orders := range sh.pending {
		for _, o := range orders {
			add("entry %s %s %s %d", batch, o.id, o.user, o.units)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// redis is what Redis does hold, in the same form, by shard.
func (m *machine) redis(t *rapid.T) []string {
	c := m.l.client
	var commands rueidis.Commands
	for i := range m.shards {
		k := keysOf(m.item, i)
		commands = append(commands, c.B().Get().Key(k.stock).Build())
		for _, key := range []string{k.meta, k.buyers, k.pending} {
			commands = append(commands, c.B().Hgetall().Key(key).Build())
		}
	}
	answers := c.DoMulti(m.l.ctx, commands...)
	texts := make([]string, len(m.shards))
	for i := range texts {
		var hashes []map[string]string
		for _, answer := range answers[4*i+1 : 4*i+4] {
			fields, err := answer.AsStrMap()
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, fields)
		}
		stock, err := answers[4*i].ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		texts[i] = describe(t, place{m.item, i}, stock, hashes[0], hashes[1], hashes[2])
	}
	return texts
}

func describe(t *rapid.T, at place, stock string, meta, buyers, pending map[string]string) string {
	var lines []string
	if stock != "" {
		lines = append(lines, "stock "+stock)
	}
	for field, value := range meta {
		if field == "server" {
			continue // by which server it was loaded: not the model's business
		}
		if strings.HasPrefix(field, "tr:") {
			value = strings.Join(strings.Split(value, "\t")[:3], " ")
		}
		lines = append(lines, "meta "+field+" "+value)
	}
	for user, text := range buyers {
		mark, err := decodeMark(text)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("mark %s %s %d %s", user, mark.OrderID, mark.Quantity, mark.KeyHash))
	}
	for batch, blob := range pending {
		entry, err := decodeEntry(at, batch, blob)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entry.Events {
			lines = append(lines, fmt.Sprintf("entry %s %s %s %d", batch, e.OrderID, e.UserID, e.Quantity))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
