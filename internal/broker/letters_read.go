package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// LetterTopic returns the id of the dead-letter topic: a topic that is deleted and made anew has another one.
func (a *Admin) LetterTopic(ctx context.Context) (uuid.UUID, error) {
	details, err := a.admin.ListTopics(ctx, DeadLetters)
	if err == nil {
		err = details[DeadLetters].Err
	}
	if err != nil {
		return uuid.UUID{}, fmt.Errorf("look up Kafka topic %s: %w", DeadLetters, err)
	}
	return uuid.UUID(details[DeadLetters].ID), nil
}

// Letters reads up to limit dead letters behind after, those that are closed left out: those of one partition in their order, and of several the older
// one first. The cursor that it returns is where to go on, nil when that was all. It needs no consumer group and leaves none behind. It is bounded by
// ctx and by the request timeout, and fails rather than leave out a partition that it could not read.
func (a *Admin) Letters(ctx context.Context, after LetterCursor, limit int, closed ClosedLetters) ([]Letter, LetterCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	extent, err := a.letterExtent(ctx)
	piles := make(map[int32]*pile)
	for partition, end := range extent.ends {
		if p := newPile(max(extent.starts[partition], after[partition]), end, closed[partition], limit); !p.full() {
			piles[partition] = p
		}
	}
	if err == nil && len(piles) > 0 {
		err = a.collectLetters(ctx, piles)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the dead letters: %w", err)
	}
	letters, next := mergeLetters(piles, limit, after)
	return letters, next, nil
}

// pile are letters of one partition: candidates for a page, or for a replay.
type pile struct {
	letters []Letter
	next    int64   // the offset behind what was read
	end     int64   // the end of the partition when the reading began: what comes later is for another one
	closed  []int64 // what is to be left out
	limit   int     // of letters

	whole   bool // keep the records, too
	records []*kgo.Record
	room    int64 // bytes of records that it still takes; the last one may have more
}

func newPile(from, end int64, closed []int64, limit int) *pile {
	p := &pile{next: from, end: end, closed: closed, limit: limit}
	p.skipClosed()
	return p
}

// full reports whether nothing more of the partition is needed.
func (p *pile) full() bool {
	return p.next >= p.end || len(p.letters) >= p.limit || p.whole && p.room <= 0
}

// skipClosed passes over what is to be left out, without it being read.
func (p *pile) skipClosed() {
	at, _ := slices.BinarySearch(p.closed, p.next)
	for ; at < len(p.closed) && p.closed[at] == p.next; at++ {
		p.next++
	}
}

// letterExtent is from where to where the partitions of the dead-letter topic have letters.
type letterExtent struct{ starts, ends map[int32]int64 }

func (a *Admin) letterExtent(ctx context.Context) (e letterExtent, err error) {
	if e.ends, err = a.offsets(ctx, DeadLetters, a.admin.ListEndOffsets); err == nil {
		e.starts, err = a.offsets(ctx, DeadLetters, a.admin.ListStartOffsets)
	}
	if err != nil {
		return letterExtent{}, err
	}
	return e, nil
}

// letterPatience is how long a reading waits for records before it asks whether they have been deleted meanwhile.
const letterPatience = 500 * time.Millisecond

// collectLetters reads until every pile is full.
func (a *Admin) collectLetters(ctx context.Context, piles map[int32]*pile) error {
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
		missing := unfinished(piles)
		if len(missing) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("partitions %v: %w", missing, errors.Join(ctx.Err(), last))
		}
		progress, err := pollLetters(ctx, client, piles)
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

func unfinished(piles map[int32]*pile) (partitions []int32) {
	for partition, p := range piles {
		if !p.full() {
			partitions = append(partitions, partition)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// pollLetters puts the next records on their piles. Its error is that of a partition, which may pass.
func pollLetters(ctx context.Context, client *kgo.Client, piles map[int32]*pile) (progress bool, err error) {
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
			p.put(record)
		}
		if p.full() {
			client.PauseFetchPartitions(map[string][]int32{DeadLetters: {fetched.Partition}})
		}
	})
	return progress, err
}

// put takes the next record of the partition. What is not needed of it is dropped at once: a hundred values of a MiB from each partition would be much.
func (p *pile) put(record *kgo.Record) {
	if p.full() || record.Offset < p.next {
		return
	}
	if record.Offset >= p.end {
		p.next = p.end
		return
	}
	p.next = record.Offset + 1
	p.skipClosed()
	if _, closed := slices.BinarySearch(p.closed, record.Offset); closed || record.Attrs.IsControl() {
		return
	}
	p.letters = append(p.letters, readLetter(record))
	if p.whole {
		p.records = append(p.records, record)
		p.room -= size(record)
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
