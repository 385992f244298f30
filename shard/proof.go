package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

func isLayout(err error) bool { return errors.Is(err, ErrWrongLayout) }

// Prove reads all shards twice and says whether no unit was free at an instant in between (rule R14).
//
// One reading is not enough. A reader sees shard 0 empty while a unit is on its way there; the unit arrives and its record
// goes; the reader sees the other shard empty and no record: nothing free, though a unit was there all the time. So every
// addition to a shard counts up its `adds`. When no shard gained anything between its two readings, what the first pass
// found is an upper bound for the instant between the passes: units can only have left shards since, into records or to
// buyers.
//
// A proof that is not empty is no error. Errors wrap ErrNotLoaded (also when shards are of different loads),
// ErrWrongLayout or ErrUnreadable, or say why a shard did not answer. Lost marks make no proof either, though the stock is
// known: who flags an item by a proof tells the buyers by the marks that there are, and would deny the others theirs.
func (s *Stock) Prove(ctx context.Context, layout Layout) (Proof, error) {
	if err := checkLayout(layout); err != nil {
		return Proof{}, fmt.Errorf("prove: %w", err)
	}
	proof := s.firstPass(ctx, layout)
	if err := cmp.Or(verdict(proof.shards), losses(proof.shards)); err != nil {
		s.metrics.proofs.WithLabelValues("failed").Inc()
		return Proof{}, fmt.Errorf("prove: %w", err)
	}
	if proof.Free+proof.Moving > 0 {
		s.metrics.proofs.WithLabelValues("not_empty").Inc()
		return proof, nil
	}
	proof.Empty = s.secondPass(ctx, layout, &proof)
	return proof, nil
}

// firstPass sums up what the shards hold. Its instant is the one before the reading began.
func (s *Stock) firstPass(ctx context.Context, layout Layout) Proof {
	proof := Proof{At: s.cfg.Now()}
	proof.shards = s.survey(ctx, layout)
	for _, st := range proof.shards {
		if st.err == nil {
			proof.Free += st.stock
			proof.Moving += st.moving
		}
	}
	return proof
}

// secondPass reports whether the sums of the first pass held at an instant between the two: no shard gained anything.
func (s *Stock) secondPass(ctx context.Context, layout Layout, proof *Proof) bool {
	second := s.survey(ctx, layout)
	if !sameAdds(proof.shards, second) {
		s.metrics.proofs.WithLabelValues("unproven").Inc()
		return false
	}
	s.metrics.proofs.WithLabelValues("empty").Inc()
	proof.shards = second
	return true
}

// sameAdds compares two readings. Counters start anew with every load, so they say something only together with the epoch.
func sameAdds(a, b []shardState) bool {
	for i := range a {
		if b[i].err != nil || b[i].epoch != a[i].epoch || b[i].adds != a[i].adds {
			return false
		}
	}
	return true
}

// Reprove reads all shards once and reports whether the item is as empty as proof says: nothing was added to any shard
// since. buyersChanged tells whether the set of buyers may be another one. next is the proof that holds now, to be used
// the next time, where same is true. An error means that nothing is proven.
func (s *Stock) Reprove(ctx context.Context, layout Layout, proof Proof) (same, buyersChanged bool, next Proof, err error) {
	if err := checkLayout(layout); err != nil {
		return false, false, Proof{}, fmt.Errorf("prove again: %w", err)
	}
	if !proof.Empty || len(proof.shards) != layout.Shards {
		return false, false, Proof{}, errors.New("prove again: not a proof of this layout")
	}
	next = s.firstPass(ctx, layout)
	if err := cmp.Or(verdict(next.shards), losses(next.shards)); err != nil {
		return false, false, Proof{}, fmt.Errorf("prove again: %w", err)
	}
	if next.Free+next.Moving > 0 || !sameAdds(proof.shards, next.shards) {
		return false, false, Proof{}, nil
	}
	next.Empty = true
	for i, st := range next.shards {
		buyersChanged = buyersChanged || st.bver != proof.shards[i].bver
	}
	return true, buyersChanged, next, nil
}
