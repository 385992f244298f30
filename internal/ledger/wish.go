package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Wish is what somebody wants of the stock of an item that only a load can do: another number of shards, fewer units. UpdateItem writes it, and the
// next snapshot carries it out, whoever takes that. A reduction is a difference, so that units which are added in between stay added. Both
// halves are replaced one by one: whoever wants fewer units leaves another one's shards alone.
type Wish struct {
	Number    int64 // of the last change of the wish; 0: there never was one
	Refused   int64 // the last one whose reduction a snapshot found to be below what was sold
	Shards    int   // 0: as they are
	Reduction int64 // units to take away, 0: none
}

// Open reports whether a load has yet to carry something out.
func (w Wish) Open() bool { return w.Shards != 0 || w.Reduction != 0 }

// wishColumns are those of an item that fields takes.
const wishColumns = `wish, wish_refused, coalesce(wanted_shards, 0), coalesce(wanted_reduction, 0)`

func (w *Wish) fields() []any { return []any{&w.Number, &w.Refused, &w.Shards, &w.Reduction} }

// wished says of an item i that its wish is open.
const wished = `(i.wanted_shards IS NOT NULL OR i.wanted_reduction IS NOT NULL)`

// Wish reads the wish of an item, or returns a *NotFoundError.
func (db *DB) Wish(ctx context.Context, item int64) (Wish, error) {
	var w Wish
	err := db.read(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT `+wishColumns+` FROM flash_sale_item WHERE id = $1`, item).Scan(w.fields()...)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = &NotFoundError{What: "item", ID: item}
	}
	if err != nil {
		return Wish{}, fmt.Errorf("read wish of item %d: %w", item, err)
	}
	return w, nil
}
