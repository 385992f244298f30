package broker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The headers that a dead letter adds to those of the record that it holds.
const (
	DeadTopic     = "dlq_topic"
	DeadPartition = "dlq_partition"
	DeadOffset    = "dlq_offset"
	DeadReason    = "dlq_reason"
	DeadError     = "dlq_error"
	DeadTime      = "dlq_time"
	// DeadCut is there only if the value did not fit: the number of bytes it had. Such a letter has no value.
	DeadCut = "dlq_cut"
)

const deadPrefix = "dlq_"

// deadLetterMaxBytes bounds one batch of the dead-letter topic: a record as large as the orders topic takes (1 MiB), and its headers.
const deadLetterMaxBytes = 2 << 20

// maxErrorText bounds the text in DeadError, in bytes.
const maxErrorText = 1024

// DeadLetter makes the record that keeps original for a person to look at: its key, value and headers, and in more headers where it came from,
// why it is here and since when.
func DeadLetter(original *kgo.Record, reason string, cause error, now time.Time) *kgo.Record {
	letter := &kgo.Record{Topic: DeadLetters, Key: original.Key, Value: original.Value}
	for _, header := range original.Headers {
		// A record that was replayed and failed again has its old reasons; the new ones replace them.
		if !strings.HasPrefix(header.Key, deadPrefix) {
			letter.Headers = append(letter.Headers, header)
		}
	}
	add := func(key, value string) {
		letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	add(DeadTopic, original.Topic)
	add(DeadPartition, strconv.FormatInt(int64(original.Partition), 10))
	add(DeadOffset, strconv.FormatInt(original.Offset, 10))
	add(DeadReason, reason)
	add(DeadError, clip(cause.Error(), maxErrorText))
	add(DeadTime, now.UTC().Format(timeForm))
	return letter
}

// ProduceDead writes the dead letter of original and returns when the brokers have acknowledged it. After an error it may be there all the same:
// whoever repeats the call may write it twice. A value too large for the dead-letter topic is left out and its size noted, for a record that can
// neither be stored nor set aside would hold up its partition for ever. Safe for concurrent use; bounded by ctx alone.
func (p *Producer) ProduceDead(ctx context.Context, original *kgo.Record, reason string, cause error) error {
	letter := DeadLetter(original, reason, cause, p.cfg.Now())
	err := p.produceSync(ctx, letter)
	if TooLarge(err) {
		small := DeadLetter(&kgo.Record{Topic: original.Topic, Partition: original.Partition, Offset: original.Offset, Key: clipKey(original.Key)}, reason, cause, p.cfg.Now())
		small.Headers = append(small.Headers, kgo.RecordHeader{Key: DeadCut, Value: []byte(strconv.Itoa(len(original.Value)))})
		err = p.produceSync(ctx, small)
	}
	if err != nil {
		return fmt.Errorf("write the dead letter of %s partition %d offset %d: %w", original.Topic, original.Partition, original.Offset, err)
	}
	return nil
}

func clipKey(key []byte) []byte { return key[:min(len(key), maxErrorText)] }

// clip shortens text to at most limit bytes of valid UTF-8.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
