package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// crowd lets each user buy one unit of the item, spread over the gateways, and returns the answers in the order of users.
func (s *shop) crowd(item int64, users []string, key func(i int) string) []answer {
	return s.crowdWatched(item, users, key, new(atomic.Int64))
}

// crowdWatched is crowd, and counts the purchases while they happen.
func (s *shop) crowdWatched(item int64, users []string, key func(i int) string, accepted *atomic.Int64) []answer {
	answers := make([]answer, len(users))
	gateways := slices.Clone(s.gateways)
	next := make(chan int)
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			for i := range next {
				answers[i] = s.buyAt(gateways[i%len(gateways)], item, users[i], key(i))
				if answers[i].status == 202 {
					accepted.Add(1)
				}
			}
		})
	}
	for i := range users {
		next <- i
	}
	close(next)
	workers.Wait()
	return answers
}

func count(answers []answer) map[string]int {
	counts := map[string]int{}
	for _, a := range answers {
		counts[strconv.Itoa(a.status)+" "+a.code()]++
	}
	return counts
}

func people(n int, name func(i int) string) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = name(i)
	}
	return users
}

func keyOf(i int) string { return "key-" + strconv.Itoa(i) }

// exactlySold checks that the crowd bought the whole stock: so many 202, so many 410, and the database and Redis agree.
func (s *shop) exactlySold(item int64, answers []answer, stock int) {
	s.tb.Helper()
	want := map[string]int{"202 PENDING": stock, "410 SOLD_OUT": len(answers) - stock}
	if got := count(answers); !maps.Equal(got, want) {
		s.tb.Errorf("answers %v, want %v", got, want)
		for _, a := range answers {
			if a.status != 202 && a.status != 410 {
				s.tb.Logf("for example %v", a)
				break
			}
		}
	}
	sold, available := s.settled(item)
	if sold != int64(stock) || available != 0 {
		s.tb.Errorf("sold %d, free %d, want %d and 0", sold, available, stock)
	}
	if rows := s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1 AND status = 'PENDING'", item); rows != int64(stock) {
		s.tb.Errorf("%d rows of live orders, want %d", rows, stock)
	}
	for _, a := range answers {
		if a.status == 202 {
			if n := s.query("SELECT count(*) FROM flash_sale_order WHERE id = $1", a.orderID()); n != 1 {
				s.tb.Errorf("order %s was answered with 202 and has %d rows", a.orderID(), n)
			}
		}
	}
}

// servers are the combinations on which the main job must hold.
var servers = []struct {
	name  string
	redis func(testing.TB) string
	kafka func(testing.TB) string
}{
	{"in-process Redis and Kafka", func(tb testing.TB) string { return devtest.MiniRedis(tb).URL() }, kfake},
	{"real Redis", func(tb testing.TB) string { return devtest.Redis(tb).URL() }, kfake},
	{"real Redis and Apache Kafka", func(tb testing.TB) string { return devtest.Redis(tb).URL() },
		func(tb testing.TB) string { return strings.Join(devtest.PrivateKafka(tb).Brokers(), ",") }},
}

func kfake(tb testing.TB) string { return strings.Join(devtest.Kfake(tb).Brokers(), ",") }

func TestThousandBuyersForHundredUnits(t *testing.T) {
	for _, on := range servers {
		t.Run(on.name, func(t *testing.T) {
			s := newShop(t, on.redis(t), on.kafka(t)).open(2, 2)
			for _, shards := range []int{1, 4, 13} {
				t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
					s.tb = t
					item := s.offer(100, shards)
					users := people(1000, func(i int) string { return strconv.Itoa(1_000_000 + i) })
					s.exactlySold(item, s.crowd(item, users, keyOf), 100)
				})
			}
			s.tb = t
		})
	}
}

