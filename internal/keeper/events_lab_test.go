package keeper

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// eventKafka is a publisher whose order events go to a real broker, and the rest to the tape.
type eventKafka struct {
	*tape
	p *broker.Producer
}

func (e eventKafka) PublishOrderEvent(deadline time.Time, event broker.OrderEvent, done func(error)) {
	e.p.PublishOrderEvent(deadline, event, done)
}

// publisher makes one with a producer of its own.
func (k *kafka) publisher() eventKafka { return eventKafka{k.l.tape, k.producer()} }

// onKafkas runs a test on both kinds of Kafka.
func onKafkas(t *testing.T, test func(t *testing.T, l *lab, k *kafka)) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		l := newLab(t, onMini)
		test(t, l, &kafka{Server: s, l: l})
	})
}

// patient has a keeper wait for the broker as long as a machine under load may need, so that it tells nothing twice.
func patient(k *Keeper) *Keeper {
	k.events.deadline, k.events.lease, k.events.linger = timeout, 2*timeout, timeout
	return k
}

// hasty has it give up, and others take over, soon.
func hasty(k *Keeper) *Keeper {
	k.events.deadline, k.events.lease, k.events.linger = 500*time.Millisecond, 1500*time.Millisecond, timeout
	return k
}

// order stores the event of a reservation, whatever becomes of it.
func (l *lab) order(layout shard.Layout, user string, quantity int64) sale.OrderID {
	l.Helper()
	id := sale.NewOrderID(layout.Item)
	_, err := l.db.Write(l.ctx, []sale.Event{l.reserved(layout, id, user, quantity)})
	l.must(err)
	return id
}

// orders stores orders of so many users.
func (l *lab) orders(layout shard.Layout, name string, n int) []sale.OrderID {
	l.Helper()
	var ids []sale.OrderID
	for first := 0; first < n; first += 1000 {
		var batch []sale.Event
		for i := range min(1000, n-first) {
			id := sale.NewOrderID(layout.Item)
			ids = append(ids, id)
			batch = append(batch, l.reserved(layout, id, fmt.Sprint(name, " ", first+i), 1))
		}
		_, err := l.db.Write(l.ctx, batch)
		l.must(err)
	}
	return ids
}

const testTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func (l *lab) reserved(layout shard.Layout, id sale.OrderID, user string, quantity int64) sale.Event {
	return sale.Event{
		OrderID: id, ItemID: layout.Item, UserID: user, Quantity: quantity, Epoch: 1, ReservedAt: time.Now().Truncate(time.Millisecond),
		Price: "1980", Currency: "JPY", Trace: testTrace,
	}
}

// pay tells of a payment for an order of so many units.
func (l *lab) pay(id sale.OrderID, quantity int64) {
	l.Helper()
	_, outcome, err := l.db.Pay(l.ctx, sale.Payment{
		EventID: uuid.NewString(), OrderID: id, Succeeded: true, Amount: sale.Total("1980", quantity), Currency: "JPY",
	})
	l.must(err)
	if outcome != ledger.PayDone {
		l.Fatalf("pay for %s: %v", id, outcome)
	}
}

func (l *lab) cancel(id sale.OrderID, user string) {
	l.Helper()
	_, outcome, err := l.db.Cancel(l.ctx, id, user)
	l.must(err)
	if outcome != ledger.CancelDone {
		l.Fatalf("cancel %s: %v", id, outcome)
	}
}

// overdue ends the payment window of an order.
func (l *lab) overdue(id sale.OrderID) {
	l.Helper()
	l.exec(`UPDATE flash_sale_order SET expires_at = now() - interval '1 second' WHERE id = $1`, [16]byte(id))
}

func (l *lab) waiting() int64 {
	l.Helper()
	return l.count(`SELECT count(*) FROM flash_sale_event`)
}

func (l *lab) allTold() {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool { return l.waiting() == 0 }, "every event is told")
}

// told reads the topic of order events: the records of each key in their order.
func (k *kafka) told(t testing.TB) map[string][]broker.OrderEvent {
	t.Helper()
	told := make(map[string][]broker.OrderEvent)
	for _, r := range k.Read(t, broker.OrderEvents) {
		e, err := broker.DecodeOrderEvent(r)
		if err != nil {
			t.Fatalf("%s: %v", r.Value, err)
		}
		told[e.Key] = append(told[e.Key], e)
	}
	return told
}

// firsts leaves repetitions out, as consumers do: an event whose id is not above the last one of its key.
func firsts(events []broker.OrderEvent) (news []broker.OrderEvent) {
	last := int64(0)
	for _, e := range events {
		if e.ID > last {
			news = append(news, e)
			last = e.ID
		}
	}
	return news
}

