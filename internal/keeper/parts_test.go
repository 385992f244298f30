package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"flashgate/internal/sale"
)

// clock is a clock that stands until it is set on.
type clock struct{ at time.Time }

func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }
func newClock() *clock                { return &clock{at: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)} }
func ids64(items []sale.Item) (n []int64) {
	for _, it := range items {
		n = append(n, it.ID)
	}
	return n
}

func TestCatalogueKnowsWhatNeedsLookingAfter(t *testing.T) {
	c := newClock()
	base := sale.Item{Model: sale.Counter, Epoch: 1, Shards: 1, StartsAt: c.at.Add(-time.Hour), EndsAt: c.at.Add(time.Hour)}
	for name, tc := range map[string]struct {
		change func(*sale.Item)
		swept  bool // found empty behind the end and the grace
		care   care
	}{
		"open":                       {func(*sale.Item) {}, false, full},
		"of another model":           {func(it *sale.Item) { it.Model = sale.Direct }, false, none},
		"retired":                    {func(it *sale.Item) { it.RetiredAt = c.at }, false, none},
		"never loaded":               {func(it *sale.Item) { it.Epoch, it.StartsAt = 0, c.at.Add(time.Minute*30) }, false, full},
		"never loaded and over":      {func(it *sale.Item) { it.Epoch, it.EndsAt = 0, c.at }, false, none},
		"not open for long":          {func(it *sale.Item) { it.StartsAt = c.at.Add(30 * time.Minute) }, false, idle},
		"about to open":              {func(it *sale.Item) { it.StartsAt = c.at.Add(30 * time.Second) }, false, full},
		"just over":                  {func(it *sale.Item) { it.EndsAt = c.at.Add(-time.Minute) }, false, full},
		"over, and nobody looked":    {func(it *sale.Item) { it.EndsAt = c.at.Add(-30 * time.Minute) }, false, full},
		"over, swept, nothing sold":  {func(it *sale.Item) { it.EndsAt = c.at.Add(-30 * time.Minute) }, true, none},
		"over, swept, orders live":   {func(it *sale.Item) { it.EndsAt, it.Sold = c.at.Add(-30*time.Minute), 5 }, true, idle},
		"open, and was swept before": {func(*sale.Item) {}, true, full},
	} {
		t.Run(name, func(t *testing.T) {
			it := base
			it.ID = 1
			tc.change(&it)
			cat := newCatalogue(func(context.Context) ([]sale.Item, error) { return []sale.Item{it}, nil }, c.now, 5*time.Minute)
			if err := cat.refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tc.swept {
				cat.swept(1, c.at, true)
			}
			items, cares := cat.watched()
			if (len(items) == 1) != (tc.care != none) || cares[1] != tc.care {
				t.Errorf("%d items, care %d, want %d", len(items), cares[1], tc.care)
			}
		})
	}
}

func TestCatalogueForgetsFindings(t *testing.T) {
	c := newClock()
	it := sale.Item{ID: 1, Model: sale.Counter, Epoch: 1, StartsAt: c.at.Add(-2 * time.Hour), EndsAt: c.at.Add(-time.Hour)}
	var failing error
	cat := newCatalogue(func(context.Context) ([]sale.Item, error) { return []sale.Item{it}, failing }, c.now, time.Minute)
	refresh := func() {
		t.Helper()
		if err := cat.refresh(t.Context()); !errors.Is(err, failing) {
			t.Fatal(err)
		}
	}
	watched := func(want care) {
		t.Helper()
		if _, cares := cat.watched(); cares[1] != want {
			t.Errorf("care %d, want %d", cares[1], want)
		}
	}
	refresh()
	watched(full)
	// A sweep that began before the end tells nothing about what was reserved after it.
	cat.swept(1, it.EndsAt.Add(-time.Second), true)
	watched(full)
	cat.swept(1, c.at, true)
	watched(none)
	// Found not empty after all.
	cat.swept(1, c.at, false)
	watched(full)
	cat.swept(1, c.at, true)
	// Extended, and over again: another end, another look.
	it.EndsAt = c.at.Add(-30 * time.Minute)
	refresh()
	watched(full)
	// While it cannot be read the old one stays.
	cat.swept(1, c.at, true)
	it.EndsAt, failing = c.at.Add(time.Hour), errDatabase
	refresh()
	watched(none)
}

