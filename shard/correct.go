package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"flashgate/internal/sale"
)

// Release gives the units of an ended order back to its user's home and removes the mark, once, whoever asks and however
// often: only a mark that names this very order goes (rule R4). After Done every gateway has been told that units came
// back, also when an earlier call had done it, whose message may not have been sent.
func (s *Stock) Release(ctx context.Context, layout Layout, c Correction) (Applied, error) {
	applied, err := s.drop(ctx, scriptRelease, layout, c)
	if applied == Done {
		s.announceCleared(ctx, layout.Item)
	}
	return applied, err
}

// Void removes the mark of an order whose units never existed, or are counted by a load (rule R5). Nothing comes back.
func (s *Stock) Void(ctx context.Context, layout Layout, c Correction) (Applied, error) {
	return s.drop(ctx, scriptVoid, layout, c)
}

func (s *Stock) drop(ctx context.Context, script *script, layout Layout, c Correction) (Applied, error) {
	err := checkLayout(layout)
	if err == nil {
		err = sale.CheckUser(c.User)
	}
	if err != nil {
		return 0, fmt.Errorf("%s order %s: %w", script.Name, c.OrderID, err)
	}
	at := place{layout.Item, sale.Home(c.User, layout.Shards)}
	k := at.keys()
	r, err := s.run(ctx, call{script, []string{k.stock, k.buyers, k.meta}, []string{
		formatInt(int64(layout.Shards)), formatInt(c.Epoch), c.User, c.OrderID.String(),
	}})
	applied, err := s.applied(r, err)
	if err != nil {
		return 0, at.wrap(script.Name+" order "+c.OrderID.String(), err)
	}
	if applied == Unreadable {
		s.cfg.Logger.Error("a correction met something unreadable", slog.String("script", script.Name),
			slog.Int64("item", at.item), slog.Int("shard", at.shard), slog.String("order", c.OrderID.String()), slog.Any("error", r.fault()))
	}
	return applied, nil
}

// applied reads the code of a correction.
func (s *Stock) applied(r reply, err error) (Applied, error) {
	if err != nil {
		return 0, err
	}
	switch r.code {
	case "OK", "KNOWN":
		return Done, nil
	case "ABSORBED":
		return Absorbed, nil
	case "NOT_LOADED":
		return NotLoaded, nil
	case "WRONG_LAYOUT":
		return WrongLayout, nil
	case "CORRUPT":
		return Unreadable, nil
	}
	if err := r.fault(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("unknown code %q", r.code)
}

// Increase adds delta units, spread evenly over the shards, once per operation id: which shard gets how many follows from
// delta and k alone, so a repetition after a partial failure asks each shard for the same again and adds where it is
// missing. epoch is the item's, read in the transaction that raised its quantity.
//
// It is Done when every shard has its units. NotLoaded, WrongLayout, Unreadable or an error may leave some shards with
// theirs; the caller repeats it until it is Done or Absorbed. After Done every gateway has been told.
func (s *Stock) Increase(ctx context.Context, layout Layout, op string, delta, epoch int64) (Applied, error) {
	what := "increase item " + formatInt(layout.Item) + " by operation " + op
	if err := checkLayout(layout); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if op == "" || delta < 0 || delta > sale.MaxQuantity {
		return 0, fmt.Errorf("%s: %d units", what, delta)
	}
	var calls []call
	var at []place
	for i := range layout.Shards {
		share := spread(delta, layout.Shards, i)
		if share == 0 {
			continue
		}
		p := place{layout.Item, i}
		k := p.keys()
		at = append(at, p)
		calls = append(calls, call{scriptIncrease, []string{k.stock, k.meta}, []string{
			formatInt(int64(layout.Shards)), formatInt(epoch), op, formatInt(share),
		}})
	}
	if len(calls) == 0 {
		return Done, nil
	}
	applied := Absorbed
	var errs []error
	for i, r := range s.runAll(ctx, calls) {
		one, err := s.applied(r.reply, r.err)
		if err != nil {
			errs = append(errs, at[i].wrap("increase", err))
			continue
		}
		applied = worse(applied, one)
	}
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if applied == Done {
		s.announceCleared(ctx, layout.Item)
	}
	return applied, nil
}

// spread is the share of one shard when units are divided as evenly as they can be: the first shards get one more.
func spread(units int64, shards, shard int) int64 {
	share := units / int64(shards)
	if int64(shard) < units%int64(shards) {
		share++
	}
	return share
}

// worse is what two shards together make of an operation: absorbed only if both are, done only if none stands in the way.
func worse(a, b Applied) Applied {
	rank := [...]int{Absorbed: 0, Done: 1, NotLoaded: 2, WrongLayout: 3, Unreadable: 4}
	if rank[b] > rank[a] {
		return b
	}
	return a
}
