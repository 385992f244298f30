package e2e

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// stockAndBuyers are the numbers of a rush.
func stockAndBuyers() (stock, buyers int) { return size(240, 5_000), size(700, 20_000) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Redis loses everything in the middle of a rush: the sale resumes by itself and sells what was there, to the last unit.
func TestHealWipedRedis(t *testing.T) {
	server := devtest.Redis(t)
	s := newShop(t, server.URL(), kfake(t), healing()...).open(2, 0)
	consumers := s.openWriters(2)
	stock, buyers := stockAndBuyers()
	item := s.offer(stock, 13)
	r := newRush(s, item, buyers)
	var back *recovery
	r.faults[stock/2] = func() {
		back = s.watchRecovery(item)
		_, err := server.Do(t.Context(), "FLUSHALL")
		must(t, err)
	}
	r.run()
	r.sellsExactly(int64(stock), false)
	s.alarmed(consumers, item, "stock_missing")
	back.report(r, 13, 10*time.Second)
}

// A master of a cluster dies in the middle of a rush, and its replica takes over, with what had come to it.
func TestHealLostClusterMaster(t *testing.T) {
	cluster := devtest.RedisCluster(t, devstack.RedisClusterConfig{Replicas: 1})
	l := newLoss(t, cluster.URL())
	l.replace = func() { must(t, cluster.Nodes()[1].Kill()) }
	l.heals()
}

// The same for a master that hangs, and wakes while people still buy.
func TestHealFrozenClusterMaster(t *testing.T) {
	cluster := devtest.RedisCluster(t, devstack.RedisClusterConfig{Replicas: 1})
	old := cluster.Nodes()[1]
	l := newLoss(t, cluster.URL(), size([]string{"FLASHGATE_REQUEST_TIMEOUT=5s"}, nil)...)
	l.replace = func() { must(t, old.Pause()) }
	l.after = func() { must(t, old.Resume()) }
	t.Cleanup(func() { _ = old.Resume() })
	l.heals()
	l.soldOutEverywhere()
}

// A replica that has not heard of the last sales takes the place of its master. No key is missing, and nothing that can be counted; what it offers a
// second time the database refuses, until the load.
func TestHealStaleReplica(t *testing.T) {
	master, replica := devtest.Redis(t, "--repl-diskless-sync-delay", "0"), devtest.Redis(t)
	must(t, replica.Follow(t.Context(), master))
	line := newMovingLine(t, master.Addr())
	l := newLoss(t, "redis://"+line.address)
	l.before = func() { must(t, replica.CutOff(t.Context())) }
	l.replace = func() {
		must(t, master.Kill())
		must(t, replica.Promote(t.Context()))
		line.to(replica.Addr())
	}
	l.heals()
}

// loss is a rush in which a master of Redis is replaced.
type loss struct {
	*shop
	t         *testing.T
	consumers []*role
	item      int64
	stock     int
	rush      *rush
	// before is done in front of the buyer whose number is a third of the stock, replace at half of it; the buyers from two thirds on wait for the
	// load. after is done at five sixths.
	before, replace, after func()
}

func newLoss(t *testing.T, redis string, settings ...string) *loss {
	t.Helper()
	nothing := func() {}
	l := &loss{t: t, before: nothing, replace: nothing, after: nothing}
	l.shop = newShop(t, redis, kfake(t), append(healing(), settings...)...).open(2, 0)
	l.consumers = l.openWriters(2)
	stock, buyers := stockAndBuyers()
	l.stock, l.item = stock, l.offer(stock, 13)
	l.rush = newRush(l.shop, l.item, buyers)
	return l
}

// heals lets the crowd buy, and checks that the sale went on by itself, to the last unit.
func (l *loss) heals() {
	l.t.Helper()
	var back *recovery
	l.rush.faults[l.stock/3] = l.before
	l.rush.faults[l.stock/2] = func() {
		back = l.watchRecovery(l.item)
		l.replace()
	}
	l.rush.faults[2*l.stock/3] = func() { back.await(l.t) }
	l.rush.faults[5*l.stock/6] = l.after
	l.rush.run()
	l.rush.sellsExactly(int64(l.stock), true)
	l.alarmed(l.consumers, l.item, "stock_server", "stock_no_room")
	back.report(l.rush, 13, 15*time.Second)
}

// Redis hangs: everybody is answered all the same, nothing piles up in the gateway, and when it goes on every unit that was taken meanwhile belongs to
// somebody.
func TestHealFrozenRedis(t *testing.T) {
	server := devtest.Redis(t)
	s := newShop(t, server.URL(), kfake(t), "FLASHGATE_RATE_USER=off", "FLASHGATE_RATE_IP=off", "FLASHGATE_REQUEST_TIMEOUT=1s").open(2, 2)
	stock, buyers := size(100, 500), size(300, 2_000)
	item := s.offer(stock, 13)
	r := newRush(s, item, buyers)
	before := []int{s.busyGoroutines(0), s.busyGoroutines(1)}

	must(t, server.Pause())
	t.Cleanup(func() { _ = server.Resume() })
	began := time.Now()
	var answers [2][]answer
	var both sync.WaitGroup
	for g, users := range [][]string{r.users[:buyers/2], r.users[buyers/2:]} {
		both.Go(func() {
			answers[g] = s.crowdAt(s.gateways[g], item, users, func(i int) string { return "key-" + users[i] })
		})
	}
	const hanging = 80 // a few calls per shard and connection that wait for the server itself, however many buyers there are
	both.Wait()        // the answers come while Redis stands still
	t.Logf("%d buyers were answered within %v", buyers, time.Since(began).Round(time.Millisecond))
	for _, a := range append(answers[0], answers[1]...) {
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Fatalf("while Redis hangs: %v, want 503; all: %v", a, count(append(answers[0], answers[1]...)))
		}
	}
	for g, gateway := range s.gateways {
		var now int
		devtest.Eventually(t, 30*time.Second, func() bool { now = s.busyGoroutines(g); return now <= before[g]+hanging },
			"gateway %d had %d goroutines before and has %v while Redis hangs", g, before[g], &now)
		devtest.Eventually(t, 30*time.Second, func() bool { return s.try("GET", gateway.public+"/readyz", nil, nil).status == 503 }, "gateway %d is ready without Redis", g)
		devtest.Eventually(t, 30*time.Second, func() bool {
			a := s.try("GET", gateway.admin+"/readyz", nil, nil)
			return a.status == 503 && strings.Contains(a.text, "redis")
		}, "gateway %d does not say what it lacks", g)
	}
	must(t, server.Resume())
	r.run()
	for g := range s.gateways {
		var now int
		devtest.Eventually(t, 30*time.Second, func() bool { now = s.busyGoroutines(g); return now <= before[g]+hanging/4 },
			"gateway %d had %d goroutines before and has %v when Redis goes on", g, before[g], &now)
	}
	r.sellsExactly(int64(stock), false)
}

