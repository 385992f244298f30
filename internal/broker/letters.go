package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
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

// Letters reads up to limit dead letters behind after: those of one partition in their order, and of several the older one first. The cursor that it
// returns is where to go on, nil when that was all. It needs no consumer group and leaves none behind. It is bounded by ctx and by the request
// timeout, and fails rather than leave out a partition that it could not read.
func (a *Admin) Letters(ctx context.Context, after LetterCursor, limit int) ([]Letter, LetterCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	piles, err := a.letterPiles(ctx, after)
	if err == nil && len(piles) > 0 {
		err = a.collectLetters(ctx, piles, limit)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the dead letters: %w", err)
	}
	letters, next := mergeLetters(piles, limit, after)
	return letters, next, nil
}

// pile are the letters of one partition that are candidates for a page.
type pile struct {
	letters []Letter
	next    int64 // the offset behind what was read
	end     int64 // the end of the partition when the reading began: what comes later is for another one
}

// full reports whether nothing more of the partition is needed for a page.
func (p *pile) full(limit int) bool { return p.next >= p.end || len(p.letters) >= limit }

// letterPiles returns an empty pile for each partition that has something to read.
func (a *Admin) letterPiles(ctx context.Context, after LetterCursor) (map[int32]*pile, error) {
	ends, err := a.offsets(ctx, DeadLetters, a.admin.ListEndOffsets)
	if err != nil {
		return nil, err
	}
	starts, err := a.offsets(ctx, DeadLetters, a.admin.ListStartOffsets)
	if err != nil {
		return nil, err
	}
	piles := make(map[int32]*pile)
	for partition, end := range ends {
		if from := max(starts[partition], after[partition]); from < end {
			piles[partition] = &pile{next: from, end: end}
		}
	}
	return piles, nil
}

// letterPatience is how long a reading waits for records before it asks whether they have been deleted meanwhile.
const letterPatience = 500 * time.Millisecond

// collectLetters reads until every pile is full.
func (a *Admin) collectLetters(ctx context.Context, piles map[int32]*pile, limit int) error {
	from := make(map[int32]kgo.Offset, len(piles))
	for partition, p := range piles {
		from[partition] = kgo.NewOffset().At(p.next)
	}
	opts, err := ClientOpts(a.cfg)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(opts,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{DeadLetters: from}),
		kgo.KeepControlRecords(), // or the end of a partition could never be seen that a foreign transaction closes
		kgo.FetchMaxWait(letterPatience),
		kgo.FetchMaxPartitionBytes(deadLetterMaxBytes),
		kgo.FetchMaxBytes(4*deadLetterMaxBytes),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	var last error // what a partition had to say, while it is tried again
	for {
		missing := unfinished(piles, limit)
		if len(missing) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("partitions %v: %w", missing, errors.Join(ctx.Err(), last))
		}
		progress, err := pollLetters(ctx, client, piles, limit)
		if err != nil && !kerr.IsRetriable(err) {
			return err
		}
		last = err
		if !progress {
			if err := a.skipDeleted(ctx, piles); err != nil {
				return err
			}
		}
	}
}

func unfinished(piles map[int32]*pile, limit int) (partitions []int32) {
	for partition, p := range piles {
		if !p.full(limit) {
			partitions = append(partitions, partition)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// pollLetters puts the next records on their piles. Its error is that of a partition, which may pass.
func pollLetters(ctx context.Context, client *kgo.Client, piles map[int32]*pile, limit int) (progress bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, letterPatience)
	defer cancel()
	fetches := client.PollFetches(ctx)
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		p, ok := piles[fetched.Partition]
		if !ok { // the poll's own error, such as the end of ctx, is of no partition
			return
		}
		if fetched.Err != nil && !errors.As(fetched.Err, new(*kgo.ErrDataLoss)) {
			err = fmt.Errorf("partition %d: %w", fetched.Partition, fetched.Err)
		}
		for _, record := range fetched.Records {
			progress = true
			p.put(record, limit)
		}
		if p.full(limit) {
			client.PauseFetchPartitions(map[string][]int32{DeadLetters: {fetched.Partition}})
		}
	})
	return progress, err
}

// put takes the next record of the partition. What is not needed of it is dropped at once: a hundred values of a MiB from each partition would be much.
func (p *pile) put(record *kgo.Record, limit int) {
	if p.full(limit) || record.Offset < p.next {
		return
	}
	if record.Offset >= p.end {
		p.next = p.end
		return
	}
	p.next = record.Offset + 1
	if !record.Attrs.IsControl() {
		p.letters = append(p.letters, readLetter(record))
	}
}

// skipDeleted notices that what was to be read is not there any more.
func (a *Admin) skipDeleted(ctx context.Context, piles map[int32]*pile) error {
	starts, err := a.offsets(ctx, DeadLetters, a.admin.ListStartOffsets)
	if err != nil {
		return err
	}
	for partition, p := range piles {
		p.next = max(p.next, starts[partition])
	}
	return nil
}

// mergeLetters takes the oldest letters from the piles, and returns where to go on; nil when nothing is left.
func mergeLetters(piles map[int32]*pile, limit int, after LetterCursor) ([]Letter, LetterCursor) {
	taken := make(map[int32]int, len(piles))
	partitions := slices.Sorted(maps.Keys(piles))
	var letters []Letter
	for len(letters) < limit {
		var oldest *Letter
		for _, partition := range partitions {
			rest := piles[partition].letters[taken[partition]:]
			if len(rest) > 0 && (oldest == nil || rest[0].At.Before(oldest.At)) {
				oldest = &rest[0]
			}
		}
		if oldest == nil {
			break
		}
		letters = append(letters, *oldest)
		taken[oldest.Partition]++
	}
	next, more := maps.Clone(after), false
	if next == nil {
		next = LetterCursor{}
	}
	for partition, p := range piles {
		next[partition] = p.next
		if rest := p.letters[taken[partition]:]; len(rest) > 0 {
			next[partition] = rest[0].Offset
		}
		more = more || next[partition] < p.end
	}
	if !more {
		return letters, nil
	}
	return letters, next
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
