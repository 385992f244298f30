package ledger

import (
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
)

func (l *lab) closed(topic uuid.UUID) map[int32][]int64 {
	l.tb.Helper()
	closed, err := l.ClosedLetters(l.tb.Context(), topic)
	if err != nil {
		l.tb.Fatal(err)
	}
	return closed
}

func TestLettersAreClosed(t *testing.T) {
	l := newLab(t)
	topic, other := uuid.New(), uuid.New()
	if closed := l.closed(topic); len(closed) != 0 {
		t.Errorf("at first %v are closed", closed)
	}
	closeThem := func(topic uuid.UUID, starts map[int32]int64, letters ...LetterPlace) {
		t.Helper()
		if err := l.CloseLetters(t.Context(), topic, letters, []byte(`{"reason":"refused"}`), starts); err != nil {
			t.Fatal(err)
		}
	}
	closeThem(topic, nil, LetterPlace{3, 17}, LetterPlace{3, 9}, LetterPlace{0, 1 << 40})
	closeThem(topic, nil, LetterPlace{3, 17}, LetterPlace{3, 10})
	closeThem(other, map[int32]int64{3: 100}, LetterPlace{4, 5})
	if closed, want := l.closed(topic), map[int32][]int64{0: {1 << 40}, 3: {9, 10, 17}}; !reflect.DeepEqual(closed, want) {
		t.Errorf("closed are %v, want %v", closed, want)
	}
	if at, ok, err := l.LetterClosedAt(t.Context(), topic, LetterPlace{3, 17}); !ok || err != nil || at.IsZero() {
		t.Errorf("closed at %v, %v, %v", at, ok, err)
	}
	if at, ok, err := l.LetterClosedAt(t.Context(), other, LetterPlace{3, 17}); ok || err != nil || !at.IsZero() {
		t.Errorf("the letter of the other topic is closed: %v, %v, %v", at, ok, err)
	}
	rows, err := l.Audit(t.Context(), AuditFilter{Subject: "dlq", Limit: 1})
	if err != nil || len(rows) != 1 || rows[0].What != "dlq.replay" || rows[0].Before != nil ||
		string(rows[0].After) != `{"asked": {"reason": "refused"}, "count": 1, "letters": ["4:5"]}` {
		t.Errorf("audit: %s, %v", rows[0].After, err)
	}
	if n := l.changes(); n != 3 {
		t.Errorf("%d rows in the audit table", n)
	}
	// What the brokers have deleted need not be remembered, in that topic.
	closeThem(topic, map[int32]int64{0: 7, 3: 17, 5: 1}, LetterPlace{3, 18})
	if closed, want := l.closed(topic), map[int32][]int64{0: {1 << 40}, 3: {17, 18}}; !reflect.DeepEqual(closed, want) {
		t.Errorf("closed are %v, want %v", closed, want)
	}
	if closed, want := l.closed(other), map[int32][]int64{4: {5}}; !reflect.DeepEqual(closed, want) {
		t.Errorf("of the other topic %v are closed, want %v", closed, want)
	}
}

// TestLettersAreClosedByTwo closes the same letters at once, in different orders.
func TestLettersAreClosedByTwo(t *testing.T) {
	l := newLab(t)
	topic := uuid.New()
	var letters []LetterPlace
	for i := range 1000 {
		letters = append(letters, LetterPlace{int32(i % 7), int64(i / 7)})
	}
	var wg sync.WaitGroup
	for range 2 {
		slices.Reverse(letters)
		own := slices.Clone(letters)
		wg.Go(func() {
			if err := l.CloseLetters(t.Context(), topic, own, nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, offsets := range l.closed(topic) {
		n += len(offsets)
	}
	if n != 1000 || l.changes() != 2 {
		t.Errorf("%d letters are closed, with %d rows in the audit table", n, l.changes())
	}
}

func TestLettersAreClosedOnceWhenAReplyIsLost(t *testing.T) {
	for name, f := range lostReplies(1) {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			db, topic := l.open(), uuid.New()
			breakWith(db, f)
			if err := db.CloseLetters(t.Context(), topic, []LetterPlace{{1, 2}}, nil, nil); err != nil {
				t.Fatal(err)
			}
			if closed, want := l.closed(topic), map[int32][]int64{1: {2}}; !reflect.DeepEqual(closed, want) || l.changes() != 1 {
				t.Errorf("closed are %v, with %d rows in the audit table", closed, l.changes())
			}
		})
	}
}