// busyGoroutines counts the goroutines of a gateway that do something or wait for something. Those that are kept for connections to come do not count:
// they stay for some seconds after a crowd.
func (s *shop) busyGoroutines(g int) (n int) {
	s.tb.Helper()
	s.client.CloseIdleConnections()
	profile := s.asAdmin(g, http.MethodGet, "/debug/pprof/goroutine?debug=1", "")
	if profile.status != http.StatusOK {
		s.tb.Fatalf("read the goroutines of gateway %d: %v", g, profile)
	}
	for stack := range strings.SplitSeq(profile.text, "\n\n") {
		idle := strings.Contains(stack, "fasthttp.(*workerPool).workerFunc") && !strings.Contains(stack, "fasthttp.(*Server).serveConn")
		if m := regexp.MustCompile(`(?m)^(\d+) @`).FindStringSubmatch(stack); m != nil && !idle {
			some, _ := strconv.Atoi(m[1])
			n += some
		}
	}
	return n
}

// movingLine is an address that stands for one server after another.
type movingLine struct {
	address string
	target  atomic.Pointer[string]

	mu   sync.Mutex
	open map[net.Conn]bool
}

func newMovingLine(t *testing.T, server string) *movingLine {
	t.Helper()
	line := &movingLine{open: map[net.Conn]bool{}}
	line.target.Store(&server)
	line.address = between(t, func() string { return *line.target.Load() }, line.carry, line.carry, func() {})
	return line
}

func (l *movingLine) carry(to, from net.Conn) {
	l.hold(to, from)
	defer l.release(to, from)
	_, _ = io.Copy(to, from)
}

func (l *movingLine) hold(connections ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range connections {
		l.open[c] = true
	}
}

func (l *movingLine) release(connections ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range connections {
		_ = c.Close()
		delete(l.open, c)
	}
}

// cut ends all connections.
func (l *movingLine) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close()
		delete(l.open, c)
	}
}

// to has the address stand for another server. Who is connected with the one before is cut off.
func (l *movingLine) to(server string) {
	l.target.Store(&server)
	l.cut()
}
