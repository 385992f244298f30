package keeper

import (
	"context"
	"errors"

	"flashgate/shard"
)

// transfers finishes what a crash left between take and settle. It gives by the epoch that the record holds (rule R13), never by the current
// one: after a load the shards refuse it, and only the record goes. Whoever else is at the same transfer, its gateway or another keeper,
// does no harm: the destination remembers the operation.
func (k *Keeper) transfers(ctx context.Context) {
	if !k.transfersTurn.mine(ctx, k.cfg.Now()) {
		return
	}
	items, cares := k.catalogue.watched()
	for _, it := range items {
		if cares[it.ID] != full || it.Epoch == 0 {
			continue
		}
		k.transfersCrew.offer(ctx, it.ID, func() {
			k.guard(ctx, "transfers", func() {
				if err := k.finishTransfers(ctx, it.ID); err != nil && ctx.Err() == nil {
					k.transfersTurn.failed.Store(true)
					if k.seldom.say([2]any{"transfers", it.ID}) {
						k.log.WarnContext(ctx, "keeper: transfers are left for later", "item", it.ID, "error", err)
					}
				}
			})
		})
	}
}

// finishTransfers finishes the transfers of an item. Units of which no record tells, or none that can be read, are lost to the sale, and count as about
// to come for ever, so that it is never sold out: then a load is due.
func (k *Keeper) finishTransfers(ctx context.Context, item int64) error {
	it, ok := k.catalogue.item(item)
	if !ok {
		return nil
	}
	finish := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 3*k.cfg.CallTimeout)
		defer cancel()
		return k.cfg.Stock.FinishTransfers(ctx, layoutOf(&it), k.cfg.TransferAge)
	}
	err := finish(ctx)
	if errors.Is(err, shard.ErrUnreadable) {
		k.watch.load(ctx, item, reasonTransfers, func(ctx context.Context) (bool, error) {
			// A transfer to a shard that the catalogue has not heard of yet is a sound one.
			if now, err := k.loader.item(ctx, item); err != nil || now.Shards != it.Shards || now.Epoch != it.Epoch {
				return false, err
			}
			fault := finish(ctx)
			if !errors.Is(fault, shard.ErrUnreadable) {
				return false, nil
			}
			if k.seldom.say([2]any{alarmStock + reasonTransfers, item}) {
				k.metrics.alarm(alarmStock+reasonTransfers, item)
				k.log.ErrorContext(ctx, "keeper: units are lost between shards, a load is due", "item", item, "fault", fault)
			}
			return true, nil
		})
	}
	return err
}
