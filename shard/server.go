package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ShardServer says by which server a shard was loaded, and which one serves it now (rule R11). Either is empty where it is not
// known: an in-process Redis has no identity, and a server may not let us ask.
//
// Replication is not waited for, so a server that takes over from another may lack its last writes, and one that was restarted
// those that had not reached its disk. Neither leaves anything behind that could be counted: all keys are there, and agree with
// each other. But what a load writes into a shard moves with it, into replicas and files. So a shard that says that it was
// loaded by another server than the one which serves it has a gap in its history, or may have:
//
//   - A replica is promoted after the load: it has the load, with the name of its master in it. Without the load it has the
//     epoch or the missing stock of before, which makes a load due by itself.
//   - A replica is promoted between fence and load: with the fence, it is loaded, and its own name is written, because the
//     script asks the server that runs it. Without, it has another token, refuses the load, and the loader begins again.
//   - A server is restarted, from an append-only file, a snapshot or a backup: its process has another id.
//   - A master comes back as a replica of the one that replaced it, and is promoted again, all between two looks and without a
//     restart: it is the same process, and it would find its own name. But the history that it was promoted out of is another.
//   - A replica that is read from instead of its master is none of these. It refuses the question, because it takes no writes.
//
// Not everything that shows is a loss. A slot that moved to another node of a cluster looks the same, and so does a server that
// was promoted once and has been without replicas for so long that it forgot. A load too many is a moment of the sale. A replica
// that a master gets, its first one too, does not show.
//
//nolint:revive // "a server" alone could be any of them
type ShardServer struct{ Stored, Current string }

// Known reports whether both servers told all of who they are.
func (s ShardServer) Known() bool {
	return s.Stored != "" && s.Current != "" && !strings.Contains(s.Stored, unknownPart) && !strings.Contains(s.Current, unknownPart)
}

// Changed reports whether another server serves the shard than the one that was loaded. What is not known counts as unchanged.
func (s ShardServer) Changed() bool {
	if s.Stored == "" || s.Current == "" {
		return false
	}
	stored, current := strings.Fields(s.Stored), strings.Fields(s.Current)
	if len(stored) != len(current) {
		return true
	}
	for i := range stored {
		if stored[i] != current[i] && stored[i] != unknownPart && current[i] != unknownPart {
			return true
		}
	}
	return false
}

// unknownPart stands for a part of an identity that a server does not tell.
const unknownPart = "-"

// Servers reads of every shard of a layout by which server it was loaded and which one serves it, both in one instant. The
// error names the shards that did not answer, or whose server takes no writes; the others are good beside it.
func (s *Stock) Servers(ctx context.Context, layout Layout) ([]ShardServer, error) {
	if err := checkLayout(layout); err != nil {
		return nil, fmt.Errorf("read servers: %w", err)
	}
	calls := make([]call, layout.Shards)
	for i := range calls {
		calls[i] = call{scriptServer, []string{keysOf(layout.Item, i).meta}, nil}
	}
	servers := make([]ShardServer, layout.Shards)
	var errs []error
	for i, r := range s.runAll(ctx, calls) {
		if err := r.failure(len(r.values) == 2); err != nil {
			errs = append(errs, place{layout.Item, i}.wrap("read server", err))
			continue
		}
		servers[i] = ShardServer{Stored: r.values[0], Current: r.values[1]}
	}
	return servers, errors.Join(errs...)
}
