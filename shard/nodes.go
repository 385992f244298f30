package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// Node is what a server says about itself.
type Node struct {
	Address string
	// Info is INFO by its names. What the server leaves out, or does not let us ask, is missing.
	Info map[string]string
	Err  error // why it did not answer
	// Spare: a replica beside its master, which takes over from it.
	Spare bool
}

// Fault says why a server that is no spare must not keep stock: it takes no writes, or it throws keys away when its memory is
// full. Empty for one that may, and for what is not known.
func (n Node) Fault() string {
	if n.Info["role"] == "slave" {
		return "is a replica: it takes no writes"
	}
	if policy, known := n.Info["maxmemory_policy"]; known && policy != "noeviction" {
		return fmt.Sprintf("evicts keys (maxmemory-policy %s): stock would vanish; set noeviction", policy)
	}
	return ""
}

// Full says that a server has no memory left: it takes nothing new until somebody gives it more. Empty for one that has, and for what is not known.
func (n Node) Full() string {
	limit, _ := strconv.ParseInt(n.Info["maxmemory"], 10, 64)
	used, _ := strconv.ParseInt(n.Info["used_memory"], 10, 64)
	if limit <= 0 || used < limit {
		return ""
	}
	return fmt.Sprintf("is full: %d of %d bytes are used (maxmemory), and it takes nothing new", used, limit)
}

// Nodes asks every server that a client knows for a sign of life and for sections of INFO, all at once, and returns them by
// address. It returns by the end of ctx, however silent they are. Of a cluster these are the masters that serve slots and their
// replicas, which are spare; of a group with Sentinels the master.
func Nodes(ctx context.Context, client rueidis.Client, sections ...string) []Node {
	known := client.Nodes()
	nodes := make([]Node, 0, len(known))
	for _, address := range slices.Sorted(maps.Keys(known)) {
		nodes = append(nodes, Node{Address: address})
	}
	type answer struct {
		at   int
		info map[string]string
		err  error
	}
	answers := make(chan answer, len(nodes))
	for i, n := range nodes {
		go func() {
			info, err := serverInfo(ctx, known[n.Address], sections)
			answers <- answer{i, info, err}
		}()
	}
	asked := make([]bool, len(nodes))
	for range nodes {
		select {
		case a := <-answers:
			n := &nodes[a.at]
			asked[a.at], n.Info, n.Err = true, a.info, a.err
			n.Spare = client.Mode() == rueidis.ClientModeCluster && a.info["role"] == "slave"
		case <-ctx.Done(): // the client can wait past it
		}
	}
	for i := range nodes {
		if !asked[i] {
			nodes[i].Err = ctx.Err()
		}
	}
	return nodes
}

// serverInfo reads sections of INFO as names and values. A server that does not know a section, or refuses it, leaves it out.
func serverInfo(ctx context.Context, node rueidis.Client, sections []string) (map[string]string, error) {
	commands := []rueidis.Completed{node.B().Ping().Build()}
	for _, section := range sections {
		commands = append(commands, node.B().Info().Section(section).Build())
	}
	answers := node.DoMulti(ctx, commands...)
	// Who may not ask, or asks while the data is being read, is refused here as well.
	if err := answers[0].Error(); err != nil {
		return nil, err
	}
	info := make(map[string]string)
	for _, answer := range answers[1:] {
		text, err := answer.ToString()
		if _, refused := rueidis.IsRedisErr(err); refused {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[name] = value
			}
		}
	}
	return info, nil
}

// Health reports whether Redis answers, and whether its servers may keep stock. The error names those that may not, and says
// why. One server of a cluster that is silent is no fault: the shards of the others go on selling.
func (s *Stock) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	answered := false
	var faults, silent []error
	for _, n := range Nodes(ctx, s.cfg.Client, "replication", "memory") {
		switch {
		case n.Err != nil:
			silent = append(silent, fmt.Errorf("Redis %s does not answer: %w", n.Address, n.Err)) //nolint:staticcheck // ST1005: a name
		case n.Spare:
		default:
			answered = true
			if fault := n.Fault(); fault != "" {
				faults = append(faults, fmt.Errorf("Redis %s %s", n.Address, fault)) //nolint:staticcheck // ST1005: a name
			}
		}
	}
	switch {
	case len(faults) > 0:
		return errors.Join(faults...)
	case answered:
		return nil
	case len(silent) > 0:
		return errors.Join(silent...)
	}
	return errors.New("no server of Redis is a master")
}

// Room reports which servers that keep stock have no memory left: their shards refuse to sell, and to be loaded. Who is silent is not asked: that is for
// Health to say.
func (s *Stock) Room(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	var full []error
	for _, n := range Nodes(ctx, s.cfg.Client, "replication", "memory") {
		if fault := n.Full(); n.Err == nil && !n.Spare && fault != "" {
			full = append(full, fmt.Errorf("Redis %s %s", n.Address, fault)) //nolint:staticcheck // ST1005: a name
		}
	}
	return errors.Join(full...)
}
