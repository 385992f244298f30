package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashgate/internal/ledger"
	"flashgate/shard"
)

// reasonServer: another server serves a shard than the one that was loaded, or the same one after a restart. It may lack the last writes, of which no
// trace is left (see shard.ShardServer).
const reasonServer = "server"

// serversEvery is how often an item is asked for its servers at most. A server needs as long for that as for telling what a shard holds.
const serversEvery = time.Second

var errServerChanged = errors.New("another server may lack the last writes")

// foreign finds the first shard that is served by another server than the one that was loaded, and says by which; -1 for none. It is asked of shards
// that look as they should. The error is about shards that did not answer.
func (w *watch) foreign(ctx context.Context, s ledger.LoadState) (at int, fault error, err error) {
	now := w.k.cfg.Now()
	if !w.servers.due(s.ItemID, now) {
		return -1, nil, nil
	}
	servers, err := w.k.loader.servers(ctx, shard.Layout{Item: s.ItemID, Shards: s.Shards})
	if err != nil {
		return -1, nil, err
	}
	for i, server := range servers {
		if server.Changed() {
			return i, fmt.Errorf("%w: it was loaded by %s and is served by %s", errServerChanged, server.Stored, server.Current), nil
		}
	}
	w.servers.worked(s.ItemID, now, true, min(serversEvery, 2*w.k.cfg.WatchEvery), 0, 0)
	return -1, nil, nil
}
