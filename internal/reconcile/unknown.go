package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// Why a drift is unknown although every shard was read well.
const (
	whyMoving  = "so much moves that the readings do not agree; ask again"
	whyTooFew  = "there was one reading alone, which proves nothing: the item was loaded a moment ago, or time ran out; ask again"
	whyLoading = "the item is being loaded; ask again when that is done"
)

// unsettledBecause says why nothing can be made of a reading. fault is what Redis had to say, which was asked for as long as timeout.
func (r *reading) unsettledBecause(before *sale.Item, books *ledger.Books, fault error, timeout time.Duration) string {
	it := &books.Item
	switch {
	case errors.Is(fault, context.DeadlineExceeded):
		return fmt.Sprintf("Redis, or a server of it, has not answered within %s", timeout)
	case fault != nil:
		return "Redis: " + r.told(fault)
	case books.Leased || it.Claim != it.Epoch || before.Claim != it.Claim || before.Epoch != it.Epoch || before.Shards != it.Shards:
		return whyLoading
	}
	for n, s := range r.shards {
		switch {
		case s.Fault != nil:
			return fmt.Sprintf("shard %d: %v", n, s.Fault)
		case !s.Loaded || s.Stock == nil:
			return fmt.Sprintf("the stock of shard %d is not loaded", n)
		case s.Epoch != it.Epoch || s.K != int64(it.Shards):
			return fmt.Sprintf("shard %d is of another load than the item", n)
		case !s.Whole:
			return fmt.Sprintf("shard %d changes too fast to be read at one instant; ask again", n)
		}
	}
	return "its numbers cannot be read"
}

// told is what went wrong first, and with how many shards: mostly it is the same with all of them.
func (r *reading) told(fault error) string {
	text, _, _ := strings.Cut(fault.Error(), "\n")
	more := -1
	for _, s := range r.shards {
		if !s.Whole {
			more++
		}
	}
	if more > 0 {
		text = strings.TrimSuffix(text, ".") + fmt.Sprintf("; and %d more of %d shards", more, len(r.shards))
	}
	return text
}
