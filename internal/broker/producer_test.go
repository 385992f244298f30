package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/sale"
)

func TestPublish(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		registry := prometheus.NewRegistry()
		p := newProducer(t, s, func(c *broker.ProducerConfig) { c.Registerer = registry })
		f := newFates(t)
		var all []sale.Event
		for shard := range 13 {
			for call := range 5 {
				batch := events(7, shard, 20)
				all = append(all, batch...)
				p.Publish(time.Now().Add(brokertest.Timeout), batch, f.done(fmt.Sprint(shard, " ", call)))
			}
		}
		p.Publish(time.Now().Add(brokertest.Timeout), nil, f.done("no events"))
		for name, err := range f.wait(13*5 + 1) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		ids, partitions := orders(t, s)
		if len(ids) != len(all) || len(count(ids)) != len(all) {
			t.Errorf("%d records of %d orders, want %d of each", len(ids), len(count(ids)), len(all))
		}
		if len(partitions) != 13 {
			t.Errorf("%d keys, want 13", len(partitions))
		}
		// Each shard's records are in the order of publication: the times within a call rise.
		position := map[sale.OrderID]int{}
		for i, id := range ids {
			position[id] = i
		}
		for i := 1; i < len(all); i++ {
			if all[i].Shard == all[i-1].Shard && position[all[i].OrderID] < position[all[i-1].OrderID] {
				t.Fatalf("record %d of shard %d was overtaken", i, all[i].Shard)
			}
		}
		want := fmt.Sprintf("# HELP flashgate_broker_records_total Records handed to the producer, by what was reported of them. A record reported as failed may have arrived.\n"+
			"# TYPE flashgate_broker_records_total counter\n"+
			"flashgate_broker_records_total{result=\"acknowledged\"} %d\n"+
			"flashgate_broker_records_total{result=\"closed\"} 0\nflashgate_broker_records_total{result=\"deadline\"} 0\n"+
			"flashgate_broker_records_total{result=\"failed\"} 0\nflashgate_broker_records_total{result=\"full\"} 0\n", len(all))
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "flashgate_broker_records_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestPublishFull(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s, func(c *broker.ProducerConfig) { c.MaxRecords = 10 })
		if err := publish(t, p, events(7, 1, 11)); !errors.Is(err, broker.ErrFull) {
			t.Errorf("a call larger than the buffer: %v, want ErrFull", err)
		}
		freeze(t, s, p)
		f := newFates(t)
		p.Publish(time.Now().Add(brokertest.Timeout), events(7, 1, 10), f.done("first"))
		full := newFates(t)
		for i := range 1000 {
			p.Publish(time.Now().Add(brokertest.Timeout), events(7, 1, 1), full.done(fmt.Sprint(i)))
		}
		for name, err := range full.wait(1000) {
			if !errors.Is(err, broker.ErrFull) {
				t.Fatalf("call %s into a full buffer: %v, want ErrFull", name, err)
			}
		}
		s.Thaw()
		if err := f.wait(1)["first"]; err != nil {
			t.Errorf("the call that filled the buffer: %v", err)
		}
		if err := publish(t, p, events(7, 1, 10)); err != nil {
			t.Errorf("after the buffer was empty again: %v", err)
		}
	})
}

func TestPublishLate(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		f := newFates(t)
		p.Publish(time.Now(), events(7, 1, 1), f.done("late"))
		if err := f.wait(1)["late"]; !errors.Is(err, broker.ErrDeadline) {
			t.Errorf("%v, want ErrDeadline", err)
		}
		if err := publish(t, p, events(7, 1, 1)); err != nil {
			t.Fatal(err)
		}
		if ids, _ := orders(t, s); len(ids) != 1 {
			t.Errorf("%d records, want the second call's alone", len(ids))
		}
	})
}

// Close delivers what is buffered.
func TestCloseDelivers(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		f := newFates(t)
		for i := range 100 {
			p.Publish(time.Now().Add(brokertest.Timeout), events(7, i%13, 1), f.done(fmt.Sprint(i)))
		}
		if err := p.Close(brokertest.Context(t)); err != nil {
			t.Fatal(err)
		}
		for name, err := range f.wait(100) {
			if err != nil {
				t.Errorf("call %s: %v", name, err)
			}
		}
		if err := publish(t, p, events(7, 1, 1)); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("a call after Close: %v, want ErrClosed", err)
		}
		if ids, _ := orders(t, s); len(ids) != 100 {
			t.Errorf("%d records, want 100", len(ids))
		}
	})
}

// Close fails what cannot be delivered in its time; done has been called for every call when it returns.
func TestCloseGivesUp(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		cfg := broker.ProducerConfig{Config: s.Config}
		p, err := broker.NewProducer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := publish(t, p, events(7, 1, 1)); err != nil {
			t.Fatal(err)
		}
		freeze(t, s, p)
		f := newFates(t)
		for i := range 100 {
			p.Publish(time.Now().Add(brokertest.Timeout), events(7, i%13, 1), f.done(fmt.Sprint(i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Close(ctx); err == nil {
			t.Error("Close says that everything was delivered")
		}
		f.mu.Lock()
		reported := len(f.of)
		f.mu.Unlock()
		if reported != 100 {
			t.Errorf("%d of 100 calls were reported when Close returned", reported)
		}
		for name, err := range f.wait(100) {
			if !errors.Is(err, broker.ErrClosed) {
				t.Errorf("call %s: %v, want ErrClosed", name, err)
			}
		}
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}
