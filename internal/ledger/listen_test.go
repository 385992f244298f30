package ledger

import (
	"context"
	"slices"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

func TestListenersHearWhatChanged(t *testing.T) {
	l := newLab(t, "pool_max_conns=1")
	topics := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		l.Listen(ctx, func(topic string) { topics <- topic })
	}()
	defer func() { cancel(); <-stopped }()
	hear := func(what string, want ...string) {
		t.Helper()
		var got []string
		for range want {
			select {
			case topic := <-topics:
				got = append(got, topic)
			case <-time.After(patience):
				t.Fatalf("%s: heard %q, then nothing; want %q", what, got, want)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: heard %q, want %q", what, got, want)
		}
	}
	hear("connected", "")
	item := l.item(1)
	hear("create", TopicCatalogue)
	l.expect(l.write(reserved(item, "a")), Stored) // concerns nobody
	l.expect(l.write(reserved(item, "b"), reserved(item, "c")), RejectedNoRoom, RejectedNoRoom)
	hear("refused", TopicCorrections)
	if _, err := l.Restock(t.Context(), item, 1, ""); err != nil {
		t.Fatal(err)
	}
	hear("restock", TopicCatalogue, TopicCorrections)
	l.load(item)
	hear("load", TopicCatalogue)
	if err := l.GiveUp(t.Context(), []sale.Event{reserved(item, "d")}); err != nil {
		t.Fatal(err)
	}
	hear("give up", TopicCorrections)
	l.makeDue(item)
	if n, err := l.Expire(t.Context(), 5); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	hear("expire", TopicCorrections)
	if _, outcome, err := l.UpdateItem(t.Context(), item, ItemPatch{Paused: to(true)}); outcome != Patched || err != nil {
		t.Fatal(outcome, err)
	}
	hear("pause an item", TopicCatalogue)
	if _, outcome, err := l.UpdateItem(t.Context(), item, ItemPatch{Paused: to(true)}); outcome != Patched || err != nil {
		t.Fatal(outcome, err)
	}
	if _, outcome, err := l.UpdateItem(t.Context(), item, ItemPatch{Quantity: to[int64](9)}); outcome != Patched || err != nil {
		t.Fatal(outcome, err)
	}
	hear("add units", TopicCatalogue, TopicCorrections)
	ended := l.create(over(1))
	hear("create", TopicCatalogue)
	if _, outcome, err := l.UpdateSale(t.Context(), ended.ID, SalePatch{Name: to("over")}); outcome != Patched || err != nil {
		t.Fatal(outcome, err)
	}
	hear("rename a sale", TopicCatalogue)
	l.retire(ended.Items[0].ID)
	hear("retire", TopicCatalogue)

	// The connection breaks: it comes back by itself, and says that something may have been missed.
	l.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`)
	hear("reconnected", "")
	l.item(1)
	hear("create", TopicCatalogue)
	if extra := len(topics); extra != 0 {
		t.Errorf("%d notifications too many", extra)
	}
}

func TestAListenerWaitsForTheDatabase(t *testing.T) {
	l := newLab(t)
	db, err := Open(t.Context(), Config{URL: "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var waits []time.Duration
	ctx, cancel := context.WithCancel(t.Context())
	db.pause = func(_ context.Context, d time.Duration) bool {
		if waits = append(waits, d); len(waits) == 10 {
			cancel()
		}
		return ctx.Err() == nil
	}
	db.Listen(ctx, func(topic string) { t.Errorf("heard %q", topic) })
	if len(waits) != 10 || !slices.IsSorted(waits[:5]) || waits[9] > 5*time.Second || waits[0] < 50*time.Millisecond {
		t.Errorf("waits %v", waits)
	}
	// One that is told to stop, stops.
	ctx, cancel = context.WithCancel(t.Context())
	l.Listen(ctx, func(string) { cancel() })
	if ctx.Err() == nil {
		t.Error("it did not wait for its end")
	}
}

func TestLease(t *testing.T) {
	l := newLab(t)
	lease := func(name, holder string, ttl time.Duration) bool {
		t.Helper()
		held, err := l.Lease(t.Context(), name, holder, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	for i, c := range []struct {
		name, holder string
		ttl          time.Duration
		want         bool
	}{
		{"sweep", "a", time.Hour, true},
		{"sweep", "b", time.Hour, false},
		{"other", "b", time.Hour, true},
		{"sweep", "a", time.Hour, true}, // renewed
		{"sweep", "b", 0, false},        // not b's to give back
		{"sweep", "b", time.Hour, false},
		{"sweep", "a", 0, false}, // given back
		{"sweep", "b", time.Microsecond, true},
	} {
		if got := lease(c.name, c.holder, c.ttl); got != c.want {
			t.Errorf("step %d: %+v: %v", i, c, got)
		}
	}
	devtest.Eventually(t, patience, func() bool { return lease("sweep", "a", time.Hour) }, "a lease does not run out")
}
