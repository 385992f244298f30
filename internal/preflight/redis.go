package preflight

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"flashgate/shard"
)

func (f *flight) openRedis(context.Context) {
	client, err := shard.Connect(shard.ConnectConfig{URL: f.Redis, InProcess: f.InProcessRedis, ClientName: applicationName})
	if err != nil {
		f.report.add("redis", NoGo, "FLASHGATE_REDIS_URL: cannot be used: %v", err)
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
	nodes := shard.Nodes(ctx, f.redis, "server", "memory", "persistence", "replication")
	masters := 0
	for _, node := range nodes {
		switch {
		case node.Err != nil:
			f.report.add("redis "+node.Address, NoGo, "does not answer: %v", node.Err)
		case !node.Spare:
			masters++
			f.judgeServer(node)
		}
	}
	if masters == 0 {
		f.report.add("redis", NoGo, "none of %d servers is a master", len(nodes))
	}
}

func (f *flight) judgeServer(node shard.Node) {
	check, info := "redis "+node.Address, node.Info
	if fault := node.Fault(); fault != "" {
		f.report.add(check, NoGo, "%s", fault)
		return
	}
	if full := node.Full(); full != "" {
		f.report.add(check, NoGo, "%s", full)
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
