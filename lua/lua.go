// Package lua holds the scripts that run inside Redis, one file each. A file's header says its KEYS, its ARGV, what it
// returns, and whether it may be run twice; package shard is their only caller.
//
// The scripts run unchanged on Redis 7 and on the in-process miniredis, whose Lua is another implementation: they use no
// library beyond string, table and math, read numbers by pattern and never hand more than some thousand values to unpack.
package lua

import _ "embed"

//go:embed prelude.lua
var prelude string

//go:embed marks.lua
var marks string

//go:embed drop.lua
var drop string

//go:embed identity.lua
var identity string

var (
	//go:embed reserve.lua
	reserve string
	//go:embed ack.lua
	ack string
	//go:embed state.lua
	state string
	//go:embed release.lua
	release string
	//go:embed void.lua
	void string
	//go:embed increase.lua
	increase string
	//go:embed take.lua
	take string
	//go:embed give.lua
	give string
	//go:embed settle.lua
	settle string
	//go:embed transfers.lua
	transfers string
	//go:embed fence.lua
	fence string
	//go:embed load.lua
	load string
	//go:embed mark.lua
	mark string
	//go:embed buyers.lua
	buyers string
	//go:embed outbox.lua
	outbox string
	//go:embed readback.lua
	readBack string
	//go:embed server.lua
	server string
)

// Script is a script as it is sent to Redis: the shared functions, then the file.
type Script struct {
	Name   string // of its file, without the extension
	Source string
	// Repeatable says that a call which may have run can simply be sent again.
	Repeatable bool
}

// The scripts.
var (
	Reserve   = Script{"reserve", prelude + marks + reserve, false}
	Ack       = Script{"ack", prelude + ack, true}
	State     = Script{"state", prelude + marks + state, true}
	Release   = Script{"release", prelude + marks + drop + release, true}
	Void      = Script{"void", prelude + marks + drop + void, true}
	Increase  = Script{"increase", prelude + increase, true}
	Take      = Script{"take", prelude + take, false}
	Give      = Script{"give", prelude + give, true}
	Settle    = Script{"settle", prelude + settle, true}
	Transfers = Script{"transfers", prelude + transfers, true}
	Fence     = Script{"fence", prelude + fence, true}
	Load      = Script{"load", prelude + identity + load, true}
	Mark      = Script{"mark", prelude + marks + mark, true}
	Buyers    = Script{"buyers", prelude + marks + buyers, true}
	Outbox    = Script{"outbox", prelude + outbox, true}
	ReadBack  = Script{"readback", prelude + marks + readBack, true}
	Server    = Script{"server", prelude + identity + server, true}
)

// All returns every script.
func All() []Script {
	return []Script{Reserve, Ack, State, Release, Void, Increase, Take, Give, Settle, Transfers, Fence, Load, Mark, Buyers, Outbox, ReadBack, Server}
}
