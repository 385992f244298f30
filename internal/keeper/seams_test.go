package keeper

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

type ctx = context.Context

// brokenLedger is a database that can go away.
type brokenLedger struct {
	Ledger
	broken atomic.Bool
}

var errDatabase = errors.New("the database is away")

func (b *brokenLedger) breakAll() { b.broken.Store(true) }

func (b *brokenLedger) err() error {
	if b.broken.Load() {
		return errDatabase
	}
	return nil
}

func (b *brokenLedger) Catalogue(ctx ctx) ([]sale.Item, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	return b.Ledger.Catalogue(ctx)
}

func (b *brokenLedger) Lease(ctx ctx, name, holder string, ttl time.Duration) (bool, error) {
	if err := b.err(); err != nil {
		return false, err
	}
	return b.Ledger.Lease(ctx, name, holder, ttl)
}

func (b *brokenLedger) LoadWatch(ctx ctx) ([]ledger.LoadState, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	return b.Ledger.LoadWatch(ctx)
}

func (b *brokenLedger) Expire(ctx ctx, limit int) (int, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	return b.Ledger.Expire(ctx, limit)
}

func (b *brokenLedger) ClaimCorrections(ctx ctx, n int, lease time.Duration) ([]ledger.Correction, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	return b.Ledger.ClaimCorrections(ctx, n, lease)
}
