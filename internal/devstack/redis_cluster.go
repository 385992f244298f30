package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// redisSlots is how many hash slots a cluster has.
const redisSlots = 16384

// RedisClusterConfig says how a private Redis Cluster is made.
type RedisClusterConfig struct {
	// Masters share the slots evenly. Default 3, the fewest that agree on anything.
	Masters int
	// Replicas of each master. Default none.
	Replicas int
	// Access says who gets in. Default: everybody.
	Access RedisAccess
	// Args are further options of every redis-server.
	Args []string
}

// WithDefaults returns c with its unset fields filled in.
func (c RedisClusterConfig) WithDefaults() RedisClusterConfig {
	if c.Masters == 0 {
		c.Masters = 3
	}
	c.Access = c.Access.withInner()
	return c
}

// RedisCluster is a Redis Cluster of real servers, each of which can be stopped, killed
// and restarted by itself.
type RedisCluster struct {
	cfg   RedisClusterConfig
	nodes []*Redis
}

// StartRedisCluster starts the servers and returns when all of them serve all slots, and
// the replicas are in step. That takes two seconds, which masters of a new cluster insist
// on.
func StartRedisCluster(ctx context.Context, cfg RedisClusterConfig) (*RedisCluster, error) {
	c := &RedisCluster{cfg: cfg.WithDefaults()}
	n := c.cfg.Masters * (1 + c.cfg.Replicas)
	err := onFreePorts(2*n, func(ports []int) (err error) {
		c.nodes, err = startEach(ctx, ports[:n], func(i int) RedisConfig {
			return RedisConfig{Access: c.cfg.Access, Args: c.args(ports[n+i])}
		})
		return err
	})
	if err == nil {
		if err = c.form(ctx); err != nil {
			err = errors.Join(err, c.Stop())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start a Redis Cluster: %w", err)
	}
	return c, nil
}

func (c *RedisCluster) args(busPort int) []string {
	args := []string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--cluster-port", strconv.Itoa(busPort), "--cluster-announce-ip", "127.0.0.1", "--repl-diskless-sync-delay", "0",
	}
	if c.cfg.Access.Authority != nil {
		args = append(args, "--tls-cluster", "yes")
	}
	return append(args, c.cfg.Args...)
}

// form makes a cluster of the nodes. Configuration epochs are given out beforehand: nodes
// that meet with equal ones sort that out one after another.
func (c *RedisCluster) form(ctx context.Context) error {
	masters := c.nodes[:c.cfg.Masters]
	for i, node := range c.nodes {
		if _, err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i < len(masters) {
			first, next := i*redisSlots/len(masters), (i+1)*redisSlots/len(masters)
			if _, err := node.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(next-1)); err != nil {
				return err
			}
		}
		if i > 0 {
			if err := c.nodes[0].meet(ctx, node); err != nil {
				return err
			}
		}
	}
	err := awaitEach(ctx, c.nodes, "the nodes know each other", func(ctx context.Context, r *Redis) (bool, error) {
		info, err := r.fields(ctx, "CLUSTER", "INFO")
		return info["cluster_known_nodes"] == strconv.Itoa(len(c.nodes)), err
	})
	if err != nil {
		return err
	}
	if err := c.attachReplicas(ctx); err != nil {
		return err
	}
	return awaitEach(ctx, c.nodes, "the cluster serves all slots", c.whole)
}

// whole reports whether a node sees every slot served, and every replica as what it is:
// until then nobody would vote for one of these.
func (c *RedisCluster) whole(ctx context.Context, r *Redis) (bool, error) {
	info, err := r.fields(ctx, "CLUSTER", "INFO")
	if err != nil || info["cluster_state"] != "ok" || info["cluster_slots_ok"] != strconv.Itoa(redisSlots) {
		return false, err
	}
	answer, err := r.Do(ctx, "CLUSTER", "NODES")
	if err != nil {
		return false, err
	}
	nodes, err := answer.ToString()
	return strings.Count(nodes, "slave") == len(c.nodes)-c.cfg.Masters, err
}

// meet introduces another node, by the ports that it says itself.
func (r *Redis) meet(ctx context.Context, other *Redis) error {
	answer, err := other.Do(ctx, "CONFIG", "GET", "cluster-port")
	if err != nil {
		return err
	}
	config, err := answer.AsStrMap()
	if err != nil {
		return err
	}
	_, err = r.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), config["cluster-port"])
	return err
}

func (c *RedisCluster) attachReplicas(ctx context.Context) error {
	replicas := c.nodes[c.cfg.Masters:]
	for i, r := range replicas {
		answer, err := c.nodes[i%c.cfg.Masters].Do(ctx, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		id, err := answer.ToString()
		if err != nil {
			return err
		}
		if _, err := r.Do(ctx, "CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
	}
	return awaitEach(ctx, replicas, "the replicas are in step", follows)
}

// Nodes are the servers, those that were started as masters first. The replica of master i
// is i plus the number of masters, and so on.
func (c *RedisCluster) Nodes() []*Redis { return c.nodes }

// URL names one node and, in addr=, a second one; clients find the others by themselves.
func (c *RedisCluster) URL() string {
	u := c.cfg.Access.url(c.nodes[0].Addr())
	if len(c.nodes) > 1 {
		u.RawQuery = url.Values{"addr": {c.nodes[1].Addr()}}.Encode()
	}
	return u.String()
}

// Stop stops every server.
func (c *RedisCluster) Stop() error { return stopAll(c.nodes) }
