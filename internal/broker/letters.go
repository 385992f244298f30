package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/sale"
	"flashgate/internal/strictjson"
)

// MaxLetterText is the longest key and the longest value that a Letter shows, in bytes.
const MaxLetterText = 4 << 10

// Letter is a dead letter as people look at it.
type Letter struct {
	Partition int32 // of the dead-letter topic, as Offset
	Offset    int64
	At        time.Time // when it was written, by the clock of whoever wrote it
	Reason    string    // empty where it does not say, as Error and Topic
	Error     string
	Topic     string // where the record was

	SourcePartition int32 // -1 where it does not say, as SourceOffset
	SourceOffset    int64

	Key        *string      // nil for none, and for one that is no UTF-8 or longer than MaxLetterText
	Value      *string      // likewise
	ValueBytes int          // of the record, also where its value did not fit into the letter
	OrderID    sale.OrderID // zero where none can be read
}

// LetterCursor is where a reading of the dead letters goes on: for each partition the offset of the next one. Partitions that are not in it are read
// from their start, so that none is left out which becomes the first of its partition between two readings. nil is the start of all.
type LetterCursor map[int32]int64

// ErrBadLetterCursor is returned for text that String did not write.
var ErrBadLetterCursor = errors.New("not a place among the dead letters")

// ClosedLetters are dead letters that are done with: for each partition their offsets, in rising order.
type ClosedLetters map[int32][]int64

// Has reports whether a letter is among them.
func (c ClosedLetters) Has(partition int32, offset int64) bool {
	_, found := slices.BinarySearch(c[partition], offset)
	return found
}

// String returns the cursor as text of digits, "-" and ".", empty for nil. ParseLetterCursor reads it.
func (c LetterCursor) String() string {
	var b strings.Builder
	for _, partition := range slices.Sorted(maps.Keys(c)) {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		fmt.Fprintf(&b, "%d-%d", partition, c[partition])
	}
	return b.String()
}

// ParseLetterCursor reads what String wrote, and nothing else. Its error is ErrBadLetterCursor.
func ParseLetterCursor(text string) (LetterCursor, error) {
	if text == "" {
		return nil, nil
	}
	cursor := LetterCursor{}
	for pair := range strings.SplitSeq(text, ".") {
		left, right, _ := strings.Cut(pair, "-")
		partition, err1 := strconv.ParseInt(left, 10, 32)
		offset, err2 := strconv.ParseInt(right, 10, 64)
		if err1 != nil || err2 != nil || partition < 0 || offset < 0 {
			return nil, ErrBadLetterCursor
		}
		cursor[int32(partition)] = offset
	}
	if cursor.String() != text { // signs, zeros in front, another order, a partition twice
		return nil, ErrBadLetterCursor
	}
	return cursor, nil
}

// readLetter understands as much of a dead letter as there is.
func readLetter(record *kgo.Record) Letter {
	letter := Letter{
		Partition: record.Partition, Offset: record.Offset, At: record.Timestamp.UTC(), SourcePartition: -1, SourceOffset: -1,
		Key: letterText(record.Key), Value: letterText(record.Value), ValueBytes: len(record.Value), OrderID: letterOrder(record),
	}
	for _, header := range record.Headers {
		text := string(header.Value)
		switch header.Key {
		case DeadReason:
			letter.Reason = clip(text, maxErrorText)
		case DeadError:
			letter.Error = clip(text, maxErrorText)
		case DeadTopic:
			letter.Topic = clip(text, maxErrorText)
		case DeadPartition:
			if n, err := strconv.ParseInt(text, 10, 32); err == nil && n >= 0 {
				letter.SourcePartition = int32(n)
			}
		case DeadOffset:
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
				letter.SourceOffset = n
			}
		case DeadTime:
			if at, err := parseTime(text); err == nil {
				letter.At = at
			}
		case DeadCut:
			if n, err := strconv.Atoi(text); err == nil && n >= 0 {
				letter.ValueBytes = n
			}
		}
	}
	return letter
}

func letterText(data []byte) *string {
	if data == nil || len(data) > MaxLetterText || !utf8.Valid(data) {
		return nil
	}
	text := string(data)
	return &text
}

// letterOrder reads the order id of a record, whatever else is wrong with it.
func letterOrder(record *kgo.Record) sale.OrderID {
	var raw struct {
		OrderID sale.OrderID `json:"orderId"`
	}
	if err := strictjson.Unmarshal(record.Value, &raw, strictjson.AllowUnknown()); err != nil {
		return sale.OrderID{}
	}
	if _, ok := raw.OrderID.Item(); !ok {
		return sale.OrderID{}
	}
	return raw.OrderID
}
