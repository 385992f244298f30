package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// LetterPlace is where a dead letter is: its partition and its offset in the dead-letter topic.
type LetterPlace struct {
	Partition int32
	Offset    int64
}

// subjectLetters is the subject of changes to dead letters, which have none of their own.
const subjectLetters = "dlq"

// ClosedLetters returns the dead letters of a topic that are done with: for each partition their offsets, in rising order.
func (db *DB) ClosedLetters(ctx context.Context, topic uuid.UUID) (map[int32][]int64, error) {
	var closed map[int32][]int64
	err := db.read(ctx, func(ctx context.Context) error {
		closed = make(map[int32][]int64)
		rows, _ := db.pool.Query(ctx, `SELECT partition, position FROM flash_sale_dead_letter WHERE topic_id = $1 ORDER BY partition, position`, [16]byte(topic))
		var partition int32
		var position int64
		_, err := pgx.ForEachRow(rows, []any{&partition, &position}, func() error {
			closed[partition] = append(closed[partition], position)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read which dead letters are closed: %w", err)
	}
	return closed, nil
}

// LetterClosedAt returns when a dead letter was closed, by the clock of the database; false where it is open.
func (db *DB) LetterClosedAt(ctx context.Context, topic uuid.UUID, letter LetterPlace) (at time.Time, ok bool, err error) {
	err = db.read(ctx, func(ctx context.Context) error {
		ok = false
		err := db.pool.QueryRow(ctx, `SELECT closed_at FROM flash_sale_dead_letter WHERE topic_id = $1 AND partition = $2 AND position = $3`,
			[16]byte(topic), letter.Partition, letter.Offset).Scan(&at)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		ok = err == nil
		return err
	})
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read when a dead letter was closed: %w", err)
	}
	return at, ok, nil
}

// CloseLetters notes that dead letters of a topic were put back into the orders topic, with one row in the audit table that names them and says what was
// asked for. Letters that are closed already stay so. It forgets those in front of starts: for each partition, the offset in front of which the brokers
// have deleted everything. It may be repeated after any error.
func (db *DB) CloseLetters(ctx context.Context, topic uuid.UUID, letters []LetterPlace, asked json.RawMessage, starts map[int32]int64) error {
	change := uuid.New()
	names := make([]string, len(letters))
	at := columns{}
	for i, l := range letters {
		names[i] = fmt.Sprintf("%d:%d", l.Partition, l.Offset)
		at.add(l.Partition, l.Offset)
	}
	row, err := json.Marshal(struct {
		Asked   json.RawMessage `json:"asked"`
		Count   int             `json:"count"`
		Letters []string        `json:"letters"`
	}{asked, len(letters), names})
	if err != nil {
		return fmt.Errorf("close dead letters: %w", err)
	}
	from := columns{}
	for partition, start := range starts {
		from.add(partition, start)
	}
	err = db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		// No lock: whoever closes the same letters, this call's earlier attempt too, is waited for at their keys, which all take in the same order.
		_, err := tx.Exec(ctx, `
INSERT INTO flash_sale_dead_letter (topic_id, partition, position)
SELECT $1, l.partition, l.position FROM unnest($2::int[], $3::bigint[]) AS l (partition, position) ORDER BY 2, 3
ON CONFLICT DO NOTHING`, [16]byte(topic), at.partitions, at.offsets)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
DELETE FROM flash_sale_dead_letter d USING unnest($2::int[], $3::bigint[]) AS s (partition, start)
WHERE d.topic_id = $1 AND d.partition = s.partition AND d.position < s.start`, [16]byte(topic), from.partitions, from.offsets)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
INSERT INTO flash_sale_audit (change_id, what, subject, after) VALUES ($1, $2, $3, $4)
ON CONFLICT (change_id) DO NOTHING`, [16]byte(change), changeReplay, subjectLetters, row)
		return err
	})
	if err != nil {
		return fmt.Errorf("close %d dead letters: %w", len(letters), err)
	}
	return nil
}

// columns are places as the database takes them.
type columns struct {
	partitions []int32
	offsets    []int64
}

func (c *columns) add(partition int32, offset int64) {
	c.partitions, c.offsets = append(c.partitions, partition), append(c.offsets, offset)
}