// types says in short what events tell.
func types(events []broker.OrderEvent) string {
	var names []string
	for _, e := range events {
		_, name, _ := strings.Cut(e.Type, ".")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// life is what can become of an order: what is done to it, and what is told of it.
type life struct {
	name string
	told string
	live func(l *lab, k *Keeper, layout shard.Layout, user string) sale.OrderID
}

var lives = []life{
	{"created", "created", func(l *lab, _ *Keeper, y shard.Layout, user string) sale.OrderID { return l.order(y, user, 2) }},
	{"paid", "created paid", func(l *lab, _ *Keeper, y shard.Layout, user string) sale.OrderID {
		id := l.order(y, user, 2)
		l.pay(id, 2)
		return id
	}},
	{"paid twice", "created paid refund_due", func(l *lab, _ *Keeper, y shard.Layout, user string) sale.OrderID {
		id := l.order(y, user, 1)
		l.pay(id, 1)
		l.pay(id, 1)
		return id
	}},
	{"expired and paid late", "created expired refund_due", func(l *lab, k *Keeper, y shard.Layout, user string) sale.OrderID {
		id := l.order(y, user, 1)
		l.overdue(id)
		k.expire(l.ctx)
		l.pay(id, 1)
		return id
	}},
	{"cancelled", "created cancelled", func(l *lab, _ *Keeper, y shard.Layout, user string) sale.OrderID {
		id := l.order(y, user, 1)
		l.cancel(id, user)
		return id
	}},
	{"cancelled, and paid", "created cancelled refund_due", func(l *lab, _ *Keeper, y shard.Layout, user string) sale.OrderID {
		id := l.order(y, user, 1)
		l.cancel(id, user)
		l.pay(id, 1)
		return id
	}},
	{"given up", "cancelled", func(l *lab, _ *Keeper, y shard.Layout, user string) sale.OrderID {
		id := sale.NewOrderID(y.Item)
		l.must(l.db.GiveUp(l.ctx, []sale.Event{l.reserved(y, id, user, 1)}))
		return id
	}},
	{"rejected", "rejected", func(l *lab, _ *Keeper, y shard.Layout, user string) sale.OrderID {
		l.order(y, user, 1)
		return l.order(y, user, 1)
	}},
}

// expectation is what has to be told, by key.
type expectation struct {
	mu   sync.Mutex
	keys map[string]string
}

func (x *expectation) of(id sale.OrderID, told string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys == nil {
		x.keys = make(map[string]string)
	}
	x.keys[id.String()] = told
}

// check compares with what was told, which may be repeated where repeats is true.
func (x *expectation) check(t testing.TB, told map[string][]broker.OrderEvent, repeats bool) {
	t.Helper()
	for key, want := range x.keys {
		got := told[key]
		if repeats {
			got = firsts(got)
		}
		if types(got) != want {
			t.Errorf("order %s: told %q of %q, want %q", key, types(told[key]), types(got), want)
		}
	}
}

// errKilled is the answer of what a killed keeper asks for.
var errKilled = errors.New("the keeper is dead")

// halt is a place where a keeper is stopped, as SIGSTOP stops a process, once.
type halt struct {
	once          sync.Once
	reached, wake chan struct{}
}

func newHalt() *halt { return &halt{reached: make(chan struct{}), wake: make(chan struct{})} }

// here stops the first one that comes by.
func (h *halt) here() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		close(h.reached)
		<-h.wake
	})
}

// eventSteps stops a keeper behind its claim, or behind the broker's acknowledgement; or kills it in front of the deletion.
type eventSteps struct {
	Ledger
	Publisher
	claimed, acked *halt
	killed         bool
}

func (s *eventSteps) ClaimEvents(ctx ctx, fresh, again int, lease time.Duration) ([]ledger.OutgoingEvent, error) {
	rows, err := s.Ledger.ClaimEvents(ctx, fresh, again, lease)
	if len(rows) > 0 {
		s.claimed.here()
	}
	return rows, err
}

func (s *eventSteps) PublishOrderEvent(deadline time.Time, event broker.OrderEvent, done func(error)) {
	s.Publisher.PublishOrderEvent(deadline, event, func(err error) {
		s.acked.here()
		done(err)
	})
}

func (s *eventSteps) FinishEvents(ctx ctx, ids ...int64) error {
	if s.killed {
		return errKilled
	}
	return s.Ledger.FinishEvents(ctx, ids...)
}

// toldOnTape is what the tape was told, by key.
func (t *tape) toldByKey() map[string][]broker.OrderEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := make(map[string][]broker.OrderEvent)
	for _, e := range t.told {
		told[e.Key] = append(told[e.Key], e)
	}
	return told
}

// checkLives fails the test unless what was told of the orders and the stock of an item, which began with so many units, is what has become of them.
func (l *lab) checkLives(t interface {
	Helper()
	Errorf(string, ...any)
}, layout shard.Layout, quantity int64, told map[string][]broker.OrderEvent) {
	t.Helper()
	rows, err := l.pool.Query(l.ctx, `SELECT id::text, status, refunds_due > 0 OR refunded_at IS NOT NULL FROM flash_sale_order WHERE item_id = $1`, layout.Item)
	l.must(err)
	defer rows.Close()
	for rows.Next() {
		var id, status string
		var refund bool
		l.must(rows.Scan(&id, &status, &refund))
		events := told[id]
		ends := map[string][]string{
			"PENDING": {"created"}, "PAID": {"created paid"}, "EXPIRED": {"created expired"}, "CANCELLED": {"created cancelled", "cancelled"}, "REJECTED": {"rejected"},
		}[status]
		without := slices.DeleteFunc(slices.Clone(events), func(e broker.OrderEvent) bool { return e.Type == broker.OrderRefundDue })
		if !slices.Contains(ends, types(without)) || (len(without) != len(events)) != refund {
			t.Errorf("order %s is %s, refund %v, and was told to be %q", id, status, refund, types(events))
		}
		if !slices.IsSortedFunc(events, func(a, b broker.OrderEvent) int { return int(a.ID - b.ID) }) {
			t.Errorf("order %s: told out of order: %+v", id, events)
		}
	}
	l.must(rows.Err())
	for _, e := range told[fmt.Sprintf("item:%d", layout.Item)] {
		if quantity += e.Delta; e.Quantity != quantity {
			t.Errorf("item %d: told of %d units more, which make %d and not %d", layout.Item, e.Delta, quantity, e.Quantity)
		}
	}
	if n := l.count(`SELECT quantity FROM flash_sale_item WHERE id = $1`, layout.Item); n != quantity {
		t.Errorf("item %d has %d units, and was told to have %d", layout.Item, n, quantity)
	}
}
