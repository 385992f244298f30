package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// watched is a master of Redis with a replica, which three Sentinels put in its place when it has been silent for two seconds.
func watched(t *testing.T) *devstack.RedisSentinel {
	t.Helper()
	return devtest.RedisSentinel(t, devstack.RedisSentinelConfig{DownAfter: 2 * time.Second})
}

// roles are the master of the group at the moment, and the other server.
func roles(t *testing.T, group *devstack.RedisSentinel) (master, replica *devstack.Redis) {
	t.Helper()
	master, err := group.Master(t.Context())
	must(t, err)
	for _, r := range group.Nodes() {
		if r != master {
			replica = r
		}
	}
	return master, replica
}

// A master is killed in the middle of a rush, and the Sentinels put its replica in its place. It comes back, empty, while people still buy, takes itself for
// the master, and is made a replica.
func TestHealSentinelFailover(t *testing.T) {
	group := watched(t)
	l := newLoss(t, group.URL())
	var old *devstack.Redis
	l.replace = func() {
		old, _ = roles(t, group)
		must(t, old.Kill())
	}
	l.after = func() { must(t, old.Restart(t.Context())) }
	l.heals()
	l.soldOutEverywhere()
	l.demoted(group, old)
	for _, c := range l.consumers {
		if n := l.metric(c, `flashgate_keeper_alarms_total{alarm="stock_missing",item="`+itoa(l.item)+`"}`); n > 0 {
			t.Errorf("somebody has looked for the stock at the server that came back empty, %v times", n)
		}
	}
}

// A master freezes in the middle of a rush, and a replica that has not heard of the last sales takes its place. When the sale goes on there, the old one
// wakes, with half of the stock, and nothing in it says that it was replaced. One gateway has not been told either: it is connected with that very
// server. What it sells there is refused by the database, because the item has been loaded since.
func TestHealSentinelFrozenMaster(t *testing.T) {
	group := watched(t)
	l := newLoss(t, group.URL(), size([]string{"FLASHGATE_REQUEST_TIMEOUT=5s"}, nil)...) // so long everybody waits whose call is with the frozen one
	var old *devstack.Redis
	var stale *role
	l.before = func() {
		var replica *devstack.Redis
		old, replica = roles(t, group)
		stale = start(t, withSetting(l.env, "FLASHGATE_REDIS_URL", old.URL()), "gateway")
		l.awaitReady(stale)
		must(t, replica.CutOff(t.Context()))
	}
	l.replace = func() { must(t, old.Pause()) }
	t.Cleanup(func() { _ = old.Resume() })
	var late []answer
	l.after = func() {
		for _, r := range append(l.gateways[:2:2], l.consumers...) {
			l.awaitReady(r) // at the new master
		}
		must(t, group.DemoteAfter(t.Context(), time.Hour))
		must(t, old.Resume())
		l.awaitReady(stale)
		late = l.crowdAt(stale, l.item, people(20, func(i int) string { return "behind-" + itoa(int64(i)) }), keyOf)
	}
	l.heals()
	l.soldOutEverywhere()

	sold := count(late)
	t.Logf("at the master that was replaced: %v", sold)
	if sold["202 PENDING"] == 0 {
		t.Error("nobody bought at the master that was replaced")
	}
	l.audit(l.item, append(late, l.rush.answers...))
	rejected := l.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1 AND user_id LIKE 'behind-%' AND status = 'REJECTED'", l.item)
	if rejected != int64(sold["202 PENDING"]) {
		t.Errorf("%d orders of the master that was replaced are rejected", rejected)
	}

	// The replica went to the new master: with this setting the old one sells nothing.
	_, err := old.Do(t.Context(), "CONFIG", "SET", "min-replicas-to-write", "1")
	must(t, err)
	for _, a := range l.crowdAt(stale, l.item, people(20, func(i int) string { return "refused-" + itoa(int64(i)) }), keyOf) {
		if a.status != http.StatusServiceUnavailable {
			t.Errorf("a master without replicas that wants one: %v, want 503", a)
		}
	}
	stale.kill()
	l.demoted(group, old)
}

// soldOutEverywhere checks that every gateway knows of the end of the sale: nobody buys any more, and who has bought is told of his order.
func (l *loss) soldOutEverywhere() {
	l.t.Helper()
	winner := slices.IndexFunc(l.rush.answers[:len(l.rush.users)], func(a answer) bool {
		return a.status == http.StatusAccepted && l.query("SELECT count(*) FROM flash_sale_order WHERE id = $1 AND status = 'PENDING'", a.orderID()) == 1
	})
	if winner < 0 {
		l.t.Fatal("nobody has an order")
	}
	for g := range l.gateways {
		if a := l.buy(g, l.item, "nobody-"+itoa(int64(g)), "key"); a.status != http.StatusGone {
			l.t.Errorf("who comes to gateway %d when all is sold: %v, want 410", g, a)
		}
		user, want := l.rush.users[winner], l.rush.answers[winner].orderID()
		if a := l.buy(g, l.item, user, "key-"+user); a.status != http.StatusAccepted || a.orderID() != want {
			l.t.Errorf("the buyer of order %s asks again at gateway %d: %v", want, g, a)
		}
	}
	l.rush.toldOnly("WARMING_UP", "UNAVAILABLE", "OUTCOME_UNKNOWN", "OVERLOADED")
}

// demoted waits until the Sentinels have made a replica of a master that was replaced, and checks that nothing has changed by that: nobody is
// connected with it any more, the numbers are as they were, and the next sale goes well.
func (l *loss) demoted(group *devstack.RedisSentinel, old *devstack.Redis) {
	l.t.Helper()
	before := l.numbers(l.item)
	must(l.t, group.DemoteAfter(l.t.Context(), time.Second))
	must(l.t, group.AwaitWhole(l.t.Context()))
	if master, _ := roles(l.t, group); master == old {
		l.t.Error("the Sentinels have gone back to the old master")
	}
	devtest.Eventually(l.t, time.Minute, func() bool {
		answer, err := old.Do(l.t.Context(), "CLIENT", "LIST")
		must(l.t, err)
		clients, err := answer.ToString()
		must(l.t, err)
		return !strings.Contains(clients, " name=flashgate-")
	}, "somebody stays connected with the old master")
	after := l.numbers(l.item)
	for _, name := range []string{"quantity", "sold", "available", "pending", "inTransfer", "drift"} {
		if after[name] != before[name] {
			l.t.Errorf("%s was %v and is %v", name, before[name], after[name])
		}
	}
	if a := l.asAdmin(0, http.MethodPost, "/admin/items/"+itoa(l.item)+"/reconcile", ""); a.body["drift"] != 0.0 || a.body["concerned"] != 0.0 {
		l.t.Errorf("reconcile says %v", a)
	}
	next := l.offer(20, 13)
	l.exactlySold(next, l.crowd(next, people(30, func(i int) string { return itoa(int64(i + 1)) }), keyOf), 20)
}
