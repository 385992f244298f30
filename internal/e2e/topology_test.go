package e2e

import (
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// wholeSale sells an item from its creation to its last unit, with one cancelled order and a restock on the way.
func (s *shop) wholeSale(shards int) {
	s.tb.Helper()
	item := s.offer(10, shards)
	users := people(30, func(i int) string { return itoa(int64(5_000_000 + i)) })
	answers := s.crowd(item, users, keyOf)
	s.exactlySold(item, answers, 10)
	s.awaitStatus(item, "SOLD_OUT")

	who, orders := winners(users, answers)
	if len(orders) == 0 {
		s.tb.Fatal("nobody bought")
	}
	if a := s.order(0, http.MethodDelete, orders[0], who[0]); a.status != 200 || a.code() != "CANCELLED" {
		s.tb.Fatalf("cancel: %v", a)
	}
	if a := s.asAdmin(0, http.MethodPost, "/admin/items/"+itoa(item)+"/restock", `{"quantity":5}`); a.status != 200 || a.body["quantity"] != 15.0 {
		s.tb.Fatalf("restock: %v", a)
	}
	s.awaitStatus(item, "ON_SALE")
	if sold, available := s.settled(item); sold != 9 || available != 6 {
		s.tb.Errorf("after a cancelled order and a restock of 5: sold %d, free %d, want 9 and 6", sold, available)
	}
	more := s.crowd(item, people(10, func(i int) string { return "late-" + itoa(int64(i)) }), keyOf)
	if got, want := count(more), map[string]int{"202 PENDING": 6, "410 SOLD_OUT": 4}; !maps.Equal(got, want) {
		s.tb.Errorf("answers of the second crowd: %v, want %v", got, want)
	}
	if sold, available := s.settled(item); sold != 15 || available != 0 {
		s.tb.Errorf("at the end: sold %d, free %d, want 15 and 0", sold, available)
	}
	for status, want := range map[string]int64{"PENDING": 15, "CANCELLED": 1} {
		if n := s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1 AND status = $2", item, status); n != want {
			s.tb.Errorf("%d orders are %s, want %d", n, status, want)
		}
	}
}

// calm is the processes of a sale in good times.
type calm struct {
	tb        testing.TB
	processes []*role
	said      []int // how much each had written when all were ready
}

// openCalmly starts gateways and a consumer, and watches over what they say once they are ready.
func (s *shop) openCalmly(gateways int) *calm {
	s.tb.Helper()
	s.open(gateways, 0)
	consumer := start(s.tb, s.env, "consumer")
	s.awaitReady(consumer)
	c := &calm{tb: s.tb, processes: append([]*role{consumer}, s.gateways...)}
	for _, r := range c.processes {
		c.said = append(c.said, len(r.output.String()))
	}
	return c
}

// stop stops all processes at once and checks that they end well, and have met nothing that would worry an operator.
func (c *calm) stop() {
	c.tb.Helper()
	for _, r := range c.processes {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}
	for i, r := range c.processes {
		if code := r.wait(30 * time.Second); code != 0 {
			c.tb.Errorf("%s ended with status %d", r.name, code)
		}
		for line := range strings.Lines(r.output.String()[c.said[i]:]) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
				c.tb.Errorf("%s complains: %s", r.name, line)
			}
		}
	}
}

// A sale starts, sells and stops in peace on Redis as it is run in production.
func TestSaleOnEveryTopology(t *testing.T) {
	for name, redis := range map[string]func(t *testing.T) string{
		"cluster of three masters": func(t *testing.T) string { return devtest.RedisCluster(t, devstack.RedisClusterConfig{}).URL() },
		"master behind Sentinels": func(t *testing.T) string {
			return devtest.RedisSentinel(t, devstack.RedisSentinelConfig{Access: devstack.RedisAccess{Password: "p@ss/word"}}).URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, redis(t), kfake(t))
			c := s.openCalmly(2)
			s.wholeSale(13)
			c.stop()
		})
	}
}
