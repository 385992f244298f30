package shard

import "strconv"

// channel is the pub/sub channel of messages about items.
const channel = "flashgate:items"

// keys are the names of everything that one shard of an item holds. All have the hash tag {item:N:S}, so that a cluster
// keeps them in one slot and one script may touch them all. Item and shard are numbers: nothing in a name needs escaping.
type keys struct {
	stock   string // free units, decimal; absent = unknown
	buyers  string // hash: user → mark
	pending string // hash: batch id → outbox entry
	meta    string // hash: k, epoch, token, counters, applied operations, transfers
}

func keysOf(item int64, shard int) keys {
	tag := "{item:" + strconv.FormatInt(item, 10) + ":" + strconv.Itoa(shard) + "}:"
	return keys{stock: tag + "stock", buyers: tag + "buyers", pending: tag + "pending", meta: tag + "meta"}
}

func (k keys) all() []string { return []string{k.stock, k.buyers, k.pending, k.meta} }