func TestNothingIsStranded(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 1)
	for name, user := range map[string]func(i int) string{
		"consecutive":     func(i int) string { return strconv.Itoa(500 + i) },
		"shared low bits": func(i int) string { return strconv.Itoa((1000 + i) << 12) },
		"one home shard":  func(i int) string { return strconv.Itoa(8*i + 3) },
		"opaque ids":      func(i int) string { return "auth0|user-" + strconv.Itoa(i) },
	} {
		t.Run(name, func(t *testing.T) {
			s.tb = t
			item := s.offer(10, 8)
			s.exactlySold(item, s.crowd(item, people(12, user), keyOf), 10)
		})
	}
	s.tb = t
}

func TestSecondTry(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 1)
	item := s.offer(2, 4)
	first := s.buy(0, item, "77", "my-key")
	if first.status != 202 || first.code() != "PENDING" || first.header.Get("Location") != "/api/flash-sales/orders/"+first.orderID() || first.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("first purchase: %v, header %v", first, first.header)
	}
	again := func(when string) {
		t.Helper()
		for g := range s.gateways {
			if a := s.buy(g, item, "77", "my-key"); a.status != 202 || a.text != first.text || a.header.Get("Location") != first.header.Get("Location") {
				t.Errorf("%s, the same key at gateway %d: %v, want the first answer %s", when, g, a, first.text)
			}
			for _, key := range []string{"", "another-key"} {
				if a := s.buy(g, item, "77", key); a.status != 409 || a.code() != "ALREADY_PURCHASED" || a.orderID() != first.orderID() {
					t.Errorf("%s, key %q at gateway %d: %v, want 409 with %s", when, key, g, a, first.orderID())
				}
			}
		}
	}
	again("while units are left")
	if a := s.buy(1, item, "78", ""); a.status != 202 {
		t.Fatalf("second buyer: %v", a)
	}
	for g := range s.gateways {
		if a := s.buy(g, item, "79", ""); a.status != 410 || a.code() != "SOLD_OUT" {
			t.Errorf("third buyer at gateway %d: %v, want 410", g, a)
		}
	}
	s.awaitStatus(item, "SOLD_OUT")
	again("while sold out")
	// A claim that nobody signed opens nothing: the answer is everybody's.
	forged := tokenOf(t, "77")
	forged = forged[:len(forged)-4] + "AAAA"
	a := s.try("POST", s.gateways[0].public+"/api/flash-sales/items/"+strconv.FormatInt(item, 10)+"/purchase", map[string]string{"Authorization": "Bearer " + forged}, nil)
	b := s.buy(0, item, "80", "")
	if a.status != 410 || a.text != b.text {
		t.Errorf("a forged token of a buyer: %v, want everybody's %v", a, b)
	}
	if sold, available := s.settled(item); sold != 2 || available != 0 {
		t.Errorf("sold %d, free %d", sold, available)
	}
}

// awaitStatus waits until every gateway shows the item in the state.
func (s *shop) awaitStatus(item int64, status string) {
	s.tb.Helper()
	for g := range s.gateways {
		var a answer
		devtest.Eventually(s.tb, 20*time.Second, func() bool {
			a = s.try("GET", s.gateways[g].public+"/api/flash-sales/items/"+strconv.FormatInt(item, 10), nil, nil)
			return a.code() == status
		}, "gateway %d shows item %d as %v, not as %s", g, item, &a, status)
	}
}

// One person with a hundred keys empties nothing.
func TestOnePersonClicksRepeatedly(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t), "FLASHGATE_RATE_USER=off").open(1, 1)
	item := s.offer(100, 13)
	answers := s.crowd(item, people(100, func(int) string { return "42" }), keyOf)
	got := count(answers)
	if got["202 PENDING"] != 1 || got["409 ALREADY_PURCHASED"] != 99 {
		t.Errorf("answers %v, want one 202 and 99 times 409", got)
	}
	if sold, available := s.settled(item); sold != 1 || available != 99 {
		t.Errorf("sold %d, free %d, want 1 and 99", sold, available)
	}
	if a := s.buy(0, item, "43", ""); a.status != 202 {
		t.Errorf("another person: %v, want 202", a)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
