package keeper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"flashgate/internal/broker"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/invariant"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// TestStories lets everything happen to one item in any order, crashes and lost servers included, and checks that a keeper brings it to rest with
// all invariants, tells what became of each order, and puts the item away when its sale is over.
func TestStories(t *testing.T) {
	var l *lab
	told := 0
	rapid.Check(t, func(r *rapid.T) {
		// Keepers look after the items of stories that are over, too.
		if told%20 == 0 {
			l = newLab(t, onMini)
		}
		told++
		s := l.story(r)
		for range rapid.IntRange(3, 25).Draw(r, "steps") {
			name := rapid.SampledFrom(storySteps).Draw(r, "step")
			s.step(name)
		}
		s.end()
	})
}

var storySteps = strings.Fields(`buy buy buy buy buy dead consume consume consume cancel cancel pay pay expire relay relay relay-dies sweep sweep give-up restock
	load wipe lose-stock crash-transfer finish-transfers hold arrive arrive-unheard broker-down broker-up`)

// story is an item and what has happened to it.
type story struct {
	*rapid.T
	l        *lab
	layout   shard.Layout
	quantity int64 // in the beginning
	gateway  *shard.Stock
	tape     *tape
	k        *Keeper
	dying    *relayLedger
	orders   []sale.OrderID
	users    map[sale.OrderID]string
	answered map[sale.OrderID]<-chan struct{}
}

// readerTape is a tape whose order writer is as fast as somebody asks.
type readerTape struct {
	*tape
	l *lab
}

func (r readerTape) Passed(ctx context.Context, group string, ends broker.Ends) (bool, error) {
	if ok, err := r.tape.Passed(ctx, group, ends); ok || err != nil {
		return ok, err
	}
	_, err := r.tape.consume(ctx, r.l.db)
	return false, err
}

func (l *lab) story(r *rapid.T) *story {
	l.tape = &tape{}
	quantity := rapid.Int64Range(0, 8).Draw(r, "quantity")
	s := &story{
		T: r, l: l, layout: l.sale(quantity, rapid.IntRange(1, 3).Draw(r, "shards")), quantity: quantity,
		tape: l.tape, dying: &relayLedger{Ledger: l.db}, users: make(map[sale.OrderID]string), answered: make(map[sale.OrderID]<-chan struct{}),
	}
	s.gateway = l.gateway(l.tape)
	s.k = l.keeper(func(c *Config) {
		c.Ledger, c.Offsets = s.dying, readerTape{l.tape, l}
		c.RecordDeadline, c.GiveUp, c.Margin, c.RetireAfter = 2*time.Millisecond, time.Hour, time.Millisecond, new(time.Duration(0))
	})
	return s
}