func TestPace(t *testing.T) {
	c, p := newClock(), newPace()
	due := func(want bool) {
		t.Helper()
		if got := p.due(1, c.now()); got != want {
			t.Errorf("due: %v, want %v", got, want)
		}
	}
	due(true)
	p.worked(1, c.now(), true, time.Second, 0, 0)
	due(false)
	c.pass(time.Second)
	due(true)
	for _, wait := range []time.Duration{100, 200, 400, 500, 500} {
		wait *= time.Millisecond
		p.worked(1, c.now(), false, 0, 100*time.Millisecond, 500*time.Millisecond)
		c.pass(wait - 1)
		due(false)
		c.pass(1)
		due(true)
	}
	p.worked(1, c.now(), true, 0, 0, 0)
	p.worked(1, c.now(), false, 0, 100*time.Millisecond, time.Second)
	c.pass(100 * time.Millisecond)
	due(true)
	p.worked(1, c.now(), true, time.Hour, 0, 0)
	p.keep(map[int64]bool{2: true})
	due(true)
}

func TestSeldom(t *testing.T) {
	c := newClock()
	s := newSeldom(c.now)
	if !s.say("a") || s.say("a") || !s.say("b") {
		t.Error("each once")
	}
	c.pass(time.Minute)
	if !s.say("a") {
		t.Error("again after a minute")
	}
	for i := range 3 * seldomKeys {
		s.say(i)
	}
	if len(s.last) > seldomKeys {
		t.Errorf("%d keys are remembered", len(s.last))
	}
}

func TestCrew(t *testing.T) {
	c := newCrew(2)
	hold := make(chan struct{})
	started := make(chan int64, 3)
	work := func(item int64) func() {
		return func() { started <- item; <-hold }
	}
	if !c.offer(t.Context(), 1, work(1)) || !c.offerNow(2, work(2)) {
		t.Fatal("there is room for two")
	}
	<-started
	<-started
	if c.offer(t.Context(), 1, work(1)) || c.offerNow(2, work(2)) {
		t.Error("an item was given to two at once")
	}
	if c.offerNow(3, work(3)) {
		t.Error("three at once")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if c.offer(ended, 3, work(3)) {
		t.Error("work was begun behind the end of its context")
	}
	offered := make(chan bool)
	go func() { offered <- c.offer(t.Context(), 3, work(3)) }()
	close(hold)
	if !<-offered {
		t.Error("room was not waited for")
	}
	c.wait()
	if !c.offerNow(1, func() {}) {
		t.Error("an item stays busy for ever")
	}
	c.wait()
}

// leases is a database that hands out leases.
type leases struct {
	holder string
	until  time.Time
	err    error
	asked  int
	clock  *clock
}

func (l *leases) lease(_ context.Context, _, holder string, ttl time.Duration) (bool, error) {
	l.asked++
	if l.err != nil {
		return false, l.err
	}
	if l.holder != holder && l.clock.now().Before(l.until) {
		return false, nil
	}
	l.holder, l.until = holder, l.clock.now().Add(ttl)
	return ttl > 0, nil
}

func TestTurns(t *testing.T) {
	c := newClock()
	db := &leases{clock: c}
	newTurn := func(holder string) *turn {
		return &turn{name: "x", holder: holder, ttl: 2 * time.Second, bound: time.Second, lease: db.lease}
	}
	a, b := newTurn("a"), newTurn("b")
	mine := func(turn *turn, want bool) {
		t.Helper()
		if got := turn.mine(t.Context(), c.now()); got != want {
			t.Errorf("%s: %v, want %v", turn.holder, got, want)
		}
	}
	mine(a, true)
	mine(b, false)
	asked := db.asked
	mine(a, true)
	mine(b, false)
	if db.asked != asked {
		t.Error("the database was asked again at once")
	}
	// As long as a renews, b has nothing to do.
	for range 10 {
		c.pass(time.Second)
		mine(a, true)
		mine(b, false)
	}
	// a stops.
	c.pass(2 * time.Second)
	mine(b, true)
	mine(a, false)
	// What b does fails: it goes on, and lets a have the turn.
	b.failed.Store(true)
	mine(b, true)
	c.pass(time.Second)
	mine(a, true)
	mine(b, false)
	// While the database is away everybody works.
	db.err = errDatabase
	c.pass(time.Second)
	mine(a, true)
	mine(b, true)
	db.err = nil
	c.pass(time.Second)
	mine(a, true)
	mine(b, false)
	a.giveBack(t.Context())
	c.pass(500 * time.Millisecond)
	mine(b, true)
}

func TestConfigIsChecked(t *testing.T) {
	l := newLab(t, onMini)
	good := l.config
	for name, tc := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no stock":          {func(c *Config) { c.Stock = nil }, "no stock"},
		"no ledger":         {func(c *Config) { c.Ledger = nil }, "no ledger"},
		"no publisher":      {func(c *Config) { c.Publisher = nil }, "no publisher"},
		"no offsets":        {func(c *Config) { c.Offsets = nil }, "no offsets"},
		"impatient":         {func(c *Config) { c.GiveUp = c.RecordDeadline }, "give-up"},
		"negative interval": {func(c *Config) { c.SweepEvery = -1 }, "sweep interval"},
		"retired too early": {func(c *Config) { c.RetireAfter = new(-time.Second) }, "retire after"},
		"no events":         {func(c *Config) { c.EventsEvery = -1 }, "events interval"},
		"no retirement":     {func(c *Config) { c.RetireEvery = -1 }, "retire interval"},
		"negative number":   {func(c *Config) { c.InFlight = -1 }, "events in flight"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			tc.change(&cfg)
			_, errKeeper := New(cfg)
			_, errLoader := NewLoader(cfg)
			for _, err := range []error{errKeeper, errLoader} {
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("error %v does not say %q", err, tc.says)
				}
			}
		})
	}
	if c := (Config{}).WithDefaults(); c.RecordDeadline != 2*time.Second || c.GiveUp != 5*time.Minute || c.Group != "order-writer" || c.Holder == "" {
		t.Errorf("defaults: %+v", c)
	}
	if c := (Config{}).WithDefaults(); *c.RetireAfter != 24*time.Hour || c.RetireEvery != 10*time.Second || c.EventsEvery != 200*time.Millisecond {
		t.Errorf("defaults: retire after %v, every %v, events every %v", *c.RetireAfter, c.RetireEvery, c.EventsEvery)
	}
	if c := (Config{RetireAfter: new(time.Duration(0))}).WithDefaults(); *c.RetireAfter != 0 {
		t.Errorf("to retire at once became %v", *c.RetireAfter)
	}
	if a, b := (Config{}).WithDefaults(), (Config{}).WithDefaults(); a.Holder == b.Holder {
		t.Error("two keepers have the same name")
	}
}

func TestMetricsAreSharedAndBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	a, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	a.expired.Inc()
	b.expired.Inc()
	if n := testutil.ToFloat64(a.expired); n != 2 {
		t.Errorf("%v expired orders", n)
	}
	for i := range 3 * alarmItems {
		a.alarm(alarmLoad, int64(i))
	}
	if n := testutil.CollectAndCount(a.alarms); n != alarmItems+1 {
		t.Errorf("%d series of alarms", n)
	}
	a.left(1, backlog{reservations: 3, oldest: time.Second})
	a.left(2, backlog{reservations: 4, oldest: 3 * time.Second})
	if n, age := testutil.ToFloat64(a.waiting), testutil.ToFloat64(a.oldest); n != 7 || age != 3 {
		t.Errorf("%v reservations, oldest %v s", n, age)
	}
	a.left(2, backlog{})
	if n, age := testutil.ToFloat64(a.waiting), testutil.ToFloat64(a.oldest); n != 3 || age != 1 {
		t.Errorf("%v reservations, oldest %v s", n, age)
	}
	a.leftNothing()
	if n := testutil.ToFloat64(a.waiting); n != 0 {
		t.Errorf("%v reservations", n)
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	names := make(map[string]bool)
	for o := Loaded; o <= NotDue; o++ {
		names[o.String()] = true
	}
	if len(names) != 4 || names["failed"] {
		t.Errorf("names %v", names)
	}
}

func TestItemsAreSweptInTurnWhenThereIsNoRoom(t *testing.T) {
	l := newLab(t, onMini)
	gateway := l.gateway(dead{})
	var wg sync.WaitGroup
	for range 7 {
		layout := l.sale(3, 1)
		id := l.buy(gateway, layout, "1", 1)
		wg.Go(func() { l.atRest(layout, id) })
	}
	k := l.keeper(func(c *Config) {
		c.ItemsAtOnce, c.ShardsAtOnce, c.LoadsAtOnce, c.RelayWorkers, c.InFlight = 1, 1, 1, 1, 1
	})
	l.run(k)
	wg.Wait()
	if items, _ := k.catalogue.watched(); !slices.IsSorted(ids64(items)) || len(items) != 7 {
		t.Error(fmt.Sprint("watched: ", ids64(items)))
	}
}
