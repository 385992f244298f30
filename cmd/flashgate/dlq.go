package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

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
			from := shown(l.Topic)
			if l.SourcePartition != nil && l.SourceOffset != nil {
				from += fmt.Sprintf(" %d:%d", *l.SourcePartition, *l.SourceOffset)
			}
			row(w, fmt.Sprintf("%d:%d", l.Partition, l.Offset), instant(l.At), from, shown(l.Reason), orderOf(l.OrderID), shown(l.Error))
		}
		more(w, v.NextCursor)
	})
}

// orderOf is the order of a letter as a cell.
func orderOf(id *string) string {
	if id == nil {
		return "-"
	}
	return shown(*id)
}

// dlqReplayCommand replays dead letters.
type dlqReplayCommand struct {
	DryRun    bool          `name:"dry-run" help:"Only say what would be done"`
	Partition *int64        `name:"partition" min:"0" max:"2147483647" type:"count" placeholder:"N" help:"Partition of the letter, where --offset does not name it"`
	Offset    *letterOffset `name:"offset" placeholder:"PARTITION:OFFSET" help:"Only this letter, as dlq list names it"`
	Reason    *string       `name:"reason" placeholder:"REASON" help:"Only letters with this reason: tombstone, empty, malformed, version, invalid or refused"`
	adminCall
}

// letterOffset is an offset in the dead-letter topic, and perhaps the partition.
type letterOffset struct {
	partition *int64
	offset    int64
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *letterOffset) UnmarshalText(text []byte) error {
	left, right, both := strings.Cut(string(text), ":")
	offset, partition := left, ""
	if both {
		partition, offset = left, right
	}
	n, err := strconv.ParseUint(offset, 10, 53)
	if err == nil && both {
		var p uint64
		if p, err = strconv.ParseUint(partition, 10, 31); err == nil {
			signed := int64(p)
			l.partition = &signed
		}
	}
	if err != nil {
		return fmt.Errorf("%q: must be PARTITION:OFFSET as dlq list names a letter, such as 3:17, or the offset alone beside --partition", text)
	}
	l.offset = int64(n)
	return nil
}

// place is the letter that the flags name, or none.
func (c *dlqReplayCommand) place() (partition, offset *int64, err error) {
	switch {
	case c.Offset == nil && c.Partition == nil:
		return nil, nil, nil
	case c.Offset == nil:
		return nil, nil, usageError("--partition: the --offset of the letter is missing")
	case c.Offset.partition == nil && c.Partition == nil:
		return nil, nil, usageError("--offset: the partition is missing: PARTITION:OFFSET, as dlq list names the letter")
	case c.Offset.partition == nil:
		return c.Partition, &c.Offset.offset, nil
	case c.Partition != nil && *c.Partition != *c.Offset.partition:
		return nil, nil, usageError("--partition and --offset name different partitions")
	}
	return c.Offset.partition, &c.Offset.offset, nil
}

// Run implements the command. The server does a part of the work for each request; the command goes on until nothing is left. Letters that stay are no
// error of it.
func (c *dlqReplayCommand) Run(ctx context.Context, std *console) error {
	partition, offset, err := c.place()
	if err != nil {
		return err
	}
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ReplayView], error) {
		return c.replay(ctx, client, admin.ReplayInput{Partition: partition, Offset: offset, Reason: c.Reason})
	}, replayTable)
}

// replay makes one answer of those that the server gives.
func (c *dlqReplayCommand) replay(ctx context.Context, client *admin.Client, in admin.ReplayInput) (all admin.Answer[admin.ReplayView], err error) {
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
	if len(v.Replayed)+len(v.Kept)+len(v.Closed) > 0 {
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
		row(w, fmt.Sprintf("%d:%d", l.Partition, l.Offset), "kept", shown(l.Reason), orderOf(l.OrderID), shown(l.Error))
	}
	for _, l := range v.Closed {
		row(w, fmt.Sprintf("%d:%d", l.Partition, l.Offset), "already closed at "+instant(l.At), "-", "-", "-")
	}
	_, _ = fmt.Fprintf(w, "%d %s, %d kept\n", len(v.Replayed), done, len(v.Kept))
}
