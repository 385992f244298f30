package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v4"
)

// alert is a rule of the page.
type alert struct {
	Alert         string
	Expr          string
	For           string
	KeepFiringFor string `yaml:"keep_firing_for"`
	Labels        map[string]string
	Annotations   map[string]string
}

// readAlerts reads the rules, and refuses members that Prometheus does not know.
func readAlerts(t *testing.T) (alerts []alert) {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, behind, _ := strings.Cut(string(page), "\n## Alerts\n")
	_, behind, _ = strings.Cut(behind, "\n```yaml\n")
	text, _, _ := strings.Cut(behind, "\n```\n")
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.Load([]byte(text), &file, yaml.WithKnownFields()); err != nil {
		t.Fatalf("read the rules: %v", err)
	}
	for _, g := range file.Groups {
		alerts = append(alerts, g.Rules...)
	}
	return alerts
}

// What Prometheus itself adds: labels to every series, and series of what it asks, of which the rules need these.
var (
	scrapeLabels = []string{"job", "instance"}
	scrapeSeries = []string{"up", "probe_success"}
)

// promWords are the words of expressions that are neither metrics nor functions.
var promWords = []string{"and", "or", "unless", "on", "by", "offset"}

var (
	promGrouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	promSelector = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)\b(\{[^}]*\})?(\s*\()?`)
	promMatcher  = regexp.MustCompile(`^(\w+)(=~|=)"(.*)"$`)
	promGrowth   = regexp.MustCompile(`\b(?:increase|rate|irate|delta|changes)\((\w+)`)
	labelUsed    = regexp.MustCompile(`\$labels\.(\w+)`)
)

// catalogue of what there is to be alerted about.
type promCatalogue struct {
	labels map[string][]string            // of each metric
	values map[string][]map[string]string // the labels of the series that are there from the start
}

func newPromCatalogue(t *testing.T, metrics []metric, registry *prometheus.Registry) promCatalogue {
	t.Helper()
	c := promCatalogue{labels: map[string][]string{}, values: map[string][]map[string]string{}}
	for _, m := range metrics {
		c.labels[m.name] = m.labels
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			values := map[string]string{}
			for _, l := range series.GetLabel() {
				values[l.GetName()] = l.GetValue()
			}
			c.values[f.GetName()] = append(c.values[f.GetName()], values)
		}
	}
	return c
}

// problems says what is wrong with a rule.
func (c promCatalogue) problems(a alert) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if a.Alert == "" || a.Labels["severity"] == "" || a.Annotations["summary"] == "" {
		wrong("it lacks a name, a severity or a summary")
	}
	var grouped []string
	for _, m := range promGrouping.FindAllStringSubmatch(a.Expr, -1) {
		grouped = append(grouped, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	shown := slices.Clone(scrapeLabels) // what an annotation may name
	for _, m := range promSelector.FindAllStringSubmatch(promGrouping.ReplaceAllString(a.Expr, " "), -1) {
		name, matchers, call := m[1], strings.Trim(m[2], "{}"), m[3] != ""
		if call || slices.Contains(promWords, name) || slices.Contains(scrapeSeries, name) {
			continue
		}
		labels, known := c.labels[name]
		if !known {
			wrong("there is no metric %s", name)
			continue
		}
		shown = append(shown, labels...)
		for _, label := range grouped {
			if strings.HasPrefix(name, "flashgate_") && !slices.Contains(labels, label) && !slices.Contains(scrapeLabels, label) {
				wrong("%s has no label %s", name, label)
			}
		}
		if matchers != "" {
			problems = append(problems, c.unmatched(name, strings.Split(matchers, ","))...)
		}
	}
	for _, m := range promGrowth.FindAllStringSubmatch(a.Expr, -1) {
		if len(c.labels[m[1]]) > 0 {
			wrong("the growth of %s does not show the first of a series", m[1])
		}
	}
	for _, text := range a.Annotations {
		for _, m := range labelUsed.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(shown, m[1]) || strings.Contains(a.Expr, " by (") && !slices.Contains(grouped, m[1]) {
				wrong("an annotation names %s, which the alert has not", m[1])
			}
		}
	}
	return problems
}

// unmatched says what no series has that is there from the start.
func (c promCatalogue) unmatched(name string, matchers []string) (problems []string) {
	for _, text := range matchers {
		m := promMatcher.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			return append(problems, "cannot read "+text)
		}
		pattern := m[3]
		if m[2] == "=" {
			pattern = regexp.QuoteMeta(pattern)
		}
		value := regexp.MustCompile("^(?:" + pattern + ")$")
		if !slices.ContainsFunc(c.values[name], func(labels map[string]string) bool {
			v, has := labels[m[1]]
			return has && value.MatchString(v)
		}) {
			problems = append(problems, fmt.Sprintf("no series of %s has %s", name, text))
		}
	}
	return problems
}

// testAlerts checks that the rules of the page are about metrics and labels that there are.
func testAlerts(t *testing.T, metrics []metric, registry *prometheus.Registry) {
	c := newPromCatalogue(t, metrics, registry)
	alerts := readAlerts(t)
	names := map[string]bool{}
	for _, a := range alerts {
		if names[a.Alert] {
			t.Errorf("two rules are called %s", a.Alert)
		}
		names[a.Alert] = true
		for _, problem := range c.problems(a) {
			t.Errorf("%s: %s", a.Alert, problem)
		}
	}
	for name := range c.labels {
		// What people are told to look at has a rule.
		if regexp.MustCompile(`_(alarms_total|panics_total|dead_letters_total|lag_records|drift_units|concerned_orders)$|^flashgate_keeper_.*_oldest_seconds$`).MatchString(name) &&
			!slices.ContainsFunc(alerts, func(a alert) bool { return strings.Contains(a.Expr, name) }) {
			t.Errorf("no rule is about %s", name)
		}
	}
	for broken, expr := range map[string]string{
		"there is no metric":   "flashgate_keeper_alarm_total > 0",
		"has no label":         "sum by (alarm, shard) (flashgate_keeper_alarms_total) > 0",
		"no series":            `flashgate_consumer_records_total{outcome="refused"} > 0`,
		"cannot read":          `flashgate_consumer_records_total{outcome} > 0`,
		"does not show":        "increase(flashgate_keeper_alarms_total[5m]) > 0",
		"an annotation names":  "sum(flashgate_keeper_alarms_total) by (item) > 0",
		"which the alert has ": "flashgate_keeper_outbox_oldest_seconds > 1",
	} {
		a := alert{Alert: "A", Expr: expr, Labels: map[string]string{"severity": "page"}, Annotations: map[string]string{"summary": "{{ $labels.alarm }}"}}
		if problems := c.problems(a); !strings.Contains(strings.Join(problems, "\n"), broken) {
			t.Errorf("%s: %q", expr, problems)
		}
	}
}
