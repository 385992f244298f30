package devstack

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Master is the node that the Sentinels have told clients of, even while it is dead.
func (s *RedisSentinel) Master(ctx context.Context) (*Redis, error) {
	answer, err := s.sentinels[0].Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.cfg.MasterSet)
	if err != nil {
		return nil, err
	}
	place, err := answer.AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("read who the master is: %w", err)
	}
	addr := net.JoinHostPort(place[0], place[1])
	for _, r := range s.nodes {
		if r.Addr() == addr {
			return r, nil
		}
	}
	return nil, fmt.Errorf("the master is at %s, where we have no server", addr)
}

// AwaitWhole waits until all nodes are there, and all but the master are replicas of it that
// are in step.
func (s *RedisSentinel) AwaitWhole(ctx context.Context) error {
	return awaitEach(ctx, s.nodes, "all follow the master", func(ctx context.Context, r *Redis) (bool, error) {
		master, err := s.Master(ctx)
		if err != nil || r == master {
			return err == nil, err
		}
		// Who is demoted breaks the connections of all his clients, ours among them: he is asked again.
		info, err := r.fields(ctx, "INFO", "replication")
		return err == nil && info["role"] == "slave" && info["master_link_status"] == "up" && info["master_port"] == strconv.Itoa(master.port), nil
	})
}

// DemoteAfter says for how long the Sentinels watch a server that takes itself for the master
// and is not, before they make it a replica: one that was replaced and is back. It is 8 s
// otherwise, and 10 s more until they ask it what it is.
func (s *RedisSentinel) DemoteAfter(ctx context.Context, d time.Duration) error {
	// They wait for four of their greetings, in which they would hear of a newer master.
	greetings := strconv.FormatInt(d.Milliseconds()/4, 10)
	questions := strconv.FormatInt(min(d, 10*time.Second).Milliseconds(), 10)
	for _, sentinel := range s.sentinels {
		if _, err := sentinel.Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", greetings, "INFO-PERIOD", questions); err != nil {
			return err
		}
	}
	return nil
}
