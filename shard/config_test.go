package shard

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/sale"
)

func TestConfig(t *testing.T) {
	l := newLab(t, onMini)
	good := Config{Client: l.client}.WithDefaults()
	if err := good.Validate(); err != nil || good.BatchSize != 256 || good.CallTimeout != time.Second {
		t.Errorf("defaults: %+v, %v", good, err)
	}
	if c := (Config{Client: l.client, RecordDeadline: 500 * time.Millisecond}).WithDefaults(); c.Validate() != nil || c.CallTimeout > c.RecordDeadline {
		t.Errorf("a short record deadline: %+v", c)
	}
	for name, spoil := range map[string]func(*Config){
		"client":       func(c *Config) { c.Client = nil },
		"deadline":     func(c *Config) { c.RecordDeadline = -1 },
		"outbox":       func(c *Config) { c.OutboxLimit = -1 },
		"batch":        func(c *Config) { c.BatchSize = 257 },
		"queue":        func(c *Config) { c.QueueLimit = -1 },
		"call timeout": func(c *Config) { c.CallTimeout = 3 * time.Second },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestConnect(t *testing.T) {
	for _, url := range []string{"", "http://127.0.0.1", "redis://127.0.0.1:1", "redis://127.0.0.1:1/x"} {
		if c, err := Connect(ConnectConfig{URL: url}); err == nil {
			c.Close()
			t.Errorf("connected to %q", url)
		}
	}
	if c, err := Connect(ConnectConfig{URL: "redis://127.0.0.1:1", InProcess: true}); err == nil {
		c.Close()
		t.Error("connected to nothing")
	}
}

// The package comment names every metric, and every metric it names exists.
func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewRegistry()
	l := newLab(t, onMini)
	s := l.stock(&broker{}, func(c *Config) { c.Registerer = registry })
	if _, err := New(Config{Client: l.client, Registerer: registry}); err == nil {
		t.Error("two stocks on one registry")
	}
	s.metrics.moves.WithLabelValues("done")
	s.metrics.proofs.WithLabelValues("empty")
	s.metrics.lost.WithLabelValues("entry")
	s.metrics.calls.WithLabelValues("ok")
	s.metrics.publications.WithLabelValues("acked")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var exist []string
	for _, f := range families {
		exist = append(exist, f.GetName())
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`flashgate_shard_[a-z_]+`).FindAllString(string(doc), -1)
	slices.Sort(documented)
	if !slices.Equal(exist, documented) {
		t.Errorf("exist:\n%q\ndocumented:\n%q", exist, documented)
	}
}

func TestNames(t *testing.T) {
	if Done.String() != "done" || Unreadable.String() != "unreadable" || Applied(0).String() != "invalid" || Applied(9).String() != "invalid" {
		t.Error("names of Applied")
	}
	if m, ok := parseMessage(Message{Clear, sale.MaxID}.String()); !ok || m != (Message{Clear, sale.MaxID}) {
		t.Errorf("%+v, %v", m, ok)
	}
}
