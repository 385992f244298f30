package keeper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// impatient gives every entry up that is older than a moment.
func impatient(c *Config) { c.RecordDeadline, c.GiveUp = time.Microsecond, 2*time.Microsecond }

func TestGiveUpReturnsTheUnitOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 4)
		l.tape.set(func(t *tape) { t.down = true })
		id := l.buy(l.gateway(dead{}), layout, "7", 3)
		l.run(l.keeper(impatient))
		report := l.atRest(layout, id)
		if s := l.status(id); s != sale.Cancelled || report.Free != 10 {
			t.Errorf("the order is %q, %v", s, report)
		}
		if n := l.metric("flashgate_keeper_swept_reservations_total", "given_up"); n != 1 {
			t.Errorf("%v reservations given up, want 1", n)
		}
	})
}

func TestRecordThatArrivesAfterTheGiveUp(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 4)
		l.tape.set(func(t *tape) { t.hold = true })
		// The gateway's record is on the wire when its reservation is given up.
		id := l.buy(l.gateway(l.tape), layout, "7", 3)
		stop := l.run(l.keeper(impatient))
		l.atRest(layout, id)
		l.tape.arrive(true)
		l.atRest(layout, id)
		if s := l.status(id); s != sale.Cancelled {
			t.Errorf("the order is %q", s)
		}
		// The user may buy again.
		stop()
		l.run(l.keeper())
		again := l.buy(l.gateway(l.tape), layout, "7", 1)
		report := l.atRest(layout, id, again)
		if l.status(again) != sale.Pending || report.Free != 9 {
			t.Errorf("the second order is %q, %v", l.status(again), report)
		}
	})
}

func TestRecordThatArrivedBeforeTheGiveUp(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 4)
	// The gateway dies with the record in Kafka and the entry in the outbox.
	l.tape.set(func(t *tape) { t.hold = true })
	id := l.buy(l.gateway(l.tape), layout, "7", 3)
	l.tape.arrive(false)
	l.consume()
	l.run(l.keeper(impatient))
	report := l.atRest(layout, id)
	if l.status(id) != sale.Pending || report.Free != 7 {
		t.Errorf("the order is %q, %v", l.status(id), report)
	}
}

func TestGiveUpThatTheDatabaseRefuses(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 1)
	// One entry of two reservations, one of which no row can be written for.
	gateway := l.gateway(dead{})
	id := l.buy(gateway, layout, "1", 1)
	batch := l.outbox(layout, 0).Entries[0]
	bad := batch.Events[0]
	bad.OrderID, bad.UserID, bad.Currency = sale.NewOrderID(layout.Item), "2", "no currency"
	blob := l.redis("HGET", key(layout, 0, "pending"), batch.Batch)
	l.redis("HSET", key(layout, 0, "pending"), "bad", withEvent(blob, bad))

	k := l.keeper(impatient)
	l.ripen(layout)
	_, err := k.sweeper.sweep(l.ctx, layout, false)
	l.must(err)
	// The good one is cancelled, whatever stands beside it; the other goes the way of all events, to the dead letters.
	if l.status(id) != sale.Cancelled || l.tape.published(bad.OrderID) != 1 || l.entries(layout) != 0 {
		t.Errorf("the order is %q, the refused one was published %d times, %d entries", l.status(id), l.tape.published(bad.OrderID), l.entries(layout))
	}
	if n := l.metric("flashgate_keeper_alarms_total", alarmGiveUp); n != 1 {
		t.Errorf("%v alarms, want 1", n)
	}
}

// withEvent is an outbox entry of the same time and epoch as blob that holds e alone.
func withEvent(blob string, e sale.Event) string {
	var version, at, epoch string
	if _, err := fmt.Sscanf(blob, "%s\t%s\t%s\t", &version, &at, &epoch); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s\t%s\t%s\t1\t%d\n%s\t%s\t%d\t%s\t%s\t%s\t%s",
		version, at, epoch, e.Quantity, e.OrderID, e.UserID, e.Quantity, e.KeyHash, e.Price, e.Currency, e.Trace)
}

func (l *lab) outbox(layout shard.Layout, n int) shard.Outbox {
	l.Helper()
	o, err := l.stock.Outbox(l.ctx, layout, n)
	l.must(err)
	return o
}

