package shard

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// queue is users who ask until they have a unit or are told that there is none. No unit comes back, so who is told so before
// somebody wins who asked afterwards was told a lie.
type queue struct {
	*lab
	layout  Layout
	soldOut atomic.Bool
	won     atomic.Int64
	put     atomic.Int64 // answers after which a user asks again

	mu      sync.Mutex
	winners map[string]bool
}

// ask lets one user ask a seller until he is done with.
func (c *queue) ask(s seller, user string) {
	for c.ctx.Err() == nil {
		over := c.soldOut.Load()
		switch r := s.Reserve(c.ctx, c.layout, request(c.layout, user, 1, "key of "+user)); r.Outcome {
		case sale.Reserved, sale.Own: // the latter after an answer that was lost
			if over && r.Outcome == sale.Reserved {
				c.Errorf("user %s has a unit after somebody was told that all are sold", user)
			}
			c.won.Add(1)
			c.mu.Lock()
			c.winners[user] = true
			c.mu.Unlock()
			return
		case sale.NoStock:
			c.soldOut.Store(true)
			return
		case sale.Failed, sale.Unknown, sale.Busy, sale.NotLoaded, sale.QueueFull:
			c.put.Add(1)
			pause.For(c.ctx, 5*time.Millisecond)
		default:
			c.Errorf("user %s: %+v", user, r)
			return
		}
	}
}

// together lets users ask at once, some at a time.
func (c *queue) together(users []string, sellers ...seller) *sync.WaitGroup {
	var done sync.WaitGroup
	waiting := make(chan string, len(users))
	for _, user := range users {
		waiting <- user
	}
	close(waiting)
	for i := range 24 {
		done.Go(func() {
			for user := range waiting {
				c.ask(sellers[i%len(sellers)], user)
			}
		})
	}
	return &done
}

// balanced checks that every unit is with a winner, and every winner has an order that was told to the broker.
func (c *queue) balanced(s *Stock, kafka *broker, units int64) {
	c.Helper()
	var free, marks int64
	devtest.Eventually(c, timeout, func() bool {
		if s.FinishTransfers(c.ctx, c.layout, 0) != nil {
			return false
		}
		readings, err := s.Read(c.ctx, c.layout)
		moving := int64(0)
		free, marks = 0, 0
		for _, r := range readings {
			if r.Stock == nil || r.Fault != nil {
				return false
			}
			free, marks, moving = free+*r.Stock, marks+r.Buyers, moving+r.Moving
		}
		return err == nil && moving == 0
	}, "every shard answers, and no unit is in transfer")
	if won := c.won.Load(); free != 0 || marks != units || won != units {
		c.Errorf("%d units are free, %d marked and %d won, of %d", free, marks, won, units)
	}
	holders, _, err := s.Buyers(c.ctx, c.layout)
	c.must(err)
	for _, user := range holders {
		if !c.winners[user] {
			c.Errorf("user %s holds a unit and was not told so", user)
		}
	}
	told := make(map[string]sale.OrderID)
	for _, e := range kafka.seen() {
		if id, twice := told[e.UserID]; twice && id != e.OrderID {
			c.Errorf("user %s has two orders", e.UserID)
		}
		told[e.UserID] = e.OrderID
	}
	if int64(len(told)) != units {
		c.Errorf("%d users have an order at the broker, want %d", len(told), units)
	}
}

// masterOf is the node, one of three masters as they were started, that serves the slot of a shard.
func (l *lab) masterOf(layout Layout, n int) (node, slot int) {
	l.Helper()
	slot, err := strconv.Atoi(l.do("CLUSTER", "KEYSLOT", keysOf(layout.Item, n).stock))
	l.must(err)
	for node = range 3 {
		if slot < (node+1)*16384/3 {
			break
		}
	}
	return node, slot
}

func TestClusterReplacesAKilledMaster(t *testing.T) {
	c := devtest.RedisCluster(t, devstack.RedisClusterConfig{Replicas: 1})
	l := labAt(t, backend{"cluster", false, nil}, c.URL())
	layout := Layout{Item: 96, Shards: 7}
	kafka := &broker{}
	short := func(c *Config) { c.CallTimeout = timeout / 30 }
	one, two := l.stock(kafka, short), l.stock(kafka, short)
	l.load(one, layout, 1, 70, nil)
	// All units are with the node that dies: everybody else has to wait for them, and nobody may be told that there are none.
	lost, _ := l.masterOf(layout, 0)
	units := int64(0)
	var gone []int
	for n := range layout.Shards {
		if node, _ := l.masterOf(layout, n); node == lost {
			units += 10
			gone = append(gone, n)
		} else {
			l.do("SET", keysOf(layout.Item, n).stock, "0")
		}
	}
	if len(gone) == layout.Shards {
		t.Fatal("all shards are with one node")
	}
	l.must(c.Nodes()[lost+3].CatchUp(l.ctx, c.Nodes()[lost]))
	l.must(c.Nodes()[lost].Kill())

	q := &queue{lab: l, layout: layout, winners: map[string]bool{}}
	done := q.together(numbered(1, int(units)+20, 1), one, two)
	devtest.Eventually(t, timeout, func() bool { return q.put.Load() > 0 || q.won.Load() > 0 }, "somebody is answered")
	done.Wait()
	if q.put.Load() == 0 {
		t.Error("nobody noticed: the case shows nothing")
	}
	q.balanced(one, kafka, units)
	servers, err := one.Servers(l.ctx, layout)
	l.must(err)
	for n, server := range servers {
		if server.Changed() != slices.Contains(gone, n) {
			t.Errorf("shard %d: %+v", n, server)
		}
	}
}

