package consumer_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/consumer"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// slowSession outlives the waits of a test, which fails if it relies on the session timing out; heartbeats tell of a rebalance within 15 s.
const slowSession = 90 * time.Second

func slow(c *consumer.Config) { c.SessionTimeout = slowSession }

func as(id string, session time.Duration) func(*consumer.Config) {
	return func(c *consumer.Config) { c.InstanceID, c.SessionTimeout = id, session }
}

// process starts a static member in a process of its own. kill ends it without a chance to say anything.
func (l *lab) process(id string, session time.Duration) (kill func()) {
	l.t.Helper()
	cmd := l.child(childInstance+"="+id, childSession+"="+session.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			l.t.Errorf("the child was not killed: %v, %s", err, output.String())
		}
	})
	l.t.Cleanup(kill)
	return kill
}

// members returns the partitions of each member of the group by its id, "" for those without one, and the Kafka name of one of these; nil: the group
// is not settled.
func (l *lab) members(admin *kadm.Client) (owned map[string]int, dynamic string) {
	group, err := admin.DescribeGroups(brokertest.Context(l.t), l.Config.Group)
	described := group[l.Config.Group]
	if err != nil || described.State != "Stable" {
		return nil, ""
	}
	owned = map[string]int{}
	for _, m := range described.Members {
		id := ""
		if m.InstanceID != nil {
			id = *m.InstanceID
		} else {
			dynamic = m.MemberID
		}
		assigned, _ := m.Assigned.AsConsumer()
		n := 0
		if assigned != nil {
			for _, topic := range assigned.Topics {
				n += len(topic.Partitions)
			}
		}
		owned[id] += n
	}
	return owned, dynamic
}

// shared waits until the members have as many partitions as want says.
func (l *lab) shared(admin *kadm.Client, want map[string]int) {
	l.t.Helper()
	var got map[string]int
	devtest.Eventually(l.t, timeout, func() bool {
		got, _ = l.members(admin)
		for id, n := range want {
			if is, ok := got[id]; !ok || is != n {
				return false
			}
		}
		return len(got) == len(want)
	}, "members with the partitions %v, but %v", want, &got)
}

// generation is how many rebalances the group has had. The broker tells nobody, but takes a heartbeat of the right one alone.
func (l *lab) generation(admin *kadm.Client) (generation int32) {
	l.t.Helper()
	ctx, client := brokertest.Context(l.t), l.Client(l.t)
	devtest.Eventually(l.t, timeout, func() bool {
		_, member := l.members(admin)
		for generation = 1; member != "" && generation < 1_000; generation++ {
			beat := kmsg.NewPtrHeartbeatRequest()
			beat.Group, beat.MemberID, beat.Generation = l.Config.Group, member, generation
			response, err := beat.RequestWith(ctx, client)
			if err != nil || response.ErrorCode != kerr.IllegalGeneration.Code {
				return err == nil && response.ErrorCode == 0
			}
		}
		return false
	}, "the generation of the group")
	return generation
}

// A process that is killed and comes back in time has its partitions again, and the others go on as if nothing had been.
func TestKilledInstanceComesBack(t *testing.T) {
	each(t, func(l *lab) {
		admin := kadm.NewClient(l.Client(l.t))
		l.start(slow)
		l.shared(admin, map[string]int{"": brokertest.Partitions})
		kill := l.process("writer-1", slowSession)
		l.shared(admin, map[string]int{"": 2, "writer-1": 2})
		before := l.generation(admin)
		var all []sale.Event
		for range 3 {
			kill()
			events := l.events(50)
			l.send(events)
			all = append(all, events...)
			kill = l.process("writer-1", slowSession)
			l.settled()
		}
		l.shared(admin, map[string]int{"": 2, "writer-1": 2})
		if after := l.generation(admin); after != before && l.Fake == nil { // the in-process Kafka shares out anew when a cooperative member comes back
			l.t.Errorf("generation %d of the group, want %d as before", after, before)
		}
		l.exactly(all)
	})
}

