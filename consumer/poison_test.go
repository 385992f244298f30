package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/consumer"
	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// somebody is what no log may hold.
const somebody = "ann.lee-xK9fQ2"

// quiet is a log that can be read while it is written.
type quiet struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (q *quiet) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.out.Write(line)
}

func (q *quiet) text() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.out.String()
}

// poisoned returns a good record, one of each kind of bad ones, and another good one, all with one key and so in one partition.
func poisoned(l *lab) (records []*kgo.Record, good []sale.Event, reasons map[int]string) {
	good = l.events(2)
	good[1].Shard = good[0].Shard
	first, last := broker.Encode(good[0]), broker.Encode(good[1])
	bad := []struct {
		value  []byte
		reason string
	}{
		{[]byte{0xff, 0xff}, broker.ReasonMalformed},
		{[]byte("null"), broker.ReasonMalformed},
		{[]byte{}, broker.ReasonEmpty},
		{nil, broker.ReasonTombstone},
		{[]byte(`{"v":99,"orderId":"x"}`), broker.ReasonVersion},
		{[]byte(`{"v":1,"orderId":"` + good[0].OrderID.String() + `","quantity":"1"}`), broker.ReasonMalformed},
		{[]byte(`{"v":1,"orderId":"` + good[0].OrderID.String() + `","itemId":900719925474099,"userId":"u","quantity":1,"shard":0,"epoch":1,"reservedAt":"2026-11-27T12:00:00Z"}`), broker.ReasonInvalid},
	}
	for _, value := range []string{
		`{"v":1,"` + somebody + `":1,"` + somebody + `":2}`,
		`{"v":1,"orderId":"` + somebody + `"}`,
		somebody,
	} {
		reason := broker.ReasonMalformed
		if strings.Contains(value, "orderId") {
			reason = broker.ReasonInvalid
		}
		bad = append(bad, struct {
			value  []byte
			reason string
		}{[]byte(value), reason})
	}
	bad = append(bad, struct {
		value  []byte
		reason string
	}{
		[]byte(strings.Replace(string(first.Value), `"reservedAt":"`, `"reservedAt":"`+somebody, 1)), broker.ReasonInvalid,
	})
	records = append(records, first)
	reasons = map[int]string{}
	for _, b := range bad {
		reasons[len(records)] = b.reason
		records = append(records, &kgo.Record{Topic: broker.Orders, Key: first.Key, Value: b.value})
	}
	return append(records, last), good, reasons
}