func TestSlotsMoveDuringARush(t *testing.T) {
	c := devtest.RedisCluster(t, devstack.RedisClusterConfig{})
	l := labAt(t, backend{"cluster", false, nil}, c.URL())
	layout := Layout{Item: 97, Shards: 5}
	kafka := &broker{}
	short := func(c *Config) { c.CallTimeout = timeout / 30 }
	one, two := l.stock(kafka, short), l.stock(kafka, short)
	l.load(one, layout, 1, 300, nil)
	q := &queue{lab: l, layout: layout, winners: map[string]bool{}}
	// Everybody but the users of shard 0 comes at once, and is there when each slot moves.
	var here, there []string
	for _, user := range numbered(1, 450, 1) {
		if sale.Home(user, layout.Shards) == 0 {
			there = append(there, user)
		} else {
			here = append(here, user)
		}
	}
	rush := q.together(here, one, two)
	moved := 0
	for n := range 3 {
		from, slot := l.masterOf(layout, n)
		move := l.moveSlot(c, from, (from+1)%3, slot)
		if n == 0 {
			// Half of its keys are here and half are there: it has to be waited for, and nothing else.
			move.begin()
			move.key(keysOf(layout.Item, n).stock)
			before := q.put.Load()
			waiting := q.together(there, one, two)
			devtest.Eventually(t, timeout, func() bool { return q.put.Load() > before }, "somebody is put off")
			move.rest()
			move.end()
			waiting.Wait()
		} else {
			move.begin()
			move.rest()
			move.end()
		}
		moved++
	}
	rush.Wait()
	q.balanced(two, kafka, 300)
	// To whom the units went is known at the new nodes alone, which are others than those that were loaded.
	if got := l.changed(one, layout); got != moved {
		t.Errorf("%d shards have another server, want %d", got, moved)
	}
}

// slotMove is a slot on its way from one master to another.
type slotMove struct {
	l        *lab
	all      []*devstack.Redis
	from, to *devstack.Redis
	slot, id string // id of the new node
	old      string // and of the old one
}

func (l *lab) moveSlot(c *devstack.RedisCluster, from, to, slot int) *slotMove {
	m := &slotMove{l: l, all: c.Nodes(), from: c.Nodes()[from], to: c.Nodes()[to], slot: strconv.Itoa(slot)}
	m.old, m.id = m.say(m.from, "CLUSTER", "MYID"), m.say(m.to, "CLUSTER", "MYID")
	return m
}

func (m *slotMove) say(r *devstack.Redis, args ...string) string {
	m.l.Helper()
	answer, err := r.Do(m.l.ctx, args...)
	m.l.must(err)
	text, err := answer.ToString()
	m.l.must(err)
	return text
}

func (m *slotMove) begin() {
	m.l.Helper()
	m.say(m.to, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.old)
	m.say(m.from, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.id)
}

func (m *slotMove) key(keys ...string) {
	m.l.Helper()
	host, port, _ := strings.Cut(m.to.Addr(), ":")
	m.say(m.from, append([]string{"MIGRATE", host, port, "", "0", "10000", "KEYS"}, keys...)...)
}

// rest moves all keys that are left.
func (m *slotMove) rest() {
	m.l.Helper()
	answer, err := m.from.Do(m.l.ctx, "CLUSTER", "GETKEYSINSLOT", m.slot, "100")
	m.l.must(err)
	keys, err := answer.AsStrSlice()
	m.l.must(err)
	for len(keys) > 0 {
		m.key(keys...)
		answer, err = m.from.Do(m.l.ctx, "CLUSTER", "GETKEYSINSLOT", m.slot, "100")
		m.l.must(err)
		keys, err = answer.AsStrSlice()
		m.l.must(err)
	}
}

func (m *slotMove) end() {
	m.l.Helper()
	for _, r := range []*devstack.Redis{m.to, m.from} {
		m.say(r, "CLUSTER", "SETSLOT", m.slot, "NODE", m.id)
	}
	for _, r := range m.all {
		if r != m.to && r != m.from {
			m.say(r, "CLUSTER", "SETSLOT", m.slot, "NODE", m.id)
		}
	}
}
