package docs_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var update = flag.Bool("update", false, "write the table of states.md anew")

const (
	statesFile = "states.md"
	begin      = "<!-- states: written by go test ./docs -update -->\n"
	end        = "<!-- /states -->"
)

// The table in states.md says what a ledger does.
func TestStates(t *testing.T) {
	desk := openDesk(t)
	table := desk.table(t)
	page, err := os.ReadFile(statesFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := bytes.Cut(page, []byte(begin))
	stands, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		t.Fatalf("%s has no table between %q and %q", statesFile, begin, end)
	}
	if *update {
		text := string(before) + begin + table + end + string(after)
		if err := os.WriteFile(statesFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(stands) == table {
		return
	}
	lines, want := strings.Split(string(stands), "\n"), strings.Split(table, "\n")
	for i := range max(len(lines), len(want)) {
		if line(lines, i) != line(want, i) {
			t.Fatalf("%s differs from the ledger, first in\n  %s\nwhere the ledger has\n  %s", statesFile, line(lines, i), line(want, i))
		}
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// desk is a ledger and a second way into its database.
type desk struct {
	*ledger.DB
	sql *pgxpool.Pool
}

func openDesk(t *testing.T) *desk {
	t.Helper()
	dsn := devtest.DatabaseLike(t, "states", ledger.Migrate)
	sql, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	db, err := ledger.Open(t.Context(), ledger.Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return &desk{db, sql}
}

// table lets everything happen in every state.
func (d *desk) table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, state := range states {
		fmt.Fprintf(&b, "\n## %s\n\n| what happens | becomes | answer | told to the shop | units |\n|---|---|---|---|---|\n", state.name)
		for _, event := range events {
			if event.onlyIn != nil && !event.onlyIn(state) {
				continue
			}
			o := d.bring(t, state)
			if event.prepare != nil {
				event.prepare(t, d, o)
			}
			before := d.look(t, o)
			answer := event.happen(t, d, o)
			now := d.look(t, o)
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", event.name, change(before.state, now.state), orDash(answer), orDash(news(before.told, now.told)), before.units(now))
		}
	}
	return b.String()
}

// look is how an order stands, and what has been written because of it.
type look struct {
	state       string
	told        []string // types of the outgoing events
	sold        int64
	corrections []string
}

func (d *desk) look(t *testing.T, o *anOrder) look {
	t.Helper()
	l := look{state: noRow}
	row, ok, err := d.Order(t.Context(), o.event.OrderID)
	must(t, err)
	if ok {
		l.state = string(row.Status)
		switch {
		case row.RefundDue():
			l.state += ", refund due"
		case !row.RefundedAt.IsZero():
			l.state += ", refunded"
		}
	}
	item, _, err := d.Item(t.Context(), o.event.ItemID)
	must(t, err)
	l.sold = item.Sold
	l.told = d.column(t, `SELECT type FROM flash_sale_event WHERE order_id = $1 ORDER BY id`, [16]byte(o.event.OrderID))
	l.corrections = d.column(t, `SELECT op FROM flash_sale_correction WHERE order_id = $1 ORDER BY id`, [16]byte(o.event.OrderID))
	return l
}

func (d *desk) column(t *testing.T, query string, args ...any) (list []string) {
	t.Helper()
	rows, err := d.sql.Query(context.Background(), query, args...)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		list = append(list, text)
	}
	must(t, rows.Err())
	return list
}

func (d *desk) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := d.sql.Exec(context.Background(), statement, args...)
	must(t, err)
}

// units says what has become of them between two looks.
func (l look) units(now look) string {
	var words []string
	switch sold := now.sold - l.sold; {
	case sold > 0:
		words = append(words, "sold")
	case sold < 0:
		words = append(words, "sold no more")
	}
	for _, op := range now.corrections[len(l.corrections):] {
		words = append(words, map[string]string{"release": "go back on sale", "void": "are struck out"}[op])
	}
	return orDash(strings.Join(words, ", "))
}

func news(before, now []string) string { return strings.Join(now[len(before):], ", ") }

func change(before, now string) string {
	if before == now {
		return "stays"
	}
	return now
}

func orDash(text string) string {
	if text == "" {
		return "—"
	}
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// anOrder is what is known of an order outside of the ledger.
type anOrder struct {
	event   sale.Event
	payment sale.Payment // the last that succeeded
	number  int          // of payments
}

// bring makes an item of its own with an order in a state.
func (d *desk) bring(t *testing.T, s state) *anOrder {
	t.Helper()
	window := time.Hour
	if s.overdue {
		window = time.Millisecond
	}
	now := time.Now().Truncate(time.Millisecond)
	created, err := d.CreateSale(t.Context(), sale.Sale{
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: window, TimeZone: "UTC",
		Items: []sale.Item{{Quantity: 10, Price: "1980", Currency: "JPY", Shards: 1, MaxPerUser: 2, Model: sale.Counter}},
	})
	must(t, err)
	item := created.Items[0].ID
	o := &anOrder{event: sale.Event{OrderID: sale.NewOrderID(item), ItemID: item, UserID: "buyer", Quantity: 2, ReservedAt: now, Price: "1980", Currency: "JPY"}}
	for _, step := range s.steps {
		step(t, d, o)
	}
	if got := d.look(t, o).state; got != strings.TrimSuffix(s.name, ", overdue") {
		t.Fatalf("an order that was to be %s is %s", s.name, got)
	}
	return o
}