func TestPoison(t *testing.T) {
	each(t, func(l *lab) {
		records, good, reasons := poisoned(l)
		l.Write(l.t, records...)
		registry := prometheus.NewRegistry()
		log := &quiet{}
		w := l.start(func(c *consumer.Config) {
			c.Registerer = registry
			c.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		l.settled()
		l.exactly(good)
		letters := l.letters()
		if len(letters) != len(reasons) {
			l.t.Errorf("%d dead letters, want %d", len(letters), len(reasons))
		}
		for i, reason := range reasons {
			letter := letters[place(records[i])]
			if letter == nil {
				l.t.Errorf("record %d, %q, was not set aside", i, records[i].Value)
				continue
			}
			if got := brokertest.Header(letter, broker.DeadReason); got != reason {
				l.t.Errorf("record %d: reason %s, want %s", i, got, reason)
			}
			if string(letter.Value) != string(records[i].Value) || (letter.Value == nil) != (records[i].Value == nil) || string(letter.Key) != string(records[i].Key) {
				l.t.Errorf("record %d: key %q and value %q were kept as %q and %q", i, records[i].Key, records[i].Value, letter.Key, letter.Value)
			}
		}
		if n, err := testutil.GatherAndCount(registry, "flashgate_consumer_dead_letters_total"); err != nil || n < 6 {
			l.t.Errorf("%d series of dead letters, %v", n, err)
		}
		// What somebody wrote there is kept in the letters, and gets into no log.
		if text := log.text(); strings.Contains(text, somebody) || !strings.Contains(text, `"reason":"invalid"`) || !strings.Contains(text, `"field":"reservedAt"`) {
			l.t.Errorf("the log is\n%s", text)
		}
		// Once is enough: whoever comes next begins behind them.
		w.stop(l.t)
		more := l.events(1)
		l.send(more)
		l.start()
		l.settled()
		l.exactly(append(good, more...))
		if n := len(l.letters()); n != len(reasons) {
			l.t.Errorf("%d dead letters after a restart, want %d", n, len(reasons))
		}
	})
}

// Records that can be read and not stored: of an item that does not exist, in the middle of a batch.
func TestUnknownItem(t *testing.T) {
	each(t, func(l *lab) {
		good := l.events(20)
		strange := l.events(3)
		records := encode(good)
		for i := range strange {
			strange[i].ItemID = l.item + 77
			strange[i].OrderID = sale.NewOrderID(l.item + 77)
			records = slices.Insert(records, 5*i+2, broker.Encode(strange[i]))
		}
		l.Write(l.t, records...)
		l.start()
		l.settled()
		l.exactly(good)
		letters := l.letters()
		for i := range strange {
			letter := letters[place(records[5*i+2])]
			if letter == nil || brokertest.Header(letter, broker.DeadReason) != broker.ReasonRefused {
				l.t.Errorf("strange record %d: letter %v", i, letter)
			}
		}
		if len(letters) != len(strange) {
			l.t.Errorf("%d dead letters, want %d", len(letters), len(strange))
		}
		if n := column[int](l, `SELECT count(*)::int FROM flash_sale_correction`)[0]; n != 0 {
			l.t.Errorf("%d corrections were written, and nothing could be released", n)
		}
	})
}

// The ledger refuses some events without saying which: they are found by halving, set aside once, and their reservations end with a release.
func TestRefusedWithoutNames(t *testing.T) {
	each(t, func(l *lab) {
		events := l.events(100)
		refuse := map[sale.OrderID]bool{events[0].OrderID: true, events[37].OrderID: true, events[38].OrderID: true, events[99].OrderID: true}
		cause := errors.New("value out of range")
		s := newSeam(l.db)
		s.set(func(_ context.Context, batch []sale.Event) error {
			if slices.ContainsFunc(batch, func(e sale.Event) bool { return refuse[e.OrderID] }) {
				return &ledger.PermanentError{Err: cause}
			}
			return nil
		})
		l.send(events)
		l.start(with(s))
		l.settled()
		if n := column[int](l, `SELECT count(*)::int FROM flash_sale_order WHERE status = 'PENDING'`)[0]; n != 96 {
			l.t.Errorf("%d orders, want 96", n)
		}
		if n := column[int](l, `SELECT count(*)::int FROM flash_sale_order WHERE status = 'CANCELLED'`)[0]; n != 4 {
			l.t.Errorf("%d cancelled orders, want 4", n)
		}
		corrections := column[string](l, `SELECT op || ' ' || order_id::text FROM flash_sale_correction`)
		for id := range refuse {
			if !slices.Contains(corrections, "release "+id.String()) {
				l.t.Errorf("the unit of order %s is not released: %v", id, corrections)
			}
		}
		letters := l.letters()
		if len(letters) != 4 {
			l.t.Errorf("%d dead letters, want 4", len(letters))
		}
		for _, letter := range letters {
			if id := brokertest.Header(letter, "ce_id"); brokertest.Header(letter, broker.DeadReason) != broker.ReasonRefused || brokertest.Header(letter, broker.DeadError) != cause.Error() {
				l.t.Errorf("letter of order %s: %v", id, letter.Headers)
			}
		}
	})
}

// The dead-letter topic is away: the partition of a bad record waits in front of it, the others go on; when the topic is back, everything is made up for.
func TestDeadLettersAway(t *testing.T) {
	each(t, func(l *lab) {
		ctx := brokertest.Context(l.t)
		topics := kadm.NewClient(l.Client(l.t))
		if _, err := topics.DeleteTopic(ctx, broker.DeadLetters); err != nil {
			l.t.Fatal(err)
		}
		records, good, reasons := poisoned(l)
		l.Write(l.t, records...)
		stuck := records[0].Partition
		// A record behind the bad ones, fetched later, and others elsewhere.
		w := l.start(func(c *consumer.Config) { c.LetterTimeout = 200 * time.Millisecond })
		devtest.Eventually(l.t, timeout, func() bool { return l.orders() == 2 }, "the good ones around the bad ones stored")
		var others []sale.Event
		var behind []sale.Event
		for len(others) < 20 || len(behind) == 0 {
			e := l.events(1)
			r := broker.Encode(e[0])
			l.Write(l.t, r)
			if r.Partition == stuck {
				behind = append(behind, e...)
			} else {
				others = append(others, e...)
			}
		}
		devtest.Eventually(l.t, timeout, func() bool { return l.orders() == 2+len(others) }, "the other partitions go on")
		admin := l.Admin(l.t)
		devtest.Eventually(l.t, timeout, func() bool {
			lag, err := admin.Lag(ctx, l.Config.Group, broker.Orders)
			if err != nil {
				return false
			}
			left := int64(0)
			for p, n := range lag {
				if p != stuck {
					left += n
				}
			}
			return left == 0
		}, "the offsets of the other partitions committed")
		if offset := l.committed()[stuck]; offset > records[1].Offset {
			l.t.Errorf("offset %d was committed, behind the bad record at %d", offset, records[1].Offset)
		}
		// A stop and a start change nothing about that.
		w.stop(l.t)
		l.start(func(c *consumer.Config) { c.LetterTimeout = 200 * time.Millisecond })
		l.CreateTopics(l.t)
		l.settled()
		l.exactly(slices.Concat(good, others, behind))
		letters := l.letters()
		for i := range reasons {
			if letters[place(records[i])] == nil {
				l.t.Errorf("record %d was not set aside", i)
			}
		}
		if len(letters) != len(reasons) {
			l.t.Errorf("%d dead letters, want %d", len(letters), len(reasons))
		}
	})
}
