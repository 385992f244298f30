package e2e

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// TestReconcileFromTheShell sells a little, changes the stock in Redis by hand, and sees a keeper raise its alarm, the command name what is wrong, and
// --fix put it right.
func TestReconcileFromTheShell(t *testing.T) {
	redis := devtest.Redis(t)
	s := newShop(t, redis.URL(), kfake(t), "FLASHGATE_RECONCILE_EVERY=1s").open(1, 0)
	consumer := start(t, s.env, "consumer")
	s.awaitReady(consumer)
	item := s.offer(50, 2)
	bought := ""
	for i := range 10 {
		a := s.buy(0, item, strconv.Itoa(1000+i), "")
		if a.status != 202 {
			t.Fatal(a)
		}
		bought = a.orderID()
	}
	s.settled(item)
	shell := append([]string{"FLASHGATE_ADMIN_URL=" + s.gateways[0].admin, "FLASHGATE_ADMIN_TOKEN=" + adminToken}, s.env...)
	says := func(args ...string) string {
		t.Helper()
		output, code := run(t, shell, append([]string{"item", "reconcile", itoa(item)}, args...)...)
		if code != 0 {
			t.Fatalf("%v: status %d\n%s", args, code, output)
		}
		return output
	}
	row := func(output, name, value string) {
		t.Helper()
		if !regexp.MustCompile(`(?m)^` + name + `\s+` + value + `$`).MatchString(output) {
			t.Errorf("%s is not %s in\n%s", name, value, output)
		}
	}
	calm := says("--fix")
	row(calm, "drift", "0")
	row(calm, "fixed", "no")

	redisCommand(t, redis, "INCRBY {item:"+itoa(item)+":0}:stock 4")
	user := 1009 % 2
	redisCommand(t, redis, "HDEL {item:"+itoa(item)+":"+strconv.Itoa(user)+"}:buyers 1009")
	redisCommand(t, redis, "HINCRBY {item:"+itoa(item)+":"+strconv.Itoa(user)+"}:meta marks -1")
	for range 2 { // nothing changes by looking
		table := says()
		for name, value := range map[string]string{"quantity": "50", "sold": "10", "free": "44", "reserved": "0", "in flight": "0", "in transfer": "0"} {
			row(table, name, value)
		}
		row(table, "drift", "-4")
		row(table, bought, `1\s+is live in the database, and Redis does not know its buyer`)
	}
	// For scripts.
	if output, code := run(t, shell, "item", "reconcile", itoa(item), "--check"); code != 1 || !strings.Contains(output, "item "+itoa(item)+" does not add up: drift -4, orders concerned: 1") {
		t.Errorf("--check ends with status %d and\n%s", code, output)
	}
	devtest.Eventually(t, time.Minute, func() bool {
		metrics := s.try("GET", consumer.admin+"/metrics", nil, nil).text
		return strings.Contains(metrics, `flashgate_keeper_drift_units{item="`+itoa(item)+`"} -4`) &&
			strings.Contains(metrics, `flashgate_keeper_concerned_orders{item="`+itoa(item)+`"} 1`) &&
			strings.Contains(metrics, `flashgate_keeper_alarms_total{alarm="drift",item="`+itoa(item)+`"} 1`)
	}, "the keeper raises no alarm")

	var v struct {
		Drift, Available int64
		Fixed            bool
		Orders           []any
	}
	if output := says("--fix", "-o", "json"); json.Unmarshal([]byte(output), &v) != nil || v.Drift != 0 || v.Available != 40 || !v.Fixed || len(v.Orders) != 0 {
		t.Errorf("the repair says %s", output)
	}
	again := says("--fix", "--check")
	row(again, "drift", "0")
	row(again, "free", "40")
	row(again, "fixed", "no")
	if a := s.buy(0, item, "1009", ""); a.status != 409 || a.orderID() != bought {
		t.Errorf("a buyer again: %v", a)
	}

	// Nobody stores a reservation now. That it is in flight is no drift, and nobody can say yet whether it arrives.
	consumer.stop()
	if a := s.buy(0, item, "2001", ""); a.status != 202 {
		t.Fatal(a)
	}
	waiting := says()
	row(waiting, "drift", "0")
	row(waiting, "in flight", "1")
	if output, code := run(t, shell, "item", "reconcile", itoa(item), "--check"); code != 1 || !strings.Contains(output, "it is unknown whether item "+itoa(item)+" adds up: ") {
		t.Errorf("--check while no order writer works ends with status %d and\n%s", code, output)
	}
}
