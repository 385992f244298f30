package e2e

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flashgate/internal/invariant"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// large reports whether the tests that put something out of order run in full size, as `make heal` has them.
func large() bool { return os.Getenv("FLASHGATE_TEST_LARGE") == "1" }

// size is small in a usual run and full in a large one.
func size[T any](small, full T) T {
	if large() {
		return full
	}
	return small
}

// healing are settings for a crowd that asks again and again through one address. Nobody is answered with 202 before the broker has his order, as far
// as settings can bring that about: what a server loses together with the broker's silence is a known limit, and on a machine under load any broker
// may be silent for a while.
func healing() []string {
	settings := []string{"FLASHGATE_RATE_USER=off", "FLASHGATE_RATE_IP=off", "FLASHGATE_RATE_READ=off"}
	if large() {
		return append(settings, "FLASHGATE_PUBLISH_TIMEOUT=1900ms") // the deadline is 2s
	}
	return append(settings, "FLASHGATE_REQUEST_TIMEOUT=15s", "FLASHGATE_RECORD_DEADLINE=3s", "FLASHGATE_PUBLISH_TIMEOUT=2900ms")
}

// rush is a crowd that buys one unit each while something happens to the servers. Whoever is told to come back, or meets a gateway that is gone, asks
// again with his key, at the next gateway, until he is told yes or no.
type rush struct {
	s     *shop
	item  int64
	users []string
	// faults happen in front of the buyer of that number, in the goroutine of the test, while those before him are being served: that is in the
	// middle of a sale, however fast the machine is.
	faults map[int]func()

	mu      sync.Mutex
	coming  []*role        // gateways that do not say yet where they listen
	told    map[string]int // what buyers were told, every time they asked
	answers []answer
	served  []span
}

// span is the time of a request that was answered with yes or no.
type span struct{ began, ended time.Time }

func newRush(s *shop, item int64, buyers int) *rush {
	users := people(buyers, func(i int) string { return strconv.Itoa(3_000_000 + i) })
	return &rush{s: s, item: item, users: users, faults: map[int]func(){}, told: map[string]int{}}
}

// run lets everybody buy, and returns the answers.
func (r *rush) run() []answer {
	r.answers, r.served = make([]answer, len(r.users)), make([]span, len(r.users))
	ctx, cancel := context.WithTimeout(r.s.tb.Context(), size(3*time.Minute, 10*time.Minute))
	defer cancel()
	next := make(chan int)
	var workers sync.WaitGroup
	defer func() { close(next); workers.Wait() }()
	for range size(48, 192) {
		workers.Go(func() {
			for i := range next {
				r.answers[i], r.served[i] = r.insist(ctx, i)
			}
		})
	}
	for i := range r.users {
		if fault := r.faults[i]; fault != nil {
			fault()
		}
		next <- i
	}
	return r.answers
}

func (r *rush) insist(ctx context.Context, i int) (answer, span) {
	user := r.users[i]
	for attempt := i; ; attempt++ {
		began := time.Now()
		var a answer
		if gateway := r.gateway(attempt); gateway != nil {
			a = r.s.buyAt(gateway, r.item, user, "key-"+user)
			r.mu.Lock()
			r.told[strings.TrimSpace(strconv.Itoa(a.status)+" "+a.code())]++
			r.mu.Unlock()
		}
		if a.status != http.StatusServiceUnavailable && a.status != 0 {
			return a, span{began, time.Now()}
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return a, span{}
		}
	}
}

// gateway is one of those that listen; nil: there is none at the moment.
func (r *rush) gateway(n int) *role {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coming = slices.DeleteFunc(r.coming, func(g *role) bool {
		if !g.findAddresses() {
			return false
		}
		r.s.gateways = append(r.s.gateways, g)
		return true
	})
	if len(r.s.gateways) == 0 {
		return nil
	}
	return r.s.gateways[n%len(r.s.gateways)]
}

