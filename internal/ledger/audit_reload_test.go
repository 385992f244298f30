package ledger

import (
	"encoding/json"
	"errors"
	"testing"
)

// epochs reads the epochs before and after a load from its audit row; nil where the row has none.
func (l *lab) epochs(item int64) (rows int, before, after *int64) {
	l.tb.Helper()
	entries, err := l.Audit(l.tb.Context(), AuditFilter{Subject: SubjectItem(item), Limit: 10})
	if err != nil {
		l.tb.Fatal(err)
	}
	for _, e := range entries {
		if e.What != "item.reload" {
			continue
		}
		rows++
		for _, side := range []struct {
			row   json.RawMessage
			epoch **int64
		}{{e.Before, &before}, {e.After, &after}} {
			var item struct {
				Epoch *int64
				Lease *string `json:"lease_until"`
			}
			if side.row == nil {
				continue
			}
			if err := json.Unmarshal(side.row, &item); err != nil || item.Lease != nil {
				l.tb.Fatalf("%s, %v", side.row, err)
			}
			*side.epoch = item.Epoch
		}
	}
	return rows, before, after
}

func TestAReloadHasOneAuditRow(t *testing.T) {
	l := newLab(t)
	item, other := l.item(5), l.item(5)
	change, err := l.BeginReload(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	if rows, before, after := l.epochs(item); rows != 1 || before == nil || after != nil {
		t.Errorf("while it is loaded: %d rows, epoch %v → %v", rows, before, after)
	}
	_, was, _ := l.epochs(item)
	token, ok, err := l.ClaimLoad(t.Context(), item, 0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, ok, err := l.Snapshot(t.Context(), item, token); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := l.EndReload(t.Context(), item, change); err != nil {
		t.Fatal(err)
	}
	if rows, before, after := l.epochs(item); rows != 1 || *before != *was || after == nil || *after != token {
		t.Errorf("after the load: %d rows, epoch %v → %v, want %d → %d", rows, before, after, *was, token)
	}
	// The row is that of one load: what comes later does not change it.
	next, _, err := l.ClaimLoad(t.Context(), item, 0)
	if err == nil {
		_, _, err = l.Snapshot(t.Context(), item, next)
	}
	if err == nil {
		err = l.EndReload(t.Context(), item, change)
	}
	if _, _, after := l.epochs(item); err != nil || *after != token {
		t.Errorf("after another load: epoch %d, want %d; %v", *after, token, err)
	}
	if rows, _, _ := l.epochs(other); rows != 0 {
		t.Errorf("another item has %d rows", rows)
	}
	var missing *NotFoundError
	if _, err := l.BeginReload(t.Context(), 1<<40); !errors.As(err, &missing) {
		t.Errorf("no item: %v", err)
	}
}