// A process that does not come back is replaced when its session has ended.
func TestKilledInstanceStaysAway(t *testing.T) {
	each(t, func(l *lab) {
		admin := kadm.NewClient(l.Client(l.t))
		l.start(func(c *consumer.Config) { c.SessionTimeout = shortSession })
		l.shared(admin, map[string]int{"": brokertest.Partitions})
		kill := l.process("writer-1", shortSession)
		l.shared(admin, map[string]int{"": 2, "writer-1": 2})
		kill()
		events := l.events(100)
		l.send(events)
		l.settled()
		l.exactly(events)
		l.shared(admin, map[string]int{"": brokertest.Partitions})
	})
}

// An orderly stop does not make anybody wait for the end of the session.
func TestStoppedInstanceLeaves(t *testing.T) {
	each(t, func(l *lab) {
		admin := kadm.NewClient(l.Client(l.t))
		l.start(slow)
		l.shared(admin, map[string]int{"": brokertest.Partitions})
		w := l.start(as("writer-1", slowSession))
		l.shared(admin, map[string]int{"": 2, "writer-1": 2})
		w.stop(l.t)
		events := l.events(100)
		l.send(events)
		l.settled()
		l.exactly(events)
		l.shared(admin, map[string]int{"": brokertest.Partitions})
		l.start(as("writer-1", slowSession))
		l.shared(admin, map[string]int{"": 2, "writer-1": 2})
	})
}

// Of two processes with the same id, the one that came last writes. The other says so, does not put it out, and takes over when it has gone.
func TestTwoWithTheSameID(t *testing.T) {
	const session = 6 * time.Second // a fence is noticed with a heartbeat
	const taken = `another process uses the same consumer id`
	each(t, func(l *lab) {
		ctx := brokertest.Context(l.t)
		said := &loudest{testLog: testLog{l.t}}
		ready := func(w *writer) {
			l.t.Helper()
			devtest.Eventually(l.t, timeout, func() bool { return w.Healthy(ctx) == nil }, "ready")
		}
		fenced := func(w *writer) {
			l.t.Helper()
			devtest.Eventually(l.t, timeout, func() bool {
				err := w.Healthy(ctx)
				return err != nil && strings.Contains(err.Error(), taken) && strings.Contains(err.Error(), `"writer-1"`)
			}, "not ready, because of the other process")
		}
		all := l.events(50)
		write := func() {
			l.t.Helper()
			events := l.events(50)
			l.send(events)
			l.settled()
			all = append(all, events...)
		}
		l.send(all)
		first := l.start(as("writer-1", session), func(c *consumer.Config) { c.Logger = slog.New(slog.NewTextHandler(said, nil)) })
		l.settled()
		ready(first)

		second := l.start(as("writer-1", session))
		fenced(first)
		ready(second)
		write()
		fenced(first)
		ready(second)
		if n := said.times("level=ERROR msg=\"" + taken); n != 1 {
			l.t.Errorf("said %d times, want once", n)
		}

		second.stop(l.t)
		ready(first)
		write()

		third := l.start(as("writer-1", session))
		fenced(first)
		ready(third)
		admin := kadm.NewClient(l.Client(l.t))
		l.shared(admin, map[string]int{"writer-1": brokertest.Partitions})
		first.stop(l.t)
		if owned, _ := l.members(admin); owned["writer-1"] != brokertest.Partitions {
			l.t.Errorf("the one that was put out has taken the place away from the other one: %v", owned)
		}
		write()
		ready(third)
		l.exactly(all)
	})
}

// loudest counts lines of a log.
type loudest struct {
	testLog
	mu    sync.Mutex
	lines []string
}

func (l *loudest) Write(line []byte) (int, error) {
	l.mu.Lock()
	l.lines = append(l.lines, string(line))
	l.mu.Unlock()
	return l.testLog.Write(line)
}

func (l *loudest) times(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}
