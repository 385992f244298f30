package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"flashgate/internal/admin"
)

// auditCommand lists what people have changed.
type auditCommand struct {
	Subject string `name:"subject" placeholder:"THING" help:"Only changes of sale:ID, item:ID or order:ID, or replays of dead letters: dlq"`
	page
	adminCall
}

// Run implements the command.
func (c *auditCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.AuditView], error) {
		return client.Audit(ctx, c.Subject, c.Limit, c.Cursor)
	}, func(w io.Writer, v admin.AuditView) {
		row(w, "WHEN", "WHAT", "SUBJECT", "CHANGED")
		for _, e := range v.Entries {
			row(w, instant(e.At), shown(e.What), shown(e.Subject), shown(changed(e)))
		}
		more(w, v.NextCursor)
	})
}

// lettersNamed is how many letters of a replay a row of the audit table shows.
const lettersNamed = 5

// changed says in short what an entry is about.
func changed(e admin.AuditEntryView) string {
	var replay struct {
		Count   int
		Letters []string
	}
	if e.Subject != "dlq" || json.Unmarshal(e.After, &replay) != nil {
		return difference(e.Before, e.After)
	}
	text := fmt.Sprintf("%d replayed: %s", replay.Count, strings.Join(replay.Letters[:min(len(replay.Letters), lettersNamed)], ", "))
	if more := len(replay.Letters) - lettersNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// difference says which members of a row have changed, as "paused: false → true". Without a row before there is nothing to compare with.
func difference(before, after json.RawMessage) string {
	var was, is map[string]json.RawMessage
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil || was == nil {
		return ""
	}
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if string(was[name]) != string(is[name]) {
			changes = append(changes, fmt.Sprintf("%s: %s → %s", name, was[name], is[name]))
		}
	}
	return strings.Join(changes, ", ")
}
