package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/devstack/devtest"
)

// half opens a connection and sends the beginning of something.
func half(t *testing.T, g *role, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.public, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// deafen opens a connection, sends and never reads, until the gateway cannot get rid of its answers.
func deafen(t *testing.T, g *role, item int64) {
	t.Helper()
	c := half(t, g, "")
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	many := strings.Repeat("GET /api/flash-sales/items/"+itoa(item)+" HTTP/1.1\r\nHost: a\r\n\r\n", 1000)
	for {
		_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := io.WriteString(c, many); err != nil {
			return
		}
	}
}

// slowClients are in the middle of a request, or of nothing, and stay there.
func slowClients(t *testing.T, g *role, item int64) (halves map[string]net.Conn) {
	t.Helper()
	purchase := "POST /api/flash-sales/items/" + itoa(item) + "/purchase HTTP/1.1\r\nHost: a\r\n"
	deafen(t, g, item)
	half(t, g, "")
	return map[string]net.Conn{
		"half a header":       half(t, g, purchase+"Authoriz"),
		"a body but one byte": half(t, g, purchase+"Content-Length: 14\r\n\r\n{\"quantity\":1"),
		"half a chunk":        half(t, g, purchase+"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
	}
}

// SIGTERM with slow clients and reservations in flight, while the broker takes nothing: the gateway ends within a short time for stopping, without having
// failed, and every order that it has promised exists.
func TestSlowClientsHoldUpNoStop(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ","), "FLASHGATE_SHUTDOWN_TIMEOUT=3s").open(2, 1)
	item := s.offer(200, 13)
	down := refuse(broker, kmsg.NewPtrProduceRequest())
	halves := slowClients(t, s.gateways[0], item)
	down.Store(true)
	answered := make(chan []answer)
	users := people(100, func(i int) string { return itoa(int64(i + 1)) })
	go func() { answered <- s.crowdAt(s.gateways[0], item, users, keyOf) }()
	devtest.Eventually(t, 30*time.Second, func() bool { return s.pendingInRedis(1, item) >= 50 }, "nothing waits for the broker")
	stopping := s.gateways[0]
	_ = stopping.cmd.Process.Signal(syscall.SIGTERM)
	for name, c := range halves {
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = r.Body.Close()
		if r.StatusCode != 503 || r.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %s %v, want 503", name, r.Status, r.Header)
		}
	}
	answers := <-answered
	if code := stopping.wait(30 * time.Second); code != 0 {
		t.Errorf("it ended with status %d:\n%s", code, tail(stopping.output.String(), 40))
	}
	s.gateways = s.gateways[1:]
	down.Store(false)
	s.promised(item, answers, 200)
}

// promised checks that every order that was answered with 202 has its row, and that no unit is missing.
func (s *shop) promised(item int64, answers []answer, stock int64) {
	s.tb.Helper()
	var orders []string
	for i, a := range answers {
		switch a.status {
		case 202:
			orders = append(orders, a.orderID())
		case 503, 0:
		default:
			s.tb.Errorf("buyer %d of a stopping gateway: %v", i+1, a)
		}
	}
	if len(orders) == 0 {
		s.tb.Errorf("nobody was accepted: %v", count(answers))
	}
	devtest.Eventually(s.tb, time.Minute, func() bool {
		return s.query("SELECT count(*) FROM flash_sale_order WHERE id::text = ANY($1)", orders) == int64(len(orders))
	}, "of %d orders that were answered with 202 some do not arrive", len(orders))
	if sold, available := s.settled(item); sold+available != stock {
		s.tb.Errorf("sold %d, free %d: not %d together", sold, available, stock)
	}
}

// With everything well: what is in flight is published and written down before the process ends, slow clients or not.
func TestStopFlushesDespiteSlowClients(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t), "FLASHGATE_SHUTDOWN_TIMEOUT=3s").open(2, 1)
	item := s.offer(1000, 13)
	slowClients(t, s.gateways[0], item)
	answered := make(chan []answer)
	users := people(300, func(i int) string { return itoa(int64(i + 1)) })
	stopping := s.gateways[0]
	go func() { answered <- s.crowdAt(stopping, item, users, keyOf) }()
	devtest.Eventually(t, 30*time.Second, func() bool { return s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1", item) > 0 }, "nothing is sold")
	stopping.stop()
	answers := <-answered
	s.gateways = s.gateways[1:]
	s.promised(item, answers, 1000)
}
