package devstack

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Follow makes the server a replica of another one that lets everybody in, and returns when it
// is in step.
func (r *Redis) Follow(ctx context.Context, master *Redis) error {
	if _, err := r.Do(ctx, "REPLICAOF", "127.0.0.1", strconv.Itoa(master.port)); err != nil {
		return err
	}
	return awaitEach(ctx, []*Redis{r}, "the replica is in step", follows)
}

// CatchUp waits until a replica has everything that its master holds now.
func (r *Redis) CatchUp(ctx context.Context, master *Redis) error {
	info, err := master.fields(ctx, "INFO", "replication")
	if err != nil {
		return err
	}
	want, err := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	if err != nil {
		return fmt.Errorf("read how far %s has come: %w", master.Addr(), err)
	}
	return awaitEach(ctx, []*Redis{r}, "the replica has caught up", func(ctx context.Context, r *Redis) (bool, error) {
		if ok, err := follows(ctx, r); !ok || err != nil {
			return false, err
		}
		info, err := r.fields(ctx, "INFO", "replication")
		if err != nil {
			return false, err
		}
		have, err := strconv.ParseInt(info["slave_repl_offset"], 10, 64)
		return have >= want, err
	})
}

// CutOff makes the server a replica that hears nothing of any master: it takes no writes, and
// answers from what it has.
func (r *Redis) CutOff(ctx context.Context) error {
	_, err := r.Do(ctx, "REPLICAOF", "127.0.0.1", "1")
	return err
}

// Promote makes a replica a master, with what it has.
func (r *Redis) Promote(ctx context.Context) error {
	_, err := r.Do(ctx, "REPLICAOF", "NO", "ONE")
	return err
}

// Save writes the server's data to its snapshot. A replica that has just been fed may keep the
// child process at work for a moment, which Redis refuses to have beside a save.
func (r *Redis) Save(ctx context.Context) error {
	return awaitEach(ctx, []*Redis{r}, "the data are saved", func(ctx context.Context, r *Redis) (bool, error) {
		_, err := r.Do(ctx, "SAVE")
		if err != nil && strings.Contains(err.Error(), "already in progress") {
			return false, nil
		}
		return err == nil, err
	})
}