func (s *story) step(name string) {
	l := s.l
	switch name {
	case "buy", "dead":
		gateway := s.gateway
		if name == "dead" {
			gateway = l.gateway(dead{})
		}
		user := fmt.Sprint(rapid.IntRange(0, 5).Draw(s.T, "user"))
		patience := timeout
		if slices.Contains(slices.Collect(maps.Values(s.users)), user) {
			// Who holds units waits for half a record deadline while the wire holds his event, and need not here.
			patience = 50 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(l.ctx, patience)
		defer cancel()
		res := gateway.Reserve(ctx, s.layout, l.request(s.layout, user, rapid.Int64Range(1, 2).Draw(s.T, "quantity")))
		if res.Outcome == sale.Reserved || res.Outcome == sale.Unknown {
			s.orders = append(s.orders, res.OrderID)
			s.users[res.OrderID] = user
		}
		if res.Outcome == sale.Reserved {
			s.answered[res.OrderID] = res.Acked
		}
	case "consume":
		l.consume()
	case "cancel":
		if id, ok := s.some(); ok {
			_, _, err := l.db.Cancel(l.ctx, id, s.users[id])
			s.must(err)
		}
	case "pay":
		if id, ok := s.some(); ok && l.status(id) != "" {
			o, _, err := l.db.Order(l.ctx, id)
			s.must(err)
			l.pay(id, o.Quantity)
		}
	case "expire":
		if id, ok := s.some(); ok {
			l.overdue(id)
			s.k.expire(l.ctx)
		}
	case "relay", "relay-dies":
		s.dying.failing = name == "relay-dies"
		s.k.relay.round(l.ctx)
		s.dying.failing = false
		l.exec(`UPDATE flash_sale_correction SET not_before = now() WHERE item_id = $1`, s.layout.Item)
	case "sweep":
		_, _ = s.k.sweeper.sweep(l.ctx, s.layout, rapid.Bool().Draw(s.T, "all"))
	case "give-up":
		s.k.sweeper.cfg.GiveUp = time.Microsecond
		_, _ = s.k.sweeper.sweep(l.ctx, s.layout, true)
		s.k.sweeper.cfg.GiveUp = time.Hour
	case "restock":
		units := rapid.Int64Range(1, 3).Draw(s.T, "units")
		_, err := l.db.Restock(l.ctx, s.layout.Item, units, "")
		s.must(err)
	case "load":
		s.load()
	case "wipe":
		// Everybody has heard of what is in Kafka: the loss of an entry whose record never got there is a second failure.
		l.redis("FLUSHALL")
		s.forgetUnacked()
	case "lose-stock":
		l.redis("DEL", key(s.layout, rapid.IntRange(0, s.layout.Shards-1).Draw(s.T, "shard"), "stock"))
	case "crash-transfer":
		if s.layout.Shards > 1 {
			from := rapid.IntRange(0, s.layout.Shards-1).Draw(s.T, "from")
			l.crashBehindTake(s.layout, from, (from+1)%s.layout.Shards, rapid.Int64Range(1, 3).Draw(s.T, "units"))
		}
	case "finish-transfers":
		_ = s.k.finishTransfers(l.ctx, s.layout.Item)
	case "hold":
		s.tape.set(func(t *tape) { t.hold = true })
	case "arrive", "arrive-unheard":
		s.tape.arrive(name == "arrive")
	case "broker-down", "broker-up":
		s.tape.set(func(t *tape) { t.down = name == "broker-down" })
	default:
		s.Fatalf("no such step: %s", name)
	}
}

// load loads, unless the broker is away. What is on the wire stays there, as with a gateway that was stopped.
func (s *story) load() {
	s.tape.set(func(t *tape) { t.hold = false })
	outcome, err := s.k.loader.Load(s.l.ctx, s.layout.Item, "test")
	if (err != nil || outcome != Loaded) && !s.tape.down {
		s.Fatalf("load: %v, %v", outcome, err)
	}
}

// forgetUnacked forgets the promises of which no copy is left.
func (s *story) forgetUnacked() {
	for id, acked := range s.answered {
		select {
		case <-acked:
		default:
			delete(s.answered, id)
		}
	}
}

func (s *story) some() (sale.OrderID, bool) {
	if len(s.orders) == 0 {
		return sale.OrderID{}, false
	}
	return s.orders[rapid.IntRange(0, len(s.orders)-1).Draw(s.T, "order")], true
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// end lets everything come to rest. What is still on the wire arrives, or is lost.
func (s *story) end() {
	l := s.l
	s.tape.set(func(t *tape) { t.down = false })
	if rapid.Bool().Draw(s.T, "the wire arrives") {
		s.tape.arrive(false)
	} else {
		s.tape.set(func(t *tape) { t.hold, t.wire = false, nil })
		s.forgetUnpublished()
	}
	stop := l.run(s.k)
	defer stop()
	promised := make([]sale.OrderID, 0, len(s.answered))
	for id := range s.answered {
		promised = append(promised, id)
	}
	ctx, cancel := context.WithTimeout(l.ctx, timeout/2)
	defer cancel()
	report, err := invariant.Await(ctx, l.pool, l.stock, s.layout.Item, promised...)
	s.must(err)
	if !report.OK() {
		s.Fatal(report)
	}
	l.allTold()
	l.checkLives(s, s.layout, s.quantity, s.tape.toldByKey())
	s.retire(int64(len(s.orders)))
}

// retire lets the sale end. Who has not paid will not.
func (s *story) retire(most int64) {
	l := s.l
	orders := l.count(`SELECT count(*) FROM flash_sale_order WHERE item_id = $1`, s.layout.Item)
	l.exec(`UPDATE flash_sale_order SET expires_at = now() - interval '1 second' WHERE item_id = $1 AND status = 'PENDING'`, s.layout.Item)
	l.exec(`UPDATE flash_sale SET ends_at = now() WHERE id = (SELECT sale_id FROM flash_sale_item WHERE id = $1)`, s.layout.Item)
	devtest.Eventually(l, timeout/2, func() bool {
		return l.count(`SELECT count(*) FROM flash_sale_item WHERE id = $1 AND retired_at IS NOT NULL`, s.layout.Item) == 1 && l.keys(s.layout) == 0
	}, "the item is retired")
	if n := l.count(`SELECT count(*) FROM flash_sale_order WHERE item_id = $1`, s.layout.Item); n != orders || n > most {
		s.Errorf("%d orders, %d before the item was retired, of %d reservations", n, orders, most)
	}
	l.allTold()
	l.checkLives(s, s.layout, s.quantity, s.tape.toldByKey())
}

// forgetUnpublished forgets promises that were on the wire when a load took their outbox, or a wipe did, and that were lost there.
func (s *story) forgetUnpublished() {
	for id := range s.answered {
		if s.tape.published(id) == 0 && s.l.entries(s.layout) == 0 {
			delete(s.answered, id)
		}
	}
}