// ripen waits until every outbox entry of an item has an age: Redis counts it in milliseconds, and a whole test fits into one.
func (l *lab) ripen(layout shard.Layout) {
	l.Helper()
	for n := range layout.Shards {
		devtest.Eventually(l, timeout, func() bool {
			o := l.outbox(layout, n)
			return !slices.ContainsFunc(o.Entries, func(e shard.Entry) bool { return !e.At.Before(o.Now) })
		}, "the outbox of shard %d gets older", n)
	}
}

// TestEveryOrderOfEnds ends one reservation of three units by expiry, cancellation and give-up, each of them twice, in every order there is, and lets
// the record arrive before, after, and between them.
func TestEveryOrderOfEnds(t *testing.T) {
	l := newLab(t, onMini)
	const expire, cancel, giveUp = 'e', 'c', 'g'
	sequences := orders("eeccgg")
	if len(sequences) != 90 {
		t.Fatalf("%d sequences, want 90", len(sequences))
	}
	k := l.keeper(impatient)
	layout := l.sale(3, 3, window(time.Microsecond))
	l.must(k.catalogue.refresh(l.ctx))
	l.exec(countReleases)
	gateway := l.gateway(dead{})
	for n, sequence := range sequences {
		arrives := n % (len(sequence) + 1)
		t.Run(fmt.Sprintf("%s arrives at %d", sequence, arrives), func(t *testing.T) {
			user := fmt.Sprint(n)
			id := l.buy(gateway, layout, user, 3)
			event := l.outbox(layout, sale.Home(user, 3)).Entries[0].Events[0]
			for step := range len(sequence) + 1 {
				if step == arrives {
					l.tape.set(func(t *tape) { t.append([]sale.Event{event}) })
					l.consume()
				}
				if step == len(sequence) {
					break
				}
				switch sequence[step] {
				case expire:
					k.expire(l.ctx)
				case cancel:
					_, _, err := l.db.Cancel(l.ctx, id, user)
					l.must(err)
				case giveUp:
					l.ripen(layout)
					_, err := k.sweeper.sweep(l.ctx, layout, false)
					l.must(err)
				}
				if n%2 == 0 {
					k.relay.round(l.ctx)
				}
			}
			l.settle(k)
			if rows := l.count(`SELECT count(*) FROM released WHERE order_id = $1`, [16]byte(id)); rows != 1 {
				t.Errorf("%d releases, want 1", rows)
			}
			report := l.atRest(layout, id)
			if report.Free != 3 {
				t.Error(report)
			}
			if s := l.status(id); s.Live() || s == sale.Rejected {
				t.Errorf("the order is %q", s)
			}
		})
	}
}

// orders returns every distinct order of the letters.
func orders(letters string) []string {
	if len(letters) == 0 {
		return []string{""}
	}
	var all []string
	for i := range letters {
		rest := letters[:i] + letters[i+1:]
		for _, tail := range orders(rest) {
			all = append(all, string(letters[i])+tail)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestExpiryOfManyByTwoKeepersOneOfWhichDies(t *testing.T) {
	l := newLab(t, onReal)
	const orders = 1000
	layout := l.sale(orders, 5, window(time.Microsecond))
	gateway := l.gateway(l.tape)
	var answered []sale.OrderID
	for i := range orders {
		answered = append(answered, l.buy(gateway, layout, fmt.Sprint(i), 1))
	}
	l.exec(countReleases)
	l.consume()
	// Both begin; the first is gone as soon as something has expired.
	stop := l.runKeeper(l.keeper())
	l.runKeeper(l.keeper())
	devtest.Eventually(t, timeout, func() bool { return l.count(`SELECT count(*) FROM released`) > 0 }, "something expires")
	stop()
	devtest.Eventually(t, timeout, func() bool {
		return l.count(`SELECT count(*) FROM flash_sale_order WHERE status = 'EXPIRED'`) == orders
	}, "all orders expire")
	report := l.atRest(layout, answered...)
	if released := l.count(`SELECT count(*) FROM released`); released != orders || report.Free != orders {
		t.Errorf("%d releases, %v", released, report)
	}
	if n, err := l.db.Expire(l.ctx, 10); n != 0 || err != nil {
		t.Errorf("one more sweep expired %d: %v", n, err)
	}
}

// countReleases remembers every release that is ever written, also when it has been carried out and deleted.
const countReleases = `
CREATE TABLE IF NOT EXISTS released (id bigint, order_id uuid);
CREATE OR REPLACE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO released VALUES (NEW.id, NEW.order_id); RETURN NEW; END $$;
CREATE OR REPLACE TRIGGER remember AFTER INSERT ON flash_sale_correction FOR EACH ROW WHEN (NEW.op = 'release') EXECUTE FUNCTION remember()`
