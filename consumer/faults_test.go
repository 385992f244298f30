package consumer_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"flashgate/consumer"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// child is an order writer in a process of its own, not started yet.
func (l *lab) child(environ ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childBrokers+"="+strings.Join(l.Config.Brokers, ","), childGroup+"="+l.Config.Group, childLedger+"="+l.dsn)
	cmd.Env = append(cmd.Env, environ...)
	return cmd
}

// A consumer process is killed between the commit of the database and the commit of the offsets.
func TestKilledBetweenCommits(t *testing.T) {
	each(t, func(l *lab) {
		events := l.events(100)
		l.send(events)
		cmd := l.child()
		var output strings.Builder
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			l.t.Fatalf("the child was not killed: %v, %s", err, output.String())
		}
		stored := l.orders()
		if stored == 0 {
			l.t.Fatal("the child stored nothing")
		}
		for p, offset := range l.committed() {
			if offset != 0 {
				l.t.Errorf("the child committed offset %d of partition %d", offset, p)
			}
		}
		l.start(func(c *consumer.Config) { c.SessionTimeout = shortSession })
		l.settled()
		l.exactly(events)
		if n := len(l.letters()); n != 0 {
			l.t.Errorf("%d dead letters", n)
		}
	})
}

// The database dies and comes back while messages arrive: each becomes one order, none is set aside.
func TestDatabaseDown(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		ctx := brokertest.Context(t)
		pg, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Fsync: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := pg.Stop(); err != nil {
				t.Error(err)
			}
		})
		if err := pg.CreateDatabase(ctx, "flashgate", ""); err != nil {
			t.Fatal(err)
		}
		dsn := pg.DSN("flashgate")
		if err := ledger.Migrate(ctx, dsn); err != nil {
			t.Fatal(err)
		}
		l := newLab(t, s, dsn)
		gate := newSeam(l.db)
		w := l.start(with(gate), func(c *consumer.Config) { c.BatchSize = 100 })
		first := l.events(300)
		l.send(first)
		l.settled()
		if err := pg.Kill(); err != nil {
			t.Fatal(err)
		}
		for len(gate.calls) > 0 {
			<-gate.calls
		}
		second := l.events(700)
		l.send(second)
		for range 3 {
			gate.called(t) // tried in vain, and again
		}
		devtest.Eventually(t, timeout, func() bool { return w.Healthy(ctx) != nil }, "not ready without a database")
		if err := pg.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		l.settled()
		l.exactly(append(first, second...))
		if n := len(l.letters()); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		devtest.Eventually(t, timeout, func() bool { return w.Healthy(ctx) == nil }, "ready again")
	})
}

// A member that waits for its database does not hold up the group: another one takes partitions over, and what went there is not written twice.
func TestRebalanceWhileTheDatabaseIsAway(t *testing.T) {
	each(t, func(l *lab) {
		away := errors.New("connection refused")
		cut := newSeam(l.db)
		cut.set(func(context.Context, []sale.Event) error { return away })
		events := l.events(200)
		l.send(events)
		l.start(with(cut))
		cut.called(l.t)
		cut.called(l.t)
		sound := newSeam(l.db)
		l.start(with(sound))
		// Sooner than the group would throw out a member that holds up a rebalance (45 s).
		devtest.Eventually(l.t, 30*time.Second, func() bool { return l.orders() > 0 }, "the other member works")
		cut.set(nil)
		l.settled()
		l.exactly(events)
	})
}

// The ledger cannot tell whether a write happened: it is repeated, and nothing is set aside.
func TestUnknownOutcome(t *testing.T) {
	each(t, func(l *lab) {
		s := newSeam(l.db)
		tries := 0
		s.set(func(ctx context.Context, batch []sale.Event) error {
			if tries++; tries > 3 {
				return nil
			}
			if _, err := l.db.Write(ctx, batch); err != nil {
				return err
			}
			return &ledger.UnknownError{Err: errors.New("the reply was lost")}
		})
		events := l.events(50)
		l.send(events)
		l.start(with(s))
		l.settled()
		l.exactly(events)
		if n := len(l.letters()); n != 0 {
			l.t.Errorf("%d dead letters", n)
		}
	})
}

// A call of the ledger that never returns is given up and repeated.
func TestHangingDatabase(t *testing.T) {
	each(t, func(l *lab) {
		s := newSeam(l.db)
		hung := false
		s.set(func(ctx context.Context, _ []sale.Event) error {
			if hung {
				return nil
			}
			hung = true
			<-ctx.Done()
			return ctx.Err()
		})
		events := l.events(10)
		l.send(events)
		l.start(with(s), func(c *consumer.Config) { c.WriteTimeout = 50 * time.Millisecond })
		s.called(l.t)
		l.settled()
		l.exactly(events)
	})
}
