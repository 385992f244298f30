package main

import (
	"context"
	"fmt"
	"io"

	"flashgate/internal/admin"
)

// dlqCommands are the commands about dead letters: records that the order writer could not store.
type dlqCommands struct {
	List dlqListCommand `cmd:"" help:"List dead letters, oldest first."`
}

// dlqListCommand lists dead letters.
type dlqListCommand struct {
	page
	adminCall
}

// Run implements the command.
func (c *dlqListCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.LettersView], error) {
		return client.DeadLetters(ctx, c.Limit, c.Cursor)
	}, func(w io.Writer, v admin.LettersView) {
		row(w, "LETTER", "SINCE", "FROM", "REASON", "ORDER", "ERROR")
		for _, l := range v.Letters {
			from, order := shown(l.Topic), "-"
			if l.SourcePartition != nil && l.SourceOffset != nil {
				from += fmt.Sprintf(" %d:%d", *l.SourcePartition, *l.SourceOffset)
			}
			if l.OrderID != nil {
				order = shown(*l.OrderID)
			}
			row(w, fmt.Sprintf("%d:%d", l.Partition, l.Offset), instant(l.At), from, shown(l.Reason), order, shown(l.Error))
		}
		more(w, v.NextCursor)
	})
}
