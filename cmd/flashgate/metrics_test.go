package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/token"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const metricsPage = "../../docs/metrics.md"

// What a description says of itself; the library has no other way to ask it.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)"(?:, unit: "[^"]*")?, constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// A metric is what a description says.
type metric struct {
	name, help string
	constant   string   // labels with their values
	labels     []string // names of the labels
}

// describedMetrics are those of all roles, which a desk has in one process, in no order.
func describedMetrics(t *testing.T, d *desk) (metrics []metric) {
	t.Helper()
	// A key set is there only where one is configured.
	if _, err := token.NewKeySet(token.KeySetConfig{URL: "https://id.example/keys", Registerer: d.parts.registry}); err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		d.parts.registry.Describe(descriptions)
		close(descriptions)
	}()
	for desc := range descriptions {
		parts := description.FindStringSubmatch(desc.String())
		if parts == nil {
			t.Errorf("cannot read %s", desc)
			continue
		}
		m := metric{name: parts[1], help: strings.ReplaceAll(parts[2], `\"`, `"`), constant: parts[3]}
		for label := range strings.SplitSeq(strings.Trim(parts[3]+","+parts[4], ","), ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				m.labels = append(m.labels, name)
			}
		}
		metrics = append(metrics, m)
	}
	return metrics
}

// TestMetricsAreDocumented compares the metrics with the page about them, and holds the rules of the page against them.
func TestMetricsAreDocumented(t *testing.T) {
	d := openDesk(t)
	metrics := describedMetrics(t, d)
	t.Run("alerts", func(t *testing.T) { testAlerts(t, metrics, d.parts.registry) })
	var rows []string
	for _, m := range metrics {
		if !strings.HasPrefix(m.name, "flashgate_") {
			continue // of the Go runtime and the process
		}
		if m.help == "" {
			t.Errorf("%s has no help", m.name)
		}
		name, labels := m.name, m.constant
		if labels == "" {
			labels = strings.Join(m.labels, ",")
		}
		if labels != "" {
			name += "{" + labels + "}"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", name, strings.ReplaceAll(m.help, "|", `\|`)))
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	want := "# Metrics\n\nOn the admin listener of every role, at `/metrics`, without a token; a role shows those of its parts. Beside them are those of the Go runtime and\n" +
		"the process. The test of `cmd/flashgate` compares this page with the program; `go test ./cmd/flashgate -run TestMetricsAreDocumented -update` writes it anew.\n\n" +
		"| metric | |\n|---|---|\n" + strings.Join(rows, "\n") + "\n"
	// What stands behind the table is written by hand.
	if old, err := os.ReadFile(metricsPage); err != nil {
		t.Fatal(err)
	} else if _, rest, ok := strings.Cut(string(old), "\n## "); ok {
		want += "\n## " + rest
	}
	if *update {
		if err := os.WriteFile(metricsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != want {
		t.Errorf("docs/metrics.md is not what the program has; -update writes it anew. It should be\n%s", want)
	}
}