// replaceGateway kills a gateway and starts another one, for which nobody waits.
func (r *rush) replaceGateway() {
	r.gateway(0)
	r.mu.Lock()
	var victim *role
	if n := len(r.s.gateways); n > 0 {
		at := rand.IntN(n)
		victim = r.s.gateways[at]
		r.s.gateways = slices.Delete(r.s.gateways, at, at+1)
	}
	r.mu.Unlock()
	if victim == nil {
		return
	}
	victim.kill()
	another := launch(r.s.tb, r.s.env, "gateway")
	r.mu.Lock()
	r.coming = append(r.coming, another)
	r.mu.Unlock()
}

// toldOnly checks that buyers were told nothing but that they have a unit, that there are none, or that they shall come back, with a reason.
func (r *rush) toldOnly(reasons ...string) {
	r.s.tb.Helper()
	for what, times := range r.told {
		if what != "202 PENDING" && what != "410 SOLD_OUT" && !slices.Contains(reasons, strings.TrimPrefix(what, "503 ")) {
			r.s.tb.Errorf("%d times buyers were told %q", times, what)
		}
	}
	r.s.tb.Logf("what buyers were told, every time they asked: %v", r.told)
}

// count is how many of the answers so far have the status. It must not be called while the crowd buys.
func (r *rush) count(status int) (n int64) {
	for _, a := range r.answers {
		if a.status == status {
			n++
		}
	}
	return n
}

// sellsExactly checks the end of the sale: the stock is sold, to the last unit and not more, and all invariants hold. Where a server came back without
// its last writes, an order that was answered with yes can be rejected later, and a unit of a lost reservation come back when the crowd has gone; then
// a few more may come and buy what is there.
func (r *rush) sellsExactly(stock int64, writesLost bool) {
	r.s.tb.Helper()
	report := r.s.audit(r.item, r.answers)
	if writesLost && report.OK() && report.Free > 0 {
		r.s.tb.Logf("%d units came back when everybody had been told that there were none", report.Free)
		r.s.awaitStatus(r.item, "ON_SALE")
		late := newRush(r.s, r.item, 0)
		late.users = people(int(report.Free)+20, func(i int) string { return "late-" + strconv.Itoa(i) })
		r.answers = append(r.answers, late.run()...)
		report = r.s.audit(r.item, r.answers)
	}
	yes, no := r.count(http.StatusAccepted), r.count(http.StatusGone)
	if yes+no != int64(len(r.answers)) || yes < stock || !writesLost && yes != stock {
		r.s.tb.Errorf("answers %v, want %d times yes of %d", count(r.answers), stock, len(r.answers))
	}
	if report.Sold != stock || report.Free != 0 {
		r.s.tb.Errorf("sold %d, free %d, want %d and 0", report.Sold, report.Free, stock)
	}
	r.s.tb.Logf("answers %v, orders %v", count(r.answers), report.Orders)
}

// audit waits until the item is at rest, and checks I1 to I5, with everybody who was answered with 202 among those who must have an order.
func (s *shop) audit(item int64, answers []answer) *invariant.Report {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	must := func(err error) {
		s.tb.Helper()
		if err != nil {
			s.tb.Fatal(err)
		}
	}
	pool, err := pgxpool.New(ctx, s.database)
	must(err)
	defer pool.Close()
	client, err := shard.Connect(shard.ConnectConfig{URL: s.redis})
	must(err)
	defer client.Close()
	stock, err := shard.New(shard.Config{Client: client, RecordDeadline: time.Minute, CallTimeout: time.Minute})
	must(err)
	defer func() { _ = stock.Close(ctx) }()
	var promised []sale.OrderID
	for _, a := range answers {
		if a.status == http.StatusAccepted {
			id, err := sale.ParseOrderID(a.orderID())
			must(err)
			promised = append(promised, id)
		}
	}
	report, err := invariant.Await(ctx, pool, stock, item, promised...)
	must(err)
	if !report.OK() {
		s.tb.Error(report)
	}
	return report
}
