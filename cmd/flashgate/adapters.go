package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"flashgate/gateway"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/limiter"
	"flashgate/shard"
)

// This file lets the parts speak to each other: gateway declares what it needs, shard, ledger and limiter have it.

var (
	_ gateway.Seller  = stockPorts{}
	_ gateway.Zero    = stockPorts{}
	_ gateway.Marks   = stockPorts{}
	_ gateway.Notices = stockPorts{}
	_ gateway.Orders  = ledgerPorts{}
	_ gateway.Source  = ledgerPorts{}
	_ gateway.Limits  = (*limits)(nil)
)

// stockPorts shows a shard.Stock to the gateway.
type stockPorts struct{ *shard.Stock }

func layoutOf(item *sale.Item) shard.Layout { return shard.Layout{Item: item.ID, Shards: item.Shards} }

func (s stockPorts) Reserve(ctx context.Context, item *sale.Item, request sale.Request) sale.Result {
	return s.Stock.Reserve(ctx, layoutOf(item), request)
}

// proof is a shard.Proof as the gateway knows one.
type proof struct{ shard.Proof }

func (p proof) Empty() bool   { return p.Proof.Empty }
func (p proof) At() time.Time { return p.Proof.At }

func (s stockPorts) Prove(ctx context.Context, item *sale.Item) (gateway.Proof, error) {
	p, err := s.Stock.Prove(ctx, layoutOf(item))
	if errors.Is(err, shard.ErrNotLoaded) {
		return proof{}, nil // unknown stock is not empty; it is no failure of the proof either
	}
	if err != nil {
		return nil, err
	}
	return proof{p}, nil
}

func (s stockPorts) Reprove(ctx context.Context, item *sale.Item, last gateway.Proof) (gateway.Reproof, error) {
	same, changed, next, err := s.Stock.Reprove(ctx, layoutOf(item), last.(proof).Proof)
	if err != nil || !same {
		return gateway.Reproof{}, err
	}
	return gateway.Reproof{Same: true, BuyersChanged: changed, Next: proof{next}}, nil
}

func (s stockPorts) Buyers(ctx context.Context, item *sale.Item, yield func(user string)) (int64, error) {
	users, epoch, err := s.Stock.Buyers(ctx, layoutOf(item))
	if errors.Is(err, shard.ErrNotLoaded) || errors.Is(err, shard.ErrWrongLayout) {
		err = errors.Join(gateway.ErrUnknownStock, err)
	}
	for _, user := range users {
		yield(user)
	}
	return epoch, err
}

func (s stockPorts) Mark(ctx context.Context, item *sale.Item, user string) (sale.Mark, bool, error) {
	mark, ok, err := s.Stock.Mark(ctx, layoutOf(item), user)
	if errors.Is(err, shard.ErrWrongLayout) {
		err = errors.Join(gateway.ErrWrongLayout, err)
	}
	return mark, ok, err
}

func (s stockPorts) Announce(ctx context.Context, notice gateway.Notice) error {
	kind := shard.Clear
	if notice.Flagged {
		kind = shard.Flagged
	}
	return s.Stock.Announce(ctx, shard.Message{Kind: kind, Item: notice.Item})
}

func (s stockPorts) Subscribe(ctx context.Context, heard func(gateway.Notice)) error {
	return s.Stock.Subscribe(ctx, func(m shard.Message) {
		heard(gateway.Notice{Item: m.Item, Flagged: m.Kind == shard.Flagged})
	})
}

// ledgerPorts shows a ledger.DB to the gateway.
type ledgerPorts struct{ *ledger.DB }

var cancellations = map[ledger.CancelOutcome]gateway.Cancellation{
	ledger.CancelDone: gateway.Cancelled, ledger.CancelRefused: gateway.NotCancellable, ledger.CancelNotFound: gateway.CancelMissing,
}

func (l ledgerPorts) Cancel(ctx context.Context, id sale.OrderID, user string) (sale.Order, gateway.Cancellation, error) {
	order, outcome, err := l.DB.Cancel(ctx, id, user)
	return order, cancellations[outcome], err
}

func (l ledgerPorts) CancelUnwritten(ctx context.Context, event sale.Event) (sale.Order, gateway.Cancellation, error) {
	order, outcome, err := l.DB.CancelUnwritten(ctx, event)
	return order, cancellations[outcome], err
}

func (l ledgerPorts) Watch(ctx context.Context, changed func()) error {
	l.Listen(ctx, func(topic string) {
		if topic == ledger.TopicCatalogue || topic == "" {
			changed()
		}
	})
	return ctx.Err()
}

// limits are the token buckets of one process.
type limits struct {
	keyer     limiter.Keyer
	addresses *limiter.Table[netip.Addr]
	purchases *limiter.Table[limiter.Key]
	reads     *limiter.Table[limiter.Key]
	looks     *limiter.Table[limiter.Key] // of an address and a user together; no bucket of another table knows of them
}

func newLimits(user, address, read limiter.Rate) (*limits, error) {
	l := &limits{keyer: limiter.NewKeyer()}
	var err error
	if l.addresses, err = limiter.New[netip.Addr](limiter.Config{Rate: address}); err != nil {
		return nil, err
	}
	if l.purchases, err = limiter.New[limiter.Key](limiter.Config{Rate: user}); err != nil {
		return nil, err
	}
	if l.reads, err = limiter.New[limiter.Key](limiter.Config{Rate: read}); err != nil {
		return nil, err
	}
	l.looks, err = limiter.New[limiter.Key](limiter.Config{Rate: address})
	return l, err
}

func (l *limits) PurchaseAddr(addr netip.Addr) (bool, time.Duration) {
	return l.addresses.Allow(limiter.BucketKey(addr))
}

func (l *limits) LookAddr(addr netip.Addr, user uint64) bool {
	from := limiter.BucketKey(addr).As16()
	var who [8]byte
	binary.LittleEndian.PutUint64(who[:], user)
	ok, _ := l.looks.Allow(l.keyer.Key(from[:], who[:]))
	return ok
}

func (l *limits) PurchaseUser(user string) (bool, time.Duration) {
	return l.purchases.Allow(l.keyer.Key([]byte(user)))
}

func (l *limits) ReadUser(user string) (bool, time.Duration) {
	return l.reads.Allow(l.keyer.Key([]byte(user)))
}
