package e2e

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// recovery watches an item from a fault on until it has been loaded again.
type recovery struct {
	began, loaded time.Time // loaded: when its epoch had changed; read it when done is closed
	done          chan struct{}
}

// watchRecovery is called in the moment of a fault.
func (s *shop) watchRecovery(item int64) *recovery {
	s.tb.Helper()
	r := &recovery{began: time.Now(), done: make(chan struct{})}
	pool, err := pgxpool.New(s.tb.Context(), s.database)
	if err != nil {
		s.tb.Fatal(err)
	}
	epoch := func() (n int64) {
		// What cannot be read is asked again.
		_ = pool.QueryRow(s.tb.Context(), "SELECT epoch FROM flash_sale_item WHERE id = $1", item).Scan(&n)
		return n
	}
	before := epoch()
	var watching sync.WaitGroup
	watching.Go(func() {
		for pause.For(s.tb.Context(), 10*time.Millisecond) {
			if epoch() > before {
				r.loaded = time.Now()
				close(r.done)
				return
			}
		}
	})
	s.tb.Cleanup(func() { watching.Wait(); pool.Close() })
	return r
}

// await waits until the item has been loaded again. As a fault in a rush it keeps the buyers who are not under way yet from buying everything before.
func (r *recovery) await(tb testing.TB) {
	tb.Helper()
	select {
	case <-r.done:
	case <-time.After(2 * time.Minute):
		tb.Fatal("the item is not loaded again")
	}
}

// report says how long it took until somebody at home in each of the shards was served again, and holds it against the limit in a large run.
func (r *recovery) report(crowd *rush, shards int, limit time.Duration) {
	tb := crowd.s.tb
	tb.Helper()
	r.await(tb)
	open := make([]time.Time, shards)
	for i, s := range crowd.served {
		at := &open[sale.Home(crowd.users[i], shards)]
		if s.ended.After(r.loaded) && (at.IsZero() || s.ended.Before(*at)) {
			*at = s.ended
		}
	}
	last := slices.MaxFunc(open, time.Time.Compare)
	if last.IsZero() {
		tb.Error("nobody was served behind the load")
		return
	}
	shut := last.Sub(r.began)
	tb.Logf("loaded %v after the fault, all of %d shards sell %v after it", r.loaded.Sub(r.began).Round(time.Millisecond), shards, shut.Round(time.Millisecond))
	if large() && shut > limit {
		tb.Errorf("the sale was shut for %v, more than %v", shut, limit)
	}
}

// metric reads one series at a role; 0 if it is not there.
func (s *shop) metric(r *role, series string) (value float64) {
	for line := range strings.Lines(s.try("GET", r.admin+"/metrics", nil, nil).text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, _ = strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return value
}

// openWriters starts consumers and returns them when they are ready.
func (s *shop) openWriters(n int) (consumers []*role) {
	s.tb.Helper()
	for range n {
		consumers = append(consumers, start(s.tb, s.env, "consumer"))
	}
	for _, c := range consumers {
		s.awaitReady(c)
	}
	return consumers
}

// alarmed waits until one of the consumers raises one of the alarms about an item, and says so in a line of its log that names what matters.
func (s *shop) alarmed(consumers []*role, item int64, alarms ...string) {
	s.tb.Helper()
	line := regexp.MustCompile(`level=ERROR .*a load is due.* item=` + itoa(item) + ` .*fault=`)
	devtest.Eventually(s.tb, time.Minute, func() bool {
		for _, c := range consumers {
			for _, alarm := range alarms {
				if s.metric(c, `flashgate_keeper_alarms_total{alarm="`+alarm+`",item="`+itoa(item)+`"}`) > 0 && line.MatchString(c.output.String()) {
					return true
				}
			}
		}
		return false
	}, "no alarm %v about item %d", alarms, item)
}
