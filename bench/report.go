package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"flashgate/internal/sale"
)

// Report is what became of the crowd.
type Report struct {
	Rush  Rush
	Item  int64
	Took  time.Duration // from the first request to the last answer
	Audit Audit

	tally *tally
}

// Accepted returns the ids of the orders that were answered with 202; a repeated answer counts once.
func (r *Report) Accepted() []sale.OrderID {
	ids := slices.Clone(r.tally.accepted)
	slices.SortFunc(ids, func(a, b sale.OrderID) int { return strings.Compare(string(a[:]), string(b[:])) })
	return slices.Compact(ids)
}

// Answers returns the number of answers by status and code, such as "202 PENDING".
func (r *Report) Answers() map[string]int64 { return maps.Clone(r.tally.answers) }

// verdict turns the audit and the answers into the error of the run.
func (r *Report) verdict() error {
	accepted := int64(len(r.Accepted()))
	violations := slices.Clone(r.Audit.Violations)
	if stock := int64(r.Rush.Stock); accepted > stock {
		violations = append(violations, fmt.Sprintf("%d orders were accepted for %d units", accepted, stock))
	}
	// A crowd larger than the stock buys all of it, unless shoppers went away without an answer that ends their attempt.
	if wanted := min(int64(r.Rush.Shoppers), int64(r.Rush.Stock)); r.unanswered() == 0 && accepted < wanted {
		violations = append(violations, fmt.Sprintf("%d of %d units were sold to %d shoppers", accepted, r.Rush.Stock, r.Rush.Shoppers))
	}
	r.Audit.Violations = violations
	if len(violations) > 0 {
		return fmt.Errorf("%w: %s", ErrInvariant, strings.Join(violations, "; "))
	}
	if accepted == 0 {
		return fmt.Errorf("%w, of %d", ErrNothingSold, r.tally.times.TotalCount())
	}
	return nil
}

// unanswered is the number of shoppers who gave up without learning their outcome.
func (r *Report) unanswered() int64 {
	ended := int64(0)
	for name, n := range r.tally.answers {
		switch {
		case strings.HasPrefix(name, "202"), strings.HasPrefix(name, "409"), strings.HasPrefix(name, "410"):
			ended += n
		}
	}
	return max(int64(r.Rush.Shoppers)-ended, 0)
}

// WriteTo prints the report for people.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var out strings.Builder
	total := r.tally.times.TotalCount()
	fmt.Fprintf(&out, "%d shoppers, %d units, %d shards, %d at once, item %d\n\n", r.Rush.Shoppers, r.Rush.Stock, r.Rush.Shards, r.Rush.Concurrency, r.Item)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "answer\tnumber\tshare\t")
	for _, name := range slices.Sorted(maps.Keys(r.tally.answers)) {
		n := r.tally.answers[name]
		_, _ = fmt.Fprintf(table, "%s\t%d\t%.2f %%\t\n", name, n, 100*float64(n)/float64(max(total, 1)))
	}
	_ = table.Flush()
	fmt.Fprintf(&out, "\n%d answers in %.2f s: %.0f per second\n", total, r.Took.Seconds(), float64(total)/max(r.Took.Seconds(), 1e-9))
	fmt.Fprintf(&out, "time of an answer (closed loop): ")
	for _, p := range []float64{50, 90, 99, 99.9} {
		fmt.Fprintf(&out, "p%g %s, ", p, micros(r.tally.times.ValueAtQuantile(p)))
	}
	fmt.Fprintf(&out, "max %s\n\n", micros(r.tally.times.Max()))
	a := r.Audit
	fmt.Fprintf(&out, "database and Redis: quantity %d, sold %d, free %d, on the way %d, in transfer %d\n", a.Quantity, a.Sold, a.Available, a.Pending, a.InTransfer)
	if limited := r.tally.answers["429 RATE_LIMITED"]; limited > 0 {
		fmt.Fprintf(&out, "%d requests were limited: does the gateway trust this machine as a proxy (FLASHGATE_TRUSTED_PROXIES)?\n", limited)
	}
	switch {
	case len(r.tally.accepted) == 0:
		fmt.Fprintln(&out, "Nothing was sold.")
	case len(a.Violations) == 0:
		fmt.Fprintln(&out, "I1 to I4 hold.")
	}
	for _, violation := range a.Violations {
		fmt.Fprintf(&out, "VIOLATION: %s\n", violation)
	}
	n, err := io.WriteString(w, out.String())
	return int64(n), err
}

func micros(us int64) string {
	return (time.Duration(us) * time.Microsecond).Round(10 * time.Microsecond).String()
}
