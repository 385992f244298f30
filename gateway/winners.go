package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
	"flashgate/internal/token"
)

// winnerSet is a compact set of users: the sorted 64-bit hashes of their ids, 8 bytes each. Two users may share a hash, which makes one of them look
// like a winner until somebody looks closer; nothing else is ever decided by it. Immutable.
//
// A nil set is one that is not known: everybody may be in it.
type winnerSet struct{ hashes []uint64 }

// noWinners is the set of nobody.
var noWinners = &winnerSet{}

// has reports whether a user with this hash may be in the set. It does not allocate.
func (w *winnerSet) has(hash uint64) bool {
	if w == nil {
		return true
	}
	_, found := slices.BinarySearch(w.hashes, hash)
	return found
}

// empty reports whether certainly nobody is in the set.
func (w *winnerSet) empty() bool { return w != nil && len(w.hashes) == 0 }

// fetchWinners reads the buyers of an item, and the epoch whose marks they have.
func (g *Gateway) fetchWinners(ctx context.Context, item *sale.Item) (*winnerSet, int64, error) {
	var hashes []uint64
	epoch, err := g.ports.Zero.Buyers(ctx, item, func(user string) { hashes = append(hashes, sale.HashUser(user)) })
	if err != nil {
		return nil, 0, fmt.Errorf("fetch buyers of item %d: %w", item.ID, err)
	}
	slices.Sort(hashes)
	return &winnerSet{hashes: slices.Clip(slices.Compact(hashes))}, epoch, nil
}

// claim is a token that was not verified, and the hash of the user that it claims to be of.
type claim struct {
	token []byte // bytes of the request
	user  uint64
}

// mayHaveWon reports whether the request claims to come from somebody in the set, and returns the claim. It decides nothing but to look
// closer. Without a closer look the request costs no allocation.
func (g *Gateway) mayHaveWon(ctx *fasthttp.RequestCtx, winners *winnerSet) (claim, bool) {
	if winners.empty() {
		return claim{}, false
	}
	raw, ok := bearer(ctx)
	if !ok {
		return claim{}, false
	}
	var buf [peekBuffer]byte
	sub, ok := token.PeekSubject(raw, buf[:])
	user := sale.HashUser(sub)
	return claim{raw, user}, ok && winners.has(user)
}

// peekBuffer holds the payload of any usual token, which is a few hundred bytes; a longer one costs an allocation.
const peekBuffer = 2 << 10
