package ledger

import (
	"context"
	"fmt"
	"time"
)

// Lease takes or renews the named lease for holder and returns whether holder has it now, for ttl from now by the clock of the database. A
// lease of somebody else is had only after it ran out; ttl 0 gives one's own back and returns false. It only saves double work: a stopped
// process may believe in its lease for too long.
func (db *DB) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	var held bool
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		tag, err := tx.Exec(ctx, `
INSERT INTO flash_sale_lease AS l (name, holder, held_until) VALUES ($1, $2, clock_timestamp() + $3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE l.holder = excluded.holder OR l.held_until <= clock_timestamp()`, name, holder, ttl)
		held = tag.RowsAffected() == 1 && ttl > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("take lease %q: %w", name, err)
	}
	return held, nil
}
