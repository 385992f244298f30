package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"flashgate/internal/admin"
)

// dlqCommands are the commands about dead letters: records that the order writer could not store.
type dlqCommands struct {
	List   dlqListCommand   `cmd:"" help:"List dead letters, oldest first."`
	Replay dlqReplayCommand `cmd:"" help:"Send dead letters that can be read now to the orders topic once more, and close them."`
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

// dlqReplayCommand replays dead letters.
type dlqReplayCommand struct {
	DryRun    bool    `name:"dry-run" help:"Only say what would be done"`
	Partition *int64  `name:"partition" placeholder:"N" help:"Partition of the letter, with --offset"`
	Offset    *int64  `name:"offset" placeholder:"N" help:"Only this letter, as dlq list names it: PARTITION:OFFSET"`
	Reason    *string `name:"reason" placeholder:"REASON" help:"Only letters with this reason"`
	adminCall
}

// Run implements the command. The server does a part of the work for each request; the command goes on until nothing is left. Letters that stay are no
// error of it.
func (c *dlqReplayCommand) Run(ctx context.Context, std *console) error {
	if (c.Partition == nil) != (c.Offset == nil) {
		return errors.New("--partition and --offset name one letter together")
	}
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ReplayView], error) {
		return c.replay(ctx, client)
	}, replayTable)
}

// replay makes one answer of those that the server gives.
func (c *dlqReplayCommand) replay(ctx context.Context, client *admin.Client) (all admin.Answer[admin.ReplayView], err error) {
	in := admin.ReplayInput{Partition: c.Partition, Offset: c.Offset, Reason: c.Reason}
	if c.DryRun {
		in.DryRun = &c.DryRun
	}
	for calls := 0; ; calls++ {
		step, err := client.ReplayDeadLetters(ctx, in)
		switch {
		case err != nil && len(all.Value.Replayed) > 0 && !c.DryRun:
			return all, fmt.Errorf("%d letters were replayed, then: %w", len(all.Value.Replayed), err)
		case err != nil:
			return all, err
		case calls == 0:
			all = step
		default:
			all.Value.Replayed = append(all.Value.Replayed, step.Value.Replayed...)
			all.Value.Kept = append(all.Value.Kept, step.Value.Kept...)
			all.Value.NextCursor = step.Value.NextCursor
		}
		if in.Cursor = step.Value.NextCursor; in.Cursor == nil {
			if calls > 0 {
				all.JSON, err = json.Marshal(all.Value)
			}
			return all, err
		}
	}
}

func replayTable(w io.Writer, v admin.ReplayView) {
	if len(v.Replayed)+len(v.Kept) > 0 {
		row(w, "LETTER", "DONE", "REASON", "ORDER", "ERROR")
	}
	done := "replayed"
	if v.DryRun {
		done = "would be replayed"
	}
	for _, l := range v.Replayed {
		row(w, fmt.Sprintf("%d:%d", l.Partition, l.Offset), done, shown(l.Reason), shown(l.OrderID), "-")
	}
	for _, l := range v.Kept {
		row(w, fmt.Sprintf("%d:%d", l.Partition, l.Offset), "kept", shown(l.Reason), "-", shown(l.Error))
	}
	_, _ = fmt.Fprintf(w, "%d %s, %d kept\n", len(v.Replayed), done, len(v.Kept))
}
