package devstack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// groupPoll is how often the servers of a group are asked whether they have found each
// other. That takes them two seconds.
const groupPoll = 50 * time.Millisecond

// stopAll stops servers, whose errors it joins.
func stopAll(servers []*Redis) error {
	errs := make([]error, len(servers))
	for i, r := range servers {
		errs[i] = r.Stop()
	}
	return errors.Join(errs...)
}

// startEach starts one server for each of the ports, or none.
func startEach(ctx context.Context, ports []int, config func(i int) RedisConfig) ([]*Redis, error) {
	var started []*Redis
	for i, port := range ports {
		r, err := startRedis(ctx, config(i), port)
		if err != nil {
			return nil, errors.Join(err, stopAll(started))
		}
		started = append(started, r)
	}
	return started, nil
}

// awaitEach asks every server until it agrees.
func awaitEach(ctx context.Context, servers []*Redis, what string, agrees func(ctx context.Context, r *Redis) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(groupPoll)
	defer tick.Stop()
	for _, r := range servers {
		for {
			ok, err := agrees(ctx, r)
			if err != nil {
				return fmt.Errorf("wait until %s: %w", what, err)
			}
			if ok {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("wait until %s: %s does not agree: %w", what, r.Addr(), ctx.Err())
			case <-r.Done():
				return fmt.Errorf("wait until %s: %s has ended", what, r.Addr())
			}
		}
	}
	return nil
}

// fields asks a server for something that it answers in lines of NAME:VALUE.
func (r *Redis) fields(ctx context.Context, args ...string) (map[string]string, error) {
	answer, err := r.Do(ctx, args...)
	if err != nil {
		return nil, err
	}
	text, err := answer.ToString()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// follows reports whether a replica is in step with its master.
func follows(ctx context.Context, r *Redis) (bool, error) {
	info, err := r.fields(ctx, "INFO", "replication")
	return info["role"] == "slave" && info["master_link_status"] == "up", err
}
