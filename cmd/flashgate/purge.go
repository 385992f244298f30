package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"text/tabwriter"
	"time"

	"flashgate/internal/config"
	"flashgate/internal/ledger"
)

// purgeCommand ends the keeping of orders. It works on the database alone, and changes nothing unless it is told to.
type purgeCommand struct {
	OlderThan time.Duration `name:"older-than" required:"" min:"24h" max:"876000h" type:"duration" help:"Orders to which nothing has happened for this long, such as 8760h for a year"`
	Anonymise bool          `name:"anonymise" help:"Keep the orders and forget their users, in place of deleting them"`
	Apply     bool          `name:"apply" help:"Do it; without this the command says what it would do"`
	Output    string        `name:"output" short:"o" default:"table" enum:"table,json" placeholder:"FORMAT" help:"table for people, or json"`
	config.Database
}

// Run implements the command.
func (c *purgeCommand) Run(ctx context.Context, std *console) error {
	db, err := ledger.Open(ctx, ledger.Config{URL: c.URL.Reveal(), ApplicationName: "flashgate-purge", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.CheckSchema(ctx); err != nil {
		return blameConnection(err)
	}
	mode := ledger.PurgeDelete
	if c.Anonymise {
		mode = ledger.PurgeAnonymise
	}
	report, err := db.Purge(ctx, time.Now().Add(-c.OlderThan), mode, !c.Apply)
	if shownErr := c.show(std, report); err == nil {
		err = shownErr
	}
	return blameConnection(err)
}

// purged is the report as JSON.
type purged struct {
	Applied   bool  `json:"applied"`
	Items     int   `json:"items"`
	Orders    int64 `json:"orders"`
	Units     int64 `json:"paidUnits"`
	Payments  int64 `json:"payments"`
	Conflicts int64 `json:"conflicts"`
	RefundDue int64 `json:"keptRefundDue"`
	Unsent    int64 `json:"keptUnsent"`
}

func (c *purgeCommand) show(std *console, r ledger.PurgeReport) error {
	if c.Output == "json" {
		return json.NewEncoder(std.out).Encode(purged{c.Apply, r.Items, r.Orders, r.Units, r.Payments, r.Conflicts, r.RefundDue, r.Unsent})
	}
	did := "to be deleted"
	switch {
	case c.Apply && c.Anonymise:
		did = "made anonymous"
	case c.Apply:
		did = "deleted"
	case c.Anonymise:
		did = "to be made anonymous"
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	row(w, "orders "+did, fmt.Sprintf("%d of %d retired items", r.Orders, r.Items))
	row(w, "payments deleted with them", r.Payments)
	row(w, "contradicting records deleted", r.Conflicts)
	row(w, "kept, a refund is due", r.RefundDue)
	row(w, "kept, events not yet sent", r.Unsent)
	if !c.Apply {
		row(w)
		row(w, "nothing was changed; --apply does it")
	}
	return w.Flush()
}
