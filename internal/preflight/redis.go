package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"flashgate/shard"
)

func (f *flight) openRedis(context.Context) {
	client, err := shard.Connect(shard.ConnectConfig{URL: f.Redis, InProcess: f.InProcessRedis, ClientName: applicationName})
	if err != nil {
		f.report.add("redis", NoGo, "does not answer: %v", err)
		return
	}
	f.redis = client
	f.stock, err = shard.New(shard.Config{Client: client, Publisher: nobody{}, Logger: f.Logger, CallTimeout: f.Timeout, RecordDeadline: f.Timeout})
	if err != nil {
		f.report.add("redis", NoGo, "%v", err)
	}
}

// redisServers looks at every server that keeps stock: one, or each master of a cluster.
func (f *flight) redisServers(ctx context.Context) {
	if f.redis == nil {
		return
	}
	nodes := f.redis.Nodes()
	masters := 0
	for _, address := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[address]
		info, err := serverInfo(ctx, node)
		if err != nil {
			f.report.add("redis "+address, NoGo, "does not answer: %v", err)
			continue
		}
		replica := info["role"] == "slave"
		if replica && len(nodes) > 1 {
			continue // of a cluster: its master is looked at
		}
		masters++
		f.judgeServer(address, info, replica)
	}
	if masters == 0 {
		f.report.add("redis", NoGo, "none of %d servers is a master", len(nodes))
	}
}

func (f *flight) judgeServer(address string, info map[string]string, replica bool) {
	check := "redis " + address
	if replica {
		f.report.add(check, NoGo, "is a replica: it takes no writes")
		return
	}
	if policy, known := info["maxmemory_policy"]; known && policy != "noeviction" {
		f.report.add(check, NoGo, "evicts keys (maxmemory-policy %s): stock would vanish; set noeviction", policy)
		return
	}
	limit, _ := strconv.ParseInt(info["maxmemory"], 10, 64)
	used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
	var remarks []string
	verdict := Go
	if limit > 0 && used > limit/2 {
		verdict = Caution
		remarks = append(remarks, fmt.Sprintf("%d of %d bytes of memory are used", used, limit))
	}
	if info["loading"] == "1" {
		verdict = NoGo
		remarks = append(remarks, "is still reading its data")
	}
	if info["connected_slaves"] == "0" && info["aof_enabled"] == "0" {
		// What a crash loses is loaded again from the database, but a 202 that was answered without the broker is lost with it.
		verdict = worse(verdict, Caution)
		remarks = append(remarks, "has no replica and no append-only file: after a crash its shards are loaded anew, and shoppers wait for that")
	}
	if len(remarks) == 0 {
		remarks = append(remarks, "master, noeviction")
	}
	version := info["redis_version"]
	if version == "" {
		version = "unknown" // an in-process one has none
	}
	f.report.add(check, verdict, "version %s: %s", version, strings.Join(remarks, "; "))
}

func worse(a, b Verdict) Verdict {
	if a == NoGo || b == Go {
		return a
	}
	return b
}

// serverInfo reads INFO as its names and values. A server that does not know a section leaves it out.
func serverInfo(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	info := make(map[string]string)
	for _, section := range []string{"server", "memory", "persistence", "replication"} {
		text, err := node.Do(ctx, node.B().Info().Section(section).Build()).ToString()
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
